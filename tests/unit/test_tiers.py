"""The first tier by default, all with --all, a named file whole; variants say which test stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FILE = """
import pytest

@pytest.mark.variant("the first one below")
def test_variant(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.slow
@pytest.mark.first
def test_promise(): pass

def test_first(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder whose tests follow the rule, without what the tests of this repository start."""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "from tests.tiers import add_option, leave_out, require_reasons\n"
        "def pytest_addoption(parser):\n"
        "    add_option(parser)\n"
        "def pytest_configure(config):\n"
        "    for name in ('variant(of)', 'slow', 'first'):\n"
        "        config.addinivalue_line('markers', name + ': as in pyproject.toml')\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    require_reasons(config.rootpath, items)\n"
        "    leave_out(config, items)\n"
    )
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "test_it.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(project: Path, *arguments: str, code: int = 0, **variables: str) -> str:
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    done = subprocess.run(
        command, cwd=project, env=environment, text=True, capture_output=True, timeout=240, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_first_tier_runs_by_default(project: Path) -> None:
    output = run(project)
    assert "test_first PASSED" in output
    assert "test_promise PASSED" in output
    assert "2 passed, 2 deselected" in output


def test_all_adds_slow_tests_and_no_variants(project: Path) -> None:
    output = run(project, "--all")
    assert "test_slow PASSED" in output
    assert "3 passed, 1 deselected" in output


@pytest.mark.parametrize(
    ("argument", "passed"), [("inner/test_it.py", 4), ("inner/test_it.py::test_variant", 1)], ids=["file", "test"]
)
def test_a_file_that_is_named_runs_whole(project: Path, argument: str, passed: int) -> None:
    assert f"{passed} passed" in run(project, argument)


def test_a_folder_that_is_named_is_no_file(project: Path) -> None:
    assert "2 passed, 2 deselected" in run(project, "inner")


def test_variants_run_by_the_marker_and_by_the_variable(project: Path) -> None:
    assert "1 passed, 3 deselected" in (output := run(project, "-m", "variant"))
    assert "test_variant PASSED" in output
    assert "4 passed" in run(project, EOS_VARIANTS="1")


@pytest.mark.parametrize("reason", ["", '" "', '"the same in tests/unit/test_gone.py"'])
def test_a_variant_without_a_test_that_stays_ends_the_collection(project: Path, reason: str) -> None:
    file = project / "inner" / "test_it.py"
    file.write_text(FILE.replace('"the first one below"', reason))
    assert "inner/test_it.py::test_variant" in run(project, code=4)
