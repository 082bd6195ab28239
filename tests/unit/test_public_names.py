"""Where the extra of Spark is missing, whatever needs it says so in one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLACES = {
    "pyspark": (
        "airflow_eos_provider.interval.spark:write_interval",
        "airflow_eos_provider.interval.sources:files_source",
    ),
    "airflow.providers.apache.spark.operators": (
        "airflow_eos_provider.operators.interval_run:IntervalRunOperator",
        "airflow_eos_provider.decorators.interval_run:interval_run_task",
        "airflow_eos_provider.dag_factories:interval_run_dag",
    ),
}


#: A module that is None in sys.modules is one that is not installed. In a process of its own: a second import of this
#: package would leave two of each module to the tests behind.
ASK = """
import importlib, sys
missing, *places = sys.argv[1:]
sys.modules[missing] = None
for place in places:
    package, _, name = place.partition(":")
    try:
        getattr(importlib.import_module(package), name)
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize("missing", PLACES)
def test_what_needs_spark_names_the_extra(missing: str) -> None:
    command = [sys.executable, "-c", ASK, missing, *PLACES[missing]]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = asked.stdout.splitlines()
    assert len(lines) == len(PLACES[missing]), asked.stderr
    for line in lines:
        assert f"the module '{missing}" in line
        assert "pip install 'airflow-eos-provider[spark]'" in line
