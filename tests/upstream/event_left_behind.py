"""Of two events of an asset within one turn of the scheduler's loop, the second triggers nothing.

The queue has one row for an asset and a DAG behind it. A second event finds that row and leaves it as it is
(``on_conflict_do_nothing``); the scheduler takes the events up to the row's own time, and removes it. The second event
comes with the run that a third one triggers. Here the scheduler is held up meanwhile; a busy one takes some seconds for
a turn. Mended in Airflow's repository by pull requests 62501 and 70972, after 3.3.2.
"""

from __future__ import annotations

from typing import Any

from airflow_eos_provider.lab.servers.airflow_rest import AirflowRest, AirflowRestError
from tests.system.components import main_process, suspended
from tests.upstream.own_airflow import SECONDS, own_airflow
from tests.upstream.shown import StartLab
from tests.waiting import until

DAG_ID = "reads"
DAG = f"""
from airflow.sdk import DAG, Asset, task

with DAG("{DAG_ID}", schedule=[Asset("x-eos://etl/orders")]) as dag:

    @task
    def report():
        pass

    report()
"""


def show(start: StartLab) -> str:
    with own_airflow(start, {DAG_ID: DAG}) as airflow, airflow.rest() as rest:
        rest.unpause(DAG_ID)
        with suspended(main_process(airflow, "scheduler")):
            first, second = _event(rest, 1), _event(rest, 2)
        until(lambda: _consumed(rest), "the first run", seconds=SECONDS)
        assert _consumed(rest) == [first]
        assert not _is_queued(rest)
        third = _event(rest, 3)
        until(lambda: len(_consumed(rest)) > 1, "the next run", seconds=SECONDS)
        assert _consumed(rest) == [first, second, third]
    return "the second of two events triggered nothing, and came with the third"


def _event(rest: AirflowRest, number: int) -> int:
    """A new event; its id."""
    (asset,) = rest._read("/api/v2/assets")["assets"]
    content = {"asset_id": asset["id"], "extra": {"number": number}}
    return int(rest._write("POST", "/api/v2/assets/events", content=content)["id"])


def _consumed(rest: AirflowRest) -> list[int]:
    """The ids of the events that triggered runs, in the order of the runs."""
    found: list[Any] = []
    for run_id in rest.run_states(DAG_ID):
        found += rest._read(f"/api/v2/dags/{DAG_ID}/dagRuns/{run_id}/upstreamAssetEvents")["asset_events"]
    return sorted(int(event["id"]) for event in found)


def _is_queued(rest: AirflowRest) -> bool:
    try:
        return bool(rest._read(f"/api/v2/dags/{DAG_ID}/assets/queuedEvents")["queued_events"])
    except AirflowRestError as error:
        if error.status == 404:
            return False
        raise
