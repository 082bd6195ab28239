"""The commands of ``eos``: where each one is, imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from airflow_eos_provider import __version__
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.data_text import one_line
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.terminal import flushed_output, take_any_text


class Place(NamedTuple):
    """Where a command is.

    :param module: below this package; empty if changes alone make it.
    :param name: a function, or the :class:`typer.Typer` of a group.
    :param summary: for the list of commands, which is printed without importing one; the first line of its own help.
    :param examples: at the end of its help; a group's commands have their own.
    """

    module: str
    name: str
    summary: str
    examples: tuple[str, ...] = ()


COMMANDS: Mapping[str, Place] = {
    "status": Place(
        "cli.cluster.status",
        "status",
        "Show the group, its workers, connectors, fencing and transactions. Changes nothing.",
        ("eos status", "eos status --cluster prod --json", "eos status --exit-code  # 1 if there are findings"),
    ),
    "discover": Place(
        "cli.cluster.discover",
        "discover",
        "Write a cluster file from the members of a group.",
        (
            "eos discover -g connect-orders -b kafka-1:9092 --write eos.yaml",
            "eos discover -g connect-orders -b kafka-1:9093 --client-file client.properties",
            "eos discover -g connect-orders -b kafka-1:9092 --ssh --ssh-user eos --write eos.yaml",
        ),
    ),
    "clusters": Place("cli.cluster.clusters", "clusters_app", "List the cluster files that --cluster finds by name."),
    "hosts": Place(
        "cli.cluster.hosts",
        "hosts_app",
        "Check the machines of the workers for a roll; print the sudo rules it needs.",
    ),
    "preflight": Place(
        "cli.rollout.preflight",
        "preflight",
        "Check what exactly-once does to each connector, or what an older Kafka Connect would do. Changes nothing.",
        (
            "eos preflight",
            "eos preflight --to-version 3.2.3",
            "eos preflight orders --json",
            "eos preflight --accept orders/support  # known, and does not count",
        ),
    ),
    "plan": Place(
        "cli.rollout.plan_apply",
        "plan",
        "Show what a roll would change, its hash, and the command that applies it. Changes nothing.",
        ("eos plan", "eos plan --to disabled --cluster prod"),
    ),
    "apply": Place(
        "cli.rollout.plan_apply",
        "apply",
        "Roll the group to a mode, one worker at a time, with a check after each.",
        (
            "eos apply",
            "eos apply --to disabled --reason CHG-4711",
            "eos apply --plan 3f1c09ab77d2",
            "eos apply --yes --json  # for scripts",
        ),
    ),
    "rollout": Place(
        "cli.rollout.rollouts", "rollouts_app", "Show the rollouts of the group; pause, resume, abort or undo one."
    ),
    "drift": Place(
        "cli.rollout.drift",
        "drift",
        "Show changes since the last roll: modes, members, files. Changes nothing.",
        ("eos drift", "eos drift --mode enabled --watch 60  # until something is found"),
    ),
    "offsets": Place(
        "cli.exactly_once.offsets",
        "offsets_app",
        "Source offsets: list, back up, compare, alter, reset, restore, migrate and prune them.",
    ),
    "changes": Place(
        "cli.rollout.changes",
        "changes_app",
        "Changes of a group other than rolls, e.g. of offsets: list them; close one, or a roll.",
    ),
    "fencing": Place(
        "",
        "",
        "Fencing of source connectors: list pending rounds and open transactions; carry rounds out.",
    ),
    "transactions": Place(
        "cli.exactly_once.transactions",
        "transactions_app",
        "Transactions: list, describe and audit them; end a hanging one.",
    ),
    "acl": Place(
        "cli.cluster.acl",
        "acl_app",
        "Rights (ACLs) for exactly-once: check, explain, grant and revoke them.",
    ),
    "topics": Place("cli.cluster.topics", "topics_app", "Internal topics of the group: list, check and create them."),
    "intervals": Place(
        "cli.exactly_once.intervals", "intervals_app", "Show, verify and abandon interval runs; check what they need."
    ),
    "uninstall": Place(
        "",
        "",
        "Show what this package has left of a group, in Kafka and in files, and remove it.",
    ),
    "lab": Place(
        "lab.lab_command",
        "lab_app",
        "Real Kafka brokers and Connect workers on this machine, to try things on.",
    ),
    "demo": Place(
        "demo.demo_command",
        "demo",
        "Run the main job on a lab: upgrade a loaded Connect cluster from Airflow, then backfill days with Spark.",
        ("eos demo", "eos demo --days 31 --keep", "eos demo --down  # take down what --keep left up"),
    ),
}


class _Commands(TyperGroup):
    """A group that imports a command when it is called: the clients of Kafka and HTTP cost a second of CPU."""

    def list_commands(self, ctx: Any) -> list[str]:
        for name, place in places().items():
            self.commands.setdefault(name, TyperCommand(name, short_help=place.summary))
        return list(self.commands)

    def get_command(self, ctx: Any, name: str) -> Any:
        if name not in self.commands:
            self.list_commands(ctx)
        return super().get_command(ctx, name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(name or ""), rest


def places() -> dict[str, Place]:
    """Every command, with the groups of changes that have no other commands."""
    from airflow_eos_provider.changes.declared import CHANGES

    return {**{each.group: Place("", "", f"{each.title}.") for each in CHANGES.values()}, **COMMANDS}


@cache
def load(name: str) -> Any:
    """The command of this name, as Typer makes it."""
    place = COMMANDS.get(name) or places()[name]
    found: Any = typer.Typer(no_args_is_help=True, add_completion=False)
    if place.module:
        found = getattr(import_module(f"airflow_eos_provider.{place.module}"), place.name)
    if isinstance(found, typer.Typer):
        _add_changes(found, name)
    else:
        group = typer.Typer(add_completion=False)
        group.command(name, epilog=examples(*place.examples))(found)
        found = group
    found.info.help = place.summary
    found.rich_markup_mode = None  # Rich's boxes cut long words and break lines where the source does
    command = get_command(found)
    command.name = name
    subcommands = getattr(command, "commands", {}).values()
    for each in (command, *subcommands):
        for parameter in each.params:
            _show_type_in_capitals(parameter)
    for each in subcommands:
        each.short_help = " ".join(each.help.split("\n\n")[0].split())  # whole; a help is cut
    return command


def _add_changes(group: typer.Typer, name: str) -> None:
    from airflow_eos_provider.changes.declared import CHANGES

    changes = [each for each in CHANGES.values() if each.group == name]
    if not changes:
        return
    from airflow_eos_provider.cli.change_commands import add_commands  # brings the clients

    for change in changes:
        add_commands(group, change)
    if changes[0].name != name:
        group.callback()(lambda: None)  # without it, Typer drops the name of a group's only command


#: Typer's name of a type -> its name in help. Every other type is a choice.
_TYPES = {"str": "TEXT", "list[str]": "TEXT", "path": "PATH", "file": "PATH", "directory": "PATH"}
_TYPES |= dict.fromkeys(("int", "int range", "float", "float range"), "NUMBER")


def _show_type_in_capitals(parameter: Any) -> None:
    """Show ``CONNECTOR`` and ``--topic TEXT``, where Typer has ``connector <str>`` and ``--topic <str>``."""
    typer_type = getattr(parameter, "display_type", None)
    if parameter.param_type_name == "argument":
        parameter.metavar = parameter.metavar or parameter.name.upper()
        parameter.display_type = lambda ctx: ""
    elif typer_type is not None:
        parameter.display_type = lambda ctx: _TYPES.get(label := typer_type(ctx).strip("<>"), label)


app = typer.Typer(
    name="eos",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
)


def _add(name: str, place: Place) -> None:
    @app.command(name, short_help=place.summary)
    def stand_in() -> None:
        """Stands in the list of commands; :class:`_Commands` calls the command itself."""


for _name, _place in COMMANDS.items():
    _add(_name, _place)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"airflow-eos-provider {__version__}")
        raise typer.Exit


@app.callback(epilog=examples("eos lab up", "eos status", "eos plan", "eos --quiet apply --yes --json"))
def options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Hide progress; show warnings and errors only."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Show the logs of the Kafka and HTTP clients."),
) -> None:
    """Operate Kafka Connect through exactly-once source support (KIP-618)."""
    if quiet:
        from airflow_eos_provider.cli.common import progress_console

        progress_console.quiet = True
    if verbose:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(asctime)s  %(name)s: %(message)s", datefmt="%H:%M:%S")
        logging.getLogger("airflow_eos_provider").setLevel(logging.DEBUG)  # by it our clients' loggers are let through
        logging.getLogger("airflow_eos_provider.librdkafka").propagate = True


def run() -> int:
    """Run the command of this process. An error that a user can cause ends in a message, not in a traceback."""
    take_any_text()
    try:
        with flushed_output():
            return _run()
    except UnicodeEncodeError as error:  # an argument with such bytes would be sent to Kafka or a worker
        return _tell(ConfigurationError(f"This is not UTF-8 text: {one_line(error.object)}"))
    except EosError as error:
        return _tell(error)


def _run() -> int:
    try:
        app()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0


def _tell(error: EosError) -> int:
    from airflow_eos_provider.cli.common import error_console, print_lines

    print_lines(f"error: {error}", on=error_console)
    return error.exit_code
