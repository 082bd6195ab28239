"""Interval runs without Spark: slices are byte ranges of text files, a line is a record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceFigures, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import OnStep, Report, silent
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.write.tally import Tally

#: Rows handed to the writer at once.
_BATCH_ROWS = 5_000


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
