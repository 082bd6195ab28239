"""What an executor does with the rows of its partition, without Spark."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, RefusedError
from airflow_eos_provider.interval.messages import SliceResult, Stage
from airflow_eos_provider.interval.spark.executors import tasks
from airflow_eos_provider.interval.spark.executors.tasks import SLICE_COLUMN, error_within, runs_of_slices, shipped
from airflow_eos_provider.interval.spark.slicing import REPORTS
from airflow_eos_provider.interval.topics.pins import TopicChangedError
from airflow_eos_provider.stored import from_json


def _batch(numbers: list[int | None], first: int = 0) -> pa.RecordBatch:
    values = [f"row {first + position} of {number}".encode() for position, number in enumerate(numbers)]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, type=pa.binary()), pa.array(numbers, type=pa.int32())], names=["value", SLICE_COLUMN]
    )


def _rows(pieces: Iterable[tuple[int | None, pa.RecordBatch]]) -> list[tuple[int | None, bytes]]:
    return [(number, value) for number, rows in pieces for value in rows.column("value").to_pylist()]


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_cut_where_the_slice_changes_and_no_row_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    numbers = [[chance.choice([0, 0, 0, 1, 7, None]) for _ in range(chance.randrange(6))] for _ in range(5)]
    batches = [_batch(inner, 100 * position) for position, inner in enumerate(numbers)]
    found = _rows(runs_of_slices(batches))
    assert found == [
        (number, f"row {100 * position + place} of {number}".encode())
        for position, inner in enumerate(numbers)
        for place, number in enumerate(inner)
    ]


class RecordingTask:
    """A task that keeps what it is given; a slice counts once its rows came to their end, as a commit would."""

    def __init__(self, to_do: set[int]) -> None:
        self.to_do = to_do
        self.committed: dict[int, int] = {}

    def start(self) -> set[int]:
        return set(self.to_do)

    def write_slice(self, number: int, batches: Iterable[pa.RecordBatch]) -> str:
        rows = sum(batch.num_rows for batch in batches)
        self.committed[number] = rows
        return f"{rows} rows"


def _write(task: RecordingTask, mine: set[int], batches: Iterable[pa.RecordBatch]) -> list[tuple[int, Any]]:
    written: Iterator[Any] = tasks._write_slices(task, frozenset(mine), 0, batches)  # type: ignore[arg-type]
    return list(written)


def test_each_slice_is_written_once_and_an_empty_one_too() -> None:
    task = RecordingTask({1, 2, 4})
    outcomes = _write(task, {1, 2, 3, 4}, [_batch([1, 1, 2]), _batch([2, 3])])
    assert outcomes == [(1, "2 rows"), (2, "2 rows"), (4, "0 rows"), (3, None)]  # 3 had been done


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([1, 9], id="a row of another task at the end"),
        pytest.param([9, 1], id="at the beginning"),
        pytest.param([1, None], id="a row of no slice"),
    ],
)
def test_no_slice_is_committed_beside_a_row_that_is_not_the_tasks(numbers: list[int | None]) -> None:
    """Where a row came to the wrong place, a row of this slice may be in another: it must not count as done."""
    task = RecordingTask({1})
    with pytest.raises(EosError, match="belongs to another task"):
        _write(task, {1}, [_batch([number]) for number in numbers])
    assert task.committed == {}


def test_rows_of_a_slice_that_do_not_stand_together_stop_the_task() -> None:
    with pytest.raises(EosError, match="came earlier"):
        _write(RecordingTask({1, 2}), {1, 2}, [_batch([1, 2, 1])])


@pytest.mark.parametrize("kind", [EosError, FencedError, ConfigurationError, TopicChangedError])
def test_an_error_is_found_again_in_sparks_text(kind: type[EosError], monkeypatch: pytest.MonkeyPatch) -> None:
    error = kind("Found\nthis.", expected="that", remedy="Do it.")
    monkeypatch.setattr(Stage, "from_dict", lambda _: (_ for _ in ()).throw(error))
    with pytest.raises(kind), tasks._task({}, {}, 0):
        pass
    text = f"org.apache.spark.SparkException: Job aborted\n{''.join(traceback.format_exception(error))}\n\tat java.x"
    again = error_within(text)
    known = RefusedError if kind is TopicChangedError else kind  # what is not among the package's common errors
    assert type(again) is known, "the kind decides whether a run is tried again"
    assert (again.found, again.expected, again.remedy) == (error.found, error.expected, error.remedy)


def test_other_text_holds_no_error() -> None:
    assert error_within("java.lang.OutOfMemoryError\nEOS-TASK-ERROR [cut sh") is None


def test_what_is_shipped_needs_nothing_of_this_package_to_be_unpacked() -> None:
    """Spark's pickler would otherwise name the function, and an executor without the package fail for its name only."""
    from pyspark import cloudpickle

    content = cloudpickle.dumps(shipped("write_empty", {}, {}, []))
    code = f"import sys, pickle; sys.modules['airflow_eos_provider'] = None; print(pickle.loads({content!r}).__name__)"
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "run", done.stderr


def test_a_slices_figures_cross_to_the_driver() -> None:
    """Of a slice that had been done before there are none."""
    seconds = {"read": 0.5, "produce": 1.0, "flush": 0.25, "commit": 0.125}
    written = SliceResult(3, 10, 99, "ab", 2.0, dropped=(1, 2, 3, 4), null_keys=2, stage_seconds=seconds)

    first, second = tasks._as_batches([(3, written), (4, None)])

    assert first.schema.names == REPORTS.names
    assert pa.types.is_string(first.schema.field(0).type)
    number, document = json.loads(first.column(0)[0].as_py())
    assert (number, from_json(SliceResult, document)) == (3, written)
    assert json.loads(second.column(0)[0].as_py()) == [4, None]


def test_what_a_task_reports_does_not_import_pandas() -> None:
    """Each Python worker would take half a second for it, and 50 MB."""
    program = (
        "import sys; from airflow_eos_provider.interval.spark.executors import tasks; import pyarrow as pa; "
        "batch = tasks._report([[1, None], [2, {'ü': 1}], []]); batch.validate(full=True); "
        "print(batch.num_rows, batch.column(0)[1], 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[0] == '3 [2, {"\\u00fc": 1}] False'


@pytest.mark.parametrize(
    "entry",
    [
        lambda batches: tasks.write_empty({}, {}, (), batches),
        lambda batches: tasks.write_files({}, {}, None, batches),
        lambda batches: next(tasks.tally_files({}, "", [], None, batches)),
    ],
    ids=["write_empty", "write_files", "tally_files"],
)
def test_what_a_task_does_not_need_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, entry: Callable[[Iterator[pa.RecordBatch]], object]
) -> None:
    """Spark ends a Python worker that leaves input unread; a backfill would start new ones for each interval."""
    monkeypatch.setattr(tasks, "partition_number", lambda: 0)
    batches = iter([_batch([0]), _batch([1])])

    with contextlib.suppress(IndexError):  # of the slices, of which there are none
        entry(batches)

    assert list(batches) == []
