"""The few lines that are approved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.rollout.plan.plan import Plan
from airflow_eos_provider.rollout.plan.summary import CHANGED_LINES, summary


def shown(plan: Plan) -> str:
    return "\n".join(summary(plan))


def test_an_upgrade_says_how_many_workers_how_long_and_which_lines(cluster: Any) -> None:
    text = shown(cluster.plan())
    assert "3 of 3 workers, one at a time" in text
    assert "its tasks are unassigned for about" in text
    assert "+exactly.once.source.support=preparing" in text
    assert "Exactly-once ends" not in text
    assert "several workers" not in text


@pytest.mark.parametrize(("worst", "said"), [(15.3, "for about 15 s."), (45.0, "for about 15 s, at worst 45 s.")])
def test_a_predicted_downtime_whose_bounds_read_alike_is_said_once(cluster: Any, worst: float, said: str) -> None:
    plan = cluster.plan()
    predicted = tuple(replace(each, best_seconds=15.0, worst_seconds=worst) for each in plan.task_downtime)
    assert f"its tasks are unassigned {said}" in shown(replace(plan, task_downtime=predicted))


def test_leaving_enabled_says_that_exactly_once_is_given_up(cluster_in: Any) -> None:
    assert "**Exactly-once ends**" in shown(cluster_in(Mode.ENABLED).plan(Mode.DISABLED))
    assert "Exactly-once ends" not in shown(cluster_in(Mode.PREPARING).plan(Mode.DISABLED))


def test_a_shared_file_is_named_as_such(cluster: Any) -> None:
    plan = cluster.plan()
    shared = tuple(replace(change, config=plan.workers[0].config) for change in plan.workers)
    assert "One configuration serves several workers" in shown(replace(plan, workers=shared))


def test_more_changed_lines_than_there_is_room_for_are_counted(cluster: Any) -> None:
    plan = cluster.plan()
    differing = tuple(
        replace(change, worker_id=f"w{n}:8083", config=f"/etc/w{n}", declared=f"mode {n}")
        for n, change in enumerate(plan.workers * 3)
    )
    lines = summary(replace(plan, workers=differing, task_downtime=()))
    assert "more" in lines[-2]
    assert len(lines) <= CHANGED_LINES + 5


def test_what_starts_the_workers_is_named_and_is_data(cluster: Any) -> None:
    plan = cluster.plan()
    started = tuple(replace(change, start=("/opt/`evil`/start.sh", "-x")) for change in plan.workers)
    text = shown(replace(plan, workers=started))
    assert "The workers are started by" in text
    assert "/start.sh" in text
