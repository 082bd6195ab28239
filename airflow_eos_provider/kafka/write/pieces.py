"""Bytes of many rows, each a sequence of pieces, without work in Python for each row: Arrow's ``take`` lays them.

Needs numpy and pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_eos_provider.kafka.write.record_batches import varint

if TYPE_CHECKING:
    import pyarrow as pa

#: The pieces that may be, and by row the place of its own among them; one number if all rows have the same.
Pieces = tuple["pa.LargeBinaryArray", Any]

#: Numbers are looked up in a table that begins with -1, the length of null; larger ones are written out one by one.
_LEAST = -1
_TABLE_END = 1 << 14

_BITS = 7
_SIGN = 63


class Layout:
    """Rows of pieces."""

    def __init__(self, columns: Sequence[Pieces], rows: int) -> None:
        import numpy as np
        import pyarrow as pa

        self._width = len(columns)
        places = np.empty((rows, self._width), np.int32)
        first = 0
        for column, (array, places_of) in enumerate(columns):
            np.add(places_of, first, out=places[:, column], casting="unsafe")
            first += len(array)
        self._source = pa.concat_arrays([array for array, _ in columns])
        self._places = pa.Array.from_buffers(pa.int32(), places.size, [None, pa.py_buffer(places)], null_count=0)

    def laid(self, begin: int, end: int) -> pa.LargeBinaryArray:
        """The pieces of some rows; their bytes lie behind one another."""
        import pyarrow.compute as pc

        some = self._places.slice(begin * self._width, (end - begin) * self._width)
        return pc.call_function("array_take", [self._source, some], pc.TakeOptions(boundscheck=False))


def varints(numbers: Any, before: bytes = b"", behind: bytes = b"") -> Pieces:
    """Signed numbers in the variable-length form of records (``ByteUtils.writeVarlong``).

    :param before: bytes in front of each.
    :param behind: bytes after each.
    """
    import numpy as np

    least, most = int(numbers.min()), int(numbers.max())
    if least < _LEAST or most >= _TABLE_END:
        return _each(numbers, before, behind), np.arange(len(numbers))
    table = _table(1 << most.bit_length(), before, behind)
    return table, numbers - _LEAST if least < most else most - _LEAST


def varint_sizes(numbers: Any) -> Any:
    """By number, how many bytes it takes; one number if all take one."""
    left = numbers ^ (numbers >> _SIGN) if numbers.min() < 0 else numbers
    sizes: Any = 1
    for bits in range(_BITS - 1, int(left.max()).bit_length(), _BITS):
        sizes = sizes + (left >= 1 << bits)
    return sizes


@lru_cache(maxsize=64)
def _table(end: int, before: bytes, behind: bytes) -> pa.LargeBinaryArray:
    import pyarrow as pa

    return pa.array([before + varint(number) + behind for number in range(_LEAST, end)], pa.large_binary())


def _each(numbers: Any, before: bytes, behind: bytes) -> pa.LargeBinaryArray:
    import numpy as np
    import pyarrow as pa

    left, sizes = _zigzag(numbers), np.broadcast_to(varint_sizes(numbers), numbers.shape)
    most, first = int(sizes.max()), len(before)
    cells = np.empty((len(numbers), first + most + len(behind)), np.uint8)
    cells[:, :first] = np.frombuffer(before, np.uint8)
    cells[:, first + most :] = np.frombuffer(behind, np.uint8)
    kept = np.ones(cells.shape, bool)
    for place in range(most):
        byte = left >> np.uint64(_BITS * place) & np.uint64(0x7F)
        cells[:, first + place] = byte | (sizes > place + 1).astype(np.uint64) << np.uint64(_BITS)
        kept[:, first + place] = sizes > place
    borders = np.concatenate([[0], np.cumsum(sizes + (first + len(behind)))])
    return pa.Array.from_buffers(
        pa.large_binary(), len(numbers), [None, pa.py_buffer(borders), pa.py_buffer(cells[kept])], null_count=0
    )


def _zigzag(numbers: Any) -> Any:
    import numpy as np

    return ((numbers << 1) ^ (numbers >> _SIGN)).view(np.uint64)
