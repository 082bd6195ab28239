"""What ``python -m tests.durations`` makes of pytest's report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import durations

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_needs" name="test_a[x]" time="1.6" />
<testcase classname="tests.unit.test_durations.TestPart" name="test_b" time="40.0" />
<testcase classname="tests.unit.test_needs" name="test_c" time="2.0" />
<testcase time="0.1" />
</testsuite></testsuites>"""


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(durations, "TABLE", tmp_path / "tests" / "durations.json")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    for name in ("needs", "durations"):
        (tmp_path / "tests" / "unit" / f"test_{name}.py").touch()
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    return path


def test_the_table_has_the_sum_of_each_file_the_longest_first(report: Path) -> None:
    durations.main([str(report), "--write"])
    table = json.loads(durations.TABLE.read_text())
    assert list(table.items()) == [("tests/unit/test_durations.py", 40), ("tests/unit/test_needs.py", 4)]


def test_a_file_of_which_nothing_was_run_keeps_its_seconds_and_one_that_is_gone_does_not(report: Path) -> None:
    (durations.TABLE.parent / "test_by_name.py").touch()
    durations.TABLE.write_text(json.dumps({"tests/test_by_name.py": 7, "tests/test_gone.py": 9}))
    durations.main([str(report), "--write"])
    table = json.loads(durations.TABLE.read_text())
    assert list(table) == ["tests/unit/test_durations.py", "tests/test_by_name.py", "tests/unit/test_needs.py"]


def test_sums_and_the_slowest_tests_are_printed_and_the_table_is_left(
    report: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durations, "SLOWEST", 2)
    durations.main([str(report)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["4", "s", "tests/unit/test_needs.py"] in lines
    assert [line[2] for line in lines[-2:]] == [
        "tests/unit/test_durations.py::TestPart::test_b",
        "tests/unit/test_needs.py::test_c",
    ]
    assert not durations.TABLE.exists()


def test_a_report_of_other_files_is_refused(report: Path) -> None:
    (durations.TABLE.parent / "unit" / "test_needs.py").unlink()
    with pytest.raises(SystemExit, match=r"not here: tests/unit/test_needs\.py"):
        durations.main([str(report), "--write"])
    assert not durations.TABLE.exists()
