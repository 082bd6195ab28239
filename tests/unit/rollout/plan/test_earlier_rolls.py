"""What earlier rolls have left: workers that are down, and a property that one has set for the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider import cluster_status
from airflow_eos_provider.cluster_status import all_findings
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
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
from airflow_eos_provider.rollout.plan.earlier_rolls import left_down, temporary_isolation
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind, Plan, make_plan
from airflow_eos_provider.rollout.plan.worker_edits import Former, properties_to_set
from airflow_eos_provider.rollout.roll_history import whole_history
from tests.unit.rollout.conftest import DISABLED, ENABLED, NOW, PREPARING, W1, W2, W3

KAFKA = KafkaSettings.of("127.0.0.1:1")


def content(status: StepStatus, state: RolloutState = RolloutState.RUNNING, plan: Any = None) -> JournalContent:
    record = RolloutRecord("r1", plan or {}, {"connectors": {}, "tasks": {}}, state, NOW)
    return JournalContent(rollouts={"r1": record}, steps={"r1": {W2: Step(W2, status, NOW)}})


@pytest.mark.parametrize(
    ("status", "state", "is_left_down"),
    [
        (StepStatus.INTENT, RolloutState.RUNNING, True),
        (StepStatus.RESTARTED, RolloutState.RUNNING, True),
        (StepStatus.FAILED, RolloutState.RUNNING, True),
        (StepStatus.PASSED, RolloutState.RUNNING, False),
        (StepStatus.INTENT, RolloutState.DONE, False),
    ],
)
def test_a_worker_that_stopped_between_its_announcement_and_its_gate_was_left_down(
    cluster: Any, status: StepStatus, state: RolloutState, is_left_down: bool
) -> None:
    assert left_down(content(status, state), cluster.observe()) == {}  # it runs
    observation = cluster.stop(W2).stop(W3).observe()
    assert left_down(content(status, state), observation) == ({W2: "r1"} if is_left_down else {})


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


# A property that a roll has set for the way is put back as it was, and only one that a roll has set


ISOLATION = "isolation.level"


def journal_of(*rolls: tuple[Plan, StepStatus]) -> JournalContent:
    """A journal with these rolls, oldest first, each with one step for every worker."""
    records = {
        f"r{number}": RolloutRecord(f"r{number}", plan.to_dict(), {}, RolloutState.DONE, started_at=float(number))
        for number, (plan, _) in enumerate(rolls)
    }
    steps = {
        f"r{number}": {w: Step(w, status, at=float(number)) for w in (W1, W2, W3)}
        for number, (_, status) in enumerate(rolls)
    }
    return JournalContent(rollouts=records, steps=steps)


def prepared(cluster_in: Any, isolation: str | None = None) -> tuple[Any, Plan]:
    """A group that a roll has brought from disabled to preparing, and that roll's plan.

    :param isolation: what its files said before of isolation.level.
    """
    return cluster_in(PREPARING), cluster_in(DISABLED).says(ISOLATION, isolation).plan(PREPARING)


@pytest.mark.parametrize(
    ("isolation", "change", "found"),
    [
        (None, lambda c: c, dict.fromkeys((W1, W2, W3), Former(None))),
        ("read_uncommitted", lambda c: c, dict.fromkeys((W1, W2, W3), Former("read_uncommitted"))),
        ("read_committed", lambda c: c, {}),  # the owner's
        (None, lambda c: c.facts(W2, digest="edited"), {W1: Former(None), W3: Former(None)}),  # edited since
    ],
)
def test_what_the_way_up_has_set_is_known_with_what_stood_there(
    cluster_in: Any, isolation: str | None, change: Any, found: dict[str, Former]
) -> None:
    cluster, plan = prepared(cluster_in, isolation)
    observation = change(cluster).observe()
    assert temporary_isolation(journal_of((plan, StepStatus.PASSED)), observation) == found
    assert temporary_isolation(JournalContent(), observation) == {}, "without a journal nothing is put back"


@pytest.mark.parametrize("status", [StepStatus.RESTORED, StepStatus.INTENT, StepStatus.FAILED])
def test_a_roll_that_has_not_changed_the_file_for_good_is_passed_over(cluster_in: Any, status: StepStatus) -> None:
    cluster, plan = prepared(cluster_in)
    later = cluster.plan(ENABLED)
    assert W1 in temporary_isolation(journal_of((plan, StepStatus.PASSED), (later, status)), cluster.observe())


def test_the_files_are_followed_back_over_several_rolls(cluster_in: Any) -> None:
    """Down to disabled, where the property has to stay, and up to preparing again."""
    down = cluster_in(ENABLED).plan(DISABLED)
    up = cluster_in(DISABLED).says(ISOLATION, "read_committed").plan(PREPARING)
    assert [change.sets_isolation for change in (*down.workers, *up.workers)] == [True] * 3 + [False] * 3
    journal = journal_of((down, StepStatus.PASSED), (up, StepStatus.PASSED))
    assert temporary_isolation(journal, cluster_in(PREPARING).observe())[W1] == Former(None)


def test_a_journal_of_another_schema_proves_nothing(cluster_in: Any) -> None:
    cluster, plan = prepared(cluster_in)
    journal = journal_of((plan, StepStatus.PASSED))
    old = {r: replace(record, plan={**record.plan, "schema": 1}) for r, record in journal.rollouts.items()}
    assert temporary_isolation(replace(journal, rollouts=old), cluster.observe()) == {}


# what a plan makes of it


def test_the_edit_that_enables_a_worker_puts_it_back_and_says_so(cluster_in: Any) -> None:
    observation = cluster_in(PREPARING).observe()
    temporary = {W1: Former(None), W2: Former("read_uncommitted")}
    plan = make_plan(observation, ENABLED, {w: f"{w} after" for w in (W1, W2, W3)}, temporary)
    assert plan.change(W1).edits(ENABLED) == {MODE_PROPERTY: "enabled", ISOLATION: None}
    assert plan.change(W2).edits(ENABLED) == {MODE_PROPERTY: "enabled", ISOLATION: "read_uncommitted"}
    assert plan.change(W3).edits(ENABLED) == {MODE_PROPERTY: "enabled"}
    assert [line for line in plan.diff() if "isolation" in line] == [
        "-isolation.level=read_committed",
        "-isolation.level=read_committed",
        "+isolation.level=read_uncommitted",
    ]
    assert plan.puts_back
    assert "restores the former value of" in plan.markdown()
    assert Plan.from_dict(plan.to_dict()) == plan


@pytest.mark.parametrize("target", [PREPARING, DISABLED])
def test_below_enabled_it_stays(cluster_in: Any, target: Mode) -> None:
    facts = cluster_in(PREPARING).workers[W1].facts
    assert ISOLATION not in properties_to_set(facts, target, Former(None))


def test_it_is_no_reason_to_touch_a_worker_that_is_enabled_already(cluster_in: Any) -> None:
    cluster = cluster_in(ENABLED)
    facts = replace(cluster.workers[W1].facts, properties={ISOLATION: "read_committed", MODE_PROPERTY: "enabled"})
    assert properties_to_set(facts, ENABLED, Former(None)) == {}


def test_a_plan_that_puts_nothing_back_does_not_say_so(cluster_in: Any) -> None:
    plan = cluster_in(PREPARING).plan(ENABLED)
    assert plan.change(W1).kind is ChangeKind.ROLL
    assert not plan.puts_back
    assert "put back" not in plan.markdown()
