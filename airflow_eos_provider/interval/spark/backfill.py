"""Many intervals of a pipeline through one Spark session, some at once: a backfill without a driver an interval.

Each interval is written by :func:`~airflow_eos_provider.interval.spark.write.write_interval`, so each has its
guarantees, whatever becomes of the others. Where the session dies, what is committed stays; the same call with another
session finds the finished intervals complete and goes on with the rest.

*Together.* What an interval of few rows costs is its transactions and its Spark job. Neighbours that are written
together are one run, of the interval from the first one's start to the last one's end; when it is complete, so is each
of them, as a part of it (:mod:`~airflow_eos_provider.interval.protocol.ledger`). A run of neighbours that was begun is
finished as it was begun, however many the next call writes together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.stage import Completed
from airflow_eos_provider.interval.spark.file_listing import FilesSource
from airflow_eos_provider.interval.spark.sessions import end, is_remote, is_server_lost
from airflow_eos_provider.interval.spark.write import Report, write_interval
from airflow_eos_provider.interval.verify import control, ledger

__all__ = ["IntervalOutcome", "require_all_complete", "write_intervals"]


@dataclass(frozen=True, slots=True)
class IntervalOutcome:
    """What has become of one interval.

    :param interval: the interval.
    :param completed: as ``write_interval`` returns it; None if it failed. Of one that was written together with
        others it is theirs, and names their run.
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
    together: int = 1,
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
        not for intervals that are complete. With ``together`` it is called with the interval of neighbours as a whole.
    :param pipeline: where to write.
    :param intervals: in the order in which they are begun; one that is given twice is written once.
    :param spark: the session of all of them, a classic one or one of Spark Connect.
    :param at_once: how many are written at the same time; of those that are written together, how many runs.
    :param together: how many neighbours, at most, are written as one run, whose count, digest and slices are theirs
        together. All of them must have ended: what comes later would be in none.
    :param revision: as ``write_interval`` takes it.
    :param slices: likewise.
    :param key: likewise.
    :param slices_by: likewise.
    :param tasks: likewise, of each interval.
    :param pin_inputs: likewise.
    :param report: receives lines of progress, each with its interval, from several threads.
    :returns: an outcome for each interval, in the order given; :func:`require_all_complete` raises if one failed.
    :raises ConfigurationError: ``at_once`` or ``together`` is less than 1; or intervals are to be written together of
        which one has not ended yet, or in a further revision.
    """
    if at_once < 1:
        raise ConfigurationError(f"{at_once} intervals are to be written at once.", expected="1 or more")
    wanted = tuple(dict.fromkeys(intervals))
    if together != 1:
        _require_together(together, wanted, revision)
    finished = _finished(pipeline, wanted, revision)
    runs = _runs(pipeline, wanted, finished, together)

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

    outcomes = _Crew(spark, write, at_once).run([run.whole for run in runs])
    of_parts = {part: replace(outcomes[run.whole], interval=part) for run in runs for part in run.parts}
    return tuple(
        IntervalOutcome(interval, finished[interval]) if interval in finished else of_parts[interval]
        for interval in wanted
    )


def require_all_complete(outcomes: Iterable[IntervalOutcome]) -> None:
    """Check that no interval has failed.

    :param outcomes: as :func:`write_intervals` returns them.
    :raises EosError: names those that have, each with its error.
    """
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed:
        first: dict[Exception | None, str] = {}  # neighbours that were written together have one error
        for outcome in failed:
            first.setdefault(outcome.error, outcome.interval.name)
        words = "\n".join(f"{name}: {error}" for error, name in first.items())
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
    if revision == 1:
        parts = state.wholes([interval for interval in intervals if interval not in found])
        found.update((interval, Completed.of(whole)) for interval, whole in parts.items())
    return found


@dataclass(frozen=True, slots=True)
class _Together:
    """Neighbours that are one run.

    :param parts: in the order of time, without gaps.
    """

    parts: tuple[Interval, ...]

    @property
    def whole(self) -> Interval:
        return Interval(self.parts[0].start, self.parts[-1].end)


def _require_together(together: int, intervals: Sequence[Interval], revision: int) -> None:
    if together < 1:
        raise ConfigurationError(f"{together} intervals are to be written together.", expected="1 or more")
    if revision != 1:
        raise ConfigurationError(
            f"Revision {revision} of intervals is to be written together.",
            expected="revision 1: a further one is a run of its own",
            remedy="Leave out together.",
        )
    if late := [interval.name for interval in intervals if interval.end > datetime.now(UTC)]:
        raise ConfigurationError(
            f"{late[0]} has not ended yet.",
            expected="intervals that have ended, for what comes later would be in none of them",
            remedy="Leave it out, or together.",
        )


def _runs(
    pipeline: Pipeline, wanted: Sequence[Interval], finished: Collection[Interval], together: int
) -> list[_Together]:
    """The runs that write what is not finished, in the order of what was given."""
    left = sorted(interval for interval in wanted if interval not in finished)
    runs = []
    for begun in control(pipeline).planned(pipeline.name):
        parts = tuple(interval for interval in left if begun.interval.contains(interval))
        if parts and len(groups := _without_gaps(parts, len(parts))) == 1 and groups[0].whole == begun.interval:
            runs += groups
            left = [interval for interval in left if interval not in parts]
    runs += _without_gaps(left, together)
    place = {interval: number for number, interval in enumerate(wanted)}
    return sorted(runs, key=lambda run: min(place[part] for part in run.parts))


def _without_gaps(intervals: Sequence[Interval], most: int) -> list[_Together]:
    """Neighbours, at most so many of them in a group; intervals that overlap stay apart, and are refused later."""
    groups: list[list[Interval]] = []
    for interval in intervals:
        if groups and len(groups[-1]) < most and groups[-1][-1].end == interval.start:
            groups[-1].append(interval)
        else:
            groups.append([interval])
    return [_Together(tuple(group)) for group in groups]


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
