"""What a look at a driver and at executors found, and the answers that it gets."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from airflow_eos_provider.finding import Finding, Verdict, overall
from airflow_eos_provider.interval.spark.executors import environment
from airflow_eos_provider.interval.spark.executors.needs import (
    NEEDS,
    PYTHONS,
    SHIPPED,
    SPARKS,
    Diagnosis,
    PythonLook,
    check as answer,
    coverage_check,
    driver_checks,
    executor_checks,
)
from tests.matrix import COMBINATIONS

_PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[5] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]

VERSIONS = {
    "airflow_eos_provider": "0.1.0",
    "confluent_kafka": "2.16.1",
    "kafka": "3.0.12",
    "numpy": "2.0.0",
    "pyarrow": "18.0.0",
    "pyspark": "4.2.0",
    "pandas": "2.3.3",
}
DRIVER = PythonLook("driver", "here", "/env/bin/python", "3.11.7", VERSIONS, java='openjdk version "17.0.1"')
EXECUTOR = PythonLook("executor 0", "there", "./env/bin/python", "3.11.9", VERSIONS)


def without(look: PythonLook, module: str) -> PythonLook:
    left = {name: version for name, version in look.packages.items() if name != module}
    return replace(look, packages=left, broken={module: f"ModuleNotFoundError: No module named {module!r}"})


def having(look: PythonLook, **versions: str) -> PythonLook:
    return replace(look, packages={**look.packages, **versions})


def answers(checks: list[Finding]) -> dict[str, Verdict]:
    return {check.kind: check.verdict for check in checks if check.verdict is not Verdict.PASS}


def test_the_bounds_are_those_of_the_project() -> None:
    asked = [*_PROJECT["dependencies"], *_PROJECT["optional-dependencies"]["spark"]]
    wanted = {requirement.name: requirement.specifier for requirement in map(Requirement, asked)}
    for need in NEEDS:
        if need.name in ("airflow-eos-provider", "numpy", "pandas"):  # the extra gets these two with the Spark provider
            continue
        least = "4.0" if need.name == "pyspark" else need.least  # 3.5 is without the extra
        bounds = [f">={least}"] * bool(least) + [f"<{need.below}"] * bool(need.below)
        assert SpecifierSet(",".join(bounds)) == wanted[need.name], need.name


def test_what_is_called_supported_is_what_the_matrix_runs() -> None:
    assert {each.python for each in COMBINATIONS} == set(PYTHONS)
    assert set(SPARKS) <= {each.spark.removeprefix("==").removesuffix(".*") for each in COMBINATIONS}


def test_what_has_everything_passes() -> None:
    assert answers(driver_checks(DRIVER)) == {}
    assert answers(executor_checks(EXECUTOR, DRIVER)) == {}


@pytest.mark.parametrize("need", [need for need in NEEDS if need.driver], ids=lambda need: need.name)
def test_a_driver_that_lacks_a_package(need: Any) -> None:
    checks = driver_checks(without(DRIVER, need.module))

    assert answers(checks) == {need.name: Verdict.FAIL}
    (failed,) = (check for check in checks if check.kind == need.name)
    assert "No module named" in failed.found
    assert "pip install" in failed.remedy


@pytest.mark.parametrize(
    ("versions", "name", "verdict"),
    [
        ({"pyspark": "4.3.0"}, "pyspark", Verdict.FAIL),
        ({"pyspark": "3.4.1"}, "pyspark", Verdict.FAIL),
        ({"pandas": "2.1.0"}, "pandas", Verdict.FAIL),
        ({"pandas": "3.0.1"}, "pandas", Verdict.FAIL),
        ({"kafka": "3.1.0"}, "kafka-python", Verdict.FAIL),
        ({"pyarrow": "17.0.0"}, "pyarrow", Verdict.FAIL),
        ({"confluent_kafka": "2.16.0"}, "confluent-kafka", Verdict.FAIL),
        ({"pyarrow": "dev"}, "pyarrow", Verdict.INCONCLUSIVE),
    ],
)
def test_versions_out_of_bounds(versions: dict[str, str], name: str, verdict: Verdict) -> None:
    assert answers(driver_checks(having(DRIVER, **versions))) == {name: verdict}


@pytest.mark.parametrize(
    ("python", "verdict"), [("3.10.4", Verdict.FAIL), ("3.12.1", None), ("3.13.0", Verdict.INCONCLUSIVE)]
)
def test_a_python_that_was_not_tried(python: str, verdict: Verdict | None) -> None:
    assert answers(driver_checks(replace(DRIVER, python=python))).get("Python") == verdict


@pytest.mark.parametrize(
    ("java", "passes"), [('openjdk version "11.0.2"', False), ('java version "21"', True), ("there is no java", False)]
)
def test_java(java: str, passes: bool) -> None:
    assert answers(driver_checks(replace(DRIVER, java=java))) == ({} if passes else {"Java": Verdict.FAIL})


@pytest.mark.parametrize("need", [need for need in NEEDS if need.executor], ids=lambda need: need.name)
def test_an_executor_that_lacks_a_package(need: Any) -> None:
    checks = executor_checks(without(EXECUTOR, need.module), DRIVER)

    assert answers(checks) == {need.name: Verdict.FAIL}
    assert "docs/spark/executors.md" in next(check.remedy for check in checks if check.kind == need.name)


def test_an_executor_needs_no_pandas_and_no_pyspark_of_its_own() -> None:
    assert answers(executor_checks(without(without(EXECUTOR, "pandas"), "pyspark"), DRIVER)) == {}


def test_an_executor_with_another_python_or_another_version_of_what_is_shipped() -> None:
    assert answers(executor_checks(replace(EXECUTOR, python="3.12.1"), DRIVER)) == {"Python": Verdict.FAIL}
    others = executor_checks(having(EXECUTOR, airflow_eos_provider="0.0.9", kafka="3.0.99"), DRIVER)
    assert answers(others) == dict.fromkeys(SHIPPED, Verdict.FAIL)


def test_another_version_within_the_bounds_passes_and_is_told() -> None:
    checks = executor_checks(having(EXECUTOR, pyarrow="26.0.1"), DRIVER)

    assert answers(checks) == {}
    assert "26.0.1, the driver has 18.0.0" in next(check.found for check in checks if check.kind == "pyarrow")


def test_brokers_that_answered_or_did_not() -> None:
    assert answers(executor_checks(replace(EXECUTOR, brokers="3"), DRIVER)) == {}
    assert answers(executor_checks(replace(EXECUTOR, brokers="no answer"), DRIVER)) == {"brokers": Verdict.FAIL}


@pytest.mark.parametrize(
    ("seen", "registered", "wanted", "verdict"),
    [
        ({"executor 0"}, {"executor 0"}, None, Verdict.PASS),
        ({"executor 0"}, {"executor 0", "executor 1"}, None, Verdict.INCONCLUSIVE),
        ({"executor 0"}, {"executor 0"}, 2, Verdict.INCONCLUSIVE),
        ({"executor 0"}, None, None, Verdict.PASS),
        ({"executor 0", "executor 1"}, {"executor 1"}, 1, Verdict.PASS),
    ],
)
def test_whether_every_executor_was_looked_at(
    seen: set[str], registered: set[str] | None, wanted: int | None, verdict: Verdict
) -> None:
    assert coverage_check(seen, registered, wanted).verdict is verdict


def test_the_worst_answer_counts() -> None:
    checks = [answer("driver", "Python", verdict, "found", "do this") for verdict in Verdict]

    assert overall(checks) is Verdict.FAIL
    assert overall([checks[0], checks[2]]) is Verdict.INCONCLUSIVE
    assert overall(checks[:1]) is Verdict.PASS
    document = Diagnosis(DRIVER, [EXECUTOR], checks, "local[2]").to_dict()
    assert document["verdict"] == "fail"
    assert [check["remedy"] for check in document["checks"]] == ["", "do this", "do this"]
    assert document["executors"][0]["host"] == "there"


def test_a_look_at_this_python_finds_what_is_here_and_says_why_else() -> None:
    found = PythonLook(**environment.look(["json", "no_such_module"]))

    assert found.packages.keys() == {"json"}
    assert found.broken == {"no_such_module": "ModuleNotFoundError: No module named 'no_such_module'"}
    assert found.brokers is None


def test_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_BROKER_SECONDS", 0.5)
    found = PythonLook(**environment.look([], {"bootstrap.servers": "127.0.0.1:1"}))

    assert found.brokers is not None
    assert not found.brokers.isdecimal()
    assert "127.0.0.1:1" in found.brokers


_ON_AN_EXECUTOR = '''
import importlib, importlib.abc, sys
from airflow_eos_provider.interval.spark.executors import needs, worker_daemon

there = {need.module.partition(".")[0] for need in needs.NEEDS if need.executor} | {"pyspark", "py4j"}

class OnlyThose(importlib.abc.MetaPathFinder):
    """Hides each other module, as if it were not installed."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in there | {"airflow_eos_provider"} | sys.stdlib_module_names:
            return self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(OnlyThose, sys.meta_path)
for name in (*worker_daemon.NEEDED[1:], "airflow_eos_provider.interval.sources.source_files"):
    importlib.import_module(name)
print("imported")
'''


def test_a_task_imports_nothing_but_what_executors_are_said_to_need() -> None:
    """An executor has the packages of docs/spark/executors.md, and none that the rest of this package needs."""
    done = subprocess.run([sys.executable, "-c", _ON_AN_EXECUTOR], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("imported"), done.stderr[-1500:]
