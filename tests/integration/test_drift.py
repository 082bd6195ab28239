"""Drift of real workers: a stale one joins, a file is edited, one stops or dies; each is noticed within a minute."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.connect.topics.internal_topics import OFFSETS
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.check import Verdict
from airflow_eos_provider.rollout.drift.watch import DriftWatch
from airflow_eos_provider.rollout.hosts.machine.edited_file import digest
from tests.waiting import until

#: Exit code of ``eos drift`` when something was found.
FOUND = 1

#: Requirement A17.
NOTICED_SECONDS = 60.0


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(
        LabOptions(name="drift", workers=2, mode=Mode.PREPARING, rebalance_delay_ms=500, session_timeout_ms=6000)
    )


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    """``eos`` before two workers that a rollout has enabled, and that have not drifted since."""
    eos = eos_of(lab, tmp_path)
    with DriftWatch(lab.cluster()) as watch:
        if watch.look().expected.modes != {Mode.ENABLED}:
            eos.roll(Mode.ENABLED)
        drift = watch.look()
    assert (drift.verdict, drift.expected.modes) == (Verdict.PASS, frozenset({Mode.ENABLED})), drift.describe()
    assert drift.expected.source.startswith("rollout ")
    return eos


@pytest.fixture
def watch(eos: Any) -> Iterator[Watch]:
    """``eos drift --watch``, started while nothing has drifted."""
    with Watch.over(eos) as watch:
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


def test_a_rollout_under_way_is_no_drift_and_one_left_half_way_is(
    lab: Lab, eos_of: Callable[[Lab, Path], Any], tmp_path: Path
) -> None:
    """The first test, so that its rollout is the one that the others need; any other order costs a rollout more."""
    eos = eos_of(lab, tmp_path)
    plan = eos.plan(Mode.PREPARING if lab.workers[0].mode_in_file() is Mode.ENABLED else Mode.ENABLED)
    rolling = eos.start("apply", "--plan", plan)
    with eos.line_in_log(rolling, r"stopping pid"), eos.suspended(rolling):  # or it might end before the look does
        answer = json.loads(eos.run("drift", "--exit-code", "--json").stdout)
        assert answer["verdict"] == "pass"
        assert answer["expected"]["rollout_under_way"]
    shown = eos.run("drift", "--exit-code", expect=FOUND).stdout  # line_in_log has killed it
    assert "no controller carries it out" in shown
    assert "eos rollout resume" in shown
    eos.run("apply", "--plan", plan)
    eos.run("drift", "--exit-code")


def test_a_stale_worker_in_disabled_that_is_not_described_is_noticed(lab: Lab, eos: Any, watch: Watch) -> None:
    since = time.monotonic()
    stale = lab.add_worker(mode=Mode.DISABLED, listed=False, wait=False)
    try:
        worker_id = lab.connect_urls[stale].removeprefix("http://")
        finding = watch.notices(since, kind="unknown member", subject=worker_id)
        lab.start_worker(stale)  # until it answers
        looks: list[str] = []

        def tells_its_mode() -> bool:
            """A worker that has just started may answer too late at first."""
            looks.append(eos.run("drift", "--exit-code", expect=FOUND).stdout)
            return "; it runs " in looks[-1]

        until(tells_its_mode, "what the stale worker runs", seconds=60)
        shown = looks[-1]
    finally:
        lab.stop_worker(stale)
    assert "not in the cluster file" in finding["what"]
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
        assert "join as disabled at its next start" in finding["what"]
        assert finding["what"].count("SHA-256") == 1

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
    assert "does not run" in finding["what"]
    assert "start it again" in finding["remedy"]
