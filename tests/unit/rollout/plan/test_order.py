"""Which worker goes next, and how long its tasks are unassigned."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.rollout.gate.state import DelayClock
from airflow_eos_provider.rollout.plan.order import TaskDowntime, about, leader_that_ends_delay, next_worker, predict
from tests.unit.rollout.conftest import W1, W2, W3

ALL = (W1, W2, W3)


@pytest.mark.parametrize(
    ("change", "pending", "expected"),
    [
        (lambda c: c, ALL, W1),  # the leader
        (lambda c: setattr(c, "leader", W3), ALL, W3),  # another leader
        (lambda c: c.unhealthy(W3), ALL, W3),  # one that is not ready goes before the leader
        (lambda c: c.kill(W2), ALL, W2),  # so does one that does not run
        (lambda c: c, (W2, W3), W3),  # the leader is through: the fewest tasks
        (lambda c: c.place(("sink", 0), W1), (W3, W2), W2),  # equal ones by their names
        (lambda c: c.assign(W2, leader="x"), ALL, W3),  # no leader is known: the fewest tasks
        (lambda c: c, (), None),  # nobody is pending
    ],
)
def test_who_goes_next(cluster: Any, change: Any, pending: tuple[str, ...], expected: str | None) -> None:
    change(cluster)
    assert next_worker(pending, cluster.observe()) == expected


def test_the_leaders_tasks_stand_only_for_its_restart(cluster: Any) -> None:
    prediction = predict(W1, cluster.observe())
    assert (prediction.tasks, prediction.best_seconds, prediction.worst_seconds) == (2, 15.0, 15.0)
    assert str(prediction) == "about 15 s: it leads the group, so no rebalance delay follows"


def test_anothers_tasks_stand_for_two_restarts_where_the_leader_is_restarted_to_end_the_delay(cluster: Any) -> None:
    prediction = predict(W2, cluster.observe())
    assert (prediction.tasks, prediction.best_seconds, prediction.worst_seconds) == (2, 15.0, 30.0)
    assert str(prediction) == (
        "about 15 s, at worst 30 s: no delay if it leads when its turn comes, "
        "otherwise the leader is restarted once more to end the rebalance delay of 300 s"
    )


def test_bounds_that_read_alike_are_said_once() -> None:
    assert [about(15.0, worst) for worst in (15.0, 15.4, 15.6)] == ["about 15 s"] * 2 + ["about 15 s, at worst 16 s"]
    assert str(TaskDowntime(W1, 1, 15.0, 15.4, "it leads")) == "about 15 s: it leads"


DELAY = "scheduled.rebalance.max.delay.ms"


def test_the_delay_is_the_leaders_setting(cluster: Any) -> None:
    cluster.says(DELAY, "3000", W1).says(DELAY, "60000", W2)
    assert predict(W2, cluster.observe()).worst_seconds == 18.0
    assert "otherwise the rebalance delay of 3 s" in str(predict(W2, cluster.observe()))


@pytest.mark.parametrize("leader_is", ["unknown", "not described"])
def test_when_the_leaders_setting_is_not_known_the_longest_counts(cluster: Any, leader_is: str) -> None:
    for worker_id, milliseconds in ((W1, "3000"), (W2, "29000"), (W3, "5000")):
        cluster.says(DELAY, milliseconds, worker_id)
    if leader_is == "unknown":
        cluster.assign(W2, leader="connect-w2:8083-1")
    else:
        cluster.join("w9:8083").leader = "w9:8083"
    assert predict(W2, cluster.observe()).worst_seconds == 44.0


def test_under_the_eager_protocol_every_restart_costs_the_same(cluster: Any) -> None:
    cluster.protocol = "default"
    assert predict(W2, cluster.observe()).worst_seconds == 15.0
    assert "every rebalance stops all tasks" in str(predict(W2, cluster.observe()))


def test_with_a_lone_worker_everything_stands(cluster: Any) -> None:
    prediction = predict(W1, cluster.stop(W2).stop(W3).observe())
    assert (prediction.tasks, prediction.best_seconds) == (5, prediction.worst_seconds)
    assert prediction.reason.startswith("no other worker runs, so no connector of the group runs")
    assert "it leads the group" in predict(W1, cluster.start(W2, at=1.0).observe()).reason


def test_a_stopped_workers_tasks_do_not_stand(cluster: Any) -> None:
    prediction = predict(W2, cluster.stop(W2).observe())
    assert (prediction.tasks, prediction.worst_seconds) == (0, 0.0)
    assert "only its configuration changes" in prediction.reason


# ending a delay


@pytest.mark.parametrize(
    ("case", "done", "later", "leader"),
    [
        (lambda c: c.assign(W2, delay_ms=293_987), {W1}, 0.0, W1),
        (lambda c: c.assign(W2, delay_ms=293_987), {W1}, 280.0, None),  # it is nearly over
        (lambda c: c, {W1}, 0.0, None),  # no delay runs
        (lambda c: c.assign(W2, delay_ms=30_000), {W1}, 0.0, None),  # it is as short as two restarts
        (lambda c: c.assign(W2, delay_ms=293_987), {W2, W3}, 0.0, None),  # the leader's own turn is still to come
        (lambda c: c.assign(W2, delay_ms=293_987).rebalancing(), {W1}, 0.0, None),
        (lambda c: c.assign(W2, delay_ms=293_987, leader="x"), {W1}, 0.0, None),  # the leader is not known
        (lambda c: setattr(c, "group_problem", "no broker") or c, {W1}, 0.0, None),
    ],
)
def test_a_leader_that_is_through_is_restarted_to_end_a_long_delay(
    cluster: Any, case: Any, done: set[str], later: float, leader: str | None
) -> None:
    observation = case(cluster).observe()
    remaining = DelayClock().after(observation).remaining(observation.at + later)
    assert leader_that_ends_delay(observation, done, remaining) == leader


def test_a_plan_lists_the_workers_in_the_order_in_which_they_will_go(cluster: Any) -> None:
    cluster.leader = W2
    cluster.unhealthy(W3)

    assert [prediction.worker_id for prediction in cluster.plan().task_downtime] == [W3, W2, W1]
