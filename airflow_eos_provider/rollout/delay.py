"""The leader's rebalance delay, counted from when it was first seen.

What a member tells is a photograph: its assignment holds the delay as it was at the last rebalance, and goes on saying
``293987`` until the next one. So the moment of the first look at a figure is remembered, and what remains is counted
from there; that is late by at most one look, never early.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_eos_provider.rollout.observation import Observation


@dataclass
class DelayClock:
    """Remembers since when a delay has been seen.

    :ivar delay_ms: the delay as the members tell it; 0 if none runs.
    :ivar seen_at: when that figure was first seen, seconds since the epoch.
    """

    delay_ms: int = 0
    seen_at: float = 0.0

    def note(self, observation: Observation) -> bool:
        """Take one more look in.

        :returns: whether a delay begins that was not there before.
        """
        if observation.group is None or not observation.group.is_stable:
            return False  # nothing is told in mid-rebalance
        told = [member.assignment.delay_ms for member in observation.group.members if member.assignment]
        delay_ms = max(told, default=0)
        if delay_ms == self.delay_ms:
            return False
        self.delay_ms, self.seen_at = delay_ms, observation.at
        return delay_ms > 0

    @property
    def ends_at(self) -> float:
        """When the delay is over, seconds since the epoch; 0 if none runs."""
        return self.seen_at + self.delay_ms / 1000 if self.delay_ms else 0.0

    def remaining(self, now: float) -> float:
        """Seconds until it is over; 0 if none runs or its time is over."""
        return max(0.0, self.ends_at - now)
