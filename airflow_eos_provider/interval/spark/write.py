"""Spark writes an interval: a DataFrame's rows by the slice of a stable key, or source files a slice each.

The driver is the run's coordinator, a Spark partition is a task. All that exactly-once rests on is in
:mod:`airflow_eos_provider.interval.protocol`; this module only ensures that a task gets exactly the rows of its own
slices. Each task checks that of every row, so no optimizer, version or setting can do worse than an error.

A Python task writes before Spark's commit coordinator is asked, so a speculative copy would be a second writer, and one
of the two would be fenced. So with ``spark.speculation`` the stage is a barrier stage, which Spark never copies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, UnreachableError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed, SliceResult, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import Report, silent
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.sources.source_files import Dropped
from airflow_eos_provider.interval.spark.executors.tasks import shipped
from airflow_eos_provider.interval.spark.reruns import StageWatch
from airflow_eos_provider.interval.spark.sessions import awaited, interruptible, is_remote
from airflow_eos_provider.interval.spark.shipping import require_login, ship
from airflow_eos_provider.interval.spark.slicing import REPORTS, Files, PartitionRows, Rows, Work
from airflow_eos_provider.interval.spark.spark_errors import explained, is_of_spark, require_pandas, spark_errors
from airflow_eos_provider.interval.spark.spark_files import FilesSource
from airflow_eos_provider.stored import from_json


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
    :param slices_by: ``key``; or ``partitions``, which shuffles no row: the frame's partitions are slices and tasks,
        whatever ``key``, ``slices`` and ``tasks`` are, without adaptive execution. It takes a frame of a classic
        session each of whose columns is the same in every attempt, in partitions that no sample of the rows decides
        (:func:`~airflow_eos_provider.interval.spark.plans.classic_plan.refuse_moving`). A retry has to find as many
        partitions.
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
            work: Work = Files(frame, spark or SparkSession.active())
        elif slices_by == "partitions":
            work = PartitionRows(frame, pin_inputs)
        elif slices_by == "key":
            work = Rows(frame, [key] if isinstance(key, str) else list(key), slices, pin_inputs)
        else:
            raise ConfigurationError(f"slices_by is {slices_by!r}.", expected="key or partitions")
        return awaited(work.spark, partial(_write, work, pipeline, run, known, tasks, report))


def _looked_up_at(
    frame: object, interval: Interval, began_at: datetime | None, selects_by_bounds: bool, allow_before_end: bool
) -> float | None:
    """When the input was looked up at the earliest, seconds since the epoch; None if parts must not rely on it."""
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
    work: Work, pipeline: Pipeline, run: Run, began_at: float | None, tasks: int | None, report: Report
) -> Completed:
    """Write one run."""
    work.check()
    ship(work.spark)
    require_login(work.spark, pipeline)
    wanted = work.tasks(tasks)
    with interruptible(work.spark), Coordinator(pipeline, run, began_at=began_at, report=report) as coordinator:
        stage = coordinator.begin(lambda: work.plan(run), wanted, rows_have_times=work.rows_have_times)
        if isinstance(stage, Completed):
            return stage
        work.follow(stage, coordinator.plan_source)
        with _stage_errors(coordinator, stage):
            stage = coordinator.compare_input(stage, partial(work.figures, pipeline, stage))
        again = None
        of_stage, written, seconds = _run_stage(work, pipeline, stage, coordinator, report)
        if doubt := work.doubt(of_stage):
            report(f"{doubt}, so the input is evaluated once more before the run is complete")
            again = partial(work.figures_again, pipeline, stage)
        work.require_same_inputs()
        with _stage_errors(coordinator, stage):
            return coordinator.finish(stage, again, written=written, seconds=seconds)


def _run_stage(
    work: Work, pipeline: Pipeline, stage: Stage, coordinator: Coordinator, report: Report
) -> tuple[str | None, list[SliceResult], dict[str, float]]:
    """Run the tasks; afterwards every slice of the stage has its ledger record.

    :returns: why the tasks may have read more than one evaluation of the input, None if they have not; what they wrote;
        and seconds that only Spark knows.
    """
    to_do = sum(len(numbers) for numbers in stage.assignment)
    if not to_do:
        return None, [], {}
    barrier = work.needs_barrier()
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
    results = [result for result in written.values() if result is not None]
    return doubt, results, {} if waited is None else {"shuffle": waited}


def _collect(
    results: DataFrame, coordinator: Coordinator, stage: Stage, report: Report
) -> dict[int, SliceResult | None]:
    """Run a frame that writes; what it reports of each slice, None of one that had been done before."""
    with _stage_errors(coordinator, stage):
        reports = [json.loads(row[0]) for row in results.collect()]
    found = {number: document and from_json(SliceResult, document) for number, document in reports}
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
