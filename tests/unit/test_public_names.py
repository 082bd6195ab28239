"""Where the extra of Spark is missing, whatever needs it says so in one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLACES = {
    "airflow_eos_provider.interval.spark:write_interval": "pyspark",
    "airflow_eos_provider.interval.sources:files_source": "pyspark",
    "airflow_eos_provider.operators.interval_run:IntervalRunOperator": "airflow.providers.apache.spark.operators",
    "airflow_eos_provider.decorators.interval_run:interval_run_task": "airflow.providers.apache.spark.operators",
    "airflow_eos_provider.dag_factories:interval_run_dag": "airflow.providers.apache.spark.operators",
}


#: A module that is None in sys.modules is one that is not installed. In a process of its own: a second import of this
#: package would leave two of each module to the tests behind.
ASK = """
import importlib, sys
missing, package, name = sys.argv[1:]
sys.modules[missing] = None
try:
    getattr(importlib.import_module(package), name)
except ImportError as error:
    sys.stdout.write(str(error))
"""


@pytest.mark.parametrize("place", PLACES)
def test_what_needs_spark_names_the_extra(place: str) -> None:
    package, _, name = place.partition(":")
    command = [sys.executable, "-c", ASK, PLACES[place], package, name]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert f"the module '{PLACES[place]}" in asked.stdout, asked.stderr
    assert "pip install 'airflow-eos-provider[spark]'" in asked.stdout
    assert "\n" not in asked.stdout
