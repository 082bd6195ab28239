"""What tests of intervals written with Spark share: the jobs, the days, and a pipeline that is held to its source."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import functions as F

from airflow_eos_provider.demo.oracle import Comparison, compare, drain, expected_from_values
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark import write_interval
from airflow_eos_provider.interval.spark.job import JobSpec
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from tests.waiting import until

#: The file of the jobs, as ``spark-submit`` gets it.
JOBS = Path(__file__).with_name("interval_jobs.py")

# No package's module: Spark ships its functions by value.
_specification = importlib.util.spec_from_file_location("interval_jobs", JOBS)
assert _specification is not None
assert _specification.loader is not None
jobs: Any = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(jobs)

DAY = Interval(datetime(2013, 1, 1, 5, tzinfo=UTC), datetime(2013, 1, 2, 5, tzinfo=UTC))


def day(number: int) -> Interval:
    """The day so many days after :data:`DAY`."""
    return Interval(DAY.start + timedelta(days=number), DAY.end + timedelta(days=number))


@dataclass(frozen=True)
class Target:
    """A pipeline of its own with a topic of its own."""

    pipeline: Pipeline

    @classmethod
    def make(cls, lab: Lab, group_id: str, partitions: int = 2, timeout_ms: int = 30_000) -> Target:
        name = f"daily-{uuid.uuid4().hex[:8]}"
        lab.create_topic(name, partitions)
        settings = KafkaSettings.of(lab.bootstrap_servers)
        return cls(Pipeline(name, group_id, settings, topic=name, transaction_timeout_ms=timeout_ms))

    def compare(self, values: Iterable[bytes]) -> Comparison:
        assert self.pipeline.topic is not None
        drained = drain(self.pipeline.kafka, self.pipeline.topic)
        return compare(expected_from_values(values, "the source"), drained)

    def require_exactly_once(self, values: Iterable[bytes]) -> None:
        comparison = self.compare(values)
        assert comparison.exactly_once, comparison
        assert comparison.records > 0

    def values(self) -> list[bytes]:
        """The committed records' values, in no order that matters."""
        return [record.value or b"" for record in read_to_end(self.pipeline.kafka, str(self.pipeline.topic)).records]

    def fail_at_the_last_slice(self, frame: Any, slices: int = 4, key: str = "key") -> list[bytes]:
        """An attempt that commits the slices but the last one, whose rows name a partition that there is not.

        :param key: the column that the slice is taken from.
        :returns: the values that are committed, sorted.
        """
        last = F.pmod(F.xxhash64(key), F.lit(slices)) == slices - 1
        with pytest.raises(ConfigurationError, match="partition 99"):
            write_interval(misplaced(frame, last), self.pipeline, DAY, slices=slices, tasks=1, key=key)
        committed = sorted(self.values())
        assert committed
        return committed

    def wait_for_open_transaction(self, run: Run) -> str:
        """The id of a task that is writing."""
        prefix = self.pipeline.task_id_prefix(run)
        with TransactionsClient(self.pipeline.kafka) as transactions:
            deadline = time.monotonic() + 600
            while time.monotonic() < deadline:
                writing = [i for i in transactions.open_transactions(prefix) if i.removeprefix(prefix).isdigit()]
                if writing:
                    return writing[0]
                time.sleep(0.02)  # it is open for a moment only
        raise AssertionError("no task began a transaction")


@dataclass
class Driver:
    """A driver of its own that writes an interval, as Airflow would start it."""

    process: subprocess.Popen[str]
    out: Path
    log: Path

    @classmethod
    def start(cls, folder: Path, spec: JobSpec) -> Driver:
        """Start it with files of its own in the folder."""
        path, out, log = (folder / f"{uuid.uuid4().hex[:8]}.{end}" for end in ("json", "out", "log"))
        path.touch(mode=0o600)
        path.write_text(json.dumps(spec.to_dict()))
        job = "airflow_eos_provider.interval.spark.job"
        command = [sys.executable, "-m", job, "--delete-spec", "--spec", str(path)]
        with out.open("w") as stdout, log.open("w") as stderr:
            return cls(subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True), out, log)

    def wait(self) -> tuple[int, dict[str, Any]]:
        """Exit code, and what the job reported of itself."""
        code = self.process.wait(timeout=300)
        lines = [line for line in self.out.read_text().splitlines() if line.startswith("EOS-INTERVAL-")]
        assert len(lines) == 1, self.log.read_text()[-3000:]
        return code, json.loads(lines[0].split(" ", 1)[1])

    def kill(self) -> None:
        """SIGKILL to the driver's Python, if it runs; its JVM ends by itself, and with it the workers."""
        if self.process.poll() is None:
            children = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait(timeout=240)
            _, alive = psutil.wait_procs(children, timeout=180)
            assert not alive


@contextmanager
def drivers(folder: Path, spark: Mapping[str, str]) -> Iterator[Callable[..., Driver]]:
    """Starts drivers with these properties of Spark, and kills those that are left."""
    started: list[Driver] = []

    def start(target: Target, interval: Interval, function: str = "numbered", **values: Any) -> Driver:
        spec = JobSpec(target.pipeline, interval, f"{JOBS}:{function}", spark=spark, **values)
        started.append(Driver.start(folder, spec))
        return started[-1]

    yield start
    for driver in started:
        driver.kill()


def misplaced(frame: Any, rows: Any) -> Any:
    """The frame with some rows that cannot be written: they name a partition that there is not."""
    return frame.withColumn("partition", F.when(rows, F.lit(99)))


@dataclass(frozen=True)
class HeldFiles:
    """Three files of an interval; whoever reads the second one is held up until :meth:`go`."""

    folder: Path
    lines: list[bytes]

    @classmethod
    def make(cls, root: Path) -> HeldFiles:
        folder = root / "source"
        folder.mkdir()
        (root / "marks").mkdir()
        lines = []
        for file in range(3):
            content = [f'{{"file":{file},"line":{n}}}'.encode() for n in range(50)]
            (folder / f"2013-{file}.json").write_bytes(b"\n".join(content) + b"\n")
            lines += content
        return cls(folder, lines)

    @property
    def arguments(self) -> dict[str, str]:
        return {"folder": str(self.folder)}

    def wait_for_readers(self, count: int, reading: Future[Any] | None = None) -> list[int]:
        """The processes that are held, of which there are that many.

        :param reading: what they read for; if it ends before, its error is raised.
        """
        marks = self.folder.parent / "marks"

        def are_there() -> bool:
            if reading is not None and reading.done():
                raise AssertionError(f"It ended before it read anything: {reading.exception() or reading.result()}")
            return len(list(marks.iterdir())) >= count

        until(are_there, "readers of the second file", seconds=240, pause=0.02)
        return [int(mark.name) for mark in marks.iterdir()]

    @contextmanager
    def given_up(self) -> Iterator[list[int]]:
        """Raise an error out of a signal of this thread as soon as a reader is held, as Airflow does when a task's time
        is over; the reader's process."""

        class GivenUpError(BaseException):
            pass

        def give_up(*_: Any) -> None:
            raise GivenUpError

        def signal_when_held() -> None:
            readers.extend(self.wait_for_readers(1))
            signal.pthread_kill(here, signal.SIGUSR1)

        here, readers = threading.get_ident(), list[int]()
        before = signal.signal(signal.SIGUSR1, give_up)
        waiting = threading.Thread(target=signal_when_held, daemon=True)
        waiting.start()
        try:
            with pytest.raises(GivenUpError):
                yield readers
            waiting.join()
        finally:
            signal.signal(signal.SIGUSR1, before)

    def go(self) -> None:
        """Hold up nobody any more."""
        (self.folder.parent / "go").touch()

    def let_go(self, reader: int) -> None:
        (self.folder.parent / "marks" / str(reader)).unlink()
