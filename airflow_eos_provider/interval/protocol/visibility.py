"""Waits until readers of committed records get all records of a run, and names the transaction that blocks them.

A partition's readers stop at the last stable offset, where its first open transaction begins, of any producer. So
``complete`` waits until the stable end of each target partition passes its end, asked for after the run's ids are
fenced: all of its records come before that, and transactions that begin later are not waited for.

A marker may be missing for ever. A broker that ends a transaction treats a partition without a leader as deleted, and
reports that the transaction has ended although the marker was not written (KAFKA-20734, seen with Kafka 4.3.1). When
the partition is online again, its readers stop before committed records. No client can write the marker, so the run
checks for missing markers before it writes ``complete``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_eos_provider.connect.transactional_ids import task_number
from airflow_eos_provider.errors import EosError, ReadTimeoutError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import Report, silent
from airflow_eos_provider.interval.topics.run_reader import ReportBackoff, ask_until_answered
from airflow_eos_provider.kafka.admin.transactions import (
    ActiveProducer,
    TransactionDescription,
    TransactionListing,
    TransactionsClient,
)
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS
from airflow_eos_provider.kafka.read.topic_ends import Ends, Reach
from airflow_eos_provider.kafka.topics import Topics

#: Between two looks at the stable ends, seconds: at first, and at most.
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0

#: After so many seconds whoever holds the readers back is looked for and named; then after twice as many, and so on.
_REPORT_SECONDS = 1.0

_NAMED = 3


class NotVisibleError(ReadTimeoutError):
    """All records of a run are committed, but an open transaction of another producer hides some from readers."""


def holders(
    topic: str,
    producers: Sequence[ActiveProducer],
    ends: Mapping[int, int],
    listed: Sequence[TransactionListing],
    described: Mapping[str, TransactionDescription],
) -> list[str]:
    """Who holds readers back from these ends, since when, and until when at the latest; an entry a producer."""
    ids = {entry.producer_id: entry.transactional_id for entry in listed}
    found: dict[int, str] = {}
    for producer in producers:
        start, number = producer.transaction_start_offset, producer.producer_id
        if start is None or start >= ends.get(producer.partition, 0) or number in found:
            continue
        place, written = f"partition {producer.partition} from offset {start} on", _at(producer.last_timestamp_ms)
        who, known = ids.get(number), described.get(ids.get(number, ""))
        if who is None:
            found[number] = (
                f"producer {number} blocks {place} since {written} at the latest; no transactional id is listed for "
                "it: this principal may not describe it, or the transaction hangs"
            )
        elif known is None or known.started_at_ms is None:
            found[number] = (
                f"{who} (producer {number}) blocks {place} since {written}, but its coordinator has no transaction "
                "open. It has just ended, or it hangs, and then only 'eos transactions abort "
                f"--topic {topic} --partition {producer.partition} --start-offset {start}' ends it, which gives its "
                "records up"
            )
        else:
            since, until = _at(known.started_at_ms), _at(known.started_at_ms + known.timeout_ms)
            found[number] = (
                f"{who} (producer {number}) blocks {place} ({known.state}) since {since}, until {until} at the latest"
            )
    return list(found.values())


@dataclass
class Visibility:
    """Waits until a run's records can be read."""

    kafka: Kafka
    run: Run
    timeout_ms: int
    client: Callable[[], TransactionsClient]
    report: Report = silent

    def wait(self, topics: Sequence[str]) -> None:
        """Return when the stable end of every partition has passed its end of this moment."""
        began = time.monotonic()
        for topic in topics:
            ends = self._ends(topic, Reach())
            self._wait_for(topic, ends, began)

    def _wait_for(self, topic: str, ends: Mapping[int, int], began: float) -> None:
        pause, backoff = _PAUSE_SECONDS, ReportBackoff(_REPORT_SECONDS)
        while left := self._left(topic, ends):
            waited = time.monotonic() - began
            if waited * 1000 >= self.timeout_ms:
                raise self._not_visible(topic, left, ends)
            if backoff.is_due(waited):
                words = self._who_holds(topic, {p: ends[p] for p in left})
                self.report(f"{self.run}: Waiting until readers of {topic} get its records: {words}")
            time.sleep(min(pause, max(self.timeout_ms / 1000 - waited, 0)))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _left(self, topic: str, ends: Mapping[int, int]) -> dict[int, int]:
        """By partition that readers do not get past yet, where they stop."""
        stable = self._ends(topic, Reach(stable_only=True))
        return {
            partition: stable.get(partition, 0) for partition, end in ends.items() if stable.get(partition, 0) < end
        }

    def _ends(self, topic: str, reach: Reach) -> dict[int, int]:
        def ask() -> dict[int, int]:
            with session_of(self.kafka) as session, session.admin() as admin:
                return Ends(admin, topic, reach, CONNECT_SECONDS).now()

        return ask_until_answered(ask, topic, self.report)

    def _who_holds(self, topic: str, ends: Mapping[int, int]) -> str:
        try:
            client = self.client()
            producers = client.active_producers(topic, ends)
            listed = client.list()
            opened = {p.producer_id for p in producers if p.transaction_start_offset is not None}
            described = client.describe(entry.transactional_id for entry in listed if entry.producer_id in opened)
        except EosError as error:
            return f"an open transaction, which cannot be looked up ({error.found})"
        found = holders(topic, producers, ends, listed, described)
        if not found:
            return "the transaction has just ended"
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return "; ".join(found[:_NAMED]) + more

    def _not_visible(self, topic: str, left: Mapping[int, int], ends: Mapping[int, int]) -> NotVisibleError:
        partition = min(left)
        more = f" (and {len(left) - 1} more partitions)" if len(left) > 1 else ""
        return NotVisibleError(
            f"{self.run}: every slice is committed, but readers of committed records get partition {partition} of "
            f"{topic} only up to offset {left[partition]} of {ends[partition]}{more}: "
            f"{self._who_holds(topic, {p: ends[p] for p in left})}.",
            expected=f"all records readable within visibility_timeout_ms, {self.timeout_ms} ms",
            remedy="Nothing is lost. Run the interval again when that transaction has ended: it writes nothing and "
            "completes. If its producer is meant to stay open that long, raise visibility_timeout_ms.",
        )


def _at(moment_ms: int) -> str:
    return "an unknown time" if moment_ms < 0 else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment_ms / 1000))


def missing_markers(
    client: TransactionsClient, pipeline: Pipeline, run: Run, topic: str, kafka: Kafka | None = None
) -> tuple[ActiveProducer, ...]:
    """Where a transaction of a run's tasks is open in a partition of a target topic.

    After the tasks' ids are fenced no such transaction is open for their coordinators, so each that a partition still
    holds open has lost its marker; or a newer driver has begun.
    """
    prefix = pipeline.task_id_prefix(run)
    ours = {one.producer_id for one in client.list(prefix) if task_number(one.transactional_id, prefix) is not None}
    described = Topics(kafka or pipeline.kafka).describe([topic]).get(topic)
    producers = client.active_producers(topic, range(described.partitions if described else 0))
    return tuple(p for p in producers if p.transaction_start_offset is not None and p.producer_id in ours)


def missing_marker_error(run: Run, topic: str, lost: tuple[ActiveProducer, ...]) -> EosError:
    """The error that names the first of them, and how many others there are."""
    first = lost[0]
    more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
    return EosError(
        f"{run}: records are committed, but the brokers left out the marker in partition {first.partition} of {topic} "
        f"(producer {first.producer_id}, from offset {first.transaction_start_offset}{more}), since it had no leader "
        "then (KAFKA-20734). Readers of committed records do not pass it, so the interval is not complete.",
        expected="no open transaction of this run in any partition",
        remedy=f"'eos transactions abort --topic {topic} --partition {first.partition} --start-offset "
        f"{first.transaction_start_offset}' frees the readers and gives these records up for good; then write the "
        "interval again as revision 2 into a topic that does not have its other records.",
    )
