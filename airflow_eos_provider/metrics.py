"""Airflow's metrics of interval runs and rolls: names, meanings, and how they are sent.

Airflow sends them as ``[metrics]`` of its configuration says (StatsD, Datadog, OpenTelemetry). A metric that cannot be
sent never fails the task. ``docs/reference/metrics.md`` is generated from :data:`METRICS`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow.sdk.observability import stats

logger = logging.getLogger(__name__)

#: Parts of an interval run with a metric of their own, in their order; as
#: :class:`~airflow_eos_provider.interval.messages.RunSummary` has them.
PARTS = {
    "begin": "the coordinator's start: earlier records, the plan, the generation",
    "fence": "fencing of earlier attempts, at the start and at the end",
    "compare": "comparison of the input with committed slices",
    "stage": "the tasks, as the coordinator waits for them",
    "read": "waiting for rows, summed over the tasks",
    "shuffle": "the part of it in which Spark waits for other executors, summed over the tasks",
    "produce": "making records and handing them to the client, summed over the tasks",
    "flush": "waiting until the brokers have them, summed over the tasks",
    "commit": "ledger records and commits, summed over the tasks",
    "read_back": "the ledger at the end, and until every reader of committed records has them",
}


class Kind(Enum):
    """How a metric adds up."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    :param name: what Airflow calls it, behind its own prefix (``[metrics] statsd_prefix``).
    :param unit: of its values.
    :param tags: names of its tags; plain StatsD drops them.
    :param meaning: one sentence without its end.
    """

    name: str
    kind: Kind
    unit: str
    tags: tuple[str, ...]
    meaning: str

    def send(self, value: float, tags: Mapping[str, str]) -> None:
        """Count, set or time; seconds are sent as milliseconds."""
        known = {name: tags[name] for name in self.tags}
        try:
            if self.kind is Kind.COUNTER:
                stats.incr(self.name, int(value), tags=known)
            elif self.kind is Kind.GAUGE:
                stats.gauge(self.name, value, tags=known)
            else:
                stats.timing(self.name, 1000.0 * value, tags=known)
        except Exception as error:  # whatever the metrics' backend raises, the work is done
            logger.warning("The metric %s was not sent: %s", self.name, type(error).__name__)


_RUN = ("pipeline", "group_id")
_ROLL = ("group_id", "to")

INTERVALS_COMPLETED = Metric(
    "eos.interval.completed", Kind.COUNTER, "intervals", _RUN, "Intervals that a task has completed"
)
INTERVALS_FOUND = Metric(
    "eos.interval.already_complete", Kind.COUNTER, "intervals", _RUN, "Intervals that were complete when a task began"
)
RECORDS = Metric("eos.interval.records", Kind.COUNTER, "records", _RUN, "Records of the intervals completed")
BYTES = Metric("eos.interval.bytes", Kind.COUNTER, "bytes", _RUN, "Keys and values of these records")
TRANSACTIONS = Metric("eos.interval.transactions", Kind.COUNTER, "transactions", _RUN, "Slices, a transaction each")
ATTEMPTS_FENCED = Metric(
    "eos.interval.attempts_fenced",
    Kind.COUNTER,
    "attempts",
    _RUN,
    "Attempts that were begun and replaced: tasks that Spark started again, open transactions of earlier drivers",
)
DURATION = Metric("eos.interval.duration", Kind.TIMER, "milliseconds", _RUN, "The task, from its start to `complete`")
TRANSACTION_SIZES = {
    (what, which): Metric(
        f"eos.interval.transaction_{what}_{which}",
        Kind.GAUGE,
        what,
        _RUN,
        f"{words} transaction of the interval completed last",
    )
    for what in ("records", "bytes")
    for which, words in (("min", "Smallest"), ("avg", "Mean"), ("max", "Largest"))
}
PART_SECONDS = {
    part: Metric(f"eos.interval.{part}_time", Kind.TIMER, "milliseconds", _RUN, meaning[0].upper() + meaning[1:])
    for part, meaning in PARTS.items()
}
ROLLS_COMPLETED = Metric("eos.roll.completed", Kind.COUNTER, "rolls", _ROLL, "Rolls that are done")
ROLLS_FAILED = Metric("eos.roll.gate_failed", Kind.COUNTER, "rolls", _ROLL, "Rolls that a worker's gate has stopped")
ROLLS_PAUSED = Metric("eos.roll.paused", Kind.COUNTER, "rolls", _ROLL, "Rolls that have paused for a person")
GATE_WAIT = Metric(
    "eos.roll.gate_wait", Kind.TIMER, "milliseconds", _ROLL, "A worker, from its announced restart to its passed gate"
)
TASK_DOWNTIME = Metric(
    "eos.roll.task_downtime", Kind.TIMER, "milliseconds", _ROLL, "For how long a worker's tasks were unassigned"
)
TASK_DOWNTIME_PREDICTED = Metric(
    "eos.roll.task_downtime_predicted", Kind.TIMER, "milliseconds", _ROLL, "What the plan had predicted of it"
)

#: All of them.
METRICS = (
    *(INTERVALS_COMPLETED, INTERVALS_FOUND, RECORDS, BYTES, TRANSACTIONS, ATTEMPTS_FENCED, DURATION),
    *TRANSACTION_SIZES.values(),
    *PART_SECONDS.values(),
    *(ROLLS_COMPLETED, ROLLS_FAILED, ROLLS_PAUSED, GATE_WAIT, TASK_DOWNTIME, TASK_DOWNTIME_PREDICTED),
)


def of_interval(result: Mapping[str, Any], *, pipeline: str, group_id: str) -> None:
    """Send the metrics of one interval run."""
    tags = {"pipeline": pipeline, "group_id": group_id}
    if result["already"]:
        INTERVALS_FOUND.send(1, tags)
        return
    INTERVALS_COMPLETED.send(1, tags)
    RECORDS.send(result["records"], tags)
    DURATION.send(result["seconds"], tags)
    summary = result["metrics"]
    if summary is None:
        return
    BYTES.send(summary["bytes"], tags)
    TRANSACTIONS.send(summary["transactions"], tags)
    ATTEMPTS_FENCED.send(summary["attempts_fenced"], tags)
    for what in ("records", "bytes"):
        for which, size in zip(("min", "avg", "max"), summary[f"transaction_{what}"], strict=True):
            TRANSACTION_SIZES[what, which].send(size, tags)
    for part, seconds in summary["seconds"].items():
        if part in PART_SECONDS:
            PART_SECONDS[part].send(seconds, tags)


def of_roll(report: Mapping[str, Any], *, group_id: str) -> None:
    """Send the metrics of one roll."""
    if not report.get("workers"):
        return  # there was nothing to do
    tags = {"group_id": group_id, "to": str(report["to"])}
    ROLLS_COMPLETED.send(1, tags)
    for worker in report["workers"]:
        GATE_WAIT.send(worker["seconds"], tags)
        TASK_DOWNTIME.send(worker["task_downtime_seconds"], tags)
        TASK_DOWNTIME_PREDICTED.send(worker["predicted_seconds"], tags)
