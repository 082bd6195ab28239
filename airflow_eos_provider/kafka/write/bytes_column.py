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
    :param starts: where each row begins in it.
    :param lengths: of each row, bytes; -1 for null.
    """

    data: Any
    starts: Any
    lengths: Any

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return int(self.lengths[self.lengths > 0].sum())

    def rows(self) -> list[bytes | None]:
        """The rows as objects."""
        data = memoryview(self.data)
        return [
            None if length < 0 else bytes(data[start : start + length])
            for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        ]

    @classmethod
    def of_array(cls, array: pa.Array | None, rows: int) -> BytesColumn:
        """The rows of an Arrow array; no byte is copied.

        :param array: of binary, string, one of their large forms, or null; None for nulls.
        :param rows: how many there are.
        """
        import numpy as np
        import pyarrow as pa

        nothing = np.zeros(0, np.uint8)
        if array is None or pa.types.is_null(array.type):
            return cls(nothing, np.zeros(rows, np.int64), np.full(rows, -1, np.int64))
        long = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        _, offsets, content = array.buffers()
        if offsets is None or not rows:
            return cls(nothing, np.zeros(rows, np.int64), np.zeros(rows, np.int64))
        ends = np.frombuffer(offsets, np.int64 if long else np.int32)[array.offset : array.offset + rows + 1]
        ends = ends.astype(np.int64)
        lengths = np.diff(ends)
        if array.null_count:
            lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
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
