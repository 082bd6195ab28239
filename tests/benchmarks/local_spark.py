"""The Spark session of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.spark_session import spark_session

CORES = 2


@contextmanager
def local_spark(folder: Path, memory: str, class_path: str = "") -> Iterator[Any]:
    """A session on this machine alone; its JVM may find more classes."""
    properties = {
        "spark.master": f"local[{CORES}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.local.dir": str(folder),
        **({"spark.driver.extraClassPath": class_path} if class_path else {}),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(
            "PYTHONDONTWRITEBYTECODE", raising=False
        )  # Python workers compile each module anew where it is set
        with spark_session(properties) as session:
            yield session
