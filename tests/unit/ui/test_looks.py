"""Looks are shared, bounded, and hold nobody up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.ui.looks import Looks, Seen

#: Of waits that end much sooner, seconds.
LONG = 60.0


def see(
    looks: Looks, look: Callable[[], Any], *, cluster: str = "a", kind: str = "status", **limits: float
) -> Seen[Any]:
    return asyncio.run(looks.see((cluster, kind), look, **{"kept_seconds": LONG, "first_seconds": LONG, **limits}))


def test_viewers_share_one_look() -> None:
    looks, begun, go_on = Looks(), [], threading.Event()

    def look() -> str:
        begun.append(1)
        assert go_on.wait(LONG)
        return "found"

    async def many() -> list[Seen[str]]:
        viewers = [
            asyncio.create_task(looks.see(("a", "status"), look, kept_seconds=LONG, first_seconds=LONG))
            for _ in range(20)
        ]
        await asyncio.sleep(0)  # each has asked
        go_on.set()
        return await asyncio.gather(*viewers)

    assert {seen.value for seen in asyncio.run(many())} == {"found"}
    assert len(begun) == 1
    assert see(looks, look).value == "found"
    assert len(begun) == 1


def test_a_look_that_hangs_holds_up_neither_its_viewer_nor_another_cluster() -> None:
    looks, never = Looks(), threading.Event()
    try:
        seen = see(looks, never.wait, first_seconds=0.01)
        assert (seen.value, seen.is_waiting, seen.problem) == (None, True, None)
        assert see(looks, lambda: "alive", cluster="b").value == "alive"
    finally:
        never.set()


def test_of_one_cluster_and_in_all_no_more_than_so_many_run_at_once() -> None:
    looks, most, running, lock, go_on = Looks(at_once=3, of_a_cluster=2), [0], [0], threading.Lock(), threading.Event()
    three_run = threading.Event()

    def look() -> str:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if running[0] == 3:
                three_run.set()
        assert go_on.wait(LONG)
        with lock:
            running[0] -= 1
        return "found"

    places = [(cluster, kind) for cluster in "abc" for kind in ("status", "drift", "hanging")]
    assert all(see(looks, look, cluster=c, kind=k, first_seconds=0.0).is_waiting for c, k in places)
    assert three_run.wait(LONG)
    go_on.set()
    assert {see(looks, look, cluster=c, kind=k).value for c, k in places} == {"found"}
    assert most[0] == 3


def test_a_dead_cluster_is_an_error_and_not_asked_again_at_once() -> None:
    looks, asked = Looks(), []

    def look() -> None:
        asked.append(1)
        raise UnreachableError("No broker answers.", remedy="Start one.")

    for _ in range(3):
        seen = see(looks, look)
        assert seen.problem is not None
        assert (seen.problem.kind, seen.problem.remedy, seen.is_waiting) == ("UnreachableError", "Start one.", False)
    assert len(asked) == 1


def test_what_was_seen_stays_beside_the_error_of_a_later_look() -> None:
    looks = Looks()
    assert see(looks, lambda: "found", kept_seconds=0.0).value == "found"

    def fails() -> str:
        raise UnreachableError("No broker answers.")

    seen = see(looks, fails, kept_seconds=0.0, newer_seconds=LONG)
    assert seen.value == "found"
    assert seen.at is not None
    assert seen.problem is not None


def test_what_is_old_is_shown_while_a_newer_look_runs() -> None:
    looks, never = Looks(), threading.Event()
    try:
        see(looks, lambda: "old", kept_seconds=0.0)
        seen = see(looks, never.wait, kept_seconds=0.0, newer_seconds=0.01)
        assert (seen.value, seen.is_looking, seen.is_waiting) == ("old", True, False)
        document = seen.looked_at()
        assert document is not None
        assert document["refreshing"]
    finally:
        never.set()


def test_an_error_of_another_kind_is_one_of_the_look_without_its_secrets() -> None:
    def look() -> None:
        raise RuntimeError("mongodb://ada:lovelace1815@db failed")

    seen = see(Looks(), look)
    assert seen.problem is not None
    assert seen.problem.kind == "RuntimeError"
    assert "lovelace1815" not in str(seen.problem)


def test_what_was_not_asked_for_the_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_eos_provider.ui.looks.MOST_KEPT", 2)
    looks, asked = Looks(), []
    for kind in ("1", "2", "1", "3", "1"):
        see(looks, lambda kind=kind: asked.append(kind), kind=kind)
    assert asked == ["1", "2", "3"]
    see(looks, lambda: asked.append("2"), kind="2")
    assert asked == ["1", "2", "3", "2"]
