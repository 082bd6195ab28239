"""Interval runs without Spark: tasks are plain processes of this machine, slices are byte ranges of text files.

The tests kill and suspend it at every step. It retries a task that
died as Spark does; a task that was fenced is not retried, for its successor is at work.

Run as a module it is one task: the job comes by standard input, for it holds the client's credentials.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import Completed, SliceFigures, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import OnStep, Report, silent
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.write.tally import Tally

#: Rows handed to the writer at once.
_BATCH_ROWS = 5_000

#: A task that died is started again so often, as by Spark's spark.task.maxFailures.
MAX_FAILURES = 4

_POLL_SECONDS = 0.02


def plan_files(run: Run, files: Sequence[Path], slice_bytes: int) -> RunPlan:
    """A plan over lines of text files: each slice is a range of one file that begins and ends at a line.

    :param slice_bytes: how long a slice shall be, about.
    :raises ConfigurationError: a file cannot be read.
    """
    pinned, sources = [], []
    for file in files:
        path = file.absolute()
        stat = _stat(path)
        pinned.append({"path": str(path), "size": stat["size"], "mtime_ns": stat["mtime_ns"]})
        for start, end in _line_ranges(path, stat["size"], slice_bytes):
            sources.append({"path": str(path), "start": start, "end": end, **stat})
    return RunPlan(run, sources, {"kind": "lines", "files": pinned})


def read_lines(part: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """The lines of a slice, each the value of a record without key.

    :raises ConfigurationError: the file is not the one that was planned.
    """
    path = Path(part["path"])
    pinned = {"size": part["size"], "mtime_ns": part["mtime_ns"]}
    _require_unchanged(path, pinned)
    with path.open("rb") as file:
        file.seek(part["start"])
        lines: list[bytes] = []
        while file.tell() < part["end"]:
            lines.append(file.readline().rstrip(b"\n"))
            if len(lines) >= _BATCH_ROWS:
                yield _batch(lines)
                lines = []
        if lines:
            yield _batch(lines)
    _require_unchanged(path, pinned)


def _batch(lines: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary())], names=["value"])


def _line_ranges(path: Path, size: int, slice_bytes: int) -> Iterator[tuple[int, int]]:
    with path.open("rb") as file:
        start = 0
        while start < size:
            file.seek(min(start + slice_bytes, size) - 1)
            file.readline()
            end = min(file.tell(), size)
            yield start, end
            start = end


def _stat(path: Path) -> dict[str, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise ConfigurationError(f"The source file {path} cannot be read: {error.strerror}.") from None
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _require_unchanged(path: Path, pinned: Mapping[str, int]) -> None:
    found = _stat(path)
    if found != pinned:
        raise ConfigurationError(
            f"The source file {path} has changed since the run was planned.",
            expected=f"{pinned['size']} bytes, as they were then",
            remedy="Put the file back as it was; if nothing is committed, give the run up and plan it anew.",
        )


def write_slices(
    pipeline: Pipeline,
    stage: Stage,
    number: int,
    *,
    report: Report = silent,
    on_step: OnStep = silent,
    task_class: type[Task] = Task,
    read: Callable[[Mapping[str, Any]], Iterator[pa.RecordBatch]] = read_lines,
) -> None:
    """One attempt of one task: every slice of it that is not done.

    :param report: receives a line when something is waited for.
    :raises FencedError: a later attempt has taken over.
    """
    with task_class(pipeline, stage, number, report=report, on_step=on_step) as task:
        for part in sorted(task.start()):
            task.write_slice(part, read(stage.slices[part]))


def figures_of_lines(
    pipeline: Pipeline,
    stage: Stage,
    slices: Collection[int],
    read: Callable[[Mapping[str, Any]], Iterator[pa.RecordBatch]] = read_lines,
) -> dict[int, SliceFigures]:
    """The rows of slices, counted and summed up as they would be written.

    :raises ConfigurationError: a file is not the one that was planned.
    """
    return {number: Tally(pipeline, stage.run).take(read(stage.slices[number])) for number in slices}


@dataclass(slots=True)
class _Attempt:
    process: subprocess.Popen[bytes]
    log: Path
    failures: int


class LocalRunner:
    """Runs one interval on this machine.

    :param pipeline: where to write.
    :param run: what.
    :param folder: receives the tasks' logs.
    :param command: starts a task's process; its job follows by standard input.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        run: Run,
        *,
        folder: Path,
        report: Report = silent,
        on_step: OnStep = silent,
        command: Sequence[str] = (sys.executable, "-m", "tests.faults.local_runner"),
        coordinator_class: type[Coordinator] = Coordinator,
    ) -> None:
        self._pipeline = pipeline
        self._run = run
        self._folder = folder
        self._report = report
        self._on_step = on_step
        self._command = list(command)
        self._coordinator_class = coordinator_class
        self._attempts = 0

    def run(self, make_plan: Callable[[], RunPlan], tasks: int) -> Completed:
        """Write the interval, or find it complete.

        :raises FencedError: another driver of this run has taken over.
        :raises InputChangedError: the files have other rows than the slices that are committed.
        :raises EosError: a task failed :data:`MAX_FAILURES` times; the message has the end of its log.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._coordinator_class(
            self._pipeline, self._run, report=self._report, on_step=self._on_step
        ) as coordinator:
            begun = coordinator.begin(make_plan, tasks)
            if isinstance(begun, Completed):
                return begun
            stage = coordinator.compare_input(begun, partial(figures_of_lines, self._pipeline, begun))
            self._run_stage(stage)
            return coordinator.finish(stage)

    def _run_stage(self, stage: Stage) -> None:
        running = {n: self._start(stage, n, 0) for n in range(stage.tasks) if stage.assignment[n]}
        try:
            while running:
                for number, attempt in list(running.items()):
                    code = attempt.process.poll()
                    if code is None:
                        continue
                    if code == 0:
                        del running[number]
                        self._report(f"{self._run}: task {number} is done, {len(running)} tasks left")
                        continue
                    running[number] = self._again(stage, number, attempt, code)
                time.sleep(_POLL_SECONDS)  # between two looks; each task bounds its own waits
        finally:
            for attempt in running.values():
                attempt.process.kill()
                attempt.process.wait()

    def _again(self, stage: Stage, number: int, attempt: _Attempt, code: int) -> _Attempt:
        tail = attempt.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        if code == FencedError.exit_code:
            raise FencedError(f"Task {number} of {self._run} was fenced:\n{tail}")
        if code == ConfigurationError.exit_code:
            raise ConfigurationError(f"Task {number} of {self._run} cannot write:\n{tail}")
        if attempt.failures + 1 >= MAX_FAILURES:
            raise EosError(f"Task {number} of {self._run} failed {MAX_FAILURES} times, the last time:\n{tail}")
        self._report(f"{self._run}: task {number} ended with code {code}; starting it again")
        return self._start(stage, number, attempt.failures + 1)

    def _start(self, stage: Stage, number: int, failures: int) -> _Attempt:
        self._attempts += 1
        log = self._folder / f"task-{number}-{os.getpid()}-{self._attempts}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        assert process.stdin is not None
        job = {"pipeline": self._pipeline.to_dict(), "stage": stage.to_dict(), "task": number, "failures": failures}
        try:
            process.stdin.write(json.dumps(job).encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended at once; its exit code tells
        return _Attempt(process, log, failures)


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # the task's log
    sys.stderr.flush()


def run_task(job: Mapping[str, Any], *, on_step: OnStep = silent, task_class: type[Task] = Task) -> int:
    """One task's process.

    :returns: its exit code.
    """
    try:
        write_slices(
            Pipeline.from_dict(job["pipeline"]),
            Stage.from_dict(job["stage"]),
            job["task"],
            report=_log,
            on_step=on_step,
            task_class=task_class,
        )
    except EosError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(run_task(json.load(sys.stdin)))
