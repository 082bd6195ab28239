"""Who listens on a worker's port, asked again and again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.rollout.hosts.address import is_same_port
from airflow_eos_provider.rollout.hosts.machine.processes import Process
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.service import started
from airflow_eos_provider.rollout.hosts.service.started import LookHere

LISTEN = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.read()
"""


def is_single(looker: LookHere, pids: list[int], url: str) -> bool:
    """Whether nobody but these processes is known to listen there."""
    family = [Process(pid, f"boot/{pid}/1", 0.0) for pid in pids]
    return not looker.rival(family, looker.look(url), url)


def test_a_port_that_another_process_takes_over_is_noticed() -> None:
    listeners, here = LookHere(ThisMachine(), WorkerDescription("http://127.0.0.1:1")), os.getpid()
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        assert [is_single(listeners, [here], url) for _ in range(2)] == [True, True]
    assert is_single(listeners, [here], url)  # nobody listens
    command = [sys.executable, "-c", LISTEN, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "listening\n"
        assert not is_single(listeners, [here], url)
        assert is_single(listeners, [here, other.pid], url)
        other.communicate(timeout=30)
    assert is_single(listeners, [here], url)


def test_a_worker_that_opens_its_port_while_it_is_looked_at_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here, port = os.getpid(), free_ports(1)[0]
    read = started._listening_sockets
    opened: list[socket.socket] = []

    def reads_behind_the_start(url: str) -> set[str]:
        if not opened:
            opened.append(socket.create_server(("127.0.0.1", port)))
        return read(url)

    monkeypatch.setattr(started, "_listening_sockets", reads_behind_the_start)
    assert is_single(
        LookHere(ThisMachine(), WorkerDescription("http://127.0.0.1:1")), [here], f"http://127.0.0.1:{port}"
    )
    opened.pop().close()


def test_a_worker_that_closes_its_port_while_it_is_looked_at_has_no_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpid()
    read = started._listening_sockets
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def reads_before_the_end(url: str) -> set[str]:
            found = read(url)
            listener.close()
            return found

        monkeypatch.setattr(started, "_listening_sockets", reads_before_the_end)
        assert is_single(LookHere(ThisMachine(), WorkerDescription(url)), [here], url)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("https://127.0.0.1:8083/", True),
        ("http://127.0.0.1:8084", False),
        ("http://127.0.0.2:8083", False),
        ("http://no-such-host.invalid:8083", False),
    ],
)
def test_two_names_of_one_port_are_the_same(other: str, same: bool) -> None:
    assert is_same_port("http://localhost:8083", other) is same
