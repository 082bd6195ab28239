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

from airflow_eos_provider.demo.command import INTRODUCTION, LOG_WIDTH
from airflow_eos_provider.demo.main_job import take_down
from airflow_eos_provider.lab.ownership import own_processes
from airflow_eos_provider.lab.servers.airflow import AirflowLab, AirflowRecord
from tests.ctrl_c import take_ctrl_c
from tests.waiting import until

#: Hard limits, seconds, against a demo that hangs. Two quiet cores need a fifth of the first.
DEMO_SECONDS = 1200
END_SECONDS = 300

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
            )

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [EOS, "demo", *options]
        return subprocess.run(command, cwd=self.home, capture_output=True, text=True, timeout=END_SECONDS, check=False)

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        return found

    def processes(self) -> list[int]:
        """JVMs by their marker, Airflow by its record, the rest by arguments."""
        found = {process.pid for process in own_processes(self.folder / "lab" / "demo", None)}
        airflow = AirflowLab.load(self.folder / "airflow")
        if airflow is not None:
            found |= {process.pid for process in airflow.processes()}
        for process in psutil.process_iter():
            try:
                if any(str(self.folder) in argument for argument in process.cmdline()):
                    found.add(process.pid)
            except psutil.Error:
                continue
        return sorted(found - {os.getpid()})


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


def test_the_demo_passes_every_check_and_leaves_nothing_running_after_down(demo: Demo) -> None:
    process = demo.start("--keep")
    try:
        code = process.wait(timeout=DEMO_SECONDS)
    finally:
        process.kill()
    assert code == 0, demo.output[-5000:]
    require_output(demo.output)
    require_report(demo.report)

    # What --keep leaves is up, and a demo that was killed leaves no more.
    assert AirflowRecord.read(demo.folder / "airflow") is not None
    assert len(demo.processes()) >= 6
    assert demo.run("--down").returncode == 0
    assert demo.processes() == []


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
    assert (report["upgrade"]["from"], report["upgrade"]["to"]) == ("disabled", "enabled")
    assert [worker["mode"] for worker in report["upgrade"]["workers"]] == ["preparing"] * 2 + ["enabled"] * 2
    assert len({worker["worker"] for worker in report["upgrade"]["workers"]}) == 2
    assert all(worker["seconds"] > 0 for worker in report["upgrade"]["workers"])

    for topic in (report["source"], report["mirror"]):
        assert (topic["missing"], topic["duplicates"], topic["unexpected"]) == (0, 0, 0)
        assert topic["records"] > 5000
        # The kill and the fencing fell into this time, or "no duplicates since enabled" would say little.
        assert topic["records_since"] > 1000
    source = report["source"]
    assert source["expected"] == report["load"]["lines"]
    assert source["duplicates_before_enabled"] > 0
    assert source["records"] == source["expected"] + source["duplicates_before_enabled"]

    (fencing,) = report["fencing"]
    assert [name.rpartition("-")[2] for name in fencing["ids"]] == ["0", "1", "2"]
    assert all(after > before for before, after in fencing["epochs"])
    assert fencing["task_count_record"]["before"]["tasks"] == 3
    assert fencing["task_count_record"]["after"]["tasks"] == 2

    days = report["intervals"]
    assert [day["interval"][:10] for day in days] == ["2013-01-01", "2013-01-02", "2013-01-03"]
    assert [day["records"] for day in days] == [842, 943, 914]
    assert [(day["duplicates"], day["missing"]) for day in days] == [(0, 0)] * 3
    assert [entry["what"] for entry in report["killed_in_intervals"]] == ["server"]
    assert max(day["tries"] for day in days) > 1  # what the killed server had begun
    assert report["airflow"]["url"].startswith("http://127.0.0.1:")


@pytest.mark.by_name
def test_what_a_killed_demo_left_is_taken_down_and_another_one_starts_in_its_folder(demo: Demo) -> None:
    for _ in range(2):
        process = demo.start()
        try:
            wait_until(lambda: AirflowLab.load(demo.folder / "airflow"), demo, process)
        finally:
            process.kill()
            process.wait()
        assert len(demo.processes()) >= 5
        assert demo.run("--down").returncode == 0
        assert demo.processes() == []


def test_ctrl_c_takes_everything_down_and_a_second_demo_in_its_folder_is_refused(demo: Demo) -> None:
    process = demo.start()
    try:
        # The lab is up, the load runs, and Airflow starts beside it.
        wait_until(lambda: AirflowLab.load(demo.folder / "airflow"), demo, process)
        second = demo.run()
        assert second.returncode == 2
        assert "A demo is running in" in second.stderr
        assert len(demo.processes()) >= 5
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=END_SECONDS) == 130
    finally:
        process.kill()
    assert "Interrupted" in demo.output
    assert demo.report["ok"] is False
    assert demo.processes() == []
