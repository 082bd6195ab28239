"""CRC-32C, the checksum of Kafka's record batches (KIP-98), without a loop over the bytes.

Long data is made shorter first. The checksum is linear, so a byte may be replaced by copies of itself nearer to the
end: where y is a shift by one byte, y^5685 = 1 + y^426 + y^1362 modulo the polynomial, and likewise with all exponents
doubled. Each such step adds a run of leading bytes (exclusive or) to the rest in a few calls of numpy; a table does
the last bytes. The wheel ``crc32c`` does the same in hardware and is taken where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_eos_provider.kafka.write.bytes_column import HAS_NUMPY

#: y^exponent equals the sum of y^term.
_EQUATIONS = ((5685, (0, 426, 1362)), (290, (0, 32, 107, 113, 136)))

_ALL_ONES = 0xFFFFFFFF


def _entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = tuple(map(_entry, range(256)))


def _checksum(data: bytes | bytearray | memoryview) -> int:
    """The checksum of contiguous bytes."""
    state = _ALL_ONES
    if HAS_NUMPY and len(data) > _EQUATIONS[-1][0]:
        state, data = 0, _shortened(data)
    for byte in bytes(data):
        state = state >> 8 ^ _TABLE[(state ^ byte) & 0xFF]
    return state ^ _ALL_ONES


def _shortened(data: Any) -> bytes:
    """Few bytes that, from a state of zeros on, have the checksum of these from a state of ones on."""
    import numpy as np

    work = np.frombuffer(data, np.uint8).copy()
    work[:4] ^= 0xFF
    for exponent, terms in _EQUATIONS:
        scale = 1
        while 2 * exponent * scale < len(work):
            scale *= 2
        while scale:
            distance = exponent * scale
            while len(work) > distance:
                count = min(distance - terms[-1] * scale, len(work) - distance)
                for term in terms:
                    work[distance - term * scale :][:count] ^= work[:count]
                work = work[count:]
            scale //= 2
    return work.tobytes()


try:
    from crc32c import crc32c as _hardware
except ImportError:
    crc32c: Callable[[bytes | bytearray | memoryview], int] = _checksum
else:
    crc32c = _hardware
