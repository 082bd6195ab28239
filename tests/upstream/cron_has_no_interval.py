"""``schedule="@daily"`` makes runs whose data interval has no width.

Airflow 3 takes a cron string for ``CronTriggerTimetable`` (``[scheduler] create_cron_data_intervals`` is off): start
and end of the interval are the same moment. A DAG that was written for Airflow 2 then reads and writes nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.upstream.own_airflow import said_by
from tests.upstream.shown import StartLab

CODE = """
from datetime import UTC, datetime
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables.base import TimeRestriction
from airflow.sdk.timezone import coerce_datetime

first = coerce_datetime(datetime(2026, 1, 1, tzinfo=UTC))
for schedule in ("@daily", CronDataIntervalTimetable("0 0 * * *", timezone="UTC")):
    timetable = coerce_to_core_timetable(DAG("days", schedule=schedule, start_date=first).timetable)
    restriction = TimeRestriction(earliest=first, latest=None, catchup=True)
    interval = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction).data_interval
    print("hours", (interval.end - interval.start).total_seconds() / 3600)
"""


def show(start: StartLab) -> str:
    with tempfile.TemporaryDirectory(prefix="eos-upstream-cron-") as folder:
        said = said_by(CODE, Path(folder)).splitlines()
    hours = [float(line.partition(" ")[2]) for line in said if line.startswith("hours ")]
    assert hours == [0.0, 24.0], said
    return "a day's run of '@daily' has an interval of 0 h; of CronDataIntervalTimetable, 24 h"
