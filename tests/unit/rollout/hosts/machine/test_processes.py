"""Processes of a machine, from real and from adverse ``/proc``, and from this machine's own shell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from airflow_eos_provider.rollout.hosts.machine.machine import Answer, CommandError
from airflow_eos_provider.rollout.hosts.machine.processes import (
    MARK,
    CommandLines,
    Processes,
    names_path,
    parts_of,
    probe as probed,
    processes_of,
)
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine

#: Behind the start ticks.
_REST = " ".join(["0"] * 30)


def stat(pid: int, parent: int, ticks: int, name: str = "java", state: str = "S") -> str:
    return f"{pid} ({name}) {state} {parent} " + " ".join(["1"] * 17) + f" {ticks} {_REST}\n"


def probe(*stats: str, now: float = 5000.0, uptime: float = 1000.0, **parts: str) -> bytes:
    said = {
        "begun": f"{now:.9f}\n",
        "uptime": f"{uptime} 4.0\n",
        "ticks": "100\n",
        "boot": "b00t\n",
        "user": "1000\n",
        "mounts": "proc /proc proc rw,nosuid 0 0\n",
        "stat": "".join(stats),
        "ended": f"{now + 0.2:.9f}\n",
        **parts,
    }
    return "".join(f"\n{MARK}{name}\n{content}" for name, content in said.items()).encode()


def seen(out: bytes, *, sent_at: float = 0.0, answered_at: float = 0.4) -> Processes:
    return processes_of(parts_of(out), sent_at=sent_at, answered_at=answered_at)


def test_a_start_is_told_by_the_machines_own_clock_with_its_offset_from_this_one() -> None:
    processes = seen(probe(stat(7, 1, 90_000)))
    process = processes.by_pid[7]
    assert process.started_at == pytest.approx(5000.0 - (1000.0 - 900.0))
    assert processes.clock_offset == pytest.approx(0.2 - 5000.1)  # the middles of here and of there
    assert process.start == "b00t/7/90000"


def test_a_machine_an_hour_ahead_is_seen_as_it_is_by_this_clock() -> None:
    here = 1_000_000.0
    processes = seen(probe(stat(7, 1, 90_000), now=here + 3600.0), sent_at=here - 0.1, answered_at=here + 0.3)
    process = processes.by_pid[7]
    assert process.started_at + process.clock_offset == pytest.approx(here - 100.0, abs=0.5)


def test_names_of_processes_cannot_pass_for_others() -> None:
    odd = [stat(1, 0, 5, "a) S 1 (b"), stat(2, 1, 6, "new\nline 9 (x"), stat(3, 2, 7, ") ) )")]
    processes = seen(probe(*odd))
    assert {pid: p.parent for pid, p in processes.by_pid.items()} == {1: 0, 2: 1, 3: 2}


def test_a_process_whose_name_is_a_line_of_the_probes_own_is_a_process() -> None:
    """Any user of a machine may choose such a name."""
    act = f"import ctypes; ctypes.CDLL(None).prctl(15, {f'{chr(10)}{MARK}x{chr(10)}'.encode()!r}); print(); input()"
    with subprocess.Popen([sys.executable, "-c", act], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdout.readline()
        found, parts = probed(ThisMachine(), "part x; echo ours;")
        process.stdin.write(b"\n")
    assert parts["x"] == b"ours\n"
    assert process.pid in found.by_pid


def test_a_family_is_a_process_and_all_below_it() -> None:
    processes = seen(probe(stat(5, 1, 1), stat(9, 7, 4), stat(7, 5, 2), stat(8, 1, 3)))
    assert [p.pid for p in processes.family(5)] == [5, 7, 9]
    assert processes.family(4) == ()


def test_suspended_processes_and_hidden_ones_are_known() -> None:
    assert seen(probe(stat(5, 1, 1, state="T"))).by_pid[5].is_suspended
    hidden = "proc /proc proc rw,hidepid=invisible 0 0\n"
    assert seen(probe(mounts=hidden)).hides
    assert not seen(probe(mounts=hidden, user="0\n")).hides
    assert not seen(probe(mounts="proc /proc proc rw,hidepid=0 0 0\n")).hides


@pytest.mark.parametrize("out", [b"", probe(begun="%s.%N\n"), probe().replace(b"1000.0 4.0", b"")])
def test_a_machine_without_proc_is_an_error(out: bytes) -> None:
    with pytest.raises(CommandError):
        seen(out)


def test_a_date_without_nanoseconds_and_a_machine_without_getconf_are_read() -> None:
    processes = seen(probe(stat(7, 1, 90_000), begun="5000.%N\n", ended="5000.%N\n", ticks="\n"))
    assert (processes.now, processes.ticks) == (5000.0, 100)


def test_words_name_a_file_by_its_path_by_a_link_or_from_their_folder() -> None:
    paths = ("/etc/kafka/c.properties", "/srv/real.properties")
    assert names_path(("java", "/etc/kafka/../kafka/c.properties"), "", paths)
    assert names_path(("java", "/srv/real.properties"), "/", paths)
    assert names_path(("java", "c.properties"), "/etc/kafka", paths)
    assert not names_path(("java", "c.properties"), "/etc", paths)
    assert not names_path(("java", "/etc/kafka/c.properties.bak"), "", paths)
    assert not names_path(("java", ""), "", ("",))


class Counting(ThisMachine):
    name = "another"  # so that it is asked by commands

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 8.0) -> Answer:
        self.commands.append(words)
        return super().run(words, stdin=stdin, seconds=seconds)


@pytest.fixture
def wrapper(tmp_path: Path) -> Iterator[int]:
    """A shell that waits for a Python process, which has a file of its folder among its words."""
    (tmp_path / "c.properties").touch()
    odd = f"$(printf 'x\\n{MARK}nonsense\\nx\\ny')"  # no line of the probe's own
    act = "import time; print(1, flush=True); time.sleep(60)"
    script = f"{sys.executable} -c '{act}' c.properties \"{odd}\"; true"
    process = subprocess.Popen(["/bin/sh", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()
    yield process.pid
    os.killpg(process.pid, 9)
    process.communicate(timeout=180)


def test_the_reader_of_a_file_is_found_below_its_wrapper_and_remembered(wrapper: int, tmp_path: Path) -> None:
    machine = Counting()
    lines = CommandLines(machine)
    paths = (str(tmp_path / "c.properties"),)

    def look(paths: tuple[str, ...]) -> tuple[int, bool | None]:
        processes, _ = probed(machine)
        assert abs(processes.clock_offset) < 1.0
        reader, reads = lines.reader(processes.family(wrapper), paths)
        assert abs(reader.started_at - time.time()) < 60.0
        return reader.pid, reads

    pid, reads = look(paths)
    assert (pid != wrapper, reads) == (True, True)
    asked = len(machine.commands)
    assert look(paths) == (pid, True)
    assert len(machine.commands) == asked + 1  # the probe alone
    assert look(("/elsewhere",)) == (wrapper, False)


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    lines = CommandLines(ThisMachine())
    assert lines.reader((), ()) == (None, None)
