"""Where the bytes of each row of a column lie in memory, so that many rows are handled at once and none is an object.

Needs numpy, which pyarrow and Spark bring along nearly everywhere; :data:`HAS_NUMPY` says whether it is there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

HAS_NUMPY = importlib.util.find_spec("numpy") is not None


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Rows of bytes.

    :param data: their buffer, bytes of a numpy array. The column keeps it alive.
    :param lengths: of each row, bytes; -1 for null.
    """

    data: Any
    starts: Any
    lengths: Any

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return int(self.lengths[self.lengths > 0].sum())

    def part(self, some: slice) -> BytesColumn:
        """Some of the rows, which must lie behind one another."""
        starts, lengths = self.starts[some], self.lengths[some]
        end = int(starts[-1]) + max(0, int(lengths[-1]))
        return BytesColumn(self.data[int(starts[0]) : end], starts - starts[0], lengths)

    def array(self) -> pa.LargeBinaryArray:
        """The rows as an Arrow array, a null as an empty one; no byte is copied. They must lie behind one another."""
        import numpy as np
        import pyarrow as pa

        ends = np.concatenate([self.starts, [len(self.data)]])
        return pa.Array.from_buffers(
            pa.large_binary(), len(self.lengths), [None, pa.py_buffer(ends), pa.py_buffer(self.data)], null_count=0
        )

    def rows(self) -> list[bytes | None]:
        """The rows as objects."""
        data = memoryview(self.data)
        return [
            None if length < 0 else bytes(data[start : start + length])
            for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        ]

    @classmethod
    def of_array(cls, array: pa.Array | None, rows: int) -> BytesColumn:
        """The rows of an Arrow array, behind one another; bytes are copied only where some are null.

        :param array: of binary, string, one of their large forms, or null; None for nulls.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        nothing = np.zeros(0, np.uint8)
        if array is None or pa.types.is_null(array.type):
            return cls(nothing, np.zeros(rows, np.int64), np.full(rows, -1, np.int64))
        long = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        if nulls is not None:
            array = pc.fill_null(array.cast(pa.large_binary() if long else pa.binary()), b"")  # bytes may lie below one
        _, offsets, content = array.buffers()
        if offsets is None or not rows:
            return cls(nothing, np.zeros(rows, np.int64), np.zeros(rows, np.int64))
        ends = np.frombuffer(offsets, np.int64 if long else np.int32)[array.offset : array.offset + rows + 1]
        ends = ends.astype(np.int64)
        lengths = np.diff(ends)
        if nulls is not None:
            lengths[nulls] = -1
        # A batch may be a small part of the memory it was cut from: what is copied of the data is of its own rows.
        data = nothing if content is None else np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
        return cls(data, ends[:-1] - ends[0], lengths)

    @classmethod
    def of_rows(cls, rows: Sequence[bytes | None]) -> BytesColumn:
        """The rows of a sequence, copied behind one another."""
        import numpy as np

        lengths = np.fromiter((-1 if row is None else len(row) for row in rows), np.int64, len(rows))
        ends = np.cumsum(np.maximum(lengths, 0))
        data = np.frombuffer(b"".join(row for row in rows if row), np.uint8)
        return cls(data, ends - np.maximum(lengths, 0), lengths)
