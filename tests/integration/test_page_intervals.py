"""The page's intervals on a real broker: pipelines, the calendar, and one run with its slices."""

from __future__ import annotations

# Airflow reads its home, which is set there, when it is first imported.
from tests.page import client_of

# isort: split
import json
from collections.abc import Callable

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.lab.lab import Lab
from tests.broker_only import describe
from tests.integration.test_page import is_looked_at, until
from tests.waiting import until_ended

SLICES = 3
ROWS = 5


def day(number: int) -> Run:
    return Run("flights", Interval.parse(f"2013-01-{number:02d}T00:00:00Z/2013-01-{number + 1:02d}T00:00:00Z"))


def write(pipeline: Pipeline, run: Run, *, only: int = SLICES) -> None:
    """Write a run's slices, or only the first few and then stop."""
    values = [f"{run.name} {row}".encode() for row in range(ROWS)]
    rows = [pa.RecordBatch.from_pydict({"key": pa.array(values), "value": pa.array(values)})]
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: RunPlan(run, [{"part": n} for n in range(SLICES)], {"kind": "test"}), 1)
        assert isinstance(stage, Stage)
        with Task(pipeline, stage, 0) as task:
            for number in sorted(task.start())[:only]:
                task.write_slice(number, rows)
        if only == SLICES:
            coordinator.finish(stage)
    until_ended(pipeline.kafka, pipeline.task_id_prefix(run))


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """A broker with a pipeline: one interval complete, a gap, and one of which a slice is done."""
    lab = describe(lab_factory(name="page-intervals", workers=0))
    lab.create_topic("flights", 2)
    pipeline = Pipeline(name="flights", group_id="etl", kafka=lab.cluster().kafka, topic="flights")
    write(pipeline, day(1))
    write(pipeline, day(3), only=1)
    return lab


@pytest.fixture
def page(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": lab.bootstrap_servers}}
    monkeypatch.setenv("AIRFLOW_CONN_BROKERS", json.dumps(connection))
    return client_of("admin")


def test_a_pipeline_is_found_with_its_calendar_and_its_runs(page: TestClient) -> None:
    found = until(page, "/api/pipelines", lambda document: document["items"] or document["errors"])
    (item,) = found["items"]
    assert (item["connection_id"], item["group_id"], item["pipeline"]) == ("brokers", "etl", "flights")
    assert (item["complete"], item["running"]) == (1, 1)

    calendar = until(page, "/api/clusters/brokers/calendar?group=etl&pipeline=flights", is_looked_at)
    assert (calendar["counts"]["running"], calendar["cells"][-1]["done"]) == (1, 1)
    assert [cell["state"] for cell in calendar["cells"]] == ["complete", "missing", "running"]
    first = calendar["cells"][0]
    assert (first["records"], first["slices"], first["done"]) == (SLICES * ROWS, SLICES, SLICES)
    assert first["seconds"] > 0
    assert (calendar["dag_id"], calendar["unit"], calendar["backfills"]) == (None, "day", [])

    run = first["run"].replace("#", "%23")
    document = until(page, f"/api/clusters/brokers/interval?group=etl&run={run}", is_looked_at)
    assert (document["state"], document["records"], document["found"]) == ("complete", SLICES * ROWS, SLICES)
    assert [(one["slice"], one["state"], one["records"], one["task"]) for one in document["items"]] == [
        (number, "done", ROWS, 0) for number in range(SLICES)
    ]
    assert [one["source"] for one in document["items"]] == [{"part": number} for number in range(SLICES)]
    assert len(document["attempts"]) == 1


def test_what_is_not_there_is_not_found(page: TestClient) -> None:
    for run in ("nonsense", "flights@2014-01-01T00:00:00Z/2014-01-02T00:00:00Z"):
        answer = page.get(f"/api/clusters/brokers/interval?group=etl&run={run}")
        assert answer.status_code == 404, answer.text
    assert page.get("/api/clusters/nowhere/calendar?pipeline=flights").status_code == 404
    assert page.get("/api/clusters/brokers/calendar").status_code == 422
