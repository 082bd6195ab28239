"""What differs between two states of source offsets: two backups, or a backup and now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_eos_provider.connect.offsets import OffsetRecord
from airflow_eos_provider.offsets.backup import Backup


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose value differs.

    :param before: its record in the first state, None if it was not there.
    :param after: its record in the second one.
    """

    before: OffsetRecord | None
    after: OffsetRecord | None

    @property
    def record(self) -> OffsetRecord:
        """Either of them, for the key and the place."""
        found = self.after or self.before
        assert found is not None
        return found

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {
            "connector": self.record.key.connector,
            "partition": self.record.key.partition,
            "topic": self.record.topic,
            "kafka_partition": self.record.kafka_partition,
            "key": self.record.key.raw.decode(errors="backslashreplace"),
            "before": self.before and self.before.offset,
            "after": self.after and self.after.offset,
            "change": "added" if self.before is None else "removed" if self.after is None else "changed",
        }


def difference(before: Backup, after: Backup) -> list[Difference]:
    """The keys whose bytes of value differ, by topic, key and partition. Positions and times do not count."""
    old, new = _by_place(before.records), _by_place(after.records)
    return [
        Difference(old.get(place), new.get(place))
        for place in sorted(old.keys() | new.keys())
        if place not in old or place not in new or old[place].value != new[place].value
    ]


def _by_place(records: Iterable[OffsetRecord]) -> dict[tuple[str, bytes, int], OffsetRecord]:
    return {(record.topic, record.key.raw, record.kafka_partition): record for record in records}
