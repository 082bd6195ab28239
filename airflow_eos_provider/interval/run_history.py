"""A pipeline's runs in the logs: when each began, its attempts, its slices and their times.

Control topic and ledger are compacted: of a complete run their newest records have its ``complete`` alone. Its plan,
generations and slices are in the log until it is compacted, with the times at which they were written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.control_topic import COMMIT, PLAN, ControlState, parts_of_key
from airflow_eos_provider.interval.topics.ledger import LedgerState, SliceRecord, complete_key, slice_key
from airflow_eos_provider.interval.topics.run_reader import TopicReader
from airflow_eos_provider.interval.verify import is_there, pipelines_among, statuses_of, topics
from airflow_eos_provider.kafka.read.reader import LogRecord


class Attempt(NamedTuple):
    """One generation of a run: its offset in the control topic, and when it was written."""

    generation: int
    at_ms: int


class PipelineHistory:
    """A pipeline's runs as they are, and as they came."""

    def __init__(
        self, pipeline: str, control: Iterable[LogRecord], ledger: Iterable[LogRecord], topic: str = ""
    ) -> None:
        running, written = ControlState(topic), LedgerState(pipeline)
        self._planned, self._written = ControlState(topic), LedgerState(pipeline)
        self._began: dict[str, int] = {}
        self._attempts: dict[str, list[Attempt]] = {}
        self._tasks: dict[str, dict[int, int]] = {}
        self._newest: dict[bytes, int] = {}  # by ledger key, the time of the newest record that is no removal
        for record in control:
            running.apply([record])
            if record.value is not None:
                self._planned.apply([record])
                self._note(record)
        for record in ledger:
            written.apply([record])
            if record.value is not None and record.key is not None:
                self._written.apply([record])
                self._newest[record.key] = record.timestamp_ms
        self.statuses = statuses_of(pipeline, running, written)

    def began_at_ms(self, run: Run) -> int | None:
        """When its first plan was written; None if the log has it no more."""
        return self._began.get(run.name)

    def completed_at_ms(self, run: Run) -> int | None:
        """When its ``complete`` was written; None if it is not complete."""
        return self._newest.get(complete_key(run))

    def seconds(self, run: Run) -> float | None:
        """From the first plan to ``complete``, waits between attempts included; None if one of the two is not known."""
        began, completed = self.began_at_ms(run), self.completed_at_ms(run)
        return None if began is None or completed is None else max(0, completed - began) / 1000

    def attempts(self, run: Run) -> tuple[Attempt, ...]:
        """Its generations: each fences those before."""
        return tuple(self._attempts.get(run.name, ()))

    def plan(self, run: Run) -> RunPlan | None:
        """Its plan; None if the log has it no more."""
        return self._planned.run(run).plan

    def slices(self, run: Run, count: int) -> dict[int, SliceRecord]:
        """Its slices that were committed, as far as the log has them."""
        return self._written.done(run, range(count))

    def slice_at_ms(self, run: Run, number: int) -> int | None:
        """When a slice was committed."""
        return self._newest.get(slice_key(run, number))

    def task_of(self, run: Run) -> Mapping[int, int]:
        """By slice the task that has it in the newest generation."""
        return self._tasks.get(run.name, {})

    def source_of(self, run: Run) -> tuple[Mapping[str, Any], ...]:
        """What is in each slice, by its number."""
        plan = self.plan(run)
        return () if plan is None else tuple(plan.slices)

    def _note(self, record: LogRecord) -> None:
        kind, name, _ = parts_of_key(record.key)
        if kind == PLAN:
            self._began.setdefault(name, record.timestamp_ms)
        elif kind == COMMIT:
            self._attempts.setdefault(name, []).append(Attempt(record.offset, record.timestamp_ms))
            assignment, tasks = self._planned.runs[name].assignment, json.loads(record.value or b"{}")["tasks"]
            self._tasks[name] = {n: task for task in range(tasks) for n in assignment.get(task, ())}


def read_history(pipeline: Pipeline) -> PipelineHistory:
    """A pipeline's runs, as far as the topics are stable; empty if there are no such topics yet."""
    there = topics(pipeline.kafka)

    def records(topic: str) -> tuple[LogRecord, ...]:
        found: list[LogRecord] = []
        if is_there(pipeline.kafka, topic, there):
            TopicReader(pipeline.kafka, topic).read_stable(found.extend)
        return tuple(found)

    control = records(pipeline.control_topic)  # first: a run that completes meanwhile is seen in both
    return PipelineHistory(pipeline.name, control, records(pipeline.ledger_topic), pipeline.control_topic)


def groups_with_pipelines(names: Iterable[str]) -> dict[str, list[str]]:
    """By group the pipelines whose ledgers and control topic have the usual names.

    A Connect group whose connectors have offsets topics of their own may look the same; its control topic tells.
    """
    there = set(names)
    groups = sorted(name.removesuffix("-configs") for name in there if name.endswith("-configs"))
    return {group: found for group in groups if (found := pipelines_among(there, group))}
