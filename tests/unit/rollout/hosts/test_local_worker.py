"""A worker of this machine that nobody owns, with real files and real processes: what differs from other machines.

For what holds on all of them see ``service/test_started.py``; for a real worker ``tests/integration/``.
"""

from __future__ import annotations

import hashlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import psutil
import pytest

from airflow_eos_provider import local_processes
from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import Observed, judge
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.rollout.hosts.beside_unit import Way
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import Host, HostFacts, RestartRequest, WorkerStartError
from airflow_eos_provider.rollout.hosts.machine import this_machine
from airflow_eos_provider.rollout.hosts.machine.properties_file import PropertiesFile
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.service import started as started_module
from airflow_eos_provider.rollout.hosts.service.restart_act import (
    ActingService,
    RecordLook,
)
from airflow_eos_provider.rollout.hosts.service.started import StartedService
from tests.families import family_of
from tests.unit.rollout.hosts.service.supervisors import end_workers, is_listening, worker_in
from tests.waiting import until

BEFORE = b"# the worker\ngroup.id=g\nexactly.once.source.support=disabled\nssl.key.password=canary-in-the-file\n"
AFTER = BEFORE.replace(b"disabled", b"preparing")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerDescription]:
    made = worker_in(tmp_path)
    made.config.write_bytes(BEFORE)
    yield replace(made, pid_file=tmp_path / "w1.pid", env={"WORKER_PASSWORD": "canary-in-the-environment"})
    end_workers(made.start)


def started(worker: WorkerDescription) -> Host:
    host = host_of(worker)
    host.restart()
    until(lambda: is_listening(worker), "the worker", seconds=120)
    return host


def process_of(facts: HostFacts) -> local_processes.ProcessIdentity | None:
    """The worker's process; of one behind a wrapper, that one."""
    pid = facts.details["pid"]
    return local_processes.identify(pid) if isinstance(pid, int) else None


def restarted(host: Host, **arguments: Any) -> local_processes.ProcessIdentity:
    """The process that a restart has started."""
    host.restart(RestartRequest(**arguments))
    found = process_of(host.observe())
    assert found is not None
    return found


class TestSeeing:
    def test_a_running_worker_shows_its_process_and_what_it_started_with(self, worker: WorkerDescription) -> None:
        before = time.time()
        host = started(worker)
        facts = host.observe()
        assert facts.problem is None
        assert facts.digest == sha256(BEFORE)
        assert facts.properties["group.id"] == "g"
        assert facts.declared.mode is Mode.DISABLED
        assert process_of(facts) is not None
        assert facts.running.alive is True
        assert facts.running.mode is Mode.DISABLED
        assert facts.running.reads_file is True
        assert facts.running.started_at is not None
        assert before - 0.02 <= facts.running.started_at <= time.time()

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

    def test_a_process_started_with_another_file_is_told_apart(self, worker: WorkerDescription, tmp_path: Path) -> None:
        started(worker)
        other = tmp_path / "other.properties"
        other.write_bytes(AFTER)
        facts = host_of(replace(worker, config=other)).observe()
        assert facts.running.reads_file is False

    def test_another_process_on_the_port_is_named_and_no_worker_called_stopped(self, worker: WorkerDescription) -> None:
        with socket.create_server(("127.0.0.1", int(worker.start[3]))):
            facts = host_of(worker).observe()
        assert process_of(facts) is None
        assert facts.running.alive is None
        assert f"process {os.getpid()}" in facts.running.detail

    def test_an_unreadable_or_malformed_file_declares_nothing(self, worker: WorkerDescription) -> None:
        worker.config.write_bytes(b"a=\\u12\n")
        facts = host_of(worker).observe()
        assert facts.declared.mode is None
        assert "malformed" in facts.problem

    def test_nothing_secret_is_shown(self, worker: WorkerDescription) -> None:
        host = started(worker)
        shown = repr(host.observe()) + repr(
            PropertiesFile(ThisMachine(), PurePosixPath(worker.config), sudo=False).read()
        )  # type: ignore[arg-type]
        assert "disabled" in shown
        assert "canary" not in shown

    def test_a_mode_from_the_environment_is_read_from_the_process(self, worker: WorkerDescription) -> None:
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
        process_found.stop(kill=True)
        assert host_of(worker).observe().declared.mode is None
        assert host_of(replace(worker, env={"EOS_MODE": "enabled"})).observe().declared.mode is Mode.ENABLED


class TestRestarting:
    def test_a_pid_file_that_names_the_child_of_the_start_script_has_both_stopped(
        self, worker: WorkerDescription
    ) -> None:
        host = started(replace(worker, start=(*worker.start, "wrap")))
        assert worker.pid_file is not None
        wrapper = local_processes.from_pid_file(worker.pid_file)
        assert wrapper is not None
        (child,) = [member for member in family_of(wrapper) if member != wrapper]
        worker.pid_file.write_text(f"{child.pid}\n")
        assert host.observe().obstacles == ()
        host.restart()
        assert not wrapper.is_alive()
        assert not child.is_alive()

    def test_a_worker_that_ends_at_once_is_reported_with_its_log_but_no_secret(self, worker: WorkerDescription) -> None:
        worker.log.write_text("an earlier line\n")
        with pytest.raises(WorkerStartError) as caught:
            host_of(replace(worker, start=(*worker.start, "fail"))).restart()
        text = str(caught.value)
        assert "the worker found its settings wrong" in text
        assert "the end" in text
        assert "an earlier line" not in text
        assert "canary" not in text
        assert "left out" in text

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
        assert restarted(host, rollout="r", replaces=token) == process_of(host.observe())

    def test_a_pid_file_that_names_another_process_than_the_listener_is_found(self, worker: WorkerDescription) -> None:
        """A supervisor has started its own copy, and ours has not noticed yet that its port is taken."""
        host = started(worker)
        sleeper = [sys.executable, "-c", "import time; time.sleep(60)", str(worker.config)]
        with subprocess.Popen(sleeper, start_new_session=True) as other:
            worker.pid_file.write_text(f"{other.pid}\n")
            (obstacle,) = host.observe().obstacles
            other.kill()
        assert "its port is held by" in obstacle.what.replace("the worker's port", "its port")
        assert f"pid {other.pid}" in obstacle.what

    def test_a_worker_that_closes_its_port_while_it_is_looked_at_has_no_rival(
        self, worker: WorkerDescription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker.pid_file.write_text(f"{os.getpid()}\n")
        opened = started_module._open_files
        with socket.create_server(("127.0.0.1", int(worker.start[3]))) as listener:

            def after_the_end(pid: int) -> Iterator[str]:
                listener.close()
                return opened(pid)

            monkeypatch.setattr(started_module, "_open_files", after_the_end)
            facts = StartedService(ThisMachine(), worker).look()
        assert (listener.fileno(), facts.held_by) == (-1, "")


def test_a_link_to_the_same_file_is_the_same_edit(worker: WorkerDescription, tmp_path: Path) -> None:
    link = tmp_path / "link.properties"
    link.symlink_to(worker.config)  # type: ignore[arg-type]
    assert host_of(replace(worker, config=link)).observe().edit == host_of(worker).observe().edit
