"""A Python that cannot be used is refused in words: the driver's before a run begins, an executor's by Spark's text."""

from __future__ import annotations

import sys
from typing import Any

import pandas
import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark import write_interval
from airflow_eos_provider.interval.spark.executor import shipped
from airflow_eos_provider.interval.spark.python_refusals import refusal_within, require_pandas
from airflow_eos_provider.kafka.config import KafkaSettings

DAY = Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
NOBODY = Pipeline("flights", "etl", KafkaSettings.of("127.0.0.1:1"), topic="flights")
FRAME: Any = object()


def test_a_driver_without_pandas_is_refused_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(ConfigurationError, match=r"Pandas >= 2\.2\.0 must be installed") as refused:
        write_interval(FRAME, NOBODY, DAY)
    assert "pip install 'pandas<3'" in str(refused.value)
    assert "[PACKAGE_NOT_INSTALLED]" not in str(refused.value)


def test_a_driver_with_an_old_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pandas, "__version__", "1.5.3")

    with pytest.raises(ConfigurationError, match=r"1\.5\.3"):
        require_pandas()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
            "An executor has Python 3.12, the driver 3.11: Spark takes no other minor version.",
        ),
        (
            "Python in worker has different version 3.12 than that in driver 3.11, PySpark",
            "An executor has Python 3.12, the driver 3.11: Spark takes no other minor version.",
        ),
        (
            'java.io.IOException: Cannot run program "./env/bin/python": error=2, No such file or directory',
            "An executor has no program ./env/bin/python, which is to be its Python.",
        ),
        (
            "  File pyspark/worker.py, line 2530, in read_udfs\nModuleNotFoundError: No module named 'pyarrow'",
            "An executor's Python lacks the module 'pyarrow'.",
        ),
        ("org.apache.spark.SparkException: Job aborted", None),
    ],
)
def test_what_spark_says_of_an_executor(text: str, found: str | None) -> None:
    refusal = refusal_within(text)

    assert (refusal and refusal.found) == found
    assert refusal is None or "docs/executors.md" in str(refusal)


def test_what_a_task_says_that_lacks_a_package_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ImportError) as raised:
        list(shipped("write_partition")(iter(())))
    text = (
        f"ModuleNotFoundError: No module named 'confluent_kafka'\n\nImportError: {raised.value}\n\tat org.apache.spark"
    )

    refusal = refusal_within(text)

    assert refusal is not None
    assert refusal.found == f"The Python of this Spark executor ({sys.executable}) lacks the module 'confluent_kafka'."
