"""What Spark's Python workers are forked from, without Spark; with it, see tests/integration/test_worker_daemon.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE, DAEMON_PROPERTY
from airflow_eos_provider.interval.spark.executors.python import daemon_property
from airflow_eos_provider.interval.spark.executors.worker_daemon import (
    without_zips,
)


def test_nothing_that_is_imported_before_the_fork_starts_a_thread_or_is_missing() -> None:
    program = (
        "import importlib, os, sys; from airflow_eos_provider.interval.spark.executors import worker_daemon as d; "
        "[importlib.import_module(name) for name in d.NEEDED]; "
        "print(len(os.listdir('/proc/self/task')), [m for m in ('pyarrow', 'numpy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "1 []"


@pytest.mark.parametrize("installed", [True, False], ids=["by pip", "a distribution"])
def test_zips_are_left_out_where_they_are_copies_of_what_is_installed(tmp_path: Path, installed: bool) -> None:
    home = tmp_path / ("pyspark" if installed else "spark-4.2.0")
    zips = home / "python" / "lib"
    zips.mkdir(parents=True)
    (home / "__init__.py").touch()
    given = [str(zips / "pyspark.zip"), str(zips / "py4j-0.10.9.9-src.zip"), "/a/job.zip", "", str(tmp_path)]
    for name in given[:2]:
        Path(name).touch()
    assert without_zips(given) == (given[2:] if installed else given)


def test_zips_stay_where_what_they_are_copies_of_is_not_looked_for(tmp_path: Path) -> None:
    zips = tmp_path / "pyspark" / "python" / "lib"
    zips.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    assert without_zips([str(zips / "pyspark.zip"), "/elsewhere"]) == [str(zips / "pyspark.zip"), "/elsewhere"]


OURS = {DAEMON_PROPERTY: DAEMON_MODULE}


@pytest.mark.parametrize(
    ("properties", "python", "expected"),
    [
        ({"spark.master": "local[2,4]"}, sys.executable, OURS),
        ({"spark.master": "local"}, "/opt/other/bin/python", {}),
        ({"spark.master": "spark://master:7077"}, sys.executable, {}),
        ({}, sys.executable, {}),
        ({"spark.master": "local", DAEMON_PROPERTY: "another"}, sys.executable, {}),
        ({"spark.remote": "sc://server"}, sys.executable, {}),
    ],
)
def test_workers_of_this_very_python_start_from_it(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], python: str, expected: dict[str, str]
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    assert daemon_property(properties) == expected
