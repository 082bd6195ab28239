"""A gate that is waited for elsewhere: what is carried over, and what calls a process of the roll back."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.modes import ModeVerdict
from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.rollout import waiting as module
from airflow_eos_provider.rollout.checks import Verdict
from airflow_eos_provider.rollout.conditions import ASKS_THE_HOSTS, CONDITIONS, SEEN_FROM_AFAR
from airflow_eos_provider.rollout.decision import leader_to_restart
from airflow_eos_provider.rollout.gate import CARRIED_OVER_SECONDS, GateWatch
from airflow_eos_provider.rollout.logs import Ends, Memory
from airflow_eos_provider.rollout.observation import Observation
from airflow_eos_provider.rollout.records import (
    JournalContent,
    Lease,
    Owner,
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
)
from airflow_eos_provider.rollout.waiting import GateLook, GateWait

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
NOW = 1_000_000.0
TASK = "upgrade/manual/roll"


def watch_at(deadline: float = NOW + 60.0, **changes: Any) -> GateWatch:
    values = {"polls": 3, "hold_seconds": 5.0, "deadline": deadline, "tasks": ("mirror/1",), "after_delay_seconds": 9.0}
    return GateWatch(**{**values, **changes})


def wait_of(watch: GateWatch | None = None, **changes: Any) -> GateWait:
    wait = GateWait("r1", W2, NOW - 30.0, (watch or watch_at()).to_dict(), look_at=time.time() + 600.0)
    return replace(wait, **changes)


def through_json(document: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(document))


# what is carried over


def test_a_wait_survives_being_stored(gate: Any) -> None:
    watch = watch_at()
    watch.poll(gate.expected(), gate.cluster.observe(at=NOW))
    wait = wait_of(watch, memory=Memory(at=NOW).to_dict(), healed=True, delay_ended_for=(W2,), offsets_topic="o")
    assert GateWait.from_dict(through_json(wait.to_dict())) == wait


@pytest.mark.parametrize("change", [{"schema": 2}, {"schema": None}, {"watch": {}}, {"unknown": 1}])
def test_what_another_version_has_stored_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="another version"):
        GateWait.from_dict({**wait_of().to_dict(), **change})


def test_the_deadline_is_the_same_however_often_the_gate_is_carried_over() -> None:
    watch = watch_at(deadline=NOW + 60.0)
    for _ in range(3):
        watch = GateWatch.from_dict(through_json(watch.to_dict()))
    assert (watch.deadline, watch.latest_deadline) == (NOW + 60.0, NOW + 60.0)
    assert (watch.polls, watch.hold_seconds, watch.tasks, watch.after_delay_seconds) == (3, 5.0, ("mirror/1",), 9.0)


def test_a_delay_moves_the_deadline_but_over_all_processes_no_further_than_once(gate: Any) -> None:
    """What was seen of a delay is carried over, so the next process does not count it from its own first look."""
    watch = watch_at(deadline=NOW + 60.0)
    gate.cluster.assign(W1, delay_ms=300_000)
    watch.poll(gate.expected(), gate.cluster.observe(at=NOW))
    assert watch.deadline == NOW + 120.0  # at most twice its distance
    for second in (10.0, 50.0):
        watch = GateWatch.from_dict(through_json(watch.to_dict()))
        watch.poll(gate.expected(), gate.cluster.observe(at=NOW + second))
        assert watch.deadline == watch.latest_deadline == NOW + 120.0
        assert watch.delay_remaining(NOW + second) == 300.0 - second


def test_how_long_tasks_stood_is_counted_over_all_processes(gate: Any) -> None:
    watch = watch_at()
    watch.poll(gate.expected(), gate.cluster.observe(at=NOW + 3.0))
    watch = GateWatch.from_dict(through_json(watch.to_dict()))
    watch.poll(gate.expected(), gate.cluster.observe(at=NOW + 20.0))
    assert watch.stood_seconds(NOW) == 3.0


def test_a_hold_goes_on_on_the_same_group_but_each_of_the_polls_is_due_again(
    gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_eos_provider.rollout.gate.time.time", lambda: NOW + 8.0)
    watch = watch_at(conditions=SEEN_FROM_AFAR)
    answers = [watch.poll(gate.expected(), gate.cluster.observe(at=NOW + s)) for s in (0.0, 3.0, 6.0)]
    assert answers == [None, None, Verdict.PASS]
    full = GateWatch.from_dict(through_json(watch.to_dict()))
    answers = [full.poll(gate.expected(), gate.cluster.observe(at=NOW + s)) for s in (8.0, 8.5, 9.0)]
    assert answers == [None, None, Verdict.PASS]  # no five seconds more


def test_a_hold_on_another_group_begins_anew(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_eos_provider.rollout.gate.time.time", lambda: NOW + 8.0)
    watch = watch_at(conditions=SEEN_FROM_AFAR)
    for second in (0.0, 3.0, 6.0):
        watch.poll(gate.expected(), gate.cluster.observe(at=NOW + second))
    full = GateWatch.from_dict(through_json(watch.to_dict()))
    gate.cluster.place(("mirror", 1), W3).task("mirror", 1, worker_id=W3)
    answers = [full.poll(gate.expected(), gate.cluster.observe(at=NOW + s)) for s in (8.0, 8.5, 9.0, 13.5)]
    assert answers == [None, None, None, Verdict.PASS]


def test_a_hold_that_nobody_has_watched_for_long_begins_anew(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a paused DAG, whose task comes back long after its gate was seen to hold."""
    watch = watch_at(deadline=NOW + 9000.0, conditions=SEEN_FROM_AFAR)
    for second in (0.0, 3.0, 6.0):
        watch.poll(gate.expected(), gate.cluster.observe(at=NOW + second))
    later = NOW + 6.0 + CARRIED_OVER_SECONDS
    monkeypatch.setattr("airflow_eos_provider.rollout.gate.time.time", lambda: later)
    full = GateWatch.from_dict(through_json(watch.to_dict()))
    answers = [full.poll(gate.expected(), gate.cluster.observe(at=later + s)) for s in (0.0, 0.5, 1.0, 5.5)]
    assert answers == [None, None, None, Verdict.PASS]


def test_what_is_remembered_of_the_topics_survives_being_stored() -> None:
    memory = Memory()
    for look in range(4):
        ends = {("t", 0): Ends(stable=10, end=10 + look), ("u", 1): Ends(stable=look, end=look)}
        memory.take(NOW + look, ends, {"mirror": frozenset({"t", "u"})})
    again = Memory.from_dict(through_json(memory.to_dict()))
    assert asdict(again) == asdict(memory)
    assert again.movements["mirror"].steady_at == NOW + 3
    assert Memory.from_dict({}) == Memory()


# what can be seen from afar


def unseen(observation: Observation) -> Observation:
    """The same look from where no host can be seen."""
    workers = [
        replace(
            worker,
            facts=replace(worker.facts, process=None, config_sha256=None, properties={}),
            mode=replace(worker.mode, verdict=ModeVerdict.UNKNOWN),
        )
        for worker in observation.workers
    ]
    return replace(observation, workers=tuple(workers))


def test_from_afar_every_condition_is_asked_that_needs_no_host() -> None:
    assert {*SEEN_FROM_AFAR, *ASKS_THE_HOSTS} == set(CONDITIONS)
    assert not {*SEEN_FROM_AFAR} & {*ASKS_THE_HOSTS}


def test_what_is_asked_from_afar_is_answered_the_same_without_the_hosts(gate: Any) -> None:
    expected, observation = gate.expected(), gate.cluster.observe(at=NOW)
    for condition in SEEN_FROM_AFAR:
        assert condition(expected, unseen(observation)) == condition(expected, observation)
    assert [condition(expected, unseen(observation)).passed for condition in ASKS_THE_HOSTS] == [False, False, True]


class Elsewhere:
    """Where a trigger runs: the journal and the looks are given, for both need a cluster."""

    def __init__(self, gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = gate
        self.at = NOW
        self.error: Exception | None = None
        record = RolloutRecord("r1", gate.plan.to_dict(), gate.baseline.to_dict(), RolloutState.RUNNING, NOW - 200.0)
        lease = Lease(Owner.deferred_task(TASK), "r1", "ann", "waiting", NOW + 900.0)
        self.content = JournalContent(lease, {"r1": record}, {"r1": gate.steps})
        monkeypatch.setattr(module, "read_journal", lambda *_: self.content)

    def look(self, wait: GateWait) -> GateLook:
        look = GateLook(SimpleNamespace(kafka=None, group_id="lab", workers=()), wait, TASK)  # type: ignore[arg-type]
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


def test_the_task_is_called_when_the_gate_holds_as_far_as_can_be_seen(elsewhere: Elsewhere) -> None:
    look = elsewhere.look(wait_of())
    assert [look.look() for _ in range(3)] == [None, None, "seen from afar, the gate's answer is pass"]
    assert "conditions hold" in look.status_line
    assert look.result().watch["snapshot"]


def test_the_task_is_called_when_the_time_of_the_gate_is_over(elsewhere: Elsewhere) -> None:
    elsewhere.gate.cluster.task("mirror", 1, state="UNASSIGNED")
    look = elsewhere.look(wait_of(watch_at(deadline=NOW + 7.0)))
    assert [look.look() for _ in range(3)] == [None, None, "seen from afar, the gate's answer is fail"]


def test_the_task_is_called_when_a_stranger_joins(elsewhere: Elsewhere) -> None:
    elsewhere.gate.cluster.join("w9:8083")
    assert elsewhere.look(wait_of()).look() == "seen from afar, the gate's answer is inconclusive"


def test_the_task_is_called_to_look_at_the_hosts(elsewhere: Elsewhere) -> None:
    assert elsewhere.look(wait_of(look_at=time.time())).look() == "it is time to look at the hosts"


def test_the_task_is_called_when_somebody_asks_it_to_stop(elsewhere: Elsewhere) -> None:
    request = Request("r1", RequestKind.ABORT, NOW, "bob", "wrong cluster")
    elsewhere.content = replace(elsewhere.content, requests={"r1": request})
    assert elsewhere.look(wait_of()).look() == "bob asked for abort: wrong cluster"


@pytest.mark.parametrize("lease", [None, Lease(Owner.this_process(), "r1", "bob", "w3: intent", time.time() + 60)])
def test_the_task_is_called_when_somebody_has_taken_over(elsewhere: Elsewhere, lease: Lease | None) -> None:
    elsewhere.content = replace(elsewhere.content, lease=lease)
    reason = elsewhere.look(wait_of()).look()
    assert reason is not None
    assert "taken over" in reason


def test_the_task_is_called_once_to_heal_a_failed_task(elsewhere: Elsewhere) -> None:
    trace = "org.apache.kafka.common.errors.ProducerFencedException: fenced"
    elsewhere.gate.cluster.task("mirror", 1, state="FAILED", trace=trace)
    assert elsewhere.look(wait_of()).look() == "failed tasks may be healed: mirror"
    assert elsewhere.look(wait_of(healed=True)).look() is None


def test_the_task_is_called_once_to_end_a_long_rebalance_delay(elsewhere: Elsewhere) -> None:
    elsewhere.gate.cluster.leader = W1  # it is through, so its restart would end the delay
    elsewhere.gate.cluster.assign(W1, delay_ms=300_000)
    assert elsewhere.look(wait_of()).look() == f"a restart of {W1} would end the rebalance delay"
    assert elsewhere.look(wait_of(delay_ended_for=(W2,))).look() is None


def test_what_is_away_for_a_moment_is_waited_for_until_the_deadline(elsewhere: Elsewhere) -> None:
    elsewhere.error = UnreachableError("no broker answers")
    assert elsewhere.look(wait_of(watch_at(deadline=time.time() + 60))).look() is None
    look = elsewhere.look(wait_of(watch_at(deadline=time.time() - 1)))
    assert look.look() == "the gate's time is over"
    assert "no broker answers" in look.status_line


def test_a_wrong_description_is_not_waited_for(elsewhere: Elsewhere) -> None:
    elsewhere.error = ConfigurationError("no such group")
    with pytest.raises(ConfigurationError):
        elsewhere.look(wait_of()).look()


def test_the_leader_is_not_restarted_for_a_delay_while_a_member_is_away(gate: Any) -> None:
    gate.cluster.leader = W1
    expected = gate.expected()

    def leader() -> str | None:
        return leader_to_restart(gate.plan, gate.steps, gate.cluster.observe(), expected, 300.0)

    assert leader() == W1
    gate.cluster.leave(W3)
    assert leader() is None


def test_a_pending_leader_is_not_restarted_out_of_turn(gate_of: Any) -> None:
    gate = gate_of(Mode.ENABLED, Mode.PREPARING)
    gate.cluster.leader = W3
    assert leader_to_restart(gate.plan, gate.steps, gate.cluster.observe(), gate.expected(), 300.0) is None
