"""Inspects a group's internal topics; creates and fixes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.group import describe_group, known_group, other_groups
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.internal_topics import (
    CONFIGS,
    OFFSETS,
    OWN_TOPIC,
    STATUS,
    Role,
    WantedTopic,
    WorkerFiles,
    read_worker_files,
)
from airflow_eos_provider.connect.topics.topic_checks import FoundTopic, TopicChange, TopicsLook, users_of
from airflow_eos_provider.connect.transactional_ids import KnownGroup, is_of_group
from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError
from airflow_eos_provider.journal.group_change import GroupChange
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.topics import Topics, require_topic_name
from airflow_eos_provider.offsets.stores import OffsetStores, Store

#: Limit of the one request for all connectors, seconds.
_REST_SECONDS = 30.0

_NAMES = {Role.CONFIGS: CONFIGS, Role.OFFSETS: OFFSETS, Role.STATUS: STATUS}


class InternalTopicsClient:
    """Looks at the internal topics of one group, and changes them, also those in other Kafka clusters.

    :ivar unreachable: after a look the error of a worker, if none answered.
    :ivar unknown: after a look by connector why its own topic is not known.
    """

    def __init__(
        self,
        session: ConnectSession,
        *,
        own_topics: Collection[str] = (),
        partitions: int | None = None,
        replication_factor: int | None = None,
    ) -> None:
        self._session = session
        self._own_topics = own_topics
        self._partitions, self._replicas = partitions, replication_factor
        self._topics_of: dict[Session, Topics] = {}
        self._stores: dict[str, Store] = {}
        self._not_checked: list[str] = []
        self._others: tuple[KnownGroup, ...] = ()
        self._names: Collection[str] = ()
        self.unreachable: EosError | None = None
        self.unknown: dict[str, EosError] = {}

    def look(self) -> TopicsLook:
        """Look at the group's topics and at every connector's own. Changes nothing."""
        self._not_checked = []
        files = read_worker_files(self._session.cluster)
        names = {role: files.common(name) for role, name in _NAMES.items()}
        for name in (*names.values(), *self._own_topics):
            require_topic_name(name)
        connectors = self._connectors()
        self._names = connectors or ()
        stores = self._own(connectors or {}, names[Role.OFFSETS])
        elsewhere, brokers_elsewhere = self._look_elsewhere(stores)
        own = {connector: store.name for connector, store in stores.items()}
        here = self._session.kafka
        members = self._members()
        wanted = self._wanted(files, names, own)
        in_workers = {one.name: Store(one.name, here) for one in wanted if one.name not in self._stores}
        self._stores |= in_workers
        found = {**self._found(here, in_workers.values()), **elsewhere}
        return TopicsLook(
            group_id=self._session.cluster.group_id,
            kafka_cluster_id=here.cluster_id(),
            brokers=self._topics(here).brokers(),
            wanted=wanted,
            found=found,
            own=own,
            foreign_ids=self._foreign_ids(found),
            workers_run=connectors is not None or members,
            not_checked=tuple(self._not_checked),
            brokers_elsewhere=brokers_elsewhere,
        )

    def require_own_topics(self, connectors: Collection[str] | None = None) -> None:
        """Go on only if the own topics of connectors are known since the last look."""
        for connector, error in self.unknown.items():
            if connectors is None or connector in connectors:
                raise error

    def whole_look(self, needed: Collection[str] = ()) -> TopicsLook:
        """A look that knows connectors' own topics, unless the group has no worker, as before its first start."""
        look = self.look()
        if self.unreachable is not None and (look.workers_run or needed):
            raise self.unreachable
        self.require_own_topics(needed)
        return look

    def carry_out(self, changes: Iterable[TopicChange], act: GroupChange) -> None:
        """Create and change topics, each as a step; returns when the brokers say that it is so.

        :raises PlanMovedError: a missing topic was created meanwhile; what came before it is done.
        :raises UnreachableError: no broker answers, or they do not take a change over.
        """
        for change in changes:
            with act.step(change.wanted.name):
                act.confirm(change.wanted.name)
                self._carry_out(change)

    def _carry_out(self, change: TopicChange) -> None:
        wanted, store = change.wanted, self._stores[change.wanted.name]
        topics = self._topics(store.kafka)
        if change.creates:
            assert wanted.partitions is not None  # else it is not planned
            if not topics.create(store.topic, wanted.partitions, change.settings, wanted.replicas):
                raise PlanMovedError(
                    f"Topic {wanted} has just been created, by another tool or by a worker.",
                    remedy="Check its settings with 'eos topics check'.",
                )
        else:
            topics.change(store.topic, change.settings)
        topics.await_settings(store.topic, change.settings)

    def _topics(self, kafka: Session) -> Topics:
        if kafka not in self._topics_of:
            self._topics_of[kafka] = Topics(kafka.settings)
        return self._topics_of[kafka]

    def _own(self, connectors: Mapping[str, ConnectorStatus], global_topic: str) -> dict[str, Store]:
        """By source connector the offsets topic that it has for itself, or with others in another Kafka cluster."""
        stores, own = OffsetStores(self._session, global_topic), dict[str, Store]()
        self.unknown = {}
        for name, status in sorted(connectors.items()):
            named = status.config.get(OWN_TOPIC) or ""
            if status.type == "sink":
                continue
            if any(references(named)):
                self._not_checked.append(f"the offsets topic of {name}: a config provider supplies its name")
                continue
            try:
                found = stores.own(name, status.config)
            except EosError as error:
                self._take_note(name, error)
                continue
            if found is None and named == global_topic:
                found = stores.global_store
            if found is not None:
                own[name] = found
        return own

    def _take_note(self, connector: str, error: EosError) -> None:
        """Its own topic is not known."""
        self.unknown[connector] = error
        said = error.found if error.remedy is None else f"{error.found} {error.remedy}"
        self._not_checked.append(f"the offsets topic of {connector}: {said}")

    def _look_elsewhere(self, own: dict[str, Store]) -> tuple[dict[str, FoundTopic], dict[str, int]]:
        """By name the own topics that exist in other Kafka clusters, and how many brokers each one's cluster has.

        A connector whose brokers refuse an answer is taken out of ``own``.
        """
        found, brokers = dict[str, FoundTopic](), dict[str, int]()
        self._stores = {}
        for kafka, connectors in self._sessions(own):
            for connector, answer in self._asked(kafka, {name: own[name] for name in connectors}).items():
                if isinstance(answer, EosError):
                    del own[connector]
                    self._take_note(connector, answer)
                    continue
                # Of several addresses whose brokers say the same cluster id, those that are described count, also if
                # only the others say that they have the topic.
                name = own[connector].name
                if self._stores.setdefault(name, own[connector]).kafka is kafka:
                    topic, brokers[name] = answer
                    found |= {name: topic} if topic else {}
        return found, brokers

    def _asked(
        self, kafka: Session, stores: Mapping[str, Store]
    ) -> Mapping[str, tuple[FoundTopic | None, int] | EosError]:
        """By connector what the brokers of one other Kafka cluster say of its own topic, with their number."""
        try:
            brokers, found = self._topics(kafka).brokers(), self._found(kafka, stores.values())
        except ConfigurationError as error:
            if len(stores) == 1:
                return dict.fromkeys(stores, error)
        except EosError as error:
            return dict.fromkeys(stores, error)
        else:
            return {connector: (found.get(store.name), brokers) for connector, store in stores.items()}
        # A right is missing on one topic: it holds up no other.
        alone = [self._asked(kafka, {connector: store}) for connector, store in stores.items()]
        return {connector: answer for each in alone for connector, answer in each.items()}

    def _sessions(self, own: Mapping[str, Store]) -> list[tuple[Session, list[str]]]:
        """The sessions of other Kafka clusters, those that are described first, with the connectors of each."""
        connectors: dict[Session, list[str]] = {}
        for connector, store in own.items():
            if store.is_elsewhere:
                connectors.setdefault(store.kafka, []).append(connector)
        return sorted(connectors.items(), key=lambda each: not own[each[1][0]].is_described)

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
        partitions, replicas = self._partitions, self._replicas
        group = [
            files.wanted(role, name, partitions=None if role is Role.STATUS else partitions, replicas=replicas)
            for role, name in names.items()
        ]
        users = {**dict.fromkeys(self._own_topics, ()), **users_of(own)}
        owned = [
            replace(
                files.wanted(Role.OWN, topic, tuple(who), partitions=partitions, replicas=replicas),
                addresses=self._addresses(topic),
            )
            for topic, who in sorted(users.items())
            if topic not in names.values()
        ]
        for one in (*group, *owned):
            if one.unknown:
                self._not_checked.append(f"{one.name} against {', '.join(one.unknown)}: unknown here")
        return (*group, *owned)

    def _addresses(self, name: str) -> str:
        """By which a topic in another Kafka cluster is reached; empty for one in the workers'."""
        return self._stores[name].kafka.settings.bootstrap_servers if name in self._stores else ""

    def _found(self, kafka: Session, stores: Iterable[Store]) -> dict[str, FoundTopic]:
        """By name those of some stores in one Kafka cluster whose topics exist."""
        topics, names = self._topics(kafka), {store.topic: store.name for store in stores}
        described = topics.find(sorted(names))
        settings = topics.settings_of(list(described)) if described else {}
        return {
            names[topic]: FoundTopic(each.id, each.partitions, each.least_replicas, settings[topic])
            for topic, each in described.items()
        }

    def _foreign_ids(self, found: Mapping[str, FoundTopic]) -> dict[str, tuple[str, ...]]:
        """By topic the transactional ids of others, as far as brokers remember the producers (a day by default)."""
        foreign: dict[str, tuple[str, ...]] = {}
        group_id = self._session.cluster.group_id
        with self._or_not_checked("which other Connect groups there are"):
            self._others = tuple(map(known_group, other_groups(self._session.kafka, group_id)))
            if self._others:
                names = ", ".join(each.group_id for each in self._others)
                self._not_checked.append(
                    f"the topics of the Connect groups {names}: no protocol reports them. A group that writes to "
                    "these topics is found only if it uses transactions"
                )
        by_kafka: dict[Session, dict[str, FoundTopic]] = {}
        for name, topic in found.items():
            by_kafka.setdefault(self._stores[name].kafka, {})[name] = topic
        for kafka, theirs in by_kafka.items():
            where = "" if kafka is self._session.kafka else f" at {kafka.settings.bootstrap_servers}"
            with self._or_not_checked(f"who writes to the topics{where} in transactions"):
                foreign |= self._foreign_ids_in(kafka, theirs)
        return foreign

    def _foreign_ids_in(self, kafka: Session, found: Mapping[str, FoundTopic]) -> dict[str, tuple[str, ...]]:
        """Those of the topics of one Kafka cluster."""
        foreign: dict[str, tuple[str, ...]] = {}
        group_id = self._session.cluster.group_id
        with kafka.transactions() as client:
            others = {
                listed.producer_id: listed.transactional_id
                for listed in client.list()
                if not is_of_group(listed.transactional_id, group_id, self._others, self._names)
            }
            for name, topic in found.items():
                active = client.active_producers(self._stores[name].topic, range(topic.partitions)) if others else ()
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
