"""One part of the demo that fails ends those that build on it, and no others."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from airflow_eos_provider.demo.parts import Outcome, Part, Parts
from airflow_eos_provider.demo.screen import Screen
from airflow_eos_provider.errors import EosError


def fail() -> None:
    raise EosError("Airflow did not come up.\nThe end of its log", remedy="Read it.")


def surprise() -> None:
    raise KeyError("finished_at_ms")


@pytest.fixture
def shown() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def done() -> list[Part]:
    return []


@pytest.fixture
def parts(shown: io.StringIO, done: list[Part], tmp_path: Path) -> Parts:
    return Parts(Screen(Console(file=shown, width=200)), done, tmp_path)


def test_what_builds_on_a_failed_part_is_not_tried_and_all_else_is(parts: Parts, done: list[Part]) -> None:
    parts.attempt("lab", lambda: None)
    parts.attempt("Airflow", fail, needs=["lab"])
    parts.attempt("upgrade", lambda: pytest.fail("tried"), needs=["lab", "Airflow"])
    parts.attempt("fencing", lambda: pytest.fail("tried"), needs=["upgrade"])
    parts.attempt("comparison", lambda: None, needs=["lab"])
    assert [(part.name, part.outcome) for part in done] == [
        ("lab", Outcome.DONE),
        ("Airflow", Outcome.FAILED),
        ("upgrade", Outcome.NOT_TRIED),
        ("fencing", Outcome.NOT_TRIED),
        ("comparison", Outcome.DONE),
    ]
    assert (done[1].reason, done[1].remedy) == ("Airflow did not come up.\nThe end of its log", "Read it.")
    assert done[3].reason == "it needs what was not done: upgrade"


def test_the_reason_and_the_remedy_are_shown_where_it_happens(parts: Parts, shown: io.StringIO) -> None:
    parts.attempt("Airflow", fail)
    assert "FAILED: Airflow. Airflow did not come up." in shown.getvalue()
    assert "The end of its log" in shown.getvalue()
    assert "What to do: Read it." in shown.getvalue()


def test_an_unexpected_error_leaves_its_traceback(parts: Parts, done: list[Part], tmp_path: Path) -> None:
    parts.attempt("upgrade", surprise)
    assert done[0].reason == "KeyError: 'finished_at_ms'"
    assert "in surprise" in (tmp_path / "unexpected.log").read_text()


def test_an_interruption_ends_all(parts: Parts, done: list[Part]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parts.attempt("upgrade", interrupted)
    assert done == []
