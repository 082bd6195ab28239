"""A worker of this machine, with real files and real processes; a small Python program stands in for its JVM.

(``tests/integration/test_local_worker.py`` does the same with a real worker.)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import psutil
import pytest

from airflow_eos_provider import processes
from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import Observed, judge
from airflow_eos_provider.errors import FencedError, RefusedError
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.rollout.hosts import ownership
from airflow_eos_provider.rollout.hosts.beside_unit import Way
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import Host, HostFacts, RestartRequest, WorkerStartError
from airflow_eos_provider.rollout.hosts.machine import this_machine
from airflow_eos_provider.rollout.hosts.machine.properties_file import PropertiesFile
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.restart_event import Moment, RestartEvent, moments_of
from airflow_eos_provider.rollout.hosts.service.restart_act import (
    ActingService,
    Phase,
    RecordLook,
    RestartRecord,
    record_path,
)
from airflow_eos_provider.rollout.hosts.service.started import StartedService
from tests.families import family_of
from tests.unit.rollout.hosts.service.supervisors import is_listening
from tests.waiting import until

#: Reads its properties file, prints its settings as Connect does, listens, and ends on SIGTERM unless set otherwise.
PROGRAM = """
import datetime, signal, socket, subprocess, sys, time
config, port, *options = sys.argv[1:]
if "wrap" in options:
    if "deaf" in options:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(subprocess.call([sys.executable, sys.argv[0], config, port, *options[1:]]))
text = open(config, encoding="latin-1").read()
if "fail" in options or "fail=yes" in text:
    sys.exit("the worker found its settings wrong\\npassword = canary-in-the-log\\nvalue canary-in-the-file\\nthe end")
mode = text.rpartition("exactly.once.source.support=")[2].split()[0]
now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
print(f"[{now}] INFO DistributedConfig values: \\n\\texactly.once.source.support = {mode}\\n", flush=True)
if "deaf" in options:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = socket.create_server(("127.0.0.1", int(port)))
while True:
    server.accept()[0].close()
"""

BEFORE = b"# the worker\ngroup.id=g\nexactly.once.source.support=disabled\nssl.key.password=canary-in-the-file\n"
AFTER = BEFORE.replace(b"disabled", b"preparing")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerDescription]:
    (port,) = free_ports(1)
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM)
    config = tmp_path / "w1.properties"
    config.write_bytes(BEFORE)
    yield WorkerDescription(
        url=f"http://127.0.0.1:{port}",
        config=config,
        log=tmp_path / "w1.log",
        pid_file=tmp_path / "w1.pid",
        start=(sys.executable, str(program), str(config), str(port)),
        env={"WORKER_PASSWORD": "canary-in-the-environment"},
    )
    for process_found in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(program) in process_found.cmdline():
                process_found.kill()


def wait_for(condition: Callable[[], object]) -> None:
    until(condition, "what has to happen", seconds=120, pause=0.02)


def started(worker: WorkerDescription) -> Host:
    host = host_of(worker)
    host.restart()
    wait_for(lambda: is_listening(worker))
    return host


def process_of(facts: HostFacts) -> processes.ProcessIdentity | None:
    """The worker's process; of one behind a wrapper, that one."""
    pid = facts.details["pid"]
    return processes.identify(pid) if isinstance(pid, int) else None


def first_process(worker: WorkerDescription) -> processes.ProcessIdentity:
    """The process that the pid file names."""
    assert worker.pid_file is not None
    found = processes.from_pid_file(worker.pid_file)
    assert found is not None
    return found


def restarted(host: Host, **arguments: Any) -> processes.ProcessIdentity:
    """The process that a restart has started."""
    host.restart(RestartRequest(**arguments))
    found = process_of(host.observe())
    assert found is not None
    return found


def forbid(_act: str) -> None:
    raise FencedError("Another controller has taken over.")


class TestSeeing:
    def test_a_stopped_worker_shows_its_file_and_how_it_will_join(self, worker: WorkerDescription) -> None:
        facts = host_of(worker).observe()
        assert facts.problem is None
        assert facts.digest == sha256(BEFORE)
        assert facts.properties["group.id"] == "g"
        assert facts.declared.mode is Mode.DISABLED
        assert process_of(facts) is None
        assert facts.running.alive is False

    def test_a_running_worker_shows_its_process_and_what_it_started_with(self, worker: WorkerDescription) -> None:
        before = time.time()
        host = started(worker)
        facts = host.observe()
        assert process_of(facts) is not None
        assert process_of(facts).is_alive()
        assert facts.running.alive is True
        assert facts.running.mode is Mode.DISABLED
        assert facts.running.reads_file is True
        assert facts.running.started_at is not None
        assert before - 0.02 <= facts.running.started_at <= time.time()

    def test_a_file_edited_after_the_start_is_a_disagreement_and_no_evidence(self, worker: WorkerDescription) -> None:
        host = started(worker)
        host.edit({MODE_PROPERTY: "preparing"}, expect=sha256(BEFORE))
        facts = host.observe()
        judged = judge(facts.worker_id, facts.declared, facts.running, Observed(False, "not enabled"))
        assert judged.verdict.mode is Mode.DISABLED
        assert judged.declared.mode is Mode.PREPARING
        assert "a restart will change the mode" in judged.disagreements[0]

    @pytest.mark.parametrize("how", ["moved into place with its old date", "edited with its old date"])
    def test_a_file_with_an_old_date_does_not_pass_for_the_one_that_was_read(
        self, worker: WorkerDescription, tmp_path: Path, how: str
    ) -> None:
        assert worker.config is not None
        host = started(worker)
        worker.log.unlink()  # type: ignore[union-attr]
        new = tmp_path / "new" if how.startswith("moved") else worker.config
        new.write_bytes(AFTER)
        os.utime(new, (1, 1))
        new.replace(worker.config)
        facts = host_of(worker).observe()
        assert facts.declared.modified_at == 1
        judged = judge(facts.worker_id, facts.declared, facts.running, Observed(False, "not enabled"))
        assert judged.verdict.mode is None
        assert host.observe().declared.mode is Mode.PREPARING

    def test_a_link_turned_to_another_file_does_not_pass_for_the_one_that_was_read(
        self, worker: WorkerDescription, tmp_path: Path
    ) -> None:
        (tmp_path / "old").mkdir()
        (tmp_path / "new").mkdir()
        (tmp_path / "old" / "w1.properties").write_bytes(BEFORE)
        (tmp_path / "new" / "w1.properties").write_bytes(AFTER)
        (tmp_path / "current").symlink_to("old")
        config = tmp_path / "current" / "w1.properties"
        worker = replace(worker, config=config, start=(*worker.start[:2], str(config), worker.start[3]))
        host = started(worker)
        assert self._verdict_by_the_file_alone(host) is Mode.DISABLED
        (tmp_path / "turned").symlink_to("new")
        (tmp_path / "turned").replace(tmp_path / "current")
        assert self._verdict_by_the_file_alone(host) is None

    @staticmethod
    def _verdict_by_the_file_alone(host: Host) -> Mode | None:
        facts = host.observe()
        running = replace(facts.running, mode=None)
        return judge("w", facts.declared, running, Observed(False, "not enabled")).verdict.mode

    def test_a_process_started_with_another_file_is_told_apart(self, worker: WorkerDescription, tmp_path: Path) -> None:
        started(worker)
        other = tmp_path / "other.properties"
        other.write_bytes(AFTER)
        facts = host_of(replace(worker, config=other)).observe()
        assert facts.running.reads_file is False

    def test_a_worker_behind_a_wrapper_is_found(self, worker: WorkerDescription) -> None:
        worker = replace(worker, start=(*worker.start, "wrap"))
        host = started(worker)
        facts = host.observe()
        assert process_of(facts) is not None
        assert facts.running.started_at is not None
        assert worker.pid_file is not None
        assert process_of(facts) != processes.from_pid_file(worker.pid_file), "the wrapper"
        assert facts.running.mode is Mode.DISABLED

    def test_a_worker_restarted_by_hand_is_found_by_its_very_start_command(self, worker: WorkerDescription) -> None:
        started(worker)
        assert worker.pid_file is not None
        worker.pid_file.write_text("999999999\n")
        facts = host_of(worker).observe()
        assert process_of(facts) is not None
        assert facts.running.alive is True

    def test_another_process_on_the_port_is_named_and_no_worker_called_stopped(self, worker: WorkerDescription) -> None:
        with socket.create_server(("127.0.0.1", int(worker.start[3]))):
            facts = host_of(worker).observe()
        assert process_of(facts) is None
        assert facts.running.alive is None
        assert f"process {os.getpid()}" in facts.running.detail

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"config": Path("/nowhere/w.properties")}, "There is no file"),
            ({"config": None}, "no 'config'"),
            ({"start": ()}, "no 'start'"),
            ({"log": None}, "no 'log'"),
            ({"pid_file": None}, "no 'pid_file'"),
            ({"cwd": Path("/nowhere")}, "/nowhere does not exist"),
            ({"start": ("/nowhere/java", "x")}, "no program that can be run"),
            ({"start": ("/bin/sh", "-daemon", "x")}, "detaches the worker (-daemon)"),
        ],
    )
    def test_what_keeps_a_worker_from_being_rolled_is_said(
        self, worker: WorkerDescription, changes: dict[str, object], words: str
    ) -> None:
        facts = host_of(replace(worker, **changes)).observe()  # type: ignore[arg-type]
        assert facts.problem is not None
        assert words in facts.problem

    def test_an_unreadable_or_malformed_file_declares_nothing(self, worker: WorkerDescription) -> None:
        assert worker.config is not None
        worker.config.write_bytes(b"a=\\u12\n")
        facts = host_of(worker).observe()
        assert facts.declared.mode is None
        assert facts.problem is not None
        assert "malformed" in facts.problem

    def test_nothing_secret_is_shown(self, worker: WorkerDescription) -> None:
        host = started(worker)
        shown = repr(host.observe()) + repr(
            PropertiesFile(ThisMachine(), PurePosixPath(worker.config), sudo=False).read()
        )  # type: ignore[arg-type]
        assert "disabled" in shown
        assert "canary" not in shown

    def test_a_mode_from_the_environment_is_read_from_the_process(self, worker: WorkerDescription) -> None:
        assert worker.config is not None
        worker.config.write_bytes(
            b"config.providers=env\nconfig.providers.env.class=org.apache.kafka.common.config.provider."
            b"EnvVarConfigProvider\nexactly.once.source.support=${env:EOS_MODE}\n"
            b"offset.storage.topic=${env:EOS_MODE}\nstatus.storage.topic= ${file:/f:s} \n"
        )
        host = started(replace(worker, env={"EOS_MODE": "preparing"}))
        facts = host_of(worker).observe()
        assert facts.declared.mode is Mode.PREPARING
        assert facts.properties["offset.storage.topic"] == "preparing"
        assert facts.properties["status.storage.topic"] == "${file:/f:s}"
        process_found = process_of(host.observe())
        assert process_found is not None
        process_found.stop(kill=True)
        assert host_of(worker).observe().declared.mode is None
        assert host_of(replace(worker, env={"EOS_MODE": "enabled"})).observe().declared.mode is Mode.ENABLED


class TestRestarting:
    def test_the_old_process_ends_before_the_new_one_starts(self, worker: WorkerDescription) -> None:
        host = started(worker)
        old = process_of(host.observe())
        heard: list[RestartEvent] = []
        began = time.time()
        new = restarted(host, on_event=heard.append)
        assert old is not None
        assert not old.is_alive()
        assert new.is_alive()
        assert process_of(host.observe()) == new
        assert [event.words for event in heard] == [
            f"stopping pid {old.pid}",
            f"pid {old.pid} has ended",
            f"started as pid {new.pid}",
        ]
        stopped, started_again = moments_of(heard)
        assert (stopped.moment, started_again.moment) == (Moment.STOPPED, Moment.STARTED)
        assert began <= stopped.at <= started_again.at <= time.time()
        assert started_again.at > new.started_at - 1.0

    def test_a_pid_file_that_names_the_child_of_the_start_script_has_both_stopped(
        self, worker: WorkerDescription
    ) -> None:
        host = started(replace(worker, start=(*worker.start, "wrap")))
        wrapper = first_process(worker)
        assert worker.pid_file is not None
        (child,) = [member for member in family_of(wrapper) if member != wrapper]
        worker.pid_file.write_text(f"{child.pid}\n")
        assert host.observe().obstacles == ()
        host.restart()
        assert not wrapper.is_alive()
        assert not child.is_alive()

    def test_a_worker_that_ends_at_once_is_reported_with_its_log_but_no_secret(self, worker: WorkerDescription) -> None:
        assert worker.log is not None
        worker.log.write_text("an earlier line\n")
        with pytest.raises(WorkerStartError) as caught:
            host_of(replace(worker, start=(*worker.start, "fail"))).restart()
        text = str(caught.value)
        assert "the worker found its settings wrong" in text
        assert "the end" in text
        assert "an earlier line" not in text
        assert "canary" not in text
        assert text.count("left out") == 2


class TestWhoeverDies:
    """The restart is one act: it ends in a running worker or in a recorded failure, whoever is killed meanwhile."""

    ROLLOUT = "20260101-preparing-abc"

    #: Restarts a worker as a controller does, and kills itself once its helper has begun.
    CONTROLLER = """
import json, os, signal, sys
from pathlib import Path, PurePosixPath
from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.rollout.hosts.beside_unit import Way
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import RestartRequest
from airflow_eos_provider.rollout.hosts.service.restart_act import ActingService
given = json.loads(sys.argv[1])
paths = {name: Path(given[name]) for name in ("config", "log", "pid_file")}
worker = WorkerDescription(url=given["url"], start=tuple(given["start"]), env=given["env"], **paths)
begin = ActingService.begin_act
def begin_and_die(*arguments):
    begin(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
ActingService.begin_act = begin_and_die
rollout, replaces, grace = sys.argv[2:]
host_of(worker).restart(RestartRequest(stop_grace_seconds=float(grace), rollout=rollout, replaces=replaces))
"""

    def killed_controller(self, worker: WorkerDescription, replaces: str, *, grace: float = 10.0) -> None:
        given = {
            "url": worker.url,
            "config": str(worker.config),
            "log": str(worker.log),
            "pid_file": str(worker.pid_file),
            "start": worker.start,
            "env": dict(worker.env),
        }
        arguments = [json.dumps(given), self.ROLLOUT, replaces, str(grace)]
        killed = subprocess.run([sys.executable, "-c", self.CONTROLLER, *arguments], timeout=60, check=False)
        assert killed.returncode == -signal.SIGKILL

    @staticmethod
    def record(worker: WorkerDescription) -> RestartRecord:
        record = StartedService(ThisMachine(), worker).look_at_act().record
        assert record is not None
        return record

    @staticmethod
    def helper(worker: WorkerDescription) -> processes.ProcessIdentity:
        """The process that carries the act out."""
        path = record_path(worker)
        assert path is not None
        found = processes.identify(int(re.findall(r"^helper (\d+)", path.read_text(), re.MULTILINE)[0]))
        assert found is not None
        return found

    def test_who_comes_after_the_end_takes_it_for_done_once(self, worker: WorkerDescription) -> None:
        host = started(worker)
        token = host.observe().start_token
        self.killed_controller(worker, token)
        wait_for(lambda: self.record(worker).phase is Phase.DONE)
        facts = host.observe()
        heard: list[RestartEvent] = []
        new = restarted(host, rollout=self.ROLLOUT, replaces=token, permit=forbid, on_event=heard.append)
        assert new == process_of(facts)
        assert [event.moment for event in moments_of(heard)] == [Moment.STOPPED, Moment.STARTED]
        assert [event.words for event in facts.restarted] == [event.words for event in moments_of(heard)]
        assert host.observe().restarted == ()
        again: list[str] = []
        restarted(host, rollout=self.ROLLOUT, replaces=token, permit=forbid, on_event=lambda e: again.append(e.words))
        assert again == [f"it was restarted already: pid {new.pid}"]

    @pytest.mark.parametrize("rollout", [ROLLOUT, "another"])
    def test_an_act_before_another_change_of_the_file_is_not_taken_for_this_one(
        self, worker: WorkerDescription, rollout: str
    ) -> None:
        host = started(worker)
        token = host.observe().start_token
        self.killed_controller(worker, token)
        wait_for(lambda: self.record(worker).phase is Phase.DONE)
        host.edit({MODE_PROPERTY: "preparing"}, expect=sha256(BEFORE))
        with pytest.raises(FencedError):
            host.restart(RestartRequest(rollout=rollout, replaces=token, permit=forbid))

    def test_a_start_that_failed_unseen_is_reported_to_who_comes_later(self, worker: WorkerDescription) -> None:
        host = started(worker)
        token = host.observe().start_token
        assert worker.config is not None
        worker.config.write_bytes(BEFORE + b"fail=yes\n")
        self.killed_controller(worker, token)
        wait_for(lambda: self.record(worker).phase is Phase.FAILED)
        with pytest.raises(WorkerStartError, match="found its settings wrong"):
            host.restart(RestartRequest(rollout=self.ROLLOUT, replaces=token, permit=forbid))

    def test_the_helper_is_nobodys_child_and_holds_no_secret(self, worker: WorkerDescription) -> None:
        worker = replace(worker, start=(*worker.start, "deaf"))
        host = started(worker)
        old = process_of(host.observe())
        assert old is not None
        self.killed_controller(worker, host.observe().start_token, grace=120.0)
        helper = self.helper(worker)
        view = ownership.look(helper.pid)
        assert view is not None
        assert view.session == helper.pid
        assert view.parent not in ownership.ancestors(os.getpid()) - {1} | {os.getpid()}
        assert "canary" not in repr(psutil.Process(helper.pid).cmdline()) + repr(psutil.Process(helper.pid).environ())
        record = record_path(worker)
        assert record is not None
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        assert "canary" not in record.read_text()
        os.kill(helper.pid, signal.SIGTERM)  # as Airflow or a shutdown may
        old.stop(kill=True)
        wait_for(lambda: self.record(worker).phase is Phase.DONE)

    def test_a_new_process_has_the_locale_of_its_controller_unless_described(
        self, worker: WorkerDescription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LC_ALL", "C.UTF-8")
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA", "canary-of-airflow")
        environment = psutil.Process(restarted(host_of(worker)).pid).environ()
        assert environment["LC_ALL"] == "C.UTF-8"
        assert "AIRFLOW_CONN_KAFKA" not in environment

    def test_a_new_process_has_the_limits_and_the_mask_of_the_one_it_replaces(self, worker: WorkerDescription) -> None:
        host = started(worker)
        old = process_of(host.observe())
        assert old is not None
        limits = {}
        for number, soft in (
            (resource.RLIMIT_NOFILE, 333),
            (resource.RLIMIT_CORE, 4096),
            (resource.RLIMIT_NPROC, 9999),
        ):
            limits[number] = (soft, resource.prlimit(old.pid, number)[1])
            resource.prlimit(old.pid, number, limits[number])
        mask = os.umask(0o077)
        try:
            new = restarted(host)
        finally:
            os.umask(mask)
        assert {number: resource.prlimit(new.pid, number) for number in limits} == limits
        assert "Umask:\t0022" in Path(f"/proc/{new.pid}/status").read_text()

    def test_where_the_helper_may_not_leave_the_unit_it_begins_within_and_that_is_said(
        self, worker: WorkerDescription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """systemd-run is not to be had where systemd has not booted; a program that fails as it does stands in."""
        denied = (sys.executable, "-c", "import sys; sys.exit('Failed to start transient scope unit: denied')")
        ways = lambda command: (Way((*denied, *command)), Way(command, "the restart stays within"))  # noqa: E731
        monkeypatch.setattr(this_machine, "ways_here", ways)
        events: list[str] = []
        assert restarted(host_of(worker), on_event=lambda event: events.append(event.words)).is_alive()
        assert events[0] == "the restart stays within"

    def test_a_helper_that_cannot_be_started_stops_nothing(
        self, worker: WorkerDescription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host = started(worker)
        before = host.observe().start_token
        monkeypatch.setattr(this_machine, "ways_here", lambda _command: (Way(("/nowhere/sh",)),))
        with pytest.raises(RefusedError, match="Nothing was stopped"):
            host.restart()
        assert host.observe().start_token == before

    def test_a_record_that_was_swept_away_is_no_failure_of_a_worker_that_runs_anew(
        self, worker: WorkerDescription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host = started(worker)
        token = host.observe().start_token
        follow = ActingService.follow_act

        def swept_away(acts: ActingService, *arguments: Any) -> RecordLook:
            look = follow(acts, *arguments)
            assert look.record is not None
            acts.forget_act(look.record)
            return replace(look, record=None)

        monkeypatch.setattr(ActingService, "follow_act", swept_away)
        assert restarted(host, rollout=self.ROLLOUT, replaces=token) == process_of(host.observe())

    def test_a_pid_file_that_names_another_process_than_the_listener_is_found(self, worker: WorkerDescription) -> None:
        """A supervisor has started its own copy, and ours has not noticed yet that its port is taken."""
        host = started(worker)
        assert worker.pid_file is not None
        sleeper = [sys.executable, "-c", "import time; time.sleep(60)", str(worker.config)]
        with subprocess.Popen(sleeper, start_new_session=True) as other:
            worker.pid_file.write_text(f"{other.pid}\n")
            (obstacle,) = host.observe().obstacles
            other.kill()
        assert "its port is held by" in obstacle.what.replace("the worker's port", "its port")
        assert f"pid {other.pid}" in obstacle.what


class TestSharing:
    """Two workers with one file, each with a start command, port, log and pid file of its own."""

    @pytest.fixture
    def pair(self, worker: WorkerDescription, tmp_path: Path) -> tuple[Host, Host]:
        (port,) = free_ports(1)
        other = replace(
            worker,
            url=f"http://127.0.0.1:{port}",
            log=tmp_path / "w2.log",
            pid_file=tmp_path / "w2.pid",
            start=(*worker.start[:-1], str(port)),
        )
        return started(worker), started(other)

    def test_one_write_changes_both_and_a_restart_is_single(self, pair: tuple[Host, Host]) -> None:
        first, second = pair
        before = second.observe()
        assert first.observe().edit == before.edit
        assert first.observe().start_token != before.start_token
        first.edit({MODE_PROPERTY: "preparing"}, expect=sha256(BEFORE))
        first.restart()
        after = second.observe()
        assert after.digest == first.observe().digest == sha256(AFTER)
        assert after.start_token == before.start_token, "only the first was restarted"
        assert (after.running.mode, after.declared.mode) == (Mode.DISABLED, Mode.PREPARING)

    def test_a_link_to_the_same_file_is_the_same_edit(self, worker: WorkerDescription, tmp_path: Path) -> None:
        link = tmp_path / "link.properties"
        link.symlink_to(worker.config)  # type: ignore[arg-type]
        assert host_of(replace(worker, config=link)).observe().edit == host_of(worker).observe().edit
