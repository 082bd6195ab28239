"""Airflow's interval tasks whose drivers and executors run in YARN, of a real resource manager and node manager."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.operators.interval_run import IntervalRunOperator
from tests.integration.interval_target import DAY, JOBS, HeldFiles, Target, day
from tests.secret_search import files_with
from tests.waiting import until
from tests.yarn_cluster import YarnCluster, yarn_cluster

pytestmark = pytest.mark.by_name

SECRET = "canary-of-the-kafka-login"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="yarn", workers=0)


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory, nothing_is_left_running: None) -> Iterator[YarnCluster]:
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture
def target(lab: Lab, yarn: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> Target:
    name = f"daily-{uuid.uuid4().hex[:8]}"
    lab.create_topic(name, 2)
    kafka = {"bootstrap.servers": lab.bootstrap_servers, "sasl.password": SECRET}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": kafka}))
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.url}
    spark = {"conn_type": "spark", "host": "yarn", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    for variable, value in yarn.environment.items():
        monkeypatch.setenv(variable, value)
    return Target(
        Pipeline(name=name, group_id="eos-intervals", kafka=KafkaSettings.of(lab.bootstrap_servers), topic=name)
    )


def task_of(
    yarn: YarnCluster, target: Target, interval: Interval, function: str, arguments: dict[str, Any], **more: Any
) -> IntervalRunOperator:
    return IntervalRunOperator(
        task_id="write",
        pipeline=target.pipeline.name,
        topic=target.pipeline.topic,
        python_callable=f"{JOBS}:{function}",
        op_kwargs=arguments,
        interval=interval.name,
        conf={**yarn.properties, "spark.pyspark.python": sys.executable},
        pipeline_options={"transaction_timeout_ms": 120_000},
        **more,
    )


def execute(task: IntervalRunOperator) -> dict[str, Any]:
    return task.execute({"outlet_events": OutletEventAccessors(), "ti": None})  # type: ignore[typeddict-item]


def application_masters(yarn: YarnCluster) -> list[psutil.Process]:
    """The processes that hold the drivers of running applications."""
    name = "org.apache.spark.deploy.yarn.ApplicationMaster"
    running = psutil.process_iter(["cmdline", "name"])
    mine = [each for each in running if name in (each.info["cmdline"] or ()) and each.info["name"] == "java"]
    return [each for each in mine if str(yarn.folder) in " ".join(each.info["cmdline"])]


def test_a_driver_killed_in_the_cluster_is_followed_by_the_next_try_and_no_login_stays_there(
    yarn: YarnCluster, target: Target, tmp_path: Path
) -> None:
    held = HeldFiles.make(tmp_path)
    task = task_of(yarn, target, DAY, "held_files", held.arguments)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(execute, task)
        try:
            held.wait_for_readers(1, first)
            (staging,) = files_with(SECRET, yarn.folder)  # YARN's own copy, until the application has ended
            assert staging.is_relative_to(yarn.folder / "staging")
            assert staging.parent.stat().st_mode & 0o077 == 0
            (master,) = application_masters(yarn)
            master.kill()
            with pytest.raises(EosError, match="The next try continues"):
                first.result(timeout=240)
        finally:
            held.go()

    summary = execute(task)

    assert (summary["records"], summary["already"]) == (150, False)
    target.require_exactly_once(held.lines)
    found = sorted(yarn.applications(), key=lambda each: str(each["id"]))
    assert [each["finalStatus"] for each in found] == ["FAILED", "SUCCEEDED"]
    assert [yarn.attempts(str(each["id"])) for each in found] == [1, 1], "another attempt fences whoever comes next"
    until(lambda: not files_with(SECRET, yarn.folder), "the end of what holds the login", seconds=60)


def test_a_driver_that_was_refused_in_the_cluster_is_not_tried_again(yarn: YarnCluster, target: Target) -> None:
    """By the word of the resource manager's API first, and by spark-submit's."""
    wide, overlapping = Interval(DAY.start, day(1).end), Interval(day(1).start, day(2).end)
    asked = {"yarn_track_via_rm_api": True}
    written = execute(task_of(yarn, target, wide, "numbered", {"rows": 100}, **asked))
    assert written["records"] == 100

    words = r"ended with code \d+\. .* yarn logs -applicationId application_"
    for how in (asked, {}):
        with pytest.raises(AirflowFailException, match=words):
            execute(task_of(yarn, target, overlapping, "numbered", {"rows": 100}, **how))
