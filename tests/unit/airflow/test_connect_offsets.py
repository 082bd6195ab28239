"""The DAG of offset changes: its form, what its fields become, and what an approver sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.dag_factories import offsets_dag
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.offsets.verbs.changes import Wanted, Write
from airflow_eos_provider.offsets.verbs.plan import ConnectorLook, OffsetsPlan, PlannedTopic, TargetState
from airflow_eos_provider.offsets.verbs.request import OffsetsRequest, Verb
from airflow_eos_provider.operators.approvable import approvable
from airflow_eos_provider.operators.approval import approval_body
from airflow_eos_provider.operators.approved import require_approved
from airflow_eos_provider.operators.connect_offsets import ConnectOffsetsOperator, ConnectOffsetsPlanOperator

WRITES = tuple(Write("offsets", 0, f'["c",{{"n":{n}}}]'.encode(), b"1", None) for n in range(40))
LOOK = ConnectorLook.of("g", "cluster", "c", TargetState.STARTED, {}, exactly_once=True)
PLAN = OffsetsPlan(OffsetsRequest(Verb.RESET, "c"), LOOK, (PlannedTopic("offsets", "id", 25),), WRITES)


@pytest.fixture(scope="module")
def dag() -> DAG:
    return offsets_dag(conn_id="cluster_7", dag_id="offsets_7")


def test_nothing_is_changed_without_plan_and_approval(dag: DAG) -> None:
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "approve", "change"]
    change = dag.get_task("change")
    assert isinstance(change, ConnectOffsetsOperator)
    assert change.upstream_task_ids == {"plan", "approve"}
    assert change.approval.operator.task_id == "approve"


def test_a_dag_of_one_action_offers_no_other_and_an_unknown_one_is_refused(dag: DAG) -> None:
    every, one = (each.params.get_param("action") for each in (dag, offsets_dag(action="migrate")))
    assert set(every.schema["enum"]) == {str(verb) for verb in Verb}
    assert all(f"{verb} " in str(every.description) for verb in Verb)
    assert one.schema["enum"] == ["migrate"]
    assert one.description == "migrate moves the offsets into another topic."
    with pytest.raises(ConfigurationError, match="no action delete"):
        offsets_dag(action="delete")


def test_what_the_form_leaves_empty_reaches_the_operator_as_empty(dag: DAG) -> None:
    plan = dag.get_task("plan")
    left_empty = {"connector": "c", **dict.fromkeys(("where", "offsets", "file", "source", "topic"))}
    for name, value in left_empty.items():
        dag.params.get_param(name).resolve(value)  # raises if the form would call it required
        assert plan.render_template(getattr(plan, name), {"params": left_empty}) == (value or "")


def request(**fields: Any) -> OffsetsRequest:
    return ConnectOffsetsPlanOperator(task_id="plan", **fields)._request("g")


def test_the_form_becomes_a_request_and_fields_of_other_actions_do_not_count() -> None:
    form = {
        "connector": "c",
        "where": '{"a": 1}',
        "offsets": '[{"partition": {"a": 1}, "offset": null}]',
        "file": "/backup",
        "from_elsewhere": "True",
        "source": "d",
        "to": "own",
        "topic": "",
    }
    assert request(verb="reset", **form) == OffsetsRequest(Verb.RESET, "c", where={"a": 1})
    listed = request(verb="alter", **{**form, "where": ""})
    assert listed == OffsetsRequest(Verb.ALTER, "c", wanted=(Wanted({"a": 1}, None),))
    with pytest.raises(ConfigurationError, match="a filter is for one offset"):
        request(verb="alter", **form)
    each = request(verb="alter", **{**form, "offsets": '{"offset": {"n": 1}}'})
    assert each == OffsetsRequest(Verb.ALTER, "c", where={"a": 1}, wanted=(Wanted(None, {"n": 1}),), each=True)
    assert request(verb="restore", **form) == OffsetsRequest(Verb.RESTORE, "c", file="/backup", from_elsewhere=True)
    assert request(verb="copy", **form) == OffsetsRequest(Verb.COPY, "c", source="d", file="/backup")
    assert request(verb="copy", **{**form, "file": ""}) == OffsetsRequest(Verb.COPY, "c", source="d")
    assert request(verb="migrate", **form) == OffsetsRequest(Verb.MIGRATE, "c", own_topic="g-c-offsets")
    assert request(verb="migrate", **{**form, "to": "global"}) == OffsetsRequest(Verb.MIGRATE, "c", own_topic="")


@pytest.mark.parametrize("offsets", ["", "{", "[1]", '{"offset": 1}'])
def test_offsets_that_are_none_are_refused_with_their_form(offsets: str) -> None:
    with pytest.raises(ConfigurationError, match="offsets"):
        request(verb="alter", connector="c", offsets=offsets)


def test_an_approver_sees_every_step_and_every_offset() -> None:
    shown = approvable(PLAN.to_dict())
    assert "Reset the source offsets of c in Kafka Connect group g?" in shown.question
    body = approval_body(shown, "cleaning")
    assert PLAN.hash in body
    assert "1. stop the connector" in body
    assert [line for line in PLAN.lines()[-40:] if f"- `{line.strip()}`" not in body.splitlines()] == []
    assert body.count('["c",') == 40
    assert "These are all its lines." in body


def test_another_plan_than_the_approved_one_is_not_applied() -> None:
    approval = {"plan_hash": PLAN.hash}
    require_approved(approval, PLAN.hash)
    another = replace(PLAN, writes=WRITES[1:])
    operator = ConnectOffsetsOperator(task_id="change", plan=another.to_dict(), approval=approval)
    with pytest.raises(AirflowFailException, match="not the approved one"):
        operator.execute({})
