"""*Start here*, walked through by a fresh reader: each command of the page in its order, and what the page says of it.

The first of them, the demo, is run by ``tests/system/test_demo.py``, which also looks that it has the parts that the
page names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.lab.ownership import own_processes
from airflow_eos_provider.lab.teardown import take_down
from tests.reference import DOCS

PAGE = (DOCS / "start-here.md").read_text(encoding="utf-8")

_HASH_OF_THE_PAGE = re.compile(r"\b[0-9a-f]{12}\b")
_FENCE = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: What a fresh reader has typed at most, each command with a limit of its own, seconds.
COMMAND_SECONDS = 900


def commands_of_the_page() -> list[str]:
    """Every line of its blocks, without what is said behind it."""
    return [line.partition("#")[0].strip() for block in _FENCE.findall(PAGE) for line in block.splitlines() if line]


class Reader:
    """Types commands in an empty folder, with nothing of this process's environment that names a lab."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("EOS_CLUSTER")}

    def types(self, command: str) -> str:
        """What the command prints; it succeeds."""
        assert command.startswith("uv run eos "), command
        program, *arguments = [str(Path(sys.executable).with_name("eos")), *command.split()[3:]]
        done = subprocess.run(
            [program, *arguments],
            cwd=self._folder,
            env={**self._environment, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path, guard: Callable[[Path], None]) -> Iterator[Path]:
    lab = tmp_path / ".eos" / "lab" / "default"
    guard(lab)
    yield tmp_path
    take_down(lab)


def test_each_command_of_start_here_does_what_the_page_says(folder: Path) -> None:
    demo, up, status, *roll = commands_of_the_page()
    assert demo == "uv run eos demo"
    reader = Reader(folder)

    reader.types(up)
    assert own_processes(folder / ".eos" / "lab" / "default", None)
    shown = reader.types(status)
    for named in ("Connect group", "led by", "protocol", "Workers", "disabled", "Connectors", "Transactional ids"):
        assert named in shown, named
    assert "Nothing to worry about was found." in shown, shown

    plan, apply, again, further, down = roll
    planned = reader.types(plan)
    (of_the_page,) = _HASH_OF_THE_PAGE.findall(apply)
    assert "preparing" in planned
    own = re.search(r"eos apply --plan (\w+)", planned)
    assert own is not None, planned
    reader.types(apply.replace(of_the_page, own[1]))
    prepared = reader.types(again)
    assert prepared.count("preparing") >= 2
    assert "enabled" in reader.types(further)
    reader.types(down)
    assert own_processes(folder / ".eos" / "lab" / "default", None) == []
    assert not (folder / ".eos" / "lab" / "default").exists()
