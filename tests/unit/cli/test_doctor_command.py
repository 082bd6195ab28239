"""``eos intervals doctor`` without Spark: this Python, the supported versions, and wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_eos_provider.cli.app import app
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.spark import executor_survey


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["intervals", "doctor", *arguments])


def test_this_driver_has_what_it_needs() -> None:
    ended = run("--json")

    assert ended.exit_code == 0, ended.output
    document = json.loads(ended.stdout)
    assert document["verdict"] == "pass"
    assert document["master"] is None
    assert document["executors"] == []
    assert document["supported"]["spark"] == ["3.5", "4.0", "4.1", "4.2"]
    assert {check["subject"] for check in document["checks"]} == {"driver"}


def test_in_words() -> None:
    ended = run()

    assert ended.exit_code == 0
    assert "kafka-python ≥ 3.0.12, < 3.1  (driver and executors)" in ended.stdout
    assert "Executors were not checked" in ended.stdout


def test_brokers_that_do_not_answer_end_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_survey.environment, "_BROKER_SECONDS", 0.5)
    ended = run("--bootstrap-servers", "127.0.0.1:1", "-o", "name")

    assert ended.exit_code == 1
    assert ended.stdout.split() == ["driver"]


@pytest.mark.parametrize("target", [("--master", "spark://127.0.0.1:1"), ("--remote", "sc://127.0.0.1:1/;token=x")])
def test_a_master_where_nobody_listens(target: tuple[str, str]) -> None:
    ended = run(*target)

    assert ended.exit_code == 5
    assert "Nobody answers" in ended.stdout
    assert "token" not in ended.stdout


def test_a_driver_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = executor_survey.environment.look

    def look(*arguments: Any) -> dict[str, Any]:
        found = whole(*arguments)
        del found["packages"]["pyspark"]
        return found

    monkeypatch.setattr(executor_survey.environment, "look", look)
    ended = run("--master", "local[1]")

    assert isinstance(ended.exception, ConfigurationError)
    assert "airflow-eos-provider[spark]" in str(ended.exception)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--master", "local[1]", "--remote", "sc://x"], None),
        (["--client-file", "x"], None),
        (["--conf", "spark.executor.memory"], ConfigurationError),
    ],
)
def test_wrong_use(arguments: list[str], error: type[Exception] | None, tmp_path: Path) -> None:
    ended = run(*arguments)

    if error is None:
        assert ended.exit_code == 2
    else:
        assert isinstance(ended.exception, error)
