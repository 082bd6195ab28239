"""Rolls of real workers up to enabled by ``eos plan`` and ``eos apply``, what disturbs them, and drift afterwards.

Each test begins in the mode in which the one before it ends, so that no roll only leads from test to test; a test that
runs alone rolls there first.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict, probe
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.internal_topics import OFFSETS
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.drift.watch import DriftWatch
from airflow_eos_provider.rollout.hosts.machine.properties_file import digest
from tests.integration.mode_evidence import Evidence, assert_told, without_file_and_log
from tests.integration.offsets_cluster import FILE_SOURCE
from tests.integration.rolling import append, assert_every_line_is_delivered, delivered, once_whole, rolling_lab
from tests.seen import files, look, mode_of, modes, pids
from tests.system.modes import bring_to
from tests.waiting import until, wait_for

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
REFUSED, GATE_FAILED, PAUSED = 3, 4, 5

#: Exit code of ``eos drift`` when something was found.
FOUND = 1

#: Requirement A17.
NOTICED_SECONDS = 60.0


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers in disabled, with a file source."""
    return rolling_lab(lab_factory, "roll", Mode.DISABLED)


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


@pytest.fixture
def in_disabled(lab: Lab) -> None:
    bring_to(lab, Mode.DISABLED)


#: Needs two workers in disabled.
from_disabled = pytest.mark.usefixtures("in_disabled")


@from_disabled
def test_without_file_and_log_only_the_leader_tells_disabled_from_preparing(lab: Lab) -> None:
    assert_told(lab, Mode.DISABLED)
    evidence = Evidence(lab)
    leader = evidence.leader()
    for worker_id, mode in evidence.modes(without_file_and_log).items():
        known = worker_id == leader and not evidence.has_leaders_id()
        assert mode.verdict is (ModeVerdict.DISABLED if known else ModeVerdict.UNKNOWN), mode.reason
    with ConnectRest(lab.connect_urls[0]) as rest:  # a worker is asked, and nothing is created
        before = rest.connectors()
        assert probe(rest).runs_exactly_once is False
        assert rest.connectors() == before


@from_disabled
def test_a_step_left_out_and_a_file_edited_between_plan_and_apply_are_refused(lab: Lab, eos: Any) -> None:
    plan = eos.plan(Mode.PREPARING)
    edited = lab.cluster().workers[1].config
    assert edited is not None
    original = edited.read_bytes()
    edited.write_bytes(original + b"# edited since\n")
    before = files(lab), pids(lab)
    try:
        refusal = eos.run("apply", "--to", Mode.ENABLED, "--yes", expect=REFUSED)
        assert "roll to preparing first" in refusal.stderr
        refusal = eos.run("apply", "--plan", plan, expect=REFUSED)
        assert f"the configuration of {lab.cluster().workers[1].worker_id} was edited" in refusal.stderr
        assert (files(lab), pids(lab)) == before
    finally:
        edited.write_bytes(original)


@from_disabled
def test_a_worker_that_does_not_start_in_the_new_mode_is_put_back(lab: Lab, eos: Any) -> None:
    """Each start command is wrapped by a script that refuses preparing, as an operator's own check might."""
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


@from_disabled
def test_a_killed_roll_is_closed_by_abort_and_held_by_pause(lab: Lab, eos: Any) -> None:
    """No controller carries it out: abort closes it at once, a pause waits for the one that takes it up."""
    plan = eos.plan(Mode.PREPARING)
    eos.killed_at("begun", "apply", "--plan", plan)
    assert json.loads(eos.run("rollout", "show", "--json").stdout)["state"] == "interrupted"
    drift = eos.run("drift", "--exit-code", expect=FOUND).stdout
    assert "no controller carries it out" in drift
    assert "eos rollout resume" in drift
    assert json.loads(eos.run("rollout", "pause", "--json").stdout)["answered"] is False
    before = pids(lab)
    assert "asked for pause" in eos.run("apply", "--plan", plan, expect=PAUSED).stderr
    assert pids(lab) == before
    refused = eos.run("apply", expect=REFUSED).stderr  # it offers the plan of the unfinished rollout
    offered = shlex.split(refused.splitlines()[-1].partition(":  ")[2])
    assert offered == ["eos", "apply", "--plan", plan[:12], "--cluster", str(lab.cluster_file)]
    eos.killed_at("begun", "apply", "--yes")  # applied after the answer, it goes on
    assert json.loads(eos.run("rollout", "abort", "--json").stdout)["state"] == "aborted"
    assert pids(lab) == before
    assert modes(lab) == {Mode.DISABLED}


@from_disabled
def test_an_unknown_member_that_joins_in_mid_roll_pauses_it(lab: Lab, eos: Any) -> None:
    plan = eos.plan(Mode.PREPARING)
    with eos.suspended_at("started", "apply", "--plan", plan) as first:
        drift = json.loads(eos.run("drift", "--exit-code", "--json").stdout)
        assert (drift["verdict"], bool(drift["expected"]["rollout_under_way"])) == ("pass", True)
        unknown = lab.add_worker(listed=False)  # healthy, so it has joined
        try:
            assert first.end() == PAUSED, first.errors
            assert lab.connect_urls[unknown].removeprefix("http://") in first.errors
            assert len(modes(lab)) == 2, "the roll went on beside an unknown member"
        finally:
            lab.stop_worker(unknown)
    once_whole(lab)
    eos.run("apply", "--plan", plan)
    assert modes(lab) == {Mode.PREPARING}
    eos.run("drift", "--exit-code")


def test_a_failing_gate_puts_the_workers_file_back_and_stops(lab: Lab, eos: Any) -> None:
    """A transaction timeout above the broker's limit does no harm until tasks write in transactions: then they fail.

    A plan is refused for it; here the connector is changed after the plan.
    """
    bring_to(lab, Mode.PREPARING)
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


@pytest.mark.first
def test_a_group_rolls_up_to_enabled_without_losing_a_line_although_its_task_is_fenced(lab: Lab, eos: Any) -> None:
    """The fenced task fails: the gate restarts it, once."""
    bring_to(lab, Mode.PREPARING)
    assert_told(lab, Mode.PREPARING)
    before = pids(lab)
    progress = roll_up_with_a_fenced_task(lab, eos)
    assert progress.count("lines: a task failed (fenced); restarting its failed tasks once.") == 1
    assert not set(before.values()) & set(pids(lab).values()), "a worker was never restarted"
    append(lab)
    assert_every_line_is_delivered(lab)
    assert_told(lab, Mode.ENABLED)


def roll_up_with_a_fenced_task(lab: Lab, eos: Any) -> str:
    """Roll to enabled; once the second worker is restarted another producer takes the transactional id of the task.

    The roll is suspended meanwhile, so that its last gate sees the task that has failed.

    :returns: its progress.
    """
    with eos.suspended_at("started#2", "apply", "--plan", eos.plan(Mode.ENABLED)) as roll:
        with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
            wait_for("the task stays where it is", lambda: is_settled(lab) and states(rest, "lines") == ["RUNNING"])
            last = append(lab)
            wait_for("the task has written in a transaction", lambda: last in delivered(lab))
            thief = Producer(
                {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": f"{lab.group_id}-lines-0"}
            )
            thief.init_transactions(180)
            append(lab)
            wait_for("the task fails", lambda: states(rest, "lines") == ["FAILED"])
        assert roll.end() == 0, roll.errors
    return str(roll.errors)


def states(rest: ConnectRest, connector: str) -> list[str]:
    status = rest.statuses().get(connector)  # absent until the worker that was asked has read of it
    return [task.state for task in status.tasks] if status else []


def is_settled(lab: Lab) -> bool:
    """Whether both workers are in the group, and no rebalance moves a task any more."""
    seen = look(lab)
    group = seen.group
    is_over = group is not None and group.is_stable and len(group.members) == 2 and not group.delay_ms
    return is_over and all(worker.is_healthy for worker in seen.workers)


@pytest.fixture
def enabled(lab: Lab, eos: Any) -> Any:
    """``eos`` before two workers that a rollout has enabled, and that have not drifted since."""
    bring_to(lab, Mode.ENABLED)
    with DriftWatch(lab.cluster()) as watch:
        drift = watch.look()
    assert (drift.verdict, drift.expected.modes) == (Verdict.PASS, frozenset({Mode.ENABLED})), drift.describe()
    assert drift.expected.source.startswith("rollout ")
    return eos


@pytest.fixture
def watch(enabled: Any) -> Iterator[Watch]:
    """``eos drift --watch``, started while nothing has drifted."""
    with Watch.over(enabled) as watch:
        yield watch


class Watch:
    """A watch that has looked once and found nothing."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @classmethod
    @contextmanager
    def over(cls, eos: Any) -> Iterator[Watch]:
        process = eos.start("drift", "--exit-code", "--watch", "1", "--json")
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            assert "is as expected" in first, first
            yield cls(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def notices(self, since: float, *, kind: str, subject: str) -> dict[str, Any]:
        """The finding that it ends with, in time.

        :param since: when the drift came about, by the monotonic clock.
        """
        output, errors = self.process.communicate(timeout=since + NOTICED_SECONDS - time.monotonic())
        assert self.process.returncode == FOUND, errors
        answer: dict[str, Any] = json.loads(output)
        (finding,) = (f for f in answer["findings"] if (f["kind"], f["subject"]) == (kind, subject))
        assert finding["remedy"]
        return dict(finding)


def test_a_stale_worker_in_disabled_that_is_not_described_is_noticed(lab: Lab, eos: Any, watch: Watch) -> None:
    stale = lab.add_worker(mode=Mode.DISABLED, listed=False)  # healthy, so it has joined
    try:
        worker_id = lab.connect_urls[stale].removeprefix("http://")
        finding = watch.notices(time.monotonic(), kind="unknown member", subject=worker_id)
        looks: list[str] = []

        def tells_its_mode() -> bool:
            """A worker that has just started may answer too late at first."""
            looks.append(eos.run("drift", "--exit-code", expect=FOUND).stdout)
            return "; it runs " in looks[-1]

        until(tells_its_mode, "what the stale worker runs", seconds=60)
        shown = looks[-1]
    finally:
        lab.stop_worker(stale)
    assert "not in the cluster file" in finding["found"]
    assert "it runs disabled or preparing, not enabled" in shown
    assert "there is no exactly-once while it is in the group" in shown
    assert f"{MODE_PROPERTY}=enabled" in shown


def test_an_edited_file_is_noticed_before_its_worker_restarts_and_after_it_and_can_be_accepted(
    lab: Lab, eos: Any, watch: Watch
) -> None:
    worker = lab.cluster().workers[0]
    assert worker.config is not None
    original = worker.config.read_bytes()
    try:
        since = time.monotonic()
        worker.config.write_bytes(set_property(original, MODE_PROPERTY, "disabled"))
        finding = watch.notices(since, kind="edited file", subject=worker.worker_id)
        assert "join as disabled at its next start" in finding["found"]
        assert finding["found"].count("SHA-256") == 1

        for topic, found, checked, planned in (
            ("others", "the workers differ in offset.storage.topic", 1, 3),
            ("${file:/f:topic}", "a config provider supplies offset.storage.topic", 5, 5),
        ):
            worker.config.write_bytes(set_property(original, OFFSETS, topic))
            assert found in eos.run("status", "--exit-code", expect=1).stdout
            assert found in eos.run("preflight", expect=checked).stdout
            assert found in eos.run("plan", "--to", "preparing", expect=planned).stderr
            assert ('"kind": "internal topics"' in eos.run("drift", "--exit-code", "--json", expect=FOUND).stdout) == (
                planned == 3
            )
        worker.config.write_bytes(set_property(original, MODE_PROPERTY, "disabled"))

        restart(lab, 0)
        shown = eos.run("drift", "--exit-code", expect=FOUND).stdout
        assert f"{worker.worker_id} runs disabled, expected is enabled" in shown

        meant = original + b"# a remark\n"
        worker.config.write_bytes(meant)
        restart(lab, 0)
        assert "is not as rollout" in eos.run("drift", "--exit-code", expect=FOUND).stdout
        eos.run("drift", "--exit-code", "--accept", digest(meant))
    finally:
        worker.config.write_bytes(original)
        restart(lab, 0)
    eos.run("drift", "--exit-code")


def restart(lab: Lab, index: int) -> None:
    lab.stop_worker(index)
    lab.start_worker(index)


def test_a_worker_that_is_gone_is_noticed(lab: Lab, eos: Any, watch: Watch) -> None:
    worker_id = lab.cluster().workers[1].worker_id
    since = time.monotonic()
    lab.stop_worker(1, kill=True)
    try:
        watch.notices(since, kind="missing worker", subject=worker_id)  # it may be no member before its process ends
        found = json.loads(eos.run("drift", "--exit-code", "--json", expect=FOUND).stdout)["findings"]
    finally:
        lab.start_worker(1)
    (finding,) = (one for one in found if (one["kind"], one["subject"]) == ("missing worker", worker_id))
    assert "does not run" in finding["found"]
    assert "start it again" in finding["remedy"]
