"""Real workers behind a supervisor of the tests' own, rolled by what rolls processes: one write, single restarts.

The supervisor has one properties file for both workers; what differs comes from each worker's variables, by Connect's
own config provider.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster, WorkerDescription
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import Declared, Running, declare
from airflow_eos_provider.connect.properties import parse, remove_property, set_property
from airflow_eos_provider.errors import GateFailedError, PlanMovedError
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.waiting import is_healthy, wait_for_group
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.hosts.host import Edit, HostFacts, RestartRequest, StartToken, WorkerStartError
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.machine.worker_log import startup_mode
from airflow_eos_provider.rollout.settings import RolloutSettings
from tests.integration import supervisor as program
from tests.waiting import until

GROUP = "supervised"


class Supervisor:
    """Speaks to the supervisor; keeps no state but what was in the template before the last write.

    :param refused: a file with lines; a worker does not start while the template has one of them.
    """

    def __init__(self, port: int, refused: Path) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.refused = refused
        self.done: list[str] = []
        self.former = b""

    def template(self) -> bytes:
        return self._ask("GET", "/template")

    def write(self, data: bytes, *, expect: str) -> str:
        before = self.template()
        if digest(before) != expect:
            raise PlanMovedError("The template was edited.")
        self.former = before
        self.done.append("write")
        self._ask("PUT", "/template", data)
        return digest(data)

    def state(self, worker_id: str) -> dict[str, Any]:
        return dict(json.loads(self._ask("GET", f"/workers/{worker_id}")))

    def restart(self, worker_id: str) -> None:
        self.done.append(f"restart {worker_id}")
        self._ask("POST", f"/workers/{worker_id}", b"")

    def _ask(self, method: str, path: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(self._url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=2 * program.STOP_SECONDS) as answer:
            return bytes(answer.read())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def changed(data: bytes, properties: Mapping[str, str | None]) -> bytes:
    for name, value in properties.items():
        data = remove_property(data, name) if value is None else set_property(data, name, value)
    return data


@dataclass
class SupervisedHost:
    """One worker of the supervisor; a restart is the supervisor's own verb."""

    supervisor: Supervisor
    worker_id: str

    def observe(self) -> HostFacts:
        seen, data = self.supervisor.state(self.worker_id), self.supervisor.template()
        properties = parse(data)
        log = PurePosixPath(seen["log"])
        startup = startup_mode(ThisMachine(), log, seen["started_at"], zone=None, sudo=False)
        run = f"run {seen['run']}" if seen["is_running"] else ""
        return HostFacts(
            worker_id=self.worker_id,
            edit=Edit("template connect", kind="settings"),
            digest=digest(data),
            declared=declare(properties, modified_at=seen["edited_at"], changed_at=seen["edited_at"]),
            running=Running(startup.mode, startup.detail, seen["started_at"], seen["is_running"], reads_file=True),
            properties=properties,
            is_running=seen["is_running"],
            started_at=seen["started_at"] if run else None,
            start_token=StartToken(f"{self.worker_id} {run}" if run else ""),
            runs_as=run,
            log=seen["log"],
        )

    def unseen(self, why: str) -> HostFacts:
        edit = Edit("template connect", kind="settings")
        return HostFacts(self.worker_id, edit, None, Declared(None, why, None), Running(None, why, None, None))

    def digest_with(self, properties: Mapping[str, str | None]) -> str:
        return digest(changed(self.supervisor.template(), properties))

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        return self.supervisor.write(changed(self.supervisor.template(), properties), expect=expect)

    def restore(self, *, expect: str, original: str) -> None:
        if digest(self.supervisor.template()) != original:
            assert self.supervisor.write(self.supervisor.former, expect=expect) == original

    def restart(self, request: RestartRequest = RestartRequest()) -> None:  # noqa: B008 (frozen)
        request.permit("stop")
        self.supervisor.restart(self.worker_id)
        seen: list[HostFacts] = []

        def has_begun_or_ended() -> bool:
            seen[:] = [self.observe()]
            return not seen[0].is_running or seen[0].running.mode is not None

        until(has_begun_or_ended, f"the mode in the log of {self.worker_id}, or its end", seconds=60)
        if not seen[0].is_running:
            raise WorkerStartError(f"{self.worker_id} ended at once")


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """A broker, and one worker to take the start command from."""
    return lab_factory(name="host", workers=1)


@pytest.fixture
def cluster(lab: Lab) -> ConnectCluster:
    """Two workers of a group of their own, on the lab's broker; nothing of them is described but their addresses."""
    workers = tuple(WorkerDescription(f"http://127.0.0.1:{port}") for port in free_ports(2))
    described = lab.cluster()
    return ConnectCluster(described.kafka, GROUP, described.rest, workers)


@pytest.fixture
def supervisor(lab: Lab, cluster: ConnectCluster, tmp_path: Path) -> Iterator[Supervisor]:
    like = lab.workers[0]
    template = tmp_path / "template.properties"
    data = changed(
        like.config.read_bytes(),
        {
            "group.id": GROUP,
            **{f"{topic}.storage.topic": f"{GROUP}-{topic}" for topic in ("config", "offset", "status")},
            "config.providers": "env",
            "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            "listeners": "http://127.0.0.1:${env:WORKER_PORT}",
            "rest.advertised.port": "${env:WORKER_PORT}",
            "scheduled.rebalance.max.delay.ms": "200",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            MODE_PROPERTY: "disabled",
        },
    )
    template.write_bytes(data)
    start = [str(template) if word == str(like.config) else word for word in like.start_command]
    assert str(template) in start
    refused = tmp_path / "refused"
    refused.touch()
    guarded = ["/bin/sh", "-c", 'grep -qxf "$0" "$1" && exit 1; shift; exec "$@"', str(refused), str(template), *start]
    workers = {
        worker.worker_id: {
            "start": guarded,
            "env": {"PATH": os.environ["PATH"], "WORKER_PORT": worker.url.rpartition(":")[2]},
            "log": str(tmp_path / f"{number}.log"),
        }
        for number, worker in enumerate(cluster.workers)
    }
    specification = json.dumps({"template": str(template), "workers": workers})
    process = subprocess.Popen(
        [sys.executable, program.__file__, specification], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield Supervisor(int(process.stdout.readline()), refused)
    finally:
        process.communicate(timeout=3 * program.STOP_SECONDS)  # closes its standard input: it ends with its workers


def test_workers_behind_a_supervisor_are_rolled_with_one_write_of_their_shared_settings(
    supervisor: Supervisor, cluster: ConnectCluster
) -> None:
    """If the second worker fails, they are restored for both; applied again, the roll does not restart the first."""
    for worker in cluster.workers:
        supervisor.restart(worker.worker_id)
    wait_for_group(cluster.kafka, GROUP, members=2)
    until(lambda: all(is_healthy(worker.url) for worker in cluster.workers), "both workers healthy", seconds=180)
    supervisor.done.clear()
    original = supervisor.template()

    def refuse_further_starts(line: str) -> None:
        if "gate passed" in line:
            supervisor.refused.write_text(f"{MODE_PROPERTY}=preparing\n", encoding="ascii")

    controller = Controller(
        cluster,
        settings=RolloutSettings(polls=2, poll_interval_seconds=0.3, hold_seconds=1.0),
        hosts=lambda worker: SupervisedHost(supervisor, worker.worker_id),
        report=refuse_further_starts,
    )
    plan = controller.plan(Mode.PREPARING)
    both = sorted(worker.worker_id for worker in cluster.workers)
    assert plan.diff()[0] == f"--- template connect  ({', '.join(both)})"
    with pytest.raises(GateFailedError) as failed:
        controller.apply(plan)
    first, second = (done.removeprefix("restart ") for done in supervisor.done[1:3])
    assert {first, second} == set(both)
    assert supervisor.done == ["write", f"restart {first}", f"restart {second}", "write", f"restart {second}"]
    assert f"{second} ended at once" in str(failed.value)
    assert "it runs with it as a healthy member" in str(failed.value)
    assert f"restored for all of them: {first} runs preparing" in str(failed.value)
    assert supervisor.template() == original
    running = {worker.worker_id: worker.mode.verdict.mode for worker in controller.observe().workers}
    assert running == {first: Mode.PREPARING, second: Mode.DISABLED}

    supervisor.refused.write_text("", encoding="ascii")
    supervisor.done.clear()
    controller.apply(plan)

    assert supervisor.done == ["write", f"restart {second}"]
    assert controller.verify(Mode.PREPARING).verdict == "pass"
    runs = {worker.worker_id: worker.facts.runs_as for worker in controller.observe().workers}
    assert runs == {first: "run 2", second: "run 4"}
