"""A task count record outlives its connector, for good.

Deleting a connector writes tombstones for its configuration and its target state. Its ``tasks-fencing-…`` record gets
none, and compaction keeps it: a new connector of that name begins by the old one's number.
"""

from __future__ import annotations

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from tests.upstream.shown import SECONDS, StartLab, rest_of, start_source
from tests.waiting import until


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    start_source(lab, "deleted", "one\n")
    with rest_of(lab) as rest:
        rest.delete("deleted")
        until(lambda: "deleted" not in rest.statuses(), "the connector to be gone", seconds=SECONDS)
    until(lambda: _last(lab)[b"connector-deleted"] is None, "its tombstone", seconds=SECONDS)
    left = _last(lab)[b"tasks-fencing-deleted"]
    assert left == b'{"task-count":1}', left
    return f"the connector is deleted, and {left.decode()} stays"


def _last(lab: Lab) -> dict[bytes, bytes | None]:
    """The last value of each key of the config topic."""
    records = read_to_end(lab.cluster().kafka, f"{lab.group_id}-configs").records
    return {record.key: record.value for record in records if record.key is not None}
