"""The demo itself as a test: the main job with everything real, from one command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from airflow_eos_provider.demo.main_job import take_down
from airflow_eos_provider.lab.airflow import AirflowLab, AirflowRecord, database_name
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ownership import own_processes
from tests.ctrl_c import take_ctrl_c
from tests.reference import DOCS
from tests.secret_search import (
    CommandLines,
    Found,
    search_database,
    search_files,
    search_temporary_files,
    search_topics,
    secrets_of,
)

#: Hard limits, seconds, against a demo that hangs. Two quiet cores need a quarter of the first; the others come from
#: the bounds that its parts have.
DEMO_SECONDS = 1800
START_SECONDS = 900
END_SECONDS = 900

#: They share one Spark; so many run at once, and each may be the one whose worker is killed.
DAYS = 3

#: Flights a second: some thousands in each part. More of them cost more CPU and show no more.
RATE = "80"

pytestmark = pytest.mark.timeout(DEMO_SECONDS + 60)


#: What ``docs/start-here.md`` says that is seen, by its numbers, and the demo's parts of which each is seen.
SAID = {
    "1": ("lab", "load"),
    "2": ("Airflow", "upgrade"),
    "3": ("upgrade",),
    "4": ("killed worker", "fencing", "offsets"),
    "5": ("intervals",),
    "6": ("end of the load", "comparison"),
}


def start_demo(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    output = (folder.parent / f"{folder.name}.out").open("wb")
    with output:
        return subprocess.Popen(
            [str(Path(sys.executable).parent / "eos"), "demo", "--dir", str(folder), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=take_ctrl_c,
        )


def output_of(folder: Path) -> str:
    return (folder.parent / f"{folder.name}.out").read_text(encoding="utf-8", errors="replace")


def processes_of(folder: Path) -> list[int]:
    """Whatever runs for a demo in this folder: JVMs by their marker, Airflow by its record, the rest by arguments."""
    found = {process.pid for process in own_processes(folder / "lab" / "demo", None)}
    airflow = AirflowLab.load(folder / "airflow")
    if airflow is not None:
        found |= {process.pid for process in airflow.processes()}
    for process in psutil.process_iter():
        try:
            if any(str(folder) in argument for argument in process.cmdline()):
                found.add(process.pid)
        except psutil.Error:
            continue
    return sorted(found - {os.getpid()})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "demo"
    yield path
    take_down(path, Console(quiet=True))


def wait_for_output(folder: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: text in output_of(folder), folder, process)


def wait_for(condition: Callable[[], object], folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert process.poll() is None, output_of(folder)[-3000:]
        assert time.monotonic() < deadline, output_of(folder)[-3000:]
        time.sleep(0.3)


def test_the_demo_holds_every_promise_shows_no_secret_and_leaves_nothing_running(folder: Path) -> None:
    # Secured, since all that the plain one does is in it. test_interval_dag.py has several days, and compares each.
    process = start_demo(folder, "--secure", "--keep", "--days", str(DAYS), "--rate", RATE)
    try:
        wait_for_output(folder, "Kafka at 127.0.0.1", process)
        lab = Lab.load(folder / "lab" / "demo")
        found = Found(secrets_of(lab))
        with CommandLines(found):
            code = process.wait(timeout=DEMO_SECONDS)
    finally:
        process.kill()
    assert code == 0, output_of(folder)[-5000:]
    require_no_secret(folder, lab, found)
    down = [str(Path(sys.executable).parent / "eos"), "demo", "--down", "--dir", str(folder)]
    subprocess.run(down, check=True, timeout=END_SECONDS)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))

    require_what_start_here_says(report)
    assert report["ok"] is True
    assert all(report["checks"].values()), report["checks"]
    assert (report["upgrade"]["from"], report["upgrade"]["to"]) == ("disabled", "enabled")
    assert [worker["mode"] for worker in report["upgrade"]["workers"]] == ["preparing"] * 3 + ["enabled"] * 3
    assert len({worker["worker"] for worker in report["upgrade"]["workers"]}) == 3
    assert all(worker["seconds"] > 0 for worker in report["upgrade"]["workers"])

    for topic in (report["source"], report["mirror"]):
        assert (topic["missing"], topic["duplicates"], topic["unexpected"]) == (0, 0, 0)
        assert topic["records"] > 5000
        # The kill and the fencing fell into this time, or "nothing double since enabled" would say little.
        assert topic["records_since"] > 1000
    assert report["source"]["expected"] == report["load"]["lines"]
    assert report["source"]["records"] == report["source"]["expected"] + report["source"]["duplicates_before_enabled"]

    (fencing,) = report["fencing"]
    assert [name.rpartition("-")[2] for name in fencing["ids"]] == ["0", "1", "2"]
    assert all(after > before for before, after in fencing["epochs"])
    assert fencing["task_count_record"]["before"]["tasks"] == 3
    assert fencing["task_count_record"]["after"]["tasks"] == 2

    days = report["intervals"]
    assert [day["interval"][:10] for day in days] == ["2013-01-01", "2013-01-02", "2013-01-03"]
    assert [day["records"] for day in days] == [842, 943, 914]
    assert [(day["duplicates"], day["missing"]) for day in days] == [(0, 0)] * DAYS
    assert [entry["what"] for entry in report["killed_in_intervals"]] == ["server", "worker"]
    assert max(day["tries"] for day in days) > 1  # what the killed server had begun
    assert report["airflow"]["url"].startswith("http://127.0.0.1:")
    assert AirflowRecord.read(folder / "airflow") is not None  # so the next line has something to look for
    assert processes_of(folder) == []


def require_what_start_here_says(report: dict[str, Any]) -> None:
    """The demo has the parts that docs/start-here.md names, and is started by the command there."""
    page = (DOCS / "start-here.md").read_text(encoding="utf-8")
    first = page.partition("## The first command")[2].partition("## The second command")[0]
    assert "```\nuv run eos demo\n```" in first
    assert re.findall(r"^(\d)\. ", first, re.MULTILINE) == list(SAID)
    done = {part["name"] for part in report["parts"] if part["outcome"] == "done"}
    assert {part for parts in SAID.values() for part in parts} <= done


def require_no_secret(folder: Path, lab: Lab, found: Found) -> None:
    """Search everything that the demo has left for the secrets of its lab."""
    assert lab.security is not None
    search_topics(found, lab)
    database = database_name(folder / "airflow")
    search_database(found, lab.postgres, database)
    search_files(found, [folder.parent])
    search_temporary_files(found)
    # Where they belong: with the lab's own files, in the connector's configuration as Connect keeps it, and so in the
    # files of that topic. A roll's copy of a worker's file has the rights of the file.
    own = [lab.security.folder, *(worker.config for worker in lab.workers), *(broker.config for broker in lab.brokers)]
    configs = f"{lab.group_id}-configs"
    allowed = [*map(str, own), str(lab.cluster_file), str(lab.reader_file), str(lab.brokers[0].log_folder / configs)]
    elsewhere = [hit for hit in found.hits if not hit[0].startswith(tuple(allowed)) and hit[0] != f"topic {configs}"]
    assert elsewhere == []
    for file in {place for place, _ in found.hits if place.startswith(tuple(map(str, own)))}:
        assert Path(file).stat().st_mode & 0o077 == 0, file
    # A search that finds nothing because it looked at nothing is none.
    assert {str(lab.workers[0].config), str(lab.cluster_file), f"topic {configs}"} <= found.places()
    assert found.looked_at["records"] > 10_000
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    plan = Found({"plan": report["upgrade"]["rolls"][0]["plan"]})
    search_database(plan, lab.postgres, database)
    assert "table xcom" in plan.places()
    assert found.looked_at["files"] > 300
    assert found.looked_at["command lines"] > 30


def test_ctrl_c_takes_everything_down_and_a_second_demo_in_its_folder_is_refused(folder: Path) -> None:
    process = start_demo(folder)
    try:
        wait_for_output(folder, "Kafka at 127.0.0.1", process)  # all that the lab has is up, and the load begins
        second = subprocess.run(
            [str(Path(sys.executable).parent / "eos"), "demo", "--dir", str(folder)],
            capture_output=True,
            text=True,
            timeout=END_SECONDS,
            check=False,
        )
        assert second.returncode == 2
        assert "A demo is running in" in second.stderr
        assert len(processes_of(folder)) >= 4
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=END_SECONDS) == 130
    finally:
        process.kill()
    assert "Interrupted" in output_of(folder)
    assert json.loads((folder / "report.json").read_text())["ok"] is False
    assert processes_of(folder) == []
