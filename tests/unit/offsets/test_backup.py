"""Backups of source offsets: every byte comes back, and a file that is not whole is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_eos_provider.connect.topics.source_offsets import OffsetKey, OffsetRecord
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.offsets.seen.backup import BackedUpTopic, Backup, read, write
from airflow_eos_provider.offsets.seen.difference import difference


def record(raw: bytes, value: bytes | None = b'{"position":1}', **fields: object) -> OffsetRecord:
    return replace(OffsetRecord(OffsetKey(raw), "g-offsets", 3, 17, 1_700_000_000_000, value), **fields)  # type: ignore[arg-type]


RECORDS = (
    record(b'["c",{"file":"a"}]'),
    record(b'["ord",{"z":"1","a":"2"}]', headers=(("h", b"\xff\x00"), ("h", None))),
    record(b"\xff\x00\n", b"\x00"),
    record('["c",{"file":"é\u2028"}]'.encode()),
)


@pytest.fixture
def backup() -> Backup:
    topics = (BackedUpTopic("g-offsets", "AAA", {0: 5, 3: 18}), BackedUpTopic("own", None, {0: 1}, ("c",)))
    return Backup("cluster", "g", 1_700_000_000.0, None, topics, RECORDS)


def test_what_is_read_is_what_was_written(backup: Backup, tmp_path: Path) -> None:
    write(backup, tmp_path / "b.jsonl")
    assert read(tmp_path / "b.jsonl") == backup
    assert [file.name for file in tmp_path.iterdir()] == ["b.jsonl"]


def test_what_could_not_be_read_is_said_in_the_first_line(backup: Backup, tmp_path: Path) -> None:
    write(replace(backup, without=("c",)), tmp_path / "b.jsonl")
    assert read(tmp_path / "b.jsonl").without == ("c",)
    assert "without" not in backup.header()


def test_a_person_can_read_it(backup: Backup, tmp_path: Path) -> None:
    write(backup, tmp_path / "b.jsonl")
    header, first, *_, end = map(json.loads, (tmp_path / "b.jsonl").read_text(encoding="utf-8").split("\n")[:-1])
    assert (header["group_id"], header["taken_at"]) == ("g", "2023-11-14T22:13:20+00:00")
    assert (first["connector"], first["partition"], first["offset"]) == ("c", {"file": "a"}, {"position": 1})
    assert end["records"] == len(RECORDS)


@pytest.mark.parametrize("break_it", ["cut off", "a line less", "edited", "empty", "not ours", "another schema"])
def test_a_file_that_is_not_whole_is_refused(backup: Backup, tmp_path: Path, break_it: str) -> None:
    file = tmp_path / "b.jsonl"
    write(backup, file)
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    file.write_bytes(
        {
            "cut off": whole[:-30],
            "a line less": b"".join(lines[:2] + lines[3:]),
            "edited": whole.replace(b'"kafka_partition":3', b'"kafka_partition":4', 1),
            "empty": b"",
            "not ours": b'{"kind":"x"}\n{}\n',
            "another schema": whole.replace(b'"schema":1', b'"schema":2'),
        }[break_it]
    )
    with pytest.raises(ConfigurationError, match="is no backup of source offsets"):
        read(file)


def test_a_file_that_exists_is_not_written_over(backup: Backup, tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    file.write_text("mine")
    with pytest.raises(ConfigurationError, match="exists"):
        write(backup, file)
    assert file.read_text() == "mine"


def test_a_folder_that_is_not_there_is_named(backup: Backup, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write(backup, tmp_path / "absent" / "b.jsonl")


def test_a_difference_is_of_values_not_of_positions(backup: Backup) -> None:
    first, second, third, fourth = RECORDS
    moved = replace(first, position=99, timestamp_ms=1)
    changed = replace(second, value=b'{"position":2}')
    new = record(b'["d",{}]')
    found = difference(backup, replace(backup, records=(moved, changed, third, new)))
    assert {one.to_dict()["key"]: one.to_dict()["change"] for one in found} == {
        fourth.key.raw.decode(): "removed",
        second.key.raw.decode(): "changed",
        '["d",{}]': "added",
    }
