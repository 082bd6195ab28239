"""The journal's records, written down and read again: requests, their answers, and the history."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.content import JournalReplay, content_of
from airflow_eos_provider.journal.process_start import ProcessStart
from airflow_eos_provider.journal.records import (
    CLOCK_KEY,
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
    encode,
)
from airflow_eos_provider.kafka.read.reader import LogRecord

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
    return Lease(Owner.this_process(), "r1", "ann", "w1: intent", 60.0, acts_seconds=10.0)


def test_every_kind_of_record_survives_being_written_down(rollout: RolloutRecord, asked: Request, lease: Lease) -> None:
    step = Step(
        "w1:8083",
        StepStatus.PASSED,
        NOW,
        tasks=("a/0",),
        evidence=("fine",),
        conditions_after={"REST": 4.5},
        stopped_after=1.5,
        started_after=2.0,
        appended_at_ms=5_000,
    )
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
    assert content.lease == replace(lease, appended_at_ms=5_000)
    assert content.rollouts == {"r1": rollout}
    assert content.steps == {"r1": {"w1:8083": step}}
    assert content.requests == {"r1": asked}
    assert content.events == {"r1": (event,)}
    assert content.end_offset == 7


def test_an_answered_request_is_gone_and_one_after_it_stands(asked: Request) -> None:
    key, again = REQUEST_KEY + "r1", replace(asked, at=NOW + 1)
    answered = [record(key, encode(asked)), record(key, None)]
    assert content_of(answered).requests == {}
    assert content_of([*answered, record(key, encode(again))]).requests == {"r1": again}


def test_a_journal_that_is_followed_leaves_alone_what_was_read_before(rollout: RolloutRecord, asked: Request) -> None:
    step = Step("w1:8083", StepStatus.INTENT, NOW)
    first = [record(ROLLOUT_KEY + "r1", encode(rollout)), record(f"{STEP_KEY}r1/w1:8083", encode(step))]
    later = [
        record(f"{STEP_KEY}r1/w1:8083", encode(replace(step, status=StepStatus.PASSED))),
        record(REQUEST_KEY + "r1", encode(asked)),
        record(ROLLOUT_KEY + "r1", encode(replace(rollout, state=RolloutState.DONE))),
    ]
    replay = JournalReplay()
    replay.take(first)
    before = replay.content(2)
    replay.take(later)
    assert before == content_of(first, 2)
    assert replay.content(5) == content_of([*first, *later], 5)


def test_an_announcement_that_was_withdrawn_is_gone() -> None:
    intent = encode(Step("w1:8083", StepStatus.INTENT, NOW))
    other = record(STEP_KEY + "r1/w2:8083", intent.replace(b"w1:", b"w2:"))
    content = content_of([record(STEP_KEY + "r1/w1:8083", intent), other, record(STEP_KEY + "r1/w1:8083", None)])
    assert list(content.steps["r1"]) == ["w2:8083"]


def test_events_are_told_in_the_order_in_which_they_happened() -> None:
    late, early = Event("r1", NOW + 1, "done"), Event("r1", NOW, "begun")
    assert late.key != early.key
    content = content_of([record(e.key, encode(e)) for e in (late, early)])
    assert [e.what for e in content.events["r1"]] == ["begun", "done"]


# what another version has written


def written_by_another(document: Any, **fields: Any) -> bytes:
    return json.dumps({**json.loads(encode(document)), **fields}).encode()


def test_a_step_of_a_version_that_did_not_keep_how_a_restart_went_on_is_read() -> None:
    step = Step("w1:8083", StepStatus.PASSED, NOW)
    document = json.loads(encode(step))
    for name in ("conditions_after", "stopped_after", "started_after"):
        del document[name]
    content = content_of([record(STEP_KEY + "r1/w1:8083", json.dumps(document).encode())])
    assert content.unreadable == {}
    read = content.steps["r1"]["w1:8083"]
    assert (read.conditions_after, read.stopped_at, read.started_at) == ({}, None, None)


def test_fields_that_another_version_has_written_are_kept(rollout: RolloutRecord) -> None:
    step = Step("w1:8083", StepStatus.PASSED, NOW)
    content = content_of(
        [
            record(ROLLOUT_KEY + "r1", written_by_another(rollout, ticket="OPS-7")),
            record(STEP_KEY + "r1/w1:8083", written_by_another(step, image={"tag": "4.4"})),
        ]
    )
    assert content.unreadable == {}
    closed = replace(content.rollouts["r1"], state=RolloutState.DONE)
    assert json.loads(encode(closed)) == {**json.loads(encode(replace(rollout, state="done"))), "ticket": "OPS-7"}
    assert json.loads(encode(content.steps["r1"]["w1:8083"]))["image"] == {"tag": "4.4"}


@pytest.mark.parametrize("value", [b"{}", b"no json", b"1", b'{"schema": 0}', b'{"schema": 1}', b'{"schema": "?"}'])
@pytest.mark.parametrize("key", [ROLLOUT_KEY + "r1", STEP_KEY + "r1/w1:8083", REQUEST_KEY + "r1", EVENT_KEY + "r1/1"])
def test_a_record_that_is_not_understood_concerns_its_own_rollout_alone(
    rollout: RolloutRecord, key: str, value: bytes
) -> None:
    other = replace(rollout, rollout_id="r2", plan={"hash": "p2"})
    content = content_of([record(ROLLOUT_KEY + "r2", encode(other)), record(key, value)])
    assert set(content.unreadable) == {"r1"}
    assert repr(key) in content.unreadable["r1"].why
    assert content.unfinished("p2") == other


def test_a_newer_record_is_shown_as_such_until_a_known_one_replaces_it(rollout: RolloutRecord) -> None:
    newer = record(ROLLOUT_KEY + "r1", written_by_another(rollout, schema=2, surprise=1))
    content = content_of([newer])
    assert content.rollouts["r1"].rollout_id == "r1", "what is known of it is not shown"
    assert "by a newer version of this package (schema 2, this one knows 1)" in content.unreadable["r1"].why
    with pytest.raises(RefusedError, match="Rollout r1 was written by a newer version"):
        content.require_understood(content.rollouts["r1"])
    content.require_understood(replace(rollout, rollout_id="r2"))
    content.require_understood(None)
    assert content_of([newer, record(ROLLOUT_KEY + "r1", encode(rollout))]).unreadable == {}


def test_a_kind_of_record_that_is_not_known_is_left_alone() -> None:
    assert content_of([record("offsets/r1", b"?"), record(CLOCK_KEY, None)]).unreadable == {}


def test_a_newer_lease_still_ends_and_one_without_an_end_is_held(lease: Lease) -> None:
    newer = record(LEASE_KEY, written_by_another(lease, schema=2, region="north"))
    found = content_of([newer]).lease
    assert found is not None
    assert found.expires_at == 65.0
    unknown = content_of([record(LEASE_KEY, encode(lease)), record(LEASE_KEY, b'{"schema": 2, "holder": "x"}')])
    assert unknown.lease is None
    assert LEASE_KEY in unknown.unreadable
    without_end = {name: value for name, value in json.loads(encode(lease)).items() if name != "lasts_seconds"}
    unknown = content_of([record(LEASE_KEY, json.dumps(without_end).encode())])
    assert unknown.lease is None
    assert LEASE_KEY in unknown.unreadable


# times


def test_a_restart_is_known_by_when_the_broker_has_its_announcement(lease: Lease) -> None:
    announced = Step("w1:8083", StepStatus.INTENT, NOW, restarted_after=NOW)
    key = STEP_KEY + "r1/w1:8083"
    read = content_of([record(key, encode(announced))]).steps["r1"]["w1:8083"]
    assert (read.announced_at_ms, read.restart_id) == (5_000, 5.0)
    later = encode(replace(read, status=StepStatus.RESTARTED))
    passed = content_of([LogRecord("j", 0, 1, 9_000, key.encode(), later)]).steps["r1"]["w1:8083"]
    assert (passed.announced_at_ms, passed.appended_at_ms) == (5_000, 9_000)
    of_an_earlier_version = replace(announced, status=StepStatus.RESTARTED)
    assert of_an_earlier_version.restart_id == NOW


def test_what_says_how_far_a_restart_has_come_is_no_announcement_of_another_one() -> None:
    key = (STEP_KEY + "r1/w1:8083").encode()
    announced = Step("w1:8083", StepStatus.INTENT, NOW, restarted_after=NOW, announced_at_ms=3_000)  # of the one before
    steps = [announced.appended(5_000)]
    steps.append(replace(steps[0], stopped_after=1.5).appended(7_000))
    steps.append(replace(steps[1], started_after=2.0).appended(8_000))
    documents = [encode(announced), *map(encode, steps[1:])]
    read = [content_of([LogRecord("j", 0, 1, 5_000, key, documents[0])]).steps["r1"]["w1:8083"]]
    read += [content_of([LogRecord("j", 0, 1, 7_500, key, each)]).steps["r1"]["w1:8083"] for each in documents[1:]]
    assert [step.restart_id for step in (*steps, *read)] == [5.0] * 6
    assert (read[-1].announced_at, read[-1].stopped_at, read[-1].started_at) == (5.0, 6.5, 7.0)


def test_a_change_of_a_file_alone_announces_no_restart() -> None:
    assert Step("w1:8083", StepStatus.INTENT, NOW).appended(5_000).announced_at is None


def test_the_broker_has_reached_the_time_of_its_last_record() -> None:
    assert content_of([record(CLOCK_KEY, None)]).appended_at_ms == 5_000


def test_a_fenced_owner_may_be_acting_until_its_act_is_over(lease: Lease) -> None:
    assert lease.may_be_acting(9)
    assert not lease.may_be_acting(10)
    assert not replace(lease, acts_seconds=0.0).may_be_acting(0)
    assert not replace(lease, released=True).may_be_acting(0)
    start = ProcessStart.of_this_process()
    gone = replace(lease.owner, start=str(replace(start, ticks=start.ticks - 1)))
    assert not replace(lease, owner=gone).may_be_acting(0)
