"""A group's internal topics looked at, and what was planned for them carried out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from airflow_eos_provider.connect.group import connect_groups, describe_group, is_of_group
from airflow_eos_provider.connect.internal_topics import (
    CONFIGS,
    OFFSETS,
    OWN_TOPIC,
    STATUS,
    Role,
    WantedTopic,
    WorkerFiles,
    read_worker_files,
)
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topic_checks import FoundTopic, TopicPlan, TopicsLook, users_of
from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError, UnreachableError
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.offsets.stores import OffsetStores, Store, topic_of

#: Limit of the one request for all connectors, seconds.
_REST_SECONDS = 30.0

_NAMES = {Role.CONFIGS: CONFIGS, Role.OFFSETS: OFFSETS, Role.STATUS: STATUS}


@dataclass(frozen=True, slots=True)
class Given:
    """What is said about the topics besides the workers' files, and wins over them.

    :param names: of the group's topics.
    :param own: topics that connectors are to have as their own.
    :param partitions: of offsets topics.
    :param replicas: of all topics.
    """

    names: Mapping[Role, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    partitions: int | None = None
    replicas: int | None = None


class InternalTopicsClient:
    """Looks at the internal topics of one group, and changes them, also those in other Kafka clusters.

    :param session: of the Connect cluster.
    :param given: what is said about the topics besides the workers' files.
    :ivar unreachable: after a look the error of a worker, if none answered; else that of brokers of another Kafka
        cluster that did not.
    :ivar unknown: after a look by connector why its own topic is not known.
    """

    def __init__(self, session: ConnectSession, given: Given = Given()) -> None:
        self._session = session
        self._given = given
        self._kafka = {"": session.kafka}
        self._not_checked: list[str] = []
        self.unreachable: EosError | None = None
        self.unknown: dict[str, EosError] = {}

    def look(self) -> TopicsLook:
        """Look at the group's topics and at every connector's own. Changes nothing.

        :raises ConfigurationError: the name of a topic is not known, the workers' files differ, or the principal may
            not describe a topic or its settings.
        :raises UnreachableError: no broker answers.
        """
        self._not_checked = []
        files = read_worker_files(self._session.cluster)
        names = {role: self._given.names.get(role) or files.common(name) for role, name in _NAMES.items()}
        connectors = self._connectors()
        stores = self._own(connectors or {}, names[Role.OFFSETS])
        self._kafka = {"": self._session.kafka} | {store.cluster_id: store.kafka for store in stores.values()}
        own = {connector: store.name for connector, store in stores.items()}
        members = self._members()
        wanted = self._wanted(files, names, own)
        found = self._found([topic.name for topic in wanted])
        brokers = {cluster_id: self._topics(cluster_id).brokers() for cluster_id in self._kafka}
        return TopicsLook(
            group_id=self._session.cluster.group_id,
            kafka_cluster_id=self._session.kafka.cluster_id(),
            brokers=brokers.pop(""),
            wanted=wanted,
            found=found,
            own=own,
            foreign_ids=self._foreign_ids(found),
            workers_run=connectors is not None or members,
            not_checked=tuple(self._not_checked),
            brokers_elsewhere=brokers,
        )

    def carry_out(self, plan: TopicPlan, permit: Callable[[str], None] = lambda topic: None) -> None:
        """Create and change topics as planned; returns when the brokers say that it is so.

        :param permit: called with each topic right before it is created or changed.
        :raises PlanMovedError: a missing topic was created meanwhile; what came before it in the plan is done.
        :raises ConfigurationError: the principal may not.
        :raises UnreachableError: no broker answers, or they do not take a change over.
        :raises EosError: a broker refuses a change.
        """
        for change in plan.changes:
            wanted = change.wanted
            permit(wanted.name)
            if change.creates:
                assert wanted.partitions is not None  # else it is not planned
                topics, name = self._topics(_cluster_of(wanted.name)), topic_of(wanted.name)
                if not topics.create(name, wanted.partitions, change.settings, wanted.replicas):
                    raise PlanMovedError(
                        f"Topic {wanted} has just been created, by another tool or by a worker.",
                        remedy="See with 'eos topics check' whether it is as it should be.",
                    )
            else:
                self._topics(_cluster_of(wanted.name)).change(topic_of(wanted.name), change.settings)
        for change in plan.changes:
            name = change.wanted.name
            self._topics(_cluster_of(name)).await_settings(topic_of(name), change.settings)

    def _topics(self, cluster_id: str) -> Topics:
        """The topics of a Kafka cluster.

        :param cluster_id: of another one than the workers'; empty for theirs.
        """
        return Topics(self._kafka[cluster_id].settings)

    def _own(self, connectors: Mapping[str, ConnectorStatus], global_topic: str) -> dict[str, Store]:
        """By source connector the offsets topic that it has for itself, or with others in another Kafka cluster."""
        stores, own = OffsetStores(self._session, global_topic), dict[str, Store]()
        self.unknown = {}
        for name, status in sorted(connectors.items()):
            if status.type == "sink":
                continue
            named = status.config.get(OWN_TOPIC) or ""
            try:
                if any(references(named)):
                    raise ConfigurationError("a config provider supplies its name")
                found = stores.own(name, status.config)
            except EosError as error:
                self.unknown[name] = error
                self._not_checked.append(f"the offsets topic of {name}: {error.found}")
                if isinstance(error, UnreachableError):
                    self.unreachable = self.unreachable or error
                continue
            if found is None and named == global_topic:
                found = stores.global_store
            if found is not None:
                own[name] = found
        return own

    def _connectors(self) -> Mapping[str, ConnectorStatus] | None:
        self.unreachable = None
        try:
            return self._session.first_answer(lambda rest: rest.infos(), seconds=_REST_SECONDS)
        except EosError as error:
            self.unreachable = error
        self._not_checked.append("connectors' own offsets topics: no worker answers")
        return None

    def _members(self) -> bool:
        """Whether the group has members."""
        cluster = self._session.cluster
        try:
            members = {member.worker_id for member in describe_group(self._session.kafka, cluster.group_id).members}
        except ConfigurationError:  # there is no such group yet, or it may not be described
            return False
        if unknown := sorted(members - {worker.worker_id for worker in cluster.workers}):
            self._not_checked.append(f"the files of the members {', '.join(unknown)}, which are not described")
        return bool(members)

    def _wanted(self, files: WorkerFiles, names: Mapping[Role, str], own: Mapping[str, str]) -> tuple[WantedTopic, ...]:
        partitions, replicas = self._given.partitions, self._given.replicas
        group = [
            files.wanted(role, name, partitions=None if role is Role.STATUS else partitions, replicas=replicas)
            for role, name in names.items()
        ]
        users = {**dict.fromkeys(self._given.own, ()), **users_of(own)}
        owned = [
            files.wanted(Role.OWN, topic, tuple(who), partitions=partitions, replicas=replicas)
            for topic, who in sorted(users.items())
            if topic not in names.values()
        ]
        for one in (*group, *owned):
            if one.unknown:
                self._not_checked.append(f"{one.name} against {', '.join(one.unknown)}: not known here")
        return (*group, *owned)

    def _found(self, names: Collection[str]) -> dict[str, FoundTopic]:
        found = {}
        for cluster_id in self._kafka:
            topics, there = self._topics(cluster_id), {topic_of(n): n for n in names if _cluster_of(n) == cluster_id}
            described = topics.find(sorted(there))
            settings = topics.settings_of(list(described)) if described else {}
            for topic, each in described.items():
                found[there[topic]] = FoundTopic(each.id, each.partitions, each.least_replicas, settings[topic])
        return found

    def _foreign_ids(self, found: Mapping[str, FoundTopic]) -> dict[str, tuple[str, ...]]:
        """By topic the transactional ids of others, as far as brokers remember the producers (a day by default)."""
        foreign: dict[str, tuple[str, ...]] = {}
        group_id = self._session.cluster.group_id
        with self._or_not_checked("which other Connect groups there are"):
            if others_there := [name for name in connect_groups(self._session.kafka) if name != group_id]:
                self._not_checked.append(
                    f"the topics of the Connect groups {', '.join(others_there)}: no protocol says them. One that "
                    "writes to these topics in transactions is found, one that does not is not"
                )
        for cluster_id, kafka in self._kafka.items():
            there = f" in the Kafka cluster {cluster_id}" * bool(cluster_id)
            with self._or_not_checked(f"who writes to the topics{there} in transactions"):
                mine = {name: topic for name, topic in found.items() if _cluster_of(name) == cluster_id}
                foreign |= self._foreign_ids_in(kafka, mine)
        return foreign

    def _foreign_ids_in(self, kafka: Session, found: Mapping[str, FoundTopic]) -> dict[str, tuple[str, ...]]:
        """Those of the topics of one Kafka cluster."""
        foreign: dict[str, tuple[str, ...]] = {}
        with kafka.transactions() as client:
            others = {
                listed.producer_id: listed.transactional_id
                for listed in client.list()
                if not is_of_group(listed.transactional_id, self._session.cluster.group_id)
            }
            for name, topic in found.items():
                active = client.active_producers(topic_of(name), range(topic.partitions)) if others else ()
                ids = {others[producer.producer_id] for producer in active if producer.producer_id in others}
                if ids:
                    foreign[name] = tuple(sorted(ids))
        return foreign

    @contextmanager
    def _or_not_checked(self, what: str) -> Iterator[None]:
        try:
            yield
        except EosError as error:
            self._not_checked.append(f"{what}: {error.found}")


def _cluster_of(name: str) -> str:
    """The id of another Kafka cluster in the name of a store; empty for the workers' own."""
    return name.rpartition("/")[0]
