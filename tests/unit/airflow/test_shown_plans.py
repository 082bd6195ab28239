"""An interval run given up: form, plan, approval, and only what was approved.

The looks at the broker are stood in for; their own tests have real ones (tests/integration/test_intervals_command.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from airflow.exceptions import ParamValidationError
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.dag_factories import interval_abandon_dag
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval import verify
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol import coordinator as protocol
from airflow_eos_provider.interval.verify import RunStatus
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.operators import interval_abandon
from airflow_eos_provider.operators.approvable import approvable
from airflow_eos_provider.operators.interval_abandon import IntervalAbandonOperator, IntervalAbandonPlanOperator
from airflow_eos_provider.operators.shown_plan import ShownDocument

DAY = "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"
RUN = Run.parse(f"orders@{DAY}")
RUNNING = RunStatus(RUN, False, 4, generation=17, plan_hash="p" * 32)


def approval_of(document: dict[str, Any]) -> dict[str, Any]:
    return {"plan_hash": document["hash"], "approved_by": "grace"}


@pytest.mark.parametrize("document", [None, {}, {"kind": "shown plan"}, "text", []])
def test_what_is_no_plan_is_refused(document: Any) -> None:
    with pytest.raises(ConfigurationError, match="does not have its hash"):
        ShownDocument.from_dict(document)


def test_a_plan_that_was_edited_is_refused() -> None:
    document = ShownDocument("End it?", ("one",), "a" * 64).to_dict()
    assert ShownDocument.from_dict(document).to_dict() == document
    for changed in ({"lines": ["other"]}, {"question": "Keep it?"}, {"plan_hash": "b" * 64}):
        with pytest.raises(ConfigurationError, match="does not have its hash"):
            ShownDocument.from_dict({**document, **changed})


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that a coordinator was told to give up."""
    found: list[str] = []

    class Coordinator:
        def __init__(self, pipeline: Pipeline, run: Run, *, report: Any) -> None:
            self.run = run

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def abandon(self) -> None:
            found.append(self.run.name)

    pipeline = Pipeline(name="orders", group_id="etl", kafka=KafkaSettings.of("broker:9092"))
    monkeypatch.setattr(protocol, "Coordinator", Coordinator)
    monkeypatch.setattr(interval_abandon, "find_pipeline", lambda *_, **__: pipeline)
    return found


ASKED: dict[str, Any] = {"pipeline": "orders", "interval": DAY, "revision": "1", "group_id": "etl"}


def on_record(monkeypatch: pytest.MonkeyPatch, found: RunStatus | None) -> None:
    monkeypatch.setattr(verify, "status", lambda pipeline, run: found)


def test_a_run_of_which_nothing_is_committed_is_given_up_as_approved(
    given_up: list[str], context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_record(monkeypatch, RUNNING)
    plan = IntervalAbandonPlanOperator(task_id="plan", **ASKED).execute(context)  # type: ignore[arg-type]
    assert f"Give up the interval run {RUN.name}?" in approvable(plan).question
    operator = IntervalAbandonOperator(task_id="abandon", plan=plan, approval=approval_of(plan), **ASKED)
    on_record(monkeypatch, replace(RUNNING, generation=18))
    with pytest.raises(AirflowFailException, match="begun anew since the plan was made"):
        operator.execute(context)  # type: ignore[arg-type]
    assert given_up == []
    on_record(monkeypatch, RUNNING)
    assert operator.execute(context) == {"run": RUN.name, "abandoned": True}  # type: ignore[arg-type]
    assert given_up == [RUN.name]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "nothing to give up"),
        (replace(RUNNING, done=(1,)), "has 1 of 4 slices committed"),
        (replace(RUNNING, complete=True), "is complete"),
    ],
)
def test_a_run_that_cannot_be_given_up_is_not_planned(
    given_up: list[str],
    context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    found: RunStatus | None,
    why: str,
) -> None:
    on_record(monkeypatch, found)
    with pytest.raises(AirflowFailException, match=why):
        IntervalAbandonPlanOperator(task_id="plan", **ASKED).execute(context)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "good", "bad"),
    [
        (interval_abandon_dag, {"pipeline": "p", "interval": DAY}, {"pipeline": "", "interval": "today"}),
    ],
)
def test_the_form_is_checked(make: Any, good: dict[str, Any], bad: dict[str, Any]) -> None:
    params = make(dag_id="form").params
    for name, value in good.items():
        assert params.get_param(name).resolve(value) == value
    for name, value in bad.items():
        with pytest.raises(ParamValidationError):
            params.get_param(name).resolve(value)
