"""A Spark of a script's own, whose JVM ends with the script."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.spark_class_data import ensure_spark_archive
from tests.spark_cluster import jvm_properties
from tests.spark_session import spark_session

#: The executors' Python finds the scripts' functions here.
_ROOT = str(Path(__file__).parents[2])


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder in which tasks leave marks."""
    with tempfile.TemporaryDirectory(prefix="eos-upstream-spark-", ignore_cleanup_errors=True) as text:
        yield Path(text)


def properties_in(folder: Path) -> dict[str, str]:
    """Properties of a Spark on the loopback interface: one task at once, and no second try."""
    ensure_spark_archive(print)
    return {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.executorEnv.PYTHONPATH": _ROOT,
        **jvm_properties(),
    }


@contextmanager
def own_spark(folder: Path, properties: dict[str, str] | None = None) -> Iterator[Any]:
    """A classic session."""
    # The path is also that of the processes beside the driver, in which data sources are planned.
    with spark_session({**properties_in(folder), **(properties or {})}, {"PYTHONPATH": _ROOT}) as session:
        yield session
