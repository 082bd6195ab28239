"""What differs between two states of source offsets: two backups, a backup and now, the global topic and an own one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_eos_provider.connect.topics.source_offsets import OffsetRecord, combined
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.offsets.seen.backup import Backup
from airflow_eos_provider.offsets.seen.group_offsets import GroupOffsets


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose value differs."""

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
    return _between(*({(r.topic, r.key.raw, r.kafka_partition): r for r in one.records} for one in (before, after)))


def own_from_global(offsets: GroupOffsets, connector: str) -> list[Difference]:
    """By key, what a connector's own topic has otherwise than the global one; the global one's is the first state."""
    own = offsets.own_topics.get(offsets.own_topic_of.get(connector, ""))
    if own is None:
        raise ConfigurationError(
            f"{connector} has no offsets topic of its own here.", remedy=f"See 'eos offsets list {connector}'."
        )
    return _between(
        *(
            {one.record.key.raw: one.record for one in combined(topic.committed.get(connector, ()), ())}
            for topic in (offsets.global_topic, own)
        )
    )


def _between(old: Mapping[Any, OffsetRecord], new: Mapping[Any, OffsetRecord]) -> list[Difference]:
    return [
        Difference(old.get(place), new.get(place))
        for place in sorted(old.keys() | new.keys())
        if place not in old or place not in new or old[place].value != new[place].value
    ]
