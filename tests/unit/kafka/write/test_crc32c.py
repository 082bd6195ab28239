from __future__ import annotations

import random
import sys
from typing import Any

import crc32c as wheel
import pytest
from kafka.record import _crc32c as other

from airflow_eos_provider.kafka.write import crc32c


def test_the_checksum_is_the_standards() -> None:
    """Of RFC 3720, B.4."""
    assert crc32c._checksum(b"123456789") == 0xE3069283
    assert crc32c._checksum(bytes(32)) == 0x8A9136AA
    assert crc32c._checksum(b"\xff" * 32) == 0x62A8AB43


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_length_has_the_checksum_that_kafka_python_finds(kind: Any) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)  # noqa: T201
    chance = random.Random(seed)
    lengths = [0, 1, 3, 4, 289, 290, 291, 579, 580, 581, 5684, 5685, 5686, 11371, *(chance.randrange(40_000),) * 3]
    for length in lengths:
        data = kind(chance.randbytes(length))
        assert crc32c._checksum(data) == other.crc(data), length


def test_one_bit_changes_it_wherever_it_is() -> None:
    data = bytearray(200_000)
    before = crc32c._checksum(data)
    for place in range(0, len(data), 1_999):
        data[place] ^= 1 << place % 8
        assert crc32c._checksum(data) != before
        data[place] = 0


def test_without_numpy_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random.Random(1).randbytes(20_000)
    quick = crc32c._checksum(data)
    monkeypatch.setattr(crc32c, "HAS_NUMPY", False)
    monkeypatch.setitem(sys.modules, "numpy", None)

    assert crc32c._checksum(data) == quick


def test_the_wheel_finds_the_same_and_is_taken() -> None:
    data = random.Random(2).randbytes(1_000_000)

    assert crc32c._checksum(data) == wheel.crc32c(data)
    assert crc32c.crc32c is wheel.crc32c
