"""The lab by its command line, as people and scripts use it, and by its Python face."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.questions import TopicDescription
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.jars.jars import DEFAULT_VERSION, JarLock, ensure_jars, place
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.lab.lab_processes import MARKER_PROPERTY
from airflow_eos_provider.lab.record import LabRecord
from airflow_eos_provider.lab.teardown import take_down
from tests.forked import FORKS

COMMAND_SECONDS = 300


def eos_lab(*arguments: str, cwd: Path, code: int = 0) -> str:
    """Run ``eos lab …`` and return what it printed on standard output."""
    done = FORKS.run(
        "airflow_eos_provider.cli",
        ("lab", *arguments),
        folder=cwd,
        environment=dict(os.environ),
        seconds=COMMAND_SECONDS,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def marked(folder: Path) -> list[int]:
    """The pids of all processes that carry the marker of a lab in this folder, found without the lab's own code.

    PostgreSQL's children have a title instead of arguments; they work in its data folder.
    """
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        is_marked = f"{MARKER_PROPERTY}=" in line and f":{folder} " in f"{line} "
        with contextlib.suppress(psutil.Error):  # it has ended since
            if is_marked or Path(process.cwd()).is_relative_to(folder / "data"):
                found += [process.pid] * (process.status() != psutil.STATUS_ZOMBIE)
    return found


def pids(lab: Lab) -> dict[str, int | None]:
    return {process.name: process.pid for process in lab.status().processes}


@pytest.fixture
def root(tmp_path: Path, guard: Callable[[Path], None]) -> Iterator[Path]:
    """A folder for a test's own lab, named ``default``; it is taken down even if the test or pytest is cut off."""
    guard(tmp_path / "default")
    yield tmp_path
    take_down(tmp_path / "default")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, guard: Callable[[Path], None]) -> Iterator[Path]:
    """A folder with a lab of two workers, started by the command; ``line`` holds what that printed."""
    home = tmp_path_factory.mktemp("home")
    for name in ("default", "other"):
        guard(home / ".eos/lab" / name)
    try:
        (home / "line").write_text(eos_lab("up", "--workers", "2", "--postgres", cwd=home))
        yield home
    finally:
        take_down(LabOptions(root=home / ".eos/lab").folder)


@pytest.fixture(scope="module")
def lab(home: Path) -> Lab:
    return Lab.load(home / ".eos/lab/default")


def test_a_lab_without_workers_is_brokers_only(root: Path) -> None:
    lab = Lab.up(LabOptions(root=root, workers=0))
    assert lab.summary()["cluster_file"] is None
    assert AdminClient(KafkaSettings.of(lab.bootstrap_servers).confluent()).list_topics(timeout=180).brokers
    assert [process.name for process in lab.status().processes] == ["broker"]
    lab.down()
    assert not marked(lab.root)


def test_up_prints_one_json_line_that_tells_where_the_lab_is(home: Path) -> None:
    line = (home / "line").read_text()
    assert line.count("\n") == 1
    reported = json.loads(line)
    assert set(reported) == {"bootstrap_servers", "connect_urls", "group_id", "cluster_file", "data_dir", "postgres"}
    assert reported["group_id"] == "connect-default"
    assert reported["cluster_file"] == str(home / ".eos/lab/default/eos.yaml")
    assert [httpx.get(f"{url}/health", timeout=180).status_code for url in reported["connect_urls"]] == [200, 200]


def test_the_cluster_file_describes_the_workers_that_run(lab: Lab) -> None:
    cluster = ConnectCluster.from_file(lab.cluster_file)
    assert [worker.url for worker in cluster.workers] == lab.connect_urls
    for index, worker in enumerate(cluster.workers):
        process = lab.worker_process(index)
        assert process is not None
        assert worker.pid_file is not None
        assert worker.pid_file.read_text() == f"{process.pid}\n"
        assert process.command_line() == list(worker.start)


def test_a_topic_is_known_once_it_is_made(lab: Lab) -> None:
    """A broker that hears of it late is a mock, since a real one does so at moments of its own."""
    late = iter([False, False])

    class Late(Topics):
        def describe(self, names: Sequence[str]) -> dict[str, TopicDescription]:
            return super().describe(names) if next(late, True) else {}

    assert Late(lab.kafka).create("news", 1, {}, replicas=1)
    assert next(late, None) is None


def test_a_second_up_changes_nothing_and_says_the_same(home: Path, lab: Lab) -> None:
    before = pids(lab)
    assert eos_lab("up", cwd=home) == (home / "line").read_text()
    assert pids(lab) == before


def test_a_lab_is_not_changed_to_other_options_behind_ones_back(home: Path, lab: Lab) -> None:
    before = pids(lab)
    assert eos_lab("up", "--mode", "enabled", cwd=home, code=3) == ""
    assert pids(lab) == before


def test_a_killed_worker_is_told_by_status_and_started_again_by_up(home: Path, lab: Lab) -> None:
    before = pids(lab)
    reported = json.loads(eos_lab("status", "--json", cwd=home))
    assert reported["healthy"]
    assert [process["name"] for process in reported["processes"]] == ["broker", "postgres", "w1", "w2"]
    assert {process["mode_in_file"] for process in reported["processes"][2:]} == {"disabled"}
    lab.stop_worker(1, kill=True)
    reported = json.loads(eos_lab("status", "--json", cwd=home, code=1))
    assert [process["alive"] for process in reported["processes"]] == [True, True, True, False]
    assert eos_lab("up", cwd=home) == (home / "line").read_text()
    after = pids(lab)
    assert (after["broker"], after["w1"]) == (before["broker"], before["w1"])
    assert after["w2"] not in (None, before["w2"])


def test_down_keeps_the_data_for_the_next_up_if_asked_to(home: Path, lab: Lab) -> None:
    lab.create_topic("kept")
    with pytest.raises(EosError, match="kept"):
        lab.create_topic("kept")
    eos_lab("down", "--keep-data", cwd=home)
    assert marked(lab.root) == []
    assert eos_lab("up", cwd=home) == (home / "line").read_text()
    assert "kept" in AdminClient(KafkaSettings.of(lab.bootstrap_servers).confluent()).list_topics(timeout=180).topics


def test_what_an_up_left_that_was_killed_early_is_gone_after_down(root: Path) -> None:
    folder = root / "default"
    kill_up(root, "postgres.pid")
    assert marked(folder), "nothing was left behind"
    eos_lab("down", "--dir", str(root), cwd=root)
    assert marked(folder) == []
    assert not folder.exists()


def test_after_an_up_that_was_killed_late_two_at_once_make_one_lab(root: Path) -> None:
    folder = root / "default"
    kill_up(root, "w1.pid")
    left = marked(folder)
    assert left, "nothing was left behind"

    command = [sys.executable, "-m", "airflow_eos_provider.cli", "lab", "up", "--workers", "1", "--dir", str(root)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (process.communicate(timeout=COMMAND_SECONDS)[0] for process in both)
    assert first == second != ""
    assert len(marked(folder)) == 2
    assert not set(left) & set(marked(folder))

    eos_lab("down", "--dir", str(root), cwd=root)
    assert marked(folder) == []
    assert [entry.name for entry in root.iterdir()] == [".default.lock"]


#: ``eos lab``, which kills itself when it has started the process of a pid file.
KILLED = """
import os, signal, sys
from airflow_eos_provider.cli import main
from airflow_eos_provider.lab import lab

spawn, last = lab.spawn, sys.argv.pop(1)

def spawned(command, *, pid_file, **more):
    process = spawn(command, pid_file=pid_file, **more)
    if pid_file.name == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return process

lab.spawn = spawned
sys.exit(main())
"""


def kill_up(root: Path, last: str) -> None:
    """``eos lab up`` that is killed in its start.

    :param last: the pid file of the last process that it starts.
    """
    words = ["lab", "up", "--workers", "1", "--postgres", "--dir", str(root)]
    command = [sys.executable, "-c", KILLED, last, *words]
    done = subprocess.run(command, capture_output=True, timeout=COMMAND_SECONDS)
    assert done.returncode == -signal.SIGKILL, done
    record = LabRecord.read(root / "default")
    assert record is not None
    assert not record.complete


def test_a_corrupted_jar_in_the_cache_is_found_and_fetched_again(tmp_path: Path) -> None:
    good = ensure_jars()
    cached = shutil.copytree(good, tmp_path / good.name)
    victim = next(jar for jar in JarLock.of(DEFAULT_VERSION).digests if jar.name == "connect-file")
    with place(cached, victim).open("r+b") as jar:
        jar.seek(100)
        jar.write(b"\0\0\0\0")
    reported: list[str] = []
    assert ensure_jars(cache=tmp_path, progress=reported.append) == cached
    assert place(cached, victim).read_bytes() == place(good, victim).read_bytes()
    assert reported[0].startswith("Fetching 1 jar of Kafka")
