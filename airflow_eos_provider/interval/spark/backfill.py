"""Many intervals of a pipeline through one Spark session, some at once: a backfill without a driver an interval.

Each interval is written by :func:`~airflow_eos_provider.interval.spark.write.write_interval`, so each has its
guarantees, whatever becomes of the others. Where the session dies, what is committed stays; the same call with another
session finds the finished intervals complete and goes on with the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.stage import Completed
from airflow_eos_provider.interval.spark.file_listing import FilesSource
from airflow_eos_provider.interval.spark.sessions import end, is_remote, is_server_lost
from airflow_eos_provider.interval.spark.write import Report, write_interval
from airflow_eos_provider.interval.verify import ledger

__all__ = ["IntervalOutcome", "require_all_complete", "write_intervals"]


@dataclass(frozen=True, slots=True)
class IntervalOutcome:
    """What has become of one interval.

    :param interval: the interval.
    :param completed: as ``write_interval`` returns it; None if it failed.
    :param error: why it failed; None if it is complete.
    """

    interval: Interval
    completed: Completed | None = None
    error: Exception | None = None


def write_intervals(
    frame_of: Callable[[Interval], DataFrame | FilesSource],
    pipeline: Pipeline,
    intervals: Iterable[Interval],
    *,
    spark: SparkSession,
    at_once: int = 4,
    revision: int = 1,
    slices: int | None = None,
    key: str | Sequence[str] = "key",
    slices_by: str = "key",
    tasks: int | None = None,
    pin_inputs: bool = True,
    report: Report = lambda line: None,
) -> tuple[IntervalOutcome, ...]:
    """Write intervals into Kafka, each exactly once; those that are complete are left alone.

    An interval that fails stops none of the others. When the session is lost, no further one is begun.

    :param frame_of: gives an interval's rows or files, as ``write_interval`` takes them; called by several threads, and
        not for intervals that are complete.
    :param pipeline: where to write.
    :param intervals: in the order in which they are begun; one that is given twice is written once.
    :param spark: the session of all of them, a classic one or one of Spark Connect.
    :param at_once: how many are written at the same time.
    :param revision: as ``write_interval`` takes it.
    :param slices: likewise.
    :param key: likewise.
    :param slices_by: likewise.
    :param tasks: likewise, of each interval.
    :param pin_inputs: likewise.
    :param report: receives lines of progress, each with its interval, from several threads.
    :returns: an outcome for each interval, in the order given; :func:`require_all_complete` raises if one failed.
    :raises ConfigurationError: ``at_once`` is less than 1.
    """
    if at_once < 1:
        raise ConfigurationError(f"{at_once} intervals are to be written at once.", expected="1 or more")
    wanted = tuple(dict.fromkeys(intervals))
    finished = _finished(pipeline, wanted, revision)

    def write(interval: Interval) -> Completed:
        return write_interval(
            frame_of(interval),
            pipeline,
            interval,
            spark=spark,
            revision=revision,
            slices=slices,
            key=key,
            slices_by=slices_by,
            tasks=tasks,
            pin_inputs=pin_inputs,
            report=lambda line: report(f"{interval.name}: {line}"),
        )

    outcomes = _Crew(spark, write, at_once).run([interval for interval in wanted if interval not in finished])
    return tuple(
        IntervalOutcome(interval, finished[interval]) if interval in finished else outcomes[interval]
        for interval in wanted
    )


def require_all_complete(outcomes: Iterable[IntervalOutcome]) -> None:
    """Check that no interval has failed.

    :param outcomes: as :func:`write_intervals` returns them.
    :raises EosError: names those that have, each with its error.
    """
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed:
        words = "\n".join(f"{outcome.interval.name}: {outcome.error}" for outcome in failed)
        raise EosError(
            f"{len(failed)} intervals are not complete.\n{words}",
            remedy="Remove the causes and write the intervals again: those that are complete are left alone.",
        ) from failed[0].error


def _finished(pipeline: Pipeline, intervals: Sequence[Interval], revision: int) -> dict[Interval, Completed]:
    """Those that are complete, by one look at the ledger."""
    found, state = {}, ledger(pipeline)
    for interval in intervals:
        if done := state.completed(Run(pipeline.name, interval, revision)):
            found[interval] = Completed.of(done)
    return found


class _Crew:
    """Threads that write intervals, and end when they are not waited for any more."""

    def __init__(self, spark: Any, write: Callable[[Interval], Completed], at_once: int) -> None:
        self._spark = spark
        self._write = write
        self._at_once = at_once
        self._threads: set[int] = set()
        self._lost: Exception | None = None

    def run(self, intervals: Sequence[Interval]) -> dict[Interval, IntervalOutcome]:
        """Write them all; an outcome each."""
        pool = ThreadPoolExecutor(self._at_once, "eos-interval")
        futures = [pool.submit(self._outcome, interval) for interval in intervals]
        try:
            wait(futures)
        except BaseException:
            end([future for future in futures if not future.cancel()], self._threads)  # and begin none any more
            raise
        finally:
            pool.shutdown(wait=False)
        return {future.result().interval: future.result() for future in futures}

    def _outcome(self, interval: Interval) -> IntervalOutcome:
        self._threads.add(threading.get_ident())
        if self._lost is not None:
            lost = EosError(
                f"{interval.name} was not begun, since the Spark session was lost: {self._lost}",
                remedy="Write the intervals again with a new session: those that are complete are left alone.",
            )
            return IntervalOutcome(interval, error=lost)
        try:
            return IntervalOutcome(interval, self._write(interval))
        except Exception as error:
            if self._is_lost(error):
                self._lost = error
            return IntervalOutcome(interval, error=error)

    def _is_lost(self, error: BaseException) -> bool:
        """Whether the session, or the driver behind it, is gone."""
        if not is_remote(self._spark):
            context: Any = getattr(self._spark, "_sc", None)
            return context is None or context._jsc is None or _is_stopped(context)
        causes: list[BaseException] = []
        cause: BaseException | None = error
        while cause is not None and len(causes) < 10:
            causes.append(cause)
            cause = cause.__cause__
        return any(is_server_lost(one) for one in causes)


def _is_stopped(context: Any) -> bool:
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # Py4J's, of many kinds: the JVM is gone
        return True
