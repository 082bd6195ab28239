"""What the driver ships to executors; that it arrives, see tests/integration/test_spark_cluster.py."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark import shipping, write, write_interval
from airflow_eos_provider.interval.spark.executors.worker_daemon import NEEDED
from airflow_eos_provider.interval.spark.shipping import package
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

_OF_THE_ZIP = f"""
import importlib, json, sys
sys.path.insert(1, sys.argv[1])
for name in {NEEDED[1:]!r}:
    importlib.import_module(name)
names = [name for name in sys.modules if name.split(".")[0] in ("airflow_eos_provider", "kafka")]
print(json.dumps([name for name in names if sys.argv[1] not in str(sys.modules[name].__spec__.origin)]))
"""

_ITS_NAME = "from airflow_eos_provider.interval.spark.shipping import package; print(package()[0])"


def test_a_task_has_all_of_both_packages_from_the_zip(tmp_path: Path) -> None:
    """With the standard library and it alone; numpy and pyarrow are imported when there are rows."""
    name, content = package()
    (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-I", "-S", "-c", _OF_THE_ZIP, str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_another_process_makes_the_same_zip() -> None:
    done = subprocess.run([sys.executable, "-c", _ITS_NAME], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == package()[0]


def test_a_login_that_an_executor_cannot_make_is_refused_before_the_run_begins(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing file stands for whatever an executor may lack."""
    monkeypatch.setattr(shipping, "_has_packages", lambda owner: False)
    monkeypatch.setattr(write, "Coordinator", None)
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
    pipeline = Pipeline("daily", "shipping", KafkaSettings.of("127.0.0.1:1", settings), topic="daily")
    day = Interval(datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC))
    frame = spark.range(3).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    with pytest.raises(ConfigurationError, match=r"ca\.pem"):
        write_interval(frame, pipeline, day)
