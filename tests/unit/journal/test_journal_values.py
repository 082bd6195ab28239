"""The journal's values: who holds a lease and when it ends, and which rollout can be taken up again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_eos_provider.errors import LeaseHeldError
from airflow_eos_provider.journal.journal import (
    JournalContent,
    Lease,
    Owner,
    RolloutRecord,
    RolloutState,
    require_free,
)
from airflow_eos_provider.journal.process_start import ProcessStart

NOW = 1_000_000.0


@pytest.fixture
def me() -> Owner:
    return Owner.this_process()


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """A live process that is not this one; gone when the test ends."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def lease(owner: Owner, *, expires_at: float = NOW + 60.0, released: bool = False) -> Lease:
    return Lease(owner, "20260101-preparing-abc", "ann", "w2:8083: intent", expires_at, released)


def test_a_live_owners_lease_is_held_until_it_expires(me: Owner) -> None:
    assert lease(me).is_held(NOW)
    assert lease(me).is_held(NOW + 59.9)
    assert not lease(me).is_held(NOW + 60.0)
    assert not lease(me, released=True).is_held(NOW)


def test_the_lease_of_a_process_that_is_proven_dead_is_free_at_once(
    me: Owner, other_process: subprocess.Popen[bytes]
) -> None:
    owner = replace(me, pid=other_process.pid, start=str(ProcessStart.of(other_process.pid)))
    assert lease(owner).is_held(NOW)
    other_process.kill()
    other_process.wait(timeout=180)
    assert not lease(owner).is_held(NOW)


def test_of_another_machine_nothing_is_proven(me: Owner) -> None:
    """The pid may be unused here, or another's; the lease has to run out."""
    start = replace(ProcessStart.of_this_process(), machine="another machine", boot="another boot", ticks=0)
    elsewhere = replace(me, host="another.example", start=str(start))
    assert not elsewhere.is_proven_dead
    assert not replace(me, start="").is_proven_dead
    assert lease(elsewhere).is_held(NOW)
    assert not lease(elsewhere).is_held(NOW + 60.0)


def test_a_deferred_task_holds_its_lease_though_no_process_does() -> None:
    left = lease(Owner.deferred_task("upgrade/manual/roll"))
    assert left.is_held(NOW)
    assert not left.owner.is_proven_dead
    assert not left.is_held(NOW + 60.0)
    assert "the deferred task upgrade/manual/roll" in str(left)


def test_what_a_deferred_task_holds_is_free_for_that_task_alone(me: Owner) -> None:
    left = lease(Owner.deferred_task("upgrade/manual/roll"))
    require_free(left, "lab", "upgrade/manual/roll", now=lambda: NOW)
    for other in ("", "upgrade/another/roll"):
        with pytest.raises(LeaseHeldError, match="the deferred task upgrade/manual/roll"):
            require_free(left, "lab", other, now=lambda: NOW)
    with pytest.raises(LeaseHeldError):
        require_free(lease(me), "lab", now=lambda: NOW)


def test_the_time_is_asked_for_only_where_it_decides(me: Owner) -> None:
    """The broker's time costs a record in the journal."""

    def now() -> float:
        raise AssertionError("asked")

    for free in (None, lease(me, released=True), lease(Owner.deferred_task("a/b/c"))):
        require_free(free, "lab", "a/b/c", now=now)


# which rollout is taken up again


def rollout(name: str, state: RolloutState, *, started_at: float, plan: str = "p1") -> RolloutRecord:
    return RolloutRecord(name, {"hash": plan}, {}, state, started_at)


def content(*rollouts: RolloutRecord) -> JournalContent:
    return JournalContent(rollouts={record.rollout_id: record for record in rollouts})


@pytest.mark.parametrize("state", RolloutState)
def test_an_open_rollout_of_the_same_plan_is_taken_up(state: RolloutState) -> None:
    record = rollout("r1", state, started_at=1.0)
    assert content(record).unfinished("p1") == (record if state.is_open else None)
    assert content(record).unfinished("p2") is None


def test_of_several_open_rollouts_the_newest_is_taken_up() -> None:
    old = rollout("r1", RolloutState.PAUSED, started_at=1.0)
    new = rollout("r2", RolloutState.PAUSED, started_at=2.0)
    done = rollout("r3", RolloutState.DONE, started_at=3.0)
    assert content(new, old, done).unfinished("p1") == new
