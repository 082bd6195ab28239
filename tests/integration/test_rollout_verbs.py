"""``eos rollout``: a roll of real workers paused, resumed, aborted and taken back, and an unknown member that joins."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.records import RolloutState
from airflow_eos_provider.journal.topic import prepare_journal
from airflow_eos_provider.kafka.clients import ClientErrors, quiet_producer
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.operators.connect_close import ConnectCloseOperator, ConnectClosePlanOperator
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.integration.offsets_cluster import FILE_SOURCE
from tests.seen import files, modes, pid_of, pids
from tests.waiting import until

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, PAUSED = 3, 5


#: A rollout of long ago that a newer version of the package has written; all verbs work beside it.
NEWER = "20200101T000000-preparing-newer"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    lab = lab_factory(
        LabOptions(name="verbs", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=500, session_timeout_ms=6000)
    )
    kafka = lab.cluster().kafka
    prepare_journal(kafka, lab.group_id, print)
    document = {"schema": 2, "rollout_id": NEWER, "state": "running", "started_at": 1.0, "waves": [["w1"], ["w2"]]}
    producer = quiet_producer(kafka, ClientErrors())
    for key in (f"rollout/{NEWER}", f"wave/{NEWER}/1"):
        producer.produce(journal_topic(lab.group_id), key=key.encode(), value=json.dumps(document).encode())
    assert producer.flush(20) == 0
    return lab


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


@pytest.fixture
def in_disabled(lab: Lab, eos: Any) -> None:
    if modes(lab) != {Mode.DISABLED}:
        eos.roll(Mode.DISABLED)


#: Needs two workers in disabled.
from_disabled = pytest.mark.usefixtures("in_disabled")


@from_disabled
def test_a_killed_roll_is_closed_by_abort_and_held_by_pause(lab: Lab, eos: Any) -> None:
    """No controller carries it out: abort closes it at once, a pause waits for the one that takes it up."""
    plan = eos.plan(Mode.PREPARING)
    kill_in_mid_roll(eos, "--plan", plan)
    assert json.loads(eos.run("rollout", "show", "--json").stdout)["state"] == "interrupted"
    assert json.loads(eos.run("rollout", "pause", "--json").stdout)["answered"] is False
    before = pids(lab)
    assert "asked for pause" in eos.run("apply", "--plan", plan, expect=PAUSED).stderr
    assert pids(lab) == before
    refused = eos.run("apply", expect=REFUSED).stderr  # it offers the plan of the unfinished rollout
    offered = shlex.split(refused.splitlines()[-1].partition(":  ")[2])
    assert offered == ["eos", "apply", "--plan", plan[:12], "--cluster", str(lab.cluster_file)]
    kill_in_mid_roll(eos, "--yes")  # applied after the answer, it goes on
    assert json.loads(eos.run("rollout", "abort", "--json").stdout)["state"] == "aborted"
    assert pids(lab) == before
    assert modes(lab) == {Mode.DISABLED}


@from_disabled
def test_a_roll_is_paused_resumed_and_taken_back_and_its_history_shows_it(lab: Lab, eos: Any) -> None:
    original = files(lab)
    first = eos.start("apply", "--plan", eos.plan(Mode.PREPARING), "--reason", "exactly once")
    answer, errors = answer_in_the_first_restart(eos, first, "pause", "lunch")
    assert first.returncode == PAUSED, errors
    assert "asked for pause: lunch" in errors
    eos.run("rollout", "wait", "--timeout", "5", expect=PAUSED)
    whole = once_whole(lab)
    running = {w.worker_id: pid_of(w.facts) for w in whole.workers if w.mode.verdict.mode is Mode.PREPARING}
    through = {worker_id: pid for worker_id, pid in running.items() if pid}
    assert len(through) == 1
    assert (answer["state"], answer["answered"], answer["half_done"]) == ("paused", True, list(through))

    no_other_change_begins(lab, eos, answer["rollout_id"])
    report = json.loads(eos.run("rollout", "resume", "--json").stdout)["report"]

    assert report["resumed"] is True
    assert modes(lab) == {Mode.PREPARING}
    assert {w: pids(lab)[w] for w in through} == through, "a finished step was repeated"
    assert all({"predicted_seconds", "task_downtime_seconds"} <= worker.keys() for worker in report["workers"])

    assert "is done" in eos.run("rollout", "wait", report["rollout_id"]).stdout
    shown = json.loads(eos.run("rollout", "show", report["rollout_id"], "--json").stdout)
    assert [event["what"] for event in shown["events"]] == ["begun", "paused", "taken up", "done"]
    assert shown["events"][0]["reason"] == "exactly once"
    assert "lunch" in shown["events"][1]["note"]
    for worker in shown["workers"]:
        assert any("placement" in line for line in worker["evidence"]), "the gate's evidence is not kept"
    assert "lunch" in eos.run("rollout", "show").stdout

    proposed = json.loads(eos.run("rollout", "undo", "--json", expect=REFUSED).stdout)
    assert (proposed["plan"]["target"], proposed["applied"]) == ("disabled", False)
    assert modes(lab) == {Mode.PREPARING}, "the way back was gone without being asked for"
    eos.run("rollout", "undo", "--yes")
    assert modes(lab) == {Mode.DISABLED}
    assert {w: file == original[w] for w, file in files(lab).items()} == proposed["restores_files"]
    listed = json.loads(eos.run("rollout", "list", "--json").stdout)["rollouts"]
    assert [(r["from"], r["to"], r["state"]) for r in listed[:2]] == [
        ("preparing", "disabled", "done"),
        ("disabled", "preparing", "done"),
    ]
    assert listed[0]["reason"] == f"back from rollout {report['rollout_id']}"
    assert (listed[-1]["rollout_id"], listed[-1]["state"]) == (NEWER, "not understood")
    assert "not understood" in eos.run("rollout", "list").stdout
    for verb in ("show", "pause", "resume", "abort", "undo"):
        assert f"Rollout {NEWER} has a record" in eos.run("rollout", verb, NEWER, expect=REFUSED).stderr


@from_disabled
def test_a_roll_aborted_from_airflow_stops_where_it_is_and_is_never_taken_up(
    lab: Lab, eos: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = [{"url": url} for url in lab.connect_urls]
    extra = {"bootstrap_servers": lab.bootstrap_servers, "group_id": lab.group_id, "workers": workers}
    connection = json.dumps({"conn_type": "kafka_connect", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", connection)
    first = eos.start("apply", "--plan", eos.plan(Mode.PREPARING))
    closed, errors = closed_in_the_first_restart(eos, first)
    assert first.returncode == PAUSED, errors
    assert "asked for abort: wrong cluster" in errors
    rollout = read_journal(lab.cluster().kafka, lab.group_id).rollouts[closed["closed"]]
    assert rollout.state is RolloutState.ABORTED
    whole = once_whole(lab)
    through = [worker.worker_id for worker in whole.workers if worker.mode.verdict.mode is Mode.PREPARING]
    assert closed["half_done"] == through
    assert {worker.mode.verdict.mode for worker in whole.workers} == {Mode.DISABLED, Mode.PREPARING}
    before = pids(lab)
    assert "cannot be resumed" in eos.run("rollout", "resume", expect=REFUSED).stderr
    assert "nothing to stop" in eos.run("rollout", "abort", expect=REFUSED).stderr
    assert pids(lab) == before
    eos.run("rollout", "undo", "--yes")
    assert modes(lab) == {Mode.DISABLED}


@from_disabled
def test_an_unknown_member_that_joins_in_mid_roll_pauses_it(lab: Lab, eos: Any) -> None:
    plan = eos.plan(Mode.PREPARING)
    first = eos.start("apply", "--plan", plan)
    with eos.line_in_log(first, r"stopping pid"):
        with eos.suspended(first):
            unknown = lab.add_worker(listed=False)  # healthy, so it has joined
        _, errors = first.communicate(timeout=300)
    try:
        assert first.returncode == PAUSED, errors
        assert lab.connect_urls[unknown].removeprefix("http://") in errors
        assert len(modes(lab)) == 2, "the roll went on beside an unknown member"
    finally:
        lab.stop_worker(unknown)
    once_whole(lab)
    eos.run("apply", "--plan", plan)
    assert modes(lab) == {Mode.PREPARING}


def answer_in_the_first_restart(eos: Any, roll: Any, verb: str, reason: str) -> tuple[dict[str, Any], str]:
    """Ask a roll to stop while it is suspended in its first restart, so that no gate passes before it can answer.

    :returns: the answer, and the progress of the roll until its end.
    """
    lab = eos.lab
    with eos.line_in_log(roll, r"stopping pid"):
        with eos.suspended(roll):
            asking = eos.start("rollout", verb, "--reason", reason, "--json")
            deadline = time.monotonic() + 600
            while not read_journal(lab.cluster().kafka, lab.group_id).requests:
                assert time.monotonic() < deadline, "the request is not on record"
                time.sleep(0.2)
        output, errors = asking.communicate(timeout=300)
        assert asking.returncode == 0, errors
        _, progress = roll.communicate(timeout=300)
    return json.loads(output), progress


def closed_in_the_first_restart(eos: Any, roll: Any) -> tuple[dict[str, Any], str]:
    """The same by the DAG that closes what is open, without taking over.

    :returns: the result of its last task, and the progress of the roll until its end.
    """
    lab = eos.lab
    dag_run = SimpleNamespace(dag_id="connect_close", run_id="manual", triggering_user_name="ada")
    context: Any = {"dag_run": dag_run}
    with eos.line_in_log(roll, r"stopping pid"), ThreadPoolExecutor(1) as tasks:
        with eos.suspended(roll):
            plan = ConnectClosePlanOperator(task_id="plan").execute(context)
            approval = {"plan_hash": plan["hash"], "approved_by": "grace"}
            close = ConnectCloseOperator(task_id="close", plan=plan, approval=approval, reason="wrong cluster")
            closing = tasks.submit(close.execute, context)
            until(
                lambda: read_journal(lab.cluster().kafka, lab.group_id).requests or closing.done(),
                "the request to be on record",
                seconds=150,
            )
        closed = closing.result(timeout=600)
        _, progress = roll.communicate(timeout=300)
    return closed, progress


def no_other_change_begins(lab: Lab, eos: Any, rollout_id: str) -> None:
    """In the midst of a roll neither offsets nor topics change."""
    name = "idle"
    config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": str(lab.data_dir / name)}
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
        rest.create(name, config, "STOPPED")
        until(lambda: name in rest.statuses(), "the connector", seconds=60)
        alter = ("alter", name, "--partition", '{"filename": "idle"}', "--offset", '{"position": 4}')
        for command in (("offsets", *alter), ("topics", "create", "--own-topic", "idle-offsets")):
            refused = eos.run(*command, "--yes", expect=REFUSED).stderr
            assert rollout_id in refused, refused
        assert eos.run("offsets", "list", name, "--json").stdout.strip() == "[]"
        assert not Topics(lab.cluster().kafka).find(["idle-offsets"])
        rest.delete(name)


def kill_in_mid_roll(eos: Any, *options: str) -> None:
    process = eos.start("apply", *options)
    with eos.line_in_log(process, r"checks pass"):
        process.send_signal(signal.SIGKILL)


def once_whole(lab: Lab, seconds: float = 600.0) -> Observation:
    """The group as soon as every listed worker is a healthy member in a known mode again, and it has a leader."""
    deadline = time.monotonic() + seconds
    while True:
        seen = Observer(lab.cluster()).observe()
        known = all(w.is_healthy and w.worker_id in seen.members and w.mode.verdict.mode for w in seen.workers)
        if seen.leader_id and known:
            return seen
        assert time.monotonic() < deadline, "the group did not become whole"
        time.sleep(0.3)
