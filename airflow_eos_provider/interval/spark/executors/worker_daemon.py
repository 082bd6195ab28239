"""The process from which Spark forks its Python workers, begun with what interval runs need.

Spark's own takes pyspark out of a zip and compiles it again in each executor, and on a Spark Connect server once for
each session, which it outlives; each worker imports for itself what a task needs. This one takes the installed pyspark,
imports before it forks, and ends after a while without work; Spark starts it again. ``spark.python.daemon.module``
names it, so this package has to be installed in the executors' Python.

It imports only modules that start no thread: a fork copies no thread, and a lock of such a thread stays locked. So the
workers import pyarrow and numpy themselves.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

#: It ends after so many seconds without a worker. Spark ends a worker after a minute without a task.
IDLE_SECONDS = 300.0

#: Another number of seconds, in the environment of the executor.
IDLE_VARIABLE = "EOS_WORKER_DAEMON_IDLE_SECONDS"

_ZIP = "pyspark.zip"
_PY4J_ZIP = "py4j-"

#: What a task imports, but pyarrow and numpy.
NEEDED = (
    "pyspark.worker",
    "airflow_eos_provider.kafka.read.wire_fetcher",
    "airflow_eos_provider.interval.pipeline",
    "airflow_eos_provider.interval.write.slice_writer",
    "airflow_eos_provider.interval.protocol.task",
    "airflow_eos_provider.interval.spark.executors.tasks",
)


def main() -> None:
    """Serve Spark as ``pyspark.daemon`` does."""
    sys.path[:] = without_zips(sys.path)
    for name in NEEDED:
        with contextlib.suppress(ImportError):  # the task that needs it says so
            importlib.import_module(name)
    from pyspark.daemon import manager

    _end_when_idle(float(os.environ.get(IDLE_VARIABLE, IDLE_SECONDS)))
    manager()


def without_zips(path: Sequence[str]) -> list[str]:
    """A search path without the zips of a pyspark that pip has installed: they are copies of what it has installed."""
    return [entry for entry in path if not _is_copy(Path(entry), path)]


def _is_copy(entry: Path, path: Sequence[str]) -> bool:
    if entry.name != _ZIP and not (entry.name.startswith(_PY4J_ZIP) and entry.suffix == ".zip"):
        return False
    package = entry.parents[2] if len(entry.parts) > 3 else entry  # pyspark/python/lib/pyspark.zip
    return package.name == "pyspark" and (package / "__init__.py").exists() and str(package.parent) in path


def _end_when_idle(seconds: float) -> None:
    """End this process once it has had no child for so long.

    Spark notices where it wants the next worker, and starts another; a task that comes in that very moment it tries
    again. A socket of the file system it would not find again: there the process stays.
    """
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower() == "true":
        return
    seen = time.monotonic()

    def look(_signal: int, _frame: object) -> None:
        nonlocal seen
        if _has_child():
            seen = time.monotonic()
        elif time.monotonic() - seen >= seconds:
            os.kill(os.getpid(), signal.SIGTERM)  # pyspark's handler tells the workers

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds / 4, seconds / 4)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL))


def _has_child() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    main()
