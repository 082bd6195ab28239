"""Ends a hanging transaction in its partition."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.changes.change import Done
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.kafka.admin.client import Place
from airflow_eos_provider.kafka.admin.open_transactions import HeldOpen
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.questions import not_allowed
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.transactions.hanging import STATE_TOPIC, Hanging, HangingLook, find_hanging
from airflow_eos_provider.transactions.known_ids import no_topic
from airflow_eos_provider.transactions.readable_ends import PartitionEnds, ends_document, known_ends

if TYPE_CHECKING:
    from airflow_eos_provider.changes.transactions.change import AbortRequest

#: A marker is in the partition when the leader answers; its replicas have it a moment later, and then readers.
_SETTLE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Found:
    """The transaction that is ended."""

    kafka_cluster_id: str
    hanging: Hanging
    fences: bool
    ends: PartitionEnds  #: of the partition; no part of the plan's hash, since others go on writing

    def lines(self) -> Iterator[str]:
        """The plan for a person."""
        hanging, held, ends = self.hanging, self.hanging.held, self.ends
        yield f"abort the transaction that {held.topic}-{held.partition} holds open since offset {held.start_offset}"
        if hanging.transactional_id is None:
            yield f"  of producer {held.producer_id}, which no coordinator knows any more"
        else:
            yield (
                f"  of producer {held.producer_id}, {hanging.transactional_id}, which its coordinator calls "
                f"{hanging.state}"
            )
        if self.fences:
            yield f"  {hanging.transactional_id} is fenced first: its producer can write nothing more"
        yield f"  readers of committed records wait at offset {ends.stable:,}; {ends.waiting:,} offsets are behind it"
        yield "  its records in this partition are given up for good; records behind them become readable"
        yield (
            "  if the brokers confirmed its commit, the marker was lost (KAFKA-20734), and the records have to be "
            "delivered again" + (": its last transaction was committed" if hanging.may_be_committed else "")
        )


def find(kafka: Session, request: AbortRequest) -> Found:
    """The transaction that hangs."""
    place = request.topic, request.partition
    topics = Topics(kafka).partitions()
    if request.topic not in topics:
        raise no_topic(kafka, [request.topic])
    if request.partition >= topics[request.topic]:
        raise ConfigurationError(
            f"Topic {request.topic} has no partition {request.partition}.",
            expected=f"0 to {topics[request.topic] - 1}",
        )
    cluster_id = kafka.cluster_id()
    ends = known_ends(kafka, place)
    look = find_hanging(kafka, [place], topics.get(STATE_TOPIC, 0))
    hanging = _the_one(look, place, request.start_offset)
    if hanging.is_open_elsewhere:
        raise RefusedError(
            f"{hanging.transactional_id} has another transaction open: its producer is at work, and might write "
            "here too.",
            remedy="Stop it first, or wait for its end.",
        )
    if hanging.may_be_written and not request.fence:
        raise RefusedError(
            f"The producer of {hanging.transactional_id} has the epoch that this transaction has: if it is alive, "
            "it may write into it at this moment.",
            remedy="Stop it, and give the same command with --fence, which shuts it out first.",
        )
    fenced = hanging.transactional_id if request.fence else None
    _require_rights(kafka, fenced)
    return Found(cluster_id, hanging, fenced is not None, ends)


def _require_rights(kafka: Session, fenced: str | None) -> None:
    """Check the rights before anyone is asked to approve."""
    with kafka.transactions() as client:
        client.require_may_abort()
        if fenced is not None and not client.may_write([fenced]):
            needed = (Operation.WRITE, Operation.DESCRIBE)
            raise not_allowed(kafka.settings, "fencing it", needed, Resource.TRANSACTIONAL_ID, fenced)


def _the_one(look: HangingLook, place: Place, start_offset: int | None) -> Hanging:
    topic, partition = place
    if place in look.unknown:
        raise RefusedError(
            f"eos cannot tell what {topic}-{partition} holds open: {look.unknown[place]}.",
            remedy="This needs a leader that answers, and the right to read the topic.",
        )
    found = [one for one in look.hanging if start_offset in (None, one.held.start_offset)]
    if not found and look.unseen:
        raise RefusedError(
            f"{topic}-{partition} holds a transaction open that no coordinator has named, and not all could be "
            "asked: it may be alive.",
            expected="the right Describe on every transactional id and on the topic __transaction_state, and "
            "coordinators that do not move during the check",
            remedy="Try again, or use a principal that has the rights.",
        )
    if not found:
        raise RefusedError(
            f"No transaction hangs in {topic}-{partition}"
            + (f" from offset {start_offset} on." if start_offset is not None else "."),
            remedy="List them with 'eos transactions list --hanging'. 'eos fencing apply' ends an open transaction "
            "that does not hang.",
        )
    if len(found) > 1:
        offsets = ", ".join(str(one.held.start_offset) for one in found)
        raise RefusedError(
            f"{len(found)} transactions hang in {topic}-{partition}, from the offsets {offsets} on.",
            remedy="Name one with --start-offset.",
        )
    return found[0]


def abort(kafka: Session, content: Mapping[str, Any]) -> Done:
    """Write the marker of a plan that was made a moment ago."""
    held = HeldOpen(**{name: content[name] for name in HeldOpen._fields if name in content}, last_timestamp_ms=-1)
    before = known_ends(kafka, held.place)
    with kafka.transactions() as client:
        if content["fences"]:
            client.fence([content["transactional_id"]])
        client.abort(held)
        after = _await_end(kafka, client, held, before)
    readable = (
        f"readable to {ends.stable:,} of {ends.end:,}, {ends.waiting:,} offsets wait" for ends in (after, before)
    )
    document = {
        "topic": held.topic,
        "partition": held.partition,
        "start_offset": held.start_offset,
        "before": ends_document(before),
        "after": ends_document(after),
    }
    return Done(document, (f"{held.topic}-{held.partition}: aborted. {'; before: '.join(readable)}.",))


def _await_end(kafka: Session, client: TransactionsClient, held: HeldOpen, before: PartitionEnds) -> PartitionEnds:
    """Wait until the partition does not hold it open, and readers go on if they stood at it."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    was_first = before.stable == held.start_offset
    while True:
        opened = {(one.producer_id, one.start_offset) for one in client.held_open([held.place]).held}
        ends = known_ends(kafka, held.place)
        is_over = (held.producer_id, held.start_offset) not in opened
        if is_over and (ends.stable > held.start_offset or not was_first):
            return ends
        if time.monotonic() >= deadline:
            raise EosError(
                f"{held.topic}-{held.partition} has the marker, and {_SETTLE_SECONDS:.0f} s later readers of "
                f"committed records still wait at {ends.stable}.",
                remedy="Check that its replicas are in sync, then 'eos transactions list --hanging'.",
            )
        time.sleep(_PAUSE_SECONDS)
