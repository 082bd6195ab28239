"""What spark-submit uploads for a driver on Kubernetes stays there: no login is in it, and a driver needs no more.

There is no cluster: nobody answers at its address, which spark-submit notices once it has uploaded everything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark.job import RESULT_PREFIX
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.operators.interval_run import IntervalRunOperator
from tests.integration.interval_target import DAY, JOBS, HeldFiles, Target
from tests.secret_search import files_with

SECRET = "canary-of-the-kafka-login"


def test_what_is_uploaded_has_no_login_and_writes_the_interval_with_the_one_that_is_there(
    lab_factory: Callable[..., Lab],
    spark_properties: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = lab_factory(name="kubernetes", workers=0)
    lab.create_topic("flights", 2)
    settings = KafkaSettings.of(lab.bootstrap_servers)
    held = HeldFiles.make(tmp_path)
    held.go()
    kafka = {"bootstrap.servers": lab.bootstrap_servers, "sasl.password": SECRET}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": kafka}))
    nobody = {"host": "k8s://https://127.0.0.1", "port": free_ports(1)[0], "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **nobody}))
    # Airflow's hook wants a client of Kubernetes, and asks it nothing while it submits.
    monkeypatch.setattr(
        "airflow.providers.apache.spark.hooks.spark_submit.kube_client", SimpleNamespace(), raising=False
    )
    (uploads := tmp_path / "uploads").mkdir()
    client_file = tmp_path / "client.properties"
    task = IntervalRunOperator(
        task_id="write",
        pipeline="flights",
        topic="flights",
        python_callable=f"{JOBS}:held_files",
        op_kwargs=held.arguments,
        interval=DAY.name,
        client_file=str(client_file),
        conf={
            "spark.kubernetes.file.upload.path": uploads.as_uri(),
            "spark.kubernetes.container.image": "an-image",
            "spark.kubernetes.driver.secrets.kafka": str(tmp_path),
        },
    )
    with pytest.raises(EosError, match="ended with code 1"):
        task.execute({"outlet_events": OutletEventAccessors(), "ti": None})  # type: ignore[typeddict-item]

    (program,) = [path for path in uploads.rglob("*") if path.is_file() and path.suffix == ".py"]
    assert not files_with(SECRET, uploads)

    client_file.write_text("security.protocol=PLAINTEXT\n")
    configuration = [each for name, value in spark_properties.items() for each in ("--conf", f"{name}={value}")]
    driver = subprocess.run(
        [str(Path(sys.executable).parent / "spark-submit"), *configuration, str(program)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert driver.returncode == 0, driver.stderr[-3000:]
    assert RESULT_PREFIX in driver.stdout
    Target(Pipeline("flights", "eos-intervals", settings, topic="flights")).require_exactly_once(held.lines)
