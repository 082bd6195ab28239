"""Where the extra of Spark is missing, whatever needs it says so in one sentence."""

from __future__ import annotations

import importlib
import sys

import pytest

PLACES = {
    "airflow_eos_provider.interval.spark:write_interval": "pyspark",
    "airflow_eos_provider.interval.sources:files_source": "pyspark",
    "airflow_eos_provider.operators.interval_run:IntervalRunOperator": "airflow.providers.apache.spark.operators",
    "airflow_eos_provider.decorators.interval_run:interval_run_task": "airflow.providers.apache.spark.operators",
    "airflow_eos_provider.dag_factories:interval_run_dag": "airflow.providers.apache.spark.operators",
}


@pytest.mark.parametrize("place", PLACES)
def test_what_needs_spark_names_the_extra(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is None in sys.modules is one that is not installed."""
    for module in [name for name in sys.modules if name.startswith("airflow_eos_provider.")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [name for name in sys.modules if f"{name}.".startswith(f"{PLACES[place]}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, PLACES[place], None)
    package, _, name = place.partition(":")

    with pytest.raises(ImportError) as missing:
        getattr(importlib.import_module(package), name)

    assert f"the module '{PLACES[place]}" in str(missing.value)
    assert "pip install 'airflow-eos-provider[spark]'" in str(missing.value)
    assert "\n" not in str(missing.value)
