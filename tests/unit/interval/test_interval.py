from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval import interval as interval_module
from airflow_eos_provider.interval.interval import Interval, Run

NEW_YORK = ZoneInfo("America/New_York")
DAY = Interval(datetime(2013, 1, 1, tzinfo=NEW_YORK), datetime(2013, 1, 2, tzinfo=NEW_YORK))


def test_an_interval_has_one_name_in_every_time_zone() -> None:
    same = Interval(datetime(2013, 1, 1, 5, tzinfo=UTC), datetime(2013, 1, 2, 6, tzinfo=timezone(timedelta(hours=1))))

    assert same == DAY
    assert DAY.name == same.name == "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
    assert Interval.parse(DAY.name) == DAY


def test_a_name_pads_early_years_so_that_text_order_is_time_order() -> None:
    assert Interval(datetime(999, 1, 1, tzinfo=UTC), datetime(1000, 1, 1, tzinfo=UTC)).name.startswith("0999-01-01T")


def test_a_day_of_23_hours_is_named_by_its_true_ends() -> None:
    spring = Interval(datetime(2013, 3, 10, tzinfo=NEW_YORK), datetime(2013, 3, 11, tzinfo=NEW_YORK))

    assert spring.name == "2013-03-10T05:00:00Z/2013-03-11T04:00:00Z"


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        pytest.param(None, None, "has no data interval", id="missing"),
        pytest.param(DAY.start, None, "has no data interval", id="half missing"),
        pytest.param(DAY.start, DAY.start, "CronDataIntervalTimetable", id="zero width"),
        pytest.param(DAY.end, DAY.start, "ends before it starts", id="reversed"),
        pytest.param(datetime(2013, 1, 1), DAY.end, "has no time zone", id="naive"),
        pytest.param(DAY.start.replace(microsecond=1), DAY.end, "parts of a second", id="sub-second"),
    ],
)
def test_what_is_no_interval_is_refused_with_the_remedy(
    start: datetime | None, end: datetime | None, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        Interval(start, end)  # type: ignore[arg-type]  # a scheduler may have left one out

    assert raised.value.remedy


@pytest.mark.parametrize("name", ["", "2013-01-01/2013-01-02", DAY.name.replace("Z", "+00:00"), f"{DAY.name}/", "a/b"])
def test_only_the_canonical_name_names_an_interval(name: str) -> None:
    with pytest.raises(ConfigurationError, match="does not name an interval"):
        Interval.parse(name)


def test_a_name_with_a_day_that_is_not_in_the_calendar_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no moment of the calendar"):
        Interval.parse("2013-02-30T00:00:00Z/2013-03-01T00:00:00Z")


@pytest.mark.parametrize(
    ("start", "end", "overlaps"),
    [(0, 24, True), (12, 36, True), (-12, 12, True), (6, 7, True), (-5, 30, True), (24, 48, False), (-24, 0, False)],
)
def test_intervals_overlap_if_a_moment_is_in_both(start: int, end: int, overlaps: bool) -> None:
    other = Interval(DAY.start + timedelta(hours=start), DAY.start + timedelta(hours=end))

    assert DAY.overlaps(other) is overlaps
    assert other.overlaps(DAY) is overlaps


def test_a_run_is_named_by_pipeline_and_interval() -> None:
    run = Run("flights.daily", DAY)

    assert run.name == "flights.daily@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
    assert run.key == {"interval": "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"}
    assert Run.parse(run.name) == run == pickle.loads(pickle.dumps(run))


def test_a_later_revision_is_part_of_name_and_key() -> None:
    run = Run("flights.daily", DAY, revision=2)

    assert run.name.endswith("Z#2")
    assert run.key["interval"].endswith("Z#2")
    assert Run.parse(run.name) == run


@pytest.mark.parametrize("name", ["p", "p@x", f"@{DAY.name}", f"p@{DAY.name}#0", f"p@{DAY.name}#"])
def test_what_is_no_run_is_not_taken_for_one(name: str) -> None:
    with pytest.raises(ConfigurationError, match="does not name a run"):
        Run.parse(name)


def test_a_revision_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="revision is 0"):
        Run("p", DAY, revision=0)


@pytest.mark.parametrize(
    ("seconds_left", "allowed", "waited"),
    [(0, False, []), (-5, False, []), (2.5, False, [2.5]), (60, False, [60]), (61, False, None), (61, True, [])],
)
def test_an_interval_that_has_not_ended_is_waited_for_by_the_difference_of_two_clocks_and_otherwise_refused(
    monkeypatch: pytest.MonkeyPatch, seconds_left: float, allowed: bool, waited: list[float] | None
) -> None:
    """The scheduler's clock may be ahead of this machine's, so a run may begin a moment before its interval's end."""
    clock, slept = SimpleNamespace(now=DAY.end.timestamp() - seconds_left), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(interval_module, "time", SimpleNamespace(time=lambda: clock.now, sleep=sleep))
    if waited is None:
        with pytest.raises(ConfigurationError, match=r"had not ended at 2013-01-02T04:58:59Z(.|\n)*allow_before_end"):
            DAY.require_ended(allowed)
    else:
        assert DAY.require_ended(allowed).timestamp() == clock.now
        assert (slept, clock.now >= DAY.end.timestamp()) == (waited, not allowed)
