"""What a roll writes down as it goes on: the moments of a restart, and the conditions that hold at its gate."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.errors import FencedError, GateFailedError, UnreachableError
from airflow_eos_provider.journal.records import Step, StepStatus
from airflow_eos_provider.rollout.act.steps import announced_again, with_moment
from airflow_eos_provider.rollout.hosts.host import HostFacts, Moment, RestartEvent
from tests.unit.rollout.conftest import W1, W2, W3
from tests.unit.rollout.test_another_host import Journal, SupervisedHost, Supervisor, World, roll_of

INTENT, RESTARTED, PASSED = StepStatus.INTENT, StepStatus.RESTARTED, StepStatus.PASSED


FAILED, RESTORED = StepStatus.FAILED, StepStatus.RESTORED


@pytest.fixture
def world(cluster: Any) -> World:
    return World(Supervisor(cluster))


def written(journal: Journal, worker: str) -> list[tuple[StepStatus, bool, bool]]:
    """How each record of a worker is, and whether it has when the old process had ended and the new one was started."""
    own = [step for step in journal.steps if step.worker_id == worker]
    return [(step.status, step.stopped_after is not None, step.started_after is not None) for step in own]


def test_each_moment_of_a_restart_is_written_down_as_it_comes(world: World) -> None:
    roll, journal = roll_of(world, world.plan())
    began = time.time()
    assert roll.run() is None
    for worker in (W1, W2, W3):
        first, second, third, *gate = written(journal, worker)
        assert [first, second, third] == [(INTENT, False, False), (INTENT, True, False), (INTENT, True, True)]
        assert {(is_stopped, is_started) for _, is_stopped, is_started in gate} == {(True, True)}
    last = roll.steps[W1]
    later = [step for step in journal.steps if step.worker_id == W1][1:]
    assert {step.announced_at_ms for step in later} == {last.announced_at_ms}, "a note announces no other restart"
    assert last.stopped_after is not None
    assert last.started_after is not None
    assert 0.0 <= last.stopped_after <= last.started_after <= time.time() - began


def test_a_moment_that_cannot_be_written_is_in_the_next_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Journal.record

    def refused(journal: Journal, step: Step) -> int:
        if step.status is INTENT and step.stopped_after is not None:
            raise UnreachableError("The journal cannot be written.")
        return record(journal, step)

    monkeypatch.setattr(Journal, "record", refused)
    roll, journal = roll_of(world, world.plan())
    assert roll.run() is None
    assert written(journal, W1)[:2] == [(INTENT, False, False), (RESTARTED, True, True)]


def test_a_roll_that_was_overtaken_in_a_restart_ends_at_its_next_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fenced(journal: Journal, step: Step) -> int:
        if step.stopped_after is not None:
            raise FencedError("Another controller has taken over.")
        return len(journal.steps)

    monkeypatch.setattr(Journal, "record", fenced)
    roll, _ = roll_of(world, world.plan())
    with pytest.raises(FencedError):
        roll.run()
    assert world.supervisor.done == ["write preparing"]


def test_a_worker_that_is_restored_has_the_moments_of_that_restart(world: World) -> None:
    world.supervisor.broken = {W1}
    roll, journal = roll_of(world, world.plan())
    with pytest.raises(GateFailedError):
        roll.run()
    assert written(journal, W1) == [
        (INTENT, False, False),
        (INTENT, True, False),
        (FAILED, False, False),  # it has ended at once, so the restart that restores it has nothing to stop
        (FAILED, False, True),
        (RESTORED, False, True),
    ]


def taken_up(world: World, monkeypatch: pytest.MonkeyPatch, *left: RestartEvent) -> list[Step]:
    """A roll whose controller has ended after it announced the restart of w1, which its host has carried out.

    :param left: what the host knows of that.
    :returns: the records of w1 by the next controller.
    """
    plan = world.plan()
    now = time.time()
    step = Step(W1, INTENT, now, restarted_after=now, mode="preparing", replaces=f"run 1 of {W1}", announced_at_ms=77)
    world.supervisor.write(plan.target, expect=plan.change(W1).config_before or "")
    world.supervisor.run(W1)
    observe = SupervisedHost.observe

    def observed(host: SupervisedHost) -> HostFacts:
        return replace(observe(host), restarted=left if host.worker_id == W1 else ())

    monkeypatch.setattr(SupervisedHost, "observe", observed)
    roll, journal = roll_of(world, plan, {W1: step})
    assert roll.run() is None
    return [step for step in journal.steps if step.worker_id == W1]


def test_a_restart_that_nobody_has_reported_is_written_down_with_what_its_host_knows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    left = (RestartEvent("", Moment.STOPPED, now + 1.0), RestartEvent("", Moment.STARTED, now + 2.0))
    first, *others = taken_up(world, monkeypatch, *left)
    assert (first.status, first.announced_at_ms) == (RESTARTED, 77)
    assert first.stopped_after == pytest.approx(1.0, abs=0.5)
    assert first.started_after == pytest.approx(2.0, abs=0.5)
    assert others[-1].status is PASSED
    assert (others[-1].stopped_after, others[-1].started_after) == (first.stopped_after, first.started_after)


def test_a_host_that_does_not_know_when_the_old_process_had_ended_leaves_that_open(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = taken_up(world, monkeypatch)
    assert first.status is RESTARTED
    assert first.stopped_after is None
    assert first.started_after is not None, "the process that runs tells its own start"


STEP = Step(W1, INTENT, 100.0, restarted_after=100.0)


def test_what_is_replaced_ends_once_and_what_has_come_instead_may_be_replaced_itself() -> None:
    step = with_moment(with_moment(STEP, Moment.STOPPED, 103.0), Moment.STARTED, 104.0)
    again = with_moment(with_moment(step, Moment.STOPPED, 105.0), Moment.STARTED, 106.0)
    assert (again.stopped_after, again.started_after) == (3.0, 6.0)


def test_a_start_is_not_before_the_end_of_what_it_replaces() -> None:
    """Of another machine each moment comes with the time that its answer took."""
    step = with_moment(with_moment(STEP, Moment.STOPPED, 103.2), Moment.STARTED, 103.1)
    assert (step.stopped_after, step.started_after) == (3.2, 3.2)


def test_a_restart_that_is_announced_again_knows_nothing_yet() -> None:
    before = with_moment(with_moment(STEP, Moment.STOPPED, 103.0), Moment.STARTED, 104.0)
    again = announced_again(replace(before, evidence=("a",), conditions_after={"a": 1.0}), 200.0)
    assert again == replace(STEP, at=200.0, restarted_after=200.0)


# What a roll writes down while it waits for a worker's gate: the conditions that hold by then


def noted(steps: list[Step], worker: str) -> list[Step]:
    restarted = [step for step in steps if step.worker_id == worker and step.status is StepStatus.RESTARTED]
    return [step for step in restarted if step.evidence]


def test_each_worker_has_its_conditions_in_the_journal_before_its_gate_has_passed(world: World) -> None:
    roll, journal = roll_of(world, world.plan())
    assert roll.run() is None
    for worker in (W1, W2, W3):
        (at_gate,) = noted(journal.steps, worker)
        passed = next(step for step in journal.steps if step.worker_id == worker and step.status is StepStatus.PASSED)
        assert journal.steps.index(at_gate) < journal.steps.index(passed)
        assert at_gate.conditions_after.keys() == passed.conditions_after.keys()
        assert len(at_gate.evidence) == len(at_gate.conditions_after)
        assert at_gate.announced_at_ms == passed.announced_at_ms, "it is another restart"


def test_a_note_that_cannot_be_written_holds_up_no_roll(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Journal.record

    def refused(journal: Journal, step: Step) -> int:
        if step.status is StepStatus.RESTARTED and step.evidence:
            raise UnreachableError("The journal cannot be written.")
        return record(journal, step)

    monkeypatch.setattr(Journal, "record", refused)
    roll, journal = roll_of(world, world.plan())
    assert roll.run() is None
    assert noted(journal.steps, W1) == []
    assert sum(step.status is StepStatus.PASSED for step in journal.steps) == len((W1, W2, W3))
