"""One Spark partition as one task of a stage: the half of the Spark front that runs in the executors' Python workers.

Nothing here imports pyspark but :func:`partition_number` and :func:`attempt_number`. The function that Spark ships
(:func:`shipped`) is pickled by value and imports what it needs when it runs, so that an executor that lacks a package
can say so in words.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from airflow_eos_provider import __version__, errors
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceResult, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.sources.source_files import (
    Convert,
    Dropped,
    FileReadOptions,
    PinnedFile,
    read_pinned,
)
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.stored import from_json, to_json

if TYPE_CHECKING:
    import pyarrow as pa

#: A slice's number and what was written; None if it had been done before.
Outcome = tuple[int, SliceResult | None]

#: The column that names a row's slice; added by the driver, taken away before the row is written.
SLICE_COLUMN = "_eos_slice"

#: The column of what a task reports: JSON, a row a slice.
REPORT_COLUMN = "report"

#: An error of this package that crosses from an executor to the driver as text comes behind this word, as JSON.
_ERROR_MARK = "EOS-TASK-ERROR "


def shipped(entry: str, *arguments: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function of batches that Spark can ship to executors that may lack packages.

    A worker that has another version of this package or of kafka-python refuses: it was forked from a daemon that had
    loaded it, or another task of the session did, before the driver's own came.
    """
    import kafka

    wanted = {"airflow_eos_provider": __version__, "kafka": str(kafka.__version__)}

    # Nested, so that Spark's pickler ships its code and not its name, which only a complete executor could resolve.
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import sys

        who = f"The Python of this Spark executor ({sys.executable})"
        try:
            for name, version in wanted.items():
                module = importlib.import_module(name)
                if (found := module.__version__) != version:
                    raise ImportError(f"{who} has {name} {found} ({module.__file__}), and the driver {version}.")
            from airflow_eos_provider.interval.spark.executors import tasks
        except ModuleNotFoundError as error:
            raise ImportError(f"{who} lacks the module {error.name!r}.") from error
        yield from getattr(tasks, entry)(*arguments, batches)

    return run


def write_partition(
    pipeline: Mapping[str, Any], stage: Mapping[str, Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write this partition's rows, those of a slice together, as the task of the same number."""
    return _as_batches(write_rows(pipeline, stage, partition_number(), batches))


def write_empty(
    pipeline: Mapping[str, Any], stage: Mapping[str, Any], tasks: Collection[int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the ledger records of slices without a row."""
    number = partition_number()
    _read_to_end(batches)
    return _as_batches(write_rows(pipeline, stage, number, ())) if number in tasks else iter(())


def write_files(
    pipeline: Mapping[str, Any],
    stage: Mapping[str, Any],
    convert: Convert | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read and write the files of the task of this partition's number, a slice a file."""
    _read_to_end(batches)
    return _as_batches(_write_files(pipeline, stage, partition_number(), convert))


def look_at_login(pipeline: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make the configuration of a client, for which a login may need packages and files that only the driver has."""
    _read_to_end(batches)
    with _marked_errors():
        Pipeline.from_dict(pipeline).kafka.kafka_python()
    return iter(())


def tally_partition(
    pipeline: Mapping[str, Any], run: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count this partition's rows and sum them up by slice; what ``mapInArrow`` runs."""
    tallies: dict[int | None, Tally] = defaultdict(lambda: Tally(Pipeline.from_dict(pipeline), Run.parse(run)))
    with _marked_errors():
        for number, rows in runs_of_slices(map(_sorted_by_slice, batches)):
            tallies[number].count(rows)
    yield _report([number, tally.figures.to_list()] for number, tally in tallies.items())


def tally_files(
    pipeline: Mapping[str, Any],
    run: str,
    slices: Sequence[tuple[int, Mapping[str, Any]]],
    convert: Convert | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the file of this partition's number, and count its rows and sum them up."""
    _read_to_end(batches)
    number, source = slices[partition_number()]
    with _marked_errors():
        figures = Tally(Pipeline.from_dict(pipeline), Run.parse(run)).take(_read_slice(source, convert))
    yield _report([[number, figures.to_list()]])


def _read_to_end(batches: Iterable[pa.RecordBatch]) -> None:
    """Read what is not needed: Spark ends a Python worker that leaves input unread, and starts another one."""
    for _ in batches:
        pass


def _sorted_by_slice(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return batch.take(pc.sort_indices(batch.column(batch.schema.get_field_index(SLICE_COLUMN))))


def _report(rows: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """A batch for the driver, with a text of JSON for each row.

    It is built from bytes. To convert Python objects, Arrow imports pandas if that is installed, which costs each
    Python worker half a second and 50 MB.
    """
    import pyarrow as pa

    texts = [json.dumps(row).encode() for row in rows]
    ends = struct.pack(f"<{len(texts) + 1}i", *itertools.accumulate(map(len, texts), initial=0))
    data = pa.py_buffer(b"".join(texts))
    column = pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), data)
    return pa.RecordBatch.from_arrays([column], names=[REPORT_COLUMN])


def write_rows(
    pipeline: Mapping[str, Any], stage: Mapping[str, Any], number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[Outcome]:
    """Write rows as one task of a stage."""
    with _task(pipeline, stage, number) as (task, plan):
        yield from _write_slices(task, frozenset(plan.assignment[number]), number, batches)


def _write_files(
    pipeline: Mapping[str, Any],
    stage: Mapping[str, Any],
    number: int,
    convert: Convert | None,
) -> Iterator[Outcome]:
    with _task(pipeline, stage, number) as (task, plan):
        to_do = task.start()
        for slice_number in plan.assignment[number]:
            if slice_number not in to_do:
                yield slice_number, None
                continue
            dropped = Dropped()
            records = _read_slice(plan.slices[slice_number], convert, dropped)
            written = task.write_slice(slice_number, records)
            yield slice_number, replace(written, dropped=tuple(dropped.to_list()))


def _read_slice(
    source: Mapping[str, Any],
    convert: Convert | None,
    dropped: Dropped | None = None,
) -> Iterator[pa.RecordBatch]:
    return read_pinned(PinnedFile.from_dict(source["file"]), from_json(FileReadOptions, source), convert, dropped)


@contextlib.contextmanager
def _task(pipeline: Mapping[str, Any], stage: Mapping[str, Any], number: int) -> Iterator[tuple[Task, Stage]]:
    """The task, entered."""
    with _marked_errors():
        plan = Stage.from_dict(stage)
        with Task(Pipeline.from_dict(pipeline), plan, number, attempt=attempt_number()) as task:
            yield task, plan


@contextlib.contextmanager
def _marked_errors() -> Iterator[None]:
    """An error gets the mark by which the driver finds it in Spark's text (:func:`error_within`)."""
    try:
        yield
    except EosError as error:
        kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        error.add_note(_ERROR_MARK + json.dumps([kind, error.found, error.expected, error.remedy]))
        raise


def _as_batches(outcomes: Iterable[Outcome]) -> Iterator[pa.RecordBatch]:
    for number, result in outcomes:
        yield _report([[number, to_json(result)]])


def _write_slices(
    task: Task, mine: frozenset[int], number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[Outcome]:
    to_do, seen = task.start(), set[int]()
    for slice_number, pieces in itertools.groupby(_own_rows(batches, mine, number), key=itemgetter(0)):
        seen.add(slice_number)
        rows = (piece for _, piece in pieces)
        if slice_number in to_do:
            yield slice_number, task.write_slice(slice_number, rows)
        else:
            _read_to_end(rows)
    for slice_number in sorted(to_do - seen):  # no row, but a ledger record all the same: the slice is done
        yield slice_number, task.write_slice(slice_number, ())
    for slice_number in sorted(mine - to_do):
        yield slice_number, None


def _own_rows(
    batches: Iterable[pa.RecordBatch], mine: frozenset[int], number: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a partition, slice by slice: each slice is the task's, and its rows stand together.

    What follows a slice is looked at before the slice's transaction is over: where a foreign row is, a row of this
    slice may be missing.
    """
    left, last = set(mine), None
    for found, rows in runs_of_slices(batches):
        if found is None or (found != last and found not in left):
            raise EosError(
                f"Task {number} of the stage was given a row of slice {found}, which belongs to another task, or whose "
                "other rows came earlier.",
                expected=f"rows of slices {', '.join(map(str, sorted(left))) or '(none)'}, each slice's rows together",
                remedy="This is an error of the package: report it with the plan (DataFrame.explain).",
            )
        left.discard(found)
        last = found
        yield found, rows


def runs_of_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Cut batches where the slice changes."""
    import pyarrow.compute as pc

    for batch in batches:
        if batch.num_rows == 0:
            continue
        position = batch.schema.get_field_index(SLICE_COLUMN)
        numbers = batch.column(position)
        rows = batch.select([name for name in batch.schema.names if name != SLICE_COLUMN])
        first, last = numbers[0].as_py(), numbers[-1].as_py()
        if first == last and numbers.null_count == 0 and pc.min_max(numbers).as_py() == {"min": first, "max": first}:
            yield first, rows  # by far the most
            continue
        encoded = pc.run_end_encode(numbers)
        start = 0
        for number, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
            yield number, rows.slice(start, end - start)
            start = end


def partition_number() -> int:
    """The number of the Spark partition that this worker works on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def attempt_number() -> int:
    """How often Spark has started this task before; 0 outside a Spark task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


def error_within(text: str) -> EosError | None:
    """The error of this package that a Spark error's text names, as an executor raised it; None if there is none."""
    for line in text.splitlines():
        if _ERROR_MARK in line:
            try:
                name, found, expected, remedy = json.JSONDecoder().raw_decode(line.split(_ERROR_MARK, 1)[1])[0]
            except ValueError:  # cut short on the way
                continue
            kind = getattr(errors, name, EosError)
            return kind(found, expected=expected, remedy=remedy) if issubclass(kind, EosError) else None
    return None
