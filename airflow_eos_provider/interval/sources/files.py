"""Source files that do not change: pinned before the plan is frozen, checked again while they are read.

A file is known by its path, size and time of last change (and its etag, where the file system has one). A file that is
no longer what the plan pinned would give the slice other rows in this attempt than in the last, so it is an error that
names the file, raised before the slice's transaction commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_eos_provider.errors import ConfigurationError, EosError

if TYPE_CHECKING:
    import pyarrow as pa

#: ``lines``: the value is the line itself, byte for byte. The others give columns.
FORMATS = ("parquet", "json", "csv", "lines")

#: Rows without a time: an error, or left out and counted.
NULL_TIMES = ("refuse", "drop")

#: Rows handed over at once.
_BATCH_ROWS = 20_000

#: Bytes of a text file read at once.
_CHUNK_BYTES = 4 << 20

Convert = Callable[["pa.RecordBatch"], "pa.RecordBatch"]


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file as it was when it was pinned.

    :param path: with scheme, as Hadoop writes it (``file:/data/x.json``, ``s3a://bucket/x.parquet``).
    :param size: bytes.
    :param modified_ms: time of last change, milliseconds since the epoch.
    :param etag: of the object, where the file system has one; compared on the driver only.
    """

    path: str
    size: int
    modified_ms: int
    etag: str | None = None

    def to_dict(self) -> dict[str, Any]:
        found = {"path": self.path, "size": self.size, "modified_ms": self.modified_ms}
        return found if self.etag is None else {**found, "etag": self.etag}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PinnedFile:
        return cls(values["path"], values["size"], values["modified_ms"], values.get("etag"))

    def require_unchanged(self, now: PinnedFile | None) -> None:
        """Compare with the file as it is now.

        :param now: None if it is gone.
        :raises ConfigurationError: it is another file.
        """
        if now is not None and self._equals(now):
            return
        what = "is gone" if now is None else f"has changed ({now.size} bytes, changed {_time(now.modified_ms)})"
        raise ConfigurationError(
            f"The source file {self.path} {what}.",
            expected=f"the file that the interval's plan pinned: {self.size} bytes, changed {_time(self.modified_ms)}",
            remedy="Put the pinned file back and run the interval again. To take the new content instead: abandon the "
            "run if no slice of it is committed ('eos intervals abandon'), or write it as a new revision.",
        )

    def _equals(self, now: PinnedFile) -> bool:
        if self.size != now.size or (self.etag and now.etag and self.etag != now.etag):
            return False
        # Some file systems tell whole seconds to one client and fractions to another.
        if self.modified_ms % 1000 == 0 or now.modified_ms % 1000 == 0:
            return self.modified_ms // 1000 == now.modified_ms // 1000
        return self.modified_ms == now.modified_ms


@dataclass(frozen=True, slots=True)
class FileReadOptions:
    """How a file becomes records.

    :param format: one of :data:`FORMATS`.
    :param time_column: rows whose time lies in ``[start, end)`` are kept; None keeps all.
    :param start: ISO 8601 with zone.
    :param end: ISO 8601 with zone.
    :param null_times: what becomes of rows without a time, which are of no interval: one of :data:`NULL_TIMES`.
    :raises ConfigurationError: the format is not known, or ``lines`` is to be filtered by a column.
    """

    format: str
    time_column: str | None = None
    start: str | None = None
    end: str | None = None
    null_times: str = "refuse"

    def __post_init__(self) -> None:
        if self.null_times not in NULL_TIMES:
            raise ConfigurationError(f"null_times is {self.null_times!r}.", expected=f"one of {', '.join(NULL_TIMES)}")
        if self.format not in FORMATS:
            raise ConfigurationError(f"The format is {self.format!r}.", expected=f"one of {', '.join(FORMATS)}")
        if self.format == "lines" and self.time_column:
            raise ConfigurationError(
                f"Lines have no column {self.time_column!r}.", remedy="Use format='json', or select by path."
            )

    def to_dict(self) -> dict[str, Any]:
        found = {"format": self.format}
        if self.time_column is not None:
            found |= {"time_column": self.time_column, "start": str(self.start), "end": str(self.end)}
            found |= {} if self.null_times == "refuse" else {"null_times": self.null_times}
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FileReadOptions:
        return cls(
            values["format"],
            values.get("time_column"),
            values.get("start"),
            values.get("end"),
            values.get("null_times", "refuse"),
        )


@dataclass(slots=True)
class Dropped:
    """Rows without a time that a read has left out, counted while it goes on."""

    rows: int = 0


def read_pinned(
    file: PinnedFile, options: FileReadOptions, convert: Convert | None = None, dropped: Dropped | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a pinned file: ``value`` and, if ``convert`` makes them, ``key`` and the other record columns.

    Without ``convert``, batches that have a column ``value`` are taken as they are, others become JSON objects.

    :param convert: makes record columns of a batch of the file's columns.
    :param dropped: counts the rows that are left out for want of a time.
    :raises ConfigurationError: the file is not what was pinned, before or after it was read, or it cannot be read; a
        row has no time, and ``options`` does not drop such rows.
    """
    file.require_unchanged(look_at(file.path))
    for batch in _lines(file) if options.format == "lines" else _columns(file, options, dropped or Dropped()):
        if batch.num_rows:
            yield convert(batch) if convert else as_records(batch)
    file.require_unchanged(look_at(file.path))


def require_same_files(now: Mapping[str, PinnedFile], pinned: Mapping[str, PinnedFile]) -> None:
    """Compare the files of this attempt with those that the interval's plan pinned, both by path.

    :raises ConfigurationError: one has changed, is gone or was added; it is named.
    """
    for path, file in pinned.items():
        file.require_unchanged(now.get(path))
    if added := sorted(now.keys() - pinned.keys()):
        more = f" and {len(added) - 1} more" if len(added) > 1 else ""
        raise ConfigurationError(
            f"The interval now has the file {added[0]}{more}, which was not there when its plan was frozen.",
            expected=f"the {len(pinned)} files that the plan pinned",
            remedy="Take the file away and run the interval again. If no slice of it is committed, give the run up "
            "('eos intervals abandon') and run it anew; if it is complete, write it as a new revision.",
        )


def look_at(path: str) -> PinnedFile | None:
    """The file as it is now, None if there is none.

    :raises ConfigurationError: pyarrow has no file system for the path.
    """
    import pyarrow.fs

    system, inner = _open(path)
    info = system.get_file_info(inner)
    if info.type is not pyarrow.fs.FileType.File:
        return None
    return PinnedFile(path, int(info.size), int(info.mtime_ns or 0) // 1_000_000)


def as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as they are if they have a column ``value``, else each as one JSON object."""
    import pyarrow as pa

    if "value" in batch.schema.names:
        return batch
    lines = [json.dumps(row, default=_text, separators=(",", ":"), ensure_ascii=False) for row in batch.to_pylist()]
    return pa.RecordBatch.from_arrays([pa.array([line.encode() for line in lines], type=pa.binary())], names=["value"])


def _text(value: object) -> str:
    """What JSON has no type for."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def _lines(file: PinnedFile) -> Iterator[pa.RecordBatch]:
    """The file's lines without their line feeds; a last line without one counts."""
    import pyarrow as pa

    system, inner = _open(file.path)
    with system.open_input_stream(inner) as stream:
        rest = b""
        while chunk := stream.read(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            yield pa.RecordBatch.from_arrays([pa.array(lines, type=pa.binary())], names=["value"])
        if rest:
            yield pa.RecordBatch.from_arrays([pa.array([rest], type=pa.binary())], names=["value"])


def _columns(file: PinnedFile, options: FileReadOptions, dropped: Dropped) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    system, inner = _open(file.path)
    if file.size == 0:
        return
    try:
        for batch in _batches(system, inner, options.format):
            yield _within(batch, options, file.path, dropped)
    except pa.ArrowInvalid as error:
        raise EosError(
            f"The source file {file.path} cannot be read as {options.format}: {str(error).splitlines()[0]}",
            remedy="Check the file and the format.",
        ) from error


def _batches(system: Any, path: str, format: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file. Of a Parquet file no more than a batch is decoded at a time, not a row group."""
    import pyarrow.dataset
    import pyarrow.parquet

    if format != "parquet":
        dataset = pyarrow.dataset.dataset(path, format=format, filesystem=system)
        yield from dataset.to_batches(batch_size=_BATCH_ROWS, use_threads=False)
        return
    with pyarrow.parquet.ParquetFile(path, filesystem=system, pre_buffer=True) as file:
        yield from file.iter_batches(_BATCH_ROWS, use_threads=False)


def _within(batch: pa.RecordBatch, options: FileReadOptions, path: str, dropped: Dropped) -> pa.RecordBatch:
    """The rows of a batch whose time lies in the interval."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if options.time_column is None:
        return batch
    if options.time_column not in batch.schema.names:
        raise ConfigurationError(
            f"The source file {path} has no column {options.time_column!r}.",
            expected=f"one of {', '.join(batch.schema.names)}",
            remedy="Correct time_column.",
        )
    times = batch.column(options.time_column)
    dropped.rows += times.null_count
    if times.null_count and options.null_times == "refuse":
        raise ConfigurationError(
            f"{times.null_count} of {batch.num_rows} rows of the source file {path} have no {options.time_column!r}, "
            "so they are of no interval.",
            expected="a time in every row",
            remedy="Correct the file, or have such rows left out and counted: null_times='drop'.",
        )
    instant = pa.timestamp("us", tz="UTC")
    if pa.types.is_timestamp(times.type) and times.type.tz is None:
        times = pc.assume_timezone(times, "UTC")
    times = pc.cast(times, instant)
    bounds = [pa.scalar(datetime.fromisoformat(str(edge)), type=instant) for edge in (options.start, options.end)]
    return batch.filter(pc.and_(pc.greater_equal(times, bounds[0]), pc.less(times, bounds[1])))


def _open(path: str) -> tuple[Any, str]:
    """pyarrow's file system for a path as Hadoop writes it, and the path within it."""
    import pyarrow as pa
    import pyarrow.fs

    scheme, colon, rest = path.partition(":")
    if colon and scheme == "file":
        return pyarrow.fs.LocalFileSystem(), f"/{rest.lstrip('/')}"
    # Hadoop writes characters as they are that a URI has to escape.
    uri = quote(f"s3:{rest}" if colon and scheme in ("s3a", "s3n") else path, safe=":/@")
    try:
        system, inner = pyarrow.fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, OSError, NotImplementedError) as error:
        raise ConfigurationError(
            f"The executors cannot read {path} through pyarrow: {error}.",
            remedy="Read it by Spark instead, as a DataFrame with a stable key (write_interval).",
        ) from error
    return system, inner


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
