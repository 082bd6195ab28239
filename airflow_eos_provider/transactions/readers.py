"""Who waits behind an open transaction: consumer groups whose position is at the last stable offset.

A reader of committed records stops where the first open transaction begins. A group's committed offset shows its
position; if it is past that offset, the group reads uncommitted records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_eos_provider.connect.properties import sink_group
from airflow_eos_provider.connect.topics.config_topic import ClusterState
from airflow_eos_provider.kafka.admin.client import Place
from airflow_eos_provider.kafka.admin.groups import GroupSeen, groups_seen
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.transactions.hanging import HangingLook
from airflow_eos_provider.transactions.readable_ends import EndsOrWhy, PartitionEnds, ends_document

#: What the group of a sink connector begins with that sets none.
_SINK = sink_group("")


class Standing(StrEnum):
    WAITS = "waits"  # at the last stable offset: it gets nothing more until the transaction ends
    BEFORE = "before"  # it has committed records left to read, or to commit
    PAST = "past"  # it has read what is not committed
    UNKNOWN = "unknown"  # it is assigned to the partition, and has committed no position


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer group in a partition that holds a transaction open.

    :param committed: the offset that it would read next; None if it has committed none.
    :param members: whether one of its members has the partition.
    :param connector: the sink connector whose group it is; None for another group.
    """

    group_id: str
    place: Place
    ends: PartitionEnds
    committed: int | None
    members: bool
    connector: str | None = None

    @property
    def standing(self) -> Standing:
        if self.committed is None:
            return Standing.UNKNOWN
        if self.committed == self.ends.stable:
            return Standing.WAITS
        return Standing.BEFORE if self.committed < self.ends.stable else Standing.PAST

    @property
    def to_stable(self) -> int | None:
        """Offsets to the last stable one; negative past it."""
        return None if self.committed is None else self.ends.stable - self.committed

    @property
    def to_end(self) -> int | None:
        return None if self.committed is None else self.ends.end - self.committed

    @property
    def words(self) -> str:
        who = f"sink connector {self.connector} ({self.group_id})" if self.connector else f"group {self.group_id}"
        idle = "" if self.members else "; no member has the partition now"
        if self.committed is None:
            return f"{who}: has committed no position there"
        lag = f"{self.to_end:,} to the end"
        said = {
            Standing.WAITS: f"waits at {self.committed:,}, {lag}",
            Standing.BEFORE: f"at {self.committed:,}, {self.to_stable:,} before the transaction, {lag}",
            Standing.PAST: f"at {self.committed:,}, past its begin: it reads uncommitted records",
        }
        return f"{who}: {said[self.standing]}{idle}"

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {
            "group_id": self.group_id,
            "connector": self.connector,
            "standing": str(self.standing),
            "committed": self.committed,
            "lag_to_stable": self.to_stable,
            "lag_to_end": self.to_end,
            "members": self.members,
        }


@dataclass(frozen=True, slots=True)
class ReadersLook:
    readers: tuple[Reader, ...] = ()
    unknown: tuple[str, ...] = ()

    def at(self, place: Place) -> tuple[Reader, ...]:
        """Those of one partition: who waits first, then who has most left."""
        order = {Standing.WAITS: 0, Standing.BEFORE: 1, Standing.UNKNOWN: 2, Standing.PAST: 3}
        found = [reader for reader in self.readers if reader.place == place]
        return tuple(sorted(found, key=lambda one: (order[one.standing], -(one.to_end or 0), one.group_id)))


def decide(
    groups: Iterable[GroupSeen], ends: Mapping[Place, EndsOrWhy], sinks: Mapping[str, str]
) -> tuple[Reader, ...]:
    known = {place: there for place, there in ends.items() if isinstance(there, PartitionEnds)}
    return tuple(
        Reader(
            group.group_id,
            place,
            there,
            group.committed.get(place),
            place in group.assigned,
            sinks.get(group.group_id) or _by_name(group.group_id),
        )
        for group in sorted(groups, key=lambda each: each.group_id)
        for place, there in sorted(known.items())
        if place in group.committed or place in group.assigned
    )


def _by_name(group_id: str) -> str | None:
    """Connect's own name of a sink connector's group says which one it is, though perhaps of another cluster."""
    name = group_id.removeprefix(_SINK)
    return f"{name}, by its name" if group_id.startswith(_SINK) and name else None


def sink_groups(state: ClusterState | None) -> dict[str, str]:
    """By consumer group the sink connector that reads with it."""
    return {
        sink_group(name, connector.config): name
        for name, connector in (state.connectors if state else {}).items()
        if connector.config.get("topics") or connector.config.get("topics.regex")
    }


def readers_of(kafka: Session, ends: Mapping[Place, EndsOrWhy], sinks: Mapping[str, str]) -> ReadersLook:
    """Ask every consumer group for its position in these partitions."""
    places = [place for place, there in ends.items() if isinstance(there, PartitionEnds)]
    if not places:
        return ReadersLook()
    with kafka.admin() as admin:
        groups, unknown = groups_seen(admin, places)
    return ReadersLook(decide(groups, ends, sinks), tuple(unknown))


def hanging_document(look: HangingLook, ends: Mapping[Place, EndsOrWhy], readers: ReadersLook) -> dict[str, Any]:
    """What hangs, as JSON. Scripts rely on the names."""
    return {
        "hanging": [
            {
                **one.held._asdict(),
                "transactional_id": one.transactional_id,
                "state": one.state and str(one.state),
                "ends": ends_document(ends[one.held.place]),
                "readers": [reader.to_dict() for reader in readers.at(one.held.place)],
            }
            for one in look.hanging
        ],
        "unseen": [held._asdict() for held in look.unseen],
        "unknown": {f"{topic}-{partition}": why for (topic, partition), why in look.unknown.items()},
        "hidden": look.hidden,
        "readers_unknown": list(readers.unknown),
    }
