"""Every command is on the page of DAGs: it has one, or stays with the command line and says why."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_eos_provider import dag_factories
from tests.reference import commands, eos

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `(eos [a-z -]+)` \| (.+) \|$", re.MULTILINE)


def rows(section: str) -> dict[str, str]:
    page = (ROOT / "docs" / "dags.md").read_text(encoding="utf-8")
    found = _ROW.findall(page.partition(f"\n## {section}\n")[2].partition("\n## ")[0])
    assert len(found) == len(dict(found)), "a command twice"
    return dict(found)


def test_every_command_is_in_one_of_the_two_lists() -> None:
    has_dag, stays = rows("In Airflow"), rows("With the command line")
    leaves = {path for path, command in commands(eos()) if not hasattr(command, "commands")}
    assert not has_dag.keys() & stays.keys()
    assert has_dag.keys() | stays.keys() == leaves


def test_each_dag_that_is_named_can_be_made_and_has_a_file() -> None:
    named = {cell.strip("`") for cell in rows("In Airflow").values()}
    assert named <= set(dag_factories.__all__)
    files = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "dags").glob("*.py"))
    assert [name for name in dag_factories.__all__ if name not in files] == []
