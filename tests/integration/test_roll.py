"""Real rolls of real workers by ``eos plan`` and ``eos apply``, and what happens when they are disturbed.

Each test begins in the mode in which the one before it ends, so that few rolls only lead from test to test; a test that
runs alone rolls there first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from tests.seen import files, mode_of, modes, pids, starts
from tests.waiting import wait_for

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, GATE_FAILED = 3, 4

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    """Two workers in disabled, with a file source that has three hundred lines to deliver."""
    lab = lab_factory(
        LabOptions(name="roll", workers=2, mode=Mode.DISABLED, rebalance_delay_ms=500, session_timeout_ms=6000)
    )
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


def on(rest: ConnectRest, connector: str) -> list[tuple[str, str]]:
    """Where each task of a connector is, and its state."""
    status = rest.statuses().get(connector)
    return [(task.worker_id, task.state) for task in status.tasks] if status else []


def lines(lab: Lab) -> set[str]:
    """The different lines that readers of committed records get (Connect writes each as a JSON string with schema)."""
    records = read_to_end(lab.cluster().kafka, "lines").records
    return {re.sub(r'.*"(line \d+)".*', r"\1", (record.value or b"").decode()) for record in records}


def test_a_file_edited_between_plan_and_apply_is_refused(lab: Lab, eos: Any, in_mode: Callable[[Mode], None]) -> None:
    in_mode(Mode.DISABLED)
    plan = eos.plan(Mode.PREPARING)
    edited = lab.cluster().workers[1].config
    assert edited is not None
    original = edited.read_bytes()
    edited.write_bytes(original + b"# edited since\n")
    before = files(lab), pids(lab)
    try:
        refusal = eos.run("apply", "--plan", plan, expect=REFUSED)
        assert f"the configuration of {lab.cluster().workers[1].worker_id} was edited" in refusal.stderr
        assert (files(lab), pids(lab)) == before
    finally:
        edited.write_bytes(original)


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
    described = ("--cluster", str(guarded))  # what starts a worker is part of the plan
    plan = json.loads(eos.run("plan", "--to", Mode.PREPARING, "--json", *described).stdout)["hash"]
    failure = eos.run("apply", "--plan", plan, *described, expect=GATE_FAILED)
    assert "preparing is not allowed" in failure.stderr
    assert "its former configuration is back, and it runs with it as a healthy member" in failure.stderr
    assert files(lab) == before
    assert modes(lab) == {Mode.DISABLED}


def test_a_stopped_worker_stays_stopped_and_joins_in_the_new_mode(
    lab: Lab, eos: Any, in_mode: Callable[[Mode], None]
) -> None:
    in_mode(Mode.DISABLED)
    runs, stopped = (worker.worker_id for worker in lab.cluster().workers)
    made_before = eos.plan(Mode.PREPARING)
    before = starts(lab)
    lab.stop_worker(1)
    moved = eos.run("apply", "--plan", made_before, "--allow-downtime", expect=REFUSED)
    assert f"mode of {stopped}: disabled, now stopped" in moved.stderr

    plan = json.loads(eos.run("plan", "--to", Mode.PREPARING, "--allow-downtime", "--json").stdout)
    assert {worker["worker_id"]: worker["mode"] for worker in plan["workers"]} == {runs: "disabled", stopped: "stopped"}
    eos.run("apply", "--plan", plan["hash"], "--allow-downtime")
    assert starts(lab) == {runs: before[runs] + 1, stopped: before[stopped]}
    assert lab.worker_process(1) is None
    assert parse(files(lab)[stopped])[MODE_PROPERTY] == "preparing"

    lab.start_worker(1)
    assert modes(lab) == {Mode.PREPARING}
    assert json.loads(eos.run("plan", "--to", Mode.PREPARING, "--json").stdout)["nothing_to_do"]


@pytest.mark.first
def test_a_group_rolls_up_to_enabled_and_back_without_losing_a_line(
    lab: Lab, eos: Any, in_mode: Callable[[Mode], None]
) -> None:
    """On the way up its task is fenced, which fails it: the gate restarts it, once."""
    in_mode(Mode.PREPARING)
    before = pids(lab)
    progress = roll_up_with_a_fenced_task(lab, eos)
    assert progress.count("lines: a task failed (fenced); restarting its failed tasks once.") == 1
    assert modes(lab) == {Mode.ENABLED}
    for number, target in enumerate((Mode.PREPARING, Mode.DISABLED), start=2):
        append(lab, range(1000 * number, 1000 * number + 100))
        report = eos.roll(target)
        assert report["to"] == target
        assert {worker["mode"] for worker in report["workers"]} == {target}
        assert modes(lab) == {target}
    assert not set(before.values()) & set(pids(lab).values()), "a worker was never restarted"
    written = (lab.data_dir / "lines.txt").read_text(encoding="utf-8").splitlines()
    assert len(written) == len(set(written)) == 600
    wait_for("every line is delivered", lambda: lines(lab) >= set(written))
    assert lines(lab) == set(written)
    for worker in lab.cluster().workers:
        assert worker.config is not None
        assert parse(worker.config.read_bytes())[MODE_PROPERTY] == "disabled"


def roll_up_with_a_fenced_task(lab: Lab, eos: Any) -> str:
    """Roll to enabled; in the second worker's restart another producer takes the transactional id of the task.

    The roll is suspended meanwhile, so that its last gate sees the task that has failed.

    :returns: the progress from then on.
    """
    roll = eos.start("apply", "--plan", eos.plan(Mode.ENABLED))
    with eos.line_in_log(roll, r"gate passed") as line, eos.line_in_log(roll, r"stopping pid"):
        enabled = next(worker for worker in lab.cluster().workers if f"{worker.worker_id}: gate passed" in line)
        with eos.suspended(roll), ConnectRest(enabled.url, retry_seconds=20) as rest:
            wait_for(
                "the task runs on the enabled worker", lambda: on(rest, "lines") == [(enabled.worker_id, "RUNNING")]
            )
            append(lab, range(1000, 1050))
            wait_for("the task has written in a transaction", lambda: "line 1049" in lines(lab))
            thief = Producer(
                {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": f"{lab.group_id}-lines-0"}
            )
            thief.init_transactions(60)
            append(lab, range(1050, 1100))
            wait_for("the task fails", lambda: states(rest, "lines") == ["FAILED"])
        _, progress = roll.communicate(timeout=300)
    assert roll.returncode == 0, progress
    return str(progress)


def test_a_failing_gate_puts_the_workers_file_back_and_stops(
    lab: Lab, eos: Any, in_mode: Callable[[Mode], None]
) -> None:
    """A transaction timeout above the broker's limit does no harm until tasks write in transactions: then they fail.

    A plan is refused for it; here the connector is changed after the plan.
    """
    in_mode(Mode.PREPARING)
    lab.create_topic("doomed", 1)
    file = str(lab.data_dir / "lines.txt")
    config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "file": file, "topic": "doomed"}
    with ConnectRest(lab.connect_urls[0]) as rest:
        rest.create("doomed", config)
        wait_for("doomed runs", lambda: states(rest, "doomed") == ["RUNNING"])
        plan = eos.plan(Mode.ENABLED)
        rest.put_config("doomed", {**config, "producer.override.transaction.timeout.ms": "3600000"})
        wait_for("doomed runs again", lambda: states(rest, "doomed") == ["RUNNING"])
    before = files(lab)
    try:
        failure = eos.run("apply", "--plan", plan, "--gate-timeout", "30", expect=GATE_FAILED)
        assert "task doomed-0 is FAILED" in failure.stderr
        put_back = re.search(r"(\S+) did not pass its gate", failure.stderr)
        assert put_back is not None
        assert "its former configuration is back, and it runs with it as a healthy member" in failure.stderr
        assert files(lab)[put_back[1]] == before[put_back[1]]
        assert mode_of(lab, put_back[1]) is Mode.PREPARING
    finally:
        with ConnectRest(lab.connect_urls[0]) as rest:
            rest.delete("doomed")
