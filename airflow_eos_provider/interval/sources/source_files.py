"""Pinned source files, and how a task reads one without Spark.

A file is pinned by path, size and time of change (and its etag, where there is one). If it has changed since, a slice
would get other rows than in the last attempt; that is an error before the slice's transaction commits. Only Parquet,
which has its own schema, and lines, whose bytes are the values, are read here. Spark reads all others.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_eos_provider.errors import ConfigurationError, EosError

if TYPE_CHECKING:
    import pyarrow as pa

#: ``lines``: the value is the line itself, byte for byte. ``parquet`` gives columns.
FORMATS = ("parquet", "lines")

#: Rows without a time: an error, or dropped and counted.
NULL_TIMES = ("refuse", "drop")

#: Units of whole numbers that are times, and how many of each make a second.
TIME_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

#: Of more files than this the plan stores a digest only, because it must fit into one record.
MOST_FILES_IN_PLAN = 1000

#: Rows in a batch.
_BATCH_ROWS = 20_000

#: Bytes of a text file read at once.
_CHUNK_BYTES = 4 << 20

#: Compressed text files, by the ends of their names; and those whose bytes would be taken for lines.
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_NOT_READ = (".lz4", ".snappy", ".deflate", ".zip", ".xz", ".7z", ".lzo", ".br", ".z", ".zstd", ".tar", ".tgz")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OF_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

#: In errors of Arrow's that are about a file's content and not its file system: both are OSErrors.
_BAD_CONTENT = ("ompress", "nflate", "zlib", "bz2", "ZSTD", "thrift", "end of stream", "Corrupt", "EOF")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: A time is near the interval within ten years, in microseconds.
_NEAR_US = 3650 * 86_400 * 10**6

_BY_SPARK = "Read the files with Spark and a schema of your own: spark.read.schema(…)."

Convert = Callable[["pa.RecordBatch"], "pa.RecordBatch"]


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file as it was when it was pinned.

    :param path: with scheme, as Hadoop writes it (``file:/data/x.json``, ``s3a://bucket/x.parquet``).
    :param etag: of the object, where the file system has one; compared on the driver only.
    :param identity: of a local file (:func:`local_identity`), compared within one attempt. Plans leave it out, because
        a file that was put back has a new one.
    """

    path: str
    size: int
    modified_ms: int
    etag: str | None = None
    identity: tuple[int, int] | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        found = {"path": self.path, "size": self.size, "modified_ms": self.modified_ms}
        return found if self.etag is None else {**found, "etag": self.etag}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PinnedFile:
        return cls(values["path"], values["size"], values["modified_ms"], values.get("etag"))

    def require_unchanged(self, now: PinnedFile | None) -> None:
        """Raise a ConfigurationError if the file has changed; ``now`` is None if it is gone."""
        if difference := self.difference(now):
            raise ConfigurationError(
                f"The source file {self.path} {difference}.",
                expected=f"the file that the interval's plan pinned: {self}",
                remedy="Put the pinned file back and run the interval again. To take the new content instead: abandon "
                "the run if no slice of it is committed ('eos intervals abandon'), or write it as a new revision.",
            )

    def difference(self, now: PinnedFile | None) -> str | None:
        """What happened to the file; None if nothing did."""
        if now is None:
            return "is gone"
        same = self.size == now.size and not (self.etag and now.etag and self.etag != now.etag)
        # Some file systems report whole seconds to one client and fractions to another.
        unit = 1000 if self.modified_ms % 1000 == 0 or now.modified_ms % 1000 == 0 else 1
        same = same and self.modified_ms // unit == now.modified_ms // unit
        if same and self.identity and now.identity and self.identity != now.identity:
            return "was replaced by one of the same size and time of change"
        return None if same else f"has changed ({now})"

    def __str__(self) -> str:
        changed = datetime.fromtimestamp(self.modified_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return f"{self.size} bytes, changed {changed}"


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of an interval at one moment, sorted by path."""

    files: tuple[PinnedFile, ...] = ()

    @classmethod
    def of(cls, files: Iterable[PinnedFile]) -> FileSet:
        by_path = {file.path: file for file in files}
        return cls(tuple(by_path[path] for path in sorted(by_path)))

    @classmethod
    def from_dicts(cls, files: Iterable[Mapping[str, Any]]) -> FileSet:
        return cls.of(map(PinnedFile.from_dict, files))

    def __iter__(self) -> Iterator[PinnedFile]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def by_path(self) -> dict[str, PinnedFile]:
        return {file.path: file for file in self.files}

    def to_plan(self) -> dict[str, Any]:
        """What a run's plan stores: the files; of more than :data:`MOST_FILES_IN_PLAN` their number and a digest."""
        if len(self.files) > MOST_FILES_IN_PLAN:
            states = "\n".join(f"{file.path} {file.size} {file.modified_ms // 1000}" for file in self.files)
            digest = hashlib.blake2b(states.encode(), digest_size=16).hexdigest()
            return {"file_count": len(self.files), "file_states_digest": digest}
        return {"files": [file.to_dict() for file in self.files]} if self.files else {}

    def require(self, pinned: FileSet) -> None:
        """Raise a ConfigurationError that names a file which has changed, is gone or was added since."""
        now = self.by_path
        for file in pinned.files:
            file.require_unchanged(now.get(file.path))
        if added := sorted(now.keys() - pinned.by_path.keys()):
            more = f" and {len(added) - 1} more" if len(added) > 1 else ""
            raise ConfigurationError(
                f"The interval now has the file {added[0]}{more}, which was not there when its plan was made.",
                expected=f"the {len(pinned.files)} files that the plan pinned",
                remedy="Move the new file away and run the interval again. If no slice is committed, abandon the run "
                "('eos intervals abandon') and run it again; if it is complete, write it as a new revision. Select an "
                "interval's files by path (a folder a day, a partition column), so that no other file matters.",
            )

    def differences(self, now: FileSet) -> list[str]:
        """How these files differ from those of a later moment, one line per file."""
        there = now.by_path
        changed = [f"{file.path} {words}" for file in self.files if (words := file.difference(there.get(file.path)))]
        return changed + [f"{path} was added" for path in sorted(there.keys() - self.by_path.keys())]


def require_planned_files(now: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Compare the current files with a plan's, both from :meth:`FileSet.to_plan`. A plan without files accepts any."""
    if "files" in plan and "file_count" not in now:
        FileSet.from_dicts(now.get("files", ())).require(FileSet.from_dicts(plan["files"]))
        return
    kept = {name: plan[name] for name in ("files", "file_count", "file_states_digest") if name in plan}
    if any(now.get(name) != value for name, value in kept.items()):
        count, pinned = (each.get("file_count", len(each.get("files", ()))) for each in (now, plan))
        raise ConfigurationError(
            f"The interval has {count} files now, which differ from the files that its plan pinned.",
            expected=f"the {pinned} files of the plan, unchanged",
            remedy="Restore the original files and run the interval again, or write it as a new revision.",
        )


@dataclass(frozen=True, slots=True)
class FileReadOptions:
    """How a file becomes records.

    :param others_from: ISO 8601 with zone. No other interval reads earlier rows, because its path is another.
    """

    format: str
    time_column: str | None = None
    start: str | None = None
    end: str | None = None
    null_times: str = "refuse"
    time_unit: str | None = None
    key: str | None = None
    others_from: str | None = None
    others_to: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigurationError(
                f"The format is {self.format!r}.",
                expected=f"{' or '.join(FORMATS)}: other formats do not say which types their values have",
                remedy=_BY_SPARK,
            )
        for name, value, known in (
            ("null_times", self.null_times, NULL_TIMES),
            ("time_unit", self.time_unit, (None, *TIME_UNITS)),
        ):
            if value not in known:
                raise ConfigurationError(f"{name} is {value!r}.", expected=f"one of {', '.join(filter(None, known))}")
        if self.key is not None and self.format != "lines":
            raise ConfigurationError(
                f"key={self.key!r} is given with format={self.format!r}.",
                expected="key with format='lines' only",
                remedy="Make the columns 'key' and 'value' by convert=….",
            )

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"format": self.format}
        if self.time_column is not None:
            found |= {"time_column": self.time_column, "start": str(self.start), "end": str(self.end)}
            found |= {} if self.null_times == "refuse" else {"null_times": self.null_times}
            others = ("time_unit", "others_from", "others_to")
            found |= {name: value for name in others if (value := getattr(self, name)) is not None}
        return found if self.key is None else {**found, "key": self.key}


def _microseconds(text: str) -> int:
    """The time of a text of ISO 8601, since the epoch; in UTC if it names no zone."""
    moment = datetime.fromisoformat(text)
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // _MICROSECOND


def _moment(microseconds: int) -> str:
    try:
        return (_EPOCH + microseconds * _MICROSECOND).isoformat()
    except OverflowError:
        return f"{microseconds} µs since 1970"


@dataclass(slots=True)
class Dropped:
    """Rows that a read has dropped so far."""

    without_time: int = 0
    outside: int = 0
    first_us: int = 0
    last_us: int = 0

    def __str__(self) -> str:
        edges = f"from {_moment(self.first_us)} to {_moment(self.last_us)}"
        return f"{self.outside} source rows have times outside the interval, {edges}"

    def to_list(self) -> list[int]:
        return [self.without_time, self.outside, self.first_us, self.last_us]

    def add(self, other: Dropped) -> None:
        if other.outside:
            self.first_us = min(self.first_us, other.first_us) if self.outside else other.first_us
            self.last_us = max(self.last_us, other.last_us) if self.outside else other.last_us
        self.without_time += other.without_time
        self.outside += other.outside


def read_pinned(
    file: PinnedFile, options: FileReadOptions, convert: Convert | None = None, dropped: Dropped | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a pinned file, as batches of record columns.

    :param convert: makes record columns of a batch of the file's columns; by default :func:`as_records` does.
    """
    now = look_at(file.path)
    file.require_unchanged(now)
    times = _Times(file.path, options, dropped or Dropped()) if options.time_column is not None else None
    for batch in _lines(file, options, times) if options.format == "lines" else _columns(file, times):
        if batch.num_rows:
            yield convert(batch) if convert else as_records(batch, file.path)
    (now or file).require_unchanged(look_at(file.path))


def look_at(path: str) -> PinnedFile | None:
    """The file as it is now; None if it does not exist."""
    import pyarrow.fs

    system, inner = _open(path)
    info = system.get_file_info(inner)
    if info.type is not pyarrow.fs.FileType.File:
        return None
    identity = local_identity(path)
    return PinnedFile(path, int(info.size), int(info.mtime_ns or 0) // 1_000_000, identity=identity)


def local_identity(path: str) -> tuple[int, int] | None:
    """Tells a local file from another of the same size and time of change; None for remote files."""
    if not path.startswith("file:"):
        return None
    try:
        found = Path(f"/{path.removeprefix('file:').lstrip('/')}").stat()
    except OSError:  # gone, or on another machine
        return None
    return found.st_ino, found.st_ctime_ns


def as_records(batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """Rows with a column ``value`` unchanged; others as one JSON object each. Errors name the file's path."""
    import pyarrow as pa

    if "value" in batch.schema.names:
        return batch
    columns = zip(batch.schema.names, map(_without_nanoseconds, batch.columns), strict=True)
    try:
        rows = pa.RecordBatch.from_pydict(dict(columns)).to_pylist()
        lines = [
            json.dumps(row, default=_text, separators=(",", ":"), ensure_ascii=False, allow_nan=False) for row in rows
        ]
        values = [line.encode() for line in lines]
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise ConfigurationError(
            f"A row of the source file {path} cannot be written as JSON: {error}.",
            expected="finite numbers, text in UTF-8, times of the years 1 to 9999",
            remedy="Make the record's value yourself by convert=…, or read the file with Spark.",
        ) from error
    return pa.RecordBatch.from_arrays([pa.array(values, type=pa.binary())], names=["value"])


def _without_nanoseconds(column: pa.Array) -> pa.Array:
    """Nanosecond times as microseconds, which Python can hold; as text if that would lose digits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_time64(column.type):
        return column.cast(pa.time64("us"))  # an error where that would lose digits
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return column
    micro = pc.cast(pc.floor_temporal(column, unit="microsecond"), pa.timestamp("us", column.type.tz), safe=False)
    number = column.cast(pa.int64()).to_pylist()
    if not any(value is not None and value % 1000 for value in number):
        return micro
    texts = []
    for time, value in zip(micro.to_pylist(), number, strict=True):
        text = None if time is None else time.isoformat(timespec="microseconds")
        texts.append(None if text is None else f"{text[:26]}{value % 1000:03}{text[26:]}")
    return pa.array(texts, type=pa.string())


def _text(value: object) -> str:
    """A value of a type that JSON does not have."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode() if isinstance(value, bytes) else str(value)


def lines_of(read: Callable[[int], bytes]) -> Iterator[list[bytes]]:
    """Batches of lines, split as by Spark's ``text``: at ``\\n``, ``\\r\\n`` or ``\\r``, without a byte order mark.

    :param read: returns up to so many bytes, none at the end.
    """
    rest, is_first = b"", True
    while chunk := read(_CHUNK_BYTES):
        text = rest + chunk
        if is_first and len(text) >= len(_BYTE_ORDER_MARK):
            if text.startswith(_OF_UTF_16):
                raise ValueError("its text is UTF-16")
            text, is_first = text.removeprefix(_BYTE_ORDER_MARK), False
        lines = text.splitlines()
        rest = b"" if text.endswith(b"\n") or not lines else lines.pop()
        if text.endswith(b"\r"):  # the first half of \r\n, perhaps
            rest += b"\r"
        if is_first:
            rest = text
        elif lines:
            yield lines
    if rest := rest.removeprefix(_BYTE_ORDER_MARK) if is_first else rest:
        yield rest.splitlines()


def file_lines(path: Path) -> Iterator[bytes]:
    """The lines of a local text file, as :func:`read_pinned` splits them, decompressed by its name."""
    with _readable(f"file:{path}"), _opened(path) as stream:
        for lines in lines_of(stream.read):
            yield from lines


def _opened(path: Path) -> Any:
    codec = _codec(path.name)
    if codec == "zstd":
        import pyarrow as pa

        return pa.input_stream(str(path), compression=codec)
    openers: dict[str | None, Any] = {None: open, "gzip": gzip.open, "bz2": bz2.open}
    return openers[codec](path, "rb")


def _codec(path: str) -> str | None:
    found = next((codec for end, codec in _CODECS.items() if path.endswith(end)), None)
    if found is None and path.lower().endswith((*_NOT_READ, *_CODECS)):  # capitals are nothing to Spark
        raise ConfigurationError(
            f"By its name the source file {path} is compressed in a way that is not read here.",
            expected=f"an uncompressed file, or {', '.join(_CODECS)}",
            remedy="If Spark has the codec, read it with Spark: spark.read.text(…). Otherwise write it again.",
        )
    return found


def _lines(file: PinnedFile, options: FileReadOptions, times: _Times | None) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    system, inner = _open(file.path)
    with (
        _readable(file.path),
        system.open_input_stream(inner, compression=_codec(file.path)) as stream,
    ):
        done = 0
        for lines in lines_of(stream.read):
            batch = pa.RecordBatch.from_arrays([pa.array(lines, type=pa.binary())], names=["value"])
            if times is not None or options.key is not None:
                batch = _with_members(batch, lines, file.path, done, options, times)
            done += len(lines)
            yield batch


def _with_members(
    batch: pa.RecordBatch, lines: Sequence[bytes], path: str, done: int, options: FileReadOptions, times: _Times | None
) -> pa.RecordBatch:
    """Add the key, and keep the interval's lines, by members of each line's JSON object."""
    import pyarrow as pa

    keys: list[bytes | None] = []
    moments: list[Any] = []
    for number, line in enumerate(lines, done + 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"it is {type(row).__name__}, not an object")
            if options.key is not None:
                keys.append(_key(row.get(options.key), options.key))
            if times is not None:
                moments.append(times.in_microseconds(row.get(str(options.time_column))))
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"Line {number} of the source file {path} cannot be used: {error}.",
                expected="a JSON object; its key text or a whole number; its time text of ISO 8601, or a whole number "
                "with time_unit given",
                remedy="Correct the file or the options, or read it with Spark: spark.read.text(…).",
            ) from error
    if options.key is not None:
        batch = pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(keys, type=pa.binary())], names=[*batch.schema.names, "key"]
        )
    return batch if times is None else times.within(batch, pa.array(moments, type=pa.int64()), TIME_UNITS["us"])


def _key(value: object, name: str) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    if value is None:
        return None
    raise ValueError(f"{name} is {json.dumps(value)[:60]}")


def _columns(file: PinnedFile, times: _Times | None) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file, decoded batch by batch."""
    import pyarrow.parquet

    system, inner = _open(file.path)
    if file.size == 0:
        return
    with (
        _readable(file.path),
        # INT96 in microseconds, as Spark reads it: nanoseconds reach from 1677 to 2262 only.
        pyarrow.parquet.ParquetFile(
            inner, filesystem=system, pre_buffer=True, coerce_int96_timestamp_unit="us"
        ) as parquet,
    ):
        _require_one_of_each(file.path, parquet.schema_arrow)
        for batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
            yield batch if times is None else times.of_column(batch)


def _require_one_of_each(path: str, fields: Any) -> None:
    """Refuse two columns, or two fields of a struct, with the same name."""
    import pyarrow as pa

    fields = list(fields)
    name, count = next(iter(Counter(column.name for column in fields).most_common(1)), ("", 0))
    if count > 1:
        raise ConfigurationError(
            f"The source file {path} has {count} columns {name!r}.",
            expected="a different name for each column",
            remedy="Rename the columns in the file.",
        )
    for column in fields:
        within = column.type
        while pa.types.is_list(within) or pa.types.is_large_list(within):
            within = within.value_type
        if pa.types.is_struct(within):
            _require_one_of_each(path, within)


class _Times:
    """Keeps the rows of a file whose time is in the interval."""

    def __init__(self, path: str, options: FileReadOptions, dropped: Dropped) -> None:
        self._path = path
        self._name = str(options.time_column)
        self._unit = options.time_unit
        self._null_times = options.null_times
        self._start, self._end = _microseconds(str(options.start)), _microseconds(str(options.end))
        others = (options.others_from, options.others_to)
        self._others = [None if edge is None else _microseconds(edge) for edge in others]
        self._dropped = dropped

    def of_column(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch whose time column is in the interval. Without a zone it is UTC."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._name not in batch.schema.names:
            raise ConfigurationError(
                f"The source file {self._path} has no column {self._name!r}.",
                expected=f"one of {', '.join(batch.schema.names)}",
                remedy="Correct time_column.",
            )
        times = batch.column(self._name)
        kind = times.type
        if pa.types.is_timestamp(kind) and self._unit is None:
            return self.within(batch, times.cast(pa.int64()), TIME_UNITS[kind.unit])
        if pa.types.is_date(kind) and self._unit is None:
            times = times.cast(pa.timestamp("s")).cast(pa.int64())
            return self.within(batch, times, TIME_UNITS["s"])
        if pa.types.is_integer(kind) and self._unit is not None:
            numbers = pc.cast(times, pa.int64())
            edges = pc.min_max(numbers).as_py()
            if edges["min"] is not None:
                self._require_meant(edges["min"], edges["max"])
            return self.within(batch, numbers, TIME_UNITS[self._unit])
        raise ConfigurationError(
            f"The column {self._name!r} of the source file {self._path} is of type {kind}"
            f"{f', and time_unit={self._unit!r} is given' if self._unit else ''}.",
            expected=f"a timestamp or a date, or whole numbers with time_unit={' or '.join(map(repr, TIME_UNITS))}",
            remedy="Give time_unit with whole numbers only. To use another type, read the files with Spark and convert "
            "the column.",
        )

    def in_microseconds(self, value: object) -> int | None:
        """The time that a member of a line names; a ValueError if it is not one."""
        if value is None:
            return None
        # fromisoformat() takes some numbers of 13 digits, milliseconds perhaps, for times of another century.
        if isinstance(value, str) and self._unit is None and not (value.isdigit() and len(value) > len("20130101")):
            return _microseconds(value)
        if isinstance(value, int) and not isinstance(value, bool) and self._unit is not None:
            moment_us = value * TIME_UNITS["us"] // TIME_UNITS[self._unit]
            if not self._start <= moment_us < self._end:
                self._require_meant(value, value)
            return min(max(moment_us, -(2**63)), 2**63 - 1)
        given = f" and time_unit is {self._unit!r}" if self._unit else ""
        raise ValueError(f"{self._name} is {json.dumps(value)[:60]}{given}")

    def within(self, batch: pa.RecordBatch, times: pa.Array, per_second: int) -> pa.RecordBatch:
        """The rows whose time is in the interval, compared as whole numbers without rounding."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if times.null_count and self._null_times == "refuse":
            raise ConfigurationError(
                f"{times.null_count} of {batch.num_rows} rows of the source file {self._path} have no {self._name!r}, "
                "so they belong to no interval.",
                expected="a time in every row",
                remedy="Correct the file, or drop and count such rows: null_times='drop'.",
            )
        start, end = (
            min(max(-(-edge * per_second // 10**6), -(2**63)), 2**63 - 1) for edge in (self._start, self._end)
        )
        kept = pc.and_(
            pc.greater_equal(times, pa.scalar(start, pa.int64())), pc.less(times, pa.scalar(end, pa.int64()))
        )
        result = batch.filter(kept)
        outside = batch.num_rows - times.null_count - result.num_rows
        edges = pc.min_max(times.filter(pc.invert(kept))).as_py() if outside else {"min": 0, "max": 0}
        first, last = (edges[name] * 10**6 // per_second for name in ("min", "max"))
        if outside:
            self._require_read_by_others(first, last)
        self._dropped.add(Dropped(times.null_count, outside, first, last))
        return result

    def _require_read_by_others(self, first_us: int, last_us: int) -> None:
        """Refuse dropped rows that no other interval reads."""
        earliest, behind = self._others
        if (earliest is not None and first_us < earliest) or (behind is not None and last_us >= behind):
            raise ConfigurationError(
                f"The source file {self._path} has rows outside the interval, from {_moment(first_us)} to "
                f"{_moment(last_us)}. No other interval reads them, because the path names this one.",
                expected=f"times from {_moment(self._start)} on and before {_moment(self._end)}",
                remedy="Leave time_column out if the path decides alone. If the times decide (folders of UTC days, and "
                "days of another zone), select the files by a path that is the same for all intervals.",
            )

    def _require_meant(self, first: int, last: int) -> None:
        """Refuse the unit if these times are near the interval in another unit only."""
        for unit in TIME_UNITS:
            if self._is_near(first, str(self._unit)) or self._is_near(last, str(self._unit)):
                return
            if self._is_near(first, unit) and self._is_near(last, unit):
                raise ConfigurationError(
                    f"The column {self._name!r} of the source file {self._path} has times from {first} to {last}. In "
                    f"{self._unit!r} none is within ten years of the interval, in {unit!r} all are.",
                    expected=f"times in {self._unit!r}, as time_unit says",
                    remedy=f"Correct time_unit: probably {unit!r}.",
                )

    def _is_near(self, value: int, unit: str) -> bool:
        return self._start - _NEAR_US <= value * 10**6 // TIME_UNITS[unit] <= self._end + _NEAR_US


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Convert errors of reading a file; most of Arrow's are ValueErrors."""
    try:
        yield
    except (ValueError, NotImplementedError, OSError, EOFError, zlib.error) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        found = f"The source file {path} cannot be read: {words}"
        is_content = path.startswith("file:") or any(word in words for word in _BAD_CONTENT)
        if isinstance(error, OSError) and not is_content:
            raise EosError(found, remedy="Check the file system, and run the interval again.") from error
        raise ConfigurationError(
            found,
            expected="a complete file of the given format, whose compression matches its file name",
            remedy="Replace the file, or correct the format.",
        ) from error


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
            remedy="Read it with Spark instead, as a DataFrame with a stable key (write_interval).",
        ) from error
    return system, inner
