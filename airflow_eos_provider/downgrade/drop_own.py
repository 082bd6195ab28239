"""Removes a connector's own offsets topic that an older version did not use: planned, approved by hash, carried out.

Deleting only the topic does harm: a task whose connector names an own topic ignores the global one, because the nulls
of an empty own topic replace the global offsets (``ConnectorOffsetBackingStore.get``, 4.3.1), and the task starts from
the beginning. So the topic is first removed from the connector's configuration, and then deleted. After that every
version of Connect reads and writes the connector's offsets in the global topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from airflow_eos_provider.connect.properties import trimmed
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topics.internal_topics import OFFSETS, OWN_TOPIC, read_worker_files
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.downgrade.look import seen_workers
from airflow_eos_provider.errors import ConfigurationError, PlanMovedError, RefusedError
from airflow_eos_provider.journal.change import group_change
from airflow_eos_provider.journal.journal import Journal, read_journal
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.offsets.seen.copies import Copies, copies
from airflow_eos_provider.offsets.seen.group import read_group_offsets
from airflow_eos_provider.offsets.stores import OffsetStores, is_elsewhere, require_source, unknown_connector
from airflow_eos_provider.offsets.topic import OffsetsTopic
from airflow_eos_provider.plan_hash import ShownPlan, hash_of
from airflow_eos_provider.stored import from_json, to_json

#: Of a plan's document. Renaming it leaves changes that are under way without their command.
KIND = "own-topic-drop"

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DropPlan(ShownPlan):
    """What takes a connector off its own topic.

    :param topic_id: of the topic; empty if there is none, so that nothing is deleted.
    :param left: in how many source partitions the global topic is newer; no part of the hash, since it goes on.
    :param also_of: other connectors that name the topic, or have offsets in it, for which it stays: it may be that of
        another Connect cluster, too.
    """

    SCHEMA: ClassVar[int] = 1
    moved: ClassVar[str] = "the topic or who names it has changed"

    group_id: str
    kafka_cluster_id: str
    connector: str
    topic: str
    topic_id: str
    offsets: int
    left: int
    also_of: tuple[str, ...] = ()

    @property
    def deletes(self) -> bool:
        return bool(self.topic_id) and not self.also_of

    @property
    def hash(self) -> str:
        return hash_of(to_json(replace(self, left=0)))

    def lines(self) -> list[str]:
        found = [
            f"{self.connector}: the global topic is newer than its own topic {self.topic} in "
            f"{counted(self.left, 'source partition')}",
            f"-{OWN_TOPIC}={self.topic}  in its configuration; Connect restarts its tasks",
        ]
        if self.deletes:
            found.append(f"-topic {self.topic} (id {self.topic_id}, {counted(self.offsets, 'offset')} of it)")
        elif self.also_of:
            found.append(f" topic {self.topic} stays: it is also of {', '.join(self.also_of)}")
        else:
            found.append(f" topic {self.topic} does not exist")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {"kind": KIND, **to_json(self), "hash": self.hash}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> DropPlan:
        """The plan that :meth:`to_dict` wrote."""
        try:
            return from_json(cls, document)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError("The recorded plan is from another version of this package.") from error


def connectors_in(topic: OffsetsTopic) -> set[str]:
    """Whose offsets are in an offsets topic: those that stand, and those of open transactions."""
    return {
        connector
        for by_connector in (topic.committed, topic.waiting)
        for connector, records in by_connector.items()
        if connector is not None and any(not record.is_removed for record in records)
    }


class OwnTopicDropper:
    """Plans and carries out the end of an own topic that is left behind.

    :param offsets_topic: the workers' ``offset.storage.topic``; empty: as their files say.
    """

    def __init__(self, session: ConnectSession, offsets_topic: str = "") -> None:
        self._session, self._offsets_topic = session, offsets_topic
        self._topics = Topics(session.kafka.settings)

    def plan(self, connector: str) -> DropPlan:
        """The plan as of now; of one that was begun and not finished, that one."""
        return self.unfinished(connector) or self._plan_anew(connector)

    def unfinished(self, connector: str) -> DropPlan | None:
        """The plan that was begun for this connector and not finished; None if there is none."""
        found = read_journal(self._session.kafka, self._session.cluster.group_id).open_change
        if found is None or (found.kind, found.about) != (KIND, connector):
            return None
        return DropPlan.from_dict(found.plan)

    def _plan_anew(self, connector: str) -> DropPlan:
        session = self._session
        connectors = session.first_answer(lambda rest: rest.statuses(), seconds=_SECONDS)
        status = connectors.get(connector)
        if status is None:
            known = (name for name, one in connectors.items() if one.type != "sink")
            raise unknown_connector(connector, session.cluster.group_id, known)
        require_source(connector, status.type)
        if not status.config.get(OWN_TOPIC):
            raise ConfigurationError(f"{connector} names no {OWN_TOPIC}.", remedy="See 'eos offsets list'.")
        one, others = self._copies(connector, connectors)
        if is_elsewhere(one.own_topic):
            raise RefusedError(
                f"The own topic of {connector}, {one.own_topic}, is in another Kafka cluster.",
                remedy=f"Take {OWN_TOPIC} out of its configuration and delete the topic with Kafka's own tools.",
            )
        self._require_left_behind(one)
        self._require_unread(status)
        found = self._topics.describe([one.own_topic]).get(one.own_topic)
        naming = {name for name, other in connectors.items() if other.config.get(OWN_TOPIC) == one.own_topic}
        return DropPlan(
            session.cluster.group_id,
            session.kafka.cluster_id(),
            connector,
            one.own_topic,
            found.id if found else "",
            one.read_own,
            one.left,
            tuple(sorted((naming | others) - {connector})),
        )

    def _copies(self, connector: str, connectors: Mapping[str, ConnectorStatus]) -> tuple[Copies, set[str]]:
        """How far its topics are apart, and whose offsets are in its own one."""
        topic = read_worker_files(self._session.cluster).common(OFFSETS, self._offsets_topic)
        offsets = read_group_offsets(OffsetStores(self._session, topic, lambda: True), connectors, only=[connector])
        one = copies(offsets, connector)
        if one is None:
            raise ConfigurationError(f"{connector} has no own topic: its offsets.storage.topic is the global topic.")
        own = offsets.own_topics.get(one.own_topic)
        return one, connectors_in(own) if own else set()

    def _require_left_behind(self, one: Copies) -> None:
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

    def _require_unread(self, status: ConnectorStatus) -> None:
        """Go on only if no task has the own topic open: all workers are older, or the connector is stopped."""
        readers = [worker for worker in seen_workers(self._session) if worker.version is None or not worker.is_older]
        if readers and not (status.state == "STOPPED" and not status.tasks):
            known = ", ".join(f"{worker.worker_id} ({worker.version or 'no answer'})" for worker in readers)
            raise RefusedError(
                f"Tasks of {status.name} may read and write its own topic on {known}.",
                expected="only workers from before 3.3, or the connector stopped",
                remedy=f"Stop it first (PUT /connectors/{status.name}/stop); it then resumes from the global topic.",
            )

    def apply(self, plan: DropPlan, journal: Journal, *, take_over: bool = False) -> bool:
        """Carry a plan out. Killed and called again, it continues where it was.

        :returns: whether the topic was deleted.
        """
        deleted = False
        with group_change(journal, KIND, plan.connector, plan.to_dict(), take_over=take_over) as change:
            if not change.taken_up:
                self._plan_anew(plan.connector).require(plan.hash)
            if not change.is_done("configure"):
                with change.step("configure"):
                    change.confirm("configure")
                    self._configure(plan)
            if plan.deletes and not change.is_done("delete"):
                with change.step("delete"):
                    change.confirm("delete")
                    deleted = self._delete(plan)
        return deleted

    def _configure(self, plan: DropPlan) -> None:
        config = self._session.ask(lambda rest: rest.connector_config(plan.connector))
        if trimmed(config).get(OWN_TOPIC) == plan.topic:
            without = {name: value for name, value in config.items() if name != OWN_TOPIC}
            self._session.ask(lambda rest: rest.put_config(plan.connector, without))

    def _delete(self, plan: DropPlan) -> bool:
        found = self._topics.describe([plan.topic]).get(plan.topic)
        if found is not None and found.id != plan.topic_id:
            raise PlanMovedError(f"Topic {plan.topic} was deleted and created again: its id is {found.id} now.")
        return found is not None and self._topics.delete(plan.topic)
