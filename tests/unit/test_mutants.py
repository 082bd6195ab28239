"""Every mutant can be made of the source as it is, and names tests that there are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults import mutants
from tests.faults.mutants import MutantError, Verdict, apply, chosen
from tests.faults.mutants_table import MUTANTS, Edit, Mutant


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) > 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_of_the_source_as_it_is_and_its_tests_are_there(mutant: Mutant, tmp_path: Path) -> None:
    for edit in mutant.edits:
        (tmp_path / edit.file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / edit.file).write_text((mutants.ROOT / edit.file).read_text())
    apply(mutant, tmp_path)
    for edit in mutant.edits:
        ast.parse((tmp_path / edit.file).read_text())
    for killer in mutant.killers:
        file, _, name = killer.partition("::")
        functions = [
            node.name for node in ast.parse((mutants.ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        ]
        assert name.partition("[")[0] in functions


@pytest.mark.parametrize(("source", "times"), [("a = 2\n", 0), ("a = 1\na = 1\n", 2)])
def test_a_text_that_is_not_found_exactly_once_is_an_error(tmp_path: Path, source: str, times: int) -> None:
    (tmp_path / "m.py").write_text(source)
    with pytest.raises(MutantError, match=f"{times} times in m.py"):
        apply(Mutant("m", "a is one", (Edit("m.py", "a = 1", "a = 3"),), ("t",)), tmp_path)
    assert (tmp_path / "m.py").read_text() == source


def test_a_name_that_is_not_known_is_an_error() -> None:
    with pytest.raises(MutantError, match="no mutant nonesuch"):
        chosen(["nonesuch"])


_PROBES = {
    "killed": (Verdict.KILLED, "def test_probe():\n    assert False, 'noticed'\n"),
    "survived": (Verdict.SURVIVED, "def test_probe():\n    pass\n"),
    "broken fixture": (
        Verdict.BROKEN,
        "import pytest\n@pytest.fixture\ndef x():\n    assert False\ndef test_probe(x):\n    pass\n",
    ),
    "skipped": (Verdict.BROKEN, "import pytest\ndef test_probe():\n    pytest.skip('not here')\n"),
    "not there": (Verdict.BROKEN, "def test_another():\n    pass\n"),
}


@pytest.mark.by_name
@pytest.mark.parametrize("kind", _PROBES)
def test_only_a_failing_test_kills(tmp_path: Path, kind: str) -> None:
    expected, probe = _PROBES[kind]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_probe.py").write_text(probe)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    assert mutants.judge(tmp_path, ["tests/test_probe.py::test_probe"])[0] is expected


@pytest.mark.by_name
def test_tests_that_import_other_code_than_the_copys_are_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "test_probe.py").write_text("def test_probe():\n    assert False\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "conftest.py").write_text(mutants._GUARD)
    verdict, reported = mutants.judge(tmp_path, ["test_probe.py::test_probe"])
    assert verdict is Verdict.BROKEN
    assert "import the code of" in reported
