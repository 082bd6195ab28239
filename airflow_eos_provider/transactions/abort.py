"""Ends a hanging transaction in its partition: planned, approved by its hash, then carried out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.admin.open_transactions import Place
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.clients import not_allowed
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.plan_hash import ShownPlan, hash_of
from airflow_eos_provider.transactions.ends import PartitionEnds, known_ends
from airflow_eos_provider.transactions.hanging import STATE_TOPIC, Hanging, HangingLook, find_hanging
from airflow_eos_provider.transactions.look import no_topic, partitions_of_all_topics

#: What a plan says that it is.
KIND = "transactions abort"

#: A marker is in the partition when the leader answers; its replicas have it a moment later, and then readers.
_SETTLE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class AbortPlan(ShownPlan):
    """The end of one hanging transaction in one partition.

    :param kafka_cluster_id: of the Kafka cluster.
    :param fences: whether its producer is fenced first.
    :param ends: of the partition, when the plan was made; no part of the hash, since others go on writing.
    """

    moved: ClassVar[str] = (
        "another transaction hangs there now, its producer has gone on, or --fence was given once only"
    )

    kafka_cluster_id: str
    hanging: Hanging
    fences: bool
    ends: PartitionEnds = field(compare=False)

    @property
    def hash(self) -> str:
        """SHA-256 over the transaction that is aborted."""
        return hash_of(self._content())

    def lines(self) -> list[str]:
        """The plan for a person."""
        held, ends = self.hanging.held, self.ends
        found = [
            f"abort the transaction that {held.topic}-{held.partition} holds open since offset {held.start_offset}"
        ]
        if self.hanging.transactional_id is None:
            found.append(f"  of producer {held.producer_id}, which no coordinator knows any more")
        else:
            found.append(
                f"  of producer {held.producer_id}, {self.hanging.transactional_id}, which its coordinator calls "
                f"{self.hanging.state}"
            )
        if self.fences:
            found.append(f"  {self.hanging.transactional_id} is fenced first: its producer can write nothing more")
        found += [
            f"  readers of committed records stand at {ends.stable:,}; {ends.waiting:,} offsets wait behind it",
            "  its records in this partition are given up for good; all behind them is readable then",
            "  if its producer was told that they are committed, the marker was lost (KAFKA-20734), and they have to "
            "be delivered again" + (": its last transaction was committed" if self.hanging.may_be_committed else ""),
        ]
        return found

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {**self._content(), "stable": self.ends.stable, "end": self.ends.end, "hash": self.hash}

    def _content(self) -> dict[str, Any]:
        held = self.hanging.held
        return {
            "kind": KIND,
            "kafka_cluster_id": self.kafka_cluster_id,
            "topic": held.topic,
            "partition": held.partition,
            "producer_id": held.producer_id,
            "producer_epoch": held.producer_epoch,
            "start_offset": held.start_offset,
            "transactional_id": self.hanging.transactional_id,
            "fences": self.fences,
        }


@dataclass(frozen=True, slots=True)
class AbortReport:
    """What an abort did.

    :param after: the partition's ends afterwards.
    """

    plan: AbortPlan
    after: PartitionEnds

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        held = self.plan.hanging.held
        return {
            "topic": held.topic,
            "partition": held.partition,
            "start_offset": held.start_offset,
            "before": self.plan.ends.to_dict(),
            "after": self.after.to_dict(),
        }


class Aborter:
    """Plans and carries out the end of a hanging transaction.

    :param kafka: the Kafka cluster.
    :param place: the topic and the partition that hold it open.
    :param start_offset: of its first record; needed where several hang there.
    :param fence: shut its producer out first.
    :raises ConfigurationError: there is no such topic or partition.
    :raises UnreachableError: no broker answers.
    """

    def __init__(self, kafka: Session, place: Place, start_offset: int | None = None, *, fence: bool = False) -> None:
        self._kafka, self._place, self._start_offset, self._fence = kafka, place, start_offset, fence
        topics = partitions_of_all_topics(kafka)
        topic, partition = place
        if topic not in topics:
            raise no_topic(kafka, [topic])
        if not 0 <= partition < topics[topic]:
            raise ConfigurationError(
                f"Topic {topic} has no partition {partition}.", expected=f"0 to {topics[topic] - 1}"
            )
        self._coordinators = topics.get(STATE_TOPIC, 0)
        self._cluster_id = kafka.cluster_id()

    def plan(self) -> AbortPlan:
        """The end of the transaction that hangs there, as it is now.

        :raises RefusedError: none hangs there, or several; it is not known whether it is alive; or its producer may
            write into it.
        :raises ConfigurationError: the principal may not end it, or not fence its producer.
        :raises UnreachableError: a broker did not answer.
        """
        ends = self._ends()  # before the look, so that nothing comes between that and the marker
        hanging = self._the_one(find_hanging(self._kafka.settings, [self._place], self._coordinators))
        if hanging.is_open_elsewhere:
            raise RefusedError(
                f"{hanging.transactional_id} has another transaction open: its producer is at work, and might write "
                "here too.",
                remedy="Stop it first, or wait for its end.",
            )
        if hanging.may_be_written and not self._fence:
            raise RefusedError(
                f"The producer of {hanging.transactional_id} has the epoch that this transaction has: if it is alive, "
                "it may write into it at this moment.",
                remedy="Stop it, and give the same command with --fence, which shuts it out first.",
            )
        fenced = hanging.transactional_id if self._fence else None
        self._require_rights(fenced)
        return AbortPlan(self._cluster_id, hanging, fenced is not None, ends)

    def _require_rights(self, fenced: str | None) -> None:
        """Check the rights before anyone is asked to approve."""
        with self._kafka.transactions() as client:
            client.require_may_abort()
            if fenced is not None and not client.may_write([fenced]):
                needed = (Operation.WRITE, Operation.DESCRIBE)
                raise not_allowed(self._kafka.settings, "fencing it", needed, Resource.TRANSACTIONAL_ID, fenced)

    def _the_one(self, look: HangingLook) -> Hanging:
        topic, partition = self._place
        if self._place in look.unknown:
            raise RefusedError(
                f"What {topic}-{partition} holds open is not known: {look.unknown[self._place]}.",
                remedy="It takes a leader that answers, and the right to read the topic.",
            )
        found = [one for one in look.hanging if self._start_offset in (None, one.held.start_offset)]
        if not found and look.unseen:
            raise RefusedError(
                f"{topic}-{partition} holds a transaction open that no coordinator has named, and not all could be "
                "asked: it may be alive.",
                expected="the rights Describe on every transactional id and on the topic __transaction_state, and "
                "coordinators that have not moved meanwhile",
                remedy="Ask again, or as a principal that has the rights.",
            )
        if not found:
            raise RefusedError(
                f"No transaction hangs in {topic}-{partition}"
                + (f" from offset {self._start_offset} on." if self._start_offset is not None else "."),
                remedy="List them with 'eos transactions list --hanging'. 'eos fencing apply' ends one that is alive.",
            )
        if len(found) > 1:
            offsets = ", ".join(str(one.held.start_offset) for one in found)
            raise RefusedError(
                f"{len(found)} transactions hang in {topic}-{partition}, from the offsets {offsets} on.",
                remedy="Name one with --start-offset.",
            )
        return found[0]

    def apply(self, plan_hash: str) -> AbortReport:
        """Look once more, and if it is what was approved, write the marker at once.

        It takes no lease: a roll may be waiting for the very end of this transaction.

        :param plan_hash: of the plan that was shown, or its first digits.
        :raises PlanMovedError: it is another transaction.
        :raises RefusedError: as :meth:`plan`; or its producer has gone on.
        :raises ConfigurationError: the principal may not.
        :raises EosError: whether the marker is written is not known, or readers do not get past it.
        """
        with TransactionsClient(self._kafka.settings) as client:
            plan = self.plan()
            plan.require(plan_hash)
            if plan.fences:
                assert plan.hanging.transactional_id is not None
                client.fence([plan.hanging.transactional_id])
            client.abort(plan.hanging.held)
            return AbortReport(plan, self._await_end(client, plan))

    def _await_end(self, client: TransactionsClient, plan: AbortPlan) -> PartitionEnds:
        """Wait until the partition does not hold it open, and readers go on if they stood at it."""
        held, deadline = plan.hanging.held, time.monotonic() + _SETTLE_SECONDS
        was_first = plan.ends.stable == held.start_offset
        while True:
            opened = {(one.producer_id, one.start_offset) for one in client.held_open([held.place]).held}
            ends = self._ends()
            is_over = (held.producer_id, held.start_offset) not in opened
            if is_over and (ends.stable > held.start_offset or not was_first):
                return ends
            if time.monotonic() >= deadline:
                raise EosError(
                    f"{held.topic}-{held.partition} has the marker, and {_SETTLE_SECONDS:.0f} s later readers of "
                    f"committed records still stand at {ends.stable}.",
                    remedy="Are its replicas in sync? Look with 'eos transactions list --hanging'.",
                )
            time.sleep(_PAUSE_SECONDS)

    def _ends(self) -> PartitionEnds:
        return known_ends(self._kafka, self._place)
