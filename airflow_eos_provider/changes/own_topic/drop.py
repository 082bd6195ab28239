"""How an own offsets topic that is left behind is found and removed.

Deleting only the topic does harm: a task whose connector names an own topic ignores the global one, because the nulls
of an empty own topic replace the global offsets (``ConnectorOffsetBackingStore.get``, 4.3.1), and the task starts from
the beginning. So the topic is first removed from the connector's configuration, and then deleted. After that every
version of Connect reads and writes the connector's offsets in the global topic.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.properties import trimmed
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.internal_topics import OFFSETS, OWN_TOPIC, read_worker_files
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError, RefusedError
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic
from airflow_eos_provider.offsets.seen.copies import Copies, copies
from airflow_eos_provider.offsets.seen.group_offsets import read_group_offsets
from airflow_eos_provider.offsets.stores import OffsetStores, is_elsewhere, source_of
from airflow_eos_provider.rollout.plan.obstacles import FIRST_VERSION, kafka_version

#: Limit of all workers' answers, and of one's, seconds.
_SECONDS = 60.0
_ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """A connector's own topic that is left behind.

    :param topic_id: empty if there is none, so that nothing is deleted.
    :param offsets: how many offsets of the connector are in it.
    :param also_of: other connectors that name the topic, or have offsets in it, for which it stays: it may be that of
        another Connect cluster, too.
    """

    kafka_cluster_id: str
    connector: str
    topic: str
    topic_id: str
    offsets: int
    also_of: tuple[str, ...] = ()

    @property
    def is_deleted(self) -> bool:
        """Whether the topic itself goes."""
        return bool(self.topic_id) and not self.also_of

    def lines(self, left: int) -> list[str]:
        """What is done.

        :param left: in how many source partitions the global topic is newer.
        """
        found = [
            f"{self.connector}: the global topic is newer than its own topic {self.topic} in "
            f"{counted(left, 'source partition')}",
            f"-{OWN_TOPIC}={self.topic}  in its configuration; Connect restarts its tasks",
        ]
        if self.is_deleted:
            found.append(f"-topic {self.topic} (id {self.topic_id}, {counted(self.offsets, 'offset')} of it)")
        elif self.also_of:
            found.append(f" topic {self.topic} stays: it is also of {', '.join(self.also_of)}")
        else:
            found.append(f" topic {self.topic} does not exist")
        return found


def look_at(session: ConnectSession, connector: str, offsets_topic: str) -> tuple[OwnTopic, int]:
    """A connector's own topic, and in how many source partitions the global one is newer.

    :raises RefusedError: it is not left behind, tasks of it may read it, or it is in another Kafka cluster.
    :raises ConfigurationError: there is no such connector, or it has no own topic.
    """
    connectors = session.first_answer(lambda rest: rest.statuses(), seconds=_SECONDS)
    status = source_of(connector, connectors, session.cluster.group_id)
    if not status.config.get(OWN_TOPIC):
        raise ConfigurationError(f"{connector} names no {OWN_TOPIC}.", remedy="See 'eos offsets list'.")
    one, others = _copies(session, connector, connectors, offsets_topic)
    if is_elsewhere(one.own_topic):
        raise RefusedError(
            f"The own topic of {connector}, {one.own_topic}, is in another Kafka cluster.",
            remedy=f"Take {OWN_TOPIC} out of its configuration and delete the topic with Kafka's own tools.",
        )
    _require_left_behind(one)
    _require_unread(session, status)
    found = Topics(session.kafka.settings).describe([one.own_topic]).get(one.own_topic)
    naming = {name for name, other in connectors.items() if other.config.get(OWN_TOPIC) == one.own_topic}
    also_of = tuple(sorted((naming | others) - {connector}))
    cluster = session.kafka.cluster_id()
    return OwnTopic(cluster, connector, one.own_topic, found.id if found else "", one.read_own, also_of), one.left


def _copies(
    session: ConnectSession, connector: str, connectors: Mapping[str, ConnectorStatus], offsets_topic: str
) -> tuple[Copies, set[str]]:
    """How far its topics are apart, and whose offsets are in its own one."""
    topic = read_worker_files(session.cluster).common(OFFSETS, offsets_topic)
    offsets = read_group_offsets(OffsetStores(session, topic, lambda: True), connectors, only=[connector])
    one = copies(offsets, connector)
    if one is None:
        raise ConfigurationError(f"{connector} has no own topic: its offsets.storage.topic is the global topic.")
    own = offsets.own_topics.get(one.own_topic)
    return one, connectors_in(own) if own else set()


def connectors_in(topic: OffsetsTopic) -> set[str]:
    """Whose offsets are in an offsets topic: those that stand, and those of open transactions."""
    return {
        connector
        for by_connector in (topic.committed, topic.waiting)
        for connector, records in by_connector.items()
        if connector is not None and any(not record.is_removed for record in records)
    }


def _require_left_behind(one: Copies) -> None:
    if one.ahead:
        raise RefusedError(
            f"In {counted(one.ahead, 'source partition')} of {one.connector} the global topic has the offset of a "
            f"transaction on {one.own_topic} that is not committed: without the own topic, the records of that "
            "transaction are skipped.",
            expected="a global topic with offsets of committed transactions only",
            remedy=f"Copy its committed offsets into the global topic: 'eos offsets migrate {one.connector} "
            "--to global'.",
        )
    if not one.is_left_behind:
        raise RefusedError(
            f"The own topic {one.own_topic} of {one.connector} is in use: the global topic has no newer offset.",
            remedy=f"To move its offsets into the global topic: 'eos offsets migrate {one.connector} --to global'.",
        )


def _require_unread(session: ConnectSession, status: ConnectorStatus) -> None:
    """Go on only if no task has the own topic open: all workers are older, or the connector is stopped."""
    if status.state == "STOPPED" and not status.tasks:
        return
    if readers := ", ".join(_readers(session)):
        raise RefusedError(
            f"Tasks of {status.name} may read and write its own topic on {readers}.",
            expected="only workers from before 3.3, or the connector stopped",
            remedy=f"Stop it first (PUT /connectors/{status.name}/stop); it then resumes from the global topic.",
        )


def _readers(session: ConnectSession) -> Iterator[str]:
    """The described workers that know own topics, or do not say which version they are."""
    for worker in session.cluster.workers:
        try:
            with session.rest(worker.url, give_up_at=time.monotonic() + _ANSWER_SECONDS) as rest:
                version = rest.root().version
        except EosError:  # one that is being replaced
            yield f"{worker.worker_id} (no answer)"
        else:
            if (kafka_version(version) or FIRST_VERSION) >= FIRST_VERSION:
                yield f"{worker.worker_id} ({version})"


def configure(session: ConnectSession, own: OwnTopic) -> None:
    """Take the topic out of the connector's configuration."""
    config = session.ask(lambda rest: rest.connector_config(own.connector))
    if trimmed(config).get(OWN_TOPIC) == own.topic:
        without = {name: value for name, value in config.items() if name != OWN_TOPIC}
        session.ask(lambda rest: rest.put_config(own.connector, without))


def delete(session: ConnectSession, own: OwnTopic) -> bool:
    """Delete the topic, unless another one has its name by now; whether it was there."""
    topics = Topics(session.kafka.settings)
    found = topics.describe([own.topic]).get(own.topic)
    if found is not None and found.id != own.topic_id:
        raise PlanMovedError(f"Topic {own.topic} was deleted and created again: its id is {found.id} now.")
    return found is not None and topics.delete(own.topic)
