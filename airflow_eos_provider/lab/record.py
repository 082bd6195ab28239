"""The options of a lab, and the record of an existing lab: ``lab.json``."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.files import write_atomically
from airflow_eos_provider.lab.jars.jars import DEFAULT_VERSION, JarLock, jar_folder
from airflow_eos_provider.lab.ports import free_ports

#: Version of ``lab.json``. A lab of another version is taken down, not continued.
SCHEMA = 2

DEFAULT_WORKERS = 3

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class LabOptions:
    """What kind of lab is wanted; see the options of ``eos lab up``.

    :param workers: with 0 there are brokers only, and no cluster file.
    :param brokers: 1, or 3 of which one may be lost.
    :param group_id: the workers' ``group.id``, ``connect-<name>`` if not given.
    :param root: the folder that holds the labs' folders.
    :param connect_version: of the workers; the brokers are always of :data:`DEFAULT_VERSION`.
    """

    name: str = "default"
    workers: int = DEFAULT_WORKERS
    brokers: int = 1
    mode: Mode = Mode.DISABLED
    rebalance_delay_ms: int = 3000
    group_id: str | None = None
    root: Path = Path(".eos/lab")
    connect_version: str = DEFAULT_VERSION
    session_timeout_ms: int | None = None
    test_connectors: bool = False
    worker_properties: Mapping[str, str] = field(default_factory=dict)
    postgres: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"A lab cannot be named {self.name!r}.", expected="up to 40 lower-case letters, digits and hyphens"
            )
        if self.brokers not in (1, 3):
            raise ConfigurationError(
                f"{self.brokers} brokers are asked for.", expected="1 or 3: two do not survive a loss"
            )
        JarLock.of(self.connect_version)

    @property
    def folder(self) -> Path:
        """The lab's own folder, absolute."""
        return (self.root / self.name).absolute()

    @property
    def group(self) -> str:
        return self.group_id or f"connect-{self.name}"


@dataclass(frozen=True)
class LabRecord:
    """``lab.json``: what must be known to find, check and clear a lab.

    :param token: random; every process of the lab carries it in its command (see :func:`ownership.marker`).
    :param broker_ports: of each broker the clients' port and the controllers', in the order of the brokers' numbers.
    :param complete: False until the lab was ready for the first time: an incomplete one is cleared, not repaired.
    """

    options: LabOptions
    token: str
    broker_jars: Path
    worker_jars: Path
    cluster_id: str
    broker_ports: tuple[tuple[int, int], ...]
    worker_ports: tuple[int, ...]
    postgres_port: int | None = None
    complete: bool = False

    #: A larger lab has further options.
    options_type: ClassVar[type[LabOptions]] = LabOptions

    @classmethod
    def draw(cls, options: LabOptions) -> Self:
        """The record of a new lab, on ports that are free now."""
        postgres_port, *ports = free_ports(1 + 2 * options.brokers + options.workers)
        ours, workers = ports[: 2 * options.brokers], ports[2 * options.brokers :]
        return cls(
            options=options,
            token=secrets.token_hex(16),
            broker_jars=jar_folder(DEFAULT_VERSION),
            worker_jars=jar_folder(options.connect_version),
            cluster_id=f"A{secrets.token_urlsafe(16)[1:]}",  # a dash in front would read as an option
            broker_ports=tuple(zip(ours[::2], ours[1::2], strict=True)),
            worker_ports=tuple(workers),
            postgres_port=postgres_port if options.postgres else None,
        )

    def write(self, folder: Path) -> None:
        """Put the record on disk, whole or not at all."""
        content = {"schema": SCHEMA, **asdict(self)}
        write_atomically(folder / "lab.json", json.dumps(content, indent=1, default=str) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The record of a lab, or None where there is none. What only a larger lab has is left out."""
        path = folder / "lab.json"
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA:
                raise ValueError("another schema")
            return cls.of_json(content)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{path} is not the record of a lab that this version can read ({error}).",
                remedy="Run 'eos lab down': it stops what belongs to this folder and removes it.",
            ) from error

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        """The record that was written as ``content``."""
        options = _known(cls.options_type, content["options"])
        options |= {"mode": Mode(options["mode"]), "root": Path(options["root"])}
        values = _known(cls, content) | {"options": cls.options_type(**options)}
        values |= {name: Path(content[name]) for name in ("broker_jars", "worker_jars")}
        values |= {"worker_ports": tuple(content["worker_ports"])}
        values |= {"broker_ports": tuple(map(tuple, content["broker_ports"]))}
        return cls(**values)

    def differences(self, wanted: LabOptions) -> list[str]:
        """The options in which this lab is not what is wanted, as ``name: found, wanted`` lines."""
        found, asked = asdict(self.options), asdict(wanted)
        return [
            f"{name}: it has {found[name]}, {asked[name]} is asked for"
            for name in found
            if name != "root" and found[name] != asked[name]
        ]


def _known(kind: type[Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a class's own fields."""
    return {each.name: content[each.name] for each in fields(kind) if each.name in content}
