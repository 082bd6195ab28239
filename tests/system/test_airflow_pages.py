"""What is done on the pages of a real Airflow with its default heartbeats: runs, approvals, connections.

An answer that comes at once does not lose the run.
"""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.airflow import COMPONENTS, AirflowLab, AirflowOptions, wait_for_dag
from airflow_eos_provider.lab.servers.airflow_rest import (
    AirflowRest,
    AirflowRestError,
    RequiredAction,
)
from airflow_eos_provider.lab.servers.postgres import Postgres
from airflow_eos_provider.local_processes import ProcessIdentity, identify
from tests import waiting
from tests.system.components import all_results_are_in, ended, has_heard_of_the_end, main_process, succeeded, suspended

DAG = """
from __future__ import annotations
import logging, os, subprocess, sys
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Connection, dag, task

@dag(schedule=None, dag_id="lab_test")
def lab_test():
    @task
    def work():
        log = logging.getLogger("worker.of.the.test")
        # As a roll starts a Connect worker: a session of its own, a clean environment, no streams.
        outliving = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            env={"PATH": os.environ["PATH"]}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for number in range(3):
            log.info("line %d", number)
        extra = Connection.get("kafka_connect_default").extra_dejson
        proxies = [name for name in os.environ if "http_proxy" in name.lower()]
        return {"outliving": outliving.pid, "extra": extra, "proxies": proxies}

    work() >> ApprovalOperator(task_id="approve", subject="May it go on?", body="A *plan*.")

lab_test()
"""

DAG_ID = "quick_approval"
TWO = "approval_by_two"
#: Runs that are asked until Airflow loses an answer.
LOSSES_TRIED = 5

DEADLINE_SECONDS = 300


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Callable[[], AirflowLab]]:
    """Gives the Airflow of this file: the one that runs, or a new one once a test has ended that."""
    dags = tmp_path_factory.mktemp("dags")
    (dags / "lab_test.py").write_text(DAG, encoding="utf-8")
    shutil.copy(Path(__file__).parent / "dags" / f"{DAG_ID}.py", dags)
    connections = {
        "brokers": {"conn_type": "kafka", "extra": {"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"}},
        "kafka_connect_default": {"conn_type": "kafka_connect", "extra": {"group_id": "a group"}},
    }
    options = AirflowOptions(
        folder=tmp_path_factory.mktemp("airflow"),
        dags_folder=dags,
        postgres=postgres,
        connections={name: json.dumps(connection) for name, connection in connections.items()},
        environment={
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,grace:op",
            "AIRFLOW__EOS__ALLOW_HOST_COMMANDS_IN_CONNECTION": "False",
        },
    )
    started: list[AirflowLab] = []

    def running() -> AirflowLab:
        if not started or not started[-1].processes():
            started.append(AirflowLab.start(options))
            for dag_id in ("lab_test", DAG_ID, TWO):
                wait_for_dag(started[-1], dag_id, 300)
        return started[-1]

    try:
        yield running
    finally:
        for lab in started:
            lab.stop()


@pytest.fixture
def airflow(start: Callable[[], AirflowLab]) -> AirflowLab:
    return start()


@pytest.fixture
def rest(airflow: AirflowLab) -> Iterator[AirflowRest]:
    with airflow.rest() as rest:
        rest.unpause(DAG_ID)
        yield rest


#: Each look at Airflow's API takes its server 40 ms of CPU.
until = functools.partial(waiting.until, seconds=DEADLINE_SECONDS, pause=waiting.API_PAUSE_SECONDS)


def state_of(rest: AirflowRest, run_id: str, task_id: str) -> str | None:
    return next(task.state for task in rest.task_instances(DAG_ID, run_id) if task.task_id == task_id)


def answer_at_once(rest: AirflowRest, run_id: str, option: str) -> RequiredAction:
    """Answer the very moment that the question can be seen: not when the page shows it, which is later."""
    until_it_is_begun(rest, run_id)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for action in rest.required_actions(DAG_ID, run_id):
            rest.answer(DAG_ID, run_id, action, option)
            return action
        time.sleep(0.05)
    raise AssertionError(f"nothing was asked within {DEADLINE_SECONDS} s")


def until_it_is_begun(rest: AirflowRest, run_id: str) -> None:
    """Before the process that asks is started, nothing is asked; so until then a look now and then will do."""
    until(lambda: state_of(rest, run_id, "approve") not in (None, "scheduled"), "the start of the process that asks")


def tries(rest: AirflowRest, run_id: str) -> int:
    return next(task.try_number for task in rest.task_instances(DAG_ID, run_id) if task.task_id == "approve")


def test_a_run_is_triggered_read_and_answered_as_a_person_would(airflow: AirflowLab) -> None:
    outliving: ProcessIdentity | None = None
    with airflow.rest() as rest:
        rest.unpause("lab_test")
        run_id = rest.trigger("lab_test")
        until(lambda: bool(rest.required_actions("lab_test", run_id)), "the approval to be asked for")
        (action,) = rest.required_actions("lab_test", run_id)
        assert (action.task_id, action.subject, action.body) == ("approve", "May it go on?", "A *plan*.")
        assert action.options == ("Approve", "Reject")

        lines = rest.log("lab_test", run_id, "work", 1)
        assert [line.text for line in lines if line.logger == "worker.of.the.test"] == ["line 0", "line 1", "line 2"]

        result = rest.xcom("lab_test", run_id, "work")
        outliving = identify(result["outliving"])
        assert outliving is not None
        try:
            assert result["extra"] == {"group_id": "a group"}
            assert result["proxies"] == []
            # What a task starts to outlive it is not the lab's to end.
            assert outliving not in airflow.processes()

            until(lambda: has_heard_of_the_end(airflow, run_id, "approve"), "the end of the process that asked")
            rest.answer("lab_test", run_id, action, "Approve")
            until(lambda: rest.run_state("lab_test", run_id) == "success", "the run to succeed")
            assert rest.required_actions("lab_test", run_id) == ()
            with pytest.raises(AirflowRestError) as refused:
                rest.answer("lab_test", run_id, action, "Approve")
            assert refused.value.status in (404, 409)
        finally:
            outliving.stop(kill=True)


def test_the_passwords_are_in_files_for_their_owner_only_and_in_no_log(airflow: AirflowLab, postgres: Postgres) -> None:
    passwords = [json.loads(airflow.password_file.read_text())["admin"], postgres.password_file.read_text().strip()]
    assert [file.stat().st_mode & 0o077 for file in (airflow.password_file, postgres.password_file)] == [0, 0]
    components = [airflow.log(name) for name in ("migration", *COMPONENTS)]
    logs = [*components, postgres.log, *(path for path in (airflow.home / "logs").rglob("*") if path.is_file())]
    assert len(logs) > 6
    for log in logs:
        assert not [password for password in passwords if password in log.read_text(errors="replace")]
    with airflow.rest() as rest:
        rest.import_errors()
        assert not [password for password in passwords if password in repr(rest)]


def test_a_dag_that_is_not_there_is_reported_with_the_errors_of_the_dag_files(airflow: AirflowLab) -> None:
    with pytest.raises(UnreachableError, match="does not know the DAG no_such_dag"):
        wait_for_dag(airflow, "no_such_dag", 2)


def test_what_each_task_imports_is_imported_by_who_forks_for_them(airflow: AirflowLab) -> None:
    for component in ("scheduler", "dag-processor"):
        maps = Path(f"/proc/{main_process(airflow, component).pid}/maps").read_text(encoding="utf-8")
        assert "/confluent_kafka/cimpl" in maps, component


def test_an_answer_that_airflow_loses_is_read_by_the_next_try(airflow: AirflowLab, rest: AirflowRest) -> None:
    # Airflow loses it where the scheduler queues the task before it hears that the process which asked has ended. The
    # order within the scheduler's loop is its own, so an answer may survive: then another run is asked.
    for _ in range(LOSSES_TRIED):
        run_id = rest.trigger(DAG_ID)
        until_it_is_begun(rest, run_id)
        approve = functools.partial(state_of, rest, run_id, "approve")
        until(lambda approve=approve: approve() in ("running", "awaiting_input"), "the process that asks", pause=0.1)
        with suspended(main_process(airflow, "scheduler")):
            until(lambda approve=approve: approve() == "awaiting_input", "the end of the process that asks")
            try:
                answer_at_once(rest, run_id, "Approve")
            except UnreachableError:  # the scheduler was stopped within a transaction, and holds the task's row
                continue
            until(lambda: all_results_are_in(airflow), "the end of the process that asked")
            assert approve() == "scheduled"
        succeeded(rest, DAG_ID, run_id)
        assert rest.xcom(DAG_ID, run_id, "approve")["approved_by"] == "admin"
        if tries(rest, run_id) > 1:
            return
    pytest.fail(f"Airflow lost none of {LOSSES_TRIED} answers")


def test_the_test_button_names_everything_that_does_not_answer(airflow: AirflowLab) -> None:
    (worker,) = free_ports(1)
    content = {
        "connection_id": "not_saved_yet",  # Airflow refuses another host for a saved one
        "conn_type": "kafka_connect",
        "host": f"http://127.0.0.1:{worker}",
        "extra": json.dumps({"kafka_conn_id": "brokers", "group_id": "g"}),
    }
    with airflow.rest() as rest:
        answer = rest._write("POST", "/api/v2/connections/test", content=content)
    assert answer["status"] is False
    for part in ("Kafka: FAILED", "group g: FAILED", f"worker 127.0.0.1:{worker}: FAILED"):
        assert part in answer["message"]


HOSTILE_REASON = (
    "fine\n\n# The plan is safe\n\nPlan hash: `0000` [x](http://evil) ![](http://evil/p.png) <b> ` \u202e\x1b[2J"
)


def asked(rest: AirflowRest, dag_id: str, run_id: str) -> RequiredAction:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        for action in rest.required_actions(dag_id, run_id):
            return action
        time.sleep(0.5)
    raise AssertionError(f"nothing was asked within {DEADLINE_SECONDS} s")


def test_a_rejection_given_at_once_is_not_lost_and_a_reason_with_markdown_is_data_on_the_page_as_airflow_keeps_it(
    rest: AirflowRest,
) -> None:
    run_id = rest.trigger(DAG_ID, {"reason": HOSTILE_REASON})
    body = answer_at_once(rest, run_id, "Reject").body
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(body)
    assert not {"heading_open", "html_block"} & {token.type for token in tokens}
    inline = [child for token in tokens for child in token.children or []]
    assert not {"link_open", "image", "html_inline"} & {child.type for child in inline}
    assert [child.type for child in tokens[-2].children or []] == ["text", "code_inline"]
    assert "# The plan is safe" in body.splitlines()[-1]
    assert all(line.isprintable() for line in body.splitlines())
    assert "Asked by: `admin`" in body
    assert ended(rest, DAG_ID, run_id) == "success"
    states = {task.task_id: task.state for task in rest.task_instances(DAG_ID, run_id)}
    assert (states["approve"], states["after"]) == ("success", "skipped")


def test_a_misspelt_key_of_the_conf_fails_the_run_at_its_first_task(rest: AirflowRest) -> None:
    run_id = rest.trigger(DAG_ID, {"resaon": "spring cleaning"})
    assert ended(rest, DAG_ID, run_id) == "failed"
    states = {task.task_id: task.state for task in rest.task_instances(DAG_ID, run_id)}
    assert states == {"plan": "failed", "approve": "upstream_failed", "after": "upstream_failed"}


def test_where_two_persons_are_wanted_the_requester_is_not_the_second(airflow: AirflowLab, rest: AirflowRest) -> None:
    rest.unpause(TWO)
    own, others = rest.trigger(TWO), rest.trigger(TWO)
    rest.answer(TWO, own, asked(rest, TWO, own), "Approve")
    password = json.loads(airflow.password_file.read_text())["grace"]
    with AirflowRest(airflow.url, "grace", password) as second:
        second.answer(TWO, others, asked(second, TWO, others), "Approve")
    succeeded(rest, TWO, others)
    assert rest.xcom(TWO, others, "approve")["approved_by"] == "grace"
    assert ended(rest, TWO, own) == "failed"


def test_the_connection_endpoint_shows_no_secret_that_we_accept_and_we_accept_none_that_it_shows(
    airflow: AirflowLab,
) -> None:
    worker = [{"url": "http://127.0.0.1:1"}]
    extra = {
        "bootstrap_servers": "127.0.0.1:1",
        "group_id": "g",
        "client_secrets": {"ssl.key.pem": "c4n4ry-1", "sasl.jaas.config": "c4n4ry-2"},
        "rest": {"token": "c4n4ry-3"},
        "workers": [{**worker[0], "env_secrets": {"KAFKA_OPTS": "-Dx.password=c4n4ry-4"}}],
    }
    shown_by_airflow = {"group_id": "g", "workers": worker, "client": json.dumps({"sasl.password": "c4n4ry-5"})}
    with airflow.rest() as rest:
        for name, value in (("hidden", extra), ("shown", shown_by_airflow)):
            body = {"connection_id": name, "conn_type": "kafka_connect", "extra": json.dumps(value)}
            rest._write("POST", "/api/v2/connections", content=body)
        hidden = json.dumps(rest._read("/api/v2/connections/hidden"))
        shown = json.dumps(rest._read("/api/v2/connections/shown"))
        body = {"connection_id": "x", "conn_type": "kafka_connect", "extra": json.dumps(shown_by_airflow)}
        tested = rest._write("POST", "/api/v2/connections/test", content=body)
        for name in ("hidden", "shown"):
            rest._once("DELETE", f"/api/v2/connections/{name}")
    assert "client_secrets" in hidden
    assert "c4n4ry" not in hidden
    assert "c4n4ry-5" in shown  # or refusing it would be for nothing
    assert tested["status"] is False
    assert "client in the extra is text" in tested["message"]
    assert "c4n4ry" not in tested["message"]


def test_whatever_is_killed_the_next_start_finds_and_ends_the_rest(airflow: AirflowLab) -> None:
    try:
        processes = airflow.processes()
        components = [main_process(airflow, name) for name in COMPONENTS]
        # The worst case: the components killed, their children without parents, and this object forgotten.
        for component in components:
            component.kill()
        until(lambda: not any(identify(component.pid) for component in components), "the end of all")
        assert any(process.is_alive() for process in processes)

        assert AirflowLab.clear(airflow.folder) >= 1
    finally:
        airflow.stop()
    assert [process for process in processes if process.is_alive()] == []
    assert airflow.processes() == ()
    assert AirflowLab.clear(airflow.folder) == 0
