"""Connect keeps the task count record of a connector that was deleted, for good.

Nothing removes ``tasks-fencing-<connector>``. A connector of the same name later on fences the ids of the former one
first; the rights for them have to be there still.
"""

from __future__ import annotations

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.kafka.read import read_to_end
from tests.upstream.shown import SECONDS, StartLab, rest_of, start_source
from tests.waiting import until


def show(start: StartLab) -> str:
    lab = start(workers=1, mode=Mode.ENABLED)
    start_source(lab, "gone", "one\n")
    with rest_of(lab) as rest:
        rest.delete("gone")

    def latest() -> dict[bytes | None, bytes | None]:
        records = read_to_end(lab.cluster().kafka, f"{lab.group_id}-configs").records
        return {record.key: record.value for record in records}

    until(lambda: latest().get(b"connector-gone", b"") is None, "its tombstone", seconds=SECONDS)
    lab.stop_worker(0)
    lab.start_worker(0)
    left = latest().get(b"tasks-fencing-gone")
    assert left == b'{"tasks":1}' or (left is not None and b"1" in left), left
    return f"the connector is deleted, and its record is still {left.decode()}"
