"""The rebalance delay, which members report as of the last rebalance, counted from when it was first seen."""

from __future__ import annotations

from typing import Any

from airflow_eos_provider.rollout.gate.gate import poll
from airflow_eos_provider.rollout.gate.state import DelayClock, GateState

W2 = "w2:8083"
NOW = 1_000_000.0


def test_without_a_delay_nothing_remains(cluster: Any) -> None:
    clock = DelayClock()
    assert clock.after(cluster.observe()) is clock
    assert clock.remaining(NOW) == 0.0


def test_a_figure_that_stays_the_same_is_counted_from_its_first_sight(cluster: Any) -> None:
    cluster.assign(W2, delay_ms=300_000)
    clock = DelayClock().after(cluster.observe(at=NOW))
    assert clock.after(cluster.observe(at=NOW + 100)) is clock
    assert clock.remaining(NOW + 100) == 200.0
    assert clock.remaining(NOW + 301) == 0.0


def test_another_figure_is_counted_anew(cluster: Any) -> None:
    clock = DelayClock().after(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    clock = clock.after(cluster.assign(W2, delay_ms=250_000).observe(at=NOW + 60))
    assert clock.remaining(NOW + 60) == 250.0


def test_a_delay_that_is_gone_is_over_at_once(cluster: Any) -> None:
    clock = DelayClock().after(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    clock = clock.after(cluster.assign(W2, delay_ms=0).observe(at=NOW + 10))
    assert clock.remaining(NOW + 10) == 0.0


def test_during_a_rebalance_nothing_is_reported_and_nothing_forgotten(cluster: Any) -> None:
    clock = DelayClock().after(cluster.assign(W2, delay_ms=300_000).observe(at=NOW))
    clock = clock.after(cluster.rebalancing().observe(at=NOW + 10))
    assert clock.remaining(NOW + 10) == 290.0


# what the gate makes of it


def waited_for(after_delay_seconds: float | None = 20.0) -> GateState:
    """A gate with a deadline after 100 seconds, which a delay moves at most as far again."""
    return GateState(
        rollout_id="r1",
        worker_id=W2,
        restart_id=1.0,
        polls=3,
        hold_seconds=5.0,
        deadline=NOW + 100,
        latest_deadline=NOW + 200,
        after_delay_seconds=after_delay_seconds,
    )


def test_a_delay_that_is_first_seen_late_moves_the_gates_deadline(gate: Any) -> None:
    state, _ = poll(waited_for(), gate.expected(), gate.cluster.observe(at=NOW))
    gate.cluster.assign(W2, delay_ms=90_000)
    state, answer = poll(state, gate.expected(), gate.cluster.observe(at=NOW + 60))
    assert state.deadline == NOW + 60 + 90 + 20
    assert state.delay.remaining(NOW + 70) == 80.0
    assert "the rebalance delay ends by" in answer.status_line(state)


def test_no_delay_moves_the_deadline_further_than_to_the_latest(gate: Any) -> None:
    state = waited_for()
    for number in range(20):  # a group that flaps
        gate.cluster.assign(W2, delay_ms=90_000 + number)
        state, _ = poll(state, gate.expected(), gate.cluster.observe(at=NOW + 9 * number))
    assert state.deadline == NOW + 200


def test_a_deadline_that_the_user_has_set_stays(gate: Any) -> None:
    gate.cluster.assign(W2, delay_ms=300_000)
    state, _ = poll(waited_for(after_delay_seconds=None), gate.expected(), gate.cluster.observe(at=NOW))
    assert state.deadline == NOW + 100
