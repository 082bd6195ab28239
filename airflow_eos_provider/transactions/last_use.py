"""When transactional ids were last used, by the coordinators' own log.

A coordinator reports when the last transaction of an id began, and nothing of an id that had none since its producer
took it. Its log, a partition of ``__transaction_state``, has a record of each use: of a new producer too. The brokers
forget an id by the time of the last one.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence

from airflow_eos_provider.kafka.admin.coordinators import partition_of
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.read.topic_ends import Reach
from airflow_eos_provider.transactions.hanging import STATE_TOPIC

#: Limit of the read, seconds: a log of many transactions may have more than one wants to wait for.
_READ_SECONDS = 10.0

#: Limit of the question where the read begins, seconds.
_ASK_SECONDS = 15.0

#: Records of one moment do not stand in the exact order of their times.
_SLACK_SECONDS = 3_600.0

#: The form of a record's key: version 0, then the id's length and text.
_KEY = struct.Struct(">hh")


def last_used(kafka: Session, ids: Collection[str], partitions: int, since: float) -> dict[str, float]:
    """When these ids were last used, seconds since the epoch; without those that were not since then."""
    found: dict[str, float] = {}

    def take(records: Sequence[LogRecord]) -> None:
        found.update(uses(records, ids))

    wanted = {partition_of(one, partitions) for one in ids}
    start = _offsets_since(kafka, wanted, since - _SLACK_SECONDS)
    if start:
        # A record that compaction takes meanwhile has a later one behind the end: its id is absent, so not known.
        reach = Reach(start=start, partitions=sorted(start))
        scan_to_end(kafka, STATE_TOPIC, take, reach, isolation="read_uncommitted", timeout_seconds=_READ_SECONDS)
    return found


def uses(records: Iterable[LogRecord], ids: Collection[str]) -> dict[str, float]:
    """By id the time of its last record, seconds since the epoch."""
    keys = {_KEY.pack(0, len(one.encode())) + one.encode(): one for one in ids}
    return {
        keys[record.key]: record.timestamp_ms / 1000
        for record in records
        if record.key in keys and record.value is not None  # a record without a value says that the id is forgotten
    }


def _offsets_since(kafka: Session, partitions: Iterable[int], since: float) -> dict[int, int]:
    """By partition the first record since a time; one without any is absent."""
    places = [(STATE_TOPIC, number) for number in partitions]
    what = f"asking {STATE_TOPIC} for the records since a time"
    found = {}
    with kafka.admin() as admin:
        for (_, number), offset in admin.offsets(places, max(int(since * 1000), 0), _ASK_SECONDS, what).items():
            if isinstance(offset, Exception):
                raise admin.explain(offset, what) from offset
            if offset >= 0:
                found[number] = offset
    return found
