"""One rollout in the journal's log: each step of each worker, and each act of its controller.

The journal is compacted: its content is the newest record of each key. Of a roll that is young, the log has the others
too, with the times at which the broker appended them. Compacted records are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from airflow_eos_provider.journal.journal_topic import READ_TIMEOUT_SECONDS
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.records import (
    LEASE_KEY,
    STEP_KEY,
    Lease,
    Step,
    read_record,
)
from airflow_eos_provider.kafka.kafka_session import Kafka
from airflow_eos_provider.kafka.read.reader import LogRecord, read_to_end
from airflow_eos_provider.kafka.read.topic_ends import UnknownTopicError


@dataclass(frozen=True, slots=True)
class Past:
    """One rollout, as its records came."""

    steps: tuple[Step, ...] = ()  #: each record of a step, in the order of the log
    leases: tuple[Lease, ...] = ()  #: of the controllers, each as often as it said something new


def read_past(kafka: Kafka, group_id: str, rollout_id: str, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> Past:
    """What the log has of a rollout; nothing if the group was never rolled."""
    try:
        read = read_to_end(kafka, journal_topic(group_id), timeout_seconds=timeout_seconds)
    except UnknownTopicError:
        return Past()
    return past_of(read.records, rollout_id)


def past_of(records: Iterable[LogRecord], rollout_id: str) -> Past:
    """The rollout that these records tell of. What this version does not understand is left out."""
    steps, leases = list[Step](), list[Lease]()
    for record in records:
        key = (record.key or b"").decode(errors="replace")
        if record.value is None or not (key == LEASE_KEY or key.startswith(f"{STEP_KEY}{rollout_id}/")):
            continue
        try:
            kind = LEASE_KEY if key == LEASE_KEY else STEP_KEY
            found = read_record(kind, json.loads(record.value), record.timestamp_ms)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        if isinstance(found, Step):
            steps.append(found)
        elif isinstance(found, Lease) and found.rollout_id == rollout_id:
            leases.append(found)
    return Past(tuple(steps), tuple(next(same) for _, same in groupby(leases, key=attrgetter("step"))))
