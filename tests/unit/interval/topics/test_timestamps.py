"""A timestamp in a wrong unit is noticed; no time that a record can have in earnest is taken for one."""

from __future__ import annotations

import time

import numpy as np
import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.topics.timestamps import Retention, require_milliseconds

DAY = Interval.parse("2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")
NOON_S = 1_357_041_600


USUAL = {"message.timestamp.type": "CreateTime", "cleanup.policy": "delete", "retention.ms": "604800000"}


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({}, False),
        ({"cleanup.policy": "compact,delete"}, False),
        ({"retention.ms": "0"}, False),
        ({"retention.ms": "-1"}, True),
        ({"retention.ms": str(10**15)}, True),
        ({"cleanup.policy": "compact"}, True),
        ({"message.timestamp.type": "LogAppendTime"}, True),
    ],
)
def test_what_a_topic_would_soon_delete_is_refused(settings: dict[str, str], keeps: bool) -> None:
    retention = Retention.of("t", {**USUAL, **settings})
    for check in (lambda: retention.require_kept(NOON_S * 1000), lambda: retention.require_interval(DAY)):
        if keeps:
            check()
        else:
            with pytest.raises(ConfigurationError, match=r"2013-01-0.*topic t keeps records for") as raised:
                check()
            assert "--add-config retention.ms=-1" in str(raised.value)
            assert "allow_expired_records=True" in str(raised.value)


def test_what_was_written_today_is_kept() -> None:
    Retention.of("t", USUAL).require_kept(int(time.time() * 1000) - 86_400_000)


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
    values = np.array([NOON_S * 1000, value, NOON_S * 1000])
    if unit is None:
        require_milliseconds(values, DAY)
        return
    with pytest.raises(ConfigurationError, match=rf"has the value {value}, .*; in {unit} it would be 20"):
        require_milliseconds(values, DAY)


def test_in_an_interval_of_1970_milliseconds_are_what_they_are() -> None:
    january = Interval.parse("1970-01-16T00:00:00Z/1970-01-17T00:00:00Z")

    require_milliseconds(np.array([NOON_S]), january)
