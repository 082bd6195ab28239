"""The protocol with one sentence taken out at a time, for tests that show what each sentence is for.

A mutation replaces steps of the real classes in an actor's process. None of this is in the product.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import Completed, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol import admission, coordinator as coordinator_module
from airflow_eos_provider.interval.protocol.coordinator import Coordinator, deal
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.control_topic import ControlState, RunState
from airflow_eos_provider.interval.topics.ledger import LedgerState, SliceRecord
from airflow_eos_provider.interval.topics.reader import TopicReader
from airflow_eos_provider.interval.write.slice_writer import SliceWriter
from airflow_eos_provider.kafka.write.producer import TransactionalProducer


class CompleteReadFirst(Task):
    """The task reads ``complete`` before its slices."""

    def start(self) -> set[int]:
        self._require_own_generation("read control")
        self._init()
        self._require_own_generation("read control again")
        self._require_incomplete()
        self._to_do = set(self.slices) - set(self._read_slices())
        return set(self._to_do)


class ReadsBeforeInit(Task):
    """The task takes its id only after it has read what is done."""

    def start(self) -> set[int]:
        done = self._read_slices()
        self._require_own_generation("read control again")
        self._require_incomplete()
        self._init()
        self._to_do = set(self.slices) - set(done)
        return set(self._to_do)


class NoLookAtSlices(Task):
    """The task writes all of its slices without asking the ledger."""

    def _read_slices(self) -> dict[int, SliceRecord]:
        return {}


class NoLookBeforeInit(Task):
    """The task takes its id without looking whether it is outdated."""

    def _require_own_generation(self, step: str) -> None:
        if step != "read control":
            super()._require_own_generation(step)


class OnlyNewerGenerationStops(Task):
    """The task goes on when it does not find its own generation."""

    def _require_own_generation(self, step: str) -> None:
        self._step(step)
        state = ControlState()
        TopicReader(self._session, self._pipeline.control_topic).read(state.apply)
        generation = state.run(self._stage.run).generation
        if generation is not None and generation != self._stage.generation:
            raise self._outdated("has a newer generation")


class LedgerRecordOnItsOwn(Task):
    """The slice's records are committed before its ledger record."""

    def _writer_with(self, producer: TransactionalProducer) -> SliceWriter:
        class Apart(SliceWriter):
            def _produce_ledger_record(self, number: int, record: SliceRecord) -> None:
                producer.begin()
                super()._produce_ledger_record(number, record)

        def step(name: str) -> None:
            if name == "ledger record":
                producer.commit()
            self._step(name)

        return Apart(self._pipeline, self._stage, producer, step)


class FirstReadToTheEnd(Coordinator):
    """The coordinator's first look at the ledger waits for open transactions."""

    def _read_stable_ledger(self) -> None:
        self._read_ledger("read stable ledger")


class FencesBeforeGeneration(Coordinator):
    """The old ids are fenced before the new generation is on record."""

    def _begin_generation(self, plan: RunPlan, state: RunState, tasks: int) -> Stage | Completed:
        Coordinator._fence(self, state)
        return super()._begin_generation(plan, state, tasks)

    def _fence(self, state: RunState) -> None:
        """Done already."""


class FencesNewTaskCount(Coordinator):
    """As many ids are fenced as the new generation has, not the old one."""

    def _begin_generation(self, plan: RunPlan, state: RunState, tasks: int) -> Stage | Completed:
        dealt = deal(len(plan.slices), range(len(plan.slices)), tasks)
        return super()._begin_generation(plan, RunState(**{**_fields(state), "task_count": len(dealt)}), tasks)


class NoFenceBeforeComplete(Coordinator):
    """``complete`` is written without fencing the run's own ids once more, and without waiting for its readers.

    Either holds ``complete`` back where a marker is late.
    """

    def _fence_own_ids(self, stage: Stage) -> None:
        self._step("fence own ids")

    def _await_readers(self, stage: Stage, named_by_rows: set[str]) -> None:
        pass


class InputNotCompared(Coordinator):
    """A retry writes without comparing its input with what is committed."""

    def compare_input(self, stage: Stage, figures: Any) -> Stage:
        return replace(stage, compared=True)


class AbandonsWithoutFencing(Coordinator):
    """A run is given up without fencing its tasks."""

    def _write_generation(self, assignment: Sequence[Sequence[int]]) -> int:
        return -1 if not assignment else super()._write_generation(assignment)

    def _fence(self, state: RunState) -> None:
        self._step("fence")


def _fields(state: RunState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in RunState.__slots__}


def _stop_at_committed_end() -> None:
    TopicReader.read = TopicReader.read_stable  # type: ignore[method-assign]


def _write_own_plan() -> None:
    right = admission.admit

    def admit(run: Run, control: ControlState, ledger: LedgerState) -> Any:
        found = right(run, control, ledger)
        return None if isinstance(found, RunPlan) else found

    admission.admit = admit


def _plan_without_turns() -> None:
    class Anywhen(admission.Planner):
        def __init__(self, pipeline: Pipeline, *rest: Any, **named: Any) -> None:
            unlike = f"{pipeline.group_id}-{uuid.uuid4().hex}"
            pipeline = Pipeline.from_dict({**pipeline.to_dict(), "group_id": unlike})  # the topics stay
            super().__init__(pipeline, *rest, **named)

    coordinator_module.Planner = Anywhen  # type: ignore[misc]


_CLASSES: dict[str, type[Coordinator] | type[Task]] = {
    "complete read first": CompleteReadFirst,
    "read before init": ReadsBeforeInit,
    "slices not read": NoLookAtSlices,
    "no look before init": NoLookBeforeInit,
    "own generation not looked for": OnlyNewerGenerationStops,
    "ledger record on its own": LedgerRecordOnItsOwn,
    "first read to the end": FirstReadToTheEnd,
    "fence before generation": FencesBeforeGeneration,
    "fence new task count": FencesNewTaskCount,
    "no fence before complete": NoFenceBeforeComplete,
    "input not compared": InputNotCompared,
    "abandon without fencing": AbandonsWithoutFencing,
}

_PATCHES: dict[str, Callable[[], None]] = {
    "committed end": _stop_at_committed_end,
    "own plan not adopted": _write_own_plan,
    "no planner id": _plan_without_turns,
}


def coordinator(mutation: str | None) -> type[Coordinator]:
    """The coordinator of this protocol."""
    found = _CLASSES.get(_apply(mutation), Coordinator)
    return found if issubclass(found, Coordinator) else Coordinator


def task(mutation: str | None) -> type[Task]:
    """The task of this protocol."""
    found = _CLASSES.get(_apply(mutation), Task)
    return found if issubclass(found, Task) else Task


def _apply(mutation: str | None) -> str:
    if mutation is None:
        return ""
    if mutation in _PATCHES:
        _PATCHES[mutation]()
    elif mutation not in _CLASSES:
        raise ValueError(mutation)
    return mutation
