"""DAGs on a real Connect cluster, in a real Airflow whose processes are killed; in one test on two clusters.

The upgrade, deferred at its gates, goes on; the audit and the deferred sensor notice a worker in another mode. One lab
and one Airflow for all, which cost most of what these tests take.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.verify import statuses
from airflow_eos_provider.journal.group_change import group_change
from airflow_eos_provider.journal.journal import Journal, JournalContent, read_journal
from airflow_eos_provider.journal.records import Lease, RolloutState
from airflow_eos_provider.kafka.acl_values import Acl
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.airflow import COMPONENTS, AirflowLab, AirflowOptions, database_name, wait_for_dag
from airflow_eos_provider.lab.servers.airflow_rest import FINAL_STATES, AirflowRest, RequiredAction
from airflow_eos_provider.lab.servers.postgres import Postgres
from airflow_eos_provider.local_processes import identify
from airflow_eos_provider.stored import from_json
from tests import seen
from tests.integration.hanging_transaction import HangingTransaction
from tests.integration.named_listener import NamedListener
from tests.secret_search import (
    CommandLines,
    Found,
    search_database,
    search_files,
    search_temporary_files,
    search_topics,
)
from tests.system.components import (
    copy_with_early_retries,
    ended,
    ends_heard_of,
    has_heard_of_the_end,
    main_process,
    require_unfinished,
    succeeded,
    suspended,
    tries,
    tries_lost,
)
from tests.system.modes import bring_to, close_what_is_open
from tests.waiting import API_PAUSE_SECONDS, until

pytestmark = pytest.mark.timeout(1800)

DAG_ID = "deferred_upgrade"
AUDIT, SENSOR = "connect_audit", "drift_sensor"
RESET = "connect_offsets_reset"
CLOSE, ABORT, ABANDON = "connect_close", "connect_transaction_abort", "interval_abandon"
GRANT, REVOKE = "grant", "revoke"
TRANSACTIONS_SENSOR, FAILURES = "transactions_sensor", "failures"
DOWNGRADE, DOWNGRADE_OF_SECOND = "connect_exactly_once_downgrade", "second_exactly_once_downgrade"
DAG_IDS = (
    *(DAG_ID, AUDIT, SENSOR, RESET, DOWNGRADE, DOWNGRADE_OF_SECOND),
    *(CLOSE, ABORT, ABANDON, GRANT, REVOKE, TRANSACTIONS_SENSOR, FAILURES),
)
DEADLINE_SECONDS = 300.0

#: Between two looks whether a run is over that something is awaited of.
STATE_PAUSE_SECONDS = 5.0

HERE = Path(__file__).parent / "dags"
REPOSITORY = Path(__file__).parents[2] / "dags"
DAG_FILES = (
    *(HERE / "deferred_upgrade.py", HERE / "drift_sensor.py", HERE / "reports.py"),
    *(REPOSITORY / "connect.py", REPOSITORY / "example_backfill.py"),
)

#: The cluster file of the second cluster, beside that of the first.
SECOND_FILE = "second.yaml"

#: Beside Airflow's folder: a line for each event of the upgrade DAG that OpenLineage's transport has sent.
LINEAGE = "lineage.jsonl"


@dataclass
class Upgrade:
    """One run of the upgrade DAG, and what it does to the workers."""

    lab: Lab
    airflow: AirflowLab
    rest: AirflowRest
    environment: dict[str, str]
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

    def log(self, task_id: str) -> str:
        """Of all tries."""
        logs = [self.rest.log(DAG_ID, self.run_id, task_id, 1 + number) for number in range(self.task(task_id)[1])]
        return "\n".join(line.text for log in logs for line in log)

    def heartbeat(self) -> str:
        """The scheduler's last, of which it has one in five seconds; it looks for tasks each second."""
        return str(self.rest.health()["scheduler"]["latest_scheduler_heartbeat"])

    def require_no_try_of_its_own(self, task_id: str) -> None:
        """Each try but the first was begun because Airflow had lost the process before, and none because it failed.

        How many are lost is not the roll's to say: a deferred task that is back before the scheduler has heard of its
        last process costs one, and so does a process whose first calls a busy api-server does not answer in time.
        """
        state, number = self.task(task_id)
        lost = tries_lost(self.airflow, self.run_id, task_id)
        assert number == 1 + lost, f"{task_id} is {state}\n{tries(self.rest, DAG_ID, self.run_id)}"

    # what is waited for

    def approve(self, mode: str) -> None:
        action = question(self.airflow, self.rest, DAG_ID, self.run_id)
        assert action.task_id == f"approve_{mode}"
        assert f"+exactly.once.source.support={mode}" in action.body
        assert "its tasks are unassigned" in action.body
        self.rest.answer(DAG_ID, self.run_id, action, "Approve")

    def wait(self, what: str, condition: Callable[[], Any], pause: float = API_PAUSE_SECONDS) -> Any:
        return wait_in_run(self.rest, DAG_ID, self.run_id, what, condition, pause)

    @contextlib.contextmanager
    def at_the_gate_of(self, task_id: str, since: dict[str, int]) -> Iterator[Lease]:
        """Meanwhile the worker that was started since is suspended, and the task is deferred at its gate.

        A gate that holds at its first look is not handed over, and one that was handed over may hold a moment later:
        without a worker that keeps its gate open, a task may never be seen deferred.

        :param since: the starts before; exactly one worker is started once more.
        """
        self.wait("a worker to be started", lambda: self.starts() != since, pause=0.05)
        (worker,) = [worker for worker, count in self.starts().items() if count != since[worker]]
        with suspended(self._process_of(worker)):
            self.wait(f"{task_id} to defer", lambda: self.task(task_id)[0] == "deferred")
            # A task that is back before the scheduler has heard of its last process costs a try.
            wait_for("the end of its process", lambda: self._is_heard_of(task_id))
            lease = self.lease()
            assert lease is not None
            assert lease.belongs_to(f"{DAG_ID}/{self.run_id}/{task_id}")
            yield lease

    def _is_heard_of(self, task_id: str) -> bool:
        """Whether the scheduler knows of the end of each process in which the current try was deferred."""
        number = self.task(task_id)[1]
        log = self.rest.log(DAG_ID, self.run_id, task_id, number)
        deferred = [line for line in log if line.text.startswith("Pausing task as DEFERRED")]
        return bool(deferred) and ends_heard_of(self.airflow, self.run_id, task_id, number) >= len(deferred)

    def _process_of(self, worker_id: str) -> psutil.Process:
        """By its pid file, which is faster than a look at the group."""
        (index,) = [index for index, url in enumerate(self.lab.connect_urls) if url.endswith(worker_id)]
        identity = self.lab.worker_process(index)
        assert identity is not None
        return psutil.Process(identity.pid)

    def ended(self, task_id: str) -> tuple[str | None, int]:
        wait_for(f"the end of {task_id}", lambda: self.task(task_id)[0] in ("success", "failed"))
        return self.task(task_id)

    def succeeded(self, task_id: str) -> None:
        state, _ = self.ended(task_id)
        assert state == "success", tries(self.rest, DAG_ID, self.run_id)

    # what is done to it

    def kill(self, component: str) -> None:
        """SIGKILL a component of Airflow with all of its processes."""
        main = main_process(self.airflow, component)
        for victim in [identify(process.pid) for process in (main, *main.children(recursive=True))]:
            if victim is not None:
                victim.stop(kill=True)

    def kill_all(self) -> None:
        """SIGKILL every process of Airflow, as a machine that loses its power does."""

        def is_dead() -> bool:
            for victim in self.airflow.processes():
                victim.stop(kill=True)
            return not self.airflow.processes()  # those that were started meanwhile are killed next

        wait_for("the end of all", is_dead)

    def start(self, component: str) -> None:
        """Start it again, and wait for an api-server until it answers tasks, too; see ``execution_health``."""
        self.airflow.start_component(component, self.environment)
        if component == "api-server":
            wait_for("the api-server to answer again", self.rest.execution_health)

    def pause(self, *, paused: bool) -> None:
        set_paused(self.rest, DAG_ID, paused=paused)

    def mark_failed(self, task_id: str) -> None:
        path = f"/api/v2/dags/{DAG_ID}/dagRuns/{self.run_id}/taskInstances/{task_id}"
        self.rest._write("PATCH", path, content={"new_state": "failed"})

    def clear(self, task_id: str) -> None:
        clear(self.rest, DAG_ID, self.run_id, task_id)


@dataclass
class Secrets:
    """A cluster file with secrets, and what a search for them has found."""

    file: Path
    found: Found


@pytest.fixture(scope="module")
def listener() -> NamedListener:
    """Where Airflow's tasks log in to the broker, with every right."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:airflow",
    }
    return NamedListener("airflow", f"canary-{uuid.uuid4().hex}", authorizer)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab], listener: NamedListener) -> Lab:
    with listener.given():
        return lab_factory(
            name="cluster-dags",
            mode=Mode.PREPARING,  # as the first test of each run wants them; the next ones want what it ends in
            workers=2,
            rebalance_delay_ms=1000,
            # A suspended worker stays in the group for longer than a busy machine takes to start a task.
            session_timeout_ms=120_000,
        )


@pytest.fixture(scope="module")
def secrets(lab: Lab, listener: NamedListener, tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    """A copy of the cluster file with a login for Kafka, and a token for REST, which the workers do not ask for."""
    found = Found({"token": f"canary-{uuid.uuid4().hex}", "password": listener.client["sasl.password"]})
    described = yaml.safe_load(lab.cluster_file.read_text(encoding="utf-8"))
    described["rest"] = {"token": found.secrets["token"]}
    described["bootstrap_servers"], described["client"] = listener.bootstrap_servers, listener.client
    file = tmp_path_factory.mktemp("cluster") / "eos.yaml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(described), encoding="utf-8")
    return Secrets(file, found)


@pytest.fixture(scope="module")
def airflow(
    lab: Lab, secrets: Secrets, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowLab]:
    folder, dags = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags")
    for file in DAG_FILES:
        (copy_with_early_retries if file.stem == "connect" else shutil.copy)(file, dags)
    connections = {
        "kafka_connect_default": {"conn_type": "kafka_connect", "extra": {"cluster_file": str(secrets.file)}},
        "second": {"conn_type": "kafka_connect", "extra": {"cluster_file": str(secrets.file.with_name(SECOND_FILE))}},
        "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": lab.bootstrap_servers}},
    }
    airflow = AirflowLab.start(
        AirflowOptions(
            folder=folder,
            dags_folder=dags,
            postgres=postgres,
            connections={name: json.dumps(connection) for name, connection in connections.items()},
            environment={
                "AIRFLOW__EOS__CONNECTION_FILES_FOLDERS": str(secrets.file.parent),
                "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
                # A triggerer that was killed is given up sooner.
                "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
                "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
                "AIRFLOW__OPENLINEAGE__SELECTIVE_ENABLE": "True",
                "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                    {"type": "file", "log_file_path": str(folder / LINEAGE), "append": True}
                ),
                # Of an event that is not made within ten seconds, which is the default, nothing is sent.
                "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "240",
            },
        )
    )
    try:
        for dag_id in DAG_IDS:
            wait_for_dag(airflow, dag_id, 300)
        with airflow.rest() as rest:
            rest.unpause(DAG_ID)
        with CommandLines(secrets.found):
            yield airflow
    finally:
        airflow.stop()


@pytest.fixture
def rest(airflow: AirflowLab) -> Iterator[AirflowRest]:
    with airflow.rest() as rest:
        yield rest


def set_paused(rest: AirflowRest, dag_id: str, *, paused: bool) -> None:
    params = {"update_mask": "is_paused"}
    rest._write("PATCH", f"/api/v2/dags/{dag_id}", content={"is_paused": paused}, params=params)


@pytest.fixture(scope="module")
def environment(airflow: AirflowLab) -> dict[str, str]:
    """What each component was started with; those that rename themselves do not show it any more."""
    return main_process(airflow, "triggerer").environ()


@pytest.fixture(autouse=True)
def nothing_is_left_open(
    lab: Lab, airflow: AirflowLab, rest: AirflowRest, environment: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[None]:
    """What a test that fails leaves behind is shown, and ends with it: processes, runs, a roll or a change."""

    def run_states() -> dict[tuple[str, str], str]:
        runs = rest._read("/api/v2/dags/~/dagRuns", limit=500)["dag_runs"]
        return {(run["dag_id"], run["dag_run_id"]): run["state"] for run in runs}

    failed_before, runs_before = request.session.testsfailed, run_states()
    yield
    for component in COMPONENTS:
        if not is_there(airflow, component):
            airflow.start_component(component, environment)
    wait_for("the api-server to answer", rest.execution_health)
    has_failed = request.session.testsfailed > failed_before
    for (dag_id, run_id), state in run_states().items():
        if has_failed and (dag_id, run_id) not in runs_before:
            sys.stderr.write(f"{dag_id} {run_id}: {state}\n{tries(rest, dag_id, run_id)}\n")
        if state not in FINAL_STATES:
            rest._write("PATCH", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}", content={"state": "failed"})
            ended(rest, dag_id, run_id)
    close_what_is_open(lab)


def is_there(airflow: AirflowLab, component: str) -> bool:
    try:
        main_process(airflow, component)
    except ValueError:
        return False
    return True


@pytest.fixture
def begun(lab: Lab, airflow: AirflowLab, rest: AirflowRest, environment: dict[str, str]) -> Callable[[Mode], Upgrade]:
    """Begins a run of the upgrade on workers of a mode."""

    def begin(mode: Mode) -> Upgrade:
        bring_to(lab, mode)
        return Upgrade(lab, airflow, rest, environment, rest.trigger(DAG_ID))

    return begin


def test_killing_all_of_airflow_pausing_killing_the_task_mark_failed_and_clear_repeat_nothing(
    begun: Callable[[Mode], Upgrade],
) -> None:
    upgrade = begun(Mode.PREPARING)
    before = upgrade.starts()
    upgrade.approve("enabled")

    # The whole Airflow, while the roll is deferred: nothing but its database and the journal know of it.
    with upgrade.at_the_gate_of("roll_enabled", since=before):
        upgrade.kill_all()
        upgrade.start("api-server")
        upgrade.pause(paused=True)

    # A paused DAG: the gate is waited for, and then nothing goes on until it is unpaused.
    for component in ("scheduler", "triggerer", "dag-processor"):
        upgrade.start(component)
    wait_for("the gate to answer", lambda: upgrade.task("roll_enabled")[0] == "scheduled")
    paused_at = upgrade.starts()
    last = upgrade.heartbeat()
    wait_for("the scheduler to have looked for tasks since", lambda: upgrade.heartbeat() != last)
    assert upgrade.starts() == paused_at
    assert upgrade.task("roll_enabled")[0] == "scheduled"
    upgrade.pause(paused=False)

    # The task's process is killed in mid-act: the next try finishes what was announced.
    def acting() -> Lease | None:
        lease = upgrade.lease()
        is_acting = lease is not None and lease.owner.pid and lease.acts_until > time.time()
        return lease if is_acting else None

    lease = upgrade.wait("the second worker's restart to begin", acting, pause=0.05)
    task = identify(lease.owner.pid)
    assert task is not None
    task.stop(kill=True)

    # The restart outlives its task. The worker that it started is suspended, so the next try finds a gate to wait for.
    with upgrade.at_the_gate_of("roll_enabled", since=paused_at) as lease:
        # Mark failed while it is deferred: nobody comes back, and nothing more is done.
        assert upgrade.task("roll_enabled")[1] > 1
        upgrade.require_no_try_of_its_own("roll_enabled")
        upgrade.mark_failed("roll_enabled")
        left_at = upgrade.starts()
        wait_for("the run to fail", lambda: upgrade.rest.run_state(DAG_ID, upgrade.run_id) == "failed")
        assert upgrade.journal().rollouts[lease.rollout_id].state is RolloutState.RUNNING
        assert upgrade.lease() == lease

    # Clear: the lease that was left to this task is its own, so it goes on at once.
    upgrade.clear("roll_enabled")
    upgrade.succeeded("roll_enabled")
    assert upgrade.starts() == left_at
    assert {count - before[worker] for worker, count in upgrade.starts().items()} == {1}
    upgrade.succeeded("verify_enabled")
    assert upgrade.modes() == {Mode.ENABLED}
    journal = upgrade.journal()
    assert {record.state for record in journal.rollouts.values()} == {RolloutState.DONE}
    assert journal.lease is not None
    assert journal.lease.released

    # A process of its own sends the event behind the task's end.
    (rollout_id,) = journal.rollouts
    (facet,) = wait_for("the roll's lineage", lambda: lineage_of_rolls(upgrade.airflow))
    assert (facet["rollout_id"], facet["to_mode"], facet["workers"]) == (rollout_id, "enabled", 2)


@pytest.mark.by_name
def test_a_triggerer_and_a_scheduler_that_are_killed_alone_cost_no_try_and_no_restart(
    begun: Callable[[Mode], Upgrade],
) -> None:
    """Each while the roll waits at one of its gates."""
    upgrade = begun(Mode.PREPARING)
    since = before = upgrade.starts()
    upgrade.approve("enabled")
    for component in ("triggerer", "scheduler"):
        with upgrade.at_the_gate_of("roll_enabled", since=since):
            since = upgrade.starts()
            upgrade.kill(component)
            assert not is_there(upgrade.airflow, component)
            assert upgrade.task("roll_enabled")[0] == "deferred"
            upgrade.start(component)
    upgrade.succeeded("roll_enabled")
    upgrade.succeeded("verify_enabled")
    assert upgrade.modes() == {Mode.ENABLED}
    assert {count - before[worker] for worker, count in upgrade.starts().items()} == {1}
    upgrade.require_no_try_of_its_own("roll_enabled")


def lineage_of_rolls(airflow: AirflowLab) -> list[dict[str, Any]]:
    """The facets of the rolls that OpenLineage was told of."""
    file = airflow.folder / LINEAGE
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    whole = text[: text.rfind("\n") + 1]  # the last line may be half written
    facets = (json.loads(line)["run"]["facets"] for line in whole.splitlines())
    return [each["eos_roll"] for each in facets if "eos_roll" in each]


@pytest.fixture
def audited(lab: Lab, rest: AirflowRest) -> Iterator[None]:
    """The audit looks at enabled workers, for this test alone."""
    bring_to(lab, Mode.ENABLED)
    rest.unpause(AUDIT)
    yield
    set_paused(rest, AUDIT, paused=True)


@pytest.mark.usefixtures("audited")
def test_a_stale_worker_is_noticed_and_reported_once(rest: AirflowRest, lab: Lab) -> None:
    rest.unpause(SENSOR)
    sensor_run = rest.trigger(SENSOR)
    wait_for("the first look", lambda: "success" in rest.run_states(AUDIT).values())
    (looked, *_) = (run for run, state in rest.run_states(AUDIT).items() if state == "success")
    assert rest.xcom(AUDIT, looked, "look_at_transactions")["verdict"] == "pass"
    wait_for("the sensor to defer", lambda: states_of(rest, SENSOR, sensor_run) == {"wait_for_drift": "deferred"})
    assert "failed" not in rest.run_states(AUDIT).values()

    with stale_worker(lab) as worker_id:
        wait_for("the sensor to notice", lambda: rest.run_state(SENSOR, sensor_run) == "success")
        for run in (rest.trigger(AUDIT), rest.trigger(AUDIT)):  # sooner than the schedule has the next ones
            assert ended(rest, AUDIT, run) == "failed"

    found = rest.xcom(SENSOR, sensor_run, "wait_for_drift")
    assert [finding["subject"] for finding in found["findings"]] == [worker_id]
    failed = [run for run, state in rest.run_states(AUDIT).items() if state == "failed"]
    logs = [log_of(rest, AUDIT, run, "look_for_drift") for run in failed]
    assert len(logs) > 1
    assert all(f"{worker_id} is a member of the group, but not in the cluster file" in log for log in logs)
    assert sum("'eos transactions audit' check again" in log for log in logs) == 1

    before = set(rest.run_states(AUDIT))
    rest.trigger(AUDIT)
    wait_for(
        "an audit that succeeds again",
        lambda: any(state == "success" for run, state in rest.run_states(AUDIT).items() if run not in before),
    )


FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.mark.first
def test_offsets_are_reset_from_the_form_and_a_killed_task_takes_its_change_up(
    lab: Lab, airflow: AirflowLab, rest: AirflowRest
) -> None:
    bring_to(lab, Mode.ENABLED)
    file = lab.data_dir / "lines.txt"
    file.write_text("one\ntwo\n")
    lab.create_topic("lines", 1)

    def delivered() -> list[bytes | None]:
        return sorted(record.value or b"" for record in read_to_end(lab.cluster().kafka, "lines").records)

    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as connect:
        connect.create("lines", {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines", "file": str(file)})
        wait_for("both lines", lambda: delivered() == [b"one", b"two"])
        wait_for("their offset", lambda: [one.offset for one in connect.offsets("lines")] == [{"position": 8}])

    rest.unpause(RESET)
    run = rest.trigger(RESET, {"connector": "lines"})
    action = question(airflow, rest, RESET, run)
    assert "Reset the source offsets of lines" in action.subject
    assert "position" in action.body

    lease = kill_in_its_change(lab, rest, RESET, run, action)
    succeeded(rest, RESET, run)
    assert [one["written"] for one in rest.xcom(RESET, run, "apply")["connectors"]] == [1]
    twice = [b"one", b"one", b"two", b"two"]
    wait_for("each line twice", lambda: delivered() == twice)

    # Clear carries an approved plan out once.
    clear(rest, RESET, run, "apply")
    succeeded(rest, RESET, run)
    assert [one["written"] for one in rest.xcom(RESET, run, "apply")["connectors"]] == [0]
    changes = read_journal(lab.cluster().kafka, lab.group_id).changes
    assert [one.change_id for one in changes.values() if one.about == "lines"] == [lease.rollout_id]
    assert delivered() == twice
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as connect:
        connect.delete("lines")


def test_what_was_left_open_is_closed_ended_and_given_up_and_acls_are_granted_and_revoked_from_the_forms(
    lab: Lab, airflow: AirflowLab, rest: AirflowRest
) -> None:
    """All at once: a change that was cut off, a transaction that hangs, an interval run of which nothing is written."""
    kafka, name = lab.cluster().kafka, "late"
    lab.create_topic(name, 1)
    cut_off = group_change(
        Journal(kafka, lab.group_id, actor="a test", reason="to be cut off"), "offsets reset", "x", {"hash": "h"}
    )
    with pytest.raises(RuntimeError), cut_off as change, change.step("write"):
        raise RuntimeError
    pipeline = Pipeline(name="orders", group_id="eos-intervals", kafka=kafka)
    run = Run("orders", Interval.parse("2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"))
    with Coordinator(pipeline, run) as coordinator:
        coordinator.begin(lambda: RunPlan(run, [{"nothing": 0}], {}), tasks=1)
    confs: dict[str, dict[str, Any]] = {
        CLOSE: {},
        ABORT: {"topic": name, "partition": 0, "fence": True},
        ABANDON: {"run": run.name},
        GRANT: {},
    }
    for dag_id in (*confs, REVOKE, TRANSACTIONS_SENSOR, FAILURES):
        rest.unpause(dag_id)
    with HangingTransaction.on(lab, name, 0):
        failed, sensor = rest.trigger(FAILURES), rest.trigger(TRANSACTIONS_SENSOR)
        runs = {dag_id: rest.trigger(dag_id, conf) for dag_id, conf in confs.items()}
        asked = {dag_id: question(airflow, rest, dag_id, run_id) for dag_id, run_id in runs.items()}
        wait_for("the sensor to defer", lambda: states_of(rest, TRANSACTIONS_SENSOR, sensor) == {"wait": "deferred"})
        for dag_id, action in asked.items():
            rest.answer(dag_id, runs[dag_id], action, "Approve")
        succeeded(rest, GRANT, runs[GRANT])
        granted = from_json(set[Acl], rest.xcom(GRANT, runs[GRANT], "apply")["acls"])
        wait_for("the ACLs", lambda: acls(lab) == granted)
        runs[REVOKE] = rest.trigger(REVOKE)
        rest.answer(REVOKE, runs[REVOKE], question(airflow, rest, REVOKE, runs[REVOKE]), "Approve")
        for dag_id, run_id in {**runs, TRANSACTIONS_SENSOR: sensor}.items():
            succeeded(rest, dag_id, run_id)
    applied = {dag_id: rest.xcom(dag_id, run_id, "apply") for dag_id, run_id in runs.items()}
    assert read_journal(kafka, lab.group_id).open_change is None
    assert applied[ABORT]["after"]["waiting"] == 0
    assert (applied[ABANDON]["run"], statuses(pipeline)) == (run.name, [])
    revoked = from_json(set[Acl], applied[REVOKE]["acls"])
    assert revoked, "the pipeline's"
    assert revoked == {acl for acl in granted if acl.principal == "User:spark"}, "what the workers need stays"
    wait_for("the end of the ACLs", lambda: acls(lab) == granted - revoked)
    assert rest.xcom(TRANSACTIONS_SENSOR, sensor, "wait")["verdict"] == "pass"

    # Two failures, and what their notifiers made of them.
    assert ended(rest, FAILURES, failed) == "failed"
    for task_id, words in {
        "roll": "A task of a roll has failed",
        "late": f"{run.name} of group eos-intervals is not complete",
    }.items():
        assert f"sent: {words}" in log_of(rest, FAILURES, failed, task_id)


def test_of_two_clusters_that_wait_at_once_one_goes_straight_back_to_disabled_and_the_other_stays_as_answered(
    lab: Lab, lab_factory: Callable[..., Lab], airflow: AirflowLab, rest: AirflowRest, secrets: Secrets
) -> None:
    bring_to(lab, Mode.ENABLED)
    before = seen.starts(lab)
    for dag_id in (DOWNGRADE, DOWNGRADE_OF_SECOND):
        rest.unpause(dag_id)
    runs = {DOWNGRADE: rest.trigger(DOWNGRADE)}
    second = lab_factory(name="second", mode=Mode.ENABLED, workers=1)
    shutil.copy(second.cluster_file, secrets.file.with_name(SECOND_FILE))
    run = runs[DOWNGRADE_OF_SECOND] = rest.trigger(DOWNGRADE_OF_SECOND)
    asked = {dag_id: question(airflow, rest, dag_id, run_id) for dag_id, run_id in runs.items()}
    wait_for("both at once", lambda: set(rest.required_actions("~", "~")) == set(asked.values()))
    for dag_id, group_id in {DOWNGRADE: lab.group_id, DOWNGRADE_OF_SECOND: second.group_id}.items():
        assert f"Roll Kafka Connect group {group_id} to disabled?" in asked[dag_id].subject
        body = asked[dag_id].body
        assert "-exactly.once.source.support=enabled\n+exactly.once.source.support=disabled" in body
        assert "Exactly-once ends" in body

    rest.answer(DOWNGRADE_OF_SECOND, run, asked[DOWNGRADE_OF_SECOND], "Approve")
    succeeded(rest, DOWNGRADE_OF_SECOND, run)
    tasks = states_of(rest, DOWNGRADE_OF_SECOND, run)
    assert set(tasks.values()) == {"success"}
    assert seen.modes(second) == {Mode.DISABLED}
    (rollout,) = read_journal(second.cluster().kafka, second.group_id).rollouts.values()
    assert rollout.actor == f"airflow {DOWNGRADE_OF_SECOND}/{run}, approved by admin"
    loggers = {line.logger for task in tasks for line in rest.log(DOWNGRADE_OF_SECOND, run, task, 1)}
    assert any(name.endswith(".ConnectRollingUpgradeOperator") for name in loggers)
    assert {name for name in loggers if name.split(".")[0] in ("kafka", "httpx")} == set()

    wait_for("the other as before", lambda: rest.required_actions("~", "~") == (asked[DOWNGRADE],))
    rest.answer(DOWNGRADE, runs[DOWNGRADE], asked[DOWNGRADE], "Reject")
    succeeded(rest, DOWNGRADE, runs[DOWNGRADE])
    assert states_of(rest, DOWNGRADE, runs[DOWNGRADE])["roll_disabled"] == "skipped"
    assert seen.modes(lab) == {Mode.ENABLED}
    assert seen.starts(lab) == before


def states_of(rest: AirflowRest, dag_id: str, run_id: str) -> dict[str, str | None]:
    return {task.task_id: task.state for task in rest.task_instances(dag_id, run_id)}


def clear(rest: AirflowRest, dag_id: str, run_id: str, task_id: str) -> None:
    """What *Clear* does to a task and to those after it."""
    content = {
        "dry_run": False,
        "dag_run_id": run_id,
        "task_ids": [task_id],
        "include_downstream": True,
        "only_failed": False,
        "reset_dag_runs": True,
    }
    rest._write("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", content=content)


def question(airflow: AirflowLab, rest: AirflowRest, dag_id: str, run_id: str) -> RequiredAction:
    """What a run asks, once an answer costs no second try; see PlanApprovalOperator."""

    def asked() -> Any:
        return rest.required_actions(dag_id, run_id)

    (action,) = wait_in_run(rest, dag_id, run_id, "the question", asked)
    wait_for("the end of the process that asks", lambda: has_heard_of_the_end(airflow, run_id, action.task_id))
    (action,) = wait_for("the question, parked", asked)  # the operator looks again now and then
    return action  # type: ignore[no-any-return]


def acls(lab: Lab) -> set[Acl]:
    """What the broker has."""
    with TransactionsClient(lab.cluster().kafka) as client:
        return set(client.acls() or ())


def kill_in_its_change(lab: Lab, rest: AirflowRest, dag_id: str, run_id: str, action: RequiredAction) -> Lease:
    """Approve what is asked, and kill the task that carries it out once its change is begun.

    It asks the workers then, and stays there, since they are suspended.
    """

    def begun() -> Lease | None:
        content = read_journal(lab.cluster().kafka, lab.group_id)
        return content.lease if content.open_change is not None else None

    with contextlib.ExitStack() as suspension:
        workers = [lab.worker_process(index) for index in range(len(lab.connect_urls))]
        for worker in filter(None, workers):  # another test has added one, and stopped it
            suspension.enter_context(suspended(psutil.Process(worker.pid)))
        rest.answer(dag_id, run_id, action, "Approve")
        lease = wait_in_run(rest, dag_id, run_id, "the change to begin", begun)
        task = identify(lease.owner.pid)
        assert task is not None
        task.stop(kill=True)
    return lease  # type: ignore[no-any-return]


@contextlib.contextmanager
def stale_worker(lab: Lab) -> Iterator[str]:
    """The id of a worker in disabled that is not described."""
    index = lab.add_worker(mode=Mode.DISABLED, listed=False, wait=False)
    try:
        yield lab.connect_urls[index].removeprefix("http://")
    finally:
        lab.stop_worker(index)


def log_of(rest: AirflowRest, dag_id: str, run_id: str, task_id: str) -> str:
    """Of its first try."""
    return "\n".join(line.text for line in rest.log(dag_id, run_id, task_id, 1))


def wait_for(what: str, condition: Callable[[], Any], pause: float = API_PAUSE_SECONDS) -> Any:
    found: list[Any] = []

    def holds() -> bool:
        found[:] = [condition()]
        return any(found)

    until(holds, what, seconds=DEADLINE_SECONDS, pause=pause)
    return found[0]


def wait_in_run(
    rest: AirflowRest,
    dag_id: str,
    run_id: str,
    what: str,
    condition: Callable[[], Any],
    pause: float = API_PAUSE_SECONDS,
) -> Any:
    """Wait for something that a run does; in vain, or once the run is over, the log of its tries is the message."""
    asked_at = time.monotonic()

    def holds() -> Any:
        nonlocal asked_at
        found = condition()
        if not found and time.monotonic() - asked_at > STATE_PAUSE_SECONDS:
            require_unfinished(rest, dag_id, run_id)
            asked_at = time.monotonic()
        return found

    try:
        return wait_for(what, holds, pause)
    except AssertionError as error:
        error.add_note(tries(rest, dag_id, run_id))
        raise


# what all of the above has left


def test_no_secret_of_the_cluster_file_is_anywhere_else(
    lab: Lab, airflow: AirflowLab, postgres: Postgres, rest: AirflowRest, secrets: Secrets
) -> None:
    """Not in Airflow's database and files, not in topics, the lab's files, temporary files or command lines."""
    if not rest.run_states(AUDIT):  # where this test runs alone, no task has read the file yet
        rest.unpause(AUDIT)
        ended(rest, AUDIT, rest.trigger(AUDIT))
    found = secrets.found
    search_topics(found, lab)
    search_database(found, postgres, database_name(airflow.folder))
    search_files(found, [airflow.folder, lab.root, secrets.file.parent])
    search_temporary_files(found)
    brokers = {str(file) for file in lab.root.rglob("*.properties") if "plain.sasl.jaas" in file.read_text("utf-8")}
    assert len(brokers) == 1
    assert found.places() == {str(secrets.file), *brokers}
    # A search that looks at nothing finds nothing.
    for kind in ("records", "rows", "files", "command lines"):
        assert found.looked_at[kind] > 30, kind
