"""A worker that nobody owns, stopped and started over a real sshd, as it is on this machine."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError, FencedError, RefusedError
from airflow_eos_provider.local_processes import identify
from airflow_eos_provider.rollout.hosts.host import Moment, RestartEvent, RestartRequest, WorkerStartError, moments_of
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.service import restart_act
from airflow_eos_provider.rollout.hosts.service.started import StartedFacts, StartedService
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost
from tests.sshd import Sshd
from tests.unit.rollout.hosts.service.supervisors import end_workers, is_listening, worker_in
from tests.waiting import until

#: Of this run alone: other tests' processes on this machine have secrets of their own.
CANARY = f"canary-{uuid.uuid4().hex}"
SECRET = f"{CANARY}\n\\second 'line'"


@dataclass
class Far:
    """A worker on a machine over SSH.

    :param state: where acts leave their records.
    """

    worker: WorkerDescription
    state: Path

    @property
    def service(self) -> StartedService:
        """As another process, which knows nothing, would have it."""
        return StartedService(machine_of(self.worker.machine), self.worker)

    @property
    def record(self) -> Path:
        path = restart_act.record_path(self.worker)
        assert path is not None
        return path

    def let(self, *options: str) -> None:
        """Give the worker's next starts these options."""
        Path(f"{self.worker.config}.options").write_text("\n".join(options))

    def restart(self, service: StartedService | None = None, **arguments: Any) -> list[str]:
        """Restart it; what has happened, in words."""
        events: list[str] = []
        service = service or self.service
        settings: dict[str, Any] = {
            "config_sha256": "c",
            "changed_at": None,
            "stop_grace_seconds": 20.0,
            "rollout": "r",
        }
        settings |= {"on_event": lambda event: events.append(event.words), "permit": events.append, "replaces": ""}
        service.restart(RestartRequest(**(settings | arguments)))
        return events

    def helper(self) -> int:
        """The pid of the act's helper, once it is at work."""
        until(self.record.exists, "the record", seconds=30, pause=0.005)
        return int(re.findall(r"^helper (\d+)", self.record.read_text(), re.MULTILINE)[0])

    def release(self) -> None:
        """Let a worker that is held end, and those after it at once."""
        Path(f"{self.worker.config}.released").touch()

    def pid(self) -> int:
        return int(self.worker.pid_file.read_text())

    def left(self) -> list[str]:
        """What acts on this worker have left."""
        return [path.name for path in self.record.parent.glob(f"{self.record.name.removesuffix('.restart')}*")]


@pytest.fixture
def far(sshd: Sshd, far_state: Path, tmp_path: Path) -> Iterator[Far]:
    worker = worker_in(tmp_path)
    yield Far(
        replace(
            worker,
            machine=sshd.description(),
            pid_file=tmp_path / "w1.pid",
            cwd=tmp_path,
            env={"WORKER_PASSWORD": SECRET, "PLAIN": "1"},
        ),
        far_state,
    )
    end_workers(worker.start)


@pytest.fixture
def running(far: Far) -> Far:
    """The same, started by the service itself."""
    far.restart()
    return far


@pytest.fixture
def held(far: Far) -> Far:
    """The same, which stops only when it is released."""
    far.let("held")
    far.restart()
    return far


def forbid(_act: str) -> None:
    raise FencedError("Another controller has taken over.")


@pytest.mark.parametrize("shell", ["/bin/dash", pytest.param("/bin/bash", marks=pytest.mark.by_name)])
def test_a_worker_is_started_and_restarted(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    name = tmp_path / "sh"  # a bash of this name is a POSIX shell
    name.symlink_to(shell)
    monkeypatch.setattr(restart_act, "SHELL", str(name))
    stopped = far.service.look()
    assert (stopped.stopped, stopped.token, stopped.problem, stopped.obstacles) == (True, "", None, ())
    assert far.restart() == ["start", f"started as pid {far.pid()}"]
    before = far.service.look()
    first = far.pid()
    assert (before.process.pid, before.reads_file, before.obstacles, before.problem) == (first, True, (), None)
    assert far.restart(replaces=before.token) == [
        "stop",
        f"stopping pid {first}",
        f"pid {first} has ended",
        f"started as pid {far.pid()}",
    ]
    after = far.service.look()
    assert after.process.pid == far.pid() != first
    assert after.token != before.token
    assert far.left() == []


def test_the_worker_gets_its_variables_and_nothing_of_the_login_or_the_act(running: Far) -> None:
    environment = dict(
        pair.partition(b"=")[::2] for pair in Path(f"/proc/{running.pid()}/environ").read_bytes().split(b"\0")
    )
    assert environment[b"WORKER_PASSWORD"] == SECRET.encode()
    assert not {b"SSH_CONNECTION", b"SSH_CLIENT", b"LC_ALL"} & environment.keys()
    assert not [name for name in environment if name.startswith(b"eos_")]
    assert Path(f"/proc/{running.pid()}/cwd").resolve() == running.worker.cwd
    assert os.getsid(running.pid()) == running.pid()
    assert "ignores []" in running.worker.log.read_text()


def test_a_worker_whose_own_path_has_no_programs_is_started(far: Far, tmp_path: Path) -> None:
    far = replace(far, worker=replace(far.worker, env={"PATH": str(tmp_path)}))
    assert far.restart() == ["start", f"started as pid {far.pid()}"]
    assert f"PATH={tmp_path}".encode() in Path(f"/proc/{far.pid()}/environ").read_bytes().split(b"\0")


def test_a_secret_is_on_no_command_line_and_in_no_record(far: Far) -> None:
    far.let("deaf")
    far.restart()
    seen: list[str] = []

    def look(_event: RestartEvent) -> None:
        seen.append(far.record.read_text())
        seen.append(Path(f"/proc/{far.helper()}/environ").read_bytes().decode("utf-8", "replace"))
        assert stat.S_IMODE(far.record.stat().st_mode) == 0o600
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(line.read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue

    far.restart(on_event=look, stop_grace_seconds=0.5)
    assert any("stopping pid" in each for each in seen)
    assert not [each for each in seen if CANARY in each]


def test_a_worker_that_does_not_stop_is_killed(far: Far) -> None:
    far.let("deaf")
    far.restart()
    first = far.pid()
    events = far.restart(stop_grace_seconds=0.5)
    assert f"pid {first} did not stop within 0 s and was killed" in events
    assert far.pid() != first


def test_a_whole_family_is_stopped_and_its_first_process_is_what_is_stopped(far: Far) -> None:
    far.let("wrap")
    worker = replace(far.worker, start=(*far.worker.start, "wrap"))
    far.worker = worker
    far.let()
    far.restart()
    facts = far.service.look()
    assert (facts.top.pid, facts.process.parent) == (far.pid(), far.pid())
    far.restart()
    assert identify(facts.process.pid) is None
    until(lambda: is_listening(worker), "the new worker", seconds=30)


def test_a_permit_that_is_refused_leaves_all_as_it_was(running: Far) -> None:
    before = running.pid()
    with pytest.raises(FencedError):
        running.restart(permit=forbid)
    assert running.pid() == before
    assert running.left() == []


def test_a_port_that_another_process_holds_is_not_taken(far: Far) -> None:
    with socket.create_server(("127.0.0.1", int(far.worker.url.rpartition(":")[2]))):
        facts = far.service.look()
        assert (facts.stopped, facts.held_by) == (False, "another process")
        with pytest.raises(RefusedError, match="is held by another process"):
            far.restart()


def test_a_worker_behind_a_proxy_that_holds_the_advertised_port_is_restarted(far: Far) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        port = proxy.getsockname()[1]
        with far.worker.config.open("a") as file:
            file.write(f"\nlisteners={far.worker.url}\nrest.advertised.port={port}\n")
        far.worker = replace(far.worker, url=f"http://127.0.0.1:{port}")
        host = ServicedHost(far.worker, machine_of(far.worker.machine), far.service)
        assert host.observe().running.alive is False
        host.restart()
        first = host.observe()
        assert (first.is_running, first.obstacles) == (True, ())
        ServicedHost(far.worker, machine_of(far.worker.machine), far.service).restart()
        assert host.observe().start_token not in ("", first.start_token)


def test_a_port_that_is_taken_between_stop_and_start_is_a_recorded_failure(
    running: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_act, "PORT_FREE_SECONDS", 0.5)
    port = int(running.worker.url.rpartition(":")[2])
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    running.let("deaf")

    def hold(_act: str) -> None:
        os.kill(running.pid(), signal.SIGKILL)  # the worker dies after it was announced, and another takes its port
        until(lambda: not is_listening(running.worker), "the port", seconds=30, pause=0.01)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        holder.listen()

    with holder, pytest.raises(RefusedError, match="was stopped and not started: its port is held"):
        running.restart(permit=hold)
    assert running.left() == []


def test_a_process_that_is_not_the_announced_one_any_more_is_not_touched(
    running: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pid was reused: the same number, another start."""
    service = running.service
    look = service.look

    def older() -> StartedFacts:
        facts = look()
        boot, pid, ticks = facts.top.start.split("/")
        return replace(facts, top=replace(facts.top, start=f"{boot}/{pid}/{int(ticks) - 1}"))

    monkeypatch.setattr(service, "look", older)
    before = running.pid()
    with pytest.raises(RefusedError, match=r"its process was not the one expected.*Nothing was stopped"):
        running.restart(service)
    assert running.pid() == before
    assert is_listening(running.worker)
    assert running.left() == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"config": None}, "has no 'config'"),
        ({"start": ()}, "has no 'start'"),
        ({"log": None}, "has no 'log'"),
        ({"pid_file": None}, "has no 'pid_file'"),
        ({"cwd": Path("/nowhere")}, "its working folder /nowhere does not exist"),
        ({"start": ("/nowhere/connect.sh",)}, r"names no program that can be run .* \(/nowhere/connect.sh\)"),
        ({"start": ("/bin/sh", "-daemon")}, "detaches the worker"),
        ({"env": {"a-b": "1"}}, "The variable 'a-b' cannot be set"),
    ],
)
def test_what_cannot_be_started_is_not_stopped(running: Far, change: dict[str, Any], why: str) -> None:
    before = running.pid()
    running.worker = replace(running.worker, **change)
    with pytest.raises(ConfigurationError, match=why):
        running.restart()
    assert identify(before) is not None


def test_a_pid_file_that_names_another_process_is_refused(far: Far) -> None:
    far.worker.pid_file.write_text(f"{os.getpid()}\n")
    with pytest.raises(RefusedError, match="does not contain"):
        far.restart()


def test_a_worker_with_a_stale_pid_file_is_known_by_its_start_command(running: Far) -> None:
    before = running.pid()
    running.worker.pid_file.unlink()
    facts = running.service.look()
    assert facts.process.pid == before
    running.restart()
    assert running.pid() != before
    assert identify(before) is None


def test_a_supervisor_above_the_worker_is_an_obstacle(running: Far, tmp_path: Path) -> None:
    os.kill(running.pid(), signal.SIGKILL)
    until(lambda: not is_listening(running.worker), "the port", seconds=30)
    shell = subprocess.Popen(["/bin/sh", "-c", '"$@"; :', "sh", *running.worker.start], start_new_session=True)
    try:
        until(lambda: is_listening(running.worker), "the worker", seconds=30)
        child = subprocess.run(["pgrep", "-P", str(shell.pid)], capture_output=True, text=True, check=True).stdout
        running.worker.pid_file.write_text(child)
        with pytest.raises(RefusedError, match=rf"was started by pid {shell.pid} \((sh|dash)\), which still runs"):
            running.restart()
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def act_in_background(far: Far, **arguments: Any) -> subprocess.Popen[bytes]:
    """A controller of its own, so that it can be killed."""
    code = (
        "import pickle, sys; far, arguments = pickle.loads(sys.stdin.buffer.read());"
        "far.restart(on_event=lambda _: None, permit=lambda _: None, **arguments)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, cwd=Path(__file__).parents[5])
    process.stdin.write(pickle.dumps((far, arguments)))
    process.stdin.close()
    return process


def leave_act(far: Far, **arguments: Any) -> None:
    """Begin an act as a controller does that is killed while the worker stops."""
    controller = act_in_background(far, **arguments)
    until(lambda: phase(far) == "stopping", "the act", seconds=30, pause=0.01)
    controller.kill()
    controller.wait()


def phase(far: Far) -> str:
    try:
        return re.findall(r"^phase (\w+)", far.record.read_text(), re.MULTILINE)[0]
    except (FileNotFoundError, IndexError):
        return ""


def test_a_connection_that_is_cut_between_stop_and_start_is_mended_and_the_machine_has_finished(
    held: Far, sshd: Sshd
) -> None:
    far, first = held, held.pid()
    events: list[str] = []

    def cut(event: RestartEvent) -> None:
        events.append(event.words)
        if event.words.startswith("stopping"):
            assert sshd.kill_sessions()
            far.release()

    far.restart(on_event=cut)
    assert far.pid() != first
    assert is_listening(far.worker)
    assert events[-1] == f"started as pid {far.pid()}"
    assert far.left() == []


def test_a_controller_that_is_killed_leaves_an_act_that_ends_and_that_the_next_one_reports_once(held: Far) -> None:
    far, before = held, held.service.look()
    leave_act(far, replaces=before.token)
    assert far.service.look().restart == "a restart of rollout r is stopping"
    heard: list[RestartEvent] = []

    def hear(event: RestartEvent) -> None:
        heard.append(event)
        far.release()

    far.restart(replaces=before.token, on_event=hear)
    assert [event.moment for event in moments_of(heard)] == [Moment.STOPPED, Moment.STARTED]
    assert [event.words for event in heard] == [
        "an earlier restart is still running; waiting for its end",
        f"stopping pid {before.process.pid if before.process else 0}",
        f"pid {before.process.pid if before.process else 0} has ended",
        f"started as pid {far.pid()}",
    ]
    assert far.left() == []


def test_who_comes_after_the_end_takes_an_act_for_done_once(held: Far) -> None:
    before = held.service.look().token
    leave_act(held, replaces=before)
    held.release()
    until(lambda: phase(held) == "done", "its end", seconds=60)
    seen = held.service.look().restarted
    heard: list[RestartEvent] = []
    held.restart(replaces=before, permit=forbid, on_event=heard.append)
    assert [event.moment for event in moments_of(heard)] == [Moment.STOPPED, Moment.STARTED]
    assert [event.words for event in seen] == [event.words for event in moments_of(heard)]
    assert held.service.look().restarted == ()
    again = held.restart(replaces=before, permit=forbid, changed_at=0.0)
    assert again == [f"it was restarted already: pid {held.pid()}"]


def test_an_act_before_another_change_of_the_file_is_not_taken_for_this_one(held: Far) -> None:
    before = held.service.look().token
    leave_act(held, replaces=before)
    held.release()
    until(lambda: phase(held) == "done", "its end", seconds=60)
    with pytest.raises(FencedError):
        held.restart(replaces=before, permit=forbid, config_sha256="another")


def test_a_start_that_failed_unseen_is_reported_to_who_comes_later(held: Far) -> None:
    before = held.service.look().token
    held.let("fail")
    leave_act(held, replaces=before)
    held.release()
    until(lambda: phase(held) == "failed", "its end", seconds=60)
    with pytest.raises(WorkerStartError, match="found its settings wrong"):
        held.restart(replaces=before, permit=forbid)


def test_an_act_of_another_rollout_is_waited_for_and_then_forgotten(held: Far) -> None:
    far, first = held, held.pid()
    leave_act(far, rollout="other")
    events: list[str] = []
    moments: list[Moment] = []

    def hear(event: RestartEvent) -> None:
        events.append(event.words)
        moments.extend(each.moment for each in moments_of([event]) if each.moment)
        far.release()

    far.restart(on_event=hear, permit=events.append)
    started = [event for event in events if event.startswith("started as")]
    assert len(started) == 2
    assert moments == [Moment.STOPPED, Moment.STARTED], "those of another act are none of this restart"
    assert "stop" in events
    assert far.pid() != first
    assert far.left() == []


def test_of_two_controllers_at_once_one_acts_and_both_see_a_running_worker(running: Far) -> None:
    before = running.service.look()
    first = running.pid()
    changed_at = before.process.started_at + 0.1
    until(lambda: time.time() > changed_at + 0.1, "a moment after that", seconds=5)
    controllers = [act_in_background(running, replaces=before.token, changed_at=changed_at) for _ in range(3)]
    codes = [controller.wait(300) for controller in controllers]
    assert codes == [0, 0, 0]
    assert is_listening(running.worker)
    assert running.pid() != first
    assert running.worker.log.read_text().count("DistributedConfig values") == 2  # one start and one restart
    workers = subprocess.run(["pgrep", "-fc", str(running.worker.start[1])], capture_output=True, text=True).stdout
    assert int(workers) == 1
    assert running.left() == []


@pytest.mark.parametrize("when", ["stopping", "started"])
def test_a_helper_that_is_killed_is_said_to_be_cut_off_and_the_next_restart_goes_on(
    far: Far, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(restart_act, "EARLY_END_SECONDS", 60.0)  # the new worker is watched until it listens
    far.let("held")
    far.restart()
    before = far.service.look()

    def kill(event: RestartEvent) -> None:
        if event.words.startswith(when):
            os.kill(far.helper(), signal.SIGKILL)
            Path(f"{far.worker.config}.listen").touch()
        if not event.words.startswith("stopping") or when == "stopping":
            far.release()

    if when == "started":
        far.release()
        far.let("late")
    with pytest.raises(RefusedError, match=f"was cut off: it was {when}"):
        far.restart(on_event=kill, replaces=before.token)
    far.let()
    far.restart(replaces=before.token)  # killed before its signal, the helper has left the old worker running
    assert identify(before.process.pid) is None
    assert is_listening(far.worker)
    assert far.left() == []


def test_requests_to_end_are_put_off_until_the_act_is_over(held: Far) -> None:
    far = held

    def ask(event: RestartEvent) -> None:
        if event.words.startswith("stopping"):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                os.kill(far.helper(), number)
            far.release()

    far.restart(on_event=ask)
    assert is_listening(far.worker)
    assert "ignores []" in far.worker.log.read_text().rpartition("DistributedConfig")[2]


def test_a_record_of_another_boot_is_an_act_that_was_cut_off(running: Far) -> None:
    before = running.service.look()
    key = f"rollout r\nreplaces {before.token}\nsha256 c"
    running.record.parent.mkdir(exist_ok=True)
    running.record.write_text(
        f"schema 1\nact a\n{key}\nhelper 1 1 other-boot\nphase stopping\npid 0\nticks 0\nfailure \ncode \n"
        "log_from 0\ndetail \nend\n"
    )
    assert running.service.look().restart is None
    first = running.pid()
    assert running.restart(replaces=before.token)[0] == "stop"  # it begins anew
    assert running.pid() != first
    assert running.left() == []
