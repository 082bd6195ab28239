"""Which of the workers that do not run a roll has left down, by what the journal says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import (
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.rollout.act.left_down import left_down
from airflow_eos_provider.rollout.drift.drift import DriftKind, Expected, find_drift
from airflow_eos_provider.rollout.history import history
from airflow_eos_provider.rollout.plan.plan import make_plan

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
NOW = 1_000_000.0


def content(status: StepStatus, state: RolloutState = RolloutState.RUNNING, plan: Any = None) -> JournalContent:
    record = RolloutRecord("r1", plan or {}, {"connectors": {}, "tasks": {}}, state, NOW)
    return JournalContent(rollouts={"r1": record}, steps={"r1": {W2: Step(W2, status, NOW)}})


@pytest.mark.parametrize("status", [StepStatus.INTENT, StepStatus.RESTARTED, StepStatus.FAILED])
def test_a_worker_between_its_announcement_and_its_gate_was_left_down(cluster: Any, status: StepStatus) -> None:
    assert left_down(content(status), cluster.stop(W2).observe()) == {W2: "r1"}


def test_one_that_runs_was_not(cluster: Any) -> None:
    assert left_down(content(StepStatus.INTENT), cluster.observe()) == {}


def test_one_that_was_through_or_was_never_touched_was_stopped_by_its_owner(cluster: Any) -> None:
    observation = cluster.stop(W2).stop(W3).observe()
    assert left_down(content(StepStatus.PASSED), observation) == {}
    assert left_down(JournalContent(), observation) == {}


@pytest.mark.parametrize("state", [RolloutState.DONE, RolloutState.SUPERSEDED])
def test_a_rollout_that_is_over_has_left_nothing_down(cluster: Any, state: RolloutState) -> None:
    assert left_down(content(StepStatus.INTENT, state), cluster.stop(W2).observe()) == {}


def test_drift_does_not_take_it_for_stopped_on_purpose(cluster: Any) -> None:
    """Neither after the roll that left it down, nor after the plan that was to start it."""
    observation = cluster.stop(W2).observe()
    digests = {worker.worker_id: worker.facts.digest for worker in observation.workers}
    for down in ({}, {W2: "r0"}):
        plan = make_plan(observation, cluster.plan().target, digests, left_down=down)
        journal = content(StepStatus.INTENT, RolloutState.PAUSED, plan.to_dict())
        (rollout,) = history(replace(journal, lease=None))
        found = find_drift(observation, Expected.after(rollout)).findings
        missing = [finding.subject for finding in found if finding.kind is DriftKind.MISSING_WORKER]
        assert missing == ([W2] if down else [])  # without it, the plan says that its owner has stopped it
