"""Real workers of this machine: one that refuses its settings, and two that are started with one properties file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster, WorkerDescription
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.errors import GateFailedError
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.waiting import is_healthy, wait_for_group
from airflow_eos_provider.local_processes import from_pid_file
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import WorkerStartError
from airflow_eos_provider.rollout.hosts.service import restart_act
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.families import stop_family
from tests.waiting import until

GROUP = "sharing"

#: Its arguments: a file to which each start adds a line, the properties file, one with lines with which it does not
#: start, and the worker's own start command.
GUARD = 'echo start >>"$0"; grep -qxf "$2" "$1" && exit 1; shift 2; exec "$@"'


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="local-worker", workers=1, mode=Mode.DISABLED, rebalance_delay_ms=1000)


def test_a_worker_that_refuses_its_settings_is_reported_with_what_its_log_says(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_act, "EARLY_END_SECONDS", 120.0)  # a JVM on a busy machine needs its time to end
    (worker,) = lab.cluster().workers
    assert worker.config is not None
    host = host_of(worker)
    good = worker.config.read_bytes()
    bad = set_property(set_property(good, MODE_PROPERTY, "nonsense"), "ssl.key.password", "canary")
    worker.config.write_bytes(bad)
    try:
        with pytest.raises(WorkerStartError) as caught:
            host.restart()
        assert "nonsense" in str(caught.value)
        assert "canary" not in str(caught.value)
        facts = host.observe()
        assert "would not start" in facts.declared.detail
        assert facts.running.alive is False
    finally:
        worker.config.write_bytes(good)
        host.restart()
        until(lambda: is_healthy(worker.url), "the worker healthy", seconds=600)
    assert host.observe().running.mode is Mode.DISABLED


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    """A file with lines; a worker does not start while its properties file has one of them."""
    file = tmp_path / "refused"
    file.touch()
    return file


@pytest.fixture
def cluster(lab: Lab, refused: Path, tmp_path: Path) -> Iterator[ConnectCluster]:
    """Two workers of a group of their own, on the lab's broker, with one file and variables that differ."""
    like, shared = lab.workers[0], tmp_path / "shared.properties"
    data = like.config.read_bytes()
    for name, value in {
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
    }.items():
        data = set_property(data, name, value)
    shared.write_bytes(data)
    start = [str(shared) if word == str(like.config) else word for word in like.start_command]
    assert str(shared) in start
    workers = tuple(
        WorkerDescription(
            f"http://127.0.0.1:{port}",
            config=shared,
            log=tmp_path / f"{port}.log",
            pid_file=tmp_path / f"{port}.pid",
            start=("/bin/sh", "-c", GUARD, str(tmp_path / f"{port}.starts"), str(shared), str(refused), *start),
            env={"WORKER_PORT": str(port)},
        )
        for port in free_ports(2)
    )
    described = lab.cluster()
    yield ConnectCluster(described.kafka, GROUP, described.rest, workers)
    for worker in workers:
        if worker.pid_file is not None and (process := from_pid_file(worker.pid_file)) is not None:
            stop_family(process, grace_seconds=0.5)


def starts(cluster: ConnectCluster) -> list[int]:
    """How often each worker was started so far."""
    return [Path(worker.start[3]).read_text().count("start") for worker in cluster.workers]


def test_workers_are_rolled_with_one_write_of_their_shared_file(cluster: ConnectCluster, refused: Path) -> None:
    """If the second worker fails, it is restored for both; applied again, the roll does not restart the first."""
    for worker in cluster.workers:
        host_of(worker).restart()
    wait_for_group(cluster.kafka, GROUP, members=2)
    until(lambda: all(is_healthy(worker.url) for worker in cluster.workers), "both workers healthy", seconds=180)
    shared = cluster.workers[0].config
    assert shared is not None
    original = shared.read_bytes()

    def refuse_further_starts(line: str) -> None:
        if "gate passed" in line:
            refused.write_text(f"{MODE_PROPERTY}=preparing\n", encoding="ascii")

    settings = RolloutSettings(polls=2, poll_interval_seconds=0.3, hold_seconds=1.0)
    controller = Controller(cluster, settings=settings, report=refuse_further_starts)
    plan = controller.plan(Mode.PREPARING)
    both = sorted(worker.worker_id for worker in cluster.workers)
    assert [line for line in plan.diff() if line.startswith("---")] == [f"--- {shared}  ({', '.join(both)})"]
    with pytest.raises(GateFailedError) as failed:
        controller.apply(plan)
    count = dict(zip((worker.worker_id for worker in cluster.workers), starts(cluster), strict=True))
    first, second = sorted(count, key=lambda each: count[each])
    assert count == {first: 2, second: 3}  # the second was refused, and then started with what was put back
    assert "ended right after its start" in str(failed.value)
    assert "it runs with it as a healthy member" in str(failed.value)
    assert f"restored for all of them: {first} runs preparing" in str(failed.value)
    assert shared.read_bytes() == original
    running = {worker.worker_id: worker.mode.verdict.mode for worker in controller.observe().workers}
    assert running == {first: Mode.PREPARING, second: Mode.DISABLED}

    refused.write_text("", encoding="ascii")
    controller.apply(plan)
    assert sorted(starts(cluster)) == [2, 4]
    assert controller.verify(Mode.PREPARING).verdict == "pass"
