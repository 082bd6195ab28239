"""What Spark writes, divided into slices: rows by a stable key, a frame's own partitions, or files.

Each way plans its slices, compares a retry's rows with the committed ones, and makes the frame whose partitions are the
tasks of a stage. :func:`~airflow_eos_provider.interval.spark.write.write_interval` runs it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import SliceFigures, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.record_columns import RECORD_COLUMNS
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.sources.source_files import FileSet, look_at, require_planned_files
from airflow_eos_provider.interval.spark.executors.tasks import REPORT_COLUMN, SLICE_COLUMN, shipped
from airflow_eos_provider.interval.spark.plans.classic_plan import refuse_moving, refuse_unstable
from airflow_eos_provider.interval.spark.plans.connect_plan import refuse_unstable_remote
from airflow_eos_provider.interval.spark.reruns import StageWatch
from airflow_eos_provider.interval.spark.sessions import (
    functions_of,
    is_remote,
    parallelism,
    quoted,
    without_adaptive_execution,
)
from airflow_eos_provider.interval.spark.spark_files import FilesSource, pinned_files, require_still_pinned

#: What tasks report, as JSON. Spark's JVM parses a schema in words, by forty questions of the driver's.
REPORTS = StructType([StructField(REPORT_COLUMN, StringType())])

#: A slice costs a transaction, a Spark partition and an entry in the plan. With 10,000 slices the plan is about 0.5 MB,
#: which fits a record of the broker's default size (1 MiB) even uncompressed.
MAX_SLICES = 10_000

#: A cluster's first executor comes within this time, seconds; Spark's own first task waits half of it for the others.
_EXECUTOR_SECONDS = 60.0
_POLL_SECONDS = 0.1


class Work:
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
        """Take over what the plan says, which an earlier attempt may have made."""

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

    def needs_barrier(self) -> bool:
        """Whether the tasks are to be a barrier stage, which Spark never copies."""
        return speculates(self.spark)

    def tasks(self, wanted: int | None) -> int:
        """How many tasks to run."""
        count = max(1, min(wanted or self.slice_count(), self.slice_count()))
        if not self.needs_barrier():
            return count
        slots = _slots(self.spark)
        if wanted is not None and count > slots:
            raise ConfigurationError(
                f"{wanted} tasks were requested, but only {slots} run at once, and spark.speculation is on.",
                expected="as many tasks as run at once, since the stage is then a barrier stage",
                remedy="Ask for fewer tasks, or set spark.speculation=false.",
            )
        return min(count, slots)


class Rows(Work):
    """Rows of a DataFrame, by the slice of a stable key."""

    kind = "rows"

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
        if is_remote(self.frame):
            self.is_certain = refuse_unstable_remote(self.frame, self.key)
        else:  # there Spark reports whether it has evaluated anything again
            refuse_unstable(self.frame, self.key)

    def _sliced(self) -> DataFrame:
        return sliced(self.frame, self.key, self.count)

    def slice_count(self) -> int:
        return self.count

    def _sources(self, count: int) -> list[dict[str, Any]]:
        types = {field.name: field.dataType.simpleString() for field in self.frame.schema}
        # With their types: the hash of a number is not that of its text.
        return [{"xxhash64": [f"{name} {types[name]}" for name in self.key], "of": count}] * count

    def plan(self, run: Run) -> RunPlan:
        files = self._pinned.to_plan() if self.pin_inputs else {}
        return RunPlan(run, self._sources(self.count), {"kind": self.kind, **files})

    @cached_property
    def _pinned(self) -> FileSet:
        """Listed once before the stage, whether the plan is made here or was made before."""
        return pinned_files(self.frame)

    def follow(self, stage: Stage, source: Mapping[str, Any]) -> None:
        if self.pin_inputs:
            require_planned_files(self._pinned.to_plan(), source)
        self.count = len(stage.slices)
        found, wanted = [dict(piece) for piece in stage.slices], self._sources(self.count)
        if found != wanted:
            raise _other_slices(stage, f"slices like {wanted[0] if wanted else 'none'}")

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


class PartitionRows(Rows):
    """Rows of a DataFrame by its own partitions: a partition is a slice, so the first attempt moves no row.

    Adaptive execution would choose partitions by their size, so the frame is planned in a session without it. A retry
    compares its rows with the committed ones. If Spark has run a part again within an attempt, rows may have left a
    committed partition for another one; one more evaluation is then compared (``input/recomputed-end-check`` in
    ``tests/model``).
    """

    kind = "partitions"

    def __init__(self, frame: DataFrame, pin_inputs: bool) -> None:
        require_frame(frame)
        if is_remote(frame):
            raise ConfigurationError(
                "slices_by='partitions' is given with a DataFrame of Spark Connect, whose plan is not seen in full.",
                expected="a DataFrame of a classic session",
                remedy="Leave slices_by out, then a key decides the slices; or read Parquet files or lines by "
                "files_source(), a slice a file.",
            )
        super().__init__(frame, [], 1, pin_inputs)

    def check(self) -> None:
        require_columns(self.frame, ())
        refuse_moving(self.frame)
        if speculates(self.spark):
            raise ConfigurationError(
                "spark.speculation is on, and partitions cannot be slices in the barrier stage that this takes.",
                remedy="Set spark.speculation=false, or leave slices_by='partitions' out.",
            )
        self.rows_have_times = "timestamp" in self.frame.columns
        self.frame = without_adaptive_execution(self.frame)
        self.count = _require_slice_count(max(1, partition_count(self._sliced())))

    def _sliced(self) -> DataFrame:
        return self.frame.select(
            *record_columns(self.frame), functions_of(self.frame).spark_partition_id().alias(SLICE_COLUMN)
        )

    def _sources(self, count: int) -> list[dict[str, Any]]:
        return [{"partitions": count}] * count

    def follow(self, stage: Stage, source: Mapping[str, Any]) -> None:
        found = self.count
        super().follow(stage, source)
        if found != self.count:
            raise ConfigurationError(
                f"The DataFrame has {found} partitions. The run {stage.run.name} was started with {self.count}.",
                expected=f"{self.count} partitions: each is a slice",
                remedy="Restore the settings that decide it (spark.default.parallelism, spark.sql.shuffle.partitions, "
                "spark.sql.files.*), or write the interval as a new revision.",
            )

    def tasks(self, wanted: int | None) -> int:
        return self.count

    def results(self, pipeline: Pipeline, stage: Stage, barrier: bool) -> DataFrame:
        if self.frozen is not None:
            return super().results(pipeline, stage, barrier)
        results = self._sliced().mapInArrow(shipped("write_partition", pipeline.to_dict(), stage.to_dict()), REPORTS)
        if (found := partition_count(results)) not in (0, self.count):  # the optimizer leaves none if there are no rows
            raise EosError(
                f"Spark lays {stage.run} out in {found} partitions.",
                expected=f"{self.count}, one for each task",
                remedy="Leave slices_by out. A key then decides the slices.",
            )
        return results


class Files(Work):
    """Pinned files, each read by the task that has it as a slice."""

    def __init__(self, source: FilesSource, spark: SparkSession) -> None:
        self.source = source
        self.spark = spark

    def slice_count(self) -> int:
        return len(self.source.files)

    def plan(self, run: Run) -> RunPlan:
        options = self.source.options.to_dict()
        return RunPlan(run, [{"file": file.to_dict(), **options} for file in self.source.files], {"kind": "files"})

    def follow(self, stage: Stage, source: Mapping[str, Any]) -> None:
        options = self.source.options.to_dict()
        for piece in stage.slices:
            ways = {name: value for name, value in piece.items() if name != "file"}
            if "file" not in piece or ways != options:
                raise _other_slices(stage, f"files read as {options}")
        self.source.files.require(FileSet.from_dicts(piece["file"] for piece in stage.slices))

    def figures(self, pipeline: Pipeline, stage: Stage, slices: Collection[int]) -> dict[int, SliceFigures]:
        return figures_of_files(self.spark, self.source, pipeline, stage, slices)

    def require_same_inputs(self) -> None:
        for file in self.source.files:
            if file.identity:  # a local file; others have none
                file.require_unchanged(look_at(file.path))

    def results(self, pipeline: Pipeline, stage: Stage, barrier: bool) -> DataFrame:
        numbers = self.spark.range(0, len(stage.assignment), 1, len(stage.assignment))
        function = shipped("write_files", pipeline.to_dict(), stage.to_dict(), self.source.convert)
        return numbers.mapInArrow(function, REPORTS, barrier=barrier)


# What a retry compares with the committed slices. Spark evaluates a frame again for each action, and parts of it when
# an executor is lost; comparing one evaluation proves nothing of another. So a retry evaluates its rows once, keeps
# them on the executors, compares those, and writes from those. A part that is lost is not evaluated again: the attempt
# fails.


def frozen(rows: DataFrame, *, copied_up_to: int | None = None) -> DataFrame:
    """The rows of one evaluation: each reader of the returned frame reads these, or fails.

    The rows stay in the executors' memory and on their disks until the driver forgets the frame.

    :param copied_up_to: where Spark may start copies of slow tasks, how many tasks run at once. Two copies of a task
        each keep the rows that they have evaluated, and a reader gets those of either. So the tasks that keep the rows
        are a barrier stage, which Spark never copies. Of copies before a shuffle Spark takes one.
    """
    if copied_up_to is not None:
        rows = rows.repartition(copied_up_to, SLICE_COLUMN).mapInArrow(lambda b: b, rows.schema, barrier=True)
    kept = rows.localCheckpoint(eager=True)
    if is_remote(rows):  # pyspark gives it the active session, which may be another one than the frame's
        kept._session = kept._plan._spark_session = rows.sparkSession  # type: ignore[attr-defined]
    return kept


def figures_of_rows(rows: DataFrame, pipeline: Pipeline, run: Run, slices: Collection[int]) -> dict[int, SliceFigures]:
    """Count and digests of the rows of some slices; a slice without rows is left out."""
    wanted = rows.where(functions_of(rows).col(SLICE_COLUMN).isin(*slices))
    return _sums(wanted.mapInArrow(shipped("tally_partition", pipeline.to_dict(), run.name), REPORTS))


def figures_of_files(
    spark: SparkSession, source: FilesSource, pipeline: Pipeline, stage: Stage, slices: Collection[int]
) -> dict[int, SliceFigures]:
    """Count and digests of the rows of some slices that are files, each read by a task of its own.

    No row leaves its file, and the files are held to their size and time of change, so nothing is kept here.
    """
    pieces = [(number, dict(stage.slices[number])) for number in slices]
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    function = shipped("tally_files", pipeline.to_dict(), stage.run.name, pieces, source.convert)
    return _sums(numbers.mapInArrow(function, REPORTS))


def _sums(parts: DataFrame) -> dict[int, SliceFigures]:
    found: dict[int, SliceFigures] = {}
    for row in parts.collect():
        number, part = json.loads(row[0])
        found[number] = found.get(number, SliceFigures()) + SliceFigures(*part)
    return found


def _other_slices(stage: Stage, expected: str) -> ConfigurationError:
    """The error of a run whose plan has other slices than this attempt would make; it does not name all files."""
    first = {name: value for name, value in stage.slices[0].items() if name != "file"} if stage.slices else "none"
    return ConfigurationError(
        f"The run {stage.run.name} was started with other slices: {first}.",
        expected=expected,
        remedy="Run it with the original settings, or abandon it if none of its slices is committed.",
    )


def partition_count(frame: DataFrame) -> int:
    """How many partitions the frame will have; this plans it and reads nothing.

    Spark takes a shuffle's settings from the session that is active in the thread, and keeps them with the plan.
    """
    sessions: Any = frame.sparkSession._jvm.org.apache.spark.sql.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(frame._jdf.sparkSession())
    try:
        return int(frame._jdf.queryExecution().toRdd().getNumPartitions())
    finally:
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()


def _slice_count(wanted: int | None, spark: SparkSession) -> int:
    return _require_slice_count(wanted) if wanted is not None else min(parallelism(spark), MAX_SLICES)


def _require_slice_count(count: int) -> int:
    if not 1 <= count <= MAX_SLICES:
        raise ConfigurationError(
            f"{count} slices were requested.",
            expected=f"1 to {MAX_SLICES}: each slice is a transaction of its own",
            remedy="Set slices to a few for each task that writes at once.",
        )
    return count


def require_frame(frame: object) -> None:
    """Check that there is a DataFrame to write."""
    if not isinstance(frame, DataFrame):
        raise ConfigurationError(
            f"Expected a DataFrame to write, got {'None' if frame is None else f'a {type(frame).__name__}'}.",
            expected="a DataFrame of Spark, or what files_source() returns",
            remedy="Let the function end with: return <the DataFrame>.",
        )


def require_columns(frame: DataFrame, key: Sequence[str]) -> None:
    """Check that the frame has the columns of a record, and the key's."""
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


def sliced(frame: DataFrame, key: Sequence[str], count: int) -> DataFrame:
    """The record's columns, and the slice."""
    F = functions_of(frame)
    number = F.pmod(F.xxhash64(*map(quoted, key)), F.lit(count)).cast("int")
    return frame.select(*record_columns(frame), number.alias(SLICE_COLUMN))


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


def speculates(spark: SparkSession) -> bool:
    """Whether Spark may start copies of slow tasks."""
    # Not getConf(), which asks the JVM for each setting that there is.
    settings: Any = spark.conf if is_remote(spark) else spark.sparkContext._jsc.sc().conf()
    return str(settings.get("spark.speculation", "false")).lower() == "true"


def _slots(spark: SparkSession) -> int:
    """How many tasks run at once now; before the first executor has come, that is waited for."""
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
