from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.topics.config_topic import TaskCountRecord
from airflow_eos_provider.demo.connectors import Fencing
from airflow_eos_provider.demo.oracle import Comparison
from airflow_eos_provider.demo.report import DemoReport, Screen
from airflow_eos_provider.demo.upgrade import Upgrade
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.terminal import DataConsole

TASK_TIMEOUT_MS, FENCING_TIMEOUT_MS = 60_000, 90_000


def described(
    number: int, epoch: int, producer_id: int = 7, timeout_ms: int = TASK_TIMEOUT_MS
) -> TransactionDescription:
    return TransactionDescription(
        f"g-mirror-{number}", TransactionState.COMPLETE_COMMIT, producer_id, epoch, timeout_ms, None, ()
    )


def round_of(after: dict[int, TransactionDescription | None] | None = None, later_record: int = 40) -> Fencing:
    """A round that took the ids 0 to 2 from epoch 2 to 3; then new tasks began as 0 and 1, and wrote.

    :param after: other ids than those, by number; None for one that is gone.
    """
    real = {0: described(0, 9), 1: described(1, 9), 2: described(2, 3, timeout_ms=FENCING_TIMEOUT_MS)}
    return Fencing.between(
        {f"g-mirror-{n}": described(n, 2) for n in range(3)},
        {f"g-mirror-{n}": one for n, one in {**real, **(after or {})}.items() if one},
        TaskCountRecord(count=3, offset=20),
        TaskCountRecord(count=2, offset=later_record),
    )


def comparison(topic: str) -> Comparison:
    return Comparison(
        topic=topic,
        records=1003,
        expected=1000,
        missing=0,
        duplicates=0,
        duplicates_before_enabled=3,
        unexpected=0,
        records_since=400,
    )


def roll(source: str, target: str) -> dict[str, Any]:
    workers = [
        {"worker": f"h:{port}", "seconds": 12.0, "task_downtime_seconds": 6.0, "mode": target} for port in (1, 2)
    ]
    return {"from": source, "to": target, "workers": workers, "finished_at_ms": 5}


def held() -> DemoReport:
    days = [f"2013-01-0{day}T05:00:00Z/2013-01-0{day + 1}T05:00:00Z" for day in (1, 2, 3)]
    return DemoReport(
        upgrade=Upgrade("run", [roll("disabled", "preparing"), roll("preparing", "enabled")], ["one", "two"]),
        source=comparison("flights"),
        mirror=comparison("src.flights"),
        fencing=round_of(),
        killed={"worker": "h:1", "tasks_running_again_seconds": 14.2},
        load={"lasted": True, "lines": 1000},
        intervals=[{"interval": day, "records": 842, "complete": True, "tries": 2, "seconds": 1} for day in days],
        interval_topic=comparison("flights.daily"),
        killed_in_intervals=[{"what": "server", "pid": 1}],
        timings=[("first", 1.5), ("second", 2.0)],
    )


def upgraded(rolls: list[dict[str, Any]], approvals: int = 2) -> Upgrade:
    return Upgrade("run", rolls, ["approve"] * approvals)


def change(**changes: Any) -> Callable[[DemoReport], DemoReport]:
    return lambda report: replace(report, **changes)


def test_a_demo_in_which_everything_held_is_ok() -> None:
    assert held().ok


BOTH = [roll("disabled", "preparing"), roll("preparing", "enabled")]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (
            change(source=replace(comparison("flights"), duplicates_before_enabled=0)),
            "flights: a kill before the upgrade left duplicates",
        ),
        (change(upgrade=upgraded(BOTH[1:])), "every worker was rolled to preparing"),
        (change(upgrade=upgraded(BOTH, approvals=1)), "both plans were approved in Airflow"),
        (change(killed={}), "all tasks ran again after a worker was killed"),
        (change(fencing=None), "the reconfigured mirror was fenced"),
        (change(fencing=round_of(later_record=20)), "the reconfigured mirror was fenced"),
        (change(load={"lasted": False}), "the load lasted until then"),
        (change(source=replace(comparison("flights"), missing=1)), "flights: no records missing"),
        (change(source=replace(comparison("flights"), unexpected=1)), "flights: no records missing"),
        (change(source=replace(comparison("flights"), duplicates=1)), "flights: no duplicates since enabled"),
        (change(source=replace(comparison("flights"), records_since=0)), "flights: no duplicates since enabled"),
        (change(mirror=replace(comparison("src.flights"), missing=1)), "src.flights: no records missing"),
        (change(mirror=replace(comparison("src.flights"), duplicates=1)), "src.flights: no duplicates since enabled"),
        (change(intervals=held().intervals[1:]), "every interval is complete"),
        (change(interval_topic=replace(comparison("flights.daily"), missing=1)), "flights.daily: no records missing"),
        (change(interval_topic=replace(comparison("flights.daily"), duplicates=1)), "flights.daily: no duplicates"),
        (change(killed_in_intervals=[]), "Spark was killed while it wrote"),
    ],
)
def test_each_broken_promise_alone_makes_the_demo_fail_and_is_named(
    broken: Callable[[DemoReport], DemoReport], promise: str
) -> None:
    report = broken(held())
    assert not report.ok
    assert [name for name, it_held in report.checks.items() if not it_held] == [promise]


def test_a_demo_that_failed_on_the_way_shows_what_it_has_found_and_what_it_has_not() -> None:
    report = replace(held(), intervals=[], interval_topic=None, failure="The backfill was refused.")
    assert not report.ok
    assert report.to_dict()["failure"] == "The backfill was refused."
    output = io.StringIO()
    report.show(DataConsole(file=output, width=80))
    for expected in ("every worker was rolled to enabled", "1,003", "NO"):
        assert expected in output.getvalue()


def test_without_the_enabled_moment_copies_prove_nothing() -> None:
    report = replace(held(), upgrade=upgraded([roll("disabled", "preparing")]))
    assert report.checks["flights: no records missing"] is True
    assert report.checks["flights: no duplicates since enabled"] is False
    assert report.checks["every worker was rolled to enabled"] is False


def test_a_roll_that_left_out_a_worker_is_no_roll() -> None:
    report = held()
    report.upgrade.rolls[1]["workers"].pop()
    assert not report.checks["every worker was rolled to enabled"]


@pytest.mark.parametrize(
    ("number", "after"),
    [
        pytest.param(0, described(0, 2), id="an id in use did not go on"),
        pytest.param(2, described(2, 2), id="the retired id did not go on"),
        pytest.param(2, None, id="the retired id is gone"),
        pytest.param(2, described(2, 9), id="the retired id went on by transactions of a task that lives on"),
    ],
)
def test_what_only_looks_like_a_fencing_round_is_none(number: int, after: TransactionDescription | None) -> None:
    assert round_of().is_real
    assert not round_of({number: after}).is_real


def test_a_new_producer_id_counts_as_a_later_epoch() -> None:
    assert round_of({0: described(0, 0, producer_id=8)}).is_real


def test_an_empty_report_can_be_written_and_shown(tmp_path: Path) -> None:
    report = DemoReport(failure="broke off at once")
    report.write(tmp_path / "report.json")
    report.show(DataConsole(file=io.StringIO()))
    assert json.loads((tmp_path / "report.json").read_text())["ok"] is False


def test_the_tables_show_epochs_and_duplicates_within_80_columns() -> None:
    output = io.StringIO()
    held().show(DataConsole(file=output, width=80))
    shown = output.getvalue()
    for expected in ("g-mirror-2", "1,003", "src.flights", "duplicates since enabled", "the load lasted until then"):
        assert expected in shown
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_pipe_gets_a_line_for_each_stage_and_result_within_its_width() -> None:
    output = io.StringIO()
    with Screen(DataConsole(file=output, width=80)) as screen:
        screen.stage("Start the cluster")
        screen.say("[red]http://127.0.0.1:1 is a worker " + "and so on " * 12)
        screen.stage("Stop it")
    lines = output.getvalue().splitlines()
    assert lines[0].rstrip() == "   0 s  Start the cluster"
    assert lines[1].startswith("        [red]http://127.0.0.1:1 is a worker")
    assert lines[-1].rstrip() == "   0 s  Stop it"
    assert max(map(len, lines)) <= 80


def test_a_terminal_shows_the_running_stage() -> None:
    output = io.StringIO()
    with Screen(DataConsole(file=output, force_terminal=True, width=100)) as screen:
        screen.stage("Start the cluster")
    assert output.getvalue().count("Start the cluster") > 1
