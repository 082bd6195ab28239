"""Rolls of real workers down from enabled: aborted, deferred, paused and taken back, and one beside a stopped worker.

Each test begins in the mode in which the one before it ends; a test that runs alone rolls there first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import FencedError, LeaseHeldError, RolloutPausedError, StopRequestedError
from airflow_eos_provider.journal.journal import ask, read_journal
from airflow_eos_provider.journal.journal_topic import prepare_journal
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.records import Request, RequestKind, RolloutState
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.operators.changes import ConnectCloseOperator, ConnectClosePlanOperator
from airflow_eos_provider.rollout.act import at_gate
from airflow_eos_provider.rollout.act.handover import GateLook
from airflow_eos_provider.rollout.act.roll import Roll
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.outcome import RolloutReport
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.integration.mode_evidence import Evidence, assert_told, without_log
from tests.integration.offsets_cluster import FILE_SOURCE
from tests.integration.rolling import append, assert_every_line_is_delivered, once_whole, rolling_lab
from tests.seen import files, modes, pid_of, pids, starts
from tests.system.modes import bring_to
from tests.waiting import until

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, PAUSED = 3, 5

#: A rollout of long ago that a newer version of the package has written; all verbs work beside it.
NEWER = "20200101T000000-preparing-newer"

TASK = "upgrade/manual/roll_preparing"
ANOTHER = "upgrade/another run/roll_preparing"
SETTINGS = RolloutSettings(poll_interval_seconds=0.3, hold_seconds=2.0)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers in enabled, with a file source."""
    lab = rolling_lab(lab_factory, "verbs", Mode.ENABLED)
    kafka = lab.cluster().kafka
    prepare_journal(kafka, lab.group_id, print)
    document = {"schema": 2, "rollout_id": NEWER, "state": "running", "started_at": 1.0, "waves": [["w1"], ["w2"]]}
    producer = Producer(kafka.confluent())
    for key in (f"rollout/{NEWER}", f"wave/{NEWER}/1"):
        producer.produce(journal_topic(lab.group_id), key=key.encode(), value=json.dumps(document).encode())
    assert producer.flush(180) == 0
    return lab


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


def test_a_roll_aborted_from_airflow_stops_where_it_is_and_is_never_taken_up(
    lab: Lab, eos: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_to(lab, Mode.ENABLED)
    workers = [{"url": url} for url in lab.connect_urls]
    extra = {"bootstrap_servers": lab.bootstrap_servers, "group_id": lab.group_id, "workers": workers}
    connection = json.dumps({"conn_type": "kafka_connect", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", connection)
    closed, errors = closed_in_the_first_restart(eos, "apply", "--plan", eos.plan(Mode.PREPARING))
    assert "asked for abort: wrong cluster" in errors
    rollout = read_journal(lab.cluster().kafka, lab.group_id).rollouts[closed["closed"]]
    assert rollout.state is RolloutState.ABORTED
    whole = once_whole(lab)
    through = [worker.worker_id for worker in whole.workers if worker.mode.verdict.mode is Mode.PREPARING]
    assert closed["half_done"] == through
    assert {worker.mode.verdict.mode for worker in whole.workers} == {Mode.ENABLED, Mode.PREPARING}
    wanted = ["preparing" if worker.worker_id in through else "enabled" for worker in lab.cluster().workers]
    assert Evidence(lab).verdicts() == wanted
    before = pids(lab)
    assert "cannot be resumed" in eos.run("rollout", "resume", expect=REFUSED).stderr
    assert "nothing to stop" in eos.run("rollout", "abort", expect=REFUSED).stderr
    assert pids(lab) == before
    eos.run("rollout", "undo", "--yes")
    assert modes(lab) == {Mode.ENABLED}


@pytest.fixture
def every_gate_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that would hold at its first look, where a worker starts in less time than a look takes."""
    begin, holds = Roll._begin_or_take_up, at_gate.holds_remotely
    is_new = False
    monkeypatch.setattr(at_gate, "HOST_LOOK_SECONDS", 600.0)  # else a gate that takes a minute is handed over again

    def begin_or_take_up(roll: Roll, worker_id: str | None, observation: Observation) -> tuple[GateState, bool]:
        nonlocal is_new
        gate, hands_over = begin(roll, worker_id, observation)
        is_new = not gate.looked_at
        return gate, hands_over

    monkeypatch.setattr(Roll, "_begin_or_take_up", begin_or_take_up)
    monkeypatch.setattr(at_gate, "holds_remotely", lambda *look: not is_new and holds(*look))


def process_of(lab: Lab, task: str = TASK) -> Controller:
    """A new process of the task knows nothing of the one before; a new controller stands for it here."""
    return Controller(lab.cluster(), settings=SETTINGS, task=task)


def wait_elsewhere(lab: Lab, wait: GateState, expected: str = "") -> GateState:
    """Poll the gate as a trigger does, until there is a reason to resume the task.

    :param expected: a part of that reason.
    """
    look = GateLook(lab.cluster(), GateState.from_dict(wait.to_dict()), TASK)
    reasons: list[str] = []

    def has_reason() -> bool:
        reasons.extend(filter(None, [look.look()]))
        return bool(reasons)

    try:
        until(has_reason, "a reason to resume the task", seconds=150, pause=0.3)
    except AssertionError as error:
        error.add_note(look.status_line)
        raise
    assert expected in reasons[0]
    return GateState.from_dict(look.gate.to_dict())


def more(before: dict[str, int], lab: Lab) -> set[int]:
    """How often each worker was started since."""
    return {count - before[worker] for worker, count in starts(lab).items()}


def planned(lab: Lab, target: Mode) -> Plan:
    return process_of(lab).plan(target)


def with_its_time_over(wait: GateState) -> GateState:
    """As after an hour without a look: what was seen before it is no hold any more."""
    past = time.time() - 3600
    return replace(wait, deadline=past, latest_deadline=past, looked_at=past)


def restarts(gates: list[GateState]) -> list[float]:
    return [gate.restart_id for gate in gates if gate.worker_id]


@pytest.mark.usefixtures("every_gate_is_handed_over")
def test_a_task_that_is_asked_to_stop_or_taken_over_while_deferred_does_no_more(lab: Lab) -> None:
    bring_to(lab, Mode.ENABLED)
    plan, before = planned(lab, Mode.PREPARING), starts(lab)
    kafka = lab.cluster().kafka
    wait = process_of(lab).advance(plan)
    assert isinstance(wait, GateState)

    # An operator takes a worker out of the description meanwhile: the roll pauses and says so.
    described = lab.cluster()
    without = replace(described, workers=described.workers[:1])
    gone = described.workers[1].worker_id
    reason = GateLook(without, wait, TASK).look()
    assert reason is not None
    assert f"{gone} is part of the plan and no longer described" in reason
    with pytest.raises(RolloutPausedError, match=f"{gone} is part of the plan .* add them to the cluster file"):
        Controller(without, settings=SETTINGS, task=TASK).go_on(plan, wait)
    assert read_journal(kafka, lab.group_id).rollouts[wait.rollout_id].state is RolloutState.PAUSED

    wait = process_of(lab).advance(plan)
    assert isinstance(wait, GateState)
    ask(kafka, lab.group_id, Request(wait.rollout_id, RequestKind.PAUSE, time.time(), "ann", "lunch"))
    waited = wait_elsewhere(lab, wait, expected="ann asked for pause: lunch")
    with pytest.raises(StopRequestedError, match="lunch"):
        process_of(lab).go_on(plan, waited)
    assert read_journal(kafka, lab.group_id).rollouts[wait.rollout_id].state is RolloutState.PAUSED

    # Applied again it goes on, until another task takes over by force.
    wait = process_of(lab).advance(plan)
    assert isinstance(wait, GateState)
    taken = process_of(lab, task=ANOTHER).advance(plan, take_over=True)
    assert isinstance(taken, GateState)
    wait_elsewhere(lab, replace(wait, look_at=time.time() + 3600), expected="taken over")
    with pytest.raises(FencedError, match="while this task was deferred"):
        process_of(lab).go_on(plan, wait)
    Controller(lab.cluster(), settings=SETTINGS, task=ANOTHER).apply(plan)
    assert more(before, lab) == {1}

    # The other one has done what this task was for, and it holds.
    late = process_of(lab).go_on(plan, wait)
    assert isinstance(late, RolloutReport)
    assert (late.rollout_id, late.resumed) == (wait.rollout_id, True)
    assert more(before, lab) == {1}


@pytest.mark.first
@pytest.mark.usefixtures("every_gate_is_handed_over")
def test_a_roll_in_pieces_restarts_each_worker_once_and_no_other_controller_may_act(lab: Lab) -> None:
    bring_to(lab, Mode.PREPARING)
    append(lab)
    plan, before = planned(lab, Mode.DISABLED), starts(lab)
    outcome = process_of(lab).advance(plan)
    assert isinstance(outcome, GateState)

    # No process acts now, and none but the task's may.
    lease = read_journal(lab.cluster().kafka, lab.group_id).lease
    assert lease is not None
    assert lease.belongs_to(TASK)
    assert lease.expires_at > outcome.latest_deadline
    with pytest.raises(LeaseHeldError, match=f"the deferred task {TASK}"):
        process_of(lab, task=ANOTHER).advance(plan)
    with pytest.raises(LeaseHeldError, match="waiting for"):
        Controller(lab.cluster()).apply(plan)

    gates: list[GateState] = []
    while isinstance(outcome, GateState):
        gates.append(outcome)
        assert len(gates) < 10, "the same gate comes back"
        waited = wait_elsewhere(lab, outcome)
        if len(restarts(gates)) == 2:
            waited = with_its_time_over(waited)
        outcome = process_of(lab).go_on(plan, waited)

    assert more(before, lab) == {1}
    assert [worker.mode for worker in outcome.workers] == [Mode.DISABLED, Mode.DISABLED]
    assert not outcome.resumed
    # Each restart was waited for elsewhere, once: what comes back is good for the gate.
    assert len(restarts(gates)) == len(set(restarts(gates))) == 2
    journal = read_journal(lab.cluster().kafka, lab.group_id)
    assert [event.what for event in journal.events[outcome.rollout_id]] == ["begun", "done"]
    assert journal.lease is not None
    assert journal.lease.released

    append(lab)
    assert_every_line_is_delivered(lab)
    # The leader's transactional id is still there, which must not pass for a leader that uses it.
    assert_told(lab, Mode.DISABLED, leader_left_its_id=True)


def test_a_roll_is_paused_resumed_and_taken_back_and_its_history_shows_it(lab: Lab, eos: Any) -> None:
    """The way back waits for a worker that is killed before its turn."""
    bring_to(lab, Mode.DISABLED)
    original = files(lab)
    roll = ("apply", "--plan", eos.plan(Mode.PREPARING), "--reason", "exactly once")
    answer, errors = answer_in_the_first_restart(eos, roll, "pause", "lunch")
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
    before = starts(lab)
    killed = roll_beside_a_killed_worker(eos, eos.start("rollout", "undo", "--yes"))
    assert {w: count - before[w] for w, count in starts(lab).items()} == {w: 1 + (w == killed) for w in before}
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


def answer_in_the_first_restart(eos: Any, roll: tuple[str, ...], verb: str, reason: str) -> tuple[dict[str, Any], str]:
    """Ask a roll to stop while it is suspended behind its first restart, so that no gate passes before it can answer.

    :returns: the answer, and the progress of the roll until its end.
    """
    lab = eos.lab
    with eos.suspended_at("started", *roll) as first:
        asking = eos.start("rollout", verb, "--reason", reason, "--json")
        until(
            lambda: read_journal(lab.cluster().kafka, lab.group_id).requests,
            "the request to be on record",
            seconds=150,
        )
        assert first.end() == PAUSED, first.errors
    output, errors = asking.communicate(timeout=400)
    assert asking.returncode == 0, errors
    return json.loads(output), first.errors


def roll_beside_a_killed_worker(eos: Any, roll: Any) -> str:
    """Kill the worker whose turn comes later in the first restart; start it once the roll has asked for it.

    :returns: that worker.
    """
    lab = eos.lab
    with eos.line_in_log(roll, r"stopping pid") as line:
        (index,) = (i for i, worker in enumerate(lab.cluster().workers) if f" {worker.worker_id}: " not in line)
        killed = lab.cluster().workers[index]
        lab.stop_worker(index, kill=True)
        with eos.line_in_log(roll, rf"{killed.worker_id} has ended, and not by this roll") as named:
            assert f"start {killed.worker_id}: " in named
            assert str(killed.pid_file) in named
            lab.start_worker(index)
            _, progress = roll.communicate(timeout=900)
    assert roll.returncode == 0, progress
    assert f"{killed.worker_id} runs again" in progress
    return str(killed.worker_id)


def closed_in_the_first_restart(eos: Any, *roll: str) -> tuple[dict[str, Any], str]:
    """The same by the DAG that closes what is open, without taking over.

    :returns: the result of its last task, and the progress of the roll until its end.
    """
    lab = eos.lab
    dag_run = SimpleNamespace(dag_id="connect_close", run_id="manual", triggering_user_name="ada")
    context: Any = {"dag_run": dag_run}
    with ThreadPoolExecutor(1) as tasks, eos.suspended_at("started", *roll) as first:
        plan = ConnectClosePlanOperator(task_id="plan").execute(context)
        approval = {"plan_hash": plan["hash"], "approved_by": "grace"}
        close = ConnectCloseOperator(task_id="close", plan=plan, approval=approval, reason="wrong cluster")
        closing = tasks.submit(close.execute, context)
        until(
            lambda: read_journal(lab.cluster().kafka, lab.group_id).requests or closing.done(),
            "the request to be on record",
            seconds=150,
        )
        assert first.end() == PAUSED, first.errors
        closed = closing.result(timeout=600)
    return closed, first.errors


def no_other_change_begins(lab: Lab, eos: Any, rollout_id: str) -> None:
    """In the midst of a roll neither offsets nor topics change."""
    name = "idle"
    config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": str(lab.data_dir / name)}
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.create(name, config, "STOPPED")
        until(lambda: name in rest.statuses(), "the connector", seconds=60)
        alter = ("alter", name, "--partition", '{"filename": "idle"}', "--offset", '{"position": 4}')
        for command in (("offsets", *alter), ("topics", "create", "--own-topic", "idle-offsets")):
            refused = eos.run(*command, "--yes", expect=REFUSED).stderr
            assert rollout_id in refused, refused
        assert eos.run("offsets", "list", name, "--json").stdout.strip() == "[]"
        assert not Topics(lab.cluster().kafka).find(["idle-offsets"])
        rest.delete(name)


def test_a_file_newer_than_its_process_is_a_disagreement(lab: Lab) -> None:
    bring_to(lab, Mode.DISABLED)
    evidence = Evidence(lab)
    first = next(iter(evidence.hosts))
    config = evidence.cluster.worker(first).config
    assert config is not None
    original = config.read_bytes()
    try:
        evidence.hosts[first].edit({MODE_PROPERTY: "preparing"}, expect=evidence.hosts[first].observe().digest or "")
        mode = evidence.modes()[first]
        blind = evidence.modes(without_log)[first]
        leader_tells = evidence.leader() == first and not evidence.has_leaders_id()
    finally:
        config.write_bytes(original)
    assert mode.verdict is ModeVerdict.DISABLED
    assert mode.declared.mode is Mode.PREPARING
    (sentence,) = mode.disagreements
    assert "a restart will change the mode" in sentence
    assert blind.verdict is (ModeVerdict.DISABLED if leader_tells else ModeVerdict.UNKNOWN), blind.reason


def test_a_stopped_worker_stays_stopped_and_joins_in_the_new_mode(lab: Lab, eos: Any) -> None:
    bring_to(lab, Mode.DISABLED)
    runs, stopped = (worker.worker_id for worker in lab.cluster().workers)
    made_before = eos.plan(Mode.PREPARING)
    before = starts(lab)
    lab.stop_worker(1)
    moved = eos.run("apply", "--plan", made_before, "--allow-downtime", expect=REFUSED)
    assert f"mode of {stopped}: disabled, now stopped" in moved.stderr

    plan = json.loads(eos.run("plan", "--to", Mode.PREPARING, "--allow-downtime", "--json").stdout)
    assert {worker["worker_id"]: worker["mode"] for worker in plan["workers"]} == {runs: "disabled", stopped: "stopped"}
    eos.run("apply", "--plan", plan["hash"], "--allow-downtime")
    assert starts(lab) == {runs: before[runs] + 1, stopped: before[stopped]}
    assert lab.worker_process(1) is None
    assert parse(files(lab)[stopped])[MODE_PROPERTY] == "preparing"
    evidence = Evidence(lab).modes()[stopped]
    assert evidence.verdict is ModeVerdict.UNKNOWN
    assert evidence.reason.startswith("stopped; will join as preparing")
    assert evidence.declared.mode is Mode.PREPARING

    lab.start_worker(1)
    assert modes(lab) == {Mode.PREPARING}
    assert json.loads(eos.run("plan", "--to", Mode.PREPARING, "--json").stdout)["nothing_to_do"]
