"""A gate that is waited for elsewhere: what is carried over, and what calls a process of the roll back."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode_evidence import ModeVerdict
from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import (
    Lease,
    Owner,
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
)
from airflow_eos_provider.rollout.act import handover as module
from airflow_eos_provider.rollout.act.decision import leader_to_restart
from airflow_eos_provider.rollout.act.handover import GateLook
from airflow_eos_provider.rollout.gate.conditions import ASKS_THE_HOSTS, CONDITIONS, SEEN_REMOTELY
from airflow_eos_provider.rollout.gate.gate import poll
from airflow_eos_provider.rollout.gate.state import CARRIED_OVER_SECONDS, GateState
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.topic_progress import Ends, Memory
from airflow_eos_provider.stored import from_json, to_json
from tests.unit.rollout.conftest import ENABLED, FOREIGN, NOW, PREPARING, W1, W2, W3, Gate

TASK = "upgrade/manual/roll"
#: The year 2100: no look at the hosts is due, however long the suite has been running.
LATER = 4_102_444_800.0


def gate_until(deadline: float = NOW + 60.0, **changes: Any) -> GateState:
    """The gate of w2; a delay moves its deadline by a minute at most."""
    state = GateState(
        rollout_id="r1",
        worker_id=W2,
        restart_id=NOW - 30.0,
        polls=3,
        hold_seconds=5.0,
        deadline=deadline,
        latest_deadline=deadline + 60.0,
        after_delay_seconds=9.0,
        tasks=("mirror/1",),
        look_at=LATER,
    )
    return replace(state, **changes)


def looked(state: GateState, gate: Any, *seconds: float, conditions: Any = CONDITIONS) -> tuple[GateState, list[Any]]:
    """The gate after looks at these seconds, and what each answered."""
    verdicts = []
    for second in seconds:
        state, answer = poll(state, gate.expected(), gate.cluster.observe(at=NOW + second), conditions)
        verdicts.append(answer.verdict)
    return state, verdicts


def through_json(document: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(document))


def carried_over(state: GateState) -> GateState:
    return GateState.from_dict(through_json(state.to_dict()))


# what is carried over


def test_a_gate_survives_being_stored(gate: Any) -> None:
    state, _ = looked(gate_until(), gate, 0.0)
    state = replace(
        state,
        memory=Memory(at=NOW),
        failed_tasks_restarted=True,
        delay_ended_for=(W2,),
        silent=(W3,),
        offsets_topic="o",
    )
    assert state.hold.polls == 1
    assert carried_over(state) == state


@pytest.mark.parametrize("change", [{"schema": 2}, {"schema": None}, {"hold": {"polls": "x", "y": 0}}])
def test_what_another_version_has_stored_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="another version"):
        GateState.from_dict({**gate_until().to_dict(), **change})


def test_who_comes_back_late_has_time_for_a_look() -> None:
    state = gate_until()
    assert state.with_time_for_a_look(NOW) == state
    late = state.with_time_for_a_look(NOW + 100.0)
    assert (late.deadline, late.latest_deadline) == (NOW + 130.0, NOW + 130.0)


def test_a_delay_moves_the_deadline_but_over_all_processes_no_further_than_once(gate: Any) -> None:
    """What was seen of a delay is carried over, so the next process does not count it from its own first look."""
    gate.cluster.assign(W1, delay_ms=300_000)
    state, _ = looked(gate_until(), gate, 0.0)
    assert state.deadline == NOW + 120.0
    for second in (10.0, 50.0):
        state, _ = looked(carried_over(state).taken_up(NOW + second), gate, second)
        assert state.deadline == state.latest_deadline == NOW + 120.0
        assert state.delay.remaining(NOW + second) == 300.0 - second


@pytest.mark.parametrize(
    ("change", "later", "looks", "passes"),
    [
        # a hold goes on on the same group, though each of the polls is due again: no five seconds more
        (lambda c: c, 8.0, (0.0, 0.5, 1.0), True),
        # it begins anew on another group, and where no process has looked for long, as in a paused DAG
        (lambda c: c.place(("mirror", 1), W3).task("mirror", 1, worker_id=W3), 8.0, (0.0, 0.5, 1.0), False),
        (lambda c: c, 6.0 + CARRIED_OVER_SECONDS, (0.0, 0.5, 1.0), False),
    ],
)
def test_a_hold_is_carried_over_to_the_next_process(
    gate: Any, change: Any, later: float, looks: tuple[float, ...], passes: bool
) -> None:
    waited = gate_until(deadline=NOW + 9000.0)
    state, answers = looked(waited, gate, 0.0, 3.0, 6.0, conditions=SEEN_REMOTELY)
    assert answers == [None, None, Verdict.PASS]
    assert state.downtime_seconds(NOW - 1.0) == 1.0, "of the first look, over all processes"
    change(gate.cluster)
    state = carried_over(state).taken_up(NOW + later)
    assert state.deadline == waited.deadline
    _, answers = looked(state, gate, *(later + second for second in (*looks, 5.5)))
    assert answers == [None, None, Verdict.PASS if passes else None, Verdict.PASS]


def test_what_is_remembered_of_the_topics_survives_being_stored() -> None:
    memory = Memory()
    for look in range(4):
        ends = {("t", 0): Ends(stable=10, end=10 + look), ("u", 1): Ends(stable=look, end=look)}
        memory.take(NOW + look, ends, {"mirror": frozenset({"t", "u"})})
    again = from_json(Memory, through_json(to_json(memory)))
    assert asdict(again) == asdict(memory)
    assert again.movements["mirror"].steady_at == NOW + 3
    assert from_json(Memory, {}) == Memory()


@pytest.mark.parametrize(
    ("worker_id", "restart_id", "subject"),
    [(W2, NOW, W2), (None, 0.0, "before the first restart"), (None, NOW, "before the next restart")],
)
def test_what_is_waited_for_is_named(worker_id: str | None, restart_id: float, subject: str) -> None:
    state = gate_until(worker_id=worker_id, restart_id=restart_id)
    assert state.subject == subject
    assert subject in str(state)


# what can be seen remotely


def unseen(observation: Observation) -> Observation:
    """The same look from where no host can be seen."""
    workers = [
        replace(
            worker,
            facts=replace(worker.facts, is_running=False, started_at=None, digest=None, properties={}),
            mode=replace(worker.mode, verdict=ModeVerdict.UNKNOWN),
        )
        for worker in observation.workers
    ]
    return replace(observation, workers=tuple(workers))


def test_remotely_every_condition_is_asked_that_needs_no_host() -> None:
    assert {*SEEN_REMOTELY, *ASKS_THE_HOSTS} == set(CONDITIONS)
    assert not {*SEEN_REMOTELY} & {*ASKS_THE_HOSTS}


def test_what_is_asked_remotely_is_answered_the_same_without_the_hosts(gate: Any) -> None:
    expected, observation = gate.expected(), gate.cluster.observe(at=NOW)
    for condition in SEEN_REMOTELY:
        assert condition(expected, unseen(observation)) == condition(expected, observation)
    assert [condition(expected, unseen(observation)).passed for condition in ASKS_THE_HOSTS] == [False, False, True]


class Elsewhere:
    """Where a trigger runs: the journal and the looks are given, for both need a cluster."""

    def __init__(self, gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = gate
        self.at = NOW
        self.error: Exception | None = None
        record = RolloutRecord("r1", gate.plan.to_dict(), to_json(gate.baseline), RolloutState.RUNNING, NOW - 200.0)
        lease = Lease(Owner.deferred_task(TASK), "r1", "ann", "waiting", NOW + 900.0)
        self.content = JournalContent(lease, {"r1": record}, {"r1": gate.steps})
        monkeypatch.setattr(module, "read_journal", lambda *_: self.content)

    def look(self, gate: GateState) -> GateLook:
        cluster = SimpleNamespace(kafka=None, other_kafka=(), group_id="lab", workers=())
        look = GateLook(cluster, gate, TASK)  # type: ignore[arg-type]
        look._observer.observe = self.observe  # type: ignore[method-assign]
        return look

    def observe(self) -> Observation:
        if self.error:
            raise self.error
        self.at += 3.0
        return unseen(self.gate.cluster.observe(at=self.at))


@pytest.fixture
def elsewhere(gate: Any, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """w2 was restarted, and its gate is waited for elsewhere."""
    return Elsewhere(gate, monkeypatch)


def failed_by_fencing(cluster: Any) -> None:
    cluster.task("mirror", 1, state="FAILED", trace="org.apache.kafka.common.errors.ProducerFencedException: fenced")


def delayed_by_a_leader_that_is_done(cluster: Any) -> None:
    cluster.assign(W1, delay_ms=300_000).leader = W1


def asked_to_stop(elsewhere: Elsewhere) -> None:
    request = Request("r1", RequestKind.ABORT, NOW, "bob", "wrong cluster")
    elsewhere.content = replace(elsewhere.content, requests={"r1": request})


def taken_over(lease: Lease | None) -> Any:
    return lambda elsewhere: vars(elsewhere).update(content=replace(elsewhere.content, lease=lease))


OTHERS = Lease(Owner.this_process(), "r1", "bob", "w3: intent", time.time() + 60)


@pytest.mark.parametrize(
    ("change", "waiting", "looks", "reason", "not_again"),
    [
        (lambda e: e.gate.cluster.join(FOREIGN), {}, 1, "seen remotely, the gate's answer is inconclusive", None),
        (lambda e: e, {"look_at": 0.0}, 1, "the hosts are due for a check", {"look_at": LATER}),
        (
            lambda e: failed_by_fencing(e.gate.cluster),
            {},
            1,
            "failed tasks may be restarted: mirror",
            {"failed_tasks_restarted": True},
        ),
        (
            lambda e: delayed_by_a_leader_that_is_done(e.gate.cluster),
            {},
            1,
            f"a restart of {W1} would end the rebalance delay",
            {"delay_ended_for": (W2,)},
        ),
        # the gate holds as far as can be seen, or its time is over
        (lambda e: e, {}, 3, "seen remotely, the gate's answer is pass", None),
        (
            lambda e: e.gate.cluster.task("mirror", 1, state="UNASSIGNED"),
            {"deadline": NOW + 7.0},
            3,
            "seen remotely, the gate's answer is fail",
            None,
        ),
        (asked_to_stop, {}, 1, "bob asked for abort: wrong cluster", None),
        (taken_over(None), {}, 1, "the journal's lease was taken over: None", None),
        (taken_over(OTHERS), {}, 1, f"the journal's lease was taken over: {OTHERS}", None),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else None,  # a lease names this process
)
def test_the_task_is_called_for_what_only_a_process_of_it_can_do_and_once(
    elsewhere: Elsewhere,
    change: Any,
    waiting: dict[str, Any],
    looks: int,
    reason: str,
    not_again: dict[str, Any] | None,
) -> None:
    change(elsewhere)
    look = elsewhere.look(gate_until(**waiting))
    assert [look.look() for _ in range(looks)] == [None] * (looks - 1) + [reason]
    assert looks == 1 or "checks pass" in look.status_line
    if not_again is not None:
        assert elsewhere.look(gate_until(**not_again)).look() is None


@pytest.mark.parametrize("worker_id", [W1, W2, W3])
def test_a_worker_that_was_taken_out_of_the_description_calls_the_task(elsewhere: Elsewhere, worker_id: str) -> None:
    """What that leads to in a thread of the triggerer was a future that never ended, not an error."""
    del elsewhere.gate.cluster.workers[worker_id]
    reason = elsewhere.look(gate_until()).look()
    assert reason is not None
    assert f"{worker_id} is part of the plan and no longer described" in reason


def test_the_task_is_called_once_to_look_at_the_host_of_another_worker_that_falls_silent(elsewhere: Elsewhere) -> None:
    """Not at the first look that fails, nor again while it stays silent: the process has looked at its host."""
    elsewhere.gate.cluster.kill(W3)
    look = elsewhere.look(gate_until())
    assert [look.look(), look.look()] == [None, f"{W3} does not answer: its host must be checked"]
    again = elsewhere.look(gate_until(silent=(W3,)))
    assert [again.look(), again.look()] == [None, None]
    elsewhere.gate.cluster.kill(W1)
    assert [again.look(), again.look()] == [None, f"{W1} does not answer: its host must be checked"]


def test_what_is_away_for_a_moment_is_waited_for_until_the_deadline(elsewhere: Elsewhere) -> None:
    elsewhere.error = UnreachableError("no broker answers")
    assert elsewhere.look(gate_until(deadline=time.time() + 60)).look() is None
    look = elsewhere.look(gate_until(deadline=time.time() - 1))
    assert look.look() == "the gate's deadline has passed"
    assert "no broker answers" in look.status_line


def test_a_wrong_description_is_not_waited_for(elsewhere: Elsewhere) -> None:
    elsewhere.error = ConfigurationError("no such group")
    with pytest.raises(ConfigurationError):
        elsewhere.look(gate_until()).look()


def test_the_leader_is_not_restarted_for_a_delay_while_a_member_is_away(gate: Any) -> None:
    gate.cluster.leader = W1
    expected = gate.expected()

    def leader() -> str | None:
        return leader_to_restart(gate.plan, gate.steps, gate.cluster.observe(), expected, 300.0)

    assert leader() == W1
    gate.cluster.leave(W3)
    assert leader() is None


def test_a_pending_leader_is_not_restarted_out_of_turn(gate: Gate) -> None:
    gate = Gate(ENABLED, PREPARING)
    gate.cluster.leader = W3
    assert leader_to_restart(gate.plan, gate.steps, gate.cluster.observe(), gate.expected(), 300.0) is None
