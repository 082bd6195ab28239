from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.control_topic import (
    ControlState,
    Outgoing,
    generation_records,
    plan_record,
    task_count_record,
)
from airflow_eos_provider.kafka.read.reader import LogRecord

RUN = Run.parse("flights-1@2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")
OTHER = Run.parse("flights-2@2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")
PLAN = RunPlan(RUN, [{"n": n} for n in range(3)])


def replayed(*records: Outgoing) -> ControlState:
    state = ControlState("c")
    state.apply(LogRecord("c", 0, offset, 0, key, value) for offset, (key, value) in enumerate(records))
    return state


def removed(records: Iterable[Outgoing]) -> list[Outgoing]:
    return [Outgoing(record.key, None) for record in records]


def test_records_are_of_the_kinds_and_bytes_of_connects_config_topic() -> None:
    tasks = generation_records(RUN, [(0, 2), ()])
    name = RUN.name.encode()

    assert [record.key for record in tasks] == [b"task-" + name + b"-0", b"task-" + name + b"-1", b"commit-" + name]
    assert tasks[-1].value == b'{"tasks":2}'
    assert task_count_record(RUN, 2) == (b"tasks-fencing-" + name, b'{"task-count":2}')
    for record in [plan_record(PLAN), *tasks[:-1]]:
        properties = json.loads(record.value or b"")["properties"]
        assert all(isinstance(value, str) for value in properties.values())
        assert properties["name"] == RUN.name


def test_a_run_has_its_plan_generation_tasks_and_task_count() -> None:
    state = replayed(plan_record(PLAN), *generation_records(RUN, [(0, 2), (1,)]), task_count_record(RUN, 2)).run(RUN)

    assert state.plan == PLAN
    assert state.generation == 3
    assert state.assignment == {0: (0, 2), 1: (1,)}
    assert state.task_count == 2
    assert len(state.keys) == 5


def test_the_newest_commit_is_the_generation_and_older_task_records_stay_known() -> None:
    records = [*generation_records(RUN, [(0,), (1,), (2,)]), *generation_records(RUN, [(0, 1, 2)])]
    state = replayed(plan_record(PLAN), *records).run(RUN)

    assert state.generation == len(records)
    assert b"task-" + RUN.name.encode() + b"-2" in state.keys  # to be removed with the rest


def test_the_task_count_of_before_stays_until_a_new_one_is_written() -> None:
    state = replayed(task_count_record(RUN, 4), *generation_records(RUN, [(0,)])).run(RUN)

    assert state.task_count == 4


def test_a_run_whose_records_are_removed_is_gone() -> None:
    records = [plan_record(PLAN), *generation_records(RUN, [(0,)]), task_count_record(RUN, 1)]
    state = replayed(*records, *removed(records))

    assert state.runs == {}
    assert state.run(RUN).generation is None


def test_a_removed_generation_is_none_even_if_the_rest_is_there() -> None:
    commit = generation_records(RUN, [(0,)])[-1]

    assert replayed(plan_record(PLAN), commit, *removed([commit])).run(RUN).generation is None


def test_runs_are_told_apart() -> None:
    state = replayed(plan_record(PLAN), *generation_records(OTHER, [(0,)]))

    assert state.run(RUN).generation is None
    assert state.run(OTHER).plan is None
    assert state.planned("flights-1") == [RUN]
    assert state.planned("flights-2") == []
    assert state.planned("flights") == []


def test_a_plan_that_was_altered_is_refused() -> None:
    key, value = plan_record(PLAN)
    altered = Outgoing(key, (value or b"").replace(b'\\"n\\":1', b'\\"n\\":7'))

    with pytest.raises(EosError, match="does not match its hash"):
        _ = replayed(altered).run(RUN).plan


@pytest.mark.parametrize(
    "key", ["session-key", "target-state-x", "connector-jdbc-source", "task-jdbc-source-0", "commit-jdbc-source"]
)
def test_a_connect_clusters_config_topic_is_refused_without_showing_a_value(key: str) -> None:
    with pytest.raises(ConfigurationError, match="config topic of a Connect cluster") as raised:
        replayed(Outgoing(key.encode(), b'{"key":"c4nary","properties":{}}'))

    assert "c4nary" not in str(raised.value)


def test_a_kind_of_record_from_the_future_is_not_passed_over() -> None:
    with pytest.raises(EosError, match="unknown kind, 'decision-"):
        replayed(Outgoing(f"decision-{RUN.name}".encode(), b"{}"))
