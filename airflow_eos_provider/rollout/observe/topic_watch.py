"""Polls the topics that a Connect group writes, with three requests per poll."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.properties import written
from airflow_eos_provider.connect.rest import ConnectorStatus, ConnectRest
from airflow_eos_provider.connect.topics.config_topic import ClusterState
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.errors import ConnectRestError, EosError
from airflow_eos_provider.kafka.admin.client import Admin
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.kafka.questions import LATEST
from airflow_eos_provider.rollout.observe.topic_progress import Ends, LogView, Memory, Place

#: What a connector writes to changes rarely, and asking for it is one request per connector. One that has written
#: nothing yet is asked sooner: its first topic is what its progress is seen by.
TOPICS_SECONDS = 30.0
NO_TOPICS_SECONDS = 5.0

#: So many requests are under way at a time: a worker answers each in a millisecond or two, its network takes longer.
AT_ONCE = 8

#: A connector with this property writes to another Kafka cluster, which this one knows nothing of.
_ELSEWHERE = "producer.override.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class _Written:
    """What one connector writes, as far as it is known."""

    topics: frozenset[str] = frozenset()
    ask_again_at: float = 0.0

    @classmethod
    def known(cls, topics: frozenset[str], now: float) -> _Written:
        return cls(topics, now + (TOPICS_SECONDS if topics else NO_TOPICS_SECONDS))


class LogWatch:
    """The topics of one group: config topic, offsets topics, and what its source connectors write.

    :param timeout_seconds: limit of one request.
    :ivar memory: what earlier looks have left; may be carried over from another watch.
    """

    def __init__(self, session: ConnectSession, *, timeout_seconds: float) -> None:
        self._session = session
        self._timeout_seconds = timeout_seconds
        self.memory = Memory()
        self._written: dict[str, _Written] = {}

    def look(
        self,
        internal: Iterable[str],
        config: ClusterState,
        statuses: Mapping[str, ConnectorStatus],
        open_transactions: Iterable[TransactionDescription],
        *,
        answering: Iterable[WorkerDescription],
    ) -> LogView:
        """How they stand now."""
        own_offsets, written = self._topics(config, statuses, answering)
        watched = {*internal, *own_offsets, *(topic for topics in written.values() for topic in topics)}
        with self._session.kafka.admin() as admin:
            unreadable = set[str]()
            topics = admin.topics(watched, self._timeout_seconds, hidden=unreadable.add) if watched else {}
            partitions = [(name, number) for name, topic in topics.items() for number in topic.leaders]
            stable = self._ends(admin, partitions, committed=True)
            ends = self._ends(admin, partitions, committed=False)
        at = time.time()
        self.memory.take(at, {place: Ends(stable[place], ends[place]) for place in ends}, written)
        return LogView(
            partition_count=len(ends),
            held=self.memory.held,
            movements=dict(self.memory.movements),
            open_transactions=tuple(t for t in open_transactions if any(topic in watched for topic, _ in t.partitions)),
            unreadable=frozenset(unreadable),
        )

    def _topics(
        self, config: ClusterState, statuses: Mapping[str, ConnectorStatus], answering: Iterable[WorkerDescription]
    ) -> tuple[set[str], dict[str, frozenset[str]]]:
        """Offsets topics of connectors' own, and by source connector what it writes."""
        here = {
            name: state
            for name, state in config.connectors.items()
            if name in statuses and statuses[name].type == "source" and not state.config.get(_ELSEWHERE)
        }
        self._ask(here, answering)
        own_offsets = {topic for state in here.values() if (topic := written(state.config, OWN_TOPIC))}
        return own_offsets, {name: self._written[name].topics for name in here}

    def _ask(self, connectors: Iterable[str], answering: Iterable[WorkerDescription]) -> None:
        """Ask a worker what these connectors write, where that is not known or known for too long.

        It is one request per connector, several at a time. What does not fit into the time of one look is asked at the
        next.
        """
        now = time.time()
        self._written = {name: self._written.get(name, _Written()) for name in connectors}
        due = [name for name, written in self._written.items() if now >= written.ask_again_at]
        give_up_at = time.monotonic() + self._timeout_seconds
        for worker in answering if due else ():
            try:
                with self._session.rest(worker.url, give_up_at=give_up_at) as rest, ThreadPoolExecutor(AT_ONCE) as pool:
                    for name, topics in zip(due, pool.map(partial(_topics_of, rest), due), strict=True):
                        self._written[name] = _Written.known(topics, now)
                return
            except EosError:  # this worker does not answer; any other knows the same
                due = [name for name in due if now >= self._written[name].ask_again_at]

    def _ends(self, admin: Admin, partitions: list[Place], *, committed: bool) -> dict[Place, int]:
        found, what = dict[Place, int](), "listing end offsets"
        answers = admin.offsets(partitions, LATEST, self._timeout_seconds, what, committed=committed)
        for place, answer in answers.items():
            if isinstance(answer, Exception):
                raise admin.explain(answer, what) from answer
            found[place] = answer
        return found


def _topics_of(rest: ConnectRest, connector: str) -> frozenset[str]:
    try:
        return frozenset(rest.topics(connector))
    except ConnectRestError:  # topics are not tracked (topic.tracking.enable), or the connector is gone
        return frozenset()
