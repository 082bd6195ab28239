"""The states of a transaction, by the names that its coordinator uses."""

from __future__ import annotations

from enum import StrEnum


class TransactionState(StrEnum):
    """What the coordinator does with a transactional id's transaction (Kafka's ``TransactionState``).

    A state of a newer broker keeps its name and is a value of its own, named ``UNKNOWN``.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:
        unknown = str.__new__(cls, value)
        unknown._name_, unknown._value_ = "UNKNOWN", str(value)
        return unknown

    @property
    def is_open(self) -> bool:
        """Whether a partition may still wait for the end of a transaction: it is open, or its markers are on the way.

        An unknown state counts as open: an open transaction that is taken for ended would not be waited for or fenced.
        """
        return self not in _ENDED


_ENDED = frozenset(
    {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
        TransactionState.DEAD,
    }
)
