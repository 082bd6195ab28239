"""The preflight of connectors as a task: when it fails, what its error and its XCom hold."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.dag_factories import upgrade_dag
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.operators.connect_preflight import FINDINGS_IN_XCOM, ConnectorFindingsOperator
from airflow_eos_provider.preflight.findings import ConnectorFinding, Severity
from airflow_eos_provider.preflight.preflight_report import Report

CONTEXT: Any = SimpleNamespace()


def finding(number: int, severity: Severity = Severity.BLOCKS, verdict: Verdict = Verdict.FAIL) -> ConnectorFinding:
    return ConnectorFinding(
        f"c{number}", verdict, f"found {number}", "all", "take it out", "producer", severity=severity
    )


def task(monkeypatch: pytest.MonkeyPatch, *findings: ConnectorFinding, begun: bool = False, **arguments: Any) -> Any:
    """The operator with a look of its own: a real one needs workers, see the integration test."""
    operator = ConnectorFindingsOperator(task_id="look", conn_id="c", **arguments)
    report = Report("g", Mode.ENABLED, ("c1",), (), findings, accepted=tuple(operator.accept))
    monkeypatch.setattr(operator, "_look", lambda: (report, begun))
    return operator


def test_what_blocks_fails_the_task_with_reason_and_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = task(monkeypatch, finding(1), finding(2, Severity.WARNS))
    with pytest.raises(AirflowFailException) as raised:
        operator.execute(CONTEXT)
    assert str(raised.value) == (
        "The mode enabled may not be switched on:\n  - c1: producer: found 1. Expected: all. What to do: take it out."
    )


def test_many_reasons_are_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match="and 5 more, see the log"):
        task(monkeypatch, *map(finding, range(25))).execute(CONTEXT)


@pytest.mark.parametrize(
    ("severity", "verdict"),
    [(Severity.WARNS, Verdict.FAIL), (Severity.BLOCKS, Verdict.INCONCLUSIVE), (Severity.INFORMS, Verdict.FAIL)],
)
def test_what_does_not_block_for_certain_is_returned(
    monkeypatch: pytest.MonkeyPatch, severity: Severity, verdict: Verdict
) -> None:
    document = task(monkeypatch, finding(1, severity, verdict)).execute(CONTEXT)
    assert [one["subject"] for one in document["findings"]] == ["c1"]


def test_what_is_accepted_does_not_fail_it(monkeypatch: pytest.MonkeyPatch) -> None:
    document = task(monkeypatch, finding(1), accept=["c1/producer"]).execute(CONTEXT)
    assert document["verdict"] == "pass"


def test_where_exactly_once_has_begun_only_a_task_that_says_so_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    task(monkeypatch, finding(1), begun=True, fails_when_begun=False).execute(CONTEXT)
    with pytest.raises(AirflowFailException):
        task(monkeypatch, finding(1), begun=True).execute(CONTEXT)
    with pytest.raises(AirflowFailException):
        task(monkeypatch, finding(1), fails_when_begun=False).execute(CONTEXT)


def test_the_xcom_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [
        ConnectorFinding(f"c{number}", Verdict.FAIL, "x" * 5_000, "", "y" * 5_000, "readers", severity=Severity.WARNS)
        for number in range(1_000)
    ]
    document = task(monkeypatch, *many).execute(CONTEXT)
    assert (len(document["findings"]), document["left_out"]) == (FINDINGS_IN_XCOM, 1_000 - FINDINGS_IN_XCOM)
    assert len(json.dumps(document)) < 200_000


def test_the_upgrade_looks_at_the_connectors_before_it_plans_and_accepts_what_its_author_says() -> None:
    dag = upgrade_dag(conn_id="c", dag_id="d", accept=["c1/support"])
    look = dag.get_task("preflight_connectors")
    assert (look.mode, look.accept, look.fails_when_begun) == ("enabled", ("c1/support",), False)
    assert look.upstream_task_ids == {"preflight"}
    assert look.downstream_task_ids == {"plan_preparing"}
