"""Which of the workers that do not run a roll has left down, by what the journal says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider import cluster_status
from airflow_eos_provider.cluster_status import all_findings
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import (
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.rollout.drift.drift import DriftKind, Expected, find_drift
from airflow_eos_provider.rollout.history import whole_history
from airflow_eos_provider.rollout.plan.earlier_rolls import left_down
from airflow_eos_provider.rollout.plan.plan import make_plan

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
NOW = 1_000_000.0
KAFKA = KafkaSettings.of("127.0.0.1:1")


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


def test_a_rollout_that_is_done_has_left_nothing_down(cluster: Any) -> None:
    assert left_down(content(StepStatus.INTENT, RolloutState.DONE), cluster.stop(W2).observe()) == {}


@pytest.mark.parametrize(
    ("state", "kind", "mode", "status", "left_by"),
    [
        (RolloutState.ABORTED, "START", "stopped", None, "r1"),  # killed before its first act, and then aborted
        (RolloutState.RUNNING, "START", "stopped", None, "r1"),
        (RolloutState.PAUSED, "START", "stopped", StepStatus.INTENT, "r2"),
        (RolloutState.DONE, "FILE_ONLY", "stopped", StepStatus.PASSED, "r1"),  # only its file was changed
        (RolloutState.PAUSED, "FILE_ONLY", "stopped", StepStatus.INTENT, "r1"),
        (RolloutState.DONE, "NONE", "stopped", None, "r1"),
        (RolloutState.DONE, "START", "stopped", StepStatus.PASSED, ""),
        (RolloutState.DONE, "NONE", "enabled", None, ""),  # it ran when that plan was made
        (RolloutState.ABORTED, "ROLL", "disabled", None, ""),
        (RolloutState.FAILED, "ROLL", "disabled", StepStatus.RESTORED, ""),
    ],
)
def test_a_later_rollout_hides_it_only_if_the_worker_ran_since(
    cluster: Any, state: RolloutState, kind: str, mode: str, status: StepStatus | None, left_by: str
) -> None:
    first = content(StepStatus.FAILED, RolloutState.SUPERSEDED, {"workers": [_planned("ROLL", "disabled")]})
    later = RolloutRecord("r2", {"workers": [_planned(kind, mode)]}, {}, state, NOW + 60)
    steps = {**first.steps, "r2": {W2: Step(W2, status, NOW + 60)} if status else {}}
    journal = replace(first, rollouts={**first.rollouts, "r2": later}, steps=steps)
    assert left_down(journal, cluster.stop(W2).observe()) == ({W2: left_by} if left_by else {})


def _planned(kind: str, mode: str) -> dict[str, str]:
    return {"worker_id": W2, "kind": kind, "mode": mode}


def test_drift_does_not_take_it_for_stopped_on_purpose(cluster: Any) -> None:
    """Neither after the roll that left it down, nor after the plan that was to start it."""
    observation = cluster.stop(W2).observe()
    digests = {worker.worker_id: worker.facts.digest for worker in observation.workers}
    for down in ({}, {W2: "r0"}):
        plan = make_plan(observation, cluster.plan().target, digests, left_down=down)
        journal = content(StepStatus.INTENT, RolloutState.PAUSED, plan.to_dict())
        (rollout,) = whole_history(replace(journal, lease=None))
        found = find_drift(observation, Expected.after(rollout)).findings
        missing = [finding.subject for finding in found if finding.kind is DriftKind.MISSING_WORKER]
        assert missing == ([W2] if down else [])  # without it, the plan says that its owner has stopped it


@pytest.mark.parametrize(
    ("state", "then"), [(RolloutState.FAILED, "'eos rollout resume r1'"), (RolloutState.ABORTED, "'eos plan'")]
)
def test_status_names_it_with_the_command_that_starts_it(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, state: RolloutState, then: str
) -> None:
    monkeypatch.setattr(cluster_status, "read_journal", lambda *_: content(StepStatus.FAILED, state))
    found = all_findings(cluster.stop(W2).observe(), KAFKA)
    (finding,) = [each for each in found if "r1" in each.found]
    assert finding.found == f"{W2} is stopped by rollout r1, and not by its owner"
    assert then in finding.remedy


def test_status_says_when_the_journal_that_would_tell_cannot_be_read(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> JournalContent:
        raise ConfigurationError("not authorized")

    monkeypatch.setattr(cluster_status, "read_journal", refuse)
    for seen in (cluster.observe(), cluster.stop(W2).observe()):
        assert any("not authorized" in each.found for each in all_findings(seen, KAFKA))
