"""Start tokens: which starts are the same, and what proves that a process has ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from airflow_eos_provider.journal.process_start import ProcessStart
from airflow_eos_provider.local_processes import identify
from tests.waiting import until

CONTAINER = "pid:[4026532001]"


@pytest.fixture
def own() -> ProcessStart:
    return ProcessStart.of_this_process()


def test_a_token_names_this_process_and_survives_being_written_down(own: ProcessStart) -> None:
    assert own.pid == os.getpid()
    assert own.is_alive
    assert not own.is_proven_dead
    assert ProcessStart.parse(str(own)) == own
    assert ProcessStart.parse("a word of another host") is None


def test_a_process_that_has_ended_is_proven_dead_and_its_number_alone_names_nobody(own: ProcessStart) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        token = ProcessStart.of(child.pid)
        assert token is not None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped: a zombie
        assert ProcessStart.of(child.pid) is None
        assert token.is_proven_dead
    reused = replace(own, ticks=own.ticks - 1)  # the same pid, an earlier start
    assert reused != own
    assert reused.is_proven_dead


#: The first thread ends alone, as SYS_exit does it, while another one and the process's socket live on.
ZOMBIE_AT_WORK = """
import ctypes, platform, socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
def end_the_first_thread(libc=ctypes.CDLL(None), number={"x86_64": 60}.get(platform.machine(), 93)):
    libc.syscall(number, 0)
threading.Thread(target=time.sleep, args=(60,)).start()
end_the_first_thread()
"""


def test_a_zombie_lives_until_its_last_thread_has_closed_its_sockets() -> None:
    with subprocess.Popen([sys.executable, "-c", ZOMBIE_AT_WORK], stdout=subprocess.PIPE, text=True) as child:
        identity, token = identify(child.pid), ProcessStart.of(child.pid)
        assert identity is not None
        assert token is not None
        assert child.stdout is not None
        port = int(child.stdout.readline())
        until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "its first thread", seconds=30)
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        assert identity.is_alive()
        assert token.is_alive
        assert not token.is_proven_dead

        identity.stop(kill=True)
        assert not identity.is_alive()
        assert token.is_proven_dead
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize(
    ("change", "is_dead"),
    [
        pytest.param({"boot": "before"}, True, id="this machine, booted again"),
        pytest.param({"boot": "before", "machine": "other"}, False, id="another machine, whatever its name"),
        pytest.param({"boot": "before", "machine": ""}, False, id="a machine without an id"),
        pytest.param({"boot": "before", "namespace": CONTAINER}, False, id="a container: images share machine ids"),
        pytest.param({"boot": ""}, False, id="an unknown boot"),
        pytest.param({"ticks": 1, "namespace": CONTAINER}, False, id="a container of this kernel"),
        pytest.param({"ticks": 1}, True, id="this kernel, where the pid is another process"),
    ],
)
def test_another_boot_is_a_proof_of_death_only_of_the_same_machine(
    own: ProcessStart, change: dict[str, object], is_dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(own, machine="this", namespace="pid:[4026531836]")
    # What this test runs on may be a container, or have no machine id.
    monkeypatch.setattr(ProcessStart, "of", classmethod(lambda cls, pid: here if pid == own.pid else None))
    assert replace(here, **change).is_proven_dead is is_dead
