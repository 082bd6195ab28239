"""The journal's records, written down and read again: requests, their answers, and the history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_eos_provider.kafka.log import LogRecord
from airflow_eos_provider.rollout.records import (
    EVENT_KEY,
    LEASE_KEY,
    REQUEST_KEY,
    ROLLOUT_KEY,
    STEP_KEY,
    Event,
    Lease,
    Owner,
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
    content_of,
    encode,
)

NOW = 1_000_000.0


def record(key: str, value: bytes | None, offset: int = 0) -> LogRecord:
    return LogRecord("eos-rollout-lab", 0, offset, 5_000, key.encode(), value)


@pytest.fixture
def rollout() -> RolloutRecord:
    return RolloutRecord("r1", {"hash": "p1"}, {"tasks": {}}, RolloutState.RUNNING, NOW, "ann", "because")


@pytest.fixture
def asked() -> Request:
    return Request("r1", RequestKind.PAUSE, NOW, "bob", "lunch")


@pytest.fixture
def lease() -> Lease:
    return Lease(Owner.this_process(), "r1", "ann", "w1: intent", NOW + 60, acts_until=NOW + 10)


def test_every_kind_of_record_survives_being_written_down(rollout: RolloutRecord, asked: Request, lease: Lease) -> None:
    step = Step("w1:8083", StepStatus.PASSED, NOW, tasks=("a/0",), evidence=("fine",), appended_at_ms=5_000)
    event = Event("r1", NOW, "begun", "ann")
    content = content_of(
        [
            record(LEASE_KEY, encode(lease)),
            record(ROLLOUT_KEY + "r1", encode(rollout)),
            record(STEP_KEY + "r1/w1:8083", encode(step)),
            record(REQUEST_KEY + "r1", encode(asked)),
            record(event.key, encode(event)),
        ],
        end_offset=7,
    )
    assert content.lease == lease
    assert content.rollouts == {"r1": rollout}
    assert content.steps == {"r1": {"w1:8083": step}}
    assert content.requests == {"r1": asked}
    assert content.events == {"r1": (event,)}
    assert content.end_offset == 7


def test_an_answered_request_is_gone(asked: Request) -> None:
    assert content_of([record(REQUEST_KEY + "r1", encode(asked)), record(REQUEST_KEY + "r1", None)]).requests == {}


def test_a_request_after_an_answer_stands(asked: Request) -> None:
    again = replace(asked, at=NOW + 1)
    key = REQUEST_KEY + "r1"
    content = content_of([record(key, encode(asked)), record(key, None), record(key, encode(again))])
    assert content.requests == {"r1": again}


def test_events_are_told_in_the_order_in_which_they_happened() -> None:
    late, early = Event("r1", NOW + 1, "done"), Event("r1", NOW, "begun")
    assert late.key != early.key
    content = content_of([record(e.key, encode(e)) for e in (late, early)])
    assert [e.what for e in content.events["r1"]] == ["begun", "done"]


@pytest.mark.parametrize("value", [b"{}", b"no json", b'{"schema": 2}', b'{"schema": 1, "surprise": 1}'])
def test_a_record_that_is_not_understood_is_named(value: bytes) -> None:
    with pytest.raises(ValueError, match=f"with key '{EVENT_KEY}r1/1'"):
        content_of([record(EVENT_KEY + "r1/1", value)])


def test_an_aborted_rollout_is_never_taken_up_again(rollout: RolloutRecord) -> None:
    aborted = replace(rollout, state=RolloutState.ABORTED)
    content = content_of([record(ROLLOUT_KEY + "r1", encode(aborted))])
    assert content.unfinished("p1") is None
    assert content.last_of("p1") == aborted


@pytest.mark.parametrize(
    ("kind", "state"), [(RequestKind.PAUSE, RolloutState.PAUSED), (RequestKind.ABORT, RolloutState.ABORTED)]
)
def test_what_a_request_leads_to(kind: RequestKind, state: RolloutState) -> None:
    assert kind.leads_to is state


def test_a_fenced_owner_may_be_acting_until_its_act_is_over(lease: Lease) -> None:
    assert lease.may_be_acting(NOW + 9)
    assert not lease.may_be_acting(NOW + 10)
    assert not replace(lease, acts_until=0.0).may_be_acting(NOW)
    assert not replace(lease, released=True).may_be_acting(NOW)


def test_a_dead_owner_acts_no_more(lease: Lease) -> None:
    gone = replace(lease.owner, started_at=lease.owner.started_at - 3_600)
    assert not replace(lease, owner=gone).may_be_acting(NOW)


def test_only_what_comes_before_an_act_announces_one() -> None:
    announcing = {status for status in StepStatus if status.announces_an_act}
    assert announcing == {StepStatus.INTENT, StepStatus.FAILED}
