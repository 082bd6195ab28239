"""A package's public names cost nothing until they are used; one that needs a missing extra says so in one sentence."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

PLACES = {
    "pyspark": (
        "airflow_eos_provider.interval.spark:write_interval",
        "airflow_eos_provider.interval.sources:files_source",
    ),
    "airflow.providers.apache.spark.operators": (
        "airflow_eos_provider.operators:IntervalRunOperator",
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


#: What others are made of.
BASES = {"ApprovedOperator", "AuditOperator", "DeferrableSensor", "LookOperator", "RightsOperator"}

PACKAGES = [
    f"airflow_eos_provider.{name}"
    for name in ("dag_factories", "hooks", "interval", "notifications", "operators", "sensors")
]


def test_importing_the_packages_or_the_changes_imports_no_client_and_not_airflow() -> None:
    """Every DAG file and every help text read the declarations of the changes."""
    modules = [*PACKAGES, "airflow_eos_provider.changes.declared"]
    heavy = {"airflow", "confluent_kafka", "httpx", "kafka", "pyspark", "typer", "yaml"}
    code = f"import sys, {', '.join(modules)}; print(sorted({heavy} & set(sys.modules)))"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert asked.stdout.strip() == "[]"


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_name_is_where_its_package_says(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError):
        _ = module.no_such_name


def test_each_operator_and_sensor_is_public() -> None:
    """A new class belongs into its package's public names."""
    for kind, base in (("operators", "Operator"), ("sensors", "Sensor")):
        package = importlib.import_module(f"airflow_eos_provider.{kind}")
        found = {
            name
            for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
            for name, each in vars(importlib.import_module(module.name)).items()
            if name.endswith(base) and not name.startswith("_") and each.__module__ == module.name
        }
        assert found - BASES == set(package.__all__)
