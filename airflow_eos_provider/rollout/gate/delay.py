"""The leader's rebalance delay, counted from when it was first seen.

A member's assignment has the delay of the last rebalance, and shows the same ``293987`` until the next one. So the
remaining delay is counted from the poll that first saw a figure: it ends late by at most one poll interval, never
early.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_eos_provider.rollout.observe.observation import Observation


@dataclass(frozen=True, slots=True)
class DelayClock:
    """Since when a delay has been seen.

    :param delay_ms: the delay as the members report it; 0 if none runs.
    :param seen_at: when that figure was first seen, seconds since the epoch.
    """

    delay_ms: int = 0
    seen_at: float = 0.0

    def after(self, observation: Observation) -> DelayClock:
        """The clock after one more look; the same one if the members report no other figure."""
        if observation.group is None or not observation.group.is_stable:
            return self  # the members report nothing during a rebalance
        reported = [member.assignment.delay_ms for member in observation.group.members if member.assignment]
        delay_ms = max(reported, default=0)
        return self if delay_ms == self.delay_ms else DelayClock(delay_ms, observation.at)

    @property
    def ends_at(self) -> float:
        """When the delay is over, seconds since the epoch; 0 if none runs."""
        return self.seen_at + self.delay_ms / 1000 if self.delay_ms else 0.0

    def remaining(self, now: float) -> float:
        """Seconds until it is over; 0 if none runs or its time is over."""
        return max(0.0, self.ends_at - now)
