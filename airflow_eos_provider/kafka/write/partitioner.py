"""Which partition a key belongs to, as Kafka's Java clients decide it.

Connect writes with Java's producer; librdkafka's default is another rule (CRC32). A key in two partitions is two keys
to compaction, so a program that writes to Connect's topics must use Java's rule: this module, or librdkafka's
``partitioner=murmur2_random``.
"""

from __future__ import annotations

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
    :param partitions: how many the topic has, at least one.
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
