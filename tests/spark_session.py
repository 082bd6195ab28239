"""A Spark session of this process, whose JVM ends with it, so that the next one has its own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def spark_session(properties: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A classic session on the loopback interface."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **(environment or {}),
        }.items():
            patch.setenv(name, value)
        builder: Any = SparkSession.builder
        for name, value in properties.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        gateway: Any = SparkContext._gateway
        try:
            yield session
        finally:
            session.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()  # the JVM ends with its standard input
            gateway.proc.wait(timeout=120)
            SparkContext._gateway = SparkContext._jvm = None


def add_jars(session: Any, jars: Iterable[Path]) -> None:
    """Add jars to the class path of a session of this process that runs already, whose executors are in its JVM.

    They stay until it ends. Spark's own ``ADD JAR`` does not show them to the readers of sources.
    """
    jvm = session._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    for jar in jars:
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
