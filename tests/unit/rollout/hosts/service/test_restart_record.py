"""The record of an act on another machine, as its shell shows it; see test_started.py for real ones."""

from __future__ import annotations

import pytest

from airflow_eos_provider.rollout.hosts.host import Moment, RestartEvent
from airflow_eos_provider.rollout.hosts.service.restart_act import RestartRecord, parse_record

RECORD = """schema 1
act a
rollout r
replaces t
sha256 c
helper 7 70 boot-1
phase started
pid 12
ticks 345
failure 
code 
log_from 0
detail 
event stopping pid 11
moment stopped 20050
event pid 11 has ended
moment started 20100
event started as pid 12
end"""


def shown(record: str, behind: str) -> RestartRecord:
    found = parse_record([*record.split("\n"), *behind.split("\n")], answered_at=1000.0)
    assert found is not None
    return found


def test_moments_come_by_this_machines_clock_whatever_that_one_says() -> None:
    record = shown(RECORD, "at_work yes\nrecord /r\nseen s\nuptime 20200 boot-1")
    assert record.events == (
        RestartEvent("stopping pid 11"),
        RestartEvent("pid 11 has ended", Moment.STOPPED, 998.5),
        RestartEvent("started as pid 12", Moment.STARTED, 999.0),
    )


@pytest.mark.parametrize("behind", ["uptime 300 boot-2", "at_work no", "uptime unknown boot-1"])
def test_of_a_machine_that_has_booted_since_no_moment_is_known(behind: str) -> None:
    words = ("stopping pid 11", "pid 11 has ended", "started as pid 12")
    assert shown(RECORD, behind).events == tuple(RestartEvent(each) for each in words)


def test_a_record_of_another_version_is_read_without_what_it_does_not_say_or_this_one_does_not_know() -> None:
    """An earlier one has no moments; a later one may have others."""
    earlier = "\n".join(line for line in RECORD.split("\n") if not line.startswith("moment "))
    later = RECORD.replace("moment started", "moment warmed-up")
    behind = "uptime 20200 boot-1"
    assert [event.moment for event in shown(earlier, behind).events] == [None] * 3
    assert [event.moment for event in shown(later, behind).events] == [None, Moment.STOPPED, None]
