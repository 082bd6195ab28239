"""The broker's time, by which leases end: two machines' own clocks may differ by more than a lease lives.

A record's append time is the broker's, where the topic's ``message.timestamp.type`` is ``LogAppendTime``. From such a
record on, this machine's monotonic clock counts; it is off by the moment between append and answer, and late, never
early: a lease may last slightly too long, never too short.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class BrokerClock:
    """Counts the broker's time.

    :param append: appends a record and returns its append time, milliseconds since the epoch; asked once, unless a
        time is noted before.
    """

    def __init__(self, append: Callable[[], int]) -> None:
        self._append = append
        self._broker_minus_monotonic: float | None = None

    def note(self, appended_at_ms: int) -> None:
        """A record was appended at this moment, and the answer has just come."""
        self._broker_minus_monotonic = appended_at_ms / 1000 - time.monotonic()

    def estimate(self) -> float:
        """The broker's time as far as it is known, else this machine's; for what no other controller decides by."""
        return time.time() if self._broker_minus_monotonic is None else self.now()

    def now(self) -> float:
        """The broker's time, seconds since the epoch."""
        if self._broker_minus_monotonic is None:
            self.note(self._append())
        assert self._broker_minus_monotonic is not None
        return self._broker_minus_monotonic + time.monotonic()
