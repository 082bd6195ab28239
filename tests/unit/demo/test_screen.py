from __future__ import annotations

import io

from rich.console import Console

from airflow_eos_provider.demo import screen as screen_module
from airflow_eos_provider.demo.screen import Screen
from tests.waiting import until


def until_shown(output: io.StringIO, text: str) -> None:
    until(lambda: text in output.getvalue(), repr(text), seconds=60)


def test_without_a_terminal_the_present_is_printed_within_three_seconds_of_silence() -> None:
    assert screen_module._PRINT_NOW_AFTER_SECONDS + screen_module._TICK_SECONDS < 3
    output = io.StringIO()
    with Screen(Console(file=output, width=100), load=lambda: "42 flights fed") as screen:
        screen.say("started")
        screen.now("waiting for something")
        until_shown(output, "waiting for something   [42 flights fed]")


def test_on_a_terminal_the_present_is_shown_at_once() -> None:
    output = io.StringIO()
    with Screen(Console(file=output, force_terminal=True, width=100)) as screen:
        screen.now("waiting for something")
        until_shown(output, "waiting for something")


def test_what_looks_like_markup_is_shown_as_it_is_and_long_lines_are_not_broken() -> None:
    output = io.StringIO()
    with Screen(Console(file=output, width=40)) as screen:
        screen.say("[red]http://127.0.0.1:1 " + "x" * 60)
    assert "[red]http://127.0.0.1:1 " + "x" * 60 in output.getvalue()


def test_the_timings_are_one_per_step() -> None:
    with Screen(Console(file=io.StringIO())) as screen:
        screen.step("first")
        screen.step("second")
        assert [title for title, _ in screen.timings()] == ["first", "second"]
