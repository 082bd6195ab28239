"""Many intervals of a pipeline through one Spark session: a backfill without a driver for each interval.

Each interval has the guarantees of ``write_interval``, even if others fail. Neighbours can be written *together*, as
one run from the first one's start to the last one's end: when it is complete, each of them is, as a part of it. The
function still gets one interval at a time, and the frames are joined, because a path that names the start would select
the first part only. A run of neighbours keeps its intervals until it is complete, whatever ``together`` is later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Completed
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import Report, silent
from airflow_eos_provider.interval.protocol.admission import overlap
from airflow_eos_provider.interval.spark.sessions import end, is_remote, is_server_lost
from airflow_eos_provider.interval.spark.slicing import require_frame
from airflow_eos_provider.interval.spark.spark_files import FilesSource
from airflow_eos_provider.interval.spark.write import write_interval
from airflow_eos_provider.interval.topics.ledger import CompleteRecord
from airflow_eos_provider.interval.topics.pins import Pins, TopicChangedError
from airflow_eos_provider.interval.topics.run_topics import RunTopics
from airflow_eos_provider.interval.verify import control, ledger

#: Neighbours that are one run, in the order of time and without gaps.
Parts = tuple[Interval, ...]

__all__ = ["IntervalOutcome", "require_all_complete", "write_intervals"]


@dataclass(frozen=True, slots=True)
class IntervalOutcome:
    """The outcome of one interval.

    :param interval: the interval.
    :param completed: as ``write_interval`` returns it; None if it failed. An interval that was written together with
        others has the result of their common run.
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
    selects_by_bounds: bool = False,
    allow_before_end: bool = False,
    report: Report = silent,
) -> tuple[IntervalOutcome, ...]:
    """Write intervals into Kafka, each exactly once; complete ones are skipped.

    An interval that fails does not stop the others. When the session is lost, no further one is started.

    :param frame_of: returns an interval's rows or files, as ``write_interval`` takes them. Several threads call it, one
        at a time, for intervals that are not complete.
    :param pipeline: where to write.
    :param intervals: in the order of their start; duplicates are written once.
    :param spark: the session for all of them, classic or Spark Connect.
    :param at_once: how many intervals, or runs of neighbours, are written in parallel.
    :param together: how many neighbours, at most, are written as one run with one count, digest and plan. ``frame_of``
        is called for each of them and must return DataFrames, which are joined by name.
    :param revision: as ``write_interval`` takes it.
    :param slices: likewise.
    :param key: likewise.
    :param slices_by: likewise.
    :param tasks: likewise, of each interval.
    :param pin_inputs: likewise.
    :param selects_by_bounds: as ``write_interval`` takes it; of ``frame_of``. With ``together`` it is then called once
        for all neighbours, with their common interval, which is much faster for hundreds of them.
    :param allow_before_end: as ``write_interval`` takes it; not with ``together``.
    :param report: receives lines of progress, each with its interval, from several threads.
    :returns: an outcome for each interval, in the given order; :func:`require_all_complete` raises if one failed.
    :raises ConfigurationError: ``at_once`` or ``together`` is less than 1; ``together`` is combined with a revision or
        with ``allow_before_end``; an incomplete interval has not ended yet.
    """
    if at_once < 1:
        raise ConfigurationError(f"{at_once} intervals are to be written at once.", expected="1 or more")
    if together != 1:
        _require_together(together, revision, allow_before_end)
    wanted = tuple(dict.fromkeys(intervals))
    finished = _finished(pipeline, wanted, revision)
    for interval in wanted:
        if interval not in finished:
            interval.require_ended(allow_before_end)
    runs = {_whole(parts): parts for parts in _runs(pipeline, wanted, finished, together, revision)}
    calling = threading.Lock()

    def write(interval: Interval) -> Completed:
        began_at, parts = interval.require_ended(allow_before_end), runs[interval]
        joined = len(parts) > 1 and not selects_by_bounds
        with calling:  # two calls may use one name of the session, as that of a temporary view
            frame = _joined([frame_of(part) for part in parts]) if joined else frame_of(interval)
        done = write_interval(
            frame,
            pipeline,
            interval,
            spark=spark,
            revision=revision,
            slices=slices,
            key=key,
            slices_by=slices_by,
            tasks=tasks,
            pin_inputs=pin_inputs,
            began_at=began_at,
            selects_by_bounds=selects_by_bounds or joined,
            allow_before_end=allow_before_end,
            report=lambda line: report(f"{interval.name}: {line}"),
        )
        if len(parts) > 1 and not done.ended:  # another driver completed the whole, but not its parts
            raise overlap(Run(pipeline.name, parts[0]), done.run)
        return done

    outcomes = _Crew(spark, write, at_once).run(list(runs))
    of_parts = {part: replace(outcomes[whole], interval=part) for whole, parts in runs.items() for part in parts}
    return tuple(finished[interval] if interval in finished else of_parts[interval] for interval in wanted)


def require_all_complete(outcomes: Iterable[IntervalOutcome]) -> None:
    """Raise if an interval has failed.

    :param outcomes: as :func:`write_intervals` returns them.
    :raises EosError: names each failed interval with its error.
    """
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed:
        first: dict[Exception | None, str] = {}  # neighbours of one run share an error
        for outcome in failed:
            first.setdefault(outcome.error, outcome.interval.name)
        words = "\n".join(f"{name}: {error}" for error, name in first.items())
        raise EosError(
            f"{len(failed)} intervals are not complete.\n{words}",
            remedy="Remove the causes and write the intervals again; complete ones are skipped.",
        ) from failed[0].error


def _joined(frames: list[DataFrame | FilesSource]) -> DataFrame:
    """One frame of all rows; a union of halves, because Spark's planning recurses into it."""
    if half := len(frames) // 2:
        return _joined(frames[:half]).unionByName(_joined(frames[half:]))
    (frame,) = frames
    if isinstance(frame, FilesSource):
        raise ConfigurationError(
            "together is given, and the function returns files_source().",
            expected="DataFrames, which can be joined",
            remedy="Leave together out, or give selects_by_bounds=True if the function selects by both bounds.",
        )
    require_frame(frame)
    return frame


def _finished(pipeline: Pipeline, intervals: Sequence[Interval], revision: int) -> dict[Interval, IntervalOutcome]:
    """The complete intervals, by one read of the ledger; with an error if their records are in another topic."""
    state, records = ledger(pipeline), dict[Interval, CompleteRecord]()
    for interval in intervals:
        if done := state.completed(Run(pipeline.name, interval, revision)):
            records[interval] = done
    if revision == 1:
        records |= state.wholes([interval for interval in intervals if interval not in records])
    found, errors = {}, dict[Pins | None, TopicChangedError | None]()
    for interval, record in records.items():
        if record.pins not in errors:
            errors[record.pins] = None
            try:
                RunTopics(pipeline, record.run).compare_complete(record)
            except TopicChangedError as changed:
                errors[record.pins] = changed
        error = errors[record.pins]
        found[interval] = IntervalOutcome(interval, None if error else Completed.of(record), error)
    return found


def _require_together(together: int, revision: int, allow_before_end: bool) -> None:
    if together < 1:
        raise ConfigurationError(f"{together} intervals are to be written together.", expected="1 or more")
    if revision != 1:
        raise ConfigurationError(
            f"Revision {revision} of intervals is to be written together.",
            expected="revision 1: each further revision of an interval is its own run",
            remedy="Leave out together.",
        )
    if allow_before_end:
        raise ConfigurationError(
            "Intervals are to be written together before their end.",
            expected="intervals that have ended: only then are the parts of a complete run complete",
            remedy="Leave out one of the two.",
        )


def _runs(
    pipeline: Pipeline, wanted: Sequence[Interval], finished: Collection[Interval], together: int, revision: int
) -> list[Parts]:
    """The runs that write the unfinished intervals, in the given order."""
    left = sorted(interval for interval in wanted if interval not in finished)
    runs: list[Parts] = []
    for begun in control(pipeline).planned(pipeline.name):
        parts = tuple(interval for interval in left if begun.interval.contains(interval))
        is_first = begun.revision == revision == 1  # a part has no second revision
        if (
            is_first
            and parts
            and len(groups := _without_gaps(parts, len(parts))) == 1
            and _whole(groups[0]) == begun.interval
        ):
            runs += groups
            left = [interval for interval in left if interval not in parts]
    runs += _without_gaps(left, together)
    place = {interval: number for number, interval in enumerate(wanted)}
    return sorted(runs, key=lambda parts: min(place[part] for part in parts))


def _whole(parts: Parts) -> Interval:
    return Interval(parts[0].start, parts[-1].end)


def _without_gaps(intervals: Sequence[Interval], most: int) -> list[Parts]:
    """Groups of at most so many neighbours. Intervals that overlap stay apart, and are refused later."""
    groups: list[list[Interval]] = []
    for interval in intervals:
        if groups and len(groups[-1]) < most and groups[-1][-1].end == interval.start:
            groups[-1].append(interval)
        else:
            groups.append([interval])
    return list(map(tuple, groups))


@dataclass
class _Crew:
    """Threads that write intervals, and end when nobody waits for them."""

    spark: Any
    write: Callable[[Interval], Completed]
    at_once: int
    _threads: set[int] = field(default_factory=set)
    _lost: Exception | None = None

    def run(self, intervals: Sequence[Interval]) -> dict[Interval, IntervalOutcome]:
        """Write them all."""
        pool = ThreadPoolExecutor(self.at_once, "eos-interval")
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
                f"{interval.name} was not started, because the Spark session was lost: {self._lost}",
                remedy="Write the intervals again with a new session; complete ones are skipped.",
            )
            return IntervalOutcome(interval, error=lost)
        try:
            return IntervalOutcome(interval, self.write(interval))
        except Exception as error:
            if self._is_lost(error):
                self._lost = error
            return IntervalOutcome(interval, error=error)

    def _is_lost(self, error: BaseException) -> bool:
        """Whether the session, or the driver behind it, is gone."""
        if not is_remote(self.spark):
            context: Any = getattr(self.spark, "_sc", None)
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
