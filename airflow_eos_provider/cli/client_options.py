"""Client properties for a command. Secrets never come from the command line, which every user of the machine can read.

A secret comes from a file, from an environment variable, or from a person who is asked for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.redaction import holds_secret, is_secret_itself

#: ``EOS_CLIENT_SASL_PASSWORD`` stands for ``sasl.password``.
ENVIRONMENT_PREFIX = "EOS_CLIENT_"

ClientOption = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME[=VALUE]",
        help="Client property (librdkafka name). Repeatable. For a secret, pass the name only: eos asks for the value. "
        f"Or use --client-file, or set {ENVIRONMENT_PREFIX}SASL_PASSWORD and the like.",
    ),
]
ClientFileOption = Annotated[
    Path | None,
    typer.Option(
        "--client-file", metavar="FILE", help="File with a client property NAME=VALUE on each line; chmod 600."
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties file of a Java client, as for Kafka's own tools; chmod 600. The other options win.",
    ),
]


def client_properties(
    given: Iterable[str], file: Path | None, environment: Mapping[str, str], ask: bool | None = None
) -> dict[str, str]:
    """The client properties of a command: those of the file, of the environment, of the options; the later win."""
    properties = _of_file(file) if file is not None else {}
    properties |= _of_environment(environment)
    for entry in given:
        name, separator, value = entry.partition("=")
        if not separator:
            value = _asked(name, sys.stdin.isatty() if ask is None else ask)
        elif is_secret_itself(name) or holds_secret(value):
            raise ConfigurationError(
                f"--client {name}=… puts a secret on the command line, where every user of this machine can read it.",
                remedy=f"Give --client {name} alone to be asked for it, or name a file with --client-file, or set "
                f"{_variable(name)}; and change the secret, if others work on this machine.",
            )
        properties[name] = value
    return properties


def _of_file(file: Path) -> dict[str, str]:
    try:
        return parse(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"The file of client properties {file} cannot be read: {error.strerror}.",
            expected="NAME=VALUE by line, as in security.protocol=SASL_SSL",
        ) from error


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name != ENVIRONMENT_PREFIX
    }


def _asked(name: str, ask: bool) -> str:
    if not ask:
        raise ConfigurationError(
            f"--client {name} has no value, and there is no terminal to ask for it.",
            remedy=f"Name a file with --client-file, or set {_variable(name)}; if it is no secret: {name}=VALUE.",
        )
    return str(typer.prompt(name, hide_input=True, err=True))


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")
