"""A look at a machine for workers, by the real script in a real shell, with a small listener in a worker's place."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.rollout.hosts.discovery.here import look_here, propose_here
from airflow_eos_provider.rollout.hosts.discovery.proposal import ProposedWorker, propose
from airflow_eos_provider.rollout.hosts.discovery.search_machine import MachineLook, SeenProcess, look_at
from airflow_eos_provider.rollout.hosts.machine.machine import Answer
from tests.waiting import until

CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"

LISTENER = """
import socket, sys
log = open("connect.log", "a"); gc = open("a-gc.log", "a")
print("INFO DistributedConfig values:", file=log, flush=True)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.read()
"""

PROPERTIES = "group.id = orders\nlisteners=http://127.0.0.1:{port}\nsasl.jaas.config=x password=swordfish\n"


class Shell:
    """This machine, as a machine over SSH answers."""

    name = "here"

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 120.0) -> Answer:
        ended = subprocess.run(words, input=stdin, capture_output=True, timeout=seconds)
        self.out = ended.stdout
        return Answer(ended.returncode, ended.stdout, ended.stderr)

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        raise NotImplementedError


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a listener by a script, or without one, and waits until it listens."""
    (tmp_path / "listener.py").write_text(LISTENER)
    (tmp_path / "worker.properties").write_text(PROPERTIES.format(port=port))
    started: list[subprocess.Popen[bytes]] = []

    def run(
        *words: str, script: str | None = None, supervised: bool = False, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-u", "listener.py", str(port), *words, CLASS, "worker.properties"]
        if script is not None:
            (tmp_path / "start.sh").write_text(script.format(command=" ".join(command)))
            command = ["/bin/sh", "start.sh"]
        if supervised:
            command = [sys.executable, "-c", f"import subprocess; subprocess.run({command!r})"]
        out = tmp_path / "out"
        with out.open("wb") as file:
            started.append(subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=file, env=env))
        until(lambda: out.read_text() == "listening\n", "the listener", seconds=60)
        return started[-1]

    yield run
    for process in started:
        process.communicate(timeout=180)


def look(port: int) -> tuple[MachineLook, SeenProcess, bytes]:
    shell = Shell()
    seen = look_at(shell, [port])
    (own,) = [each for each in seen.processes if each.sockets & seen.listeners_at(f"http://127.0.0.1:{port}")]
    return seen, own, shell.out


def proposed(port: int, group: str = "orders") -> ProposedWorker:
    seen, own, _ = look(port)  # the machine has workers of other tests as well
    return propose(f"http://127.0.0.1:{port}", group, replace(seen, processes=(own,)))


def test_what_another_user_calls_a_worker_neither_holds_up_the_look_nor_breaks_it(tmp_path: Path) -> None:
    pipe, odd = tmp_path / "pipe.properties", tmp_path / "a\nl-wx------ 1 x x 64 Nov 1 00:00 9 -> socket:[no]"
    os.mkfifo(pipe)
    script = "import sys; held = open(sys.argv[1], 'w'); print('open', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", script, str(odd), CLASS, str(pipe)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout.readline() == b"open\n"
        try:
            seen = look_at(Shell(), [1])
        finally:
            process.stdin.close()
    (own,) = [each for each in seen.processes if each.pid == process.pid]
    assert (own.config, own.settings, own.sockets) == (str(pipe), None, frozenset())


def test_a_worker_is_found_by_its_port_with_its_file_and_its_log(start: Any, port: int, tmp_path: Path) -> None:
    process = start()
    _, own, _ = look(port)
    assert (own.pid, own.is_worker, own.cwd) == (process.pid, True, str(tmp_path))
    assert own.config == f"{tmp_path}/worker.properties"
    assert own.settings == {"group.id": "orders", "listeners": f"http://127.0.0.1:{port}"}
    assert own.started_in == (f"{tmp_path}/connect.log",)
    assert own.output == f"{tmp_path}/out"


def test_what_is_proposed_starts_it_again(start: Any, port: int, tmp_path: Path) -> None:
    process = start(script="exec 3<&0\n{command} <&3 &\necho $! > worker.pid\nwait\n")
    found = proposed(port)
    assert found.entry == {
        "service": {"start": ["/bin/sh", "start.sh"], "cwd": str(tmp_path), "pid_file": f"{tmp_path}/worker.pid"},
        "config": f"{tmp_path}/worker.properties",
        "log": f"{tmp_path}/connect.log",
    }
    assert found.pid != process.pid


def here(url: str) -> ProposedWorker:
    return propose_here(url, "orders", look_here([url]))


def test_a_worker_of_this_machine_is_described_without_a_service(start: Any, port: int, tmp_path: Path) -> None:
    process = start(script="exec 3<&0\n{command} <&3 &\necho $! > worker.pid\nwait\n")
    found = here(f"http://127.0.0.1:{port}")
    assert found.entry == {
        **{"start": ["/bin/sh", "start.sh"], "cwd": str(tmp_path), "pid_file": f"{tmp_path}/worker.pid"},
        **{"config": f"{tmp_path}/worker.properties", "log": f"{tmp_path}/connect.log"},
    }
    assert (found.pid, found.start_pid) == (int((tmp_path / "worker.pid").read_text()), process.pid)
    assert found.remarks == ("nothing starts it again when it ends",)
    seen = look_here([f"http://127.0.0.1:{port}"])
    assert seen.listeners_at(f"http://127.0.0.1:{port}")
    assert not seen.listeners_at(f"http://127.0.0.2:{port}")  # another address of this machine
    own = tuple(each for each in seen.processes if each.pid == found.pid)  # the machine has workers of other tests, too
    assert propose_here(f"http://127.0.0.1:{port}", "payments", replace(seen, processes=own)).pid is None


def test_what_would_start_a_worker_of_this_machine_again_is_said(start: Any, port: int) -> None:
    process = start(supervised=True)
    found = here(f"http://127.0.0.1:{port}")
    (remark,) = [remark for remark in found.remarks if remark.startswith("eos would refuse to restart it")]
    assert f"was started by pid {process.pid}" in remark
    assert found.entry["start"][-1] == "worker.properties"
    assert "pid_file" not in found.entry
    assert [remark for remark in found.remarks if remark.startswith("no script waits for it")]


def test_no_secret_leaves_the_machine_but_in_a_command_line_and_none_is_proposed(start: Any, port: int) -> None:
    start("--password=swordfish", env={"KAFKA_OPTS": "-Dpassword=marlin"})
    seen, own, out = look(port)
    assert own.variables == ("KAFKA_OPTS",)
    assert "swordfish" not in repr(seen)
    assert b"marlin" not in out
    values = [base64.b64decode(line.partition(b" ")[2]) for line in out.splitlines()]
    assert not [value for value in values if b"marlin" in value]
    assert sum(b"swordfish" in value for value in values) == 1  # the command line itself
    found = proposed(port)
    assert "service" not in found.entry
    assert "swordfish" not in repr(found)
    assert any("--password" in remark for remark in found.remarks)
    assert any("KAFKA_OPTS" in remark for remark in found.remarks)


def test_a_worker_of_another_group_is_not_taken_for_it(start: Any, port: int) -> None:
    start()
    found = proposed(port, group="payments")
    assert found.pid is None
    assert "sees no process of it" in found.remarks[0]


def test_a_machine_without_a_shell_of_posix_is_refused() -> None:
    class Menu(Shell):
        def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 120.0) -> Answer:
            return Answer(0, b"Welcome. 1) Reboot 2) Help\n", b"")

    with pytest.raises(RefusedError, match="cannot be searched for workers"):
        look_at(Menu(), [8083])
