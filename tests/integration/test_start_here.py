"""The first tutorial, walked through by a fresh reader on a terminal: each command of the page, in its order."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.lab.lab_processes import own_processes
from airflow_eos_provider.lab.teardown import take_down
from tests.reference import DOCS

PAGE = (DOCS / "tutorials" / "upgrade-a-lab-cluster.md").read_text(encoding="utf-8")

_FENCE = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: What a fresh reader has typed at most, each command with a limit of its own, seconds.
COMMAND_SECONDS = 900


def blocks_of_the_page() -> list[list[str]]:
    """The commands of each of its blocks."""
    return [block.splitlines() for block in _FENCE.findall(PAGE)]


class Reader:
    """Types commands in an empty folder, with nothing of this process's environment that names a lab."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("EOS_CLUSTER")}

    def types(self, command: str, *, answer: str = "") -> str:
        """What the command prints; it succeeds. Standard input is a terminal, on which the answer is typed."""
        assert command.startswith("uv run eos "), command
        program, *arguments = [str(Path(sys.executable).with_name("eos")), *command.split()[3:]]
        person, terminal = pty.openpty()
        os.write(person, f"{answer}\n".encode())
        done = subprocess.run(
            [program, *arguments],
            stdin=terminal,
            cwd=self._folder,
            env={**self._environment, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        os.close(person)
        os.close(terminal)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path, guard: Callable[[Path], None]) -> Iterator[Path]:
    lab = tmp_path / ".eos" / "lab" / "default"
    guard(lab)
    yield tmp_path
    take_down(lab)


def test_each_command_of_the_tutorial_does_what_the_page_says(folder: Path) -> None:
    (up, status), (plan,), (apply,), (again, enabled), history, found, (back, undo, down) = blocks_of_the_page()
    reader = Reader(folder)

    reader.types(up)
    assert own_processes(folder / ".eos" / "lab" / "default", None)
    shown = reader.types(status)
    for named in ("Connect group", "led by", "protocol", "Workers", "disabled", "Connectors", "Transactional ids"):
        assert named in shown, named
    assert "No problem found." in shown, shown

    planned = reader.types(plan)
    assert "disabled -> preparing" in planned
    command = planned.rstrip().splitlines()[-1]
    assert re.search(r"eos apply --plan \w+$", command), command
    assert "Roll group" in reader.types(apply, answer="y")
    assert "to enabled?" in reader.types(again, answer="y")
    assert reader.types(enabled).count("enabled") >= 2
    for line in (*history, *found):
        reader.types(line)
    assert "enabled -> disabled" in reader.types(back)
    assert "to disabled?" in reader.types(undo, answer="y")
    reader.types(down)
    assert own_processes(folder / ".eos" / "lab" / "default", None) == []
    assert not (folder / ".eos" / "lab" / "default").exists()
