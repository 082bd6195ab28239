"""Changes that are no roll, beside rolls in one journal."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    NothingDoneError,
    RefusedError,
    RestRefusedError,
    UnreachableError,
)
from airflow_eos_provider.journal.content import JournalContent, content_of
from airflow_eos_provider.journal.group_change import GroupChange, group_change, require_no_open_rollout
from airflow_eos_provider.journal.records import (
    CHANGE_KEY,
    ROLLOUT_KEY,
    ChangeRecord,
    RolloutRecord,
    RolloutState,
    encode,
)
from airflow_eos_provider.kafka.read.reader import LogRecord

CHANGE = ChangeRecord(
    "t-offsets-reset-1", "offsets reset", "c", {"hash": "h"}, RolloutState.PAUSED, 1.0, "write", ("stop",)
)
ROLLOUT = RolloutRecord("r", {}, {}, RolloutState.PAUSED, 1.0)


def record(key: str, document: ChangeRecord | RolloutRecord) -> LogRecord:
    return LogRecord("journal", 0, 0, 0, key.encode(), encode(document))


def change_record(change: ChangeRecord) -> LogRecord:
    return record(CHANGE_KEY + change.change_id, change)


def test_a_change_comes_back_as_it_was_written_and_its_newest_record_counts() -> None:
    content = content_of([change_record(CHANGE), change_record(replace(CHANGE, under_way="", done=("stop", "write")))])
    assert content.changes == {CHANGE.change_id: replace(CHANGE, under_way="", done=("stop", "write"))}
    assert content.rollouts == {}


@pytest.mark.parametrize("state", RolloutState)
def test_an_unfinished_change_is_in_the_way_and_says_how_far_it_is(state: RolloutState) -> None:
    content = content_of([change_record(replace(CHANGE, state=state))])
    refused = pytest.raises(RefusedError, match="offsets reset c, in step write")
    with refused if state.is_open else nullcontext():
        content.require_no_open_change()


def test_the_closed_changes_of_a_connector_come_in_the_order_of_the_log_whatever_the_clocks_said() -> None:
    def change(name: str, started_at: float, **more: Any) -> LogRecord:
        fields: dict[str, Any] = {"plan": {"kind": "k"}, "state": RolloutState.DONE, **more}
        return change_record(replace(CHANGE, change_id=name, started_at=started_at, **fields))

    content = content_of(
        [
            change("first", 9.0, state=RolloutState.PAUSED),
            change("of another connector", 5.0, about="d"),
            change("of another kind", 5.0, plan={"kind": "fence"}),
            change("first", 9.0),
            change("second", 2.0, state=RolloutState.ABORTED),
            change("third", 3.0, state=RolloutState.RUNNING),
        ]
    )
    assert [one.change_id for one in content.closed_changes("k", "c")] == ["first", "second"]


def test_an_unfinished_roll_is_in_the_way_of_a_change() -> None:
    with pytest.raises(RefusedError, match="rollout r of this group is paused"):
        require_no_open_rollout(content_of([record(ROLLOUT_KEY + "r", ROLLOUT)]))
    require_no_open_rollout(content_of([record(ROLLOUT_KEY + "r", replace(ROLLOUT, state=RolloutState.SUPERSEDED))]))


class MemoryJournal:
    """A journal that keeps what is written to it."""

    actor = reason = ""

    def __init__(self, *records: LogRecord) -> None:
        self.content, self.changes = content_of(list(records)), list[ChangeRecord]()

    def acquire(self, *, take_over: bool) -> JournalContent:
        return self.content

    def write_change(self, change: ChangeRecord, event: str) -> None:
        self.changes.append(change)

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("error", "steps", "state"),
    [
        (ConfigurationError("there is no such connector any more"), 0, RolloutState.ABORTED),
        (RefusedError("the modes are mixed"), 0, RolloutState.ABORTED),
        (UnreachableError("no broker answers"), 0, RolloutState.PAUSED),
        (RestRefusedError("404", status=404), 1, RolloutState.ABORTED),
        (ConfigurationError("a right is missing"), 1, RolloutState.PAUSED),
        (RestRefusedError("404", status=404), 2, RolloutState.PAUSED),
        (NothingDoneError("all is as it was"), 2, RolloutState.ABORTED),
    ],
)
def test_a_change_that_was_refused_before_it_changed_anything_is_closed(
    error: EosError, steps: int, state: RolloutState
) -> None:
    def fail(change: GroupChange) -> NoReturn:
        if steps > 1:
            with change.step("stop"):
                pass
        with change.step("write") if steps else nullcontext():
            raise error

    journal: Any = MemoryJournal()
    with pytest.raises(type(error)), group_change(journal, "fence", "c", {"hash": "h"}) as change:
        fail(change)
    assert journal.changes[-1].state is state


def test_a_change_that_is_taken_up_may_have_been_carried_out_in_part() -> None:
    journal: Any = MemoryJournal(change_record(replace(CHANGE, done=())))
    with pytest.raises(RestRefusedError), group_change(journal, CHANGE.kind, "c", CHANGE.plan):
        raise RestRefusedError("401", status=401)
    assert journal.changes[-1].state is RolloutState.PAUSED
