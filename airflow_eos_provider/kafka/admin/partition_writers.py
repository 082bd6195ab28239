"""Who wrote the batches of one partition, and how their transactions ended.

The headers of the record batches contain both.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

#: Called with offsets passed and offsets in all.
Progress = Callable[[int, int], None]


class Outcome(StrEnum):
    """What readers of committed records make of a record."""

    PLAIN = "plain"  # written outside of any transaction
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class Batch(NamedTuple):
    """One record batch's header.

    ``producer_id`` and ``producer_epoch`` are -1 for a plain producer. ``committed`` says of a marker how the
    transaction ended, and is None for records.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    committed: bool | None = None
    partition: int = 0

    @property
    def offset(self) -> int:
        return self.base_offset


class Written(NamedTuple):
    """Who wrote a record, and how its transaction ended. ``producer_id`` is None for a plain producer."""

    producer_id: int | None
    producer_epoch: int | None
    outcome: Outcome

    @property
    def is_committed(self) -> bool:
        """Whether readers of committed records get it."""
        return self.outcome in (Outcome.PLAIN, Outcome.COMMITTED)


_OUTCOMES = (Outcome.PLAIN, Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN)
_CODES = {outcome: code for code, outcome in enumerate(_OUTCOMES)}


class PartitionWriters:
    """The batches of one partition, taken in the order of the log. Some 20 bytes of memory a batch.

    Markers that compaction has taken are not missed: it takes one only when the records of its transaction are gone.
    """

    def __init__(self) -> None:
        self._bases = array("q")
        self._producers = array("q")
        self._epochs = array("h")
        self._codes = array("b")
        self._open: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, batch: Batch) -> None:
        """Go on with the next batch."""
        if batch.committed is not None:
            ended = _CODES[Outcome.COMMITTED if batch.committed else Outcome.ABORTED]
            for index in self._open.pop(batch.producer_id, ()):
                self._codes[index] = ended
            return
        if batch.transactional:
            self._open[batch.producer_id].append(len(self._bases))
        self._bases.append(batch.base_offset)
        self._producers.append(batch.producer_id)
        self._epochs.append(batch.producer_epoch)
        self._codes.append(_CODES[Outcome.OPEN if batch.transactional else Outcome.PLAIN])

    def at(self, offset: int) -> Written:
        """Who wrote the record at an offset."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            raise KeyError(offset)
        producer_id = self._producers[index]
        outcome = _OUTCOMES[self._codes[index]]
        return Written(None, None, outcome) if producer_id < 0 else Written(producer_id, self._epochs[index], outcome)
