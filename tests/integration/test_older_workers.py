"""A group of Connect 3.9.2 and 3.8.1 (which has no ``/health``) on a broker of today: up, and back, under load.

A group with a worker of before KIP-618 is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.lab.jars.jars import class_path, ensure_jars
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.connect_worker import Worker
from airflow_eos_provider.lab.servers.part import write_properties
from airflow_eos_provider.lab.waiting import wait_for_group, wait_for_worker
from airflow_eos_provider.local_processes import from_pid_file, spawn
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.roll_settings import RolloutSettings

#: A heartbeat of these labs and a second; a look costs half a second.
SETTINGS = RolloutSettings(poll_interval_seconds=0.5, hold_seconds=1.3)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    """One worker of 3.9.2, which others join."""
    return lab_factory(
        LabOptions(name="older", workers=1, connect_version="3.9.2", rebalance_delay_ms=500, session_timeout_ms=6000)
    )


@contextmanager
def joined(lab: Lab, version: str, number: int) -> Iterator[Worker]:
    """A worker of this version in the lab's group."""
    jars = class_path(ensure_jars(version))
    worker = replace(lab.workers[0], number=number, port=free_ports(1)[0], class_path=jars, version=version)
    properties = worker.properties(
        bootstrap_servers=lab.bootstrap_servers,
        group_id=lab.group_id,
        mode=Mode.DISABLED,
        rebalance_delay_ms=lab.options.rebalance_delay_ms,
        session_timeout_ms=lab.options.session_timeout_ms,
    )
    write_properties(worker.config, properties)
    try:
        process = spawn(worker.start_command, log=worker.log, pid_file=worker.pid_file, cwd=lab.root)
        wait_for_worker(worker.url, process, worker.log)
        wait_for_group(lab.kafka, lab.group_id, members=number)
        yield worker
    finally:
        running = from_pid_file(worker.pid_file)  # another one than we have started, after a roll
        if running is not None:
            running.stop()


def described(lab: Lab, workers: Sequence[Worker], folder: Path) -> ConnectCluster:
    description = {
        "bootstrap_servers": lab.bootstrap_servers,
        "group_id": lab.group_id,
        "workers": [worker.description() for worker in workers],
    }
    file = folder / "eos.yaml"
    file.write_text(json.dumps(description), encoding="utf-8")
    return ConnectCluster.from_file(file)


def versions(workers: Sequence[Worker]) -> list[tuple[str, str]]:
    found = []
    for worker in workers:
        with ConnectRest(worker.url) as rest:
            found.append((rest.root().version, rest.health().status))
    return found


def test_a_group_with_a_worker_of_before_kip_618_is_refused(lab: Lab, tmp_path: Path) -> None:
    with joined(lab, "3.2.3", 2) as worker:
        workers = [lab.workers[0], worker]
        assert versions(workers) == [("3.9.2", "healthy"), ("3.2.3", "absent")]
        before = [one.config.read_bytes() for one in workers]
        with pytest.raises(RefusedError) as refused:
            Controller(described(lab, workers, tmp_path), settings=SETTINGS).plan(Mode.PREPARING)
        name = worker.url.removeprefix("http://")
        assert f"{name} runs Kafka Connect 3.2.3, exactly-once source support came with 3.3.0" in str(refused.value)
        assert "upgrade that worker first" in str(refused.value)
        assert [one.config.read_bytes() for one in workers] == before


def test_an_older_group_rolls_up_to_enabled_and_back(
    lab: Lab, load_on: Callable[[Lab, str], Any], tmp_path: Path
) -> None:
    with joined(lab, "3.8.1", 2) as worker:
        workers = [lab.workers[0], worker]
        assert versions(workers) == [("3.9.2", "healthy"), ("3.8.1", "absent")]
        cluster = described(lab, workers, tmp_path)
        controller = Controller(cluster, settings=SETTINGS)

        with load_on(lab, "lines") as load:
            controller.apply(controller.plan(Mode.PREPARING))
            enabled_at = controller.apply(controller.plan(Mode.ENABLED)).finished_at_ms
            controller.verify(Mode.ENABLED)
            seen = load.compared(since_ms=enabled_at)
        assert seen.exactly_once, seen

        # As another "eos apply": the first one's memory has "lines" as a source that moves, and its input has ended.
        controller = Controller(cluster, settings=SETTINGS)
        with load_on(lab, "more") as load:
            controller.apply(controller.plan(Mode.DISABLED))
            controller.verify(Mode.DISABLED)
            seen = load.compared()
        assert seen.nothing_missing, seen
        for one in workers:
            assert parse(one.config.read_bytes())[MODE_PROPERTY] == "disabled"
        assert "started with disabled" in controller.observe().workers[0].mode.reason
