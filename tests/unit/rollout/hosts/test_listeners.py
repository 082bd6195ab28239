"""Who listens on a worker's port, asked again and again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.processes import identify
from airflow_eos_provider.rollout.hosts.process import worker_process
from airflow_eos_provider.rollout.hosts.process.worker_process import Listeners

LISTEN = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.read()
"""


def test_a_port_that_another_process_takes_over_is_noticed() -> None:
    listeners, here = Listeners(), identify(os.getpid())
    assert here is not None
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        assert [listeners.are_of([here], url) for _ in range(2)] == [True, True]
    assert listeners.are_of([here], url)  # nobody listens
    command = [sys.executable, "-c", LISTEN, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "listening\n"
        assert not listeners.are_of([here], url)
        child = identify(other.pid)
        assert child is not None
        assert listeners.are_of([here, child], url)
        other.communicate(timeout=30)
    assert listeners.are_of([here], url)


def test_a_worker_that_opens_its_port_while_it_is_looked_at_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here, port = identify(os.getpid()), free_ports(1)[0]
    assert here is not None
    read = worker_process._listening_sockets
    opened: list[socket.socket] = []

    def reads_behind_the_start(url: str) -> set[str]:
        if not opened:
            opened.append(socket.create_server(("127.0.0.1", port)))
        return read(url)

    monkeypatch.setattr(worker_process, "_listening_sockets", reads_behind_the_start)
    assert Listeners().are_of([here], f"http://127.0.0.1:{port}")
    opened.pop().close()


def test_a_worker_that_closes_its_port_while_it_is_looked_at_has_no_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    here = identify(os.getpid())
    assert here is not None
    read = worker_process._listening_sockets
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def reads_before_the_end(url: str) -> set[str]:
            found = read(url)
            listener.close()
            return found

        monkeypatch.setattr(worker_process, "_listening_sockets", reads_before_the_end)
        assert Listeners().are_of([here], url)
