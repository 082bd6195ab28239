"""Where a connector has its source offsets: the topic, and the Kafka cluster, which may be another than the workers'.

The rules are Connect's: ``Worker.offsetStoreForRegularSourceTask``, ``offsetStoreForExactlyOnceSourceTask`` (4.3.1). A
connector's own topic is in the cluster of its clients. In the mode ``enabled`` a connector whose clients use another
Kafka cluster has an own topic there in any case: without ``offsets.storage.topic``, one of the global topic's name
(KIP-618). Below ``enabled`` it has none without that property.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from airflow_eos_provider.connect.cluster.other_kafka import CLIENTS, OVERRIDES, ClientAddresses
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode_evidence import probe
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC, read_worker_files
from airflow_eos_provider.data_text import first_few, sentence
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError, UnreachableError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.topics import require_topic_name
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic, read_offsets_topic


@dataclass(frozen=True, slots=True)
class Store:
    """An offsets topic in a Kafka cluster."""

    topic: str  #: its name there
    kafka: Session = field(compare=False, repr=False)
    cluster_id: str = ""  #: of another Kafka cluster than the workers'; empty for theirs
    #: Whether the cluster description has the addresses by which it is reached. Anybody's brokers may say any cluster
    #: id: of two stores with one name the one that is described counts.
    is_described: bool = field(default=True, compare=False, repr=False)

    @property
    def name(self) -> str:
        """What it is called here: the topic; in another Kafka cluster ``<its id>/<topic>``."""
        return f"{self.cluster_id}/{self.topic}" if self.cluster_id else self.topic

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is in another Kafka cluster than the workers'."""
        return bool(self.cluster_id)


#: How long a worker has to answer.
_ANSWER_SECONDS = 60.0

#: So many names are in an error.
_SHOWN_NAMES = 20


def unknown_connector(
    connector: str, group_id: str, known: Iterable[str], remedy: str | None = None
) -> ConfigurationError:
    """The error for a connector that does not exist."""
    names = sorted(known)
    return ConfigurationError(
        f"There is no connector {connector} in the group {group_id}.",
        expected=f"one of {first_few(names, _SHOWN_NAMES) or 'none at all'}",
        remedy=remedy,
    )


def require_source(connector: str, kind: str) -> None:
    """Refuse a sink connector: its offsets are those of a consumer group."""
    if kind == "sink":
        raise ConfigurationError(
            f"{connector} is a sink connector: it has no source offsets.",
            expected="a source connector",
            remedy=f"Its offsets are in the consumer group connect-{connector}: use kafka-consumer-groups.",
        )


def source_of(
    connector: str, statuses: Mapping[str, ConnectorStatus], group_id: str, remedy: str | None = None
) -> ConnectorStatus:
    """The status of a source connector, which has to exist, among those of all connectors."""
    if connector not in statuses:
        known = (name for name, status in statuses.items() if status.type != "sink")
        raise unknown_connector(connector, group_id, known, remedy)
    require_source(connector, statuses[connector].type)
    return statuses[connector]


def topic_of(name: str) -> str:
    """The topic in the name of a store. No topic has a slash in its name."""
    return name.rpartition("/")[2]


def is_elsewhere(name: str) -> bool:
    """Whether the store of this name is in another Kafka cluster than the workers'."""
    return "/" in name


def runs_exactly_once(session: ConnectSession) -> bool:
    """Whether all workers run in the mode ``enabled``; False if none does.

    Each worker is asked to validate a connector that requires exactly-once (``ExactlyOnceSourceIT``'s way to see it
    from outside), so this needs nothing but their REST API.
    """
    found: dict[str, bool | None] = {}
    why: dict[str, str] = {}
    for worker in session.cluster.workers:
        with session.rest(worker.url, give_up_at=time.monotonic() + _ANSWER_SECONDS) as rest:
            observed = probe(rest)
        found[worker.worker_id], why[worker.worker_id] = observed.runs_exactly_once, observed.detail
    verdicts = set(found.values())
    if verdicts == {True} or verdicts == {False}:
        return verdicts == {True}
    if silent := sorted(worker for worker, runs in found.items() if runs is None):
        raise RefusedError(
            f"eos cannot tell whether exactly-once source connectors run on {', '.join(silent)}: {why[silent[0]]}.",
            expected="an answer of every worker of the cluster file",
            remedy="Start it, or end its process if it hangs: it may still write. Take a worker that is gone out of "
            "the cluster file.",
        )
    raise RefusedError(
        "Some workers run exactly-once source connectors, others do not: "
        + "; ".join(f"{worker}: {detail}" for worker, detail in why.items())
        + ".",
        remedy="Offsets have no guarantee in between: finish the roll ('eos status', 'eos plan'), then try again.",
    )


class WorkersKafka:
    """The workers' Kafka cluster, and which addresses of brokers are not in it."""

    def __init__(self, session: ConnectSession) -> None:
        self._session = session

    @cached_property
    def _addresses(self) -> ClientAddresses:
        files = read_worker_files(self._session.cluster)
        return ClientAddresses(files.properties.values(), self._session.kafka.settings.bootstrap_servers)

    @cached_property
    def _own_id(self) -> str:
        return self._session.kafka.cluster_id()

    def of_producers(self, config: Mapping[str, str | None]) -> tuple[Session, str]:
        """The Kafka cluster of a connector's producers, and its id; without an id where it is the workers'."""
        elsewhere = self._addresses.elsewhere(config).get("producer")
        if elsewhere is not None:
            cluster_id = self._session.other_kafka.id_of(elsewhere)
            if cluster_id != self._own_id:
                return self._session.other_kafka.session(elsewhere), cluster_id
        return self._session.kafka, ""


class OffsetStores(WorkersKafka):
    """Finds the stores of a group's connectors.

    :param exactly_once: whether the workers run in the mode ``enabled``; by default they are asked where it matters.
    """

    def __init__(
        self, session: ConnectSession, global_topic: str, exactly_once: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(session)
        self._exactly_once = exactly_once or (lambda: runs_exactly_once(session))
        self.global_store = Store(global_topic, session.kafka)
        self._on_read = session.on_read

    def read(self, store: Store, *, headers: bool = False) -> OffsetsTopic:
        """Read a store's topic to its end."""
        progress = partial(self._on_read, store.name)
        return read_offsets_topic(store.kafka, store.topic, name=store.name, headers=headers, progress=progress)

    def own(self, connector: str, config: Mapping[str, str | None]) -> Store | None:
        """The own store of a connector; None if its tasks use the global one."""
        topic, global_topic = config.get(OWN_TOPIC) or "", self.global_store.topic
        if references(topic):
            raise RefusedError(
                f"A config provider supplies {OWN_TOPIC} of connector {connector}: {topic} may be any topic.",
                remedy=f"Write the topic's name into {OWN_TOPIC} of the connector.",
            )
        if topic:
            require_topic_name(topic)
        here = None if topic in ("", global_topic) else Store(topic, self._session.kafka)
        elsewhere = self._addresses.elsewhere(config)
        if not elsewhere or not (topic or self._runs_exactly_once):
            return here
        cluster_id = self._cluster_of(connector, elsewhere)
        if cluster_id == self._own_id:
            return here
        addresses, others = elsewhere["producer"], self._session.other_kafka
        return Store(topic or global_topic, others.session(addresses), cluster_id, others.describes(addresses))

    def _cluster_of(self, connector: str, elsewhere: Mapping[str, str]) -> str:
        """The id of the one Kafka cluster in which all clients of a connector are."""
        ids = dict.fromkeys(CLIENTS, self._own_id)
        for client, addresses in elsewhere.items():
            try:
                ids[client] = self._session.other_kafka.id_of(addresses)
            except UnreachableError as error:
                raise UnreachableError(
                    f"The Kafka cluster of the {client} of connector {connector}, {addresses}, in which its offsets "
                    f"are, does not answer: {error.found}",
                    remedy=sentence(self._session.other_kafka.remedy(addresses)),
                ) from error
            except EosError as error:
                raise RefusedError(
                    f"Connector {connector} has its offsets in the Kafka cluster of its {client}, {addresses}, which "
                    f"eos cannot identify: {error.found.rstrip('.')}.",
                    expected="addresses of brokers that answer here",
                    remedy=sentence(self._session.other_kafka.remedy(addresses)),
                ) from error
        if len(set(ids.values())) > 1:
            clients = ", ".join(f"{client}: {cluster_id}" for client, cluster_id in ids.items())
            raise RefusedError(
                f"The clients of connector {connector} are in different Kafka clusters ({clients}): it reads its "
                "offsets where it does not write them, or its zombies are not fenced where they write.",
                expected="the same for all three",
                remedy=f"Give {', '.join(OVERRIDES.values())} the same addresses.",
            )
        return ids["producer"]

    @property
    def _runs_exactly_once(self) -> bool:
        """Asked once, also where it is not known."""
        if isinstance(self._mode, EosError):
            raise self._mode
        return self._mode

    @cached_property
    def _mode(self) -> bool | EosError:
        try:
            return self._exactly_once()
        except EosError as error:
            return error
