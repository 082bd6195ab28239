"""A Spark session of this process for a benchmark, whose JVM ends with it, so that the next one has its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CORES = 2


@contextmanager
def local_spark(folder: Path, memory: str, class_path: str = "") -> Iterator[Any]:
    """
    :param folder: of Spark's own files.
    :param memory: of the JVM, as Spark writes it.
    :param class_path: more for it.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Python workers compile each module anew where it is set
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    properties = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.local.dir": str(folder),
        **({"spark.driver.extraClassPath": class_path} if class_path else {}),
    }
    builder: Any = SparkSession.builder.master(f"local[{CORES}]")
    for name, value in properties.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    gateway: Any = SparkContext._gateway
    try:
        yield spark
    finally:
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
        SparkContext._gateway = SparkContext._jvm = None
