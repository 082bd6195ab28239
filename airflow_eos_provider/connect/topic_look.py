"""A group's internal topics looked at, and what was planned for them carried out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from airflow_eos_provider.connect.group import connect_groups, describe_group, is_of_group
from airflow_eos_provider.connect.internal_topics import (
    CONFIGS,
    OFFSETS,
    STATUS,
    Role,
    WantedTopic,
    WorkerFiles,
    read_worker_files,
)
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topic_checks import FoundTopic, TopicPlan, TopicsLook, own_topics, users_of
from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError
from airflow_eos_provider.kafka.topics import Topics

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
    """Looks at the internal topics of one group, and changes them.

    :param session: of the Connect cluster.
    :param given: what is said about the topics besides the workers' files.
    :ivar unreachable: after a look the error of a worker, if none answered.
    """

    def __init__(self, session: ConnectSession, given: Given = Given()) -> None:
        self._session = session
        self._given = given
        self._topics = Topics(session.cluster.kafka)
        self._not_checked: list[str] = []
        self.unreachable: EosError | None = None

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
        own, unknown = own_topics(connectors or {})
        self._not_checked += unknown
        members = self._members()
        wanted = self._wanted(files, names, own)
        found = self._found([topic.name for topic in wanted])
        return TopicsLook(
            group_id=self._session.cluster.group_id,
            kafka_cluster_id=self._session.kafka.cluster_id(),
            brokers=self._topics.brokers(),
            wanted=wanted,
            found=found,
            own=own,
            foreign_ids=self._foreign_ids(found),
            workers_run=connectors is not None or members,
            not_checked=tuple(self._not_checked),
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
                if not self._topics.create(wanted.name, wanted.partitions, change.settings, wanted.replicas):
                    raise PlanMovedError(
                        f"Topic {wanted} has just been created, by another tool or by a worker.",
                        remedy="See with 'eos topics check' whether it is as it should be.",
                    )
            else:
                self._topics.change(wanted.name, change.settings)
        for change in plan.changes:
            self._topics.await_settings(change.wanted.name, change.settings)

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
        described = self._topics.find(sorted(set(names)))
        settings = self._topics.settings_of(list(described)) if described else {}
        return {
            name: FoundTopic(topic.id, topic.partitions, topic.least_replicas, settings[name])
            for name, topic in described.items()
        }

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
        writers = self._or_not_checked("who writes to the topics in transactions")
        with writers, self._session.kafka.transactions() as client:
            others = {
                listed.producer_id: listed.transactional_id
                for listed in client.list()
                if not is_of_group(listed.transactional_id, group_id)
            }
            for name, topic in found.items():
                active = client.active_producers(name, range(topic.partitions)) if others else ()
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
