"""Finds out whether Spark has evaluated a part of a write's input more than once.

An executor that dies takes its shuffle output with it, and Spark evaluates that part again: tasks that read before and
after write from two evaluations. A task that misses a part fails to fetch it, and its stage gets a new attempt; so a
write none of whose stages has a second attempt has seen one evaluation. Spark 4.2's own check
(``spark.sql.shuffle.orderIndependentChecksum.*``) does not protect a task that has not finished but has committed
slices, which its next attempt skips. Spark Connect does not report which stages were run again, so there is always a
doubt there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_eos_provider.interval.spark.sessions import is_remote

try:
    from py4j.protocol import Py4JError
except ImportError:  # pyspark-client has no JVM to ask
    Py4JError = PySparkException

__all__ = ["JobSeen", "StageWatch", "doubt"]

#: How long Spark may take to bring its own books up to date, milliseconds.
_EVENTS_MS = 10_000

#: Counts the events that Spark's books have missed, since they came faster than they were entered.
_DROPPED = "queue.appStatus.numDroppedEvents"

#: Spark's inside is another one than in the versions known, or has stopped.
_UNANSWERED = (Py4JError, PySparkException, AttributeError)


class JobSeen(NamedTuple):
    """What Spark's books have of a job.

    :param attempts: number of the last attempt of each of its stages, the first is 0; None if it is not known.
    """

    status: str | None
    attempts: Mapping[int, int | None]


def doubt(jobs: Sequence[JobSeen], dropped: int) -> str | None:
    """Why a write may have seen two evaluations; None if it has seen one."""
    stages = {stage: attempt for job in jobs for stage, attempt in job.attempts.items()}
    if again := sorted(stage for stage, attempt in stages.items() if attempt):
        return f"Spark has run stage {', '.join(map(str, again))} again"
    if not jobs or dropped or None in stages.values() or any(job.status != "SUCCEEDED" for job in jobs):
        return "Spark does not know any more whether it has run a stage again"
    return None


class StageWatch:
    """Watches the Spark jobs of one action, which this thread starts within; a context manager.

    It marks them by a job tag, which leaves the caller's job group and tags as they are. Ask right after the action:
    Spark's books forget the oldest jobs and stages first (``spark.ui.retainedJobs``, ``spark.ui.retainedStages``), so
    as long as they have any job of the action, they have its last one, whose tasks have written.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = None if is_remote(spark) else spark.sparkContext
        self._tag = f"eos-write-{uuid.uuid4().hex}"
        self._dropped_before = 0
        self._is_on = False

    def __enter__(self) -> Self:
        if self._context is None:
            return self
        try:
            self._dropped_before = self._dropped()
            self._context.addJobTag(self._tag)
            self._is_on = True
        except _UNANSWERED:  # so doubt() says what it says of no job
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_on:
            self._context.removeJobTag(self._tag)

    def doubt(self) -> str | None:
        """As :func:`doubt`, of the jobs so far; where Spark cannot be asked there is one."""
        if self._context is None:
            return "Spark Connect does not tell whether Spark has run a stage again"
        if not self._is_on:
            return doubt((), 0)
        try:
            inside = self._context._jsc.sc()
            inside.listenerBus().waitUntilEmpty(_EVENTS_MS)  # the books are kept behind the scheduler's back
            tracker = inside.statusTracker()
            jobs = [_job(tracker, number) for number in tracker.getJobIdsForTag(self._tag)]
            return doubt(jobs, self._dropped() - self._dropped_before)
        except _UNANSWERED:
            return doubt((), 0)

    def shuffle_seconds(self) -> float | None:
        """How long the jobs' tasks have waited for what other executors had, in sum; None where Spark cannot be asked.

        Ask behind :meth:`doubt`, which waits for Spark's books.
        """
        if not self._is_on:
            return None
        try:
            inside = self._context._jsc.sc()
            tracker, store = inside.statusTracker(), inside.statusStore()
            waited = 0
            for number in tracker.getJobIdsForTag(self._tag):
                for stage in tracker.getJobInfo(number).get().stageIds():
                    waited += store.lastStageAttempt(stage).shuffleFetchWaitTime()
            return float(waited) / 1000
        except _UNANSWERED:
            return None

    def _dropped(self) -> int:
        counter = self._context._jsc.sc().listenerBus().metrics().metricRegistry().getCounters().get(_DROPPED)
        return int(counter.getCount())


def _job(tracker: Any, number: int) -> JobSeen:
    found = tracker.getJobInfo(number)
    if found.isEmpty():
        return JobSeen(None, {})
    job = found.get()
    attempts: dict[int, int | None] = {}
    for stage in job.stageIds():
        info = tracker.getStageInfo(stage)
        attempts[int(stage)] = None if info.isEmpty() else int(info.get().currentAttemptId())
    return JobSeen(str(job.status().toString()), attempts)
