"""Every table and every line of the command line shows what it was given, and obeys none of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from airflow_eos_provider.cli.cluster import status
from airflow_eos_provider.cli.common import print_lines
from airflow_eos_provider.cli.exactly_once import intervals
from airflow_eos_provider.cli.rollout import plan_apply, rollouts
from airflow_eos_provider.cli.rollout.rollouts import rollouts_app
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.demo.report import Screen
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.verify import RunStatus, Verification
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import (
    Event,
    Lease,
    Owner,
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.lab import lab_command as lab_command
from airflow_eos_provider.lab.lab_status import LabStatus, ProcessStatus
from airflow_eos_provider.output import print_json
from airflow_eos_provider.rollout.drift.contradictions import findings
from airflow_eos_provider.rollout.drift.drift import Drift
from airflow_eos_provider.rollout.outcome import RolloutReport, WorkerOutcome
from airflow_eos_provider.rollout.roll_history import Rollout
from airflow_eos_provider.terminal import DataConsole

#: Markup that closes nothing, a style, an escape sequence, a line of its own, a right-to-left mark, an emoji's name.
HOSTILE = "a[/x][red]b\x1b[2J\x9b31m\nFORGED\u202ec:bomb:"
SHOWN = "a[/x][red]b\\x1b[2J\\x9b31m\\nFORGED\\u202ec:bomb:"


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (status, intervals, plan_apply, rollouts):
        monkeypatch.setattr(module, "console", DataConsole(width=2_000))


def require_data(text: str, times: int = 1) -> None:
    """Nothing that a terminal obeys is left, nothing begins a line of its own, and everything given is to be read."""
    assert all(line.isprintable() for line in text.split("\n")), repr(text)
    assert not any(line.strip().startswith("FORGED") for line in text.splitlines())
    assert text.count(SHOWN) >= times, repr(text)


def test_the_tables_of_status(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_connector(HOSTILE, on="w1:8083", kind=HOSTILE, state=HOSTILE)
    cluster.task("mirror", 0, worker_id=HOSTILE, state=HOSTILE)
    transaction = TransactionDescription(HOSTILE, TransactionState(HOSTILE), 1, 1, 60_000, None, ())
    seen = replace(cluster.see(transactions=(transaction,)).observe(), group_id=HOSTILE)
    hostile = replace(seen.workers[0], mode=replace(seen.workers[0].mode, reason=HOSTILE))
    tables: list[tuple[Callable[[], object], int]] = [
        (lambda: status._show_group(seen), 1),
        (lambda: status._show_connectors(seen), 4),
        (lambda: status._show_workers(replace(seen, workers=(hostile,))), 1),
        (lambda: status._show_transactions(seen), 2),
        (lambda: status._show_findings((Finding(HOSTILE, Verdict.FAIL, HOSTILE, HOSTILE, HOSTILE),)), 2),
        (lambda: status._show_findings(findings(seen)), 0),
    ]
    for show, times in tables:
        show()
        require_data(capsys.readouterr().out, times)


def test_a_plan_and_a_report(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan = cluster.plan(Mode.PREPARING)
    change = replace(plan.workers[0], config=HOSTILE, declared=HOSTILE, mode=HOSTILE)
    plan = replace(plan, group_id=HOSTILE, workers=(change, *plan.workers[1:]))
    plan_apply.show(plan, notes=[HOSTILE])
    require_data(capsys.readouterr().out, 4)
    assert all(line.isprintable() for line in plan.markdown().split("\n"))
    outcome = WorkerOutcome(HOSTILE, 1.0, 1.0, HOSTILE, led=False)
    plan_apply._show_report(RolloutReport("x", "h", HOSTILE, HOSTILE, (outcome,), 0))
    require_data(capsys.readouterr().out, 4)


def hostile_rollout(cluster: Any) -> Rollout:
    plan = cluster.plan(Mode.PREPARING)
    worker_id = plan.workers[0].worker_id
    record = RolloutRecord("20260101-x", plan.to_dict(), {}, RolloutState.RUNNING, 0.0, HOSTILE, HOSTILE)
    step = Step(
        worker_id=worker_id,
        status=StepStatus.PASSED,
        mode="preparing",
        at=0.0,
        evidence=(HOSTILE,),
    )
    return Rollout(
        record=record,
        plan=plan,
        steps={worker_id: step},
        events=(Event("20260101-x", 0.0, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        request=Request("20260101-x", RequestKind.PAUSE, 0.0, HOSTILE, HOSTILE),
        lease=Lease(Owner.this_process(), "20260101-x", HOSTILE, HOSTILE, 0.0),
    )


def test_a_rollout_and_the_list_of_rollouts(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reason with ``[/x]`` once ended ``eos rollout list`` for everybody: the journal keeps it."""
    found = hostile_rollout(cluster)
    rollouts._show(found)
    require_data(capsys.readouterr().out, 8)
    content = JournalContent(rollouts={found.rollout_id: found.record}, events={found.rollout_id: found.events})
    # The journal is a topic, which a unit test has none of; what is printed is what counts here.
    monkeypatch.setattr(rollouts, "load_cluster", lambda _path: type("C", (), {"kafka": None, "group_id": HOSTILE}))
    monkeypatch.setattr(rollouts, "read_journal", lambda _kafka, _group: content)
    for arguments in (["list"], ["show"]):
        result = CliRunner().invoke(rollouts_app, arguments)
        assert result.exception is None, arguments
    rollouts.list_(None).show(True)
    require_data(capsys.readouterr().out, 2)


def test_interval_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run("p", Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"))
    intervals._show_runs(HOSTILE, [RunStatus(run, True, 1, digest=HOSTILE)], wide=True)
    require_data(capsys.readouterr().out, 2)
    intervals._show_run(RunStatus(run, False, 2, plan_hash=HOSTILE, source={HOSTILE: HOSTILE}))
    require_data(capsys.readouterr().out, 3)
    intervals._show_verification(Verification(HOSTILE, (HOSTILE,), 1, HOSTILE, 1, HOSTILE))
    require_data(capsys.readouterr().out, 4)


def test_an_error_keeps_its_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(f"error: first\x1b[2J\n[/x]second {HOSTILE.replace(chr(10), ' ')}", on=DataConsole(width=500))
    out = capsys.readouterr().out
    assert out.startswith("error: first\\x1b[2J\n[/x]second ")
    assert all(line.isprintable() for line in out.splitlines())


def test_json_is_the_same_document_without_a_character_that_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({HOSTILE: [HOSTILE, "Grüße"]})
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    assert "Grüße" in out
    assert json.loads(out) == {HOSTILE: [HOSTILE, "Grüße"]}


def test_the_message_of_a_drift() -> None:
    finding = Finding(HOSTILE, Verdict.FAIL, HOSTILE, HOSTILE, HOSTILE)
    found = Drift(0.0, "g", (finding,), (HOSTILE,))
    assert found.verdict is Verdict.FAIL
    require_data(found.describe(), 3)


def test_the_lab_and_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    process = ProcessStatus(HOSTILE, 1, True, HOSTILE, HOSTILE, Path("log"))
    console: Any = DataConsole(width=2_000)
    console.print(lab_command._table(LabStatus(HOSTILE, Path("x"), "b", HOSTILE, (process,), ())))
    require_data(capsys.readouterr().out, 3)
    screen = Screen(console)
    screen.say(HOSTILE.replace("\n", " "))
    screen.stage(HOSTILE)
    assert "\x1b" not in (out := capsys.readouterr().out)
    assert "\u202e" not in out


def test_a_text_that_is_built_elsewhere_cannot_command_the_terminal_either(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE))
    DataConsole(width=2_000).print(table, Text(HOSTILE))
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def test_styles_still_come_through() -> None:
    console = DataConsole(width=80, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print("done", style="green")
    assert "\x1b[32mdone\x1b[0m" in capture.get()
