"""Whether a record's timestamp is in milliseconds, and whether its topic keeps records of that time.

A timestamp in seconds is a valid one in milliseconds, of January 1970: Kafka accepts it, and soon deletes the record.
No fixed date tells the two apart, since records may be late by decades. The interval does: a value is refused only
where another unit puts it near the interval and milliseconds do not.

Brokers delete by the newest timestamp of a segment: records of 2013 in a topic that keeps seven days are gone minutes
after they were written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval

#: A time within so many milliseconds of the interval is near it: ten years.
_NEAR_MS = 10 * 365 * 86_400_000

#: How many of each unit are a millisecond.
_UNITS = {"seconds": 0.001, "microseconds": 1_000, "nanoseconds": 1_000_000}


def require_milliseconds(values: Any, interval: Interval) -> None:
    """Refuse timestamps of an interval's records, an array of numpy's, of which one seems to be in another unit."""
    first, last = (int(edge.timestamp() * 1000) for edge in (interval.start, interval.end))
    first, last = first - _NEAR_MS, last + _NEAR_MS
    strays = values[(values < first) | (values > last)]
    for unit, per_ms in _UNITS.items():
        near = strays[(strays / per_ms >= first) & (strays / per_ms <= last)]
        if len(near):
            value = int(near[0])
            raise ConfigurationError(
                f"Column timestamp has the value {value}, which in milliseconds is {_moment(value)}; in {unit} it "
                f"would be {_moment(value / per_ms)}, near the interval {interval.name}.",
                expected="milliseconds since 1970, or the type timestamp",
                remedy="Convert the column, as by timestamp_seconds(…) or timestamp_micros(…).",
            )


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a topic keeps records by their own time.

    :param ms: its ``retention.ms``; None where the age of a record's timestamp deletes nothing.
    """

    topic: str
    ms: int | None

    @classmethod
    def of(cls, topic: str, settings: Mapping[str, str]) -> Retention:
        """By the settings of a topic, as the brokers describe them."""
        dates_itself = settings["message.timestamp.type"] == "LogAppendTime"
        deletes = "delete" in settings["cleanup.policy"].split(",")
        ms = int(settings["retention.ms"])
        return cls(topic, ms if deletes and not dates_itself and ms >= 0 else None)

    @property
    def oldest_ms(self) -> int:
        """The oldest timestamp that the topic keeps now; 0 for any."""
        return 0 if self.ms is None else int(time.time() * 1000) - self.ms

    def require_kept(self, timestamp_ms: int, what: str = "A row") -> None:
        if timestamp_ms < self.oldest_ms:
            raise ConfigurationError(
                f"{what} has the timestamp {_moment(timestamp_ms)}, and topic {self.topic} keeps records for "
                f"{self.ms} ms (retention.ms): the brokers may delete it within minutes.",
                expected=f"timestamps after {_moment(self.oldest_ms)}, or a topic that keeps them",
                remedy=f"kafka-configs.sh --alter --entity-type topics --entity-name {self.topic} --add-config "
                "retention.ms=-1 (or message.timestamp.type=LogAppendTime); or leave the column timestamp null for the "
                "time of the write; or set allow_expired_records=True in the pipeline, where such records may be lost.",
            )

    def require_interval(self, interval: Interval) -> None:
        self.require_kept(int(interval.end.timestamp() * 1000), f"The end of the interval {interval.name}")


def _moment(milliseconds: float) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return "after the year 9999"
