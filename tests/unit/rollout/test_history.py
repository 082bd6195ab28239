"""The history as it is shown: states, predictions beside outcomes, and the way back."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.journal.content import JournalContent, content_of
from airflow_eos_provider.journal.records import (
    Event,
    Lease,
    Owner,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
    encode,
)
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.rollout.outcome import WorkerOutcome
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind
from airflow_eos_provider.rollout.roll_history import (
    ForeignRollout,
    find_rollout,
    former_mode,
    restores_files,
    whole_history,
)
from tests.unit.rollout.conftest import NOW, W1, W2, W3


@pytest.fixture
def plan(cluster: Any) -> Any:
    return cluster.plan(Mode.PREPARING)


@pytest.fixture
def record(plan: Any) -> RolloutRecord:
    return RolloutRecord("20260101-preparing-abc", plan.to_dict(), {}, RolloutState.RUNNING, NOW, "ann", "because")


def content(*records: RolloutRecord, **fields: Any) -> JournalContent:
    return JournalContent(rollouts={record.rollout_id: record for record in records}, **fields)


def lease(rollout_id: str) -> Lease:
    return Lease(Owner.this_process(), rollout_id, "ann", "w1: intent", time.time() + 60)


def test_a_running_rollout_that_nobody_carries_out_was_interrupted(record: RolloutRecord) -> None:
    (found,) = whole_history(content(record))
    assert found.state == "interrupted"
    (found,) = whole_history(content(record, lease=lease(record.rollout_id)))
    assert found.state == "running"
    (found,) = whole_history(content(record, lease=lease("another")))
    assert found.state == "interrupted"


def test_the_newest_comes_first(record: RolloutRecord) -> None:
    newer = replace(record, rollout_id="20260102-preparing-def", started_at=NOW + 1)
    assert [r.rollout_id for r in whole_history(content(record, newer))] == [newer.rollout_id, record.rollout_id]


def test_workers_that_are_through_are_counted_among_those_to_roll(record: RolloutRecord) -> None:
    steps = {W1: Step(W1, StepStatus.PASSED, NOW), W2: Step(W2, StepStatus.RESTARTED, NOW)}
    (found,) = whole_history(content(record, steps={record.rollout_id: steps}))
    assert (found.workers_done, found.workers_to_roll) == (1, 3)


def test_a_rollout_as_json_tells_who_when_why_and_each_workers_evidence(record: RolloutRecord) -> None:
    went_on = Step(W1, StepStatus.PASSED, NOW + 9, restarted_after=NOW, stopped_after=2.5, started_after=3.0)
    steps = {W1: replace(went_on, seconds=9.0, evidence=("group: stable",))}
    events = (Event(record.rollout_id, NOW, "begun", "ann"), Event(record.rollout_id, NOW + 10, "paused", "bob"))
    paused = replace(record, state=RolloutState.PAUSED)
    (found,) = whole_history(content(paused, steps={paused.rollout_id: steps}, events={paused.rollout_id: events}))
    document = found.to_dict()
    assert (document["actor"], document["reason"], document["started_at"]) == ("ann", "because", NOW)
    assert document["ended_at"] == NOW + 10
    first, second, _ = document["workers"]
    assert (first["status"], first["evidence"]) == ("passed", ("group: stable",))
    assert (first["announced_at"], first["stopped_at"], first["started_at"]) == (NOW, NOW + 2.5, NOW + 3.0)
    assert (second["worker"], second["status"]) == (W2, None)


def test_a_rollout_is_found_by_the_beginning_of_its_id(record: RolloutRecord) -> None:
    other = replace(record, rollout_id="20260102-preparing-def", started_at=NOW + 1)
    both = content(record, other)
    assert find_rollout(both, "20260101").rollout_id == record.rollout_id
    assert find_rollout(both, None).rollout_id == other.rollout_id
    with pytest.raises(ConfigurationError, match="2 rollouts begin with 2026"):
        find_rollout(both, "2026")
    with pytest.raises(ConfigurationError, match="no rollout 1999"):
        find_rollout(both, "1999")


def test_the_empty_journal_has_no_rollout_to_show() -> None:
    with pytest.raises(ConfigurationError, match="has no rollout"):
        find_rollout(JournalContent(), None)


# what another version has written


def foreign(record: RolloutRecord, **fields: Any) -> JournalContent:
    """The journal with a newer rollout that another version has written, and this one."""
    newer = replace(record, rollout_id="20260102-preparing-def", started_at=NOW + 1)
    documents = {newer.rollout_id: {**json.loads(encode(newer)), **fields}, record.rollout_id: encode(record)}
    return content_of(
        LogRecord("j", 0, 0, 5_000, f"rollout/{name}".encode(), json.dumps(d).encode() if isinstance(d, dict) else d)
        for name, d in documents.items()
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"schema": 2}, "was written by a newer version"),
        ({"plan": {"schema": 3, "hash": "x"}}, "its schema is 3, expected is 4"),
        ({"plan": {"schema": 99, "hash": "x"}}, "has a plan that this version does not understand"),
        ({"state": "teleported"}, "that this version does not understand"),
    ],
)
def test_a_rollout_of_another_version_is_shown_and_refused_while_others_are_not(
    record: RolloutRecord, fields: dict[str, Any], why: str
) -> None:
    both = foreign(record, **fields)
    shown = whole_history(both)
    assert {one.rollout_id for one in shown} == {record.rollout_id, "20260102-preparing-def"}
    (strange,) = [one.to_dict() for one in shown if isinstance(one, ForeignRollout)]
    assert strange["state"] == "not understood"
    assert why in strange["note"]
    assert find_rollout(both, "20260101").rollout_id == record.rollout_id
    with pytest.raises(RefusedError, match=f"Rollout 20260102-preparing-def .*{why}") as refused:
        find_rollout(both, "20260102")
    assert "\n" not in str(refused.value), "one sentence"


def test_a_closed_rollout_is_not_resumed(record: RolloutRecord) -> None:
    (open_one,) = whole_history(content(record))
    open_one.require_applicable()
    (closed,) = whole_history(content(replace(record, state=RolloutState.DONE)))
    with pytest.raises(RefusedError, match="is done, so it cannot be resumed"):
        closed.require_applicable()


# the way back


def test_the_way_back_leads_to_the_mode_that_all_running_workers_came_from(plan: Any) -> None:
    first, *others = plan.workers
    for mode in ("disabled", "stopped"):
        assert former_mode(replace(plan, workers=(replace(first, mode=mode), *others))) is Mode.DISABLED
    with pytest.raises(RefusedError, match="disabled and preparing"):
        former_mode(replace(plan, workers=(replace(first, mode="preparing"), *others)))


def test_it_is_told_whose_file_becomes_what_it_was(plan: Any) -> None:
    first, second, third = plan.workers
    back = replace(
        plan, workers=(replace(first, config_after=first.config_before), replace(second, config_after="other"), third)
    )
    assert restores_files(back, plan) == {W1: True, W2: False, W3: False}


# predictions beside outcomes


@pytest.mark.parametrize(("led", "worst"), [(True, False), (False, True)])
def test_the_prediction_is_the_plans_for_a_leader_or_for_another(plan: Any, led: bool, worst: bool) -> None:
    step = Step(W2, StepStatus.PASSED, NOW, tasks=("a/0",), led=led, task_downtime_seconds=7.04)
    outcome = WorkerOutcome.of(step, plan)
    (prediction,) = [p for p in plan.task_downtime if p.worker_id == W2]
    assert prediction.best_seconds != prediction.worst_seconds
    assert outcome.predicted_seconds == (prediction.worst_seconds if worst else prediction.best_seconds)
    assert outcome.task_downtime_seconds == 7.0


def test_no_tasks_were_predicted_to_stand_still_where_there_were_none(plan: Any) -> None:
    assert WorkerOutcome.of(Step(W2, StepStatus.PASSED, NOW), plan).predicted_seconds == 0.0


def test_a_worker_that_only_has_another_file_now_runs_in_no_mode(plan: Any) -> None:
    first, *others = plan.workers
    stopped = replace(plan, workers=(replace(first, kind=ChangeKind.FILE_ONLY, mode="stopped"), *others))
    step = Step(W1, StepStatus.PASSED, NOW, mode="preparing")
    assert WorkerOutcome.of(step, stopped).mode == "stopped"
    assert WorkerOutcome.of(step, plan).mode == "preparing"
