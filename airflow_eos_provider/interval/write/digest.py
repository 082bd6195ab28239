"""The digest of a set of records in any order: a sum of 128-bit hashes, computed for many rows at once.

A record's hash has two halves of 64 bits, made alike with other factors. Key and value are taken as words of four bytes
(little-endian, the last one filled up by zeros). A half is the sum of each word times the factor of its place, of
one more than each length (0 for null) times a factor, and of 64 bits of BLAKE2b over topic and headers, all modulo
2^64; then MurmurHash3's finaliser mixes its bits. What is longer than :data:`_LIMIT` bytes is stood for by its BLAKE2b.

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
from airflow_eos_provider.kafka.write.producer import Headers

#: Longer contents count by their BLAKE2b digest of :data:`_STAND_IN` bytes: so many factors are enough, and there
#: hashing them one by one takes no more time.
_LIMIT = 1024
_STAND_IN = 32

#: Rows are hashed together with those that need as many groups of so many bytes.
_GROUP = 32

#: Rows whose words are looked at together, so that they stay in the processor's cache.
_AT_ONCE = 512

#: Records, and bytes of them, that are kept to be hashed at once.
_PENDING_RECORDS = 4096
_PENDING_BYTES = 4 << 20

_WORD = 4
_MASK = (1 << 64) - 1
_LENGTH_BYTES = 4
_NO_BYTES = b"\xff\xff\xff\xff"


def _factors() -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For key and value, the factors of each half: of the length, then of each word."""
    count = _LIMIT // _WORD + 1
    drawn = struct.unpack(f"<{4 * count}Q", hashlib.shake_256(b"airflow-eos-provider digest 2").digest(32 * count))
    odd = [factor | 1 for factor in drawn]
    return tuple(tuple(tuple(odd[(2 * column + half) * count :][:count]) for half in range(2)) for column in range(2))


_FACTORS = _factors()


class Digest:
    """The digest of the records that were added; those of parts add up modulo 2^128 to that of the whole."""

    def __init__(self) -> None:
        self._total = 0
        self._heads: list[tuple[int, int]] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._bytes = 0

    def add(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None = None,
        place: bytes = b"",
    ) -> None:
        """Count one record in. A missing key or value is unlike an empty one."""
        self._heads.append(_head(topic, None if headers is None else tuple(headers), place))
        self._keys.append(key)
        self._values.append(value)
        self._bytes += len(key or b"") + len(value or b"")
        if len(self._heads) >= _PENDING_RECORDS or self._bytes >= _PENDING_BYTES:
            self._settle()

    def add_columns(self, topic: str, keys: BytesColumn, values: BytesColumn, headers: Headers | None = None) -> None:
        """As :meth:`add` for each row; needs numpy."""
        self._total += _sum_of([_head(topic, None if headers is None else tuple(headers), b"")], keys, values)

    @property
    def text(self) -> str:
        """32 hexadecimal digits."""
        self._settle()
        return f"{self._total % DIGEST_MODULUS:032x}"

    def _settle(self) -> None:
        heads, keys, values = self._heads, self._keys, self._values
        if not heads:
            return
        if HAS_NUMPY:
            self._total += _sum_of(heads, BytesColumn.of_rows(keys), BytesColumn.of_rows(values))
        else:
            self._total += sum(map(hash_one, heads, keys, values))
        self._heads, self._keys, self._values, self._bytes = [], [], [], 0


@lru_cache(maxsize=256)
def _head(topic: str, headers: tuple[tuple[str, str | bytes | None], ...] | None, place: bytes) -> tuple[int, int]:
    """The 64 bits of each half that stand for what is no key or value."""
    parts = [_prefixed(topic.encode())]
    for name, content in headers or ():
        parts += (_prefixed(name.encode()), _prefixed(content.encode() if isinstance(content, str) else content))
    first, second = struct.unpack("<2Q", hashlib.blake2b(b"".join([*parts, place]), digest_size=16).digest())
    return first, second


def _prefixed(content: bytes | None) -> bytes:
    return _NO_BYTES if content is None else len(content).to_bytes(_LENGTH_BYTES, "big") + content


def _stand_in(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=_STAND_IN).digest()


# One record after the other: where numpy is missing, and what the tests hold the other way to


def hash_one(head: tuple[int, int], key: bytes | None, value: bytes | None) -> int:
    """A record's hash, 128 bits."""
    halves = list(head)
    for content, factors in zip((key, value), _FACTORS, strict=True):
        if content is None:
            continue
        taken = content if len(content) <= _LIMIT else _stand_in(content)
        taken += bytes(-len(taken) % _WORD)
        words = (len(content) + 1, *struct.unpack(f"<{len(taken) // _WORD}I", taken))
        for half in range(2):
            halves[half] += sum(word * factor for word, factor in zip(words, factors[half], strict=False))
    return _mixed_one(halves[0] & _MASK) << 64 | _mixed_one(halves[1] & _MASK)


def _mixed_one(half: int) -> int:
    half = (half ^ half >> 33) * 0xFF51AFD7ED558CCD & _MASK
    half = (half ^ half >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return half ^ half >> 33


# Many records at once


def _sum_of(heads: Sequence[tuple[int, int]], keys: BytesColumn, values: BytesColumn) -> int:
    """The sum of the hashes of records."""
    import numpy as np

    halves = np.empty((len(keys.lengths), 2), np.uint64)
    halves[:] = np.array(heads, np.uint64)
    for column, factors in zip((keys, values), _FACTORS, strict=True):
        _add_column(halves, column, np.array(factors, np.uint64))
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1)):
        halves ^= halves >> np.uint64(shift)
        halves *= np.uint64(factor)
    low = (halves & np.uint64(0xFFFFFFFF)).sum(axis=0, dtype=np.uint64)
    high = (halves >> np.uint64(32)).sum(axis=0, dtype=np.uint64)
    first, second = ((int(high[half]) << 32) + int(low[half]) for half in range(2))
    return (first << 64) + second


def _add_column(halves: Any, column: BytesColumn, factors: Any) -> None:
    """Add what a column's lengths and words amount to."""
    import numpy as np

    halves += (column.lengths + 1).astype(np.uint64)[:, None] * factors[:, 0]
    column = _with_stand_ins(column)
    groups = (column.lengths + (_GROUP - 1)) // _GROUP
    data = np.concatenate([column.data, np.zeros(_GROUP, np.uint8)])  # the last row's last group may end beyond it
    present = np.flatnonzero(np.bincount(np.maximum(groups, 0))).tolist()
    for group in present:
        if not group:
            continue
        width = group * _GROUP
        windows: Any = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))  # one from each byte on
        here = factors[:, 1 : width // _WORD + 1]
        for some in _pieces(groups, group, is_only=len(present) == 1):
            words = windows[column.starts[some]].view("<u8").reshape(-1, width // 8)
            words[:, -(_GROUP // 8) :] &= _kept()[column.lengths[some] - (width - _GROUP)]
            words = words.view("<u4").astype(np.uint64)
            for half in range(2):
                halves[some, half] += np.einsum("ij,j->i", words, here[half])


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
    """By the number of a group's bytes that are the row's, the masks that keep them."""
    import numpy as np

    return np.array(
        [
            [(1 << 8 * min(8, max(0, count - first))) - 1 for first in range(0, _GROUP, 8)]
            for count in range(_GROUP + 1)
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
