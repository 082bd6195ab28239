"""The codecs of Kafka's record batches, in the frames that Kafka's clients read; pyarrow has the codecs themselves."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from airflow_eos_provider.errors import ConfigurationError

#: By name, as the property ``compression.type`` has it, the codec's number in a batch's attributes.
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

#: Version 1, independent blocks of at most 1 MiB, no checksum of the content; the last byte is of the header itself.
#: pyarrow's own frame links its blocks, which Kafka's reader refuses (``Lz4BlockInputStream``).
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x60\x51"
_LZ4_BLOCK = 1 << 20
_LZ4_AS_IT_IS = 1 << 31
_LZ4_END = bytes(4)

#: As ``SnappyOutputStream`` of xerial, which Java's clients use: magic, version, oldest version that can read it.
_SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK = 32 << 10

_ARROW_NAMES = {"lz4": "lz4_raw"}


class Compression:
    """One codec.

    :param name: among :data:`CODECS`.
    :param level: the codec's own measure of effort; None for its default.
    """

    def __init__(self, name: str, level: int | None = None) -> None:
        if name not in CODECS:
            raise ConfigurationError(f"The compression is {name!r}.", expected=f"one of {', '.join(CODECS)}")
        self.name = name
        self.code = CODECS[name]
        self._level = level
        self._codec: Any = None
        if name not in ("none", "gzip"):
            import pyarrow as pa

            self._codec = pa.Codec(_ARROW_NAMES.get(name, name))
        if level is not None:
            self._require_level(level)

    def _require_level(self, level: int) -> None:
        import pyarrow as pa

        if self.name in ("none", "snappy"):
            raise ConfigurationError(f"Compression {self.name} has the level {level}.", expected="no level")
        codec = _ARROW_NAMES.get(self.name, self.name)
        least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
        if not least <= level <= most:
            raise ConfigurationError(f"Compression {self.name} has the level {level}.", expected=f"{least} to {most}")
        if self._codec is not None:
            self._codec = pa.Codec(codec, compression_level=level)

    def compressed(self, data: bytes | bytearray | memoryview) -> bytes:
        """"""
        if self.name == "none":
            return bytes(data)
        if self.name == "gzip":
            return zlib.compress(data, -1 if self._level is None else self._level, wbits=31)
        if self.name == "lz4":
            return b"".join([_LZ4_HEADER, *self._lz4_blocks(memoryview(data)), _LZ4_END])
        if self.name == "snappy":
            return b"".join([_SNAPPY_HEADER, *self._snappy_blocks(memoryview(data))])
        return self._codec.compress(data, asbytes=True)  # type: ignore[no-any-return]

    def _lz4_blocks(self, data: memoryview) -> Iterator[Any]:
        for begin in range(0, len(data), _LZ4_BLOCK):
            block = data[begin : begin + _LZ4_BLOCK]
            packed = self._codec.compress(block)
            if packed.size < len(block):
                yield from (struct.pack("<I", packed.size), packed)
            else:
                yield from (struct.pack("<I", len(block) | _LZ4_AS_IT_IS), block)

    def _snappy_blocks(self, data: memoryview) -> Iterator[Any]:
        for begin in range(0, len(data), _SNAPPY_BLOCK):
            packed = self._codec.compress(data[begin : begin + _SNAPPY_BLOCK])
            yield from (struct.pack(">i", packed.size), packed)
