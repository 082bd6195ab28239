"""``eos rollout``: a roll of real workers paused, resumed, given up and taken back, and a stranger that joins it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.observer import Observer
from tests.seen import files, mode_of, modes, pids

pytestmark = pytest.mark.slow

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, PAUSED = 3, 5


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(LabOptions(name="verbs", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=500))


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    """``eos`` before two workers in disabled."""
    eos = eos_of(lab, tmp_path)
    if modes(lab) != {Mode.DISABLED}:
        eos.roll(Mode.DISABLED)
    return eos


def test_a_roll_is_paused_resumed_and_taken_back_and_its_history_tells_so(lab: Lab, eos: Any) -> None:
    original = files(lab)
    first = eos.start("apply", eos.plan(Mode.PREPARING), "--reason", "exactly once")
    with eos.line_in_log(first, r"stopping pid"):
        answer = json.loads(eos.run("rollout", "pause", "--reason", "lunch", "--json").stdout)
        _, errors = first.communicate(timeout=120)
    assert first.returncode == PAUSED, errors
    assert "asked for pause: lunch" in errors
    wait_until_whole(lab)
    through = {w: pid for w, pid in pids(lab).items() if mode_of(lab, w) is Mode.PREPARING}
    assert len(through) == 1
    assert (answer["state"], answer["answered"], answer["half_done"]) == ("paused", True, list(through))

    report = json.loads(eos.run("rollout", "resume", "--json").stdout)

    assert report["resumed"] is True
    assert modes(lab) == {Mode.PREPARING}
    assert {w: pids(lab)[w] for w in through} == through, "a finished step was repeated"
    assert all({"predicted_seconds", "tasks_stood_seconds"} <= worker.keys() for worker in report["workers"])

    shown = json.loads(eos.run("rollout", "show", report["rollout_id"], "--json").stdout)
    assert [event["what"] for event in shown["events"]] == ["begun", "paused", "taken up", "done"]
    assert shown["events"][0]["reason"] == "exactly once"
    assert "lunch" in shown["events"][1]["note"]
    for worker in shown["workers"]:
        assert any("placement" in line for line in worker["evidence"]), "the gate's evidence is not kept"
    assert "lunch" in eos.run("rollout", "show").stdout

    proposed = json.loads(eos.run("rollout", "back", "--json").stdout)
    assert proposed["target"] == "disabled"
    assert modes(lab) == {Mode.PREPARING}, "the way back was gone without being asked for"
    eos.run("rollout", "back", "--yes")
    assert modes(lab) == {Mode.DISABLED}
    assert {w: file == original[w] for w, file in files(lab).items()} == proposed["restores_files"]
    listed = json.loads(eos.run("rollout", "list", "--json").stdout)["rollouts"]
    assert [(r["from"], r["to"], r["state"]) for r in listed[:2]] == [
        ("preparing", "disabled", "done"),
        ("disabled", "preparing", "done"),
    ]
    assert listed[0]["reason"] == f"back from rollout {report['rollout_id']}"


def test_an_aborted_roll_stops_where_it_stands_and_is_never_taken_up(lab: Lab, eos: Any) -> None:
    first = eos.start("apply", eos.plan(Mode.PREPARING))
    with eos.line_in_log(first, r"stopping pid"):
        answer = json.loads(eos.run("rollout", "abort", "--reason", "wrong cluster", "--json").stdout)
        first.communicate(timeout=120)
    assert (first.returncode, answer["state"]) == (PAUSED, "aborted")
    wait_until_whole(lab)
    assert modes(lab) == {Mode.DISABLED, Mode.PREPARING}
    before = pids(lab)
    assert "cannot be resumed" in eos.run("rollout", "resume", expect=REFUSED).stderr
    assert "nothing to stop" in eos.run("rollout", "abort", expect=REFUSED).stderr
    assert pids(lab) == before
    eos.run("rollout", "back", "--yes")
    assert modes(lab) == {Mode.DISABLED}


def test_a_killed_roll_is_closed_by_abort_and_held_by_pause(lab: Lab, eos: Any) -> None:
    """Nobody carries it out: abort closes it at once, a pause waits for whoever takes it up."""
    plan = eos.plan(Mode.PREPARING)
    kill_in_mid_roll(eos, plan)
    assert json.loads(eos.run("rollout", "show", "--json").stdout)["state"] == "interrupted"
    assert json.loads(eos.run("rollout", "pause", "--json").stdout)["answered"] is False
    before = pids(lab)
    assert "asked for pause" in eos.run("apply", plan, expect=PAUSED).stderr
    assert pids(lab) == before
    kill_in_mid_roll(eos, plan)  # whoever applies after the answer goes on
    assert json.loads(eos.run("rollout", "abort", "--json").stdout)["state"] == "aborted"
    assert pids(lab) == before
    assert modes(lab) == {Mode.DISABLED}


def test_a_roll_that_is_done_can_be_applied_again_as_long_as_it_holds(lab: Lab, eos: Any) -> None:
    """Its caller may have been killed before he knew: that it is done is no refusal."""
    plan = eos.plan(Mode.PREPARING)
    report = json.loads(eos.run("apply", plan, "--json").stdout)
    before = pids(lab)
    again = json.loads(eos.run("apply", plan, "--json").stdout)
    assert {**again, "resumed": False} == report
    assert pids(lab) == before


def test_a_stranger_that_joins_in_mid_roll_pauses_it(lab: Lab, eos: Any) -> None:
    plan = eos.plan(Mode.PREPARING)
    first = eos.start("apply", plan)
    with eos.line_in_log(first, r"stopping pid"):
        stranger = lab.add_worker(listed=False, wait=False)
        _, errors = first.communicate(timeout=300)
    try:
        assert first.returncode == PAUSED, errors
        assert lab.connect_urls[stranger].removeprefix("http://") in errors
        assert len(modes(lab)) == 2, "the roll went on beside a stranger"
    finally:
        lab.stop_worker(stranger)
    wait_until_whole(lab)
    eos.run("apply", plan)
    assert modes(lab) == {Mode.PREPARING}


def kill_in_mid_roll(eos: Any, plan: str) -> None:
    process = eos.start("apply", plan)
    with eos.line_in_log(process, r"conditions hold"):
        process.send_signal(signal.SIGKILL)


def wait_until_whole(lab: Lab, seconds: float = 60.0) -> None:
    """Until every listed worker is a healthy member of a stable group again."""
    deadline = time.monotonic() + seconds
    while True:
        seen = Observer(lab.cluster()).observe()
        if seen.leader_id and all(w.is_healthy and w.worker_id in seen.members for w in seen.workers):
            return
        assert time.monotonic() < deadline, "the group did not become whole"
        time.sleep(0.3)
