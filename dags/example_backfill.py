"""A backfill: the flights out of New York in 2013, day by day, into the topic ``flights.daily`` exactly once.

.. code-block:: sh

    airflow backfill create --dag-id flights_daily --from-date 2013-01-01 --to-date 2014-01-01 \\
        --max-active-runs 4 --run-backwards

Days may be written in any order and in parallel; a complete day is not written again. A second DAG runs whenever days
are complete, and a third one gives up a run of which nothing is committed. The Variable ``flights_folder`` names a
folder with a file of JSON lines for each month; ``flights_source.py`` reads it.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, task

from airflow_eos_provider.assets.intervals import completed_intervals, interval_asset
from airflow_eos_provider.dag_factories import interval_abandon_dag, interval_run_dag

NEW_YORK = ZoneInfo("America/New_York")

dag = interval_run_dag(
    dag_id="flights_daily",
    pipeline="flights.daily",
    topic="flights.daily",
    python_callable=f"{Path(__file__).with_name('flights_source.py')}:flights",
    op_kwargs={"folder": "{{ var.value.get('flights_folder', '/data/flights') }}"},
    selects_by_bounds=True,  # so a day's hours, or a year's days, are complete with it
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=NEW_YORK),
    end_date=datetime(2013, 12, 31, tzinfo=NEW_YORK),
)

with DAG(
    dag_id="flights_daily_ready",
    schedule=interval_asset("flights.daily", "eos-intervals"),
    description="What has become complete of the pipeline flights.daily",
    doc_md="### Runs when a day of `flights.daily` is complete\n\nIts task returns each day with what was written.",
) as ready:

    @task
    def report(triggering_asset_events: dict | None = None) -> list[dict]:
        """Every day that is complete since the last run, with what was written."""
        return completed_intervals(triggering_asset_events or {})

    report()

abandon = interval_abandon_dag(group="eos-intervals", conn_id="kafka_default", dag_id="interval_abandon")
