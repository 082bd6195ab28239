"""A calendar of intervals: what each cell is, what gaps are, and that ten thousand cost no more than ten thousand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.verify import RunStatus
from airflow_eos_provider.ui.calendar import Calendar, DagRunSeen, Schedule, durations, usual_step

FIRST = datetime(2013, 1, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)


def day(number: int) -> Interval:
    return Interval(FIRST + number * DAY, FIRST + (number + 1) * DAY)


def complete(number: int, revision: int = 1) -> RunStatus:
    return RunStatus(Run("flights", day(number), revision), True, 4, records=800 + number)


def running(number: int) -> RunStatus:
    return RunStatus(Run("flights", day(number)), False, 4, done=(0, 2), records=100)


def dag_run(state: str) -> DagRunSeen:
    return DagRunSeen("flights", "r", state, "dags/flights/runs/r")


def calendar(
    statuses: Iterable[RunStatus],
    dag_runs: dict[int, str] | None = None,
    *,
    due: int | None = None,
    schedule: Schedule | None = None,
) -> Calendar:
    runs = {day(number): dag_run(state) for number, state in (dag_runs or {}).items()}
    return Calendar(list(statuses), {}, runs, None if due is None else day(due).start, schedule)


def daily(start: datetime, end: datetime) -> Iterator[Interval]:
    at = FIRST + DAY * -(-(start - FIRST) // DAY)
    while at + DAY <= end:
        yield Interval(at, at + DAY)
        at += DAY


def states(found: Calendar, **limits: Any) -> list[str]:
    return [cell["state"] for cell in found.document(**limits)["cells"]]


def test_what_the_ledger_has_is_complete_revised_or_running() -> None:
    cells = calendar([complete(0), complete(1), complete(1, 2), running(2)]).document()["cells"]
    assert [(cell["state"], cell["done"], cell["slices"], cell["revisions"]) for cell in cells] == [
        ("complete", 4, 4, 1),
        ("revised", 4, 4, 2),
        ("running", 2, 4, 1),
    ]
    assert cells[0]["start"] == "2013-01-01T05:00:00Z"
    assert cells[0]["records"] == 800


def test_the_ledger_is_believed_before_airflow_is() -> None:
    runs = {0: "failed", 1: "failed", 2: "running", 3: "queued", 4: "success"}
    found = calendar([complete(0), running(1)], runs)
    assert states(found) == ["complete", "failed", "running", "running", "missing"]


def test_a_gap_has_cells_of_the_usual_width() -> None:
    found = calendar([complete(0), complete(1), complete(4)])
    assert [(cell["state"], cell["interval"]) for cell in found.document()["cells"][2:4]] == [
        ("missing", day(2).name),
        ("missing", day(3).name),
    ]


def test_what_is_due_and_not_there_is_missing_and_what_comes_later_was_never_due() -> None:
    found = calendar([complete(0)], due=3, schedule=daily)
    assert states(found) == ["complete", "missing", "missing"]
    assert states(found, end=day(4).end) == ["complete", "missing", "missing", "never_due", "never_due"]


def test_an_outage_that_later_intervals_follow_was_due() -> None:
    """Whatever the scheduler calls next: that of a DAG that is paused, or was put back, lies before it."""
    found = calendar([complete(0), complete(4)], due=1, schedule=daily)
    assert states(found, end=day(5).end) == ["complete", "missing", "missing", "missing", "complete", "never_due"]


def test_a_run_that_airflow_has_ended_does_not_go_on() -> None:
    """As after *mark success*. A revision is running all the same: it may be written outside Airflow."""
    begun = replace(running(1), run=Run("flights", day(1), 2))
    assert states(calendar([running(0), complete(1), begun], {0: "success", 1: "success"})) == ["missing", "running"]


@pytest.mark.parametrize(("ended_at", "state"), [(150.0, "running"), (95.0, "running"), (50.0, "missing")])
def test_what_has_ended_since_the_look_is_not_missing_yet(ended_at: float, state: str) -> None:
    """The look at the ledger is kept for a while, and Airflow is asked anew each time."""
    runs = {day(1): replace(dag_run("success"), ended_at=ended_at)}
    assert states(Calendar([complete(0)], {}, runs, looked_at=100.0)) == ["complete", state]


def test_a_part_of_it_can_be_asked_for() -> None:
    found = calendar([complete(number) for number in range(10)])
    assert [cell["interval"] for cell in found.document(day(3).start, day(4).end)["cells"]] == [
        day(3).name,
        day(4).name,
    ]


def test_the_clock_changes_and_days_stay_days() -> None:
    spring = Interval(FIRST + DAY, FIRST + 2 * DAY - timedelta(hours=1))
    after = Interval(spring.end, spring.end + DAY)
    statuses = [complete(0), *(RunStatus(Run("flights", each), True, 1) for each in (spring, after))]
    document = calendar(statuses).document()
    assert document["counts"]["complete"] == len(document["cells"]) == 3
    assert (document["step_seconds"], document["unit"]) == (86_400, "day")


@pytest.mark.parametrize("schedule", [None, daily])
def test_each_interval_is_there_once_among_ten_thousand(schedule: Schedule | None) -> None:
    """With a gap at every other day; a calendar that looks at all of them for each takes minutes."""
    number = 10_000
    found = calendar(map(complete, range(0, number, 2)), due=number, schedule=schedule)
    document = found.document()
    names = [cell["interval"] for cell in document["cells"]]
    assert names == sorted(set(names))
    assert document["counts"]["complete"] == number // 2
    assert document["counts"]["missing"] >= number // 2 - 1


def test_gaps_of_a_calendar_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_eos_provider.ui.calendar.MOST_MISSING", 5)
    assert len(calendar([complete(0), complete(1_000)], schedule=daily).document()["cells"]) == 7


def test_durations_and_widths() -> None:
    assert durations([]) is None
    assert durations([3.0]) == {"median": 3.0, "p95": 3.0, "longest": 3.0}
    assert durations([1.0, 2.0, 30.0]) == {"median": 2.0, "p95": 30.0, "longest": 30.0}
    assert usual_step([]) is None


def together(first: int, last: int, *, done: bool = True) -> RunStatus:
    """Some days that are written as one run."""
    interval = Interval(day(first).start, day(last).end)
    return RunStatus(Run("flights", interval), done, 4, records=9 if done else None, ended=done)


def seen(found: Calendar, **limits: Any) -> list[tuple[str, str, str | None]]:
    return [(cell["interval"], cell["state"], cell["part_of"]) for cell in found.document(**limits)["cells"]]


@pytest.mark.parametrize("schedule", [daily, None])
def test_intervals_within_a_complete_one_are_complete_and_lead_to_it(schedule: Schedule | None) -> None:
    whole = together(0, 2)
    found = calendar([whole, complete(3)], {0: "success", 1: "success", 4: "success"}, schedule=schedule)
    name = whole.run.name
    parts = [(day(number).name, "complete", name) for number in (0, 1, 2)]
    assert seen(found) == [*parts, (day(3).name, "complete", None), (day(4).name, "missing", None)]
    assert {(cell["run"], cell["records"]) for cell in found.document()["cells"][:3]} == {(name, None)}
    (wider,) = found.document()["wider"]
    assert (wider["interval"], wider["state"], wider["records"]) == (whole.run.interval.name, "complete", 9)


def test_a_wide_interval_within_which_nothing_is_known_has_a_cell_of_its_own() -> None:
    whole = together(0, 2)
    found = calendar([whole, complete(3)])
    assert seen(found) == [(whole.run.interval.name, "complete", None), (day(3).name, "complete", None)]
    assert found.document()["wider"] == []


@pytest.mark.parametrize("schedule", [daily, None])
def test_a_part_of_a_day_does_not_take_the_days_place(schedule: Schedule | None) -> None:
    half = Interval(day(1).start, day(1).start + DAY / 2)
    of_day = replace(complete(1), ended=True)
    found = Calendar([complete(0), of_day, complete(2)], {}, {half: dag_run("success")}, None, schedule)
    within = (half.name, "complete", of_day.run.name)
    days = [(day(number).name, "complete", None) for number in range(3)]
    assert seen(found) == [days[0], within, *days[1:]]
    assert found.document()["wider"] == []


def test_a_schedule_makes_cells_of_one_wide_interval_alone() -> None:
    found = calendar([together(0, 364)], schedule=daily)
    document = found.document()
    assert (document["unit"], document["counts"]["complete"], len(document["wider"])) == ("day", 365, 1)
    assert document["cells"][-1]["interval"] == day(364).name


def test_intervals_within_one_that_is_written_are_running_and_lead_to_it() -> None:
    whole = together(1, 2, done=False)
    found = calendar([complete(0), whole], {2: "failed"}, schedule=daily)
    assert seen(found)[1:] == [(day(number).name, "running", whole.run.name) for number in (1, 2)]
    assert [cell["state"] for cell in found.document()["wider"]] == ["running"]


def test_where_the_run_of_the_wider_one_has_failed_so_have_its_parts() -> None:
    whole = together(1, 2, done=False)
    runs = {whole.run.interval: dag_run("failed")}
    found = Calendar([complete(0), whole], {}, runs, None, daily)
    assert [state for _, state, _ in seen(found)] == ["complete", "failed", "failed"]


def test_the_limits_of_a_calendar_hold_for_what_was_written_together() -> None:
    found = calendar([together(0, 2), together(3, 5)], schedule=daily)
    assert [name for name, *_ in seen(found, start=day(2).start, end=day(2).end)] == [day(2).name]
    assert len(found.document(start=day(2).start, end=day(2).end)["wider"]) == 1
    assert len(found.document()["wider"]) == 2


def test_months_are_no_wider_for_being_longer() -> None:
    months = [
        Interval(datetime(2013, one, 1, tzinfo=UTC), datetime(2013, one + 1, 1, tzinfo=UTC)) for one in range(1, 12)
    ]
    asked = []

    def monthly(start: datetime, end: datetime) -> Iterable[Interval]:
        asked.append((start, end))
        return [each for each in months if start <= each.start and each.end <= end]

    found = Calendar([RunStatus(Run("flights", each), True, 4) for each in months], {}, {}, None, monthly)
    assert found.document()["wider"] == []
    assert len(asked) == 1
    assert len(found.document()["cells"]) == len(months)


def test_nothing_is_a_part_of_an_interval_that_had_not_ended() -> None:
    whole = Run("flights", Interval(day(0).start, day(2).end))
    cells = calendar([RunStatus(whole, True, 4)], {1: "success"}).document()["cells"]
    assert [cell["state"] for cell in cells if cell["interval"] == day(1).name] == ["missing"]
