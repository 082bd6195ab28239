"""Finds why a task has FAILED from its trace, whose wording may mislead.

Connect's own words hide what happened: a task that was fenced and a task whose transaction timed out leave the very
same text ("was unable to finish writing records to Kafka before its producer transaction expired"), and a fencing round
that failed on the leader reaches the task without its cause. What the trace leaves open, the coordinator's memory of
the task's transactional id may show: a producer that fences, a new one or a fencing round, leaves its own transaction
timeout there and no transaction, while a coordinator that aborts for a timeout leaves the task's and an abort.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription


class FailureKind(StrEnum):
    """What made a task fail; asked for what it means, not compared by name."""

    FENCED = "fenced"
    TIMED_OUT = "transaction timed out"
    FENCED_OR_TIMED_OUT = "fenced, or its transaction timed out"
    NOT_AUTHORIZED = "not authorized"
    FENCING_FAILED = "zombie fencing failed"
    UNKNOWN = "unknown"

    @property
    def is_mended_by_restart(self) -> bool:
        """Whether one restart of the task is worth trying: it takes its transactional id anew, from its last commit."""
        return self not in (FailureKind.NOT_AUTHORIZED, FailureKind.UNKNOWN)


#: KIP-618's answers to a transaction that expires before the task has written its records.
TIMEOUT_REMEDIES = (
    "tune the connector's producer for throughput (producer.override.linger.ms, batch.size, compression.type)",
    "raise producer.override.transaction.timeout.ms (the broker's transaction.max.timeout.ms is its limit)",
    "commit more often: a shorter transaction.boundary.interval.ms, or offset.flush.interval.ms of the worker",
    "use transaction.boundary=poll, which commits after each batch",
)

_FENCED_REMEDIES = (
    "find who else uses its transactional id: another Connect cluster with this group.id, or <group>-<connector> names "
    "that coincide; a zombie that a newer task set has fenced needs nothing",
    "restart the task",
)
_FENCING_REMEDIES = (
    "restart the task, or use 'eos fencing apply --pending': Connect never repeats a fencing round by itself, and a "
    "leader just restarted is enough to fail one",
    "if it fails again, read the leader's log: an ACL is missing, transaction.max.timeout.ms is below 90 s, or the "
    "tasks are too many (docs/connect/fencing-and-transactions.md)",
)

#: Connect's words for a transaction that expired; the exception beneath is InvalidProducerEpochException in both cases.
_EXPIRED_WORDS = ("before its producer transaction expired", "InvalidProducerEpochException", "ProducerFencedException")

#: A newer task set or a newer owner has won: raised by the check that follows the producer's initialisation.
_SUPERSEDED_WORDS = (
    "already generated a new set of task configs",
    "already been revoked from this worker",
    "new task configurations were generated for the connector",
)

#: Connect's words in the trace of a task whose zombie fencing failed (DistributedHerder, 3.3 to 4.3). A request that
#: could not be forwarded, since the leader was just bounced, says no such thing; there the frame's name tells.
_FENCING_WORDS = ("zombie fencing", "fenceZombie", "not able to communicate with the leader of the cluster")

_AUTHORIZATION = re.compile(r"(?<!\w)(\w*AuthorizationException)\b")
_RESOURCES = {
    "TransactionalIdAuthorizationException": "Write and Describe on TransactionalId <group>-<connector>-<task>, for "
    "the connector's producer and for its admin client (admin.override.* or the workers'), which Connect fences with",
    "TopicAuthorizationException": "Write (Create, if it may be absent) on its topics; Read, Write and Describe on its "
    "offsets topic",
    "ClusterAuthorizationException": "IdempotentWrite on the cluster (brokers before 2.8)",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed task's reason.

    :param evidence: what says so, in one line; nothing of the trace but its messages' first line.
    :param remedies: what to do, in the order in which it is worth trying.
    """

    kind: FailureKind
    evidence: str
    remedies: tuple[str, ...]

    @property
    def remedy(self) -> str:
        return "; or ".join(self.remedies)

    def __str__(self) -> str:
        return f"{self.kind} ({self.evidence})" if self.evidence else str(self.kind)


def name_failure(
    trace: str | None, transaction: TransactionDescription | None = None, own_timeout_ms: int | None = None
) -> Failure:
    """Name the reason of a failed task.

    :param transaction: what the coordinator knows of the task's transactional id, to tell fenced from timed out.
    """
    text = trace or ""
    refused = _AUTHORIZATION.search(text)
    if refused:
        return Failure(
            FailureKind.NOT_AUTHORIZED,
            refused[1],
            (f"grant {_RESOURCES.get(refused[1], 'what the trace names')}; then restart the task",),
        )
    superseded = next((words for words in _SUPERSEDED_WORDS if words in text), None)
    if superseded:
        return Failure(FailureKind.FENCED, f"a newer task set or owner has taken over: {superseded}", _FENCED_REMEDIES)
    # Before the fencing words: a task that was fenced while it wrote has been through its own fencing round already.
    if any(words in text for words in _EXPIRED_WORDS) and "fenceZombie" not in text:
        return _expired(transaction, own_timeout_ms)
    if any(words in text for words in _FENCING_WORDS):
        return Failure(FailureKind.FENCING_FAILED, _deepest_cause(text), _FENCING_REMEDIES)
    return Failure(FailureKind.UNKNOWN, _deepest_cause(text), ("read the trace: GET /connectors/<name>/status",))


def _expired(transaction: TransactionDescription | None, own_timeout_ms: int | None) -> Failure:
    if transaction is None or own_timeout_ms is None:
        evidence = "Connect words both alike"
        return Failure(FailureKind.FENCED_OR_TIMED_OUT, evidence, (*_FENCED_REMEDIES[:1], *TIMEOUT_REMEDIES))
    if transaction.timeout_ms != own_timeout_ms:
        evidence = (
            f"{transaction.transactional_id} has a timeout of {transaction.timeout_ms} ms now, the task had set "
            f"{own_timeout_ms} ms: another producer or a fencing round has taken the id"
        )
        return Failure(FailureKind.FENCED, evidence, _FENCED_REMEDIES)
    if transaction.state is TransactionState.EMPTY:
        evidence = f"another producer has taken {transaction.transactional_id} and written nothing by it yet"
        return Failure(FailureKind.FENCED, evidence, _FENCED_REMEDIES)
    if transaction.state is TransactionState.COMPLETE_ABORT:
        evidence = (
            f"{transaction.transactional_id} was aborted and not taken by another producer since; "
            f"its limit is {own_timeout_ms} ms"
        )
        return Failure(FailureKind.TIMED_OUT, evidence, TIMEOUT_REMEDIES)
    evidence = f"{transaction.transactional_id} is in state {transaction.state}, which fits both"
    return Failure(FailureKind.FENCED_OR_TIMED_OUT, evidence, (*_FENCED_REMEDIES[:1], *TIMEOUT_REMEDIES))


#: Java's producer sets this many milliseconds unless set otherwise; Connect leaves it so.
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000


def transaction_timeout_ms(connector: Mapping[str, str | None], worker: Mapping[str, str]) -> int | None:
    """The transaction timeout that a task's producer sets, milliseconds; None if it cannot be read."""
    value = connector.get("producer.override.transaction.timeout.ms") or worker.get("producer.transaction.timeout.ms")
    if value is None:
        return DEFAULT_TRANSACTION_TIMEOUT_MS
    try:
        return int(value)
    except ValueError:  # a config provider supplies it, or the producer would not have started
        return None


def _deepest_cause(trace: str) -> str:
    """The message at the bottom of the chain of causes, which says most; its first line, shortened."""
    lines = trace.strip().splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or ["no trace"])[-1 if causes else 0][:200]
