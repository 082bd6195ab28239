"""The scope of an inspection: the transactional ids of a group, and partitions that may hold a transaction open."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.group import known_group, other_groups
from airflow_eos_provider.connect.topics.config_topic import ClusterState, read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import CONFIGS, read_worker_files
from airflow_eos_provider.connect.transactional_ids import KnownGroup
from airflow_eos_provider.errors import ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.transactions.differences import Moment
from airflow_eos_provider.transactions.hanging import STATE_TOPIC, HangingLook, find_hanging
from airflow_eos_provider.transactions.known_ids import (
    Filter,
    KnownId,
    hidden_topics,
    known_ids,
    no_topic,
)


class Scope:
    """One group's transactions, and partitions that may hold some open; looked at as often as asked.

    :param topics: to look in for hanging transactions; empty for all.
    :param report: called, once, with what makes the owners of ids uncertain.
    """

    def __init__(
        self,
        session: ConnectSession,
        config_topic: str | None,
        topics: Sequence[str] = (),
        report: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._report = report
        self._session = session
        self._config_topic = config_topic
        self._topics = tuple(topics)
        self._said = ""

    def state(self) -> ClusterState | None:
        """What the config topic says; None if it cannot be read.

        A transaction of the leader that hangs in the config topic itself holds its readers up.
        """
        topic = read_worker_files(self._session.cluster).common(CONFIGS, self._config_topic)
        try:
            return read_cluster_state(self._session.kafka, topic)
        except (ReadTimeoutError, UnreachableError) as error:
            if error.found != self._said:
                self._report(f"{error.found} So the owner of an id is derived from its name only.")
            self._said = error.found
            return None

    def others(self) -> tuple[KnownGroup, ...]:
        """The other Connect groups of the Kafka cluster, which may have an id that looks like this group's."""
        return tuple(map(known_group, other_groups(self._session.kafka, self._session.cluster.group_id)))

    def ids(self, wanted: Filter, state: ClusterState | None) -> list[KnownId]:
        group_id = self._session.cluster.group_id
        return known_ids(self._session.kafka, group_id, connectors_of(state), wanted, self.others())

    def partitions(self) -> dict[str, int]:
        known = Topics(self._session.kafka).partitions()
        if missing := sorted(set(self._topics) - known.keys()):
            raise no_topic(self._session.kafka, missing)
        return known

    def look(self, wanted: Filter, *, by_name: bool = False) -> Moment:
        """What is open and what hangs at this moment.

        :param by_name: tell whose an id is by its name, without the config topic.
        """
        opened = self.ids(wanted, None if by_name else self.state())
        if self._topics and not by_name:
            opened = [one for one in opened if {topic for topic, _ in one.description.partitions} & {*self._topics}]
        return Moment(time.time(), tuple(opened), self.hanging())

    def hanging(self) -> HangingLook:
        """What hangs in the topics."""
        known = self.partitions()
        places = [(topic, number) for topic in self._topics or known for number in range(known[topic])]
        hidden = "" if self._topics else hidden_topics(self._session.kafka)
        return find_hanging(self._session.kafka, places, known.get(STATE_TOPIC, 0), hidden)


def connectors_of(state: ClusterState | None) -> Collection[str] | None:
    return None if state is None else {*state.connectors, *state.task_count_records}
