"""A failed task's reason is named through Connect's wording; traces as a real 4.3.1 worker leaves them, shortened."""

from __future__ import annotations

import pytest

from airflow_eos_provider.connect.task_failures import (
    TIMEOUT_REMEDIES,
    FailureKind,
    name_failure,
    transaction_timeout_ms,
)
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription

#: The same words for a task that was fenced and for one whose transaction timed out.
EXPIRED = """org.apache.kafka.connect.errors.ConnectException: The task slow-0 was unable to finish writing records to \
Kafka before its producer transaction expired. It may be necessary to reconfigure this connector in order for it to \
run healthily with exactly-once support.
\tat org.apache.kafka.connect.runtime.ExactlyOnceWorkerSourceTask.wrapTransactionTimeoutError(X.java:365)
Caused by: org.apache.kafka.common.errors.InvalidProducerEpochException: attempted to produce with an old epoch
"""

FENCING_FAILED = """org.apache.kafka.connect.errors.ConnectException: Failed to perform round of zombie fencing
\tat org.apache.kafka.connect.runtime.distributed.DistributedHerder$ZombieFencing.lambda$start$0(DistributedHerder.java)
Caused by: org.apache.kafka.common.errors.TimeoutException: Call(callName=fenceProducers) timed out
"""

FORWARDING_FAILED = """org.apache.kafka.connect.runtime.rest.errors.ConnectRestException: IO Error trying to forward \
REST request: Connection refused
\tat org.apache.kafka.connect.runtime.distributed.DistributedHerder.lambda$fenceZombieSourceTasks$1(X.java)
"""

SUPERSEDED = """org.apache.kafka.connect.errors.ConnectException: Cannot start source task mirror-2 with exactly-once \
support as the connector has already generated a new set of task configs
"""

NOT_AUTHORIZED = """org.apache.kafka.connect.errors.ConnectException: Failed to perform round of zombie fencing
Caused by: org.apache.kafka.common.errors.TransactionalIdAuthorizationException: Transactional Id authorization failed.
"""


def transaction(state: str, timeout_ms: int) -> TransactionDescription:
    return TransactionDescription("lab-slow-0", TransactionState(state), 1, 1, timeout_ms, None, ())


@pytest.mark.parametrize(
    ("trace", "kind"),
    [
        (EXPIRED, FailureKind.FENCED_OR_TIMED_OUT),
        (FENCING_FAILED, FailureKind.FENCING_FAILED),
        (FORWARDING_FAILED, FailureKind.FENCING_FAILED),
        (SUPERSEDED, FailureKind.FENCED),
        (NOT_AUTHORIZED, FailureKind.NOT_AUTHORIZED),
        ("java.lang.OutOfMemoryError: Java heap space", FailureKind.UNKNOWN),
        ("", FailureKind.UNKNOWN),
        (None, FailureKind.UNKNOWN),
    ],
)
def test_the_trace_alone_names_what_it_can(trace: str | None, kind: FailureKind) -> None:
    assert name_failure(trace).kind is kind


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (transaction("CompleteAbort", 2_000), FailureKind.TIMED_OUT),
        (transaction("Empty", 2_000), FailureKind.FENCED),  # another producer with the same settings took the id
        (transaction("Empty", 90_000), FailureKind.FENCED),  # a fencing round
        (transaction("CompleteAbort", 1), FailureKind.FENCED),
        (transaction("Ongoing", 2_000), FailureKind.FENCED_OR_TIMED_OUT),
    ],
)
def test_the_coordinator_tells_a_fenced_task_from_one_that_timed_out(
    seen: TransactionDescription, kind: FailureKind
) -> None:
    assert name_failure(EXPIRED, seen, own_timeout_ms=2_000).kind is kind


def test_a_time_out_brings_the_four_remedies_of_kip_618() -> None:
    timed_out = name_failure(EXPIRED, transaction("CompleteAbort", 2_000), own_timeout_ms=2_000)
    assert timed_out.remedies == TIMEOUT_REMEDIES
    assert len(TIMEOUT_REMEDIES) == 4
    for words in ("throughput", "transaction.timeout.ms", "interval.ms", "transaction.boundary=poll"):
        assert words in timed_out.remedy
    assert set(TIMEOUT_REMEDIES) <= set(name_failure(EXPIRED).remedies), "they also stand where it cannot be known"


def test_a_missing_grant_is_told_by_its_resource_and_is_not_restarted() -> None:
    failure = name_failure(NOT_AUTHORIZED)
    assert "Write and Describe on TransactionalId" in failure.remedy
    assert not failure.kind.is_mended_by_restart


@pytest.mark.parametrize("kind", FailureKind)
def test_only_what_a_restart_can_heal_is_restarted(kind: FailureKind) -> None:
    assert kind.is_mended_by_restart is (kind not in (FailureKind.NOT_AUTHORIZED, FailureKind.UNKNOWN))


def test_of_an_unknown_failure_the_deepest_cause_is_shown() -> None:
    failure = name_failure("org.x.A: outer\n\tat y\nCaused by: org.x.B: middle\n\tat z\nCaused by: org.x.C: the reason")
    assert str(failure) == "unknown (org.x.C: the reason)"


@pytest.mark.parametrize(
    ("connector", "worker", "timeout"),
    [
        ({}, {}, 60_000),
        ({}, {"producer.transaction.timeout.ms": "5000"}, 5_000),
        ({"producer.override.transaction.timeout.ms": "7000"}, {"producer.transaction.timeout.ms": "5000"}, 7_000),
        ({"producer.override.transaction.timeout.ms": "${file:x:y}"}, {}, None),
    ],
)
def test_the_tasks_own_timeout_is_the_connectors_then_the_workers_then_the_default(
    connector: dict[str, str | None], worker: dict[str, str], timeout: int | None
) -> None:
    assert transaction_timeout_ms(connector, worker) == timeout
