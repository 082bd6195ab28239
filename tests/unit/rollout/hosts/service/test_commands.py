"""Workers of supervisord and runit, restarted by their supervisors' own commands on real machines."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.placement import OwnCommands
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.rollout.hosts.host import Moment, RestartEvent, RestartRequest, WorkerStartError, moments_of
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.service import (
    commands as commands_module,
    restart_act,
    service as service_module,
)
from airflow_eos_provider.rollout.hosts.service.commands import CommandService
from airflow_eos_provider.rollout.hosts.service.service import ServiceFacts
from tests.sshd import Sshd
from tests.unit.rollout.hosts.service.supervisors import Supervised, runit, supervisord
from tests.waiting import until

KINDS: dict[str, Callable[[Path], AbstractContextManager[Supervised]]] = {"supervisord": supervisord, "runit": runit}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where acts leave their records; and a status command gets the time that a machine that stalls takes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(commands_module, "STATUS_SECONDS", 90)


@pytest.fixture(params=KINDS)
def supervised(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervised]:
    with KINDS[request.param](tmp_path / "w") as supervised:
        yield supervised


def records(folder: Path) -> list[str]:
    """What acts have left."""
    return sorted(path.name for path in folder.glob(".local/state/airflow_eos_provider/*"))


def restart(service: CommandService, facts: ServiceFacts | None = None, **arguments: Any) -> list[str]:
    """Restart a worker; what has happened, in words."""
    events: list[str] = []
    replaces = "" if facts is None else facts.token
    settings: dict[str, Any] = {"config_sha256": "c", "changed_at": None, "stop_grace_seconds": 20.0, "rollout": "r"}
    settings |= {"on_event": lambda event: events.append(event.words), "permit": events.append, "replaces": replaces}
    service.restart(RestartRequest(**(settings | arguments)))
    return events


@pytest.mark.parametrize("shell", ["/bin/dash", pytest.param("/bin/bash", marks=pytest.mark.by_name)])
def test_a_supervisors_command_restarts_the_worker_and_the_new_process_is_known(
    supervised: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    name = tmp_path / "sh"  # a bash of this name is a POSIX shell
    name.symlink_to(shell)
    monkeypatch.setattr(restart_act, "SHELL", str(name))
    machine: Machine = ThisMachine()
    service = CommandService(machine, supervised.worker)
    before = service.look()
    assert before.process is not None
    assert (before.problem, before.reads_file) == (None, True)
    heard: list[RestartEvent] = []
    began = time.time()
    assert restart(service, before, on_event=heard.append) == ["stop"]
    over = time.time()
    after = service.look()
    assert after.process is not None
    assert after.token != before.token
    assert [event.moment for event in moments_of(heard)] == [Moment.STOPPED, Moment.STARTED]
    assert all(began - 1.0 < event.at < over + 1.0 for event in moments_of(heard))
    assert [event.words for event in heard] == [
        f"restarting pid {before.process.pid} by its supervisor's command",
        f"pid {before.process.pid} has ended",
        f"started as pid {after.process.pid}",
    ]
    assert records(tmp_path) == []


def own(supervised: Supervised, restart: Sequence[str] = (), status: Sequence[str] = ()) -> CommandService:
    """The service with other commands."""
    commands = supervised.worker.service
    changed = OwnCommands(tuple(restart) or commands.restart, tuple(status) or commands.status)
    return CommandService(ThisMachine(), replace(supervised.worker, service=changed))


def script(folder: Path, name: str, text: str) -> str:
    """A program that a supervisor's owner has written."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Supervised]:
    """A worker of supervisord."""
    with supervisord(tmp_path / "w") as supervised:
        yield supervised


def test_a_stopped_worker_is_started(supervised: Supervised, tmp_path: Path) -> None:
    commands = supervised.worker.service
    stop = ["stop" if word == "restart" else word for word in commands.restart]
    subprocess.run(stop, check=True, capture_output=True)
    service = CommandService(ThisMachine(), supervised.worker)
    facts = service.look()
    assert (facts.stopped, facts.process, facts.token, facts.problem) == (True, None, "", None)
    events = restart(service, facts)
    assert events[:2] == ["start", "starting it by its supervisor's command"]
    assert service.look().process is not None
    assert records(tmp_path) == []


def test_a_worker_that_ends_at_once_is_a_failure_with_its_log(
    supervised: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_act, "EARLY_END_SECONDS", 3.0)
    supervised.let("fail")
    with pytest.raises(WorkerStartError) as failure:
        restart(CommandService(ThisMachine(), supervised.worker))
    assert "the end" in str(failure.value)
    assert "canary" not in str(failure.value)
    assert records(tmp_path) == []


def test_a_supervisor_that_is_not_there_is_a_problem_and_nothing_is_known(connect: Supervised, tmp_path: Path) -> None:
    service = own(connect, status=("supervisorctl", "-s", f"unix://{tmp_path}/no.sock", "pid", "connect"))
    facts = service.look()
    assert "no such file" in facts.problem
    assert not facts.stopped
    with pytest.raises(ConfigurationError, match="no such file"):
        restart(service, facts)


def test_a_status_that_names_another_process_is_a_problem(
    connect: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "START_SCRIPT_SECONDS", 0.0)
    other = subprocess.Popen(["sleep", "60"])
    try:
        problem = own(connect, status=("echo", str(other.pid))).look().problem
    finally:
        other.kill()
        other.wait()
    assert "no process of it was started with" in problem
    gone = own(connect, status=("echo", "pid", "4194304")).look()
    assert "does not run on this machine" in gone.problem
    assert not gone.stopped


def test_a_restart_that_restarts_nothing_is_seen_whatever_the_commands_say(
    connect: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_act, "PORT_FREE_SECONDS", 0.5)
    monkeypatch.setattr(restart_act, "KILL_SECONDS", 0.5)
    service = own(connect, restart=("echo", "connect: restarted"))
    before = service.look()
    with pytest.raises(RefusedError, match=r"the restart command ended with 0, and pid .* runs on"):
        restart(service, before, stop_grace_seconds=5.0)
    assert service.look().token == before.token
    assert records(tmp_path) == []


def test_a_restart_command_that_fails_is_reported_with_what_it_said(connect: Supervised, tmp_path: Path) -> None:
    service = own(connect, restart=(script(tmp_path, "restart", "echo 'not allowed, password=canary-x'; exit 5"),))
    before = service.look()
    with pytest.raises(RefusedError, match="exit code 5: not allowed") as failure:
        restart(service, before)
    assert "canary-x" not in str(failure.value)
    assert service.look().token == before.token


def test_what_a_restart_command_prints_is_no_line_of_the_record(connect: Supervised, tmp_path: Path) -> None:
    printed = "".join(rf"{end}phase done{end}pid 1{end}end" for end in (r"\014", r"\302\205", r"\342\200\250"))
    failing = script(tmp_path, "restart", f"printf 'no{printed}\\n'; exit 1")
    service = own(connect, restart=[failing])
    with pytest.raises(RefusedError, match=r"The restart command of .* failed: exit code 1: no"):
        restart(service, service.look())


def test_words_reach_a_command_as_they_are(connect: Supervised, tmp_path: Path) -> None:
    commands = connect.worker.service
    words = ("a b", "$(touch x)", "`x`", "'\"", "\\n\\0101", "*", "", "-n", "é", "end")
    keep = script(tmp_path, "restart", f'printf "%s\\n" "$@" >{tmp_path}/words; exec {shlex.join(commands.restart)}')
    restart(own(connect, restart=(keep, *words)))
    assert (tmp_path / "words").read_text().splitlines() == [*words]


def test_a_controller_that_dies_while_the_client_stops_the_worker_leaves_it_running(
    connect: Supervised, sshd: Sshd, far_state: Path
) -> None:
    """`supervisorctl restart` is stop and then start by the client; it must not die with its connection between."""
    worker = replace(connect.worker, machine=sshd.description())
    connect.let("held")
    service = CommandService(machine_of(worker.machine), worker)
    restart(service)
    before = service.look()
    events: list[str] = []

    def cut(event: RestartEvent) -> None:
        events.append(event.words)
        if event.words.startswith("restarting"):
            assert sshd.kill_sessions()
            connect.release()

    restart(service, before, on_event=cut)
    after = service.look()
    assert after.token != before.token
    assert events[-1] == f"started as pid {after.process.pid}"
    assert not list((far_state / "airflow_eos_provider").glob(f"{restart_act.record_name(worker)}*"))


def test_a_helper_that_is_killed_leaves_the_client_to_finish_and_is_said_to_be_cut_off(
    connect: Supervised, tmp_path: Path
) -> None:
    connect.let("held")
    service = CommandService(ThisMachine(), connect.worker)
    restart(service)
    before = service.look()

    def kill(event: RestartEvent) -> None:
        if event.words.startswith("restarting"):  # said before the client is begun
            asked = Path(f"{connect.worker.config}.asked")
            until(asked.exists, "the worker's being asked to end, by the client", seconds=30)
            record = next(tmp_path.glob(".local/state/airflow_eos_provider/*.restart"))
            line = next(line for line in record.read_text().splitlines() if line.startswith("helper "))
            os.kill(int(line.split()[1]), signal.SIGKILL)

    with pytest.raises(RefusedError, match="was cut off: it was stopping"):
        restart(service, before, on_event=kill)
    connect.release()
    until(lambda: service.look().token not in ("", before.token), "the client's own end", seconds=60)


def test_an_act_goes_on_where_the_disk_of_its_record_is_full(
    connect: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "full"
    state.mkdir()
    monkeypatch.setenv("HOME", str(state))
    connect.let("held")
    service = CommandService(ThisMachine(), connect.worker)
    with small_disk(state):
        restart(service)
        before = service.look()
        events: list[str] = []

        def fill(event: RestartEvent) -> None:
            events.append(event.words)
            if event.words.startswith("restarting"):
                fill_up(state)
                connect.release()

        restart(service, before, on_event=fill)
        after = service.look()
        assert after.token not in ("", before.token)
        assert any(event.startswith("started as") for event in events)
        fill_up(state)
        with pytest.raises(RefusedError, match=r"the record .* cannot be written\. Nothing was stopped"):
            restart(service, after)
        assert service.look().token == after.token


def fill_up(folder: Path) -> None:
    """Leave no room on a disk."""
    with contextlib.suppress(OSError), (folder / "filler").open("ab", buffering=0) as filler:
        while filler.write(b"x" * 512):
            pass


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of few pages, which only root may mount. Elsewhere the test is reported as not run."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"not run: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
