"""Who listens on a worker's port, asked again and again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from airflow_eos_provider.processes import identify
from airflow_eos_provider.rollout.hosts.worker_process import Listeners

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
