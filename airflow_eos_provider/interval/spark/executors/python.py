"""Which Python the executors start, and how, if no setting says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE, DAEMON_PROPERTY

#: Where pyspark's driver takes it from; spark-submit sets it by the property.
_VARIABLE = "PYSPARK_PYTHON"
_PROPERTY = "spark.pyspark.python"

_MASTER = "spark.master"

#: spark-submit tells the driver by it where its JVM listens.
_GATEWAY = "PYSPARK_GATEWAY_PORT"


def master_of(properties: Mapping[str, str]) -> str:
    """Spark's master: as given, as spark-submit was given it, or of the session that there is; else this machine."""
    if found := properties.get(_MASTER) or _submitted().get(_MASTER):
        return found
    from pyspark import SparkConf

    return str(SparkConf().get(_MASTER, "local"))


def choose_executor_python(properties: Mapping[str, str], master: str) -> None:
    """Set it as spark-submit would: by the property, the environment, or the driver's own where the master is local."""
    if python := properties.get(_PROPERTY):
        os.environ[_VARIABLE] = python
    elif master.startswith("local"):
        # Spark would take the python3 of PATH for its workers, which need not be the one with our packages.
        os.environ.setdefault(_VARIABLE, sys.executable)


def daemon_property(properties: Mapping[str, str]) -> dict[str, str]:
    """The property by which workers start faster, where they are known to have the driver's own Python, and so this
    package: with a local master. Where the property is set already, or the session is remote, there is nothing to add.
    """
    known = {**_submitted(), **properties}
    is_local = known.get(_MASTER, "").startswith("local") and os.environ.get(_VARIABLE) == sys.executable
    is_free = known.keys().isdisjoint({DAEMON_PROPERTY, "spark.remote"})
    return {DAEMON_PROPERTY: DAEMON_MODULE} if is_local and is_free else {}


def _submitted() -> dict[str, str]:
    """The properties that spark-submit was given; a ``SparkConf`` has them only once the way to its JVM is open."""
    if _GATEWAY not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())
