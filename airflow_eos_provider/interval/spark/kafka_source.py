"""A topic's records of an interval, as a DataFrame with explicit offsets.

Spark resolves times with a consumer of committed records, so it stops at the first open transaction, and starts with
what retention has left. Both would lose records silently. So the driver resolves the range among all records.
Neighbouring intervals share their bound: the first offset whose record is of the bound's time or later; where there is
none yet, the log's end, which is taken once no record can be late any more.

ListOffsets treats a transaction's marker as a record with the time of its commit. So a marker (or an aborted record) of
a later time may be the bound of an interval whose records are behind it, and the committed records behind each bound
are read, too.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, ReadTimeoutError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.read.topic_ends import Ends, Reach
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics

logger = logging.getLogger("airflow_eos_provider.interval")

_POLL_SECONDS = 0.5

#: Brokers take no record that is farther ahead of their clocks (message.timestamp.after.max.ms), unless told otherwise.
_AHEAD_SECONDS = 3600.0

#: A broker ends a transaction that its producer does not (transaction.max.timeout.ms, 15 minutes); and a minute more.
_TIMEOUT_SECONDS = 960.0

#: The least that reading behind a bound may take.
_READ_SECONDS = 30.0


def kafka_source(
    spark: SparkSession,
    interval: Interval,
    kafka: KafkaSettings | str,
    topic: str,
    *,
    start: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
    late_seconds: float = 60.0,
    timeout_seconds: float = _TIMEOUT_SECONDS,
    allow_removed: bool = False,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read a topic's committed records of an interval, by their times or by given offsets.

    The range of a partition is from its first record of the interval's start or later, up to and without its first
    record of the interval's end or later.

    :param spark: the session, of either kind; Spark's package ``spark-sql-kafka-0-10`` is in it.
    :param interval: which records.
    :param kafka: how the driver reaches the brokers; or their addresses.
    :param topic: the topic. It is not compacted.
    :param start: by partition the first offset; instead of the interval's start.
    :param end: by partition the offset behind the last record; instead of the interval's end.
    :param late_seconds: how long after the interval's end its records may still be appended: clocks differ, and
        producers that set the time themselves (``CreateTime``) retry. It matters for partitions without a later record,
        and is how much older than a bound's time a record behind that bound may be.
    :param timeout_seconds: how long to wait for that time, and for the end of transactions that are open in the range.
    :param allow_removed: accept that retention may have removed records of the interval; read the remaining ones.
    :param options: further options of Spark's Kafka source, a login among them (``kafka.security.protocol`` …, with the
        names of Java's clients).
    :returns: the columns of Spark's Kafka source. A slice's key is the place: ``topic``, ``partition`` and ``offset``.
    :raises ConfigurationError: there is no such topic, or it is compacted; records of the range may have been removed;
        a partition's range ends before it begins, or is bounded by a record of the future; a record behind a bound is
        older than its time by more than ``late_seconds``; an option gives a range.
    :raises ReadTimeoutError: records may still come, or a transaction in the range is open after the timeout.
    :raises UnreachableError: no broker answers.
    """
    settings = kafka if isinstance(kafka, KafkaSettings) else KafkaSettings.of(kafka)
    if ranges := [name for name in options or {} if name.lower().startswith(("starting", "ending"))]:
        raise ConfigurationError(
            f"The options have {ranges[0]}, by which Spark would read another range than the interval's.",
            expected="options that say nothing of the range",
            remedy="Leave it out. For other bounds give start or end, offsets by partition.",
        )
    starts, ends = ({int(p): offset for p, offset in (given or {}).items()} for given in (start, end))  # as of JSON
    with Session(settings) as session, session.admin() as admin:
        policy = Topics(session).settings_of([topic])[topic]["cleanup.policy"]
        if "compact" in policy:
            raise ConfigurationError(
                f"The topic {topic} is compacted, so a retry may find fewer records.",
                expected=f"cleanup.policy=delete, not {policy}",
                remedy="Copy it to a topic that is not compacted and read that.",
            )
        everything = Ends(admin, topic, Reach(), CONNECT_SECONDS)
        stable = Ends(admin, topic, Reach(stable_only=True), CONNECT_SECONDS)
        last = _ends(interval, topic, everything, stable, ends, late_seconds, timeout_seconds)
        at_start, kept = everything.at(_ms(interval.start)), everything.beginnings()
        ahead = everything.at(int((time.time() + _AHEAD_SECONDS) * 1000))
        for moment, found, given in ((interval.start, at_start, starts), (interval.end, last, ends)):
            bounds = {p: offset for p, offset in found.items() if offset is not None and p not in given}
            _require_in_order(session, topic, bounds, moment, late_seconds, timeout_seconds)
    first = {p: last[p] if offset is None else offset for p, offset in at_start.items()} | starts
    if wrong := sorted(p for p in first.keys() | ends.keys() if p not in last or first[p] > last[p]):
        raise ConfigurationError(
            f"Partition {wrong[0]} of {topic} has no range from offset {first.get(wrong[0])} to {ends.get(wrong[0])}.",
            expected=f"one of the {len(last)} partitions, and an end that is not before the start",
            remedy="Correct start or end.",
        )
    for partition, offset in ahead.items():
        by_times = [found[partition] for found, given in ((last, ends), (at_start, starts)) if partition not in given]
        if offset is not None and offset in by_times:
            raise ConfigurationError(
                f"The record at offset {offset} of partition {partition} of {topic} has a time in the future. By "
                "times, each interval until then ends there, and the records behind it would be in none of them.",
                expected=f"no record that is more than {_AHEAD_SECONDS:.0f} s ahead of this machine's clock",
                remedy=f"Give the offsets: start={{{partition}: …}} and end={{{partition}: …}}. To refuse such "
                "records, set the topic's message.timestamp.after.max.ms.",
            )
    for partition, offset in first.items():
        oldest = kept[partition]
        is_known = partition in starts or allow_removed or oldest == 0
        if offset < oldest or (offset == oldest and not is_known):
            raise ConfigurationError(
                f"Partition {partition} of {topic} begins at offset {oldest}: records of {interval.name} may have been "
                "removed by retention.",
                expected=f"a record before {interval.start.isoformat()}, or a partition from offset 0 on",
                remedy=f"Raise the topic's retention.ms for the next intervals. To read the remaining records: "
                f"allow_removed=True, or start={{{partition}: {oldest}}}.",
            )
    fixed = {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({topic: sorted(first)}),
        "startingOffsets": json.dumps({topic: first}),
        "endingOffsets": json.dumps({topic: last}),
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**{**(options or {}), **fixed}).load()


def _ends(
    interval: Interval,
    topic: str,
    everything: Ends,
    stable: Ends,
    given: Mapping[int, int],
    late_seconds: float,
    timeout_seconds: float,
) -> dict[int, int]:
    """By partition where the range ends; readers of committed records get that far.

    The log's end is asked for before the bound: a record of the bound's time that comes in between is behind both.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        log_end, bound = everything.now(), everything.at(_ms(interval.end))
        late_left = interval.end.timestamp() + late_seconds - time.time()
        ends, waits = {}, []
        for partition, behind in log_end.items():
            found = given.get(partition, bound[partition])
            if found is None and late_left > 0:
                waits.append(f"records of {interval.name} may come to partition {partition} for {late_left:.0f} s more")
            ends[partition] = behind if found is None else found
        if late := sorted(p for p, wanted in ends.items() if wanted > log_end[p] and p in given):
            raise ConfigurationError(
                f"Partition {late[0]} of {topic} ends at offset {log_end[late[0]]}, and its range at {ends[late[0]]}.",
                remedy="Correct end.",
            )
        readable = stable.now()
        waits += [
            f"a transaction is open in partition {partition} from offset {readable[partition]} on"
            for partition, wanted in ends.items()
            if readable[partition] < wanted
        ]
        if not waits:
            return ends
        if time.monotonic() + max(0.0, late_left if "may come" in waits[0] else 0.0) > deadline:
            raise ReadTimeoutError(
                f"The range of {interval.name} in {topic} has not ended: {waits[0]}.",
                expected=f"a range that ends within timeout_seconds, {timeout_seconds:g} s",
                remedy="Run the interval again later. Find stuck transactions with 'eos transactions list --hanging'.",
            )
        logger.info("Waiting for the range of %s in %s: %s", interval.name, topic, waits[0])
        time.sleep(_POLL_SECONDS)


def _require_in_order(
    session: Session,
    topic: str,
    bounds: Mapping[int, int],
    moment: datetime,
    late_seconds: float,
    timeout_seconds: float,
) -> None:
    """Read what is committed behind the bounds, up to a record of their time; refuse one that is too old for there."""
    done = set[int]()

    def take(records: Sequence[LogRecord]) -> set[int]:
        for _, partition, offset, timestamp_ms, *_ in records:
            if timestamp_ms >= _ms(moment):
                done.add(partition)
            elif partition not in done and timestamp_ms < _ms(moment) - late_seconds * 1000:
                raise ConfigurationError(
                    f"Offset {bounds[partition]} of partition {partition} of {topic} bounds {moment.isoformat()}, but "
                    f"the record at offset {offset} behind it is of "
                    f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat()}. By times, it would be in a wrong "
                    "interval or in none.",
                    expected=f"records in the order of their times, except for late_seconds, {late_seconds:g} s. The "
                    "commit of a transaction counts as a record of the time of the commit",
                    remedy=f"Give the offsets: start={{{partition}: …}} and end={{{partition}: …}}; or read a topic "
                    "whose records are in the order of their times. If they only come late, raise late_seconds.",
                )
        return done

    reach = Reach(start=bounds, partitions=bounds)
    scan_to_end(session, topic, take, reach, timeout_seconds=max(timeout_seconds, _READ_SECONDS))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
