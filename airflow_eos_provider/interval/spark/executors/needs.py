"""What interval runs need in the Python of a Spark driver and its executors, and whether it is installed there.

These checks get values only: :mod:`airflow_eos_provider.interval.spark.executor_survey` collects them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_eos_provider.finding import Finding, Verdict, overall

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

#: Oldest pandas that mapInArrow of each Spark takes; it asks for it on the driver alone (``pandas/utils.py``).
PANDAS = {"3.5": "1.0.5", "4.0": "2.0.0", "4.1": "2.2.0", "4.2": "2.2.0"}

#: What the driver ships: driver and executors need one version.
SHIPPED = ("airflow-eos-provider", "kafka-python")

NEEDS = (
    Need(SHIPPED[0], "airflow_eos_provider", why="the same version everywhere: the driver tells the tasks what to do"),
    Need("confluent-kafka", "confluent_kafka", least="2.16.1", executor=False, why="the driver's Kafka client"),
    Need(SHIPPED[1], "kafka", least="3.0.12", below="3.1", why="tasks read and write through its connections"),
    Need("numpy", "numpy", why="rows become records in it, many at a time"),
    Need("pyarrow", "pyarrow", least="18", why="rows cross from Spark to Python in it"),
    Need("pyspark", "pyspark", least="3.5", below="4.3", executor=False, why="executors get Spark's own copy"),
    Need("pandas", "pandas", executor=False, why="pyspark asks for it where mapInArrow is called, and never uses it"),
)


@dataclass(frozen=True, slots=True)
class PythonLook:
    """What one look found in one Python.

    :param daemon: the module from whose process Spark has forked it; None if that is not known.
    :param brokers: what came of asking them: their number as text, or why not; None if they were not asked.
    """

    place: str
    host: str
    interpreter: str
    python: str
    packages: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    librdkafka: str = ""
    task: str = ""
    daemon: str | None = None
    brokers: str | None = None
    java: str | None = None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> PythonLook:
        """As :func:`airflow_eos_provider.interval.spark.executors.environment.look` gives it."""
        return cls(**document)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def matrix() -> dict[str, Any]:
    """What is supported, as JSON."""
    return {
        "python": list(PYTHONS),
        "spark": list(SPARKS),
        "pandas_on_the_driver": {spark: f"≥ {least}, < 3" for spark, least in PANDAS.items()},
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
    checks = [_python(look), *(_package(look, need, remedy) for need in NEEDS if need.driver and need.name != "pandas")]
    checks += [_pandas(look), _librdkafka(look)]
    return checks + _java(look) + _brokers(look)


def executor_checks(look: PythonLook, driver: PythonLook) -> list[Finding]:
    """Whether an executor can carry out what this driver asks of it."""
    checks = [_same_python(look, driver)]
    checks += [_same_version(_package(look, need, INSTALL_IT), look, driver, need) for need in NEEDS if need.executor]
    checks += _daemon(look)
    if look.task and all(each.passed for each in checks):
        checks.append(check(look.place, "task", Verdict.FAIL, f"a task cannot be imported: {look.task}", INSTALL_IT))
    return checks + _brokers(look)


def coverage_check(seen: Collection[str], registered: Collection[str] | None, wanted: int | None) -> Finding:
    """Whether every executor has been looked at."""
    count = f"{len(seen)} of "
    unseen = sorted(set(registered or ()) - set(seen))
    if unseen:
        return check(
            "cluster",
            "executors",
            Verdict.INCONCLUSIVE,
            f"{count}{len(registered or ())} executors answered; not {', '.join(unseen)}",
            "They may be busy with other tasks: raise --timeout.",
        )
    if wanted is not None and len(seen) < wanted:
        return check(
            "cluster",
            "executors",
            Verdict.INCONCLUSIVE,
            f"{count}{wanted} executors have registered",
            "Find out why the other executors do not start, or raise --timeout.",
        )
    whole = "all registered ones" if registered is not None else "all that ran a task"
    return check("cluster", "executors", Verdict.PASS, f"{len(seen)} checked, {whole}")


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
    return check(
        look.place,
        "Python",
        Verdict.FAIL,
        f"{look.python}, the driver has {driver.python}: Spark refuses that",
        INSTALL_IT,
    )


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


def _pandas(look: PythonLook) -> Finding:
    spark = minor(look.packages.get("pyspark", ""))
    need = Need("pandas", "pandas", least=PANDAS.get(spark, PANDAS[SPARKS[-1]]), executor=False)
    remedy = f"pip install 'pandas>={need.least},<3' for the driver; executors need none."
    checked = _package(look, need, remedy)
    if checked.passed and version_of(look.packages["pandas"]) >= (3,):
        evidence = f"{look.packages['pandas']}; Spark {spark or 'here'} says that it does not fully support pandas 3"
        return check(look.place, "pandas", Verdict.INCONCLUSIVE, evidence, remedy)
    return checked


def _librdkafka(look: PythonLook) -> Finding:
    if look.librdkafka:
        return check(look.place, "librdkafka", Verdict.PASS, look.librdkafka)
    why = look.broken.get("confluent_kafka", "confluent-kafka has not loaded it")
    remedy = "Install confluent-kafka from its wheel for this machine's platform (glibc, processor) and Python."
    return check(look.place, "librdkafka", Verdict.FAIL, f"it does not load: {why}", remedy)


def _daemon(look: PythonLook) -> list[Finding]:
    """Workers do the same from either; from Spark's own they start in three times the CPU time."""
    if look.daemon is None:
        return []
    faster = f"{DAEMON_PROPERTY}={DAEMON_MODULE}, where this package is installed (docs/spark/executors.md)"
    evidence = look.daemon if look.daemon == DAEMON_MODULE else f"{look.daemon}. Faster starts: {faster}"
    return [check(look.place, "worker daemon", Verdict.PASS, evidence)]


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
            "driver": self.driver.to_dict(),
            "executors": [look.to_dict() for look in self.executors],
            "checks": [each.to_dict() for each in self.checks],
        }
