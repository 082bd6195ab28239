"""The facts of a cluster that decide who needs which rights: its files, its connectors, its topics, its brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_eos_provider.acls.logins import Login, client_properties, login_of
from airflow_eos_provider.acls.rules import (
    ConnectorFacts,
    IntervalFacts,
    Role,
    Rule,
    WorkerFacts,
    connector_rules,
    interval_rules,
    worker_rules,
)
from airflow_eos_provider.connect.cluster.other_kafka import CLIENTS, ClientAddresses
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.properties import references, whole_number, written
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.acl_values import require_principal
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: Connect creates topics for a connector that says how many replicas they get (KIP-158).
_CREATION = "topic.creation.default.replication.factor"

_CLIENT_ROLES = {"producer": Role.PRODUCER, "consumer": Role.CONSUMER, "admin": Role.ADMIN}


@dataclass(frozen=True, slots=True)
class Principals:
    """The principals that the caller names. All others are read from files and configurations."""

    worker: str | None = None
    producer: str | None = None
    consumer: str | None = None
    admin: str | None = None

    def __post_init__(self) -> None:
        """Check the form of each."""
        for client in ("worker", *CLIENTS):
            if (principal := self.given(client)) is not None:
                require_principal(principal, f"The principal of the {client}")

    def given(self, client: str) -> str | None:
        """What is said of one kind of client."""
        return {**dict(zip(CLIENTS, (self.producer, self.consumer, self.admin), strict=True)), "worker": self.worker}[
            client
        ]


@dataclass(frozen=True, slots=True)
class SeenConnector:
    """A source connector."""

    name: str
    config: Mapping[str, str | None] = field(repr=False)
    tasks: int = 0
    topics: tuple[str, ...] = ()

    @property
    def most_tasks(self) -> int:
        """How many tasks its configuration allows; 0 if that is no number."""
        return max(0, whole_number(self.config.get("tasks.max") or "") or 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """A cluster as it was seen.

    :param brokers: their version; None if it is not known.
    :param is_file_missing: whether the file of some worker cannot be read, so that its mode is not known.
    """

    group_id: str
    config_topic: str
    offsets_topic: str
    status_topic: str
    kafka: KafkaSettings
    files: Sequence[Mapping[str, str]] = field(default=(), repr=False)
    connectors: Sequence[SeenConnector] = ()
    existing: Collection[str] = ()
    brokers: tuple[int, int] | None = None
    problems: tuple[str, ...] = ()
    are_connectors_known: bool = True
    is_file_missing: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides the rights in this cluster.

    :param elsewhere: by connector the clients that are in another Kafka cluster, and need their rights there.
    :param gaps: those notes that say why more rights may be needed than the rules have, each with its connector; an
        empty name for all.
    """

    workers: tuple[WorkerFacts, ...]
    connectors: tuple[ConnectorFacts, ...] = ()
    elsewhere: Mapping[str, frozenset[Role]] = field(default_factory=dict)
    pipelines: tuple[IntervalFacts, ...] = ()
    logins: Mapping[str, KafkaSettings] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    gaps: tuple[tuple[str, str], ...] = ()

    def rules(self, *, prefixed: bool = False) -> list[Rule]:
        """All rights that are needed in this Kafka cluster."""
        found = [rule for facts in self.workers for rule in worker_rules(facts)]
        for connector in self.connectors:
            away = self.elsewhere.get(connector.name, frozenset())
            found += [rule for rule in connector_rules(connector, prefixed=prefixed) if rule.role not in away]
        found += [rule for pipeline in self.pipelines for rule in interval_rules(pipeline)]
        return list(dict.fromkeys(rule for rule in found if rule.name))

    @property
    def ids(self) -> tuple[str, ...]:
        """The transactional ids of the connectors' tasks."""
        return tuple(f"{each.id_prefix}{n}" for each in self.connectors for n in range(max(1, each.tasks)))

    def of_connectors(self, names: Collection[str]) -> Facts:
        """The same, of some connectors alone."""
        if missing := sorted(set(names) - {each.name for each in self.connectors}):
            known = ", ".join(each.name for each in self.connectors) or "none"
            raise ConfigurationError(
                f"There is no source connector {', '.join(missing)}.", expected=f"one of the group's: {known}"
            )
        chosen = tuple(each for each in self.connectors if each.name in names)
        return replace(self, workers=(), connectors=chosen, pipelines=())


def facts_of(seen: Seen, mode: Mode, principals: Principals, *, for_tasks_max: bool = False) -> Facts:
    """What decides the rights in a cluster.

    :param for_tasks_max: count the tasks that a connector's configuration allows, not only those that it has.
    """
    reader = _Reader(seen, principals)
    workers = [
        WorkerFacts(
            seen.group_id,
            seen.config_topic,
            seen.offsets_topic,
            seen.status_topic,
            mode,
            principal,
            seen.existing,
            seen.brokers,
        )
        for principal in reader.workers()
    ]
    connectors = [
        each
        for connector in seen.connectors
        for each in reader.connectors(connector, mode, for_tasks_max=for_tasks_max)
    ]
    gaps = [*(("", problem) for problem in seen.problems), *reader.gaps]
    notes = dict.fromkeys([*(text for _, text in gaps), *reader.notes])
    return Facts(
        tuple(workers),
        tuple(connectors),
        reader.elsewhere,
        (),
        reader.logins,
        tuple(notes),
        tuple(dict.fromkeys(gaps)),
    )


class _Reader:
    """Reads principals and logins out of files and configurations."""

    def __init__(self, seen: Seen, principals: Principals) -> None:
        self._seen, self._principals = seen, principals
        self._addresses = ClientAddresses(seen.files, seen.kafka.bootstrap_servers)
        self.logins: dict[str, KafkaSettings] = {}
        self.elsewhere: dict[str, frozenset[Role]] = {}
        self.notes: list[str] = []
        self.gaps: list[tuple[str, str]] = []

    def workers(self) -> list[str]:
        """The principals of the workers: one, unless their files differ."""
        given = self._principals.given("worker")
        read = {self._login("worker", file).principal for file in self._seen.files}
        found: set[str | None] = {given} if given else read or {None}
        if None in found:
            raise ConfigurationError(
                "The principal of the workers is unknown: "
                + ("no worker's file can be read." if not self._seen.files else "their files do not name it."),
                remedy="Name their principal, as in --worker User:connect.",
            )
        return sorted(each for each in found if each)

    def connectors(self, seen: SeenConnector, mode: Mode, *, for_tasks_max: bool) -> Iterator[ConnectorFacts]:
        """The facts of a connector, once for each set of principals that its workers' files give its clients."""
        away = frozenset(_CLIENT_ROLES[client] for client in self._addresses.elsewhere(seen.config))
        if away:
            self.elsewhere[seen.name] = away
            clients = " and ".join(sorted(map(str, away)))
            self.notes.append(
                f"{seen.name}: its {clients} may be in another Kafka cluster; rights that are needed there are left out"
            )
        elif not for_tasks_max and seen.most_tasks > max(1, seen.tasks):
            self.notes.append(
                f"{seen.name}: tasks.max is {seen.most_tasks}, and it has {counted(seen.tasks, 'task')}: the ids of "
                "further ones are not among these (--for-tasks-max, or --prefixed)"
            )
        if not seen.topics:
            self.gaps.append((seen.name, f"{seen.name}: the topics that it writes to are unknown"))
        own = written(seen.config, OWN_TOPIC)
        supplied = references(seen.config.get(OWN_TOPIC) or "")
        if supplied:
            text = f"{seen.name}: a config provider supplies {OWN_TOPIC}, so its offsets topic is unknown"
            self.gaps.append((seen.name, text))
        tasks = max(seen.tasks, seen.most_tasks) if for_tasks_max else seen.tasks
        for producer, consumer, admin in sorted(self._clients(seen)):
            yield ConnectorFacts(
                self._seen.group_id,
                seen.name,
                tasks,
                own or ("" if supplied else self._seen.offsets_topic),
                seen.topics,
                bool(own) and own != self._seen.offsets_topic,
                bool(seen.config.get(_CREATION)),
                mode,
                producer,
                consumer,
                admin,
                self._seen.existing,
                self._seen.brokers,
            )

    def _clients(self, seen: SeenConnector) -> set[tuple[str, str, str]]:
        """Principals of producer, consumer and admin client, by each worker that may run it."""
        fallback = self.workers()[0]
        found = set()
        for file in self._seen.files or [{}]:
            triple = []
            for client in CLIENTS:
                given = self._principals.given(client)
                login = self._login(client, file, seen) if self._seen.files else Login(None, problem="no file")
                if given is None and login.principal is None:
                    text = (
                        f"{seen.name}: the principal of its {_CLIENT_ROLES[client]} is unknown ({login.problem}); "
                        f"{fallback} is assumed (--{client})"
                    )
                    self.gaps.append((seen.name, text))
                triple.append(given or login.principal or fallback)
            found.add((triple[0], triple[1], triple[2]))
        return found

    def _login(self, client: str, file: Mapping[str, str], seen: SeenConnector | None = None) -> Login:
        properties = client_properties(client, file, seen.config if seen else None)
        brokers = written(file, "bootstrap.servers") or self._seen.kafka.bootstrap_servers
        login = login_of(properties, brokers, self._seen.kafka.properties.get("ssl.ca.location"))
        away = self.elsewhere.get(seen.name, ()) if seen else ()
        if login.principal and login.settings and _CLIENT_ROLES.get(client) not in away:
            self.logins.setdefault(login.principal, login.settings)
        return login
