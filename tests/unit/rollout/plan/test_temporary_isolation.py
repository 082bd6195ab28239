"""A property that a roll has set for the way is put back as it was, and only one that a roll has set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import (
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.rollout.plan.earlier_rolls import temporary_isolation
from airflow_eos_provider.rollout.plan.plan import ChangeKind, Plan, make_plan
from airflow_eos_provider.rollout.plan.worker_edits import Former, properties_to_set

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
PREPARING, ENABLED, DISABLED = Mode.PREPARING, Mode.ENABLED, Mode.DISABLED
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
    before = cluster_in(DISABLED)
    if isolation is not None:
        for worker_id in (W1, W2, W3):
            facts = before.workers[worker_id].facts
            before.facts(worker_id, properties={**facts.properties, ISOLATION: isolation})
    return cluster_in(PREPARING), before.plan(PREPARING)


@pytest.mark.parametrize("isolation", [None, "read_uncommitted"])
def test_what_the_way_up_has_set_is_known_with_what_stood_there(cluster_in: Any, isolation: str | None) -> None:
    cluster, plan = prepared(cluster_in, isolation)
    found = temporary_isolation(journal_of((plan, StepStatus.PASSED)), cluster.observe())
    assert found == dict.fromkeys((W1, W2, W3), Former(isolation))


def test_what_the_owner_has_set_is_his(cluster_in: Any) -> None:
    cluster, plan = prepared(cluster_in, "read_committed")
    assert temporary_isolation(journal_of((plan, StepStatus.PASSED)), cluster.observe()) == {}


def test_a_file_that_was_edited_since_is_its_owners(cluster_in: Any) -> None:
    cluster, plan = prepared(cluster_in)
    cluster.facts(W2, digest="edited")
    assert sorted(temporary_isolation(journal_of((plan, StepStatus.PASSED)), cluster.observe())) == [W1, W3]


def test_without_a_journal_nothing_is_known_and_nothing_is_put_back(cluster_in: Any) -> None:
    cluster, _ = prepared(cluster_in)
    assert temporary_isolation(JournalContent(), cluster.observe()) == {}


@pytest.mark.parametrize("status", [StepStatus.RESTORED, StepStatus.INTENT, StepStatus.FAILED])
def test_a_roll_that_has_not_changed_the_file_for_good_is_passed_over(cluster_in: Any, status: StepStatus) -> None:
    cluster, plan = prepared(cluster_in)
    later = cluster.plan(ENABLED)
    assert W1 in temporary_isolation(journal_of((plan, StepStatus.PASSED), (later, status)), cluster.observe())


def test_the_files_are_followed_back_over_several_rolls(cluster_in: Any) -> None:
    """Down to disabled, where the property has to stay, and up to preparing again."""
    down = cluster_in(ENABLED).plan(DISABLED)
    at_the_bottom = cluster_in(DISABLED)
    for worker_id in (W1, W2, W3):
        facts = at_the_bottom.workers[worker_id].facts
        at_the_bottom.facts(worker_id, properties={**facts.properties, ISOLATION: "read_committed"})
    up = at_the_bottom.plan(PREPARING)
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
