"""Whether a record's timestamp is in milliseconds, as Kafka takes it, judged by the interval that it is written for.

A timestamp in seconds is a valid one in milliseconds, of January 1970: Kafka takes it, and deletes the record by its
retention time soon after. No fixed date tells the two apart without false alarms, since records may be late by decades,
and devices begin at 1970. The interval does: a value is refused only where another unit puts it near the interval and
milliseconds do not.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval

#: A time within so many milliseconds of the interval is near it: ten years.
_NEAR_MS = 10 * 365 * 86_400_000

#: How many of each unit are a millisecond.
_UNITS = {"seconds": 0.001, "microseconds": 1_000, "nanoseconds": 1_000_000}


class Timestamps:
    """The timestamps of an interval's records.

    :param interval: the interval.
    """

    def __init__(self, interval: Interval) -> None:
        self._interval = interval
        self._first_ms = int(interval.start.timestamp() * 1000) - _NEAR_MS
        self._last_ms = int(interval.end.timestamp() * 1000) + _NEAR_MS

    def mistaken_unit(self, value: int) -> str | None:
        """The unit that a value seems to be in; None if that is milliseconds."""
        if self._first_ms <= value <= self._last_ms:
            return None
        near = (unit for unit, per_ms in _UNITS.items() if self._first_ms <= value / per_ms <= self._last_ms)
        return next(near, None)

    def require_milliseconds(self, value: int) -> None:
        """
        :param value: a timestamp, as a row has it.
        :raises ConfigurationError: it seems to be in another unit.
        """
        if (unit := self.mistaken_unit(value)) is not None:
            raise ConfigurationError(
                f"Column timestamp has the value {value}, which in milliseconds is {_moment(value)}; in {unit} it "
                f"would be {_moment(value / _UNITS[unit])}, near the interval {self._interval.name}.",
                expected="milliseconds since 1970, or the type timestamp",
                remedy="Convert the column, as by timestamp_seconds(…) or timestamp_micros(…).",
            )


def _moment(milliseconds: float) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return "after the year 9999"
