"""A planned change of one connector's source offsets: what it writes, and its basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import PlanMovedError, RefusedError
from airflow_eos_provider.offsets.stores import is_elsewhere, topic_of
from airflow_eos_provider.offsets.verbs.offset_changes import Write
from airflow_eos_provider.offsets.verbs.offsets_request import OffsetsRequest, Verb
from airflow_eos_provider.stored import to_json, unstored

#: The member of a plan's content that has a planned change for each connector.
OFFSETS_OF = "offsets_of"


class TargetState(StrEnum):
    """What Connect is to do with a connector (KIP-875), as the config topic has it."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    ABSENT = "ABSENT"  #: there is no such connector; its offsets can be written all the same


@dataclass(frozen=True, slots=True)
class ConnectorLook:
    """What a change of a connector's offsets rests on, besides the offsets."""

    group_id: str
    kafka_cluster_id: str
    connector: str
    target_state: TargetState  #: before the change; afterwards the connector has it again
    config_digest: str  #: SHA-256 of its configuration; the configuration itself may hold secrets
    exactly_once: bool  #: whether its workers run in the mode ``enabled``, so that tasks write in transactions


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """An offsets topic that is read and written."""

    name: str  #: of its store
    id: str | None  #: its topic id; None if the brokers did not tell
    partitions: int


@dataclass(frozen=True, slots=True)
class OffsetsPlan:
    """A change of one connector's source offsets."""

    request: OffsetsRequest
    look: ConnectorLook
    topics: tuple[PlannedTopic, ...]  #: those that were read
    writes: tuple[Write, ...] = field(repr=False)
    #: The connector's own offsets topic afterwards, empty for none; None if that does not change.
    own_topic: str | None = None
    #: The id of the connector's change that was closed last, empty if there is none. The offsets of a running connector
    #: do not count, so without it the same plan could be carried out twice.
    last_change: str = ""
    #: Of a prune: the transactional ids whose open transactions the fencing ends. No part of the content: the brokers
    #: end them too, after their timeout.
    ended: tuple[str, ...] = unstored(())

    @property
    def connector(self) -> str:
        return self.look.connector

    @property
    def is_at_rest(self) -> bool:
        """Whether the connector was stopped, or did not exist, when the plan was made."""
        return self.look.target_state in (TargetState.STOPPED, TargetState.ABSENT)

    def without_idle_writes(self) -> OffsetsPlan:
        """What has the right value now may have another one once a running connector is stopped, so there it stays."""
        return self if self._moves else replace(self, writes=tuple(write for write in self.writes if write.changes))

    @property
    def _moves(self) -> bool:
        """Whether offsets may change between the plan and the write."""
        return (self.verb is Verb.COPY and self.request.carries) or not self.is_at_rest

    @property
    def verb(self) -> Verb:
        return self.request.verb

    @property
    def nothing_to_do(self) -> bool:
        return self.own_topic is None and not self.ended and not any(write.changes for write in self.writes)

    @property
    def created(self) -> PlannedTopic | None:
        """The topic that is created first; None if all are there, or what is not there is not written."""
        written = {write.topic for write in self.writes if write.after is not None}

        def is_needed(name: str) -> bool:
            return topic_of(name) == self.own_topic or (is_elsewhere(name) and name in written)

        return next((topic for topic in self.topics if topic.id is None and is_needed(topic.name)), None)

    def _hashed(self, write: Write) -> Write:
        before = write.before if self.is_at_rest else None
        after = b"" if self.request.carries and self._moves and write.after is not None else write.after
        return replace(write, before=before, after=after)

    def require_unmoved(self, now: OffsetsPlan) -> None:
        """Go on only if the same plan would be made now."""
        if self.content() != now.content():
            raise PlanMovedError(
                f"The plan for {self.connector} does not fit any more: {self.moved(now)}.",
                remedy="Review the new plan and apply it.",
            )

    def moved(self, now: OffsetsPlan) -> str:
        """What has changed since, in words."""
        if self.last_change != now.last_change:
            return f"the change {now.last_change} was made since"
        for name in ("target_state", "config_digest", "exactly_once", "group_id", "kafka_cluster_id"):
            before, after = getattr(self.look, name), getattr(now.look, name)
            if before != after:
                what = name.replace("_", " ")
                return f"the {what} was {before} and is {after}" if name != "config_digest" else "its configuration"
        if self.topics != now.topics:
            return "an offsets topic was created again, or its partitions were raised"
        return "the offsets have changed since, which they do unless the connector is stopped"

    def require_existence(self, *, exists: bool) -> None:
        """Go on only if the connector still exists, or still does not."""
        connector, existed = self.look.connector, self.look.target_state is not TargetState.ABSENT
        if exists != existed:
            raise PlanMovedError(
                f"{connector} was {'deleted' if existed else 'created'} while its offsets were being changed.",
                remedy=f"'eos offsets list {connector} --all' shows the offsets that it has left, 'eos offsets prune "
                f"{connector}' removes them."
                if existed
                else "The connector is unchanged. Make the plan again.",
            )

    def require_own_topic(self, own_topic: str) -> None:
        """Go on only if a connector that is to get another offsets topic has one that the plan knows."""
        if own_topic and own_topic not in {topic_of(topic.name) for topic in self.topics}:
            raise RefusedError(
                f"{self.look.connector} got {OWN_TOPIC}={own_topic} while its offsets were being moved.",
                expected=f"{OWN_TOPIC} unchanged, until this change sets it",
                remedy="Set it back and give the same command again; or close the change ('eos changes close').",
            )

    def returns_to(self, now: TargetState) -> TargetState | None:
        """The state that the connector gets at the end of the change.

        :returns: None where it stays as it is: it was at rest before, or it is not stopped any more, since another
            person has paused, started or deleted it.
        """
        wanted = self.look.target_state
        return wanted if not self.is_at_rest and now in (TargetState.STOPPED, wanted) else None

    def require_within(self, now: Sequence[Write]) -> None:
        """Go on only if what is still to be written is a part of the plan, and all else of it is written."""
        planned = {write.place: self._hashed(write).after for write in self.writes}
        foreign = [w for w in now if w.place not in planned or planned[w.place] != self._hashed(w).after]
        if foreign:
            keys = ", ".join(sorted({write.key.decode(errors="backslashreplace") for write in foreign})[:3])
            raise PlanMovedError(
                f"The plan for {self.look.connector} does not fit any more: {len(foreign)} more offsets would be "
                f"written, e.g. {keys}.",
                remedy="These were not written. Stop the connector, and make the plan again.",
            )

    def content(self) -> dict[str, Any]:
        """What counts for the hash of the plan, and what carrying it out needs, as JSON.

        The offsets of a connector that is not stopped move while one reads the plan. So the values that are replaced
        count only where it is stopped, and so do values that are carried from one place to another: the ones that are
        written are those of the moment when it is. Which keys are written, and which are removed, counts always.
        """
        writes = tuple(self._hashed(write) for write in self.writes)
        found: dict[str, Any] = to_json(replace(self, writes=writes))
        return found

    def lines(self) -> list[str]:
        """The plan for a person: what happens to the connector, then each offset."""
        look = self.look
        absent = ", which does not exist" if look.target_state is TargetState.ABSENT else ""
        size = counted(len(self.writes), "record")
        last = f", last changed by {self.last_change}" if self.last_change else ""
        found = [f"{self.verb} {look.connector}{absent}, in group {look.group_id}: {size}{last}"]
        if self.nothing_to_do:
            return found
        found += [f"  {step}" for step in self.steps()]
        for write in self.writes:
            key = write.key.decode(errors="backslashreplace")
            found.append(
                f"  {write.topic}-{write.kafka_partition} {key}: {_shown(write.before)} -> {_shown(write.after)}"
            )
        return found

    def steps(self) -> list[str]:
        """What is done, in its order."""
        look, created = self.look, self.created
        steps = []
        if created:
            steps.append(f"create the topic {created.name}: {created.partitions} partitions, compacted")
        if look.target_state in (TargetState.STARTED, TargetState.PAUSED):
            steps.append(f"stop the connector (now {look.target_state}); its tasks do nothing until the end")
        if look.exactly_once:
            ends = f", which ends the open transaction of {', '.join(self.ended)}" if self.ended else ""
            steps.append(f"fence its transactional ids ({look.group_id}-{look.connector}-0 and so on){ends}")
            clusters = {write.topic.rpartition("/")[0] for write in self.writes}
            if len(clusters) == 1:
                steps.append("write all records in one transaction: every one is there, or none")
            elif clusters:
                steps.append("write all records in one transaction in each Kafka cluster, in the workers' own first")
        else:
            steps.append(
                "write the records without a transaction, since the workers are not in the mode enabled: "
                "a worker that hangs may still write older offsets later"
            )
        if self.verb is Verb.ALTER and look.target_state is not TargetState.ABSENT:
            steps.append("let the connector check the new offsets before they are written (Connect 3.6 and later)")
        if self.own_topic is not None:
            now = f"{OWN_TOPIC}={self.own_topic}" if self.own_topic else f"no {OWN_TOPIC}"
            steps.append(f"change the connector's configuration: {now}")
        if look.target_state in (TargetState.STARTED, TargetState.PAUSED):
            watched = ", and watch its tasks for a moment" if look.target_state is TargetState.STARTED else ""
            steps.append(f"bring the connector back to {look.target_state}{watched}")
        return steps


def _shown(value: bytes | None) -> str:
    return "none" if value is None else value.decode(errors="backslashreplace")
