"""What a task reads of a pinned file: rows of Parquet as they are, lines byte for byte, and nothing guessed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.sources import source_files as module
from airflow_eos_provider.interval.sources.source_files import (
    Dropped,
    FileReadOptions,
    FileSet,
    PinnedFile,
    as_records,
    file_lines,
    look_at,
    read_pinned,
    require_planned_files,
)
from airflow_eos_provider.stored import from_json

DAY = Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")

#: The last moment before the day, its first, its last and the first of the next one.
EDGES = [DAY.start - timedelta(seconds=1), DAY.start, DAY.end - timedelta(seconds=1), DAY.end]


def options(format: str, **given: Any) -> FileReadOptions:
    bounds = {"start": DAY.start.isoformat(), "end": DAY.end.isoformat()} if "time_column" in given else {}
    made = FileReadOptions(format, **given, **bounds)
    assert from_json(FileReadOptions, json.loads(json.dumps(made.to_dict()))) == made
    return made


def pinned(path: Path) -> PinnedFile:
    found = look_at(f"file:{path}")
    assert found is not None
    return found


def rows(path: Path, read: FileReadOptions, dropped: Dropped | None = None) -> list[dict[str, Any]]:
    return [row for batch in read_pinned(pinned(path), read, None, dropped) for row in batch.to_pylist()]


def values(path: Path, read: FileReadOptions, dropped: Dropped | None = None) -> list[bytes]:
    return [row["value"] for row in rows(path, read, dropped)]


def parquet(path: Path, columns: Any, **settings: Any) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path, **settings)
    return path


def test_rows_that_no_other_interval_reads_are_refused(tmp_path: Path) -> None:
    lines = tmp_path / "day.json"
    lines.write_text('{"at":"2013-01-01T06:00:00Z"}\n{"at":"2013-01-01T04:59:59Z"}\n')
    columns = parquet(tmp_path / "day.parquet", {"at": [DAY.start, DAY.end]})
    for path, format in ((lines, "lines"), (columns, "parquet")):
        alone = options(format, time_column="at", others_from=DAY.start.isoformat(), others_to=DAY.end.isoformat())
        with pytest.raises(ConfigurationError, match="No other interval reads them"):
            rows(path, alone)
        shared = {"others_from": "2013-01-01T00:00:00+00:00", "others_to": "2013-01-03T00:00:00+00:00"}
        assert len(rows(path, options(format, time_column="at", **shared))) == 1


# Lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"", []),
        (b"\n", [b""]),
        (b"a\n\nb\n" * 3, [b"a", b"", b"b"] * 3),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\nb\rc", [b"a", b"", b"b", b"c"]),
        (b"a\r", [b"a"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [b"a", b"\xef\xbb\xbfb"]),
        (b"\xef\xbb\xbf", []),
        (b"\xff\xe9 a\x00b\x0bc\x85\n", [b"\xff\xe9 a\x00b\x0bc\x85"]),
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 20])
def test_lines_are_taken_byte_for_byte(
    tmp_path: Path, content: bytes, lines: list[bytes], end: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk)
    path = tmp_path / f"lines{end}"
    middle = len(content) // 2  # a compressed file may be made of several
    parts = [content] if not end else [gzip.compress(content[:middle]), gzip.compress(content[middle:])]
    path.write_bytes(b"".join(parts))
    assert values(path, options("lines")) == lines
    assert list(file_lines(path)) == lines


def test_lines_have_a_key_and_a_time_by_the_names_of_their_members(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    times = [
        *('"2013-01-01T04:59:59.999999Z"', '"2013-01-01T05:00:00"', '"2013-01-01T06:00:00+01:00"', '"2013-01-02"'),
        *('"2013-01-02T05:00:00Z"', '"2013-01-02T00:00:00-05:00"'),
    ]
    lines = [f'{{"at" : {time}, "id":{n}, "big":9007199254740993.10}}'.encode() for n, time in enumerate(times)]
    path.write_bytes(b"\n".join(lines))
    dropped = Dropped()
    found = rows(path, options("lines", time_column="at", key="id"), dropped)
    assert found == [{"value": lines[n], "key": str(n).encode()} for n in (1, 2, 3)]
    assert dropped.outside == 3
    assert "from 2013-01-01T04:59:59.999999+00:00 to 2013-01-02T05:00:00+00:00" in str(dropped)
    path.write_bytes(b'{"id":"07030"}\n{"id":null}\n{}\n{"id":123456789012345678901234567890}')
    assert [row["key"] for row in rows(path, options("lines", key="id"))] == [
        *(b"07030", None, None, b"123456789012345678901234567890")
    ]


@pytest.mark.parametrize(
    ("line", "given", "words"),
    [
        (b'{"at":1357016400}', {}, "at is 1357016400"),
        (b'{"at":"2013-01-01T05:00:00"}', {"time_unit": "s"}, "time_unit is 's'"),
        (b'{"at":1357016400.5}', {"time_unit": "s"}, r"at is 1357016400\.5"),
        (b'{"at":true}', {"time_unit": "s"}, "at is true"),
        (b'{"at":"yesterday"}', {}, "yesterday"),
        (b'{"at":"1711010112345"}', {}, "1711010112345"),  # as compact ISO 8601, the year 1711
        (b"[1]", {}, "list, not an object"),
        (b"not JSON", {}, "Expecting value"),
        (b'{"at":"\xe9"}', {}, "utf-8"),
        (b"[" * 200_000, {}, "recursion"),
        (b'{"at":"2013-01-01T05:00:00","k":1.0}', {"key": "k"}, r"k is 1\.0"),
        (b'{"at":"2013-01-01T05:00:00","k":{}}', {"key": "k"}, "k is {}"),
    ],
)
def test_a_line_whose_time_or_key_would_be_a_guess_is_named(
    tmp_path: Path, line: bytes, given: dict[str, str], words: str
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"at":null}\n' + line)
    read = options("lines", time_column="at", null_times="drop", **given)
    with pytest.raises(ConfigurationError, match=f"(?i)Line 2 of the source file .*lines.*{words}"):
        rows(path, read)


# Times


#: A column of times, and how it is read.
TIMES: dict[str, tuple[Callable[[datetime], Any], Any, str | None]] = {
    "instants in nanoseconds": (lambda t: t, pa.timestamp("ns", "UTC"), None),
    "instants of another zone": (lambda t: t, pa.timestamp("ms", "America/New_York"), None),
    "times without a zone": (lambda t: t.replace(tzinfo=None), pa.timestamp("us"), None),
    "seconds": (lambda t: int(t.timestamp()), pa.int32(), "s"),
    "milliseconds": (lambda t: int(t.timestamp()) * 1000, pa.int64(), "ms"),
    "microseconds": (lambda t: int(t.timestamp()) * 10**6, pa.uint64(), "us"),
    "nanoseconds": (lambda t: int(t.timestamp()) * 10**9, pa.int64(), "ns"),
}


@pytest.mark.parametrize(("made", "kind", "unit"), TIMES.values(), ids=TIMES.keys())
def test_rows_outside_the_interval_are_left_out(
    tmp_path: Path, made: Callable[[datetime], Any], kind: Any, unit: str | None
) -> None:
    path = parquet(tmp_path / "rows", {"at": pa.array([*map(made, EDGES), None], kind), "value": list("abcde")})
    read = options("parquet", time_column="at", time_unit=unit, null_times="drop")
    dropped = Dropped()
    assert values(path, read, dropped) == ["b", "c"]
    assert dropped.to_list() == [1, 2, *(int(time.timestamp()) * 10**6 for time in (EDGES[0], EDGES[3]))]
    with pytest.raises(ConfigurationError, match=r"1 of 5 rows of the source file .* have no 'at'"):
        rows(path, options("parquet", time_column="at", time_unit=unit))
    with pytest.raises(ConfigurationError, match="no column 'when'"):
        rows(path, options("parquet", time_column="when"))


def test_a_date_is_its_midnight_in_utc(tmp_path: Path) -> None:
    days = [datetime(2013, 1, day, tzinfo=UTC).date() for day in (1, 2, 3)]
    path = parquet(tmp_path / "rows", {"at": days, "value": list("abc")})
    assert values(path, options("parquet", time_column="at")) == ["b"]


def test_nanoseconds_are_compared_and_written_in_full(tmp_path: Path) -> None:
    start = int(DAY.start.timestamp()) * 10**9
    path = parquet(tmp_path / "rows", {"at": pa.array([start - 1, start, start + 1], pa.timestamp("ns", "UTC"))})
    assert values(path, options("parquet", time_column="at")) == [
        b'{"at":"2013-01-01T05:00:00.000000000+00:00"}',
        b'{"at":"2013-01-01T05:00:00.000000001+00:00"}',
    ]
    before_1970 = parquet(tmp_path / "old", {"at": pa.array([-1, None], pa.timestamp("ns"))})
    assert values(before_1970, options("parquet")) == [b'{"at":"1969-12-31T23:59:59.999999999"}', b'{"at":null}']


def test_int96_reaches_beyond_nanoseconds(tmp_path: Path) -> None:
    times = pa.array([datetime(2400, 1, 1), datetime(1500, 1, 1)], pa.timestamp("us"))
    path = parquet(tmp_path / "rows", {"at": times}, use_deprecated_int96_timestamps=True)
    assert values(path, options("parquet")) == [b'{"at":"2400-01-01T00:00:00"}', b'{"at":"1500-01-01T00:00:00"}']
    century = FileReadOptions("parquet", "at", "2300-01-01T00:00:00+00:00", "2500-01-01T00:00:00+00:00")
    assert values(path, century) == [b'{"at":"2400-01-01T00:00:00"}']


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        (pa.array([1357016400]), None),
        (pa.array([1357016400.5]), "s"),
        (pa.array([True]), "s"),
        (pa.array(["2013-01-01T05:00:00"]), None),
        (pa.array([DAY.start]), "s"),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_a_column_whose_time_would_be_a_guess_is_refused(tmp_path: Path, column: Any, unit: str | None) -> None:
    path = parquet(tmp_path / "rows", {"at": column})
    with pytest.raises(ConfigurationError, match=r"'at' of the source file .*rows is of type"):
        rows(path, options("parquet", time_column="at", time_unit=unit))


@pytest.mark.parametrize("format", ["parquet", "lines"])
def test_a_unit_that_cannot_be_meant_is_refused(tmp_path: Path, format: str) -> None:
    seconds = [int(time.timestamp()) for time in EDGES]
    path = tmp_path / "rows"
    if format == "parquet":
        parquet(path, {"at": seconds, "value": list("abcd")})
    else:
        path.write_text("".join(f'{{"at":{time}}}\n' for time in seconds))
    with pytest.raises(ConfigurationError, match=r"In 'ms' none is within ten years .* in 's' all are"):
        rows(path, options(format, time_column="at", time_unit="ms"))
    assert len(rows(path, options(format, time_column="at", time_unit="s"))) == 2


# Columns


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1.5, float("nan")]), "JSON compliant"),
        (pa.array([float("-inf")]), "JSON compliant"),
        (pa.array([b"\xe9"]), "utf-8"),
        (pa.array([400_000_000_000], pa.timestamp("s")), "out of range"),
    ],
    ids=["NaN", "infinity", "latin-1", "a year beyond 9999"],
)
def test_a_value_that_json_has_not_is_refused(tmp_path: Path, column: Any, words: str) -> None:
    path = parquet(tmp_path / "rows", {"n": column})
    with pytest.raises(ConfigurationError, match=f"A row of the source file .*rows cannot be written as JSON.*{words}"):
        rows(path, options("parquet"))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    within = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    for number, table in enumerate([twice, pa.table({"outer": within})]):
        pyarrow.parquet.write_table(table, tmp_path / str(number))
        with pytest.raises(ConfigurationError, match="has 2 columns 'n'"):
            rows(tmp_path / str(number), options("parquet"))


def test_rows_without_a_value_become_json() -> None:
    batch = pa.RecordBatch.from_pydict({"line": [1], "carrier": ["Ü"], "air_time": pa.array([None], pa.int64())})
    assert as_records(batch, "f").column("value").to_pylist() == ['{"line":1,"carrier":"Ü","air_time":null}'.encode()]
    assert as_records(as_records(batch, "f"), "f") == as_records(batch, "f")


def test_a_time_of_day_keeps_its_digits_or_is_refused() -> None:
    times = pa.array([3_600_000_001_000], pa.time64("ns"))
    batch = pa.RecordBatch.from_pydict({"t": times})
    assert as_records(batch, "f").column("value").to_pylist() == [b'{"t":"01:00:00.000001"}']
    with pytest.raises(ConfigurationError, match="would lose data"):
        as_records(pa.RecordBatch.from_pydict({"t": pa.array([5], pa.time64("ns"))}), "f")


def test_of_a_parquet_file_no_more_than_a_batch_is_in_memory(tmp_path: Path) -> None:
    """A task's memory does not grow with the file's row groups."""
    count = 100_000
    texts = pa.array([f"{number:0200}" for number in range(count)])
    path = parquet(tmp_path / "rows", {"value": texts}, row_group_size=count)
    sizes = [batch.column("value").buffers()[2].size for batch in read_pinned(pinned(path), options("parquet"))]
    assert len(sizes) > 1
    assert max(sizes) < texts.nbytes / 2


# What cannot be read


@pytest.mark.parametrize(
    ("name", "content", "format", "words"),
    [
        ("cut.gz", gzip.compress(b"line\n" * 1000, mtime=0)[:-12], "lines", "cannot be read"),
        ("plain.gz", b"line\n", "lines", "cannot be read"),
        *(
            (f"rows{end}", b"", "lines", "compressed in a way that is not read")
            for end in (".lz4", ".zip", ".xz", ".GZ")
        ),
        ("rows.txt", "a\nb\n".encode("utf-16"), "lines", "UTF-16"),
        ("rows", b"PAR1 and no more", "parquet", "cannot be read"),
        ("rows", b"not a Parquet file, but longer than its footer", "parquet", "cannot be read"),
    ],
)
def test_content_that_cannot_be_read_is_an_error_that_names_the_file(
    tmp_path: Path, name: str, content: bytes, format: str, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"source file .*{name}.*{words}[^$]*What to do"):
        rows(path, options(format))
    if format == "lines":
        with pytest.raises(ConfigurationError, match=f"source file .*{name}.*{words}"):
            list(file_lines(path))


@pytest.mark.parametrize("format", ["json", "csv", "orc"])
def test_other_formats_are_refused_with_the_way_to_read_them(format: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"The format is '{format}'[^$]*spark\.read\.schema"):
        options(format)
    for given in ({"null_times": "skip"}, {"time_unit": "minutes"}, {"key": "id"}):
        with pytest.raises(ConfigurationError, match=f"{next(iter(given))}"):
            options("parquet", **given)


# What was pinned


def test_a_file_that_changes_while_it_is_read_is_an_error_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n")
    for change, words in ((b"a\nb\n", "has changed"), (None, "is gone")):
        found = read_pinned(pinned(path), options("lines"))
        next(found)
        path.unlink()
        if change is not None:
            path.write_bytes(change)
        with pytest.raises(ConfigurationError, match=words):
            list(found)


def test_files_that_change_places_are_told_apart_within_an_attempt(tmp_path: Path) -> None:
    import os

    for name in "ab":
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, ns=(0, 5 * 10**9))
    first = pinned(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    with pytest.raises(ConfigurationError, match="was replaced by one of the same size and time"):
        first.require_unchanged(pinned(tmp_path / "a"))
    PinnedFile.from_dict(first.to_dict()).require_unchanged(pinned(tmp_path / "a"))  # put back between attempts


def test_whole_seconds_are_compared_where_a_file_system_tells_no_more() -> None:
    PinnedFile("f", 1, 5000).require_unchanged(PinnedFile("f", 1, 5999))
    for other in (PinnedFile("f", 1, 6000), PinnedFile("f", 2, 5000), PinnedFile("f", 1, 5000, etag="b")):
        with pytest.raises(ConfigurationError):
            PinnedFile("f", 1, 5000, etag="a").require_unchanged(other)


@pytest.mark.parametrize("most", [1, 1000])
def test_files_are_held_to_a_plan(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES_IN_PLAN", most)
    first, second = (PinnedFile(f"file:/{name}", 2, 5000) for name in "ab")
    others = [
        ((first, PinnedFile("file:/b", 3, 5000)), "file:/b has changed"),
        ((first,), "file:/b is gone"),
        ((first, second, PinnedFile("file:/c", 1, 5), PinnedFile("file:/d", 1, 5)), "file:/c and 1 more, which was"),
    ]
    plan = json.loads(json.dumps(FileSet.of((second, first)).to_plan()))
    require_planned_files(FileSet.of((first, second)).to_plan(), plan)
    require_planned_files(FileSet.of((first,)).to_plan(), {})
    for files, words in others:
        with pytest.raises(
            ConfigurationError, match=words if most > 1 else "which differ from the files that its plan pinned"
        ):
            require_planned_files(FileSet.of(files).to_plan(), plan)
