from __future__ import annotations

import json

import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.protocol.coordinator import deal
from airflow_eos_provider.interval.slices import RunPlan

RUN = Run.parse("p@2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")
PLAN = RunPlan(RUN, [{"file": "a", "start": 0}, {"file": "a", "start": 9}], {"kind": "lines"})


def test_a_plan_survives_the_control_topic() -> None:
    assert RunPlan.from_json(PLAN.to_json()) == PLAN
    assert RunPlan.from_json(PLAN.to_json()).hash == PLAN.hash


def test_the_hash_does_not_depend_on_the_order_of_names() -> None:
    same = RunPlan(RUN, [{"start": 0, "file": "a"}, {"start": 9, "file": "a"}], {"kind": "lines"})

    assert same.hash == PLAN.hash


@pytest.mark.parametrize(
    "other",
    [
        RunPlan(RUN, [{"file": "a", "start": 0}], {"kind": "lines"}),
        RunPlan(RUN, [{"file": "a", "start": 9}, {"file": "a", "start": 0}], {"kind": "lines"}),
        RunPlan(RUN, [{"file": "a", "start": 0}, {"file": "a", "start": 9}], {"kind": "other"}),
        RunPlan(Run(RUN.pipeline, RUN.interval, 2), [{"file": "a", "start": 0}, {"file": "a", "start": 9}]),
    ],
    ids=["fewer slices", "other order", "other source", "other run"],
)
def test_the_hash_is_of_all_that_decides_membership(other: RunPlan) -> None:
    assert other.hash != PLAN.hash


def test_a_plan_of_no_slices_is_an_interval_that_is_empty_on_purpose() -> None:
    assert RunPlan(RUN, []).slices == ()


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_what_cannot_be_written_down_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written down"):
        RunPlan(RUN, [{"x": value}])


def test_a_plan_of_a_younger_version_is_refused() -> None:
    with pytest.raises(EosError, match="schema 2"):
        RunPlan.from_dict({**PLAN.to_dict(), "schema": 2})


def test_a_stage_survives_its_way_to_the_tasks() -> None:
    stage = Stage(RUN, 17, PLAN.hash, PLAN.slices, ((0,), (1,)), {0: 3, 1: 4})

    assert Stage.from_dict(json.loads(json.dumps(stage.to_dict()))) == stage
    assert (stage.tasks, stage.unfinished) == (2, (0, 1))


@pytest.mark.parametrize(
    ("slices", "unfinished", "tasks", "dealt"),
    [
        (4, [0, 1, 2, 3], 2, ((0, 2), (1, 3))),
        (4, [1, 3], 2, ((1,), (3,))),
        (4, [2], 3, ((2,),)),
        (4, [1, 3], 4, ((), (1,), (), (3,))),
        (4, [], 2, ()),
        (0, [], 2, ()),
        (3, [0, 1, 2], 9, ((0,), (1,), (2,))),
    ],
)
def test_slices_are_dealt_out_evenly_or_one_to_one(
    slices: int, unfinished: list[int], tasks: int, dealt: tuple[tuple[int, ...], ...]
) -> None:
    assert deal(slices, unfinished, tasks) == dealt
