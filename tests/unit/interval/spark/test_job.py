"""The job's specification, its function and what it tells."""

from __future__ import annotations

import json
import runpy
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, FencedError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark import job
from airflow_eos_provider.interval.spark.job import JobSpec, load_function, main, read_spec
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.stored import from_json

DAY = Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
SECRET = "hidden-from-everybody"


@pytest.fixture
def spec() -> JobSpec:
    settings = KafkaSettings.of("127.0.0.1:1", {"sasl.password": SECRET})
    return JobSpec(Pipeline("flights", "etl", settings), DAY, "json:dumps", key=("carrier", "flight"), slices=3)


def test_a_specification_survives_its_way_as_json(spec: JobSpec) -> None:
    again = JobSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec


def test_a_job_whose_client_is_in_a_file_of_its_own_is_sent_no_login(spec: JobSpec, tmp_path: Path) -> None:
    assert spec.secrets == ["sasl.password"]
    file = tmp_path / "client.properties"
    sent = json.dumps(replace(spec, client_file=str(file)).to_dict())
    assert SECRET not in sent
    there = JobSpec.from_dict(json.loads(sent))
    assert there.secrets == []
    with pytest.raises(ConfigurationError, match=r"client.properties cannot be read"):
        job.run(there)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="eve" password="{SECRET}";\n'
    )
    client = there.with_client_of_file().pipeline.kafka
    assert (client.bootstrap_servers, client.principal) == ("127.0.0.1:1", "User:eve")
    assert client.properties["sasl.password"] == SECRET
    file.write_text("bootstrap.servers=inside:9092\n")
    assert there.with_client_of_file().pipeline.kafka.bootstrap_servers == "inside:9092"
    assert spec.with_client_of_file() is spec


def test_a_secret_in_the_producers_own_properties_is_one_too(spec: JobSpec) -> None:
    pipeline = replace(spec.pipeline, producer={"ssl.key.password": SECRET, "linger.ms": "5"})
    assert replace(spec, pipeline=pipeline, client_file="/etc/kafka/x").secrets == ["ssl.key.password"]


def test_a_specification_is_read_from_a_file_or_a_variable(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec.to_dict()))
    assert read_spec(str(path)) == spec
    monkeypatch.setenv(job.SPEC_VARIABLE, json.dumps(spec.to_dict()))
    assert read_spec(None) == spec
    assert job.SPEC_VARIABLE not in __import__("os").environ  # children do not inherit the password


def test_no_password_is_shown(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SECRET not in repr(spec)
    monkeypatch.setenv(job.SPEC_VARIABLE, json.dumps(spec.to_dict())[:-1])
    with pytest.raises(ConfigurationError) as cut_short:
        read_spec(None)
    with pytest.raises(ConfigurationError) as unknown:
        JobSpec.from_dict({**spec.to_dict(), "slizes": 3})
    assert "slizes" in str(unknown.value)
    assert SECRET not in str(cut_short.value) + str(unknown.value)


def test_a_missing_specification_says_where_it_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(job.SPEC_VARIABLE, raising=False)
    with pytest.raises(ConfigurationError, match="--spec FILE, or EOS_INTERVAL_SPEC"):
        read_spec(None)


def test_a_function_is_named_by_its_module_or_its_file(tmp_path: Path) -> None:
    assert load_function("json:dumps") is json.dumps
    path = tmp_path / "my_flights.py"
    path.write_text("def daily(spark, interval):\n    return (spark, interval.name)\n")
    assert load_function(f"{path}:daily")(None, DAY) == (None, DAY.name)


@pytest.mark.parametrize("name", ["daily", "nowhere:daily", "json:nothing", "/nowhere/flights.py:daily", "json:"])
def test_a_function_that_cannot_be_found_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match="function"):
        load_function(name)


def _main(spec: JobSpec, tmp_path: Path, *options: str) -> int:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec.to_dict()))
    return main(["--spec", str(path), *options])


@pytest.mark.parametrize("options", [[], ["--delete-spec"]])
def test_the_file_is_gone_before_the_work_begins_if_that_is_wanted(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    there = []

    def run(spec: JobSpec) -> Completed:
        there.append((tmp_path / "spec.json").exists())
        return Completed(Run("flights", DAY), 1, "00", 1, False, 1.0)

    monkeypatch.setattr(job, "run", run)
    assert _main(spec, tmp_path, *options) == 0
    assert there == [not options]


def test_a_result_is_one_line(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Completed(Run("flights", DAY), 842, "00", 3, False, 1.5)
    monkeypatch.setattr(job, "run", lambda spec: done)
    assert _main(spec, tmp_path) == 0
    line = capsys.readouterr().out
    assert from_json(Completed, json.loads(line.removeprefix(job.RESULT_PREFIX))) == done


def test_a_fenced_job_exits_with_seven(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fenced(spec: JobSpec) -> Completed:
        raise FencedError("Another one runs it.")

    monkeypatch.setattr(job, "run", fenced)
    assert _main(spec, tmp_path) == 7
    reported = json.loads(capsys.readouterr().out.removeprefix(job.FAILURE_PREFIX))
    assert reported == {"type": "FencedError", "exit_code": 7, "message": "Another one runs it."}


def test_the_password_in_an_error_of_the_users_own_function_is_not_reported(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(spec: JobSpec) -> Completed:
        raise ValueError("cannot read jdbc:postgresql://db/shop?user=reader&password=canary-4711")

    monkeypatch.setattr(job, "run", fails)
    with pytest.raises(ValueError, match="cannot read"):
        _main(spec, tmp_path)
    reported = json.loads(capsys.readouterr().out.removeprefix(job.FAILURE_PREFIX))
    assert reported["message"] == "cannot read jdbc:postgresql://db/shop?user=reader&password=***"


def test_a_query_that_spark_refuses_is_not_worth_a_retry(
    spec: JobSpec, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's function fails before there is a frame."""
    function = f"{__file__}:reads_no_folder"
    with pytest.raises(ConfigurationError, match=r"The function .* failed: \[PATH_NOT_FOUND\] Path does not exist"):
        replace(spec, function=function, arguments={"folder": str(tmp_path / "none")}).call(spark)


def reads_no_folder(spark: SparkSession, interval: Interval, folder: str) -> DataFrame:
    return spark.read.parquet(folder)


@pytest.fixture
def carrying(spec: JobSpec, tmp_path: Path) -> tuple[Path, Path]:
    """A program with its specification within, and the link to it that YARN has in the driver's folder."""
    path, link = tmp_path / "cache" / "program.py", tmp_path / "program.py"
    path.parent.mkdir()
    path.write_text(job.program({**spec.to_dict(), "arguments": {"quoted": 'it\'s "Ü"\n\\ \U0001f4a5'}}))
    link.symlink_to(path)
    return path, link


def test_a_program_runs_the_specification_that_it_has_and_is_gone_before(
    spec: JobSpec, carrying: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[JobSpec] = []

    def run(read: JobSpec) -> Completed:
        assert not any(path.exists() or path.is_symlink() for path in carrying)
        found.append(read)
        return Completed(Run("flights", DAY), 0, "0", 0, False, 0.0)

    monkeypatch.setattr(job, "run", run)
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(carrying[1]), run_name="__main__")
    assert end.value.code == 0
    assert found == [replace(spec, arguments={"quoted": 'it\'s "Ü"\n\\ \U0001f4a5'})]
    assert job.RESULT_PREFIX in capsys.readouterr().out


def test_the_traceback_of_a_program_does_not_show_what_it_carries(
    carrying: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(read: JobSpec) -> Completed:
        carrying[1].write_text(program)  # as if it could not be removed: then the lines of its frames are shown
        raise ValueError("boom")

    program = carrying[0].read_text()
    monkeypatch.setattr(job, "run", run)
    with pytest.raises(ValueError, match="boom") as failure:
        runpy.run_path(str(carrying[1]), run_name="__main__")
    shown = "".join(traceback.format_exception(failure.value))
    assert "sys.exit(carried(SPECIFICATION, __file__))" in shown
    assert SECRET not in shown
