"""A timestamp in a wrong unit is noticed; no time that a record can have in earnest is taken for one."""

from __future__ import annotations

import pytest

from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.protocol.timestamps import Timestamps

DAY = Interval.parse("2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")
NOON_S = 1_357_041_600


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        (NOON_S, "seconds"),
        (NOON_S - 5 * 365 * 86_400, "seconds"),
        (NOON_S * 1_000_000, "microseconds"),
        (NOON_S * 1_000_000_000, "nanoseconds"),
        (NOON_S * 1000, None),
        (0, None),  # a device whose clock was never set
        (86_400_000, None),
        (1_000_000_000_000, None),  # 2001: late by twelve years, and yet a time
        (4_102_444_800_000, None),  # 2100
    ],
)
def test_the_unit_is_told_by_the_interval(value: int, unit: str | None) -> None:
    assert Timestamps(DAY).mistaken_unit(value) == unit


def test_in_an_interval_of_1970_milliseconds_are_what_they_are() -> None:
    january = Interval.parse("1970-01-16T00:00:00Z/1970-01-17T00:00:00Z")

    assert Timestamps(january).mistaken_unit(NOON_S) is None
