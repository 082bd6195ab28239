from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_eos_provider.lab import lab_processes
from airflow_eos_provider.lab.lab_processes import exclusive, log_tail, marker, own_process, own_processes
from airflow_eos_provider.lab.record import LabOptions, LabRecord
from airflow_eos_provider.lab.teardown import take_down

Start = Callable[..., int]


#: Tells that it runs, sleeps, and on SIGTERM writes the time into the file of its last argument (a JVM has no such
#: manners); a moment later than asked, as a JVM does.
STAND_IN = """
import signal, sys, time
def end(*_):
    time.sleep(0.2)
    if sys.argv[-1].startswith("/"):
        open(sys.argv[-1], "w").write(str(time.time_ns()))
    sys.exit()
signal.signal(signal.SIGTERM, end)
print(flush=True)
time.sleep(120)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with some arguments, which stands for a JVM (nothing here depends on what runs)."""
    with ExitStack() as stack:

        def run(*arguments: str) -> int:
            command = [sys.executable, "-c", STAND_IN, *arguments]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            return process.pid

        yield run


def record(folder: Path, token: str, broker_ports: tuple[tuple[int, int], ...] = ((1, 2),)) -> LabRecord:
    lab = LabRecord(
        options=LabOptions(name=folder.name, root=folder.parent, workers=1),
        token=token,
        broker_jars=Path("/jars"),
        worker_jars=Path("/jars"),
        cluster_id="c",
        broker_ports=broker_ports,
        worker_ports=(3,),
        complete=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    lab.write(folder)
    return lab


def alive(pid: int) -> bool:
    return lab_processes.identify(pid) is not None


def test_the_process_of_a_pid_file_is_ours_if_it_carries_our_token(tmp_path: Path, start: Start) -> None:
    pid = start(marker(tmp_path, "ours"))
    (tmp_path / "w1.pid").write_text(f"{pid}\n")
    found = own_process(tmp_path / "w1.pid", "ours")
    assert found is not None
    assert found.pid == pid
    assert own_process(tmp_path / "w1.pid", "theirs") is None


def test_a_process_that_is_younger_than_its_pid_file_is_never_ours(tmp_path: Path, start: Start) -> None:
    pid_file = tmp_path / "w1.pid"
    pid_file.write_text(f"{start(marker(tmp_path, 'ours'))}\n")
    hour_ago = time.time() - 3600
    os.utime(pid_file, (hour_ago, hour_ago))
    assert own_process(pid_file, "ours") is None


def test_a_process_is_found_without_its_pid_file(tmp_path: Path, start: Start) -> None:
    pid = start(marker(tmp_path, "ours"))
    start(marker(tmp_path.parent / "other", "theirs"))
    assert [process.pid for process in own_processes(tmp_path, "ours")] == [pid]


def test_down_stops_what_is_the_labs_and_nothing_else(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "lab"
    record(folder, "ours")
    ours, unrecorded = start(marker(folder, "ours")), start(marker(folder, "ours"))
    foreign, neighbour = start(f"--in={folder}"), start(marker(tmp_path / "lab2", "theirs"))
    (folder / "broker.pid").write_text(f"{ours}\n")
    (folder / "w1.pid").write_text(f"{foreign}\n")
    assert take_down(folder)
    assert [alive(pid) for pid in (ours, unrecorded, foreign, neighbour)] == [False, False, True, True]
    assert not folder.exists()


def test_down_does_not_wait_for_an_orderly_stop_of_what_is_removed(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "lab"
    record(folder, "ours")
    pids = {name: start(marker(folder, "ours"), str(tmp_path / name)) for name in ("w1", "broker")}
    for name, pid in pids.items():
        (folder / f"{name}.pid").write_text(f"{pid}\n")
    assert take_down(folder)
    assert not any(map(alive, pids.values()))
    assert not any((tmp_path / name).exists() for name in pids), "it was asked to end, and did so in good order"


def test_down_stops_the_workers_before_the_brokers(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "lab"
    record(folder, "ours", broker_ports=((1, 2), (4, 5)))
    names = (
        "w1",
        "broker",
        "broker2",
        "w2",
    )  # the brokers in the middle, so that no order of pids or starts hides the rule
    for name in names:
        pid = start(marker(folder, "ours"), str(tmp_path / name))
        (folder / f"{name}.pid").write_text(f"{pid}\n")
    take_down(folder, keep_data=True)
    ended = {name: int((tmp_path / name).read_text()) for name in names}
    # The stand-ins take 0.2 s to end, so one that was asked only after the others had ended is later by that.
    assert min(ended["broker"], ended["broker2"]) - max(ended["w1"], ended["w2"]) > 150_000_000


def test_down_works_with_a_record_that_cannot_be_read(tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "lab.json").write_text("{")
    pid = start(marker(folder, "unknown"))
    assert take_down(folder)
    assert not alive(pid)
    assert not folder.exists()


def test_down_leaves_a_folder_alone_that_is_no_lab(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert not take_down(tmp_path)
    assert (tmp_path / "letter.txt").exists()


def test_a_second_command_waits_until_the_first_one_dies(tmp_path: Path) -> None:
    holds = (
        "import sys, time; from pathlib import Path\n"
        "from airflow_eos_provider.lab.lab_processes import exclusive\n"
        "with exclusive(Path(sys.argv[1]), print): print('held', flush=True); time.sleep(120)"
    )
    with subprocess.Popen([sys.executable, "-c", holds, str(tmp_path / "lab")], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        reported: list[str] = []

        def kill_the_first(line: str) -> None:
            reported.append(line)
            os.kill(first.pid, signal.SIGKILL)

        with exclusive(tmp_path / "lab", kill_the_first):
            assert reported == [f"Waiting for another command that works on {tmp_path / 'lab'} (pid {first.pid})"]


def test_the_end_of_a_log_is_shown_without_what_may_be_secret(tmp_path: Path) -> None:
    log = tmp_path / "w1.log"
    log.write_text(
        "first\nsasl.jaas.config = org.Plain password=x;\nssl.key.password = null\nssl.key.password = [hidden]\n"
        'session-key: {"key":"abc"}\nlast\n'
    )
    assert log_tail(log).splitlines() == [
        "first",
        "ssl.key.password = null",
        "ssl.key.password = [hidden]",
        "last",
    ]
    assert log_tail(tmp_path / "none.log") == "(no log)"
