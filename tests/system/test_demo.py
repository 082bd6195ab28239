"""The demo itself as a test: the main job with everything real, from one command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.demo.demo_command import INTRODUCTION, LOG_WIDTH
from airflow_eos_provider.demo.main_job import lab_folder, take_down
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.lab_processes import own_processes
from airflow_eos_provider.lab.servers.airflow import AirflowLab
from airflow_eos_provider.local_processes import ProcessIdentity
from tests.ctrl_c import take_ctrl_c
from tests.waiting import until

#: Hard limits, seconds, against a demo that hangs. Two quiet cores need a fifth of the first.
DEMO_SECONDS = 1200
END_SECONDS = 300

#: What a demo says of an earlier one that is up.
FOUND = " processes of an earlier demo in .eos/demo."

EOS = str(Path(sys.executable).parent / "eos")

pytestmark = pytest.mark.timeout(DEMO_SECONDS + END_SECONDS)


class Demo:
    """``eos demo`` in its default folder below an own one."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.folder = folder / ".eos" / "demo"
        self._output = folder / "output"

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        with self._output.open("wb") as output:
            return subprocess.Popen(
                [EOS, "demo", *options],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=take_ctrl_c,
                start_new_session=True,  # so that Ctrl-C reaches the demo's process group, as in a terminal
            )

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        return found

    @property
    def lab(self) -> Path:
        return lab_folder(self.folder)

    def is_in_mid_roll(self) -> bool:
        """Whether the file of the first worker is changed, and the roll restarts it."""
        if "  Roll the cluster " not in self.output:
            return False
        return any(process.mode_in_file == Mode.PREPARING for process in Lab.load(self.lab).status().processes)

    def processes(self) -> list[int]:
        """JVMs by their marker, Airflow by its record, the rest by arguments."""
        found = {process.pid for process in (*own_processes(self.lab, None), *self.airflow_processes())}
        for process in psutil.process_iter():
            try:
                if any(str(self.folder) in argument for argument in process.cmdline()):
                    found.add(process.pid)
            except psutil.Error:
                continue
        return sorted(found - {os.getpid()})

    def airflow_processes(self) -> tuple[ProcessIdentity, ...]:
        airflow = AirflowLab.load(self.lab / "airflow")
        return airflow.processes() if airflow is not None else ()

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    take_down(demo.folder)


def wait_until(condition: Callable[[], object], demo: Demo, process: subprocess.Popen[bytes]) -> None:
    def holds() -> bool:
        assert process.poll() is None, demo.output[-3000:]
        return bool(condition())

    until(holds, "the demo to come so far", seconds=END_SECONDS)


def interrupt(demo: Demo, process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C, after which nothing is left."""
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=END_SECONDS) == 130
    assert "Interrupted" in demo.output
    assert demo.processes() == []
    assert demo.files() == {"lab/.demo.lock"}


def test_a_demo_passes_every_check_and_the_next_one_replaces_what_it_kept(demo: Demo) -> None:
    process = demo.start("--keep")
    try:
        code = process.wait(timeout=DEMO_SECONDS)
    finally:
        process.kill()
    assert code == 0, demo.output[-5000:]
    require_output(demo.output)
    require_report(demo.report)
    kept = demo.processes()
    assert len(kept) >= 6

    process = demo.start()
    try:
        # The lab is up, the load runs, and Airflow starts beside it.
        wait_until(lambda: "  Load: " in demo.output and demo.airflow_processes(), demo, process)
        assert FOUND in demo.output
        assert not set(kept) & set(demo.processes())
        interrupt(demo, process)
    finally:
        process.kill()


@pytest.mark.by_name
def test_a_demo_that_is_killed_in_mid_roll_is_ended_by_the_next_one_and_ctrl_c_in_mid_roll_leaves_nothing(
    demo: Demo,
) -> None:
    process = demo.start()
    try:
        wait_until(demo.is_in_mid_roll, demo, process)
    finally:
        process.kill()
        process.wait()
    left = demo.processes()
    assert len(left) >= 6

    process = demo.start()
    try:
        wait_until(demo.is_in_mid_roll, demo, process)
        assert FOUND in demo.output
        assert not set(left) & set(demo.processes())
        interrupt(demo, process)
    finally:
        process.kill()


def require_output(output: str) -> None:
    """It says first how long it takes, has a line for each stage and fits into 80 columns."""
    assert output.startswith(INTRODUCTION.partition("{")[0])
    assert "two to four minutes" in output.splitlines()[0]
    assert max(map(len, output.splitlines())) <= LOG_WIDTH
    assert len(re.findall(r"^ *\d+ s  \S", output, re.MULTILINE)) == 9
    assert "Proved by 15 checks: " in output
    assert ".eos/demo/report.json" in output
    assert "eos demo --down" in output


def require_report(report: dict[str, Any]) -> None:
    assert report["ok"] is True
    assert all(report["checks"].values()), report["checks"]
    first, second = report["upgrade"]["rolls"]
    assert [(roll["from"], roll["to"]) for roll in (first, second)] == [
        ("disabled", "preparing"),
        ("preparing", "enabled"),
    ]
    workers = [*first["workers"], *second["workers"]]
    assert [worker["mode"] for worker in workers] == ["preparing"] * 2 + ["enabled"] * 2
    assert len({worker["worker"] for worker in workers}) == 2
    assert all(worker["seconds"] > 0 for worker in workers)

    for topic in (report["source"], report["mirror"]):
        assert (topic["missing"], topic["duplicates"], topic["unexpected"]) == (0, 0, 0)
        assert topic["records"] > 5000
        # The kill and the fencing fell into this time, or "no duplicates since enabled" would say little.
        assert topic["records_since"] > 1000
    source = report["source"]
    assert source["expected"] == report["load"]["lines"]
    assert source["duplicates_before_enabled"] > 0
    assert source["records"] == source["expected"] + source["duplicates_before_enabled"]

    assert [name.rpartition("-")[2] for name in report["fencing"]["ids"]] == ["0", "1", "2"]
    assert all(after > before for before, after in report["fencing"]["epochs"])

    days = report["intervals"]
    assert [day["interval"][:10] for day in days] == ["2013-01-01", "2013-01-02", "2013-01-03"]
    assert [day["records"] for day in days] == [842, 943, 914]
    topic = report["interval_topic"]
    assert (topic["records"], topic["missing"], topic["duplicates"], topic["unexpected"]) == (842 + 943 + 914, 0, 0, 0)
    assert [entry["what"] for entry in report["killed_in_intervals"]] == ["server"]
    assert max(day["tries"] for day in days) > 1  # what the killed server had begun
    assert report["airflow"]["url"].startswith("http://127.0.0.1:")
