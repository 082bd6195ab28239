"""The options of a lab, and the record of an existing lab: ``lab.json``."""

from __future__ import annotations

import base64
import json
import re
import uuid
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
SCHEMA = 1

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
    :param other_brokers: both ports of the second broker and so on.
    :param older_jars: the folder with the workers' jars, if they are of another version than the brokers'.
    :param complete: False until the lab was ready for the first time: an incomplete one is cleared, not repaired.
    """

    options: LabOptions
    token: str
    jars: Path
    cluster_id: str
    broker_port: int
    controller_port: int
    worker_ports: tuple[int, ...]
    other_brokers: tuple[tuple[int, int], ...] = ()
    older_jars: Path | None = None
    postgres_port: int | None = None
    complete: bool = False

    #: A larger lab has further options.
    options_type: ClassVar[type[LabOptions]] = LabOptions

    @classmethod
    def draw(cls, options: LabOptions) -> Self:
        """The record of a new lab, on ports that are free now."""
        postgres_port, *ports = free_ports(1 + 2 * options.brokers + options.workers)
        ours, workers = ports[: 2 * options.brokers], ports[2 * options.brokers :]
        (broker_port, controller_port), *others = zip(ours[::2], ours[1::2], strict=True)
        return cls(
            options=options,
            token=uuid.uuid4().hex,
            jars=jar_folder(DEFAULT_VERSION),
            cluster_id=_random_cluster_id(),
            broker_port=broker_port,
            controller_port=controller_port,
            worker_ports=tuple(workers),
            other_brokers=tuple(others),
            older_jars=None if options.connect_version == DEFAULT_VERSION else jar_folder(options.connect_version),
            postgres_port=postgres_port if options.postgres else None,
        )

    @property
    def broker_ports(self) -> tuple[tuple[int, int], ...]:
        """Both ports of each broker, the clients' and the controllers', in the order of the brokers' numbers."""
        return ((self.broker_port, self.controller_port), *self.other_brokers)

    @property
    def worker_jars(self) -> Path:
        return self.older_jars or self.jars

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
        values = _known(cls, content) | {"jars": Path(content["jars"]), "options": cls.options_type(**options)}
        values |= {"worker_ports": tuple(content["worker_ports"])}
        values |= {"other_brokers": tuple(map(tuple, content["other_brokers"]))}
        values |= {"older_jars": Path(content["older_jars"]) if content["older_jars"] else None}
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


def _random_cluster_id() -> str:
    """A cluster id as Kafka draws them (Uuid.randomUuid): never with a dash in front, which reads as an option."""
    while True:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not cluster_id.startswith("-"):
            return cluster_id
