"""What a plan says about the connectors: outside its hash, bounded, kept with it, and shown as data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.preflight.findings import ConnectorFinding, Severity
from airflow_eos_provider.preflight.report import Report
from airflow_eos_provider.rollout.plan.plan import SHOWN_FINDINGS, ConnectorNotes, Plan
from airflow_eos_provider.rollout.plan.preflight import stops_no_task
from airflow_eos_provider.rollout.plan.summary import summary
from tests.unit.rollout.conftest import Cluster


def finding(name: str, kind: str = "producer", severity: Severity = Severity.BLOCKS) -> ConnectorFinding:
    return ConnectorFinding(name, Verdict.FAIL, f"{name} has acks=1", "all", "take it out", kind, severity=severity)


def report(*findings: ConnectorFinding, running: frozenset[str] = frozenset({"a"})) -> Report:
    return Report("g", Mode.ENABLED, ("a", "b"), (), findings, running)


def test_the_notes_are_kept_with_the_plan_and_no_part_of_its_hash() -> None:
    plan = Cluster(Mode.PREPARING).plan(Mode.ENABLED)
    noted = replace(plan, connectors=ConnectorNotes.of(report(finding("a"))))
    assert noted.hash == plan.hash
    assert Plan.from_dict(noted.to_dict()) == noted


def test_the_notes_are_bounded_and_shown_as_data() -> None:
    many = [finding(f"c{number} | **bold** \x1b[31m") for number in range(100)]
    notes = ConnectorNotes.of(report(*many))
    assert len(notes.lines) == SHOWN_FINDINGS + 1
    assert notes.lines[-1] == "90 findings more"
    plan = replace(Cluster(Mode.PREPARING).plan(Mode.ENABLED), connectors=notes)
    assert "\x1b" not in plan.markdown()
    assert "- `c0 \\x7c **bold** \\x1b[31m: blocks: producer: " in plan.markdown()
    assert "2 source connectors in the mode enabled: 100 blocks." in "\n".join(summary(plan))


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (finding("a"), Verdict.FAIL),
        (finding("b"), Verdict.PASS),  # no task of it runs
        (finding("a", "support"), Verdict.PASS),  # its tasks go on
        (finding("a", "interval", Severity.WARNS), Verdict.PASS),
    ],
)
def test_only_what_stops_running_tasks_refuses_a_roll(one: ConnectorFinding, verdict: Verdict) -> None:
    check = stops_no_task(report(one))
    assert check.verdict is verdict
    assert ("take it out" in check.remedy) is (verdict is Verdict.FAIL)
