"""Tables that hold in a terminal of 80 columns, and in a pipe: an id is never broken, and nothing is cut."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from airflow_eos_provider.cli.app import app
from airflow_eos_provider.cli.exactly_once import intervals
from airflow_eos_provider.cli.rollout import changes, plan_apply
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.verify import RunStatus
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import (
    ChangeRecord,
    RolloutState,
)
from airflow_eos_provider.terminal import PIPE_WIDTH, DataConsole
from tests.unit.rollout.conftest import Cluster

Capture = pytest.CaptureFixture[str]

CONNECTOR = "orders-production-mirror-source"


@pytest.fixture(params=[80, PIPE_WIDTH], autouse=True)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (changes, intervals, plan_apply):
        monkeypatch.setattr(module, "console", DataConsole(width=request.param))
    return int(request.param)


def rows_of(printed: str, width: int, *ids: str) -> list[str]:
    """The first line of each id's row. Lines of a table fit; whatever else is printed is not wrapped."""
    assert "…" not in printed, printed
    lines = printed.splitlines()
    rows = [next((line for line in lines if line.strip().startswith(one)), "") for one in ids]
    assert all(rows), printed
    assert all(len(row) <= width for row in rows), printed
    return rows


def test_a_plan(width: int, capsys: Capture) -> None:
    made = Cluster(Mode.DISABLED).plan(Mode.PREPARING)
    hosts = {w.worker_id: f"connect-{w.worker_id.replace(':', '.production.internal:')}" for w in made.workers}
    workers = tuple(replace(w, worker_id=hosts[w.worker_id]) for w in made.workers)
    downtime = tuple(replace(each, worker_id=hosts[each.worker_id]) for each in made.task_downtime)
    made = replace(made, group_id=f"group-of-{CONNECTOR}", workers=workers, task_downtime=downtime)

    note = "a note that is longer than a line of the terminal and so must not be folded or cut"
    plan_apply.show(made, plan_apply.console, [note])

    printed = capsys.readouterr().out
    rows_of(printed, width, *hosts.values())
    assert f"{note}\nPlan {made.short_hash}\n" in printed
    assert f"group-of-{CONNECTOR}: disabled -> preparing" in printed


def test_interval_runs(width: int, capsys: Capture) -> None:
    name = f"pipeline-of-{CONNECTOR}"
    day = "2026-01-01T05:00:00Z/2026-01-02T05:00:00Z"
    complete = RunStatus(Run.parse(f"{name}@{day}"), True, 10_000, records=1_234_567_890, digest="d" * 64)
    running = RunStatus(Run.parse(f"{name}@{day}#12"), False, 10_000, done=tuple(range(1_000)), records=987_654_321)

    intervals._show_runs(name, [complete, running])

    printed = capsys.readouterr().out
    rows_of(printed, width, day)
    first, second = (line.split() for line in printed.splitlines() if line.startswith(day))
    assert first == [day, "1", "complete", "10000", "1,234,567,890"]
    assert second[:5] == [day, "12", "running", "1000", "of"]  # 10000 may be below
    assert second[-1] == "987,654,321"
    assert f"Pipeline {name}" in printed


@pytest.mark.parametrize("found", [0, 1])
def test_an_interval_run(found: int, capsys: Capture) -> None:
    run = Run.parse(f"pipeline-of-{CONNECTOR}@2026-01-01T05:00:00Z/2026-01-02T05:00:00Z#2")
    shown = (
        RunStatus(run, True, 10_000, records=1_234_567_890, digest="d" * 64),
        RunStatus(run, False, 10_000, plan_hash="e" * 64, generation=7, tasks=12, source={"files": "/data/in " * 30}),
    )[found]

    intervals._show_run(shown)

    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first == f"{run.name}: {'running' if found else 'complete'}"
    assert second.endswith(("task count record 12", "digest " + "d" * 64))
    assert len(rest) == (3 if found else 0)


def test_changes(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"20261123T0415{n}-offsets-migrate-abc123" for n in (10, 20)]
    reason = "the topic of its own is deleted at the end of the quarter, see CHG-4711"
    done = ("stop", "fence", "write", "read back", "configure")
    found = [
        ChangeRecord(ids[0], "offsets migrate", CONNECTOR, {}, RolloutState.RUNNING, 1.0, "read back", done[:3]),
        ChangeRecord(ids[1], "offsets migrate", "c", {}, RolloutState.DONE, 2.0, "", done, reason=reason),
    ]
    content = JournalContent(changes={one.change_id: one for one in found})
    monkeypatch.setattr(
        changes, "load_cluster", lambda _: SimpleNamespace(kafka=None, group_id=f"group-of-{CONNECTOR}")
    )
    monkeypatch.setattr(changes, "read_journal", lambda *_: content)

    printed = CliRunner().invoke(app, ["changes", "list"]).output

    rows = rows_of(printed, width, *ids)
    assert all(len(line) <= width for line in printed.splitlines())
    assert ("running" in rows[0], "done" in rows[1]) == (True, True)
    assert f"group-of-{CONNECTOR}" in printed
