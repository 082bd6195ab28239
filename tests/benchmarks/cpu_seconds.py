"""Which processes a piece of work keeps busy, in CPU seconds: Spark's JVM, its Python workers, the broker, this one.

Only this benchmark's own processes count: those that it started, and the broker of its lab.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from airflow_eos_provider.interval.spark.executors.needs import DAEMON_MODULE

#: By what is in a process's command line.
_KINDS = {
    "kafka.Kafka": "broker",
    "SparkSubmit": "Spark's JVM",
    "pyspark.daemon": "Python workers",
    DAEMON_MODULE: "Python workers",
}

#: A process that ends is counted as far as it was seen, so it is looked at so often, seconds.
_LOOK_SECONDS = 0.25


class CpuSeconds:
    """Counts while it is entered.

    :ivar spent: CPU seconds, user's and system's, by kind of process.
    """

    def __init__(self, lab: Path) -> None:
        self._lab = str(lab)
        self.spent: Counter[str] = Counter()
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = self._look()
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()
            self.spent = self._look()
            self.spent.subtract(before)

    def text(self, per: float = 1.0) -> str:
        """The seconds in words."""
        parts = [f"{kind} {seconds / per:.1f}" for kind, seconds in sorted(self.spent.items())]
        return f"{self.spent.total() / per:.1f} CPU s ({', '.join(parts)})"

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> Counter[str]:
        started = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
        for process in psutil.process_iter(["pid", "cmdline", "cpu_times", "create_time"]):
            words, times = " ".join(process.info["cmdline"] or []), process.info["cpu_times"]
            kind = next((kind for word, kind in _KINDS.items() if word in words), None)
            kind = "this process" if process.info["pid"] == os.getpid() else kind
            if kind and times and (process.info["pid"] in started or self._lab in words):
                key = (process.info["pid"], process.info["create_time"])
                self._seen[key] = (kind, times.user + times.system)
        found: Counter[str] = Counter()
        for kind, seconds in self._seen.values():
            found[kind] += seconds
        return found
