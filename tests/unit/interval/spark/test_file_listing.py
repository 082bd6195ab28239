"""Pinned files, as tasks read them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.slices import Slice
from airflow_eos_provider.interval.sources.files import (
    Dropped,
    FileReadOptions,
    PinnedFile,
    as_records,
    look_at,
    read_pinned,
)
from airflow_eos_provider.interval.spark.file_listing import FilesSource, files_source, pin

DAY = Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")


def _pinned(path: Path) -> PinnedFile:
    found = look_at(f"file:{path}")
    assert found is not None
    return found


def _values(path: Path, options: FileReadOptions) -> list[bytes]:
    return [value for rows in read_pinned(_pinned(path), options) for value in rows.column("value").to_pylist()]


def test_spark_and_the_tasks_know_a_file_by_the_same_size_and_time(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b.json"
    path.write_bytes(b"{}\n")
    os.utime(path, ns=(0, 1_357_016_400_123_456_789))
    (found,) = pin(spark, [str(path)])
    assert found == _pinned(path)
    assert found.modified_ms == 1_357_016_400_123
    assert PinnedFile.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_folders_and_globs_are_searched_and_hidden_files_left_out(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("b/part-0", "b/deep/part-1", "b/_SUCCESS", "b/.part.crc", "a/part-2", "c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = pin(spark, [f"{tmp_path}/[ab]", f"{tmp_path}/a/*", f"{tmp_path}/nothing/*"])
    assert [file.path.removeprefix(f"file:{tmp_path}/") for file in found] == ["a/part-2", "b/deep/part-1", "b/part-0"]


def test_files_are_selected_by_their_path_or_their_time(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(["2013-01-01.json", "2013-01-02.json"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, DAY.start.timestamp() + 86400 * number))
    by_path = files_source(spark, DAY, f"{tmp_path}/{{start:%Y-%m-%d}}.json", format="json")
    by_time = files_source(spark, DAY, f"{tmp_path}/*.json", format="json", modified=True)
    assert [file.path[-15:] for file in by_path.files] == ["2013-01-01.json"]
    assert by_time.files == by_path.files
    assert by_path.slices()[0].source["file"]["path"].endswith("2013-01-01.json")


def test_files_of_every_interval_alike_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Nothing says which"):
        files_source(spark, DAY, f"{tmp_path}/*", format="json")
    with pytest.raises(ConfigurationError, match="cannot be formatted"):
        files_source(spark, DAY, f"{tmp_path}/{{day}}", format="json")
    with pytest.raises(ConfigurationError, match="avro"):
        files_source(spark, DAY, f"{tmp_path}/{{start:%Y}}", format="avro")
    with pytest.raises(ConfigurationError, match="cannot be listed"):
        files_source(spark, DAY, "nothing://{start:%Y}/x", format="json")
    with pytest.raises(ConfigurationError, match="null_times is 'skip'"):
        files_source(spark, DAY, f"{tmp_path}/*", format="json", time_column="at", null_times="skip", allow_empty=True)


def test_an_interval_without_files_is_refused_unless_that_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "late.json").touch()
    with pytest.raises(ConfigurationError, match=r"no file at .*/2013-01-01\.json"):
        files_source(spark, DAY, f"{tmp_path}/{{start:%Y-%m-%d}}.json", format="json")
    with pytest.raises(ConfigurationError, match=r"no file at .* changed within the interval[^$]*allow_empty=True"):
        files_source(spark, DAY, f"{tmp_path}/*.json", format="json", modified=True)
    allowed = files_source(spark, DAY, f"{tmp_path}/*.json", format="json", modified=True, allow_empty=True)
    assert allowed.files == ()


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_rows_without_a_time_are_refused_or_counted(spark: SparkSession, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"flights.{format}"
    if format == "json":
        path.write_text('{"at":null,"n":0}\n{"at":"2013-01-01T05:00:00","n":1}\n{"n":2}\n')
    elif format == "csv":
        path.write_text("at,n\n,0\n2013-01-01T05:00:00,1\n,2\n")
    else:
        times = pa.array([None, "2013-01-01T05:00:00Z", None]).cast(pa.timestamp("us", "UTC"))
        pyarrow.parquet.write_table(pa.table({"at": times, "n": [0, 1, 2]}), path)
    source = files_source(spark, DAY, str(path), format=format, time_column="at")
    with pytest.raises(ConfigurationError, match=r"2 of 3 rows of the source file .* have no 'at'"):
        _values(path, source.options)
    with pytest.raises(PySparkException, match="A source row has no at"):
        source.frame(spark).collect()

    dropping = files_source(spark, DAY, str(path), format=format, time_column="at", null_times="drop")
    dropped = Dropped()
    options = FileReadOptions.from_dict(json.loads(json.dumps(dropping.options.to_dict())))
    rows = [row for batch in read_pinned(_pinned(path), options, None, dropped) for row in batch.to_pylist()]
    assert [json.loads(row["value"])["n"] for row in rows] == [1]
    assert dropped.rows == 2
    assert [row.n for row in dropping.frame(spark).collect()] == [1]


def test_files_are_held_to_the_plan_of_an_earlier_attempt() -> None:
    options = FileReadOptions("json")
    first, second = (PinnedFile(f"file:/{name}", 1, 5) for name in "ab")
    planned = FilesSource((first, second), options).slices()

    FilesSource((first, second), options).require_planned(planned)
    FilesSource((), options).require_planned(())
    for files, words in [
        ((first, PinnedFile("file:/b", 2, 5)), "file:/b has changed"),
        ((first,), "file:/b is gone"),
        (
            (first, second, PinnedFile("file:/c", 1, 5), PinnedFile("file:/d", 1, 5)),
            "file:/c and 1 more, which was not",
        ),
    ]:
        with pytest.raises(ConfigurationError, match=words):
            FilesSource(files, options).require_planned(planned)
    with pytest.raises(ConfigurationError, match="begun with other slices"):
        FilesSource((first, second), FileReadOptions("csv")).require_planned(planned)
    with pytest.raises(ConfigurationError, match="begun with other slices"):
        FilesSource((first,), options).require_planned([Slice(0, {"xxhash64": ["key string"], "of": 1})])


@pytest.mark.parametrize("content", [b"a\nb\n", b"a\nb", b"", b"\n", b"a\n\nb\n" * 3])
def test_lines_are_taken_byte_for_byte(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_eos_provider.interval.sources.files._CHUNK_BYTES", 2)  # lines reach over chunks
    path = tmp_path / "lines"
    path.write_bytes(content)
    assert _values(path, FileReadOptions("lines")) == content.removesuffix(b"\n").split(b"\n") * bool(content)


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_rows_outside_the_interval_are_left_out(tmp_path: Path, format: str) -> None:
    path = tmp_path / "flights"
    times = ["2013-01-01T04:59:59", "2013-01-01T05:00:00", "2013-01-02T04:59:59", "2013-01-02T05:00:00"]
    if format == "json":
        path.write_text("".join(f'{{"at":"{at}","n":{n}}}\n' for n, at in enumerate(times)))
    elif format == "csv":
        path.write_text("at,n\n" + "".join(f"{at},{n}\n" for n, at in enumerate(times)))
    else:
        columns = {"at": pa.array(times).cast(pa.timestamp("us")), "n": list(range(4))}
        pyarrow.parquet.write_table(pa.table(columns), path)
    options = FileReadOptions(format, "at", DAY.start.isoformat(), DAY.end.isoformat())
    assert [json.loads(value)["n"] for value in _values(path, options)] == [1, 2]
    with pytest.raises(ConfigurationError, match="no column 'when'"):
        _values(path, FileReadOptions(format, "when", DAY.start.isoformat(), DAY.end.isoformat()))


def test_a_file_that_changes_while_it_is_read_is_an_error_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n")
    rows = read_pinned(_pinned(path), FileReadOptions("lines"))
    next(rows)
    path.write_bytes(b"a\nb\n")
    with pytest.raises(ConfigurationError, match="has changed"):
        list(rows)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.touch()
    pinned = _pinned(path)
    path.unlink()
    with pytest.raises(ConfigurationError, match="is gone"):
        list(read_pinned(pinned, FileReadOptions("lines")))


def test_whole_seconds_are_compared_where_a_file_system_tells_no_more() -> None:
    PinnedFile("f", 1, 5000).require_unchanged(PinnedFile("f", 1, 5999))
    for other in (PinnedFile("f", 1, 6000), PinnedFile("f", 2, 5000), PinnedFile("f", 1, 5000, etag="b")):
        with pytest.raises(ConfigurationError):
            PinnedFile("f", 1, 5000, etag="a").require_unchanged(other)


def test_rows_without_a_value_become_json() -> None:
    batch = pa.RecordBatch.from_pydict({"line": [1], "carrier": ["Ü"], "air_time": pa.array([None], pa.int64())})
    assert as_records(batch).column("value").to_pylist() == ['{"line":1,"carrier":"Ü","air_time":null}'.encode()]
    assert as_records(as_records(batch)) == as_records(batch)


def test_of_a_parquet_file_no_more_than_a_batch_is_in_memory(tmp_path: Path) -> None:
    """A task's memory does not grow with the file's row groups."""
    rows = 100_000
    values = pa.array([f"{number:0200}" for number in range(rows)])
    pyarrow.parquet.write_table(pa.table({"value": values}), tmp_path / "rows", row_group_size=rows)

    sizes = [
        batch.column("value").buffers()[2].size
        for batch in read_pinned(_pinned(tmp_path / "rows"), FileReadOptions("parquet"))
    ]

    assert len(sizes) > 1
    assert max(sizes) < values.nbytes / 2
