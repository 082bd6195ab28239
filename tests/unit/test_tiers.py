"""The first tier by default, every proof with --all, a named file whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FILE = """
import pytest

@pytest.mark.by_name
def test_soak(): pass

def test_on_a_broker(broker): pass

@pytest.mark.first
def test_promise(broker): pass

def test_unit(): pass
"""

CONFTEST = """
import pytest
from tests.needs import mark
from tests.tiers import add_option, leave_out

pytest_addoption = add_option
pytest_itemcollected = mark

@pytest.fixture
def broker(): pass

def pytest_collection_modifyitems(config, items):
    leave_out(config, items)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder whose tests follow the rule, and start nothing."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    by_name\n    first\n    broker\n")
    tests = tmp_path / "tests" / "unit"
    tests.mkdir(parents=True)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tests / "test_it.py").write_text(FILE)
    return tmp_path


def run(project: Path, *arguments: str) -> set[str]:
    """The tests that passed."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=project, env=environment, text=True, capture_output=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.split("::")[1].split()[0] for line in done.stdout.splitlines() if " PASSED" in line}


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], {"test_unit", "test_promise"}),
        (["tests/unit"], {"test_unit", "test_promise"}),
        (["--all"], {"test_unit", "test_promise", "test_on_a_broker"}),
        (["-m", "broker"], {"test_promise", "test_on_a_broker"}),
        (["tests/unit/test_it.py"], {"test_unit", "test_promise", "test_on_a_broker", "test_soak"}),
        (["tests/unit/test_it.py::test_soak"], {"test_soak"}),
    ],
    ids=["by default", "a folder", "all", "a need", "a file", "a test"],
)
def test_what_runs(project: Path, arguments: list[str], passed: set[str]) -> None:
    assert run(project, *arguments) == passed


def test_the_page_lists_the_files_that_run_by_name() -> None:
    marked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").glob("*/**/test_*.py")
        if path != Path(__file__) and "pytest.mark.by_name" in path.read_text(encoding="utf-8")
    }
    page = (ROOT / "docs" / "tests.md").read_text(encoding="utf-8")
    assert marked == {name for name in marked if name in page}
