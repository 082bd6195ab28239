"""Rolls over SSH under load: systemd units on machines of their own, up by Airflow and back by two machines.

All on one lab. The second test begins in the mode in which the first one ends; alone, it rolls there first. The first
step of the upgrade, which Airflow takes in the demo, is taken over SSH in ``test_ssh_faults.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import Lease, RolloutState, StepStatus
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.airflow import AirflowLab, AirflowOptions, database_name, wait_for_dag
from airflow_eos_provider.lab.servers.airflow_rest import FINAL_STATES, AirflowRest
from airflow_eos_provider.lab.servers.postgres import Postgres
from tests.lab.lab import TestLabOptions
from tests.lab.machine import Machine
from tests.lab.machine_login import MachineLogin
from tests.lab.machine_root import LOGIN_USER
from tests.lab.machine_worker import MachineWorker
from tests.secret_search import CommandLines, Found, search_database, search_files, search_topics
from tests.seen import modes
from tests.sshd import public
from tests.system.components import has_heard_of_the_end, tries
from tests.system.modes import bring_to
from tests.waiting import API_PAUSE_SECONDS, until

pytestmark = pytest.mark.timeout(1800)

DAGS = Path(__file__).parents[2] / "dags"
DAG_ID = "connect_exactly_once_upgrade"

REFUSED = 3

#: How long a roll, or a task of Airflow's, is waited for, seconds.
ROLL_SECONDS = 400.0

#: A lease that ends soon after its controller: it has to be longer than a stop with its grace.
SHORT_LEASE = ("--stop-grace", "5", "--lease-seconds", "50")


@pytest.fixture(scope="module")
def lab(machines: None, lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(
        TestLabOptions(
            name="ssh-roll", machines=2, mode=Mode.PREPARING, rebalance_delay_ms=1000, session_timeout_ms=6000
        )
    )


def machine_workers(lab: Lab) -> list[MachineWorker]:
    return [worker for worker in lab.workers if isinstance(worker, MachineWorker)]


def starts(lab: Lab) -> dict[str, int]:
    """How often each worker was started so far, by the journal of its machine."""
    script = 'journalctl -q -o cat -u "$1" | grep -c "Kafka Connect worker initializing"'
    return {
        worker.machine.name: int(worker.machine.run(["sh", "-c", script, "sh", worker.unit]).stdout)
        for worker in machine_workers(lab)
    }


def files(lab: Lab) -> set[str]:
    """The mode in each worker's file."""
    return {parse(worker.config_bytes())[MODE_PROPERTY] for worker in machine_workers(lab)}


def once_more(before: dict[str, int]) -> dict[str, int]:
    return {name: count + 1 for name, count in before.items()}


# by Airflow


@pytest.fixture(scope="module")
def airflow(lab: Lab, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowLab]:
    """An Airflow whose connections name the workers' machines; they stand in its database, as an admin enters them."""
    folder, dags = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags")
    shutil.copy(DAGS / "connect.py", dags)
    environment = {
        "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",
        "AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION": "True",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    }
    options = AirflowOptions(folder=folder, dags_folder=dags, postgres=postgres, environment=environment)
    airflow = AirflowLab.start(options)
    try:
        with airflow.rest() as rest:
            for connection in connections(lab):
                rest._write("POST", "/api/v2/connections", content=connection)
            wait_for_dag(airflow, DAG_ID, 300)
            rest.unpause(DAG_ID)
        yield airflow
    finally:
        airflow.stop()


def connections(lab: Lab) -> Iterator[dict[str, object]]:
    """One connection of type ``ssh`` for each machine, and the cluster's, which names them."""
    described = yaml.safe_load(lab.cluster_file.read_text(encoding="utf-8"))
    for machine, worker in zip(lab.machines, described["workers"], strict=True):
        conn_id = f"ssh_{machine.name}".replace("-", "_")
        login = {
            "private_key": MachineLogin(lab.root).key.read_text(encoding="ascii"),
            "host_key": public(machine.host_key),
        }
        yield {
            "connection_id": conn_id,
            "conn_type": "ssh",
            "host": machine.host,
            "port": machine.ssh_port,
            "login": LOGIN_USER,
            "extra": json.dumps(login),
        }
        worker["machine"] = {"conn_id": conn_id, "sudo": worker["machine"]["sudo"]}
    yield {"connection_id": "kafka_connect_default", "conn_type": "kafka_connect", "extra": json.dumps(described)}


def approve_until_it_ends(airflow: AirflowLab, rest: AirflowRest, run: str) -> list[str]:
    """Approve each plan once its question is parked.

    :returns: the texts that were shown.
    """
    shown: dict[str, str] = {}

    def has_ended() -> bool:
        for action in rest.required_actions(DAG_ID, run):
            # An answer that comes earlier costs a second try, see PlanApprovalOperator.
            if action.task_id not in shown and has_heard_of_the_end(airflow, run, action.task_id):
                shown[action.task_id] = action.body
                rest.answer(DAG_ID, run, action, "Approve")
        return rest.run_state(DAG_ID, run) in FINAL_STATES

    until(has_ended, "the end of the DAG's run", seconds=ROLL_SECONDS, pause=API_PAUSE_SECONDS)
    return list(shown.values())


def log_of(rest: AirflowRest, run: str, task: str) -> str:
    """Of all tries of a task."""
    (last,) = [one.try_number for one in rest.task_instances(DAG_ID, run) if one.task_id == task]
    logs = [rest.log(DAG_ID, run, task, 1 + number) for number in range(last)]
    return "\n".join(line.text for log in logs for line in log)


def key_lines(lab: Lab) -> dict[str, str]:
    """The lines of the login's private key that hold what is private."""
    lines = MachineLogin(lab.root).key.read_text(encoding="ascii").splitlines()
    assert lines[0] == "-----BEGIN OPENSSH PRIVATE KEY-----"
    return {f"line {number} of the private key": lines[number] for number in (3, 4)}


def test_the_dag_rolls_two_units_up_to_enabled_by_connections_of_type_ssh_and_shows_no_key(
    lab: Lab, postgres: Postgres, airflow: AirflowLab, load_on: Callable[[Lab, str], Any]
) -> None:
    bring_to(lab, Mode.PREPARING)
    before = starts(lab)
    found = Found(key_lines(lab))
    with CommandLines(found), load_on(lab, "by-dag") as load, airflow.rest() as rest:
        run = rest.trigger(DAG_ID)
        (shown,) = approve_until_it_ends(airflow, rest, run)
        assert rest.run_state(DAG_ID, run) == "success", tries(rest, DAG_ID, run)
        skipped = {task.task_id for task in rest.task_instances(DAG_ID, run) if task.state == "skipped"}
        log = log_of(rest, run, "roll_enabled")
        enabled_at = int(time.time() * 1000)
        assert modes(lab) == {Mode.ENABLED}
        seen = load.compared(since_ms=enabled_at)
    assert seen.exactly_once, seen
    assert skipped == {f"{part}_preparing" for part in ("plan", "approve", "roll", "verify")}
    assert "+exactly.once.source.support=enabled" in shown
    assert starts(lab) == once_more(before)
    assert log.count("gate passed after") == 2
    assert "Continuing: seen remotely, the gate's answer is pass" in log

    search_files(found, [airflow.folder, lab.root])
    search_topics(found, lab)
    search_database(found, postgres, database_name(airflow.folder))
    assert min(found.looked_at[kind] for kind in ("files", "records", "rows", "command lines")) > 0
    assert found.looked_at["files"] > 10
    # Where it was put, and nowhere else: Airflow encrypts its connections.
    assert found.places() == {str(MachineLogin(lab.root).key)}


# by a machine that dies


class ControllerMachine:
    """``eos`` on one machine of the lab; a folder of both machines holds its cluster file and its login."""

    def __init__(self, lab: Lab, machine: Machine) -> None:
        self._machine = machine
        self.folder = lab.data_dir / "controller"
        self.folder.mkdir(mode=0o700)
        login = MachineLogin(lab.root)
        for file in (login.key, login.known_hosts):
            shutil.copy(file, self.folder)
        config = self.folder / login.config.name
        text = login.config.read_text(encoding="utf-8")
        config.write_text(text.replace(f"{lab.root}/", f"{self.folder}/"), encoding="utf-8")
        described = lab.cluster_file.read_text(encoding="utf-8").replace(str(login.config), str(config))
        self.cluster_file = self.folder / "eos.yaml"
        self.cluster_file.write_text(described, encoding="utf-8")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        enter = ["nsenter", "-t", str(self._machine.pid1), "-m", "-p", "-u", "-i", "-r", "-w", "--"]
        program = [sys.executable, "-m", "airflow_eos_provider.cli", *arguments]
        return subprocess.Popen(
            [*enter, "env", f"--chdir={self.folder}", f"EOS_CLUSTER={self.cluster_file}", *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": os.defpath, "HOME": "/root", "LANG": "C.UTF-8", "COLUMNS": "200"},
        )


@contextmanager
def on(machine: Machine) -> Iterator[None]:
    """The machine is on again after the block, whatever happens in it."""
    try:
        yield
    finally:
        machine.power_on()


def test_the_controllers_own_machine_dies_in_mid_roll_and_another_one_goes_on(
    lab: Lab, eos_of: Callable[[Lab, Path], Any], load_on: Callable[[Lab, str], Any]
) -> None:
    """On the way back: what the killed worker had sent and not committed may be there twice, and nothing is missing."""
    bring_to(lab, Mode.ENABLED)
    machine = lab.machines[0]
    there = ControllerMachine(lab, machine)
    here = eos_of(lab, there.folder)
    described = ("--cluster", str(there.cluster_file))
    before = starts(lab)

    def lease() -> Lease:
        found = read_journal(lab.cluster().kafka, lab.group_id).lease
        assert found is not None
        return found

    with load_on(lab, "dead-machine") as load:
        plan = json.loads(here.run("plan", "--to", "preparing", "--json", *described).stdout)["hash"]
        first = there.start("apply", "--plan", plan, *SHORT_LEASE)
        with on(machine), here.line_in_log(first, "gate passed"):
            machine.power_off()
            assert first.wait(180) != 0
        journal = read_journal(lab.cluster().kafka, lab.group_id)
        rollout = journal.unfinished(plan)
        assert rollout is not None
        passed = {s.worker_id for s in journal.steps[rollout.rollout_id].values() if s.status is StepStatus.PASSED}
        assert len(passed) == 1

        assert not lease().owner.is_proven_dead
        refusal = here.run("apply", "--plan", plan, *SHORT_LEASE, *described, expect=REFUSED)
        assert f"on {machine.name}" in refusal.stderr
        assert "Its lease runs until" in refusal.stderr

        lab.start_worker(0)
        until(lambda: not lease().is_held(time.time()), "the end of the dead controller's lease", seconds=120)
        report = json.loads(here.run("apply", "--plan", plan, *SHORT_LEASE, *described, "--json").stdout)["report"]
        assert report["resumed"] is True
        assert report["rollout_id"] == rollout.rollout_id
        assert modes(lab) == {Mode.PREPARING}
        seen = load.compared()
    assert seen.nothing_missing, seen
    assert files(lab) == {"preparing"}
    assert read_journal(lab.cluster().kafka, lab.group_id).rollouts[rollout.rollout_id].state is RolloutState.DONE
    # Each worker is restarted once by the roll; that of the dead machine was started by its boot besides.
    since = {name: count - before[name] for name, count in starts(lab).items()}
    assert since.pop(machine.name) in (2, 3)
    assert set(since.values()) == {1}
