"""The first tier by default, every proof with --all, a named file whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.tiers import FAMILIES, leave_out

ROOT = Path(__file__).parents[2]

#: The tests of a file, with their markers.
TESTS = {"soak": {"by_name", "broker"}, "on_a_broker": {"broker"}, "promise": {"broker", "first"}, "unit": set()}
FILE = ROOT / "tests" / "faults" / "test_it.py"


def item(name: str, markers: set[str]) -> Any:
    marks = {marker: SimpleNamespace(name=marker) for marker in markers}
    found: Any = Mock(path=FILE, iter_markers=marks.values, get_closest_marker=marks.get)
    found.name = name
    return found


@pytest.mark.parametrize(
    ("args", "options", "run"),
    [
        (["tests"], {}, ["promise", "unit"]),
        (["tests/faults"], {}, ["promise", "unit"]),
        (["tests"], {"--all": True}, ["on_a_broker", "promise", "unit"]),
        (["tests"], {"markexpr": "broker"}, ["on_a_broker", "promise", "unit"]),
        (["tests/faults/test_it.py"], {}, list(TESTS)),
        (["tests/faults/test_it.py::test_soak"], {}, list(TESTS)),
    ],
    ids=["by default", "a folder", "all", "a need", "a file", "a test"],
)
def test_what_runs(args: Sequence[str], options: dict[str, Any], run: list[str]) -> None:
    left: list[Any] = []
    config: Any = SimpleNamespace(
        args=args,
        getoption=options.get,
        invocation_params=SimpleNamespace(dir=ROOT),
        hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items)),
    )
    items = [item(name, markers) for name, markers in TESTS.items()]
    leave_out(config, items)
    assert [each.name for each in items] == run
    assert [each.name for each in left] == [name for name in TESTS if name not in run]


def test_the_files_of_each_family_are_there() -> None:
    named = [
        f"{folder}/test_{name}.py"
        for folder, families in FAMILIES.items()
        for names in families.values()
        for name in names
    ]
    assert [file for file in named if not (ROOT / "tests" / file).is_file()] == []
    assert len(named) == len(set(named))


def test_the_page_lists_the_files_that_run_by_name() -> None:
    files = [path for path in (ROOT / "tests").glob("*/**/test_*.py") if path != Path(__file__)]
    marked = [str(path.relative_to(ROOT)) for path in files if "pytest.mark.by_name" in path.read_text("utf-8")]
    assert marked
    page = (ROOT / "docs" / "contributing" / "tests.md").read_text(encoding="utf-8")
    assert [name for name in marked if name not in page] == []
