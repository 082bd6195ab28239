"""A Python task that Spark ends gets no exception, and none of its ``finally`` blocks runs.

Spark kills the process of an attempt that is cancelled, or that another attempt has overtaken. What it has begun in
another system, a transaction, stays begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from tests.upstream.own_spark import own_folder, own_spark
from tests.upstream.shown import SECONDS, StartLab
from tests.waiting import until


def show(start: StartLab) -> str:
    with own_folder() as folder, own_spark(folder) as spark, ThreadPoolExecutor(1) as threads:
        begun, ended = folder / "begun", folder / "ended"
        frame = spark.range(0, 1, 1, 1).mapInArrow(_begins(str(begun), str(ended)), "id long")
        running = threads.submit(frame.collect)
        until(lambda: begun.exists() and begun.read_text(), "the task to begin", seconds=SECONDS)
        process = int(begun.read_text())
        spark.sparkContext.cancelAllJobs()
        until(lambda: not psutil.pid_exists(process), "the end of its process", seconds=SECONDS)
        until(running.done, "the end of the job", seconds=SECONDS)
        assert running.exception() is not None
        assert not ended.exists(), ended.read_text()
    return "the job was cancelled, the task's process is gone, and its finally block has not run"


def _begins(begun: str, ended: str) -> Callable[[Any], Any]:
    def task(batches: Any) -> Any:
        import os

        try:
            Path(begun).write_text(str(os.getpid()))
            time.sleep(600)
            yield from batches
        finally:
            Path(ended).write_text("the finally block")

    return task
