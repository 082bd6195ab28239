"""Which worker goes next, and how long its tasks are unassigned."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.rollout.gate.state import DelayClock
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.plan.order import TaskDowntime, about, leader_that_ends_delay, next_worker, predict

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
ALL = (W1, W2, W3)


@pytest.mark.parametrize(
    ("change", "pending", "expected"),
    [
        pytest.param(lambda c: c, ALL, W1, id="the leader"),
        pytest.param(lambda c: setattr(c, "leader", W3), ALL, W3, id="another leader"),
        pytest.param(lambda c: c.unhealthy(W3), ALL, W3, id="one that is not ready goes before the leader"),
        pytest.param(lambda c: c.kill(W2), ALL, W2, id="so does one that does not run"),
        pytest.param(lambda c: c, (W2, W3), W3, id="the leader is through: the fewest tasks"),
        pytest.param(lambda c: c.place(("sink", 0), W1), (W3, W2), W2, id="equal ones by their names"),
        pytest.param(lambda c: c.assign(W2, leader="x"), ALL, W3, id="no leader is known: the fewest tasks"),
        pytest.param(lambda c: c, (), None, id="nobody is pending"),
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


def delay(cluster: Any, worker_id: str, milliseconds: str) -> None:
    properties = {
        **cluster.workers[worker_id].facts.properties,
        "scheduled.rebalance.max.delay.ms": milliseconds,
    }
    cluster.facts(worker_id, properties=properties)


def test_the_delay_is_the_leaders_setting(cluster: Any) -> None:
    delay(cluster, W1, "3000")
    delay(cluster, W2, "60000")
    assert predict(W2, cluster.observe()).worst_seconds == 18.0
    assert "otherwise the rebalance delay of 3 s" in str(predict(W2, cluster.observe()))


@pytest.mark.parametrize("leader_is", ["unknown", "not described"])
def test_when_the_leaders_setting_is_not_known_the_longest_counts(cluster: Any, leader_is: str) -> None:
    for worker_id, milliseconds in ((W1, "3000"), (W2, "29000"), (W3, "5000")):
        delay(cluster, worker_id, milliseconds)
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


def test_a_leader_that_is_through_is_restarted_to_end_a_long_delay(cluster: Any) -> None:
    observation = cluster.assign(W2, delay_ms=293_987).observe()
    assert leader_that_ends_delay(observation, {W1}, remaining(observation)) == W1


def test_a_delay_that_is_nearly_over_is_waited_out(cluster: Any) -> None:
    observation = cluster.assign(W2, delay_ms=293_987).observe()
    assert leader_that_ends_delay(observation, {W1}, remaining(observation, later=280.0)) is None


@pytest.mark.parametrize(
    ("case", "done"),
    [
        pytest.param(lambda c: c, {W1}, id="no delay runs"),
        pytest.param(lambda c: c.assign(W2, delay_ms=30_000), {W1}, id="the delay is as short as two restarts"),
        pytest.param(lambda c: c.assign(W2, delay_ms=293_987), {W2, W3}, id="the leader's own turn is still to come"),
        pytest.param(lambda c: c.assign(W2, delay_ms=293_987).rebalancing(), {W1}, id="a rebalance runs"),
        pytest.param(lambda c: c.assign(W2, delay_ms=293_987, leader="x"), {W1}, id="the leader is not known"),
        pytest.param(lambda c: setattr(c, "group_problem", "no broker") or c, {W1}, id="the group cannot be read"),
    ],
)
def test_no_leader_is_restarted_once_more_when(cluster: Any, case: Any, done: set[str]) -> None:
    observation = case(cluster).observe()
    assert leader_that_ends_delay(observation, done, remaining(observation)) is None


def remaining(observation: Observation, later: float = 0.0) -> float:
    """What is left of the delay, so many seconds after it was first seen."""
    clock = DelayClock().after(observation)
    return clock.remaining(observation.at + later)


def test_a_plan_lists_the_workers_in_the_order_in_which_they_will_go(cluster: Any) -> None:
    cluster.leader = W2
    cluster.unhealthy(W3)

    assert [prediction.worker_id for prediction in cluster.plan().task_downtime] == [W3, W2, W1]
