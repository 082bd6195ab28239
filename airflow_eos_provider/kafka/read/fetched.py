"""What a read gets from a Kafka library, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from airflow_eos_provider.errors import ConfigurationError


class LogRecord(NamedTuple):
    """One record as it stands in the log. A tuple, for millions are made at once.

    ``headers`` are names and contents in their order, of a read that asks for them; None otherwise, or without any.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]] | None = None

    def __repr__(self) -> str:
        """Without value and headers, which may be secret."""
        return f"LogRecord({self.topic}-{self.partition}@{self.offset}, key={self.key!r})"


class Look(NamedTuple):
    """What one look has found; in place of records batches, of a read that asks for them.

    ``reached`` has by partition the position behind what is in it. ``stopped`` has by partition the position at which
    nothing more can be read now. ``answered`` says whether a broker said anything.
    """

    records: Sequence[Any]
    reached: Mapping[int, int]
    stopped: Mapping[int, int]
    answered: bool


#: Nothing.
NO_LOOK = Look([], {}, {}, False)


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How records are fetched; see :func:`~airflow_eos_provider.kafka.read.reader.scan_to_end`.

    :param batches: hand over what the batches' headers say, in place of their records.
    """

    isolation: str
    headers: bool
    fetch_wait_ms: int
    batches: bool = False

    def __post_init__(self) -> None:
        if self.isolation not in ("read_committed", "read_uncommitted"):
            raise ConfigurationError(f"isolation is {self.isolation!r}.", expected="read_committed or read_uncommitted")


class Fetcher(Protocol):
    """Fetches records of one topic from positions on."""

    @property
    def trouble(self) -> str | None:
        """The last error that may pass, in words; None if there was none since the last answer."""
        ...

    @property
    def is_refused(self) -> bool:
        """Whether a broker has answered of late, and rejected this client."""
        ...

    def assign(self, positions: Mapping[int, int]) -> None:
        """Fetch these partitions alone, from these offsets on."""
        ...

    def pause(self, partition: int) -> None:
        """Fetch no more of a partition."""
        ...

    def look(self, seconds: float) -> Look:
        """What has come.

        :raises EosError: the topic went away, or may not be read.
        """
        ...

    def moved(self, moved: bool) -> None:
        """A broker has answered."""
        ...
