"""From an interval to a DataFrame: what you write for your own source. ``example_backfill.py`` names it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

#: Hours in the files are UTC, written like this, so that they can be compared as texts.
HOUR_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def flights(spark: Any, interval: Any, folder: str) -> Any:
    """The flights of an interval: the line number as key, the whole line as value.

    :param spark: the session.
    :param interval: with ``start`` and ``end``, in UTC.
    :param folder: with a file of JSON lines for each month (UTC), ``2013-01.jsonl`` and so on.
    :returns: a DataFrame with the columns ``key`` and ``value``.
    """
    months, day = [], interval.start.replace(day=1, hour=0, minute=0, second=0)
    while day < interval.end:
        months.append(f"{folder}/{day:%Y-%m}.jsonl")
        day = (day + timedelta(days=32)).replace(day=1)
    hour = "get_json_object(value, '$.time_hour')"
    start, end = (moment.strftime(HOUR_FORMAT) for moment in (interval.start, interval.end))
    lines = spark.read.text(months).where(f"{hour} >= '{start}' and {hour} < '{end}'")
    return lines.selectExpr("get_json_object(value, '$.line') as key", "value")
