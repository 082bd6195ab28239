from __future__ import annotations

import io

from airflow_eos_provider.demo.screen import Screen
from airflow_eos_provider.terminal import DataConsole


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


def test_the_timings_are_one_per_stage() -> None:
    with Screen(DataConsole(file=io.StringIO())) as screen:
        screen.stage("first")
        screen.stage("second")
        assert [title for title, _ in screen.timings()] == ["first", "second"]
