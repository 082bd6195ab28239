"""Spark writes an interval: a DataFrame's rows by the slice of a stable key, or source files a slice each.

The driver is the run's coordinator, a Spark partition is a task. All that exactly-once rests on is in
:mod:`airflow_eos_provider.interval.protocol`; this module only ensures that a task gets exactly the rows of its own
slices. Each task checks that of every row, so no order of Spark's optimizer, no version and no setting can do
worse than an error.

*Speculation.* A Python task writes before Spark's commit coordinator is asked, so a speculative copy would be a second
writer. The protocol fences one of the two, whichever comes later wins: right, but wasted work, and failed attempts that
count. So where ``spark.speculation`` is on, the stage runs as a barrier stage, which Spark never speculates on.

*Spark Connect.* The coordinator is in this process all the same, and the tasks are on the server's executors. What is
asked of Spark's driver is asked in another way (:mod:`~airflow_eos_provider.interval.spark.sessions`,
:mod:`~airflow_eos_provider.interval.spark.plans.connect_plan`), and what cannot be known there is refused, or proven by
evaluating the input once more.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, UnreachableError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed, SliceFigures, SliceResult, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import Report, silent
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.record_columns import RECORD_COLUMNS
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.sources.files import Dropped, FileSet, require_planned_files
from airflow_eos_provider.interval.spark.executors.tasks import REPORT_COLUMN, SLICE_COLUMN, shipped
from airflow_eos_provider.interval.spark.files import (
    FILES,
    FileGroups,
    FilesSource,
    pinned_files,
    require_narrow,
    require_still_pinned,
)
from airflow_eos_provider.interval.spark.frozen_rows import figures_of_files, figures_of_rows, frozen
from airflow_eos_provider.interval.spark.plans.classic_plan import refuse_unstable
from airflow_eos_provider.interval.spark.plans.connect_plan import refuse_unstable_remote
from airflow_eos_provider.interval.spark.reruns import StageWatch
from airflow_eos_provider.interval.spark.sessions import (
    awaited,
    functions_of,
    interruptible,
    is_remote,
    parallelism,
    quoted,
)
from airflow_eos_provider.interval.spark.spark_errors import explained, is_of_spark, require_pandas, spark_errors
from airflow_eos_provider.interval.topics.ledger import NO_DIGEST

#: What tasks report, as JSON. Spark's JVM parses a schema in words, by forty questions of the driver's.
REPORTS = StructType([StructField(REPORT_COLUMN, StringType())])

#: A slice costs a transaction, a Spark partition and an entry in the plan. With 10,000 slices the plan is about 0.5 MB,
#: which fits a record of the broker's default size (1 MiB) even uncompressed.
MAX_SLICES = 10_000

#: What decides a row's slice.
SLICES_BY = ("key", "files")

#: A cluster's first executor comes within this time, seconds; Spark's own first task waits half of it for the others.
_EXECUTOR_SECONDS = 60.0
_POLL_SECONDS = 0.1


def write_interval(
    frame: DataFrame | FilesSource,
    pipeline: Pipeline,
    interval: Interval,
    *,
    spark: SparkSession | None = None,
    revision: int = 1,
    slices: int | None = None,
    key: str | Sequence[str] = "key",
    slices_by: str = "key",
    tasks: int | None = None,
    pin_inputs: bool = True,
    began_at: datetime | None = None,
    selects_by_bounds: bool = False,
    allow_before_end: bool = False,
    report: Report = silent,
) -> Completed:
    """Write an interval's records into Kafka exactly once; a no-op if that is done already.

    :param frame: the records, with the columns ``value`` (required), ``key``, ``headers``, ``topic``, ``partition`` and
        ``timestamp``, types as in :data:`RECORD_COLUMNS`, any others are left out; or pinned files, which are read by
        the tasks themselves, a slice a file, without a shuffle.
    :param pipeline: where to write.
    :param interval: which interval the records are of.
    :param spark: the session; only needed for files, where the active one is taken otherwise.
    :param revision: 2 or more writes a complete interval again, as a separate run.
    :param slices: how many slices the rows are put into, by ``pmod(xxhash64(key), slices)``: 1 to
        :data:`MAX_SLICES`, the session's parallelism if not given. A run keeps the number that it was begun with.
    :param key: the frame's columns that decide a row's slice, written or not. They have to be the same in every
        attempt, so what depends on chance, on the clock or on the order of arrival is refused. Null has a hash
        as any value has: rows in whose key all columns are null are of one slice.
    :param slices_by: ``key``; or ``files``: groups of whole files are slices, about as large as one another, and
        ``key`` is ignored. Rows stay in their task, so there is no shuffle. It takes a frame that reads files once
        and takes each row by itself (:func:`~airflow_eos_provider.interval.spark.files.require_narrow`); a slice
        is read by one task, so there are at most as many as files.
    :param tasks: how many tasks write; as many as slices if not given.
    :param pin_inputs: hold the files that a DataFrame reads to what they were when the run was begun. Without it a
        retry after a change may leave out rows, or write old and new ones side by side.
    :param began_at: a moment, with a time zone, before anything of the input was looked up: before its files were
        listed and the DataFrame was made. What ``files_source`` returns carries its own. Without it no interval within
        this one is complete with it, because rows may have arrived between the listing and the interval's end.
    :param selects_by_bounds: the input has all rows from the interval's start to its end, however wide the interval is.
        Only then, and only with ``began_at``, every interval within this one is complete with it. Leave it out if the
        input comes from a path or a partition that is named by the start alone (``day={interval.start:%Y-%m-%d}``).
    :param allow_before_end: write the interval although it has not ended by this machine's clock. Rows that come later
        are never written, and no interval within it counts as complete.
    :param report: receives lines of progress.
    :returns: ``run``, ``records``, ``digest``, ``slices``, ``already`` (it was complete before), ``ended`` (the
        intervals within it are complete, too) and ``seconds``.
    :raises ConfigurationError: columns, key or settings are not usable; a source file has changed since the run began;
        the interval has not ended, or had not when its input was looked up.
    :raises RefusedError: the interval overlaps another one of this pipeline.
    :raises InputChangedError: slices are committed, and the rows of this attempt have not the same count and digest
        there; the slice and both figures are named, and nothing is written. Or Spark has lost a part of the rows with
        an executor, and its second evaluation has others: the run is not completed.
    :raises FencedError: another driver runs this interval now. Do not retry automatically.
    :raises EosError: the stage failed; what it committed stays, and the next attempt writes the rest.
    """
    require_pandas()
    run = Run(pipeline.name, interval, revision)
    known = _looked_up_at(frame, interval, began_at, selects_by_bounds, allow_before_end)
    with spark_errors(f"The preparation of {run.name}"):
        if isinstance(frame, FilesSource):
            work: _Work = _Files(frame, spark or SparkSession.active())
        elif require_slices_by(slices_by) == "files":
            work = _FileRows(frame, slices, pin_inputs)
        else:
            work = _Rows(frame, [key] if isinstance(key, str) else list(key), slices, pin_inputs)
        return awaited(work.spark, partial(_write, work, pipeline, run, known, tasks, report))


def _looked_up_at(
    frame: object, interval: Interval, began_at: datetime | None, selects_by_bounds: bool, allow_before_end: bool
) -> float | None:
    """When the input was looked up at the earliest, seconds since the epoch; None if parts must not rely on it.

    :raises ConfigurationError: the interval has not ended, or had not then.
    """
    listed_at = frame.listed_at if isinstance(frame, FilesSource) else None
    moments = [moment for moment in (began_at, listed_at) if moment is not None]
    if any(moment.tzinfo is None for moment in moments):
        raise ConfigurationError(f"began_at is {began_at}, without a time zone.", remedy="Take datetime.now(UTC).")
    now = interval.require_ended(allow_before_end)
    looked_up = min([*moments, now])
    if looked_up < interval.end and not allow_before_end:
        raise interval.not_ended(looked_up)
    if selects_by_bounds and isinstance(frame, FilesSource) and not frame.by_bounds:
        raise ConfigurationError(
            "selects_by_bounds is given, and the path of the files names the interval's start or end.",
            expected="files that are selected by time_column or modified, from a path that is the same for all",
            remedy="Leave selects_by_bounds out; a wide interval would have the files of its first part only.",
        )
    return looked_up.timestamp() if moments and selects_by_bounds else None


def _write(
    work: _Work, pipeline: Pipeline, run: Run, began_at: float | None, tasks: int | None, report: Report
) -> Completed:
    """Write one run."""
    work.check()
    wanted = work.tasks(tasks)
    with interruptible(work.spark), Coordinator(pipeline, run, began_at=began_at, report=report) as coordinator:
        stage = coordinator.begin(lambda: work.plan(run), wanted, rows_have_times=work.rows_have_times)
        if isinstance(stage, Completed):
            return stage
        work.follow(stage, coordinator.plan_source)
        with _stage_errors(coordinator, stage):
            stage = coordinator.compare_input(stage, partial(work.figures, pipeline, stage))
        again = None
        done = _run_stage(work, pipeline, stage, coordinator, report)
        if doubt := work.doubt(done.doubt):
            report(f"{doubt}, so the input is evaluated once more before the run is complete")
            again = partial(work.figures_again, pipeline, stage)
        work.require_same_inputs()
        with _stage_errors(coordinator, stage):
            return coordinator.finish(stage, again, written=done.written, seconds=done.seconds)


class _Work:
    """What is written: how it is planned, and the frame whose partitions are the tasks of a stage."""

    spark: SparkSession

    #: Whether rows name their time, as far as the columns tell.
    rows_have_times = False

    def check(self) -> None:
        """Refuse what could not be written."""

    def plan(self, run: Run) -> RunPlan:
        raise NotImplementedError

    def slice_count(self) -> int:
        raise NotImplementedError

    def follow(self, stage: Stage, source: Mapping[str, Any]) -> None:
        """Take over what the plan says, which an earlier attempt may have made.

        :param source: what the plan pinned.
        """

    def figures(self, pipeline: Pipeline, stage: Stage, slices: Collection[int]) -> dict[int, SliceFigures]:
        """Count and digests of the rows that slices have in this attempt; what is written afterwards are these rows."""
        raise NotImplementedError

    def doubt(self, of_stage: str | None) -> str | None:
        """Why what was written may be of two evaluations with different rows; None if it is not.

        :param of_stage: why the stage may have read two evaluations.
        """
        return None

    def figures_again(self, pipeline: Pipeline, stage: Stage, slices: Collection[int]) -> dict[int, SliceFigures]:
        """Count and digests of the rows that slices have in one more evaluation, after the stage."""
        raise NotImplementedError

    def require_same_inputs(self) -> None:
        """Check, after the stage, that it has read what the plan pinned."""

    def results(self, pipeline: Pipeline, stage: Stage, barrier: bool) -> DataFrame:
        """The frame that writes when it is collected; a row a slice."""
        raise NotImplementedError

    def tasks(self, wanted: int | None) -> int:
        """How many tasks to run.

        :raises ConfigurationError: a barrier stage is needed, and more tasks are asked for than run at once.
        """
        count = max(1, min(wanted or self.slice_count(), self.slice_count()))
        if not speculates(self.spark):
            return count
        slots = _slots(self.spark)
        if wanted is not None and count > slots:
            raise ConfigurationError(
                f"{wanted} tasks were requested, but only {slots} run at once, and spark.speculation is on.",
                expected="as many tasks as run at once, since the stage is then a barrier stage",
                remedy="Ask for fewer tasks, or set spark.speculation=false.",
            )
        return min(count, slots)


class _Rows(_Work):
    """Rows of a DataFrame, by the slice of a stable key."""

    def __init__(self, frame: DataFrame, key: list[str], slices: int | None, pin_inputs: bool) -> None:
        require_frame(frame)
        self.pin_inputs = pin_inputs
        self.frame = frame
        self.key = key
        self.spark = frame.sparkSession
        self.count = _slice_count(slices, self.spark)
        self.frozen: DataFrame | None = None
        self.doubt_of_frozen: str | None = None
        #: Whether every evaluation has the same rows for certain, as far as the plan goes.
        self.is_certain = False

    def check(self) -> None:
        require_columns(self.frame, self.key)
        self.rows_have_times = "timestamp" in self.frame.columns
        self.is_certain = _refuse_unstable(self.frame, self.key)

    def _sliced(self) -> DataFrame:
        return sliced(self.frame, self.key, self.count)

    def slice_count(self) -> int:
        return self.count

    def _sources(self, count: int) -> list[dict[str, Any]]:
        return [{"xxhash64": key_types(self.frame, self.key), "of": count}] * count

    def plan(self, run: Run) -> RunPlan:
        files = self._pinned.to_plan() if self.pin_inputs else {}
        return RunPlan.of(run, self._sources(self.count), {"kind": "rows", **files})

    @cached_property
    def _pinned(self) -> FileSet:
        """Listed once before the stage, whether the plan is made here or was made before."""
        return pinned_files(self.frame)

    def follow(self, stage: Stage, source: Mapping[str, Any]) -> None:
        if self.pin_inputs:
            require_planned_files(self._pinned.to_plan(), source)
        self.count = len(stage.slices)
        found, wanted = [dict(piece.source) for piece in stage.slices], self._sources(self.count)
        if found != wanted:
            raise ConfigurationError(
                f"The run {stage.run.name} was started with other slices: {_in_words(found)}.",
                expected=f"slices like {wanted[0] if wanted else 'none'}",
                remedy="Run it with the original key, or abandon it if none of its slices is committed.",
            )

    def figures(self, pipeline: Pipeline, stage: Stage, slices: Collection[int]) -> dict[int, SliceFigures]:
        slots = _slots(self.spark) if speculates(self.spark) else None
        with StageWatch(self.spark) as watch:
            self.frozen = frozen(self._sliced(), copied_up_to=slots)
        self.doubt_of_frozen = watch.doubt()
        return figures_of_rows(self.frozen, pipeline, stage.run, slices)

    def doubt(self, of_stage: str | None) -> str | None:
        if self.is_certain and self.pin_inputs:
            return None
        return of_stage if self.frozen is None else self.doubt_of_frozen

    def figures_again(self, pipeline: Pipeline, stage: Stage, slices: Collection[int]) -> dict[int, SliceFigures]:
        return figures_of_rows(self._sliced(), pipeline, stage.run, slices)

    def require_same_inputs(self) -> None:
        if self.pin_inputs:
            require_still_pinned(self.frame, self._pinned)

    def results(self, pipeline: Pipeline, stage: Stage, barrier: bool) -> DataFrame:
        rows = self.frozen or self._sliced()
        rows = _by_task(rows, stage)
        if any(len(slices) > 1 for slices in stage.assignment):
            rows = rows.sortWithinPartitions(SLICE_COLUMN)
        function = shipped("write_partition", pipeline.to_dict(), stage.to_dict())
        return rows.mapInArrow(function, REPORTS, barrier=barrier)


class _FileRows(_Work):
    """Rows of a DataFrame over files, by groups of whole files."""

    def __init__(self, frame: DataFrame, slices: int | None, pin_inputs: bool) -> None:
        require_frame(frame)
        if is_remote(frame):
            raise ConfigurationError(
                "slices_by='files' is given with a DataFrame of Spark Connect, whose plan cannot be looked at in full.",
                expected="a DataFrame of a classic session",
                remedy="Leave slices_by out; or read Parquet files or lines by files_source(), a slice a file.",
            )
        if not pin_inputs:
            raise ConfigurationError(
                "pin_inputs=False is given with slices_by='files'.",
                expected="files that must not change: they decide which row is in which slice",
                remedy="Leave pin_inputs out, or slices_by.",
            )
        self.frame = frame
        self.spark = frame.sparkSession
        self.wanted = _slice_count(slices, self.spark)

    def check(self) -> None:
        require_columns(self.frame, ())
        require_narrow(self.frame)
        self.rows_have_times = "timestamp" in self.frame.columns
        if speculates(self.spark):
            raise ConfigurationError(
                "spark.speculation is on, and files cannot be slices in the barrier stage that this takes.",
                remedy="Set spark.speculation=false, or leave slices_by='files' out.",
            )

    @cached_property
    def groups(self) -> FileGroups:
        """Of the files as they are when the write begins."""
        return FileGroups(self.frame, record_columns(self.frame), self.wanted)

    def slice_count(self) -> int:
        return len(self.groups.groups)

    def plan(self, run: Run) -> RunPlan:
        return RunPlan.of(run, self.groups.sources(), {"kind": "file groups"})

    def follow(self, stage: Stage, source: Mapping[str, Any]) -> None:
        self.groups.follow(stage.slices)

    def figures(self, pipeline: Pipeline, stage: Stage, slices: Collection[int]) -> dict[int, SliceFigures]:
        return figures_of_rows(self.groups.rows_of(slices), pipeline, stage.run, slices)

    def require_same_inputs(self) -> None:
        require_still_pinned(self.frame, self.groups.pinned)

    def results(self, pipeline: Pipeline, stage: Stage, barrier: bool) -> DataFrame:
        function = shipped("write_file_groups", pipeline.to_dict(), stage.to_dict())
        results = self.groups.rows_by_task(stage).mapInArrow(function, REPORTS)
        self.groups.require_layout(results, stage)
        return results


class _Files(_Work):
    """Pinned files, each read by the task that has it as a slice."""

    def __init__(self, source: FilesSource, spark: SparkSession) -> None:
        self.source = source
        self.spark = spark

    def slice_count(self) -> int:
        return len(self.source.files)

    def plan(self, run: Run) -> RunPlan:
        return RunPlan(run, self.source.slices(), {"kind": "files"})

    def follow(self, stage: Stage, source: Mapping[str, Any]) -> None:
        self.source.require_planned(stage.slices)

    def figures(self, pipeline: Pipeline, stage: Stage, slices: Collection[int]) -> dict[int, SliceFigures]:
        return figures_of_files(self.spark, self.source, pipeline, stage, slices)

    def require_same_inputs(self) -> None:
        self.source.require_in_place()

    def results(self, pipeline: Pipeline, stage: Stage, barrier: bool) -> DataFrame:
        numbers = self.spark.range(0, len(stage.assignment), 1, len(stage.assignment))
        function = shipped("write_files", pipeline.to_dict(), stage.to_dict(), self.source.convert)
        return numbers.mapInArrow(function, REPORTS, barrier=barrier)


def _in_words(slices: Sequence[Mapping[str, Any]]) -> str:
    """Slices as a plan has them, without the names of all their files."""
    if not slices:
        return "none"
    return "groups of whole files (slices_by='files')" if FILES in slices[0] else str(dict(slices[0]))


def require_slices_by(slices_by: str) -> str:
    """
    :raises ConfigurationError: it is not one of :data:`SLICES_BY`.
    """
    if slices_by not in SLICES_BY:
        raise ConfigurationError(f"slices_by is {slices_by!r}.", expected=" or ".join(SLICES_BY))
    return slices_by


def _slice_count(wanted: int | None, spark: SparkSession) -> int:
    return _require_slice_count(wanted) if wanted is not None else min(parallelism(spark), MAX_SLICES)


def _require_slice_count(count: int) -> int:
    """
    :raises ConfigurationError: it is less than 1 or more than :data:`MAX_SLICES`.
    """
    if not 1 <= count <= MAX_SLICES:
        raise ConfigurationError(
            f"{count} slices were requested.",
            expected=f"1 to {MAX_SLICES}: each slice is a transaction of its own",
            remedy="Set slices to a few for each task that writes at once.",
        )
    return count


def require_frame(frame: object) -> None:
    """Check that there is a DataFrame to write.

    :raises ConfigurationError: it is something else, as None from a function without ``return``; or it is of the Spark
        Connect of pyspark 3.
    """
    if not isinstance(frame, DataFrame):
        raise ConfigurationError(
            f"Expected a DataFrame to write, got {'None' if frame is None else f'a {type(frame).__name__}'}.",
            expected="a DataFrame of Spark, or what files_source() returns",
            remedy="Let the function end with: return <the DataFrame>.",
        )


def require_columns(frame: DataFrame, key: Sequence[str]) -> None:
    """Check that the frame has the columns of a record, and the key's.

    :raises ConfigurationError: a column is missing or there twice, or its type is none that is written.
    """
    _require_one_of_each(frame, {"value", *key, *RECORD_COLUMNS})
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    for name in ("value", *key):
        if name not in types:
            raise ConfigurationError(
                f"The DataFrame has no column {name!r}; it has {', '.join(types) or 'none'}.",
                expected="value, the columns of the slices' key, and any of " + ", ".join(RECORD_COLUMNS),
                remedy="Name the record's columns by select(...), or the key's by key=…",
            )
    for name in key:
        if unhashable := re.search(r"\b(?:map(?=<)|variant\b)", frame.schema[name].dataType.simpleString()):
            raise ConfigurationError(
                f"The key's column {name!r} is or has a {unhashable[0]}, of which Spark takes no hash.",
                expected="columns of other types: the key's hash decides a row's slice",
                remedy="Name other columns by key=…, or make text of it and name that (to_json(…)).",
            )
    for name, column in RECORD_COLUMNS.items():
        if name in types and types[name] not in column.spark_types:
            raise ConfigurationError(
                f"The column {name!r} is of type {types[name]}.",
                expected=" or ".join(column.spark_types),
                remedy=f"Cast it, or make text of it (to_json(struct(…))), or drop it; the column {name!r} of the "
                "frame is the record's own.",
            )


def _require_one_of_each(frame: DataFrame, wanted: Collection[str]) -> None:
    """Check that each of these names is one column's, as Spark compares names, and that a record's are spelled so."""
    exact = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    names = [field.name if exact else field.name.lower() for field in frame.schema]
    for name in wanted:
        if names.count(name if exact else name.lower()) > 1:
            raise ConfigurationError(
                f"The DataFrame has more than one column {name!r}: {', '.join(frame.columns)}.",
                expected="one column of that name",
                remedy="Select one of them, or rename the others (withColumnRenamed, or an alias after a join).",
            )
    for name in () if exact else frame.columns:
        if name.lower() in RECORD_COLUMNS and name not in RECORD_COLUMNS:
            raise ConfigurationError(
                f"The DataFrame has a column {name!r}, which Spark takes for {name.lower()!r}.",
                expected=f"{name.lower()!r}, if it is a column of the record; {name!r} would be left out",
                remedy=f"Rename it: to {name.lower()!r}, or to a name that no column of a record has.",
            )


def key_types(frame: DataFrame, key: Sequence[str]) -> list[str]:
    """The key's columns with their types: the hash of a number is not that of its text."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    return [f"{name} {types[name]}" for name in key]


def sliced(frame: DataFrame, key: Sequence[str], count: int) -> DataFrame:
    """The record's columns, and the slice."""
    F = functions_of(frame)
    number = F.pmod(F.xxhash64(*map(quoted, key)), F.lit(count)).cast("int")
    return frame.select(*record_columns(frame), number.alias(SLICE_COLUMN))


def _refuse_unstable(frame: DataFrame, key: Sequence[str]) -> bool:
    """Refuse a frame whose rows depend on chance; whether the plan shows that they do not, whatever happens."""
    if is_remote(frame):
        return refuse_unstable_remote(frame, key)
    refuse_unstable(frame, key)
    return False  # nor does it matter: there Spark reports whether it has evaluated anything again


def record_columns(frame: DataFrame) -> list[Column]:
    """The columns of a record that the frame has. Text becomes bytes, which Python takes from Arrow without decoding
    them."""
    F = functions_of(frame)
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    return [
        F.col(name).cast("binary").alias(name) if name in ("key", "value") and types[name] == "string" else F.col(name)
        for name in RECORD_COLUMNS
        if name in types
    ]


def _by_task(rows: DataFrame, stage: Stage) -> DataFrame:
    """Move each row to the partition of the task that writes its slice; rows of committed slices are left out."""
    if stage.assignment == tuple((number,) for number in range(len(stage.slices))):
        return to_tasks(rows, SLICE_COLUMN, len(stage.slices))
    task_of = {number: task for task, numbers in enumerate(stage.assignment) for number in numbers}
    # As text, for each expression made in Python is a question to Spark's JVM or two, whatever the number of slices.
    numbers = ", ".join(str(task_of.get(number, "null")) for number in range(len(stage.slices)))
    task = functions_of(rows).expr(f"element_at(cast(array({numbers}) as array<int>), {SLICE_COLUMN} + 1)")
    rows = rows.withColumn("_eos_task", task).where("_eos_task is not null")
    return to_tasks(rows, "_eos_task", len(stage.assignment)).drop("_eos_task")


def to_tasks(rows: DataFrame, column: str, count: int) -> DataFrame:
    """Move each row to the partition that its column names."""
    F = functions_of(rows)
    if hasattr(rows, "repartitionById"):  # Spark 4.1
        return rows.repartitionById(count, F.col(column))
    # Older ones hash the column; so give them numbers whose hash is the partition that is meant.
    tried = rows.sparkSession.range(0, 64 * count + 64).select(F.col("id").cast("int").alias("number"))
    places = tried.select("number", F.pmod(F.hash("number"), F.lit(count)).alias("place"))
    found = {row.place: row.number for row in places.groupBy("place").agg(F.min("number").alias("number")).collect()}
    numbers = [F.lit(found[place]) for place in range(count)]
    routed = rows.withColumn("_eos_route", F.element_at(F.array(*numbers), F.col(column) + 1))
    return routed.repartition(count, "_eos_route").drop("_eos_route")


@dataclass(frozen=True, slots=True)
class _StageDone:
    """A stage whose tasks have ended well.

    :param doubt: why they may have read more than one evaluation of the input, None if they have not.
    """

    doubt: str | None = None
    written: tuple[SliceResult, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def _run_stage(work: _Work, pipeline: Pipeline, stage: Stage, coordinator: Coordinator, report: Report) -> _StageDone:
    """Run the tasks; afterwards every slice of the stage has its ledger record."""
    to_do = sum(len(numbers) for numbers in stage.assignment)
    if not to_do:
        return _StageDone()
    barrier = speculates(work.spark)
    report(f"Spark writes {to_do} of {len(stage.slices)} slices in {len(stage.assignment)} tasks")
    with StageWatch(work.spark) as watch:
        written = _collect(work.results(pipeline, stage, barrier), coordinator, stage, report)
    doubt = watch.doubt() if written else None  # a frame that is known to be empty has no job to ask about
    waited = watch.shuffle_seconds() if written else None
    # Spark leaves out partitions that it knows to be empty. Each row that there was has been seen by the task of its
    # slice, so a slice that no task has reported is empty; its ledger record is still to be written.
    missing = [task for task, numbers in enumerate(stage.assignment) if set(numbers) - written.keys()]
    if missing:
        empty = work.spark.range(0, len(stage.assignment), 1, len(stage.assignment))
        function = shipped("write_empty", pipeline.to_dict(), stage.to_dict(), missing)
        written |= _collect(empty.mapInArrow(function, REPORTS, barrier=barrier), coordinator, stage, report)
    results = tuple(result for result in written.values() if result is not None)
    return _StageDone(doubt, results, {} if waited is None else {"shuffle": waited})


def _collect(
    results: DataFrame, coordinator: Coordinator, stage: Stage, report: Report
) -> dict[int, SliceResult | None]:
    """Run a frame that writes; what it reports of each slice, None of one that had been done before."""
    with _stage_errors(coordinator, stage):
        reports = [json.loads(row[0]) for row in results.collect()]
    found = {number: _result_of(document) for number, document in reports}
    written = [result for result in found.values() if result is not None]
    dropped = Dropped()
    for result in written:
        dropped.add(Dropped(*result.dropped))
    if dropped.without_time:
        report(f"{stage.run}: {dropped.without_time} source rows have no time, so they are left out of every interval")
    if dropped.outside and not any(result.records for result in written):
        report(f"{stage.run}: no record was written: {dropped}")
    if null_keys := sum(result.null_keys for result in written):
        report(
            f"{stage.run}: {null_keys} of {sum(result.records for result in written)} records have a null key, "
            "so each may go to any partition of its topic"
        )
    return found


def _result_of(document: Mapping[str, Any] | None) -> SliceResult | None:
    """The digest is the ledger's to tell."""
    return None if document is None else replace(SliceResult.from_dict(document), digest=NO_DIGEST)


@contextmanager
def _stage_errors(coordinator: Coordinator, stage: Stage) -> Iterator[None]:
    """Convert Spark's errors of a stage, which another driver may have taken over."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        what = f"The Spark stage of {stage.run.name}"
        reported = explained(error, what)
        if isinstance(reported, FencedError):
            coordinator.require_current(stage)  # raises where another driver has taken over
            # Attempts of one task have fenced one another until Spark gave up. No other driver runs it: try again.
            reported = EosError(
                f"{what} failed: attempts of one task fenced one another. {reported.found}",
                remedy="Run the interval again. If it comes back: set spark.speculation=false.",
            )
        elif is_remote(error):  # the server may have cut the text short
            with suppress(UnreachableError):
                coordinator.require_current(stage)
        raise reported from error


def speculates(spark: SparkSession) -> bool:
    """Whether Spark may start copies of slow tasks."""
    # Not getConf(), which asks the JVM for each setting that there is.
    settings: Any = spark.conf if is_remote(spark) else spark.sparkContext._jsc.sc().conf()
    return str(settings.get("spark.speculation", "false")).lower() == "true"


def _slots(spark: SparkSession) -> int:
    """How many tasks run at once now; before the first executor has come, that is waited for.

    :raises UnreachableError: none came.
    """
    if is_remote(spark):
        return parallelism(spark)
    context: Any = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + _EXECUTOR_SECONDS
    while not (slots := int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))):
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"No executor of {spark.sparkContext.master} has come within {_EXECUTOR_SECONDS:.0f} s.",
                remedy="Check that the cluster has workers with cores and memory to spare, and that they reach the "
                "driver; or set spark.speculation=false, then the stage waits for them by itself.",
            )
        time.sleep(_POLL_SECONDS)
    return slots
