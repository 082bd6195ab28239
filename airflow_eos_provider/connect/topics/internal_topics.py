"""The internal topics of a group: their names, and what its workers create them with, by the workers' files."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_eos_provider.connect.cluster.description import TOPIC_KEYS, ConnectCluster
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.connect.properties import read, references, whole_number
from airflow_eos_provider.data_text import sentence
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.redaction import remember

TOPICS = CONFIGS, OFFSETS, STATUS = "config.storage.topic", "offset.storage.topic", "status.storage.topic"

#: Keys of the cluster description that name these topics, where workers take the names from a config provider.
DESCRIBED = {name: key for key, name in TOPIC_KEYS.items()}

#: The name that errors give it, next to the workers.
_DESCRIPTION = "the cluster description"

#: What all workers of a group have in common.
SHARED = ("group.id", *TOPICS)

#: What to do where a worker's file names another group than the cluster description.
OTHER_GROUP_REMEDY = (
    "set group_id to the workers' group.id, or correct which file the cluster description names as config"
)

#: A connector's own offsets topic (KIP-618).
OWN_TOPIC = "offsets.storage.topic"

#: What a number of partitions or replicas is where the brokers' default is wanted (KIP-464).
BROKERS_DEFAULT = -1

#: Below a topic's prefix, what is no setting of the topic. Connect ignores a cleanup policy there.
_NO_SETTINGS = frozenset({"topic", "partitions", "replication.factor", "cleanup.policy"})

#: Workers' files that are read at the same time.
_AT_ONCE = 16

_COMPACT = {"cleanup.policy": "compact"}


def own_topic_name(group_id: str, connector: str) -> str:
    """The name that a connector's own offsets topic gets where none is given."""
    return f"{group_id}-{connector}-offsets"


class Role(StrEnum):
    """What an internal topic is for."""

    CONFIGS = "config topic"
    OFFSETS = "offsets topic"
    STATUS = "status topic"
    OWN = "own offsets topic"

    @property
    def prefix(self) -> str:
        """What the workers' settings of the topic begin with. An own topic is created with the global one's."""
        return {Role.CONFIGS: "config.storage.", Role.STATUS: "status.storage."}.get(self, "offset.storage.")

    @property
    def default_partitions(self) -> int:
        """Connect's default; the config topic always has one partition."""
        return {Role.CONFIGS: 1, Role.STATUS: 5}.get(self, 25)


#: Connect's default for each internal topic.
_DEFAULT_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """An internal topic as a worker creates it.

    :param connectors: whose own topic it is; empty for a topic of the whole group, and for one that is not in use yet.
    :param partitions: how many; :data:`BROKERS_DEFAULT`; None if it cannot be known here.
    :param replicas: copies of each partition, in the same way.
    :param unknown: the workers' settings of it that a config provider supplies.
    :param addresses: of the brokers of another Kafka cluster that it is in; empty for the workers'.
    """

    name: str
    role: Role
    connectors: tuple[str, ...] = ()
    partitions: int | None = None
    replicas: int | None = None
    settings: Mapping[str, str] = field(default_factory=lambda: dict(_COMPACT))
    unknown: tuple[str, ...] = ()
    addresses: str = ""

    @property
    def use(self) -> str:
        """What it is for, and whose it is."""
        return f"{self.role}{' of ' if self.connectors else ''}{', '.join(self.connectors)}"

    def __str__(self) -> str:
        return f"{self.name} ({self.use}{', at ' if self.addresses else ''}{self.addresses})"


@dataclass(frozen=True, slots=True)
class SharedTopic:
    """The internal topic that a property names, which all workers of a group must have in common.

    :param name: of the topic; empty if it is not known, or the workers differ.
    :param differing: who says what, if they differ; else empty.
    :param unknown: by worker its reference to a config provider: that value cannot be compared with the others.
    """

    setting: str
    name: str
    differing: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, workers: Mapping[str, Mapping[str, str]], described: str = "") -> SharedTopic:
        """The topic by the workers' properties and the cluster description.

        :param described: the topic's name in the cluster description; workers with a reference are taken to have it.
        """
        said = {_DESCRIPTION: described} if described else {}
        unknown = {}
        for worker, properties in workers.items():
            text = properties.get(name, "")
            if not references(text):
                said[worker] = text
            elif not described:
                unknown[worker] = text
        if differing := _differing(said):
            return cls(name, "", differing, unknown)
        return cls(name, next(iter(said.values()), ""), unknown=unknown)

    @property
    def problem(self) -> str:
        """Why it is not proven that all workers use one topic; empty if it is."""
        if self.differing:
            return f"the workers differ in {self.setting}: {self.differing}"
        if self.unknown:
            supplied = ", ".join(f"{text} in the configuration of {worker}" for worker, text in self.unknown.items())
            return f"a config provider supplies {self.setting} ({supplied}), so eos cannot read its value"
        return ""

    @property
    def remedy(self) -> str:
        """What to do about the problem."""
        if self.differing:
            correct = f"correct {DESCRIBED[self.setting]} in {_DESCRIPTION} if that is wrong; otherwise "
            return (correct if self.differing.startswith(_DESCRIPTION) else "") + (
                f"stop the workers that have the wrong topic, and set the same {self.setting} for all: source "
                "connectors start over, or deliver records twice, on a worker that reads another topic"
            )
        return f"write {DESCRIBED[self.setting]}: NAME into {_DESCRIPTION}"


@dataclass(frozen=True, slots=True)
class WorkerFiles:
    """What the workers' properties files say, as far as they can be read here.

    :param unread: by worker id why its file was not read.
    :param described: by property the internal topics that the cluster description names.
    """

    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    unread: Mapping[str, str] = field(default_factory=dict)
    described: Mapping[str, str] = field(default_factory=dict)

    def shared(self, name: str) -> SharedTopic:
        """What is known of an internal topic, by its property."""
        return SharedTopic.of(name, self.properties, self.described.get(name, ""))

    def common(self, name: str, given: str | None = None) -> str:
        """The name of an internal topic, which all workers need to have in common.

        :param given: the topic's name if the caller has it; it wins over the files.
        """
        if given:
            return given
        found = self.shared(name)
        if found.differing:
            raise ConfigurationError(
                sentence(found.problem), expected="the same everywhere", remedy=sentence(found.remedy)
            )
        if found.name:
            return found.name
        unread = "; ".join(f"{worker}: {reason}" for worker, reason in self.unread.items())
        if found.unknown or self.properties:
            why = found.problem or "no worker's file has it"
        else:
            why = f"no worker's properties file can be read here ({unread})"
        raise ConfigurationError(
            f"{name} cannot be determined: {why}.",
            remedy=f"Write {DESCRIBED[name]}: NAME into the cluster description.",
        )

    def wanted(
        self,
        role: Role,
        name: str,
        connectors: tuple[str, ...] = (),
        *,
        partitions: int | None = None,
        replicas: int | None = None,
    ) -> WantedTopic:
        """An internal topic as these workers create it.

        Connect's rules: ``DistributedConfig`` for the defaults and a topic's further settings (KIP-605),
        ``KafkaOffsetBackingStore`` for an own topic, which gets what the global one gets.
        """
        settings = {setting: self._agreed(role.prefix + setting) for setting in self._settings(role)}
        unknown = [role.prefix + setting for setting, value in settings.items() if any(references(value))]
        if role is Role.CONFIGS:
            partitions = 1
        if partitions is None:
            partitions = self._number(f"{role.prefix}partitions", role.default_partitions)
            unknown += [f"{role.prefix}partitions"] * (partitions is None)
        if replicas is None:
            replicas = self._number(f"{role.prefix}replication.factor", _DEFAULT_REPLICAS)
            unknown += [f"{role.prefix}replication.factor"] * (replicas is None)
        known = {setting: value for setting, value in settings.items() if not any(references(value))}
        return WantedTopic(name, role, connectors, partitions, replicas, {**known, **_COMPACT}, tuple(unknown))

    def _settings(self, role: Role) -> list[str]:
        names = {name for properties in self.properties.values() for name in properties}
        below = {name.removeprefix(role.prefix) for name in names if name.startswith(role.prefix)}
        return sorted(below - _NO_SETTINGS)

    def _number(self, name: str, default: int) -> int | None:
        """A number of a topic; None where no file is readable here or a config provider supplies it."""
        value = self._agreed(name, str(default))
        if not self.properties or any(references(value)):
            return None
        number = whole_number(value)
        if number is None:
            raise ConfigurationError(f"The workers' files say {name}={value}.", expected="a whole number")
        return number

    def _agreed(self, name: str, default: str = "") -> str:
        """The value that all workers have."""
        values = {worker: properties.get(name) or default for worker, properties in self.properties.items()}
        if differing := _differing(values):
            raise ConfigurationError(
                f"The workers' files differ in {name}: {differing}.", expected="the same everywhere"
            )
        return next(iter(values.values()), "")


def _differing(said: Mapping[str, str]) -> str:
    """Who says what, if they differ; else empty."""
    return ", ".join(f"{who}: {value or 'none'}" for who, value in said.items()) if len(set(said.values())) > 1 else ""


def other_groups(group_id: str, workers: Mapping[str, Mapping[str, str]]) -> str:
    """Which workers' properties, by worker id, name another group than the described one; empty if none is known to."""
    said = {worker: properties.get("group.id", "") for worker, properties in workers.items()}
    other = [
        f"{worker}: {text}" for worker, text in said.items() if text not in ("", group_id) and not references(text)
    ]
    return f"the workers' files name another group than {group_id}: {', '.join(other)}" if other else ""


def read_worker_files(cluster: ConnectCluster) -> WorkerFiles:
    """Read what can be read of the described workers' properties files, those of other machines all at once.

    :raises ConfigurationError: a file names another group than the cluster description. A plan, the journal and the
        transactional ids would be that group's.
    """
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(cluster.workers)), thread_name_prefix="file") as pool:
        read = pool.map(lambda worker: _read(cluster, worker), cluster.workers)
        answers = dict(zip((worker.worker_id for worker in cluster.workers), read, strict=True))
    properties = {worker: answer for worker, answer in answers.items() if not isinstance(answer, str)}
    if problem := other_groups(cluster.group_id, properties):
        raise ConfigurationError(
            sentence(problem),
            expected=f"group.id={cluster.group_id}, as in the cluster description",
            remedy=sentence(OTHER_GROUP_REMEDY),
        )
    return WorkerFiles(
        properties,
        {worker: answer for worker, answer in answers.items() if isinstance(answer, str)},
        cluster.topics,
    )


def _read(cluster: ConnectCluster, worker: WorkerDescription) -> Mapping[str, str] | str:
    """What one worker's file says; or why it was not read."""
    if worker.config is None:
        return "its description names no file"
    try:
        if worker.machine is None:
            data = worker.config.read_bytes()
        elif cluster.read_elsewhere is None:
            return f"its file is on {worker.machine}, which is not checked from here"
        else:
            data = cluster.read_elsewhere(worker)
        properties = read(data)
    except (OSError, EosError) as error:
        return str(error).partition("\n")[0]
    remember(properties)
    return properties
