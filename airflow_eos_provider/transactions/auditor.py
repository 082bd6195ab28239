"""Audits the transactions of a Kafka cluster: asks partitions, coordinators, groups and config topics, and decides."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.topics.config_topic import ClusterState, read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, read_worker_files
from airflow_eos_provider.connect.transactional_ids import KnownGroup, leader_id
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError, UnreachableError
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.transactions.audit import (
    DEFAULT_LIMITS,
    Limits,
    Seen,
    TransactionAudit,
    audit,
    expected_ids,
    live_ids,
)
from airflow_eos_provider.transactions.colliding_users import described_group, look_at_groups
from airflow_eos_provider.transactions.collisions import KafkaGroups, find_collisions, not_known
from airflow_eos_provider.transactions.hanging import STATE_TOPIC
from airflow_eos_provider.transactions.known_ids import (
    Filter,
    KnownId,
    hidden_ids,
    id_expiration_seconds,
    known_ids,
)
from airflow_eos_provider.transactions.last_use import last_used
from airflow_eos_provider.transactions.readable_ends import ends_of
from airflow_eos_provider.transactions.scope import Scope, connectors_of


def look_at_open(
    cluster: ConnectCluster,
    *,
    topics: Sequence[str] = (),
    connectors: Sequence[str] = (),
    open_seconds: float | None = None,
) -> TransactionAudit:
    """Whether something hangs in some topics, or a transaction of a group is open too long.

    Whose an id is, its name says: the workers' files are not read.

    :param topics: where nothing may hang; empty for all.
    :param connectors: whose transactions count; empty for all of the group's.
    :param open_seconds: for which one may be open; None for its own timeout.
    """
    _require_names(topics, connectors)
    with ConnectSession(cluster) as session:
        wanted = [f"{cluster.group_id}-{name}-0" for name in connectors] or [leader_id(cluster.group_id)]
        hidden = hidden_ids(session.kafka, wanted)
        found = Scope(session, None, topics).look(Filter(open_only=True), by_name=True)
        opened = tuple(one for one in found.opened if not connectors or one.owner.connector in connectors)
        look = found.hanging
        ends = ends_of(session.kafka, [one.held.place for one in look.hanging]) if look else {}
    doubts = tuple(f"the transactions of {one} and the like: the principal may not describe it" for one in hidden)
    return audit(found.at, cluster.group_id, Seen(opened, look, ends, doubts=doubts), Limits(open_seconds))


def _require_names(*given: Sequence[str]) -> None:
    """A text in place of a list would be taken for names of one character, of which nobody has anything open."""
    for one in given:
        if isinstance(one, str):
            raise ConfigurationError(
                f"Names of topics or connectors are given as one text, {one!r}.",
                expected="a list of names",
                remedy="In Airflow, a template that gives a list needs render_template_as_native_obj on its DAG.",
            )


class Auditor:
    """Looks at one Kafka cluster from the side of one Connect group as often as asked; changes nothing.

    A context manager.

    :param config_topic: its config topic; by default as the workers' files say.
    :param beside: further Connect clusters on the same Kafka cluster, whose workers' files say their topics.
    :param topics: where hanging transactions and writers are looked for; empty for all that one may see.
    """

    def __init__(
        self,
        cluster: ConnectCluster,
        *,
        config_topic: str | None = None,
        topics: Sequence[str] = (),
        beside: Sequence[ConnectCluster] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        _require_names(topics)
        self.cluster = cluster
        self._session = ConnectSession(cluster)
        self._scope = Scope(self._session, config_topic, topics)
        self._config_topic = config_topic
        self._beside = tuple(beside)
        self._limits = limits
        self._topics = tuple(topics)
        self._doubts: list[str] = []
        self._problem = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def look(self) -> TransactionAudit:
        self._doubts = []
        kafka, group_id = self._session.kafka, self.cluster.group_id
        known = self._scope.partitions()
        topics = {topic: count for topic, count in known.items() if not self._topics or topic in self._topics}
        state = self._state()
        groups = self._groups(known, topics, state)
        state = state or groups.states.get(group_id)
        if state is None and self._problem:
            self._doubts.append(f"the connectors of group {group_id}: {self._problem}")
        ids: tuple[KnownId, ...] | None = None
        with self._or_doubt("the transactional ids"):
            others = [group for group in groups.connect if group.group_id != group_id]
            if hidden_ids(kafka):
                self._doubts.append("transactional ids that the principal may not describe (Describe on every id)")
            ids = tuple(known_ids(kafka, group_id, connectors_of(state), Filter(everyone=True), others))
        live = None if state is None else live_ids(group_id, state)
        expiration = id_expiration_seconds(kafka)
        if ids and live and expiration:
            ids = self._with_last_use(ids, live, known.get(STATE_TOPIC, 0), expiration)
        hanging, ends = None, {}
        with self._or_doubt("what partitions hold open"):
            hanging = self._scope.hanging()
            ends = ends_of(kafka, [one.held.place for one in hanging.hanging])
        seen = Seen(
            ids=ids,
            hanging=hanging,
            ends=ends,
            live=live,
            expected=self._expected(state),
            expiration_seconds=expiration,
            collisions=find_collisions(groups),
            doubts=(*self._doubts, *not_known(groups)),
        )
        return audit(time.time(), group_id, seen, self._limits)

    def _with_last_use(
        self, ids: tuple[KnownId, ...], live: Collection[str], partitions: int, expiration_seconds: float
    ) -> tuple[KnownId, ...]:
        """The ids, those of tasks without a transaction as their coordinators' log has them."""
        now = time.time()
        unknown = [one.id for one in ids if one.id in live and one.idle_seconds(now) is None]
        used: dict[str, float] = {}
        if unknown and partitions:
            with self._or_doubt("when ids of tasks without a transaction were last used"):
                used = last_used(self._session.kafka, unknown, partitions, now - expiration_seconds)
        return tuple(replace(one, used_at=used[one.id]) if one.id in used else one for one in ids)

    def _expected(self, state: ClusterState | None) -> frozenset[str]:
        """Ids that the brokers have to know; none where the workers' files say that the group is not enabled."""
        files = read_worker_files(self.cluster)
        modes = {properties.get(MODE_PROPERTY, "").lower() for properties in files.properties.values()}
        is_not_enabled = not files.unread and Mode.ENABLED.value not in modes
        if state is None or is_not_enabled:
            return frozenset()
        return expected_ids(self.cluster.group_id, state)

    def _groups(self, known: Mapping[str, int], topics: Mapping[str, int], state: ClusterState | None) -> KafkaGroups:
        """All principals on the Kafka cluster; none where they cannot be seen."""
        described = [described_group(self.cluster, state), *self._described()]
        internal = {topic for group in described for topic in group.topics}
        with self._or_doubt("who else is on the Kafka cluster"):
            asked = {topic: count for topic, count in known.items() if topic in topics or topic in internal}
            states = {} if state is None else {self.cluster.group_id: state}
            return look_at_groups(self._session.kafka, asked, described, states)
        return KafkaGroups()

    def _state(self) -> ClusterState | None:
        """What the config topic says. Where it is not named, the leader's writes may show which one it is."""
        self._problem = ""
        try:
            topic = read_worker_files(self.cluster).common(CONFIGS, self._config_topic)
            return read_cluster_state(self._session.kafka, topic)
        except UnreachableError:
            raise
        except EosError as error:
            self._problem = error.found
            return None

    def _described(self) -> Iterator[KnownGroup]:
        """The groups beside, as their workers' files have them."""
        for each in self._beside:
            with Session(each.kafka) as there:
                if there.cluster_id() != self._session.kafka.cluster_id():
                    raise RefusedError(
                        f"The group {each.group_id} is on another Kafka cluster than {self.cluster.group_id}.",
                        remedy="Name Connect clusters of the same Kafka cluster only.",
                    )
            yield described_group(each)

    @contextmanager
    def _or_doubt(self, what: str) -> Iterator[None]:
        """What cannot be seen is a doubt, unless the brokers are away."""
        try:
            yield
        except UnreachableError:
            raise
        except EosError as error:
            self._doubts.append(f"{what}: {error.found}")
