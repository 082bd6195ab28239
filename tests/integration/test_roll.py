"""Real rolls of real workers by ``eos plan`` and ``eos apply``, and what happens when they are disturbed."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.kafka.log import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.journal import RolloutState, StepStatus, read_journal
from tests.seen import files, mode_of, modes, pids

pytestmark = pytest.mark.slow

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, GATE_FAILED = 3, 4

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    """Two workers in disabled, with a file source that has three hundred lines to deliver."""
    lab = lab_factory(LabOptions(name="roll", workers=2, mode=Mode.DISABLED))
    lab.create_topic("lines", 1)
    (lab.data_dir / "lines.txt").write_text("".join(f"line {n}\n" for n in range(300)), encoding="utf-8")
    with ConnectRest(lab.connect_urls[0]) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines"}
        rest.create("lines", {**config, "file": str(lab.data_dir / "lines.txt")})
    return lab


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


@pytest.fixture
def in_mode(eos: Any) -> Callable[[Mode], None]:
    """Brings the group into a mode, by whatever rolls that takes."""

    def bring(mode: Mode) -> None:
        if {mode, *modes(eos.lab)} >= {Mode.DISABLED, Mode.ENABLED}:
            bring(Mode.PREPARING)
        if modes(eos.lab) != {mode}:
            eos.roll(mode)

    return bring


def append(lab: Lab, lines: range) -> None:
    with (lab.data_dir / "lines.txt").open("a", encoding="utf-8") as file:
        file.writelines(f"line {n}\n" for n in lines)


def states(rest: ConnectRest, connector: str) -> list[str]:
    status = rest.statuses().get(connector)  # absent until the worker that was asked has read of it
    return [task.state for task in status.tasks] if status else []


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def lines(lab: Lab) -> set[str]:
    """The different lines that readers of committed records get (Connect writes each as a JSON string with schema)."""
    records = read_to_end(lab.cluster().kafka, "lines").records
    return {re.sub(r'.*"(line \d+)".*', r"\1", (record.value or b"").decode()) for record in records}


def test_a_group_rolls_up_to_enabled_and_back_without_losing_a_line(lab: Lab, eos: Any) -> None:
    before = pids(lab)
    for number, target in enumerate((Mode.PREPARING, Mode.ENABLED, Mode.PREPARING, Mode.DISABLED), start=1):
        report = eos.roll(target)
        assert report["to"] == target
        assert {worker["mode"] for worker in report["workers"]} == {target}  # type: ignore[index,union-attr]
        assert modes(lab) == {target}
        append(lab, range(1000 * number, 1000 * number + 100))
    assert not set(before.values()) & set(pids(lab).values()), "a worker was never restarted"
    written = (lab.data_dir / "lines.txt").read_text(encoding="utf-8").splitlines()
    assert len(written) == len(set(written)) == 700
    wait_for("every line is delivered", lambda: lines(lab) >= set(written))
    assert lines(lab) == set(written)
    for worker in lab.cluster().workers:
        assert worker.config is not None
        assert parse(worker.config.read_bytes())[MODE_PROPERTY] == "disabled"


def test_enabled_straight_from_disabled_is_refused_and_nothing_changes(
    lab: Lab, eos: Any, in_mode: Callable[[Mode], None]
) -> None:
    in_mode(Mode.DISABLED)
    before = files(lab), pids(lab)
    refusal = eos.run("plan", "--to", "enabled", expect=REFUSED)
    assert "roll to preparing first" in refusal.stderr
    assert (files(lab), pids(lab)) == before


def test_a_file_edited_between_plan_and_apply_is_refused(lab: Lab, eos: Any, in_mode: Callable[[Mode], None]) -> None:
    in_mode(Mode.DISABLED)
    plan = eos.plan(Mode.PREPARING)
    edited = lab.cluster().workers[1].config
    assert edited is not None
    original = edited.read_bytes()
    edited.write_bytes(original + b"# somebody was here\n")
    before = files(lab), pids(lab)
    try:
        refusal = eos.run("apply", plan, expect=REFUSED)
        assert f"the file of {lab.cluster().workers[1].worker_id} was edited" in refusal.stderr
        assert (files(lab), pids(lab)) == before
    finally:
        edited.write_bytes(original)


def test_apply_killed_in_mid_roll_goes_on_where_it_stood(lab: Lab, eos: Any, in_mode: Callable[[Mode], None]) -> None:
    in_mode(Mode.DISABLED)
    before = pids(lab)
    plan = eos.plan(Mode.PREPARING)
    first = eos.start("apply", plan)
    with eos.line_in_log(first, r"gate passed"):
        first.send_signal(signal.SIGKILL)
    journal = read_journal(lab.cluster().kafka, lab.group_id)
    rollout = journal.unfinished(plan)
    assert rollout is not None, "the killed roll is not in the journal"
    through = [s.worker_id for s in journal.steps[rollout.rollout_id].values() if s.status is StepStatus.PASSED]
    assert len(through) == 1
    restarted_once = pids(lab)[through[0]]
    assert restarted_once != before[through[0]]

    report = json.loads(eos.run("apply", plan, "--json").stdout)

    assert report["resumed"] is True
    assert report["rollout_id"] == rollout.rollout_id
    assert modes(lab) == {Mode.PREPARING}
    assert pids(lab)[through[0]] == restarted_once, "a finished step was repeated"
    journal = read_journal(lab.cluster().kafka, lab.group_id)
    assert journal.rollouts[rollout.rollout_id].state is RolloutState.DONE


def test_apply_killed_between_file_and_restart_goes_on(lab: Lab, eos: Any, in_mode: Callable[[Mode], None]) -> None:
    in_mode(Mode.DISABLED)
    plan = eos.plan(Mode.PREPARING)
    first = eos.start("apply", plan)
    with eos.line_in_log(first, r"stopping pid"):
        first.send_signal(signal.SIGKILL)
    eos.run("apply", plan)
    assert modes(lab) == {Mode.PREPARING}


def test_a_second_controller_is_refused_while_the_first_holds_the_lease(
    lab: Lab, eos: Any, in_mode: Callable[[Mode], None]
) -> None:
    in_mode(Mode.DISABLED)
    plan = eos.plan(Mode.PREPARING)
    first = eos.start("apply", plan)
    with eos.line_in_log(first, r"before the first restart"):
        refusal = eos.run("apply", plan, expect=REFUSED)
        assert f"pid {first.pid}" in refusal.stderr
        first.communicate(timeout=300)
    assert first.returncode == 0
    assert modes(lab) == {Mode.PREPARING}


def test_a_failing_gate_puts_the_workers_file_back_and_stops(
    lab: Lab, eos: Any, in_mode: Callable[[Mode], None]
) -> None:
    """A transaction timeout above the broker's limit does no harm until tasks write in transactions: then they fail."""
    in_mode(Mode.PREPARING)
    lab.create_topic("doomed", 1)
    with ConnectRest(lab.connect_urls[0]) as rest:
        rest.create(
            "doomed",
            {
                "connector.class": FILE_SOURCE,
                "tasks.max": "1",
                "file": str(lab.data_dir / "lines.txt"),
                "topic": "doomed",
                "producer.override.transaction.timeout.ms": "3600000",
            },
        )
        wait_for("doomed runs", lambda: states(rest, "doomed") == ["RUNNING"])
    before = files(lab)
    try:
        failure = eos.run("apply", eos.plan(Mode.ENABLED), "--gate-timeout", "40", expect=GATE_FAILED)
        assert "task doomed-0 is FAILED" in failure.stderr
        put_back = re.search(r"(\S+) did not pass its gate", failure.stderr)
        assert put_back is not None
        assert "its former file is back, and it runs with it as a healthy member" in failure.stderr
        assert files(lab)[put_back[1]] == before[put_back[1]]
        assert mode_of(lab, put_back[1]) is Mode.PREPARING
    finally:
        with ConnectRest(lab.connect_urls[0]) as rest:
            rest.delete("doomed")


def test_a_worker_that_does_not_start_in_the_new_mode_is_put_back(
    lab: Lab, eos: Any, in_mode: Callable[[Mode], None]
) -> None:
    """Each start command is wrapped by a script that refuses preparing, as an operator's own check might."""
    in_mode(Mode.DISABLED)
    document = yaml.safe_load(lab.cluster_file.read_text(encoding="utf-8"))
    for worker in document["workers"]:
        script = (
            f'grep -q "{MODE_PROPERTY}=preparing" "$0" && {{ echo "preparing is not allowed"; exit 1; }}; exec "$@"'
        )
        worker["start"] = ["/bin/sh", "-c", script, worker["config"], *worker["start"]]
    guarded = eos.folder / "eos.yaml"
    guarded.write_text(yaml.safe_dump(document), encoding="utf-8")
    before = files(lab)
    plan = eos.plan(Mode.PREPARING)
    failure = eos.run("apply", plan, "--cluster", str(guarded), expect=GATE_FAILED)
    assert "preparing is not allowed" in failure.stderr
    assert "its former file is back, and it runs with it as a healthy member" in failure.stderr
    assert files(lab) == before
    assert modes(lab) == {Mode.DISABLED}
