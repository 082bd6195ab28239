"""A roll in pieces: its process ends at each gate that does not hold yet, and another one goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import FencedError, LeaseHeldError, RolloutPausedError, StopRequestedError
from airflow_eos_provider.journal.journal import ask, read_journal
from airflow_eos_provider.journal.records import Request, RequestKind, RolloutState
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.act import at_gate
from airflow_eos_provider.rollout.act.handover import GateLook
from airflow_eos_provider.rollout.act.roll import Roll
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.outcome import RolloutReport
from airflow_eos_provider.rollout.plan.plan import Plan
from airflow_eos_provider.rollout.settings import RolloutSettings
from tests.seen import starts

TASK = "upgrade/manual/roll_preparing"
ANOTHER = "upgrade/another run/roll_preparing"
SETTINGS = RolloutSettings(poll_interval_seconds=0.3, hold_seconds=2.0)
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers with next to no rebalance delay, and a file source."""
    lab = lab_factory(
        LabOptions(name="deferred", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=200, session_timeout_ms=6000)
    )
    lab.create_topic("lines", 1)
    (lab.data_dir / "lines.txt").write_text("".join(f"line {n}\n" for n in range(50)), encoding="utf-8")
    with ConnectRest(lab.connect_urls[0]) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines"}
        rest.create("lines", {**config, "file": str(lab.data_dir / "lines.txt")})
    return lab


@pytest.fixture(autouse=True)
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


def wait_elsewhere(lab: Lab, wait: GateState, until: str = "") -> tuple[str, GateState]:
    """What a trigger does, until it has a reason to resume the task."""
    look = GateLook(lab.cluster(), GateState.from_dict(wait.to_dict()), TASK)
    deadline = time.monotonic() + 600
    while (reason := look.look()) is None:
        assert time.monotonic() < deadline, look.status_line
        time.sleep(0.3)
    assert until in reason
    return reason, GateState.from_dict(look.gate.to_dict())


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


def test_a_roll_in_pieces_restarts_each_worker_once_and_no_other_controller_may_act(lab: Lab) -> None:
    plan, before = planned(lab, Mode.PREPARING), starts(lab)
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
        _, waited = wait_elsewhere(lab, outcome)
        if len(restarts(gates)) == 2:
            waited = with_its_time_over(waited)
        outcome = process_of(lab).go_on(plan, waited)

    assert more(before, lab) == {1}
    assert [worker.mode for worker in outcome.workers] == [Mode.PREPARING, Mode.PREPARING]
    assert not outcome.resumed
    # Each restart was waited for elsewhere, once: what comes back is good for the gate.
    assert len(restarts(gates)) == len(set(restarts(gates))) == 2
    journal = read_journal(lab.cluster().kafka, lab.group_id)
    assert [event.what for event in journal.events[outcome.rollout_id]] == ["begun", "done"]
    assert journal.lease is not None
    assert journal.lease.released


def test_a_task_that_is_asked_to_stop_or_taken_over_while_deferred_does_no_more(lab: Lab) -> None:
    plan, before = planned(lab, Mode.DISABLED), starts(lab)
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
    _, waited = wait_elsewhere(lab, wait, until="ann asked for pause: lunch")
    with pytest.raises(StopRequestedError, match="lunch"):
        process_of(lab).go_on(plan, waited)
    assert read_journal(kafka, lab.group_id).rollouts[wait.rollout_id].state is RolloutState.PAUSED

    # Applied again it goes on, until another task takes over by force.
    wait = process_of(lab).advance(plan)
    assert isinstance(wait, GateState)
    taken = process_of(lab, task=ANOTHER).advance(plan, take_over=True)
    assert isinstance(taken, GateState)
    wait_elsewhere(lab, replace(wait, look_at=time.time() + 60), until="taken over")
    with pytest.raises(FencedError, match="while this task was deferred"):
        process_of(lab).go_on(plan, wait)
    Controller(lab.cluster(), settings=SETTINGS, task=ANOTHER).apply(plan)
    assert more(before, lab) == {1}

    # The other one has done what this task was for, and it holds.
    late = process_of(lab).go_on(plan, wait)
    assert isinstance(late, RolloutReport)
    assert (late.rollout_id, late.resumed) == (wait.rollout_id, True)
    assert more(before, lab) == {1}
