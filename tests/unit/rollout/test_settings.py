"""How long the gate must hold and when it is given up, from what the workers' files say."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.connect.properties import read
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.roll_settings import RolloutSettings, rebalance_delay_ms


def test_the_hold_is_longer_than_a_heartbeat_and_a_rebalance() -> None:
    assert RolloutSettings().hold({}) == 5.0
    assert RolloutSettings().hold({"heartbeat.interval.ms": "10000"}) == 12.0


def test_the_gate_waits_for_the_delay_the_session_and_the_start() -> None:
    """A worker that missed its chance gets its tasks back only when the rebalance delay ends."""
    assert RolloutSettings().gate_timeout({}, 300_000) == 430.0
    assert RolloutSettings().gate_timeout({"session.timeout.ms": "30000"}, 3_000) == 153.0


def test_given_limits_win() -> None:
    settings = RolloutSettings(hold_seconds=1.0, gate_timeout_seconds=7.0)
    assert (settings.hold({"heartbeat.interval.ms": "9000"}), settings.gate_timeout({}, 300_000)) == (1.0, 7.0)


def test_the_shortest_limits_are_allowed() -> None:
    settings = RolloutSettings(polls=1, poll_interval_seconds=0.0, hold_seconds=0.0, gate_timeout_seconds=0.0)
    assert (settings.hold({}), settings.gate_timeout({}, 300_000)) == (0.0, 0.0)


def test_the_rebalance_delay_is_connects_default_unless_the_file_says_otherwise() -> None:
    assert rebalance_delay_ms({}) == 300_000
    assert rebalance_delay_ms(read(b"scheduled.rebalance.max.delay.ms = 3000 \n")) == 3_000
    assert rebalance_delay_ms({"scheduled.rebalance.max.delay.ms": "${file:x}"}) == 300_000


def test_the_lease_outlives_a_stop_and_a_start() -> None:
    settings = RolloutSettings()
    assert settings.lease_seconds > settings.stop_grace_seconds + settings.startup_seconds


@pytest.mark.parametrize(
    "limits",
    [
        {"polls": 0},
        {"polls": -1},
        {"poll_interval_seconds": -1.0},
        {"hold_seconds": -0.1},
        {"gate_timeout_seconds": float("nan")},
        {"startup_seconds": float("inf")},
        {"stop_grace_seconds": -5.0},
        {"lease_seconds": 0.0},
        {"lease_seconds": float("nan")},
        {"lease_seconds": float("inf")},
    ],
)
def test_a_limit_that_would_let_everything_pass_or_wait_for_ever_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(limits))):
        RolloutSettings(**limits)
