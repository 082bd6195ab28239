"""``eos`` for the tests, as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.lab import Lab


class Eos:
    """``eos`` as a person runs it: a process of its own, in a folder of its own."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "airflow_eos_provider.cli", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200", "EOS_CLUSTER": str(self.lab.cluster_file)},
        )

    def run(self, *arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        try:
            output, errors = process.communicate(timeout=400)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.returncode == expect, f"exit {process.returncode}\n{output}\n{errors}"
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def plan(self, to: Mode) -> str:
        return str(json.loads(self.run("plan", "--to", to, "--json").stdout)["hash"])

    def roll(self, to: Mode) -> dict[str, object]:
        report: dict[str, object] = json.loads(self.run("apply", self.plan(to), "--json").stdout)
        return report

    @contextlib.contextmanager
    def line_in_log(self, process: subprocess.Popen[str], pattern: str, seconds: float = 120.0) -> Iterator[str]:
        """The first line of progress that matches; the process is killed if the body leaves it running."""
        assert process.stderr is not None
        try:
            deadline = time.monotonic() + seconds
            seen = []
            for line in process.stderr:
                seen.append(line)
                if re.search(pattern, line):
                    yield line
                    return
                assert time.monotonic() < deadline, f"no line {pattern!r} in {''.join(seen)}"
            raise AssertionError(f"ended without a line {pattern!r}: {''.join(seen)}")
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def eos_of() -> Callable[[Lab, Path], Eos]:
    """``eos`` for one lab, called in one folder."""
    return Eos
