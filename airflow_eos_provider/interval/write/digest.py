"""The digest of a set of records in any order: a sum of 128-bit hashes, computed for many rows at once.

A record's hash has two halves of 64 bits, made alike with other factors. Key, value and headers (as their bytes in a
record of Kafka) are taken as words of four bytes (little-endian, the last one filled up by zeros). A half is the sum of
each word times the factor of its place, of one more than each length (0 for null) times a factor, and of 64 bits of
BLAKE2b over the topic, all modulo 2^64; then MurmurHash3's finaliser mixes its bits. What is longer than :data:`_LIMIT`
bytes is stood for by its BLAKE2b. Where the place of a record counts too, three words more are added: one more than its
partition (0 for none), and the halves of its timestamp (0 for none).

The factors are odd and drawn once by SHAKE256, so one changed word always changes both halves before the mixing, and
records that differ in several words meet in both halves with a probability between 2^-128 and, where nothing but the
topmost bit of words differs, 2^-66. The mixing is what makes the sum one of a set: without it, values that
trade places between two records would not change the sum. That is enough against accidents, which is what the
digest is there for: rows that an input has lost, doubled, changed or moved between two attempts. It is no defence
against an author of rows who searches for two that meet.

The ledger says by which kind of digest a record was written
(:data:`~airflow_eos_provider.interval.topics.ledger.DIGEST_KIND`), because digests of two kinds cannot be compared.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from airflow_eos_provider.interval.topics.ledger import DIGEST_MODULUS
from airflow_eos_provider.kafka.write.bytes_column import HAS_NUMPY, BytesColumn
from airflow_eos_provider.kafka.write.record_batches import Headers, header_bytes
from airflow_eos_provider.kafka.write.record_rows import RecordRows

#: Longer contents count by their BLAKE2b digest of :data:`_STAND_IN` bytes: so many factors are enough, and there
#: hashing them one by one takes no more time.
_LIMIT = 1024
_STAND_IN = 32

#: Rows are hashed together with those that need as many groups of so many bytes.
_GROUP = 16

#: Rows whose words are looked at together, so that they stay in the processor's cache.
_AT_ONCE = 1024

#: Records, and bytes of them, that are kept to be hashed at once.
_PENDING_RECORDS = 4096
_PENDING_BYTES = 4 << 20

_WORD = 4
_WORD_MASK = (1 << 32) - 1
_MASK = (1 << 64) - 1


def _factors() -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For key, value, headers and place the factors of each half: of the length, then of each word."""
    count = _LIMIT // _WORD + 1
    drawn = struct.unpack(f"<{8 * count}Q", hashlib.shake_256(b"airflow-eos-provider digest 3").digest(64 * count))
    odd = [factor | 1 for factor in drawn]
    return tuple(tuple(tuple(odd[(2 * column + half) * count :][:count]) for half in range(2)) for column in range(4))


*_CONTENT_FACTORS, _PLACE_FACTORS = _factors()


class Digest:
    """The digest of the records that were added; those of parts add up modulo 2^128 to that of the whole."""

    def __init__(self) -> None:
        self._total = 0
        self._topics: list[str] = []
        self._columns: tuple[list[bytes | None], ...] = ([], [], [])
        self._bytes = 0

    def add(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> None:
        """Count one record in. A missing key or value is unlike an empty one."""
        self._topics.append(topic)
        for column, content in zip(self._columns, (key, value, header_bytes(headers)), strict=True):
            column.append(content)
            self._bytes += len(content or b"")
        if len(self._topics) >= _PENDING_RECORDS or self._bytes >= _PENDING_BYTES:
            self._settle()

    def add_sums(self, sums: Any) -> None:
        """Count many records in."""
        self._total += _mixed_sum(sums)

    @property
    def text(self) -> str:
        """32 hexadecimal digits."""
        self._settle()
        return f"{self._total % DIGEST_MODULUS:032x}"

    def _settle(self) -> None:
        if not self._topics:
            return
        if HAS_NUMPY:
            import numpy as np

            sums = np.array([_head(topic) for topic in self._topics], np.uint64).T.copy()
            for column, factors in zip(self._columns, _CONTENT_FACTORS, strict=True):
                _add_column(sums, BytesColumn.of_rows(column), factors)
            self.add_sums(sums)
        else:
            self._total += sum(map(hash_one, self._topics, *self._columns))
        self._topics, self._columns, self._bytes = [], ([], [], []), 0


@lru_cache(maxsize=256)
def _head(topic: str) -> tuple[int, int]:
    """The 64 bits of each half that stand for the topic."""
    first, second = struct.unpack("<2Q", hashlib.blake2b(topic.encode(), digest_size=16).digest())
    return first, second


def _stand_in(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=_STAND_IN).digest()


# One record after the other: where numpy is missing, and what the tests hold the other way to


def hash_one(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: bytes | None = b"",
    place: tuple[int, int] | None = None,
) -> int:
    """A record's hash, 128 bits.

    :param place: partition, -1 for none, and timestamp, 0 for none; only where they count.
    """
    halves = list(_head(topic))
    for content, factors in zip((key, value, headers), _CONTENT_FACTORS, strict=True):
        if content is None:
            continue
        taken = content if len(content) <= _LIMIT else _stand_in(content)
        taken += bytes(-len(taken) % _WORD)
        _add_words(halves, (len(content) + 1, *struct.unpack(f"<{len(taken) // _WORD}I", taken)), factors)
    if place is not None:
        _add_words(halves, (place[0] + 1, place[1] & _WORD_MASK, place[1] >> 32), _PLACE_FACTORS)
    return _mixed_one(halves[0] & _MASK) << 64 | _mixed_one(halves[1] & _MASK)


def _add_words(halves: list[int], words: Sequence[int], factors: Sequence[Sequence[int]]) -> None:
    for half in range(2):
        halves[half] += sum(word * factor for word, factor in zip(words, factors[half], strict=False))


def _mixed_one(half: int) -> int:
    half = (half ^ half >> 33) * 0xFF51AFD7ED558CCD & _MASK
    half = (half ^ half >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return half ^ half >> 33


# Many records at once


def row_sums(rows: RecordRows) -> Any:
    """By half and row, the sum of topic, key, value and headers; needs numpy."""
    import numpy as np

    sums = np.empty((2, len(rows)), np.uint64)
    for topic, those in rows.by_topic():
        sums[:, those] = np.array(_head(topic), np.uint64)[:, None]
    columns = [rows.keys, rows.values]
    if rows.headers is None:
        _add_column(
            shared := np.zeros((2, 1), np.uint64),
            BytesColumn.of_rows([header_bytes(rows.more_headers)]),
            _CONTENT_FACTORS[2],
        )
        sums += shared
    else:
        columns.append(rows.headers)
    for column, factors in zip(columns, _CONTENT_FACTORS, strict=False):
        _add_column(sums, column, factors)
    return sums


def place_sums(rows: RecordRows) -> tuple[Any, Any]:
    """Which rows name their partition or timestamp, and by half and such row the sum of both; needs numpy."""
    import numpy as np

    nothing = np.zeros(len(rows), np.int64)
    partitions = nothing if rows.partitions is None else rows.partitions + 1
    timestamps = nothing if rows.timestamps is None else rows.timestamps
    those = (partitions + timestamps).nonzero()[0]
    partitions, timestamps = partitions[those].astype(np.uint64), timestamps[those].astype(np.uint64)
    words = np.stack([partitions, timestamps & np.uint64(_WORD_MASK), timestamps >> np.uint64(32)], axis=1)
    return those, np.stack([words @ np.array(factors[:3], np.uint64) for factors in _PLACE_FACTORS])


def _mixed_sum(sums: Any) -> int:
    import numpy as np

    halves = sums.copy()
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1)):
        halves ^= halves >> np.uint64(shift)
        halves *= np.uint64(factor)
    low = (halves & np.uint64(_WORD_MASK)).sum(axis=1, dtype=np.uint64)
    high = (halves >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
    first, second = ((int(high[half]) << 32) + int(low[half]) for half in range(2))
    return (first << 64) + second


def _add_column(sums: Any, column: BytesColumn, factors: Sequence[Sequence[int]]) -> None:
    """Add what a column's lengths and words amount to."""
    import numpy as np

    table = np.array(factors, np.uint64)
    sums += (column.lengths + 1).astype(np.uint64) * table[:, :1]
    column = _with_stand_ins(column)
    groups = (column.lengths + (_GROUP - 1)) // _GROUP
    data = np.concatenate([column.data, np.zeros(_GROUP, np.uint8)])  # the last row's last group may end beyond it
    present = np.flatnonzero(np.bincount(np.maximum(groups, 0))).tolist()
    for group in present:
        if not group:
            continue
        width = group * _GROUP
        windows: Any = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))  # one from each byte on
        for some in _pieces(groups, group, is_only=len(present) == 1):
            words = windows[column.starts[some]].view("<u8").reshape(-1, width // 8)
            rest = column.lengths[some] - (width - _GROUP)
            for place, masks in enumerate(_kept(), -len(_kept())):
                words[:, place] &= masks[rest]
            words = words.view("<u4").astype(np.uint64)
            for half in range(2):
                sums[half, some] += np.einsum("ij,j->i", words, table[half, 1 : width // _WORD + 1])


def _pieces(groups: Any, group: int, *, is_only: bool) -> Iterator[Any]:
    """The rows that need so many groups, in pieces that stay in the processor's cache; slices, where they are all."""
    import numpy as np

    if is_only:
        for begin in range(0, len(groups), _AT_ONCE):
            yield slice(begin, begin + _AT_ONCE)
        return
    rows = np.flatnonzero(groups == group)
    yield from np.split(rows, range(_AT_ONCE, len(rows), _AT_ONCE))


@lru_cache(maxsize=1)
def _kept() -> Any:
    """For each eight bytes of a group, by the number of the group's bytes that are the row's, the mask that keeps
    them."""
    import numpy as np

    return np.array(
        [
            [(1 << 8 * min(8, max(0, count - first))) - 1 for count in range(_GROUP + 1)]
            for first in range(0, _GROUP, 8)
        ],
        np.uint64,
    )


def _with_stand_ins(column: BytesColumn) -> BytesColumn:
    """The column with the digests of what is too long."""
    import numpy as np

    long = np.flatnonzero(column.lengths > _LIMIT)
    if not len(long):
        return column
    starts, lengths = column.starts.copy(), column.lengths.copy()
    contents = memoryview(column.data)
    digests = b"".join(_stand_in(contents[s : s + n]) for s, n in zip(starts[long], lengths[long], strict=True))
    lengths[long] = _STAND_IN
    starts[long] = len(column.data) + np.arange(len(long)) * _STAND_IN
    return BytesColumn(np.concatenate([column.data, np.frombuffer(digests, np.uint8)]), starts, lengths)
