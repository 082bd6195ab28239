"""What interval runs need in the Python of a Spark driver and its executors, and whether it is installed there.

These checks get values only: :mod:`airflow_eos_provider.interval.spark.executor_survey` collects them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow_eos_provider.finding import Finding, Verdict, overall
from airflow_eos_provider.stored import to_json

#: How executors get what they need, for every error that says that one lacks something.
INSTALL_IT = (
    "Install numpy and pyarrow on the workers, for a Python of the driver's minor version; or ship an environment that "
    "has them (spark.archives=env.tar.gz#env, spark.pyspark.python=./env/bin/python): docs/spark/executors.md. "
    "On this machine, set PYSPARK_PYTHON to the driver's own interpreter."
)

#: The same where a worker has this package or kafka-python in another version, or its daemon is not there.
SAME_VERSION = (
    "The driver ships its own versions of this package and kafka-python, but a worker keeps what it has loaded before. "
    "Install the driver's versions there, or leave spark.python.daemon.module out: docs/spark/executors.md."
)

#: The property that names the module from whose process Spark forks Python workers, and ours.
DAEMON_PROPERTY = "spark.python.daemon.module"
DAEMON_MODULE = "airflow_eos_provider.interval.spark.executors.worker_daemon"

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """A package that interval runs need."""

    name: str
    module: str
    least: str = ""
    below: str = ""
    driver: bool = True
    executor: bool = True
    why: str = ""

    @property
    def bounds(self) -> str:
        """The versions that are taken, in words."""
        parts = [f"≥ {self.least}"] * bool(self.least) + [f"< {self.below}"] * bool(self.below)
        return ", ".join(parts) or "any version"


#: Versions of Python that the matrix is run with (docs/reference/versions.md).
PYTHONS = ("3.11", "3.12")

#: Versions of Spark that the matrix is run with.
SPARKS = ("3.5", "4.0", "4.1", "4.2")

#: What the driver ships: driver and executors need one version.
SHIPPED = ("airflow-eos-provider", "kafka-python")

NEEDS = (
    Need(SHIPPED[0], "airflow_eos_provider", why="the same version everywhere: the driver tells the tasks what to do"),
    Need("confluent-kafka", "confluent_kafka", least="2.16.1", executor=False, why="the driver's Kafka client"),
    Need(SHIPPED[1], "kafka", least="3.0.12", below="3.1", why="tasks read and write through its connections"),
    Need("numpy", "numpy", why="rows become records in it, many at a time"),
    Need("pyarrow", "pyarrow", least="18", why="rows cross from Spark to Python in it"),
    Need("pyspark", "pyspark", least="3.5", below="4.3", executor=False, why="executors get Spark's own copy"),
    Need(
        "pandas",
        "pandas",
        least="2.2",
        below="3",
        executor=False,
        why="pyspark wants it for mapInArrow, and never uses it",
    ),
)


@dataclass(frozen=True, slots=True)
class PythonLook:
    """What one look found in one Python, as ``environment.look`` gives it.

    :param place: ``driver``, or ``executor <id>``.
    :param brokers: what came of asking them: their number as text, or why not; None if they were not asked.
    """

    place: str
    host: str
    interpreter: str
    python: str
    packages: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    brokers: str | None = None
    java: str | None = None


def matrix() -> dict[str, Any]:
    """What is supported, as JSON."""
    return {
        "python": list(PYTHONS),
        "spark": list(SPARKS),
        "packages": {
            need.name: {"bounds": need.bounds, "driver": need.driver, "executor": need.executor, "why": need.why}
            for need in NEEDS
        },
    }


def check(place: str, name: str, verdict: Verdict, found: str, remedy: str = "") -> Finding:
    """The answer to one question about one place."""
    return Finding(place, verdict, found, remedy="" if verdict is Verdict.PASS else remedy, kind=name)


def driver_checks(look: PythonLook) -> list[Finding]:
    """Whether this driver can run interval runs."""
    remedy = "Install it into the driver's environment: pip install 'airflow-eos-provider[spark]'."
    checks = [_python(look), *(_package(look, need, remedy) for need in NEEDS if need.driver)]
    return checks + _java(look) + _brokers(look)


def executor_checks(look: PythonLook, driver: PythonLook) -> list[Finding]:
    """Whether an executor can carry out what this driver asks of it."""
    checks = [_same_python(look, driver)]
    checks += [_same_version(_package(look, need, INSTALL_IT), look, driver, need) for need in NEEDS if need.executor]
    return checks + _brokers(look)


def coverage_check(seen: Collection[str], registered: Collection[str] | None, wanted: int | None) -> Finding:
    """Whether every executor has been looked at; those that the driver knows are None where it cannot be asked."""
    answer = partial(check, "cluster", "executors")
    if unseen := sorted(set(registered or ()) - set(seen)):
        found = f"{len(seen)} of {len(registered or ())} executors answered; not {', '.join(unseen)}"
        return answer(Verdict.INCONCLUSIVE, found, "They may be busy with other tasks: raise --timeout.")
    if wanted is not None and len(seen) < wanted:
        found = f"{len(seen)} of {wanted} executors have registered"
        remedy = "Find out why the other executors do not start, or raise --timeout."
        return answer(Verdict.INCONCLUSIVE, found, remedy)
    whole = "all registered ones" if registered is not None else "all that ran a task"
    return answer(Verdict.PASS, f"{len(seen)} checked, {whole}")


def version_of(text: str) -> Version:
    """The numbers that a version begins with."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found.group().split("."))) if found else ()


def minor(text: str) -> str:
    """Its first two numbers."""
    return ".".join(map(str, version_of(text)[:2]))


def _python(look: PythonLook) -> Finding:
    if minor(look.python) in PYTHONS:
        return check(look.place, "Python", Verdict.PASS, f"{look.python} ({look.interpreter})")
    tried = " and ".join(PYTHONS)
    older = version_of(look.python) < version_of(PYTHONS[0])
    verdict = Verdict.FAIL if older else Verdict.INCONCLUSIVE
    return check(look.place, "Python", verdict, f"{look.python}; tested are {tried}", f"Use Python {tried}.")


def _same_python(look: PythonLook, driver: PythonLook) -> Finding:
    if minor(look.python) == minor(driver.python):
        return check(look.place, "Python", Verdict.PASS, f"{look.python} ({look.interpreter})")
    found = f"{look.python}, the driver has {driver.python}: Spark refuses that"
    return check(look.place, "Python", Verdict.FAIL, found, INSTALL_IT)


def _package(look: PythonLook, need: Need, remedy: str) -> Finding:
    found = look.packages.get(need.module)
    if found is None:
        why = look.broken.get(need.module, "it was not checked")
        return check(look.place, need.name, Verdict.FAIL, f"{look.interpreter} cannot import it: {why}", remedy)
    version = version_of(found)
    if not version:
        return check(look.place, need.name, Verdict.INCONCLUSIVE, f"the version {found!r} cannot be parsed", remedy)
    if (need.below and version >= version_of(need.below)) or version < version_of(need.least):
        return check(look.place, need.name, Verdict.FAIL, f"{found}, expected {need.bounds}", remedy)
    return check(look.place, need.name, Verdict.PASS, found)


def _same_version(checked: Finding, look: PythonLook, driver: PythonLook, need: Need) -> Finding:
    found, of_driver = look.packages.get(need.module), driver.packages.get(need.module)
    if not checked.passed or of_driver is None or found == of_driver:
        return checked
    evidence = f"{found}, the driver has {of_driver}"
    if need.name not in SHIPPED:
        return check(look.place, need.name, Verdict.PASS, f"{evidence}; both are within the bounds")
    return check(look.place, need.name, Verdict.FAIL, evidence, SAME_VERSION)


def _java(look: PythonLook) -> list[Finding]:
    if look.java is None:
        return []
    number = re.search(r'version "(\d+)', look.java)
    remedy = "Install a JDK 17 or 21, and set JAVA_HOME where it is not on PATH."
    if number is None:
        return [check(look.place, "Java", Verdict.FAIL, look.java, remedy)]
    least = 17 if version_of(look.packages.get("pyspark", "4")) >= (4,) else 8
    return [check(look.place, "Java", Verdict.PASS if int(number[1]) >= least else Verdict.FAIL, look.java, remedy)]


def _brokers(look: PythonLook) -> list[Finding]:
    if look.brokers is None:
        return []
    if look.brokers.isdecimal():
        return [check(look.place, "brokers", Verdict.PASS, f"{look.brokers} answered to {look.host}")]
    remedy = "Open the way from this host to every broker's advertised listener, and have the files that the client "
    return [check(look.place, "brokers", Verdict.FAIL, look.brokers, remedy + "settings name there, too.")]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was looked at, and the answers."""

    driver: PythonLook
    executors: Sequence[PythonLook]
    checks: Sequence[Finding]
    master: str | None = None

    @property
    def verdict(self) -> Verdict:
        return overall(self.checks)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; docs/spark/executors.md has the keys."""
        return {
            "verdict": str(self.verdict),
            "master": self.master,
            "supported": matrix(),
            "driver": to_json(self.driver),
            "executors": to_json(self.executors),
            "checks": [each.to_dict() for each in self.checks],
        }
