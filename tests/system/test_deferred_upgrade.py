"""The upgrade in a real Airflow, deferred at its gates, while each process of Airflow is killed under it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import LeaseHeldError, UnreachableError
from airflow_eos_provider.lab.airflow import AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.airflow_rest import AirflowRest, AirflowRestError, LogCursor
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.processes import identify, spawn
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.journal import JournalContent, read_journal
from airflow_eos_provider.rollout.plan import Plan
from airflow_eos_provider.rollout.records import Lease, RolloutState
from tests import seen

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DAG_ID = "deferred_upgrade"
DEADLINE_SECONDS = 240.0


@dataclass
class Upgrade:
    """One run of the upgrade DAG, and what it does to the workers."""

    lab: Lab
    airflow: AirflowLab
    rest: AirflowRest
    run_id: str

    # what is seen

    def journal(self) -> JournalContent:
        return read_journal(self.lab.cluster().kafka, self.lab.group_id)

    def lease(self) -> Lease | None:
        return self.journal().lease

    def starts(self) -> dict[str, int]:
        return seen.starts(self.lab)

    def modes(self) -> set[Mode | None]:
        return seen.modes(self.lab)

    def task(self, task_id: str) -> tuple[str | None, int]:
        """State and number of tries."""
        tasks = self.rest.task_instances(DAG_ID, self.run_id)
        return next((task.state, task.try_number) for task in tasks if task.task_id == task_id)

    def log(self, task_id: str, try_number: int = 1) -> str:
        cursor = LogCursor(DAG_ID, self.run_id, task_id, try_number)
        return "\n".join(line.text for line in self.rest.new_log_lines(cursor))

    # what is waited for

    def approve(self, mode: str) -> None:
        def asked() -> Any:
            return self.rest.required_actions(DAG_ID, self.run_id)

        wait_for(f"the question for {mode}", asked)
        time.sleep(2)  # an answer that comes at once costs a second try, see test_quick_approvals.py
        (action,) = asked()
        assert action.task_id == f"approve_{mode}"
        self.rest.answer(DAG_ID, self.run_id, action, "Approve")

    def deferred(self, task_id: str, unlike: str = "") -> Lease:
        """The lease, once the task is deferred at another gate than ``unlike``."""
        name = f"{DAG_ID}/{self.run_id}/{task_id}"

        def at_a_gate() -> bool:
            lease = self.lease()
            left = lease is not None and lease.belongs_to(name) and lease.owner.token != unlike
            return left and self.task(task_id)[0] == "deferred"

        wait_for(f"{task_id} to defer", at_a_gate)
        lease = self.lease()
        assert lease is not None
        return lease

    def ended(self, task_id: str) -> tuple[str | None, int]:
        wait_for(f"the end of {task_id}", lambda: self.task(task_id)[0] in ("success", "failed"))
        return self.task(task_id)

    # what is done to it

    def environment(self) -> dict[str, str]:
        """What each component was started with; those that rename themselves do not show it any more."""
        return self._main("triggerer").environ()

    def kill(self, component: str) -> None:
        """SIGKILL a component of Airflow with all of its processes."""
        main = self._main(component)
        for victim in [identify(process.pid) for process in (main, *main.children(recursive=True))]:
            if victim is not None:
                victim.stop(kill=True)

    def kill_all(self) -> None:
        """SIGKILL every process of Airflow, as a machine that loses its power does."""
        for victim in self.airflow.processes():
            victim.stop(kill=True)
        assert not self.airflow.processes()

    def _main(self, component: str) -> psutil.Process:
        found = {}
        for process in self.airflow.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                one = psutil.Process(process.pid)
                # "…/bin/airflow scheduler", or "airflow api_server -- host:…" where Airflow renames its processes.
                if f"airflow {component}" in " ".join(one.cmdline()).replace("_", "-"):
                    found[one.pid] = one
        (main,) = [one for one in found.values() if one.ppid() not in found]
        return main

    def start(self, component: str, environment: dict[str, str]) -> None:
        """Start it again, as whoever looks after Airflow does; standalone does not."""
        command = [str(Path(sys.executable).parent / "airflow"), component]
        spawn(command, log=self.airflow.folder / f"{component}.log", cwd=self.airflow.folder, env=environment)

    def change(self, path: str, content: dict[str, Any], **params: str) -> None:
        """One write as the UI does it; SQLite may be busy, then it is done again."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                self.rest._write("PATCH", f"/api/v2/dags/{DAG_ID}{path}", content=content, params=params)
                return
            except AirflowRestError as error:
                if error.status < 500 or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def pause(self, *, paused: bool) -> None:
        self.change("", {"is_paused": paused}, update_mask="is_paused")

    def mark_failed(self, task_id: str) -> None:
        self.change(f"/dagRuns/{self.run_id}/taskInstances/{task_id}", {"new_state": "failed"})

    def clear(self, task_id: str) -> None:
        content = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "task_ids": [task_id],
            "include_downstream": True,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.rest._write("POST", f"/api/v2/dags/{DAG_ID}/clearTaskInstances", content=content)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(name="deferred-upgrade", mode=Mode.DISABLED, workers=2, rebalance_delay_ms=1000)


@pytest.fixture(scope="module")
def upgrade(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgrade]:
    folder, dags = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags")
    shutil.copy(Path(__file__).parent / "dags" / f"{DAG_ID}.py", dags)
    connection = {"conn_type": "kafka_connect", "extra": {"cluster_file": str(lab.cluster_file)}}
    airflow = AirflowLab.start(
        AirflowOptions(
            folder=folder,
            dags_folder=dags,
            connections={"kafka_connect_default": json.dumps(connection)},
            environment={
                "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
                # A triggerer and a scheduler that were killed are given up sooner.
                "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
                "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
                "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
            },
        )
    )
    try:
        wait_for_dag(airflow, DAG_ID, 120)
        with airflow.rest() as rest:
            rest.unpause(DAG_ID)
            yield Upgrade(lab, airflow, rest, rest.trigger(DAG_ID))
    finally:
        airflow.stop()  # knows what was started again by the variable in its environment


def test_a_killed_triggerer_and_a_killed_scheduler_cost_the_roll_nothing(upgrade: Upgrade) -> None:
    before = upgrade.starts()
    upgrade.approve("preparing")
    lease = upgrade.deferred("roll_preparing")
    environment = upgrade.environment()
    upgrade.kill("triggerer")
    upgrade.start("triggerer", environment)

    # While nobody but Airflow's database knows of the roll, it is nobody else's.
    record = upgrade.journal().rollouts[lease.rollout_id]
    with pytest.raises(LeaseHeldError, match=re.escape(f"{DAG_ID}/{upgrade.run_id}/roll_preparing")):
        Controller(upgrade.lab.cluster()).apply(Plan.from_dict(record.plan))

    upgrade.deferred("roll_preparing", unlike=lease.owner.token)
    upgrade.kill("scheduler")
    upgrade.start("scheduler", environment)

    assert upgrade.ended("roll_preparing") == ("success", 1)
    assert upgrade.modes() == {Mode.PREPARING}
    assert {count - before[worker] for worker, count in upgrade.starts().items()} == {1}
    log = upgrade.log("roll_preparing")
    assert "Going on: seen from afar, the gate's answer is pass" in log
    assert log.count("gate passed after") == 2
    assert upgrade.rest.xcom(DAG_ID, upgrade.run_id, "roll_preparing")["resumed"] is False


def test_killing_all_of_airflow_pausing_killing_the_task_mark_failed_and_clear_repeat_nothing(
    upgrade: Upgrade,
) -> None:
    before = upgrade.starts()
    upgrade.approve("enabled")

    # The whole Airflow, while the roll is deferred: nothing but its database and the journal know of it.
    upgrade.deferred("roll_enabled")
    environment = upgrade.environment()
    upgrade.kill_all()
    upgrade.start("api-server", environment)
    wait_for("the api-server to answer again", upgrade.rest.health)

    # A paused DAG: the gate is waited for, and then nothing goes on until it is unpaused. The api-server is killed
    # while no process of a task needs it; at any other moment that costs the task a try.
    upgrade.pause(paused=True)
    for component in ("scheduler", "triggerer", "dag-processor"):
        upgrade.start(component, environment)
    wait_for("the gate to answer", lambda: upgrade.task("roll_enabled")[0] == "scheduled")
    paused_at = upgrade.starts()
    upgrade.kill("api-server")
    upgrade.start("api-server", environment)
    wait_for("the api-server to answer again", upgrade.rest.health)
    assert upgrade.starts() == paused_at
    assert upgrade.task("roll_enabled")[0] == "scheduled"
    upgrade.pause(paused=False)

    # The task's process is killed in mid-act: the next try finishes what was announced.
    def acting() -> Lease | None:
        lease = upgrade.lease()
        is_acting = lease is not None and lease.owner.pid and lease.acts_until > time.time()
        return lease if is_acting and upgrade.starts() == paused_at else None

    lease = wait_for("the second worker's restart to begin", acting, pause=0.05)
    task = identify(lease.owner.pid)
    assert task is not None
    task.stop(kill=True)

    # Mark failed while it is deferred: nobody comes back, and nothing more is done.
    lease = upgrade.deferred("roll_enabled", unlike=lease.owner.token)
    assert upgrade.task("roll_enabled")[1] == 2
    upgrade.mark_failed("roll_enabled")
    left_at = upgrade.starts()
    wait_for("the run to fail", lambda: upgrade.rest.run_state(DAG_ID, upgrade.run_id) == "failed")
    assert upgrade.journal().rollouts[lease.rollout_id].state is RolloutState.RUNNING
    assert upgrade.lease() == lease

    # Clear: the lease that was left to this task is its own, so it goes on at once.
    upgrade.clear("roll_enabled")
    assert upgrade.ended("roll_enabled")[0] == "success"
    assert upgrade.starts() == left_at
    assert {count - before[worker] for worker, count in upgrade.starts().items()} == {1}
    assert upgrade.ended("verify_enabled")[0] == "success"
    assert upgrade.modes() == {Mode.ENABLED}
    journal = upgrade.journal()
    assert {record.state for record in journal.rollouts.values()} == {RolloutState.DONE}
    assert journal.lease is not None
    assert journal.lease.released


def wait_for(what: str, condition: Callable[[], Any], pause: float = 0.3) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        with contextlib.suppress(UnreachableError):  # the api-server is just starting again
            found = condition()
            if found:
                return found
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(pause)
