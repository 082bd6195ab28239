"""What a roll writes down while it waits for a worker's gate: the conditions that hold by then."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.journal.records import Step, StepStatus
from tests.unit.rollout.test_another_host import W1, W2, W3, Journal, Supervisor, World, roll_of


@pytest.fixture
def world(cluster: Any) -> World:
    return World(Supervisor(cluster))


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
