"""What the journal's log still has of a rollout."""

from __future__ import annotations

from dataclasses import replace

from airflow_eos_provider.journal.past import past_of
from airflow_eos_provider.journal.records import LEASE_KEY, STEP_KEY, Lease, Owner, Step, StepStatus, encode
from airflow_eos_provider.kafka.read.reader import LogRecord


def record(offset: int, key: str, value: bytes | None) -> LogRecord:
    return LogRecord("journal", 0, offset, 1_000 * offset, key.encode(), value)


INTENT = Step("w1:8083", StepStatus.INTENT, 1.0, restarted_after=1.0)
LEASE = Lease(Owner.deferred_task("dag/run/task"), "r1", "ada", "begin", 60.0)


def test_each_step_and_what_the_controller_was_doing_are_there_in_the_order_of_the_log() -> None:
    steps = [replace(INTENT, status=status) for status in (StepStatus.INTENT, StepStatus.RESTARTED, StepStatus.PASSED)]
    records = [record(number, f"{STEP_KEY}r1/w1:8083", encode(step)) for number, step in enumerate(steps, 1)]
    leases = [replace(LEASE, step=step, number=number) for number, step in enumerate(("begin", "begin", "w1: gate"))]
    records += [record(number, LEASE_KEY, encode(lease)) for number, lease in enumerate(leases, 4)]
    past = past_of(records, "r1")
    assert [(step.status, step.appended_at_ms) for step in past.steps] == [
        (StepStatus.INTENT, 1_000),
        (StepStatus.RESTARTED, 2_000),
        (StepStatus.PASSED, 3_000),
    ]
    assert [(lease.step, lease.appended_at_ms) for lease in past.leases] == [("begin", 4_000), ("w1: gate", 6_000)]


def test_other_rollouts_and_what_is_not_understood_are_left_out() -> None:
    records = [
        record(1, f"{STEP_KEY}r1/w1:8083", b"no json"),
        record(2, f"{STEP_KEY}r1/w1:8083", b'{"schema": 1}'),
        record(3, f"{STEP_KEY}r10/w1:8083", encode(INTENT)),
        record(4, LEASE_KEY, encode(replace(LEASE, rollout_id="r10"))),
        record(5, LEASE_KEY, None),
        record(6, "clock", None),
        record(7, f"{STEP_KEY}r1/w1:8083", encode(INTENT)),
    ]
    past = past_of(records, "r1")
    assert [step.appended_at_ms for step in past.steps] == [7_000]
    assert past.leases == ()
