"""The connection's Test button against real brokers and workers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_eos_provider.changes.fencing.change import FENCING, FencingRequest
from airflow_eos_provider.changes.offsets.change import ALTER, PRUNE, AlterRequest, PruneRequest
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.journal.group_change import group_change
from airflow_eos_provider.journal.journal import Journal, read_journal
from airflow_eos_provider.journal.records import RolloutRecord, RolloutState, Step, StepStatus
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.airflow import free_ports
from airflow_eos_provider.offsets.seen.backup import read
from airflow_eos_provider.operators import (
    ConnectCloseOperator,
    ConnectClosePlanOperator,
    ConnectOffsetsBackupOperator,
)
from airflow_eos_provider.operators.approval import approvable, approval_body
from tests.changed import changed


def connect_to(lab: Lab, monkeypatch: pytest.MonkeyPatch, **changes: object) -> KafkaConnectHook:
    extra = {
        "bootstrap_servers": lab.bootstrap_servers,
        "group_id": lab.group_id,
        "workers": [{"url": url} for url in lab.connect_urls],
        **changes,
    }
    connection = json.dumps({"conn_type": "kafka_connect", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", connection)
    return KafkaConnectHook()


def test_a_cluster_that_answers_passes_the_test(disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    works, message = connect_to(disabled_lab, monkeypatch).test_connection()
    assert works, message
    assert "Kafka: 1 broker;" in message
    assert "Stable, 2 members" in message
    assert message.count("Connect 4.3.1") == 2


def test_one_worker_that_does_not_answer_is_named(disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    urls = [*disabled_lab.connect_urls, f"http://127.0.0.1:{port}"]
    works, message = connect_to(disabled_lab, monkeypatch, workers=[{"url": url} for url in urls]).test_connection()
    assert not works
    assert f"worker 127.0.0.1:{port}: FAILED" in message
    assert message.count("FAILED") == 1


def test_a_wrong_group_is_named(disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    works, message = connect_to(disabled_lab, monkeypatch, group_id="no-such-group").test_connection()
    assert not works
    assert "group no-such-group: FAILED" in message
    assert message.count("FAILED") == 1


def test_the_client_is_that_of_a_worker_which_answers(disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    urls = [f"http://127.0.0.1:{port}", *disabled_lab.connect_urls]
    hook = connect_to(disabled_lab, monkeypatch, workers=[{"url": url} for url in urls])
    with hook.get_conn() as client:
        assert client.root().version == "4.3.1"
        assert client.url == disabled_lab.connect_urls[0]


def test_offsets_are_changed_and_fencing_is_looked_at_with_the_topics_that_are_named(
    disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hook, group = connect_to(disabled_lab, monkeypatch), disabled_lab.group_id
    topics = {"config_topic": f"{group}-configs", "offsets_topic": f"{group}-offsets"}
    request = AlterRequest(connector="hooked", partition='{"file": "a"}', offset='{"n": 1}', absent=True, **topics)
    (done,) = changed(hook.get_cluster(), ALTER, request).to_dict()["connectors"]
    assert done["written"] == 1
    with ALTER.session(hook.get_cluster()) as session:
        assert ALTER.plan(session, request).nothing
        assert PRUNE.plan(session, PruneRequest(**topics)).about == "hooked"
    with hook.source_offsets(offsets_topic=topics["offsets_topic"]) as source:
        left = [one.offset.record for one in source.now().leftovers()]
        assert [(record.key.connector, record.offset) for record in left] == [("hooked", {"n": 1})]
    file = tmp_path / "backup.jsonl"
    operator = ConnectOffsetsBackupOperator(task_id="backup", file=str(file), offsets_topic=topics["offsets_topic"])
    taken = operator.execute({})
    assert taken["records"] == 1
    assert operator.execute({}) == taken  # Clear
    of_one = ConnectOffsetsBackupOperator(
        task_id="other", file=str(file), connector="hooked", offsets_topic=topics["offsets_topic"]
    )
    with pytest.raises(AirflowFailException, match="is the backup of something else"):
        of_one.execute({})
    assert [record.offset for record in read(file).records] == [{"n": 1}]
    with FENCING.session(hook.get_cluster()) as session:
        assert FENCING.plan(session, FencingRequest(config_topic=topics["config_topic"])).nothing


def test_the_hook_plans_a_roll_and_tells_the_status(disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"cluster_file": str(disabled_lab.cluster_file)}
    monkeypatch.setenv("AIRFLOW__EOS__CONNECTION_FILES_FOLDERS", str(disabled_lab.cluster_file.parent))
    described = json.dumps({"conn_type": "kafka_connect", "host": disabled_lab.connect_urls[0], "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", described)
    hook = KafkaConnectHook()
    names = {worker.worker_id for worker in disabled_lab.cluster().workers}
    with hook.rolls(reason="a test") as rolls:
        plan = rolls.plan(Mode.PREPARING)
    assert (plan.group_id, plan.target, {worker.worker_id for worker in plan.workers}) == (
        disabled_lab.group_id,
        Mode.PREPARING,
        names,
    )
    status = hook.status()
    assert (status["state"], {worker["worker"] for worker in status["workers"]}) == ("Stable", names)


def test_without_workers_files_a_topic_that_is_not_named_is_asked_for(
    disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = connect_to(disabled_lab, monkeypatch)
    changes: dict[Any, Any] = {FENCING: FencingRequest(), PRUNE: PruneRequest()}
    for change, request in changes.items():
        with (
            change.session(hook.get_cluster()) as session,
            pytest.raises(ConfigurationError, match=r"config\.storage\.topic cannot be determined"),
        ):
            change.plan(session, request)


def test_what_was_left_open_is_closed_as_the_approver_has_seen_it(
    disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that was cut off in a step, then a roll whose controller is gone, with one worker half done."""
    hook, group = connect_to(disabled_lab, monkeypatch), disabled_lab.group_id
    kafka = hook.get_cluster().kafka
    worker = hook.get_cluster().workers[0].worker_id
    cut_off = Journal(kafka, group, actor="a test", reason="to be cut off")
    begun = group_change(cut_off, "offsets reset", "hooked", {"hash": "h"})
    with pytest.raises(RuntimeError), begun as change, change.step("write"):
        raise RuntimeError
    closes(group, "step that was begun and may not be finished: write")
    assert read_journal(kafka, group).open_change is None

    left = Journal(kafka, group, actor="a test", reason="to be left")
    left.acquire()
    rollout = RolloutRecord("20260102-enabled", {"hash": "p"}, {}, RolloutState.RUNNING, time.time(), "a test")
    left.begin(rollout)
    left.record(Step(worker, StepStatus.INTENT, time.time()))
    asks = approval_body(approvable(ConnectClosePlanOperator(task_id="plan").execute(CONTEXT)), "a test")
    assert "carries it out, and continues until it is asked to stop" in asks
    plan = ConnectClosePlanOperator(task_id="plan", take_over="True").execute(CONTEXT)
    body = approval_body(approvable(plan), "a test")
    assert "is fenced, though its lease still runs" in body
    assert f"{worker} now: it answers, Connect 4.3.1" in body
    left.end(replace(rollout, state=RolloutState.FAILED, note="its controller has gone"))
    left.close()
    with pytest.raises(AirflowFailException, match="does not fit any more"):
        close_operator(plan).execute(CONTEXT)
    assert closes(group, f"{worker} is half done")["half_done"] == [worker]
    (closed,) = read_journal(kafka, group).rollouts.values()
    assert (closed.state, closed.note) == (RolloutState.ABORTED, "CHG-4711")
    with pytest.raises(AirflowSkipException, match="is open"):
        ConnectClosePlanOperator(task_id="plan").execute(CONTEXT)


CONTEXT: Any = {"dag_run": SimpleNamespace(dag_id="connect_close", run_id="manual", triggering_user_name="ada")}


def close_operator(plan: dict[str, Any]) -> ConnectCloseOperator:
    approval = {"plan_hash": plan["hash"], "approved_by": "grace"}
    return ConnectCloseOperator(task_id="close", plan=plan, approval=approval, reason="CHG-4711")


def closes(group: str, shown: str) -> dict[str, Any]:
    """Plan, look at what an approver sees, and close."""
    plan = ConnectClosePlanOperator(task_id="plan").execute(CONTEXT)
    body = approval_body(approvable(plan), "a test")
    assert shown in body
    assert f"of Kafka Connect group {group} as it is?" in approvable(plan).question
    return close_operator(plan).execute(CONTEXT)
