"""The rebalance delay, which members tell as a photograph, counted from when it was first seen."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.rollout.delay import DelayClock
from airflow_eos_provider.rollout.gate import GateWatch

W2 = "w2:8083"
NOW = 1_000_000.0


@pytest.fixture
def clock() -> DelayClock:
    return DelayClock()


def test_without_a_delay_nothing_remains(cluster: Any, clock: DelayClock) -> None:
    assert not clock.note(cluster.observe())
    assert clock.remaining(NOW) == 0.0


def test_a_figure_that_stays_the_same_is_counted_from_its_first_sight(cluster: Any, clock: DelayClock) -> None:
    cluster.assign(W2, delay_ms=300_000)
    assert clock.note(cluster.observe(at=NOW))
    assert not clock.note(cluster.observe(at=NOW + 100))
    assert clock.remaining(NOW + 100) == 200.0
    assert clock.remaining(NOW + 301) == 0.0


def test_another_figure_is_another_photograph(cluster: Any, clock: DelayClock) -> None:
    clock.note(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    assert clock.note(cluster.assign(W2, delay_ms=250_000).observe(at=NOW + 60))
    assert clock.remaining(NOW + 60) == 250.0


def test_a_delay_that_is_gone_is_over_at_once(cluster: Any, clock: DelayClock) -> None:
    clock.note(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    clock.note(cluster.assign(W2, delay_ms=0).observe(at=NOW + 10))
    assert clock.remaining(NOW + 10) == 0.0


def test_in_mid_rebalance_nothing_is_told_and_nothing_forgotten(cluster: Any, clock: DelayClock) -> None:
    clock.note(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    clock.note(cluster.rebalancing().observe(at=NOW + 10))
    assert clock.remaining(NOW + 10) == 290.0


# what the gate makes of it


def test_a_delay_that_is_first_seen_late_moves_the_gates_deadline(gate: Any) -> None:
    watch = GateWatch(polls=3, hold_seconds=5.0, deadline=NOW + 100, after_delay_seconds=20.0)
    watch.poll(gate.expected(), gate.cluster.observe(at=NOW))
    gate.cluster.assign(W2, delay_ms=90_000)
    watch.poll(gate.expected(), gate.cluster.observe(at=NOW + 60))
    assert watch.deadline == NOW + 60 + 90 + 20
    assert watch.delay_remaining(NOW + 70) == 80.0
    assert "the rebalance delay ends by" in watch.status_line()


def test_no_delay_moves_the_deadline_further_than_to_twice_its_distance(gate: Any) -> None:
    watch = GateWatch(polls=3, hold_seconds=5.0, deadline=NOW + 100, after_delay_seconds=20.0)
    for number in range(20):  # a group that flaps
        gate.cluster.assign(W2, delay_ms=90_000 + number)
        watch.poll(gate.expected(), gate.cluster.observe(at=NOW + 9 * number))
    assert watch.deadline == NOW + 200


def test_a_deadline_that_the_user_has_set_stays(gate: Any) -> None:
    watch = GateWatch(polls=3, hold_seconds=5.0, deadline=NOW + 100)
    watch.poll(gate.expected(), gate.cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    assert watch.deadline == NOW + 100
