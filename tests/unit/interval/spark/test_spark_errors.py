"""Spark's errors in our words, with their causes; and whether a retry can heal them."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka
import pandas
import pytest
from pyspark.errors import AnalysisException, PySparkException, PySparkRuntimeError
from pyspark.errors.exceptions.connect import SparkException as ConnectException
from pyspark.sql import SparkSession

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark import write_interval
from airflow_eos_provider.interval.spark.executors.tasks import shipped
from airflow_eos_provider.interval.spark.spark_errors import explained, refusal_within, require_pandas, spark_errors
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

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
    assert refusal is None or "docs/spark/executors.md" in str(refusal)


@pytest.mark.parametrize(
    ("loaded", "found"),
    [
        (None, f"The Python of this Spark executor ({sys.executable}) lacks the module 'kafka'."),
        (
            SimpleNamespace(__version__="2.3.1", __file__="/opt/kafka.py"),
            f"The Python of this Spark executor ({sys.executable}) has kafka 2.3.1 (/opt/kafka.py), and the driver "
            f"{kafka.__version__}.",
        ),
    ],
)
def test_what_a_task_says_that_lacks_a_package_or_has_another_version_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch, loaded: object, found: str
) -> None:
    run = shipped("write_partition")
    monkeypatch.setitem(sys.modules, "kafka", loaded)
    with pytest.raises(ImportError) as raised:
        list(run(iter(())))
    text = f"ModuleNotFoundError: No module named 'kafka'\n\nImportError: {raised.value}\n\tat org.apache.spark"

    refusal = refusal_within(text)

    assert refusal is not None
    assert refusal.found == found
    assert "leave spark.python.daemon.module out" in str(refusal.remedy)


def _fails(batches: Iterator[Any]) -> Iterator[Any]:
    raise OSError("the service does not answer")


_CUT = gzip.compress(bytes(range(256)) * 2000)[:300]

#: By what is wrong: a query of a folder, what is said of it, and whether the error is final.
WRONG: dict[str, tuple[Callable[[SparkSession, Path], Any], str, bool]] = {
    "another type": (
        lambda spark, folder: spark.read.schema("id string").parquet(str(folder / "right")),
        r"parquet.*column \[id\].*Caused by: .*SchemaColumnConvertNotSupported",
        True,
    ),
    "a damaged file": (
        lambda spark, folder: spark.read.schema("id long").parquet(str(folder / "damaged")),
        r"damaged/a.parquet.*Caused by: .*is not a Parquet file",
        True,
    ),
    "a cut gzip": (
        lambda spark, folder: spark.read.text(str(folder / "cut.gz")),
        r"cut.gz.*Caused by: java.io.EOFException: Unexpected end",
        True,
    ),
    "a malformed line": (
        lambda spark, folder: spark.read.schema("n int").option("mode", "FAILFAST").csv(str(folder / "text.csv")),
        r"text.csv.*Caused by: java.lang.NumberFormatException: For input string: \"a\"",
        True,
    ),
    "no folder": (lambda spark, folder: spark.read.text(str(folder / "none")), "PATH_NOT_FOUND", True),
    "no column": (lambda spark, folder: spark.range(1).select("none"), "UNRESOLVED_COLUMN", True),
    "no format": (lambda spark, folder: spark.read.format("none").load(), "DATA_SOURCE_NOT_FOUND", True),
    "SQL": (lambda spark, folder: spark.sql("selec 1"), "PARSE_SYNTAX_ERROR", True),
    "a value": (lambda spark, folder: spark.range(9).selectExpr("1 / (id - 4)"), "DIVIDE_BY_ZERO", True),
    "a type of pyspark's": (lambda spark, folder: spark.range(1).dropDuplicates("id"), "NOT_EXPECTED_TYPE", True),
    "a service": (lambda spark, folder: spark.range(1).mapInArrow(_fails, "id long"), "OSError: the service", False),
}


@pytest.fixture(scope="module")
def inputs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    spark.range(9).coalesce(1).write.parquet(str(folder / "right"))
    (folder / "damaged").mkdir()
    (folder / "damaged" / "a.parquet").write_bytes(b"no Parquet at all")
    (folder / "cut.gz").write_bytes(_CUT)
    (folder / "text.csv").write_text("1\na\n")
    return folder


@pytest.mark.parametrize("wrong", WRONG)
def test_an_error_has_its_cause_and_says_whether_a_retry_is_of_use(
    spark: SparkSession, inputs: Path, wrong: str
) -> None:
    query, words, final = WRONG[wrong]
    with pytest.raises(EosError, match=f"(?s)The test failed: .*{words}") as raised, spark_errors("The test"):
        query(spark, inputs).collect()
    assert (type(raised.value) is ConfigurationError) is final
    assert "\tat " not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (AnalysisException("org.apache.hadoop.hive.ql.metadata.HiveException: no metastore"), False),
        (AnalysisException("[X] wrong. SQLSTATE: 42000\nCaused by: java.net.ConnectException: refused"), False),
        (PySparkException("[FAILED_READ_FILE.NO_HINT] a file\nCaused by: java.io.IOException: no block"), False),
        (PySparkException("Job aborted: Executor heartbeat timed out"), False),
        (PySparkRuntimeError("[X] the session is lost"), False),
    ],
)
def test_what_the_next_attempt_may_not_meet_is_worth_a_retry(error: Exception, final: bool) -> None:
    assert (type(explained(error, "It")) is ConfigurationError) is final


def test_the_cause_of_an_error_of_spark_connect_is_in_the_servers_stack_trace() -> None:
    trace = (
        "org.apache.spark.SparkException\n\tat x.y(Z)\nCaused by: java.io.EOFException: Unexpected end of input stream"
    )
    message = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file a.gz. SQLSTATE: KD001"
    for shown in (True, False):
        error = ConnectException(message, server_stacktrace=trace, display_server_stacktrace=shown)
        told = explained(error, "It")
        assert type(told) is ConfigurationError
        assert told.found == f"It failed: {message} Caused by: java.io.EOFException: Unexpected end of input stream"


def test_an_error_behind_a_call_of_sparks_jvm_is_told() -> None:
    text = (
        "An error occurred while calling o24.localCheckpoint.\n"
        ": org.apache.spark.SparkException: Lost task: org.postgresql.util.PSQLException: ERROR: permission denied\n"
        "\tat org.postgresql.core.v3.QueryExecutorImpl"
    )
    assert explained(PySparkException(text), "It").found.endswith("PSQLException: ERROR: permission denied")
