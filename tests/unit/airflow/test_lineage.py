"""What OpenLineage's own extractor takes from a finished task, and its own client writes into a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.file import FileConfig, FileTransport

from airflow_eos_provider.interval.interval import Run as IntervalRunName
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.slices import folders_read
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.operators.interval_run import IntervalRunOperator
from airflow_eos_provider.operators.rolling_upgrade import ConnectRollingUpgradeOperator

RUN = IntervalRunName.parse("orders@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
PIPELINE = Pipeline(
    name="orders", group_id="etl", kafka=KafkaSettings.of("broker-1:9092,broker-2:9092"), topic="orders-out"
)
RESULT = {"records": 842, "digest": "ab" * 16, "slices": 4, "already": False}
WORKER = {"worker": "w1", "task_downtime_seconds": 2.5}
REPORT = {"rollout_id": "r1", "plan": "f" * 64, "from": "disabled", "to": "preparing", "workers": [WORKER, WORKER]}


def event_of(operator: Any, tmp_path: Path) -> dict[str, Any]:
    """The event as it is written, by the way that Airflow's listener takes."""
    lineage = DefaultExtractor(operator).extract_on_complete(None)
    assert isinstance(lineage, OperatorLineage)
    file = tmp_path / "events"
    client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(file), append=True)))
    client.emit(
        RunEvent(
            eventType=RunState.COMPLETE,
            eventTime="2026-01-01T00:00:00Z",
            run=Run(runId="018f0000-0000-7000-8000-000000000001", facets=lineage.run_facets),
            job=Job(namespace="airflow", name="dag.task"),
            producer="https://example.test",
            inputs=lineage.inputs,
            outputs=lineage.outputs,
        )
    )
    (line,) = file.read_text(encoding="utf-8").splitlines()
    return dict(json.loads(line))


def test_an_interval_run_tells_its_folders_its_topic_and_its_ledger(tmp_path: Path) -> None:
    operator = IntervalRunOperator(task_id="write", pipeline="orders", python_callable="module:function")
    operator._told = (PIPELINE, RUN, RESULT, {"file:///data/2013-01-01": 2, "s3a://key:s3cret@bucket/raw/2013": 1})
    event = event_of(operator, tmp_path)

    assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [
        ("file", "/data/2013-01-01"),
        ("s3a://bucket", "raw/2013"),
    ]
    assert [(one["namespace"], one["name"]) for one in event["outputs"]] == [("kafka://broker-1:9092", "orders-out")]
    facet = event["run"]["facets"]["eos_interval"]
    assert (facet["interval_run"], facet["records"], facet["already"]) == (RUN.name, 842, False)
    assert facet["ledger_topic"] == "etl-orders-offsets"
    assert json.loads(facet["ledger_key"]) == ["orders", {"interval": RUN.interval.name}]
    assert "s3cret" not in json.dumps(event)


def test_a_roll_tells_what_was_rolled(tmp_path: Path) -> None:
    operator = ConnectRollingUpgradeOperator(task_id="roll", plan={})
    operator._told = (REPORT, "connect")
    event = event_of(operator, tmp_path)

    assert (event["inputs"], event["outputs"]) == ([], [])
    facet = event["run"]["facets"]["eos_roll"]
    assert (facet["group_id"], facet["rollout_id"], facet["to_mode"]) == ("connect", "r1", "preparing")
    assert (facet["workers"], facet["task_downtime_seconds"]) == (2, 5.0)


@pytest.mark.parametrize(
    "operator",
    [
        IntervalRunOperator(task_id="write", pipeline="orders", python_callable="module:function"),
        ConnectRollingUpgradeOperator(task_id="roll", plan={}),
    ],
)
def test_a_task_that_has_done_nothing_tells_nothing(operator: Any) -> None:
    assert operator.get_openlineage_facets_on_complete(None) is None


def test_folders_are_those_of_the_plan_and_of_slices_that_are_files() -> None:
    pinned = {"files": [{"path": "file:///a/1.parquet"}, {"path": "file:///a/2.parquet"}]}
    slices = [{"file": {"path": "/b/3.json"}}, {"hash": 1}]
    assert folders_read(pinned, slices) == {"/b": 1, "file:///a": 2}
    assert folders_read({"file_count": 5000, "files_digest": "x"}, ()) == {}
