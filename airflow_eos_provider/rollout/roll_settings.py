"""Timeouts and polling limits of a rollout; every number with its unit and its reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_eos_provider.connect.properties import whole_number
from airflow_eos_provider.errors import ConfigurationError

#: Connect's own defaults (DistributedConfig), for properties that a worker's file does not set.
DEFAULT_HEARTBEAT_INTERVAL_MS = 3_000
DEFAULT_SESSION_TIMEOUT_MS = 10_000
DEFAULT_REBALANCE_DELAY_MS = 300_000

#: A worker has so long to stop by itself: it first waits up to 60 seconds for REST requests that it has accepted
#: (``RestServer.GRACEFUL_SHUTDOWN_TIMEOUT_MS``) while its tasks go on, and only then up to
#: ``task.shutdown.graceful.timeout.ms`` (5 seconds) for the tasks to commit their offsets. One that is killed before
#: leaves records without offsets behind; below ``enabled`` these come twice.
STOP_GRACE_SECONDS = 90.0

#: What a restart may take beside the grace of its stop: a family to die of SIGKILL, a port to become free, a process to
#: get through its first seconds, and the helper that does all this (``hosts/process.py``: 30 and 10 seconds).
RESTART_MARGIN_SECONDS = 45.0

_DURATIONS = ("poll_interval_seconds", "hold_seconds", "gate_timeout_seconds", "startup_seconds", "stop_grace_seconds")


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """Limits of one rollout.

    :param polls: how many polls in a row every gate condition must hold.
    :param poll_interval_seconds: pause between two polls; the last one of a hold ends with the hold.
    :param hold_seconds: how long the conditions must hold at least. Unset: one heartbeat (a member learns of a
        rebalance by its heartbeat) and two seconds for the rebalance itself; Connect's ``/status`` was seen to say
        RUNNING three seconds before a rebalance took the tasks away.
    :param gate_timeout_seconds: when a gate that does not hold is given up. Unset: rebalance delay + session timeout
        + start-up, since a worker that missed its chance gets its tasks back only when the delay ends.
    :param startup_seconds: what a worker may need from its start until its group is whole again.
    :param stop_grace_seconds: how long a worker, with all of its processes, has to stop by itself before it is killed.
    :param lease_seconds: how long a silent controller keeps the group to itself; longer than a stop and a start.
    :param allow_downtime: roll even if no other worker can take over the tasks.
    """

    polls: int = 3
    poll_interval_seconds: float = 1.0
    hold_seconds: float | None = None
    gate_timeout_seconds: float | None = None
    startup_seconds: float = 120.0
    stop_grace_seconds: float = STOP_GRACE_SECONDS
    lease_seconds: float = 240.0
    allow_downtime: bool = False

    def __post_init__(self) -> None:
        """Refuse limits with which a gate would pass unseen or never be given up."""
        if self.polls < 1:
            raise ConfigurationError(f"polls is {self.polls}.", expected="1 or more")
        if not (math.isfinite(self.lease_seconds) and self.lease_seconds > 0):
            raise ConfigurationError(f"lease_seconds is {self.lease_seconds}.", expected="more than 0 seconds")
        for name in _DURATIONS:
            seconds = getattr(self, name)
            if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
                raise ConfigurationError(f"{name} is {seconds}.", expected="0 or more seconds")
        if self.lease_seconds < self.act_seconds:
            raise ConfigurationError(
                f"lease_seconds is {self.lease_seconds:g} and stop_grace_seconds {self.stop_grace_seconds:g}: "
                "the lease could end while a worker is being restarted.",
                expected=f"a lease of at least stop_grace_seconds + {RESTART_MARGIN_SECONDS:.0f}",
            )

    @property
    def act_seconds(self) -> float:
        """Within this time a worker's restart, a stop and a start, is over."""
        return self.stop_grace_seconds + RESTART_MARGIN_SECONDS

    def hold(self, worker_properties: Mapping[str, str]) -> float:
        """Seconds for which the gate of this worker must hold."""
        if self.hold_seconds is not None:
            return self.hold_seconds
        return _ms(worker_properties, "heartbeat.interval.ms", DEFAULT_HEARTBEAT_INTERVAL_MS) / 1000 + 2.0

    def gate_timeout(self, worker_properties: Mapping[str, str], rebalance_delay_ms: int) -> float:
        """Seconds after which the gate of this worker is given up."""
        after_delay = self.after_delay(worker_properties)
        if self.gate_timeout_seconds is not None or after_delay is None:
            return self.gate_timeout_seconds or 0.0
        return rebalance_delay_ms / 1000 + after_delay

    def after_delay(self, worker_properties: Mapping[str, str]) -> float | None:
        """Seconds that a gate has once a rebalance delay is over; None if the user has set its time."""
        if self.gate_timeout_seconds is not None:
            return None
        return session_timeout_seconds(worker_properties) + self.startup_seconds


def rebalance_delay_ms(worker_properties: Mapping[str, str]) -> int:
    """``scheduled.rebalance.max.delay.ms`` of a worker; it applies to the group while that worker leads it."""
    return _ms(worker_properties, "scheduled.rebalance.max.delay.ms", DEFAULT_REBALANCE_DELAY_MS)


def session_timeout_seconds(worker_properties: Mapping[str, str]) -> float:
    """``session.timeout.ms`` of a worker: the group counts it as a member for so many seconds after a heartbeat."""
    return _ms(worker_properties, "session.timeout.ms", DEFAULT_SESSION_TIMEOUT_MS) / 1000


def _ms(properties: Mapping[str, str], name: str, default: int) -> int:
    number = whole_number(properties.get(name, ""))
    return default if number is None else number  # of another value the worker's own message is the better one
