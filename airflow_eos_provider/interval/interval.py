"""Intervals and runs, and their canonical names.

A name is stored in keys and transactional ids, so one interval must have one spelling: UTC, whole seconds. Otherwise
one interval would be two runs, and both would write it.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from airflow_eos_provider.errors import ConfigurationError

#: The group that pipelines belong to when none is named. It must never be the group of a Connect cluster.
DEFAULT_GROUP_ID = "eos-intervals"

#: What options say of it.
GROUP_HELP = "Group of the pipelines; never that of a Connect cluster."

#: The form of a point in time. Fixed in length and in UTC, so text order is time order. Stored: never change it.
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

_NAME = re.compile(r"(?P<start>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)/(?P<end>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")
_RUN = re.compile(rf"(?P<pipeline>[^@]+)@(?P<interval>{_NAME.pattern})(?:#(?P<revision>[1-9]\d*))?")

_ZERO_WIDTH_REMEDY = (
    "In Airflow 3, cron strings such as '@daily' make intervals without width: schedule the DAG by "
    'CronDataIntervalTimetable("0 0 * * *", timezone="UTC"). If it already has that timetable, this is a manual run at '
    "a change of the clocks: start it with the interval in its configuration."
)


#: Two machines' clocks may differ by this much, seconds. A scheduler starts a run at the interval's end by its own
#: clock; the driver then waits for the end by its clock instead of failing.
CLOCK_DIFFERENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """A half-open span of time, ``[start, end)``.

    :param start: its first moment, with a time zone; kept in UTC.
    :param end: the first moment after it, with a time zone; kept in UTC.
    :raises ConfigurationError: a moment is missing, has no time zone or parts of a second; the span is empty or
        reversed.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start is None or self.end is None:
            raise ConfigurationError(
                "The run has no data interval.",
                expected="a start and an end",
                remedy="A run that is started manually has none of its own: name one when you start it (start and end "
                "in its configuration), or use a backfill.",
            )
        object.__setattr__(self, "start", _canonical("start", self.start))
        object.__setattr__(self, "end", _canonical("end", self.end))
        if self.start == self.end:
            raise ConfigurationError(
                f"The interval {self.name} has no width, so nothing can be in it.", remedy=_ZERO_WIDTH_REMEDY
            )
        if self.start > self.end:
            raise ConfigurationError(
                f"The interval {self.name} ends before it starts.", expected="start before end", remedy="Swap the two."
            )

    @classmethod
    def parse(cls, name: str) -> Interval:
        """The interval of a canonical name.

        :raises ConfigurationError: the text is no such name.
        """
        match = _NAME.fullmatch(name.strip())
        if match is None:
            raise ConfigurationError(
                f"{name!r} does not name an interval.",
                expected="start/end in UTC by seconds, as in 2013-01-01T05:00:00Z/2013-01-02T05:00:00Z",
            )
        return cls(_parsed(match["start"]), _parsed(match["end"]))

    @property
    def name(self) -> str:
        """``2013-01-01T05:00:00Z/2013-01-02T05:00:00Z``."""
        return f"{_text(self.start)}/{_text(self.end)}"

    def require_ended(self, allow_before_end: bool = False) -> datetime:
        """Refuse an interval that has not ended by this machine's clock: rows that come later would never be written.

        If the end is at most :data:`CLOCK_DIFFERENCE_SECONDS` ahead, this waits for it.

        :param allow_before_end: accept it all the same.
        :returns: the current time. Rows and files that are looked up from now on are those of the whole interval,
            unless ``allow_before_end`` was needed.
        :raises ConfigurationError: it ends later.
        """
        while (left := self.end.timestamp() - (now := time.time())) > 0 and not allow_before_end:
            if left > CLOCK_DIFFERENCE_SECONDS:
                raise self.not_ended(datetime.fromtimestamp(now, UTC))
            time.sleep(left)
        return datetime.fromtimestamp(now, UTC)

    def not_ended(self, at: datetime) -> ConfigurationError:
        """The error for input that was looked up before the interval's end.

        :param at: when it was.
        """
        return ConfigurationError(
            f"The interval {self.name} had not ended at {at:%Y-%m-%dT%H:%M:%SZ}, when its input was listed.",
            expected="an interval that has ended: a complete interval is never written again, so rows that come "
            "later would be lost",
            remedy="Run it after its end. If all its rows are there already: allow_before_end=True.",
        )

    def overlaps(self, other: Interval) -> bool:
        """Whether some moment is in both; neighbours do not overlap."""
        return self.start < other.end and other.start < self.end

    def contains(self, other: Interval) -> bool:
        """Whether every moment of the other one is in this one."""
        return self.start <= other.start and other.end <= self.end

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Run:
    """One interval of one pipeline, to be written once.

    :param pipeline: the pipeline's name.
    :param interval: the interval to write.
    :param revision: 1, or higher for a deliberate rewrite, which is a run of its own with keys of its own.
    :raises ConfigurationError: the revision is below 1.
    """

    STORED_BY_NAME: ClassVar[bool] = True

    pipeline: str
    interval: Interval
    revision: int = 1

    def __post_init__(self) -> None:
        if self.revision < 1:
            raise ConfigurationError(f"The revision is {self.revision}.", expected="1 or more")

    @property
    def interval_name(self) -> str:
        """The interval's name, with ``#<revision>`` from the second revision on; a part of the run's keys."""
        return self.interval.name if self.revision == 1 else f"{self.interval.name}#{self.revision}"

    @property
    def name(self) -> str:
        """``<pipeline>@<interval>``: the name under which a Connect connector would appear."""
        return f"{self.pipeline}@{self.interval_name}"

    @property
    def key(self) -> dict[str, str]:
        """The part of a ledger key that names this run, as Connect's source partition."""
        return {"interval": self.interval_name}

    @classmethod
    def parse(cls, name: str) -> Run:
        """The run of this name.

        :raises ConfigurationError: the text is no run's name.
        """
        match = _RUN.fullmatch(name)
        if match is None:
            raise ConfigurationError(f"{name!r} does not name a run.", expected="<pipeline>@<start>/<end>")
        return cls(match["pipeline"], Interval.parse(match["interval"]), int(match["revision"] or 1))

    def __str__(self) -> str:
        return self.name


class Wholes:
    """Runs of one pipeline, to know within which one an interval lies. Of an interval's revisions the first counts."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = sorted((run for run in runs if run.revision == 1), key=lambda run: run.interval)
        self._starts = [run.interval.start for run in self._runs]

    def around(self, interval: Interval) -> Run | None:
        """The run of a wider interval, in which all of this one is; None if there is none."""
        place = bisect_right(self._starts, interval.start) - 1
        found = self._runs[place] if place >= 0 else None
        is_part = found is not None and found.interval != interval and found.interval.contains(interval)
        return found if is_part else None

    def of(self, run: Run) -> Run | None:
        """As :meth:`around`, for a run; a second revision is a run of its own and no part of anything."""
        return self.around(run.interval) if run.revision == 1 else None


def _canonical(which: str, moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise ConfigurationError(
            f"The {which} of the interval, {moment.isoformat()}, has no time zone.",
            expected="a moment that is the same everywhere",
            remedy="Give it one, as in datetime(2013, 1, 1, tzinfo=ZoneInfo('America/New_York')).",
        )
    if moment.microsecond:
        raise ConfigurationError(
            f"The {which} of the interval, {moment.isoformat()}, has parts of a second.",
            expected="whole seconds, so that an interval has one name",
            remedy="Round it.",
        )
    # A plain datetime, whatever subclass came in (pendulum's prints itself differently).
    utc = moment.astimezone(UTC)
    return datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, tzinfo=UTC)


def _text(moment: datetime) -> str:
    return f"{moment.isoformat()[:19]}Z"  # as _FORMAT, but strftime takes twenty times as long, and does not pad years


def _parsed(text: str) -> datetime:
    try:
        return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no moment of the calendar: {error}.") from None
