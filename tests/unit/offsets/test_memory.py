"""How much memory the offsets of a topic take: so much for each key, nothing for further records, nothing to show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: What one of these offsets may take: two objects of Python, and their places in a dictionary and a list. Some 185 are
#: needed; with one object more, of whatever kind, it is beyond.
BYTES_OF_AN_OFFSET = 240


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    folder = tmp_path_factory.mktemp("memory")
    report = folder / "report.json"
    program = [sys.executable, "-m", "tests.unit.offsets.memory_of_offsets", str(report), str(folder)]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL, timeout=120, cwd=Path(__file__).parents[3])
    found: dict[str, list[int]] = json.loads(report.read_text(encoding="utf-8"))
    return found


def test_memory_grows_with_the_keys_of_a_topic_and_not_with_its_records(measured: dict[str, list[int]]) -> None:
    few, many = measured["records"]
    assert many < 1.1 * few


def test_an_offset_takes_little_more_than_its_own_bytes(measured: dict[str, list[int]]) -> None:
    few, many, most = measured["offsets"]
    assert (many - few) / 15_000 < BYTES_OF_AN_OFFSET
    assert most < 1.3 * many


@pytest.mark.parametrize("show", ["write_backup", "print_list"])
def test_a_backup_and_a_list_hold_one_offset_at_a_time(measured: dict[str, list[int]], show: str) -> None:
    few, many = measured[show]
    assert many < few + 50_000, "it grows with the offsets"
