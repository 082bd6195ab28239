"""A roll in pieces: whoever carries it out leaves at each gate that does not hold yet, and another one comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import FencedError, LeaseHeldError, StopRequestedError
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.checks import Verdict
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.gate import GateWatch
from airflow_eos_provider.rollout.journal import ask, read_journal
from airflow_eos_provider.rollout.plan import Plan
from airflow_eos_provider.rollout.records import Request, RequestKind, RolloutState
from airflow_eos_provider.rollout.report import RolloutReport
from airflow_eos_provider.rollout.roll import Roll
from airflow_eos_provider.rollout.settings import RolloutSettings
from airflow_eos_provider.rollout.waiting import GateLook, GateWait
from tests.seen import starts

pytestmark = pytest.mark.slow

TASK = "upgrade/manual/roll_preparing"
ANOTHER = "upgrade/another run/roll_preparing"
SETTINGS = RolloutSettings(poll_interval_seconds=0.3, hold_seconds=2.0)
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers with little rebalance delay, and a file source."""
    lab = lab_factory(LabOptions(name="deferred", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=1000))
    lab.create_topic("lines", 1)
    (lab.data_dir / "lines.txt").write_text("".join(f"line {n}\n" for n in range(50)), encoding="utf-8")
    with ConnectRest(lab.connect_urls[0]) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines"}
        rest.create("lines", {**config, "file": str(lab.data_dir / "lines.txt")})
    return lab


@pytest.fixture(autouse=True)
def every_gate_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that would hold at its first look, where a worker starts in less time than a look takes."""
    real = Roll._wait

    def wait(roll: Roll, watch: GateWatch, worker_id: str | None) -> Verdict | GateWait | None:
        if roll.hands_over and roll._waited_for(worker_id) is None:
            return roll._to_hand_over(watch, worker_id, roll.observer.observe(), False)
        return real(roll, watch, worker_id)

    monkeypatch.setattr(Roll, "_wait", wait)


def process_of(lab: Lab, task: str = TASK) -> Controller:
    """A new process of the task knows nothing of the one before; a new controller stands for it here."""
    return Controller(lab.cluster(), settings=SETTINGS, task=task)


def wait_elsewhere(lab: Lab, wait: GateWait, until: str = "") -> tuple[str, GateWait]:
    """What a trigger does; ends early when ``until`` is said."""
    look = GateLook(lab.cluster(), GateWait.from_dict(wait.to_dict()), TASK)
    deadline = time.monotonic() + 120
    while (reason := look.look()) is None:
        assert time.monotonic() < deadline, look.status_line
        time.sleep(0.3)
    assert until in reason
    return reason, GateWait.from_dict(look.result().to_dict())


def more(before: dict[str, int], lab: Lab) -> set[int]:
    """How often each worker was started since."""
    return {count - before[worker] for worker, count in starts(lab).items()}


def planned(lab: Lab, target: Mode) -> Plan:
    return process_of(lab).plan(target)


def with_its_time_over(wait: GateWait) -> GateWait:
    """As after an hour in which nobody looked: what was seen before it is no hold any more."""
    over = dict.fromkeys(("deadline", "latest_deadline", "looked_at"), time.time() - 3600)
    return replace(wait, watch={**wait.watch, **over})


def restarts(gates: list[GateWait]) -> list[float]:
    return [gate.restarted_after for gate in gates if gate.worker_id]


def test_a_roll_in_pieces_restarts_each_worker_once_and_is_nobody_elses(lab: Lab) -> None:
    plan, before = planned(lab, Mode.PREPARING), starts(lab)
    outcome = process_of(lab).advance(plan)
    assert isinstance(outcome, GateWait)

    # Nobody acts now, and nobody else may.
    lease = read_journal(lab.cluster().kafka, lab.group_id).lease
    assert lease is not None
    assert lease.belongs_to(TASK)
    assert lease.expires_at > outcome.latest_deadline
    with pytest.raises(LeaseHeldError, match=f"the deferred task {TASK}"):
        process_of(lab, task=ANOTHER).advance(plan)
    with pytest.raises(LeaseHeldError, match="waiting for"):
        Controller(lab.cluster()).apply(plan)

    gates: list[GateWait] = []
    while isinstance(outcome, GateWait):
        gates.append(outcome)
        assert len(gates) < 10, "it goes round in circles"
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


def test_who_is_asked_to_stop_or_is_taken_over_while_deferred_does_no_more(lab: Lab) -> None:
    plan, before = planned(lab, Mode.DISABLED), starts(lab)
    kafka = lab.cluster().kafka
    wait = process_of(lab).advance(plan)
    assert isinstance(wait, GateWait)
    ask(kafka, lab.group_id, Request(wait.rollout_id, RequestKind.PAUSE, time.time(), "ann", "lunch"))
    _, waited = wait_elsewhere(lab, wait, until="ann asked for pause: lunch")
    with pytest.raises(StopRequestedError, match="lunch"):
        process_of(lab).go_on(plan, waited)
    assert read_journal(kafka, lab.group_id).rollouts[wait.rollout_id].state is RolloutState.PAUSED

    # Applied again it goes on, until somebody else takes over by force.
    wait = process_of(lab).advance(plan)
    assert isinstance(wait, GateWait)
    taken = process_of(lab, task=ANOTHER).advance(plan, take_over=True)
    assert isinstance(taken, GateWait)
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
