"""Progress of the topics that a Connect group writes: plain values, and changes between polls.

Each poll reads the end of a partition twice, uncommitted and committed: where they differ, a transaction is open there.
How long it stays open, and whether a source task makes progress, needs several polls: :class:`Memory` keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.kafka.admin.transactions import TransactionDescription

Place = tuple[str, int]

#: A source that has moved in so many looks in a row moves steadily; one that was just given something does not.
STEADY_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a partition: where readers of committed records stop (the last stable offset), and the end."""

    stable: int
    end: int


@dataclass(frozen=True, slots=True)
class Held:
    """A partition whose readers of committed records are held back.

    :param stable: where.
    :param since: since when it has stood there as far as was seen, seconds since the epoch.
    """

    topic: str
    partition: int
    stable: int
    since: float


@dataclass(frozen=True, slots=True)
class Movement:
    """How one source connector's topics grow, as seen between looks.

    :param looks: looks in a row at which they had grown.
    :param steady_at: the last look at which they had grown for :data:`STEADY_LOOKS` looks; None if never.
    :param moved_since: the earlier of the last two looks between which they grew, seconds since the epoch; 0 if never.
    """

    looks: int = 0
    steady_at: float | None = None
    moved_since: float = 0.0


@dataclass(frozen=True, slots=True)
class LogView:
    """The topics that a group writes, at one look.

    :param held: partitions with an open transaction.
    :param movements: by source connector.
    :param open_transactions: all that are open on these topics or belong to the group, anybody's.
    :param unreadable: topics that may not be looked at.
    """

    partition_count: int = 0
    held: tuple[Held, ...] = ()
    movements: Mapping[str, Movement] = field(default_factory=dict)
    open_transactions: tuple[TransactionDescription, ...] = ()
    unreadable: frozenset[str] = frozenset()


@dataclass(slots=True)
class Memory:
    """What earlier looks have left."""

    at: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)
    movements: dict[str, Movement] = field(default_factory=dict)
    held: tuple[Held, ...] = ()

    def take(self, at: float, ends: Mapping[Place, Ends], topics: Mapping[str, frozenset[str]]) -> None:
        """One more look."""
        before = {(one.topic, one.partition): one for one in self.held}
        self.held = tuple(
            one if (one := before.get(place)) and one.stable == found.stable else Held(*place, found.stable, at)
            for place, found in ends.items()
            if found.stable < found.end
        )
        sizes = {c: sum(e.end for (topic, _), e in ends.items() if topic in own) for c, own in topics.items()}
        self.movements = {connector: self._moved(connector, size, at) for connector, size in sizes.items()}
        self.sizes, self.at = sizes, at

    def _moved(self, connector: str, size: int, at: float) -> Movement:
        before = self.movements.get(connector, Movement())
        if size <= self.sizes.get(connector, size):
            return Movement(0, before.steady_at, before.moved_since)
        looks = before.looks + 1
        return Movement(looks, at if looks >= STEADY_LOOKS else before.steady_at, self.at)
