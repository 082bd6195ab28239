"""The control topic: record kinds of Connect's config topic, for runs instead of connectors.

=========================  =============================================================================
``connector-<run>``        the plan: slices, pinned source, hash
``task-<run>-<n>``         the slices of task ``n`` in the newest generation
``commit-<run>``           closes a generation; the generation *is* this record's offset
``tasks-fencing-<run>``    the task count record: how many ids the next generation has to fence
``pipeline-<pipeline>``    the pipeline's ledger by name and topic id; the one kind that Connect does not have
=========================  =============================================================================

A run's records are removed when it completes. So the topic has running runs only, and every pipeline that ever ran.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from airflow_eos_provider.connect.topics.jackson import Json, encode, hash_map_order
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.progress import Report, silent
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.pins import Pinned, Pins, TopicPin
from airflow_eos_provider.interval.topics.run_reader import Take, TopicReader
from airflow_eos_provider.kafka.kafka_session import Kafka
from airflow_eos_provider.kafka.read.follow import FOLLOWED_SECONDS
from airflow_eos_provider.kafka.read.reader import Elapsed, LogRecord

PLAN = "connector-"
_TASK = "task-"
COMMIT = "commit-"
_TASK_COUNT = "tasks-fencing-"
_PIPELINE = "pipeline-"

#: Keys that only a Connect cluster writes.
_CONNECTS_OWN = ("session-key", "target-state-", "restart-connector-", "logger-cluster-")

#: Names within the records' properties. Stored: renaming one strands runs that are under way.
_PLAN_PROPERTY = "interval.plan"
_HASH_PROPERTY = "interval.plan.hash"
_SLICES_PROPERTY = "interval.slices"
_PINS_PREFIX = "interval.pinned."
_CLASS = "airflow_eos_provider.interval.IntervalRun"


class Outgoing(NamedTuple):
    """A record that is to be written; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


def plan_record(plan: RunPlan, pins: Pins | None = None) -> Outgoing:
    """``connector-<run>``, the plan. The pins are beside it and not within it: its hash is about rows only."""
    properties = {
        "name": plan.run.name,
        "connector.class": _CLASS,
        _HASH_PROPERTY: plan.hash,
        _PLAN_PROPERTY: plan.to_json(),
        **_pin_properties(pins),
    }
    return _record(f"{PLAN}{plan.run.name}", {"properties": hash_map_order(properties)})


def pipeline_record(pipeline: str, ledger: TopicPin) -> Outgoing:
    """``pipeline-<pipeline>``: its ledger. It stays when the runs have gone: which intervals are complete, and so may
    not be written again, is in that ledger and nowhere else."""
    properties = {"name": pipeline, **_pin_properties(Pins(ledger))}
    return _record(f"{_PIPELINE}{pipeline}", {"properties": hash_map_order(properties)})


def _pin_properties(pins: Pins | None) -> dict[str, str]:
    return {} if pins is None else {_PINS_PREFIX + name: value for name, value in pins.to_values().items()}


def _pins_of(properties: Mapping[str, str]) -> Pins | None:
    return Pins.of_values(
        {name.removeprefix(_PINS_PREFIX): value for name, value in properties.items() if name.startswith(_PINS_PREFIX)}
    )


def generation_records(run: Run, assignment: Sequence[Sequence[int]]) -> list[Outgoing]:
    """``task-<run>-<n>`` for each task, and last ``commit-<run>``."""
    records = []
    for number, slices in enumerate(assignment):
        properties = {
            "name": run.name,
            "task.class": _CLASS + "Task",
            _SLICES_PROPERTY: ",".join(map(str, slices)),
        }
        records.append(_record(f"{_TASK}{run.name}-{number}", {"properties": hash_map_order(properties)}))
    return [*records, _record(f"{COMMIT}{run.name}", {"tasks": len(assignment)})]


def task_count_record(run: Run, tasks: int) -> Outgoing:
    """``tasks-fencing-<run>``."""
    return _record(f"{_TASK_COUNT}{run.name}", {"task-count": tasks})


def parts_of_key(key: bytes | None) -> tuple[str, str, int]:
    """A record's kind, the run or pipeline that it is of, and its task. The kind is empty if it is unknown here."""
    text = (key or b"").decode("utf-8", "replace")
    kind = next((kind for kind in (_PIPELINE, PLAN, _TASK_COUNT, _TASK, COMMIT) if text.startswith(kind)), "")
    name, task = text.removeprefix(kind), ""
    if kind == _TASK:
        name, _, task = name.rpartition("-")
    return kind, name, int(task) if task.isdigit() else -1


def _record(key: str, value: Json) -> Outgoing:
    return Outgoing(key.encode(), encode(value))


@dataclass(slots=True)
class RunState:
    """What the control topic says of one run.

    :ivar generation: offset of its newest ``commit-<run>``, None if there is none.
    """

    generation: int | None = None
    task_count: int | None = None
    assignment: dict[int, tuple[int, ...]] = field(default_factory=dict)
    keys: set[bytes] = field(default_factory=set)
    plan_value: bytes | None = None

    @property
    def plan(self) -> RunPlan | None:
        """The frozen plan, None if none is on record."""
        if self.plan_value is None:
            return None
        properties = json.loads(self.plan_value)["properties"]
        plan = RunPlan.from_json(properties[_PLAN_PROPERTY])
        if plan.hash != properties[_HASH_PROPERTY]:
            raise EosError(
                f"The plan of {plan.run} does not match its hash.",
                remedy="Its record was altered. Abandon the run if nothing of it is committed.",
            )
        return plan

    def copy(self) -> RunState:
        """The same, whatever is replayed later."""
        return replace(self, assignment=dict(self.assignment), keys=set(self.keys))

    @property
    def pins(self) -> Pins | None:
        """The topics that are beside its plan; None without a plan, or in one of a version that pinned none."""
        return None if self.plan_value is None else _pins_of(json.loads(self.plan_value)["properties"])


class ControlState:
    """The control topic, replayed record by record in the order of the log."""

    def __init__(self, topic: str = "") -> None:
        self._topic = topic
        self.runs: dict[str, RunState] = {}
        self.pipelines: dict[str, Pins | None] = {}

    def apply(self, records: Iterable[LogRecord]) -> None:
        """Go on with further records."""
        for record in records:
            self._apply(record)

    def run(self, run: Run) -> RunState:
        """What is there of one run at this moment; empty if nothing is."""
        found = self.runs.get(run.name)
        return RunState() if found is None else found.copy()

    def planned(self, pipeline: str) -> list[Run]:
        """The runs of a pipeline that have a plan and are not complete."""
        names = [name for name, state in self.runs.items() if state.plan_value is not None]
        return [Run.parse(name) for name in names if name.startswith(f"{pipeline}@")]

    @property
    def ledgers(self) -> dict[str, str]:
        """By topic, the pipeline whose ledger it is; records of a version that pinned nothing do not say it."""
        return {pins.ledger.name: pipeline for pipeline, pins in self.pipelines.items() if pins is not None}

    def pinned(self, run: Run) -> list[Pinned]:
        """The records that pin topics of a run."""
        found = []
        if run.pipeline in self.pipelines:
            pins = self.pipelines[run.pipeline]
            found.append(Pinned(f"the record of the pipeline {run.pipeline}", pins, with_target=False))
        if self.run(run).plan_value is not None:
            found.append(Pinned("the plan on record", self.run(run).pins))
        return found

    def _apply(self, record: LogRecord) -> None:
        kind, name, task = parts_of_key(record.key)
        if kind == _PIPELINE:
            if record.value is None:
                self.pipelines.pop(name, None)
            else:
                self.pipelines[name] = _pins_of(json.loads(record.value)["properties"])
            return
        key = (record.key or b"").decode("utf-8", "replace")
        if key.startswith(_CONNECTS_OWN) or (kind and "@" not in name):
            raise self._connects_own(key)
        if not kind:
            raise EosError(
                f"The control topic {self._topic} has a record of an unknown kind, {key!r}.",
                remedy="Continue with the version of airflow-eos-provider that wrote it.",
            )
        self._apply_to_run(name, kind, task, record)

    def _apply_to_run(self, name: str, kind: str, task: int, record: LogRecord) -> None:
        state = self.runs.setdefault(name, RunState())
        assert record.key is not None
        value = record.value
        if value is None:
            state.keys.discard(record.key)
        else:
            state.keys.add(record.key)
        if kind == PLAN:
            state.plan_value = value  # read when asked for: it may list thousands of files
        elif kind == COMMIT:
            state.generation = None if value is None else record.offset
        elif kind == _TASK_COUNT:
            state.task_count = None if value is None else json.loads(value)["task-count"]
        elif value is None:
            state.assignment.pop(task, None)
        else:
            numbers = json.loads(value)["properties"][_SLICES_PROPERTY]
            state.assignment[task] = tuple(int(n) for n in numbers.split(",") if n)
        if not state.keys:
            del self.runs[name]

    def _connects_own(self, key: str) -> ConfigurationError:
        kind = "session-key" if key.startswith("session-key") else key
        return ConfigurationError(
            f"The control topic {self._topic} is the config topic of a Connect cluster: it has a record {kind!r}.",
            expected="a topic of the interval runs' own",
            remedy="Give the pipeline a group_id (or control_topic) that no Connect cluster uses.",
        )


class ControlReader:
    """The control topic as one actor has read it so far; each read continues where the last one ended.

    Compaction removes only records that a later one replaces, so replaying in parts gives what replaying from the
    beginning does. A tombstone goes a day later; so a reader that has not read for long begins at the start again.
    Offsets are generations and mean something in one topic only: a topic with another id is an error.

    :param topic_id: the id that the topic must have; None for that of the first read.
    """

    def __init__(
        self, kafka: Kafka, topic: str, start: int = 0, *, topic_id: str | None = None, report: Report = silent
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self.topic_id = topic_id
        self._report = report
        self._since_read = Elapsed()
        self._from(start)

    def read(self) -> ControlState:
        """All that is committed up to the uncommitted end of this moment; waits for open transactions before it."""
        return self._read(TopicReader.read)

    def read_stable(self) -> ControlState:
        """What is committed before the first open transaction. There may be more behind it."""
        return self._read(TopicReader.read_stable)

    def _read(self, read: Callable[[TopicReader, Take], None]) -> ControlState:
        if self._since_read.seconds() > FOLLOWED_SECONDS:
            self._from(0)
        began = Elapsed()
        self._reader.topic_id = self.topic_id
        read(self._reader, self._state.apply)
        self.topic_id = self._reader.topic_id
        self._since_read = began
        return self._state

    def _from(self, start: int) -> None:
        self._reader = TopicReader(self._kafka, self._topic, {0: start} if start else None, report=self._report)
        self._state = ControlState(self._topic)
