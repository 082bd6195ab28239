"""Which partition a key belongs to, as Kafka's Java clients decide it.

Connect writes with Java's producer; librdkafka's default is another rule (CRC32). A key in two partitions is two keys
to compaction, so a program that writes to Connect's topics must use Java's rule: this module, or librdkafka's
``partitioner=murmur2_random``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_eos_provider.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_eos_provider.kafka.write.bytes_column import BytesColumn

_WORD = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """The hash of ``org.apache.kafka.common.utils.Utils.murmur2``, as Java's signed 32-bit number."""
    whole = len(data) & ~3
    hashed = _SEED ^ len(data)
    for start in range(0, whole, 4):
        word = (int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER) & _WORD
        word ^= word >> 24
        hashed = ((hashed * _MULTIPLIER) & _WORD) ^ ((word * _MULTIPLIER) & _WORD)
    if whole < len(data):
        hashed = ((hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER) & _WORD
    hashed ^= hashed >> 13
    hashed = (hashed * _MULTIPLIER) & _WORD
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a keyed record.

    :param key: the key's bytes.
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def missing_partition(topic: str, named: int, count: int) -> ConfigurationError:
    """The error for a row whose partition its topic does not have."""
    return ConfigurationError(
        f"A row names partition {named} of topic {topic}, which has {count}.",
        expected=f"0 to {count - 1}, or null for the partition of the key's hash",
        remedy="Correct the column partition, or give the topic more partitions.",
    )


def partitions_of(keys: BytesColumn, partitions: Any) -> Any:
    """As :func:`partition_of`, of many keys at once; needs numpy. A null has the partition of an empty key.

    :returns: an array of unsigned numbers.
    """
    import numpy as np

    lengths = np.maximum(keys.lengths, 0)
    by_words = np.argsort(lengths >> 2, kind="stable")[::-1] if np.ptp(lengths) else slice(None)
    starts, lengths = keys.starts[by_words], lengths[by_words]
    words, multiplier = lengths >> 2, np.uint32(_MULTIPLIER)
    hashed = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    windows: Any = np.ndarray((max(0, len(keys.data) - 3),), "<u4", keys.data, strides=(1,))  # a word from each byte on
    most = int(words[0])
    at_least = (len(words) - np.searchsorted(words[::-1], range(1, most + 1))).tolist()  # by words, so many keys
    for place, count in enumerate(at_least):
        word = windows[starts[:count] + 4 * place] * multiplier
        word ^= word >> np.uint32(24)
        hashed[:count] *= multiplier
        hashed[:count] ^= word * multiplier
    rest = np.flatnonzero(lengths & 3)
    if len(rest):
        for place in range(3):
            some = rest[(lengths[rest] & 3) > place]
            last = keys.data[starts[some] + (lengths[some] & ~3) + place]
            hashed[some] ^= last.astype(np.uint32) << np.uint32(8 * place)
        hashed[rest] *= multiplier
    hashed ^= hashed >> np.uint32(13)
    hashed *= multiplier
    hashed ^= hashed >> np.uint32(15)
    hashed &= np.uint32(0x7FFFFFFF)
    found = np.empty_like(hashed)
    found[by_words] = hashed
    counts = np.uint32(partitions)
    return found - found // counts * counts  # the remainder, twice as fast as by %
