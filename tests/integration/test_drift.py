"""Drift of real workers: a stale one joins, a file is edited, a worker is stopped; each noticed within a minute."""

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
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.hosts.files import digest

pytestmark = pytest.mark.slow

#: Exit code of ``eos drift`` when something was found.
FOUND = 3

#: Requirement A17.
NOTICED_SECONDS = 60.0


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    return lab_factory(LabOptions(name="drift", workers=2, mode=Mode.PREPARING, rebalance_delay_ms=500))


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    """``eos`` before two workers that a rollout has enabled, and that have not drifted since."""
    eos = eos_of(lab, tmp_path)
    rollouts = json.loads(eos.run("rollout", "list", "--json").stdout)["rollouts"]
    if not rollouts or rollouts[0]["to"] != "enabled":
        eos.roll(Mode.ENABLED)
    answer = json.loads(eos.run("drift", "--json").stdout)
    assert (answer["verdict"], answer["expected"]["modes"]) == ("pass", ["enabled"])
    assert answer["expected"]["source"].startswith("rollout ")
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
        process = eos.start("drift", "--watch", "5", "--json")
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
        output, errors = self.process.communicate(timeout=NOTICED_SECONDS)
        seconds = time.monotonic() - since
        assert self.process.returncode == FOUND, errors
        answer: dict[str, Any] = json.loads(output)
        (finding,) = (f for f in answer["findings"] if (f["kind"], f["subject"]) == (kind, subject))
        assert finding["remedy"]
        assert seconds < NOTICED_SECONDS
        return dict(finding)


def test_a_stale_worker_in_disabled_that_nobody_has_described_is_noticed(lab: Lab, eos: Any, watch: Watch) -> None:
    since = time.monotonic()
    stranger = lab.add_worker(mode=Mode.DISABLED, listed=False, wait=False)
    try:
        worker_id = lab.connect_urls[stranger].removeprefix("http://")
        finding = watch.notices(since, kind="unknown member", subject=worker_id)
        lab.start_worker(stranger)  # until it answers
        told = eos.run("drift", expect=FOUND).stdout
    finally:
        lab.stop_worker(stranger)
    assert "not in the cluster file" in finding["what"]
    assert "it runs disabled or preparing, not enabled" in told
    assert "exactly-once does not hold while it is there" in told
    assert f"{MODE_PROPERTY}=enabled" in told


def test_an_edited_file_is_noticed_before_the_worker_restarts_and_can_be_accepted(
    lab: Lab, eos: Any, watch: Watch
) -> None:
    worker = lab.cluster().workers[0]
    assert worker.config is not None
    original = worker.config.read_bytes()
    since = time.monotonic()
    worker.config.write_bytes(set_property(original, MODE_PROPERTY, "disabled"))
    finding = watch.notices(since, kind="edited file", subject=worker.worker_id)
    assert "join as disabled at its next start" in finding["what"]
    assert finding["what"].count("SHA-256") == 1

    meant = original + b"# a remark\n"
    worker.config.write_bytes(meant)
    lab.stop_worker(0)
    lab.start_worker(0)
    assert "is not as rollout" in eos.run("drift", expect=FOUND).stdout
    eos.run("drift", "--accept", digest(meant))

    worker.config.write_bytes(original)
    lab.stop_worker(0)
    lab.start_worker(0)
    eos.run("drift")


def test_a_listed_worker_that_comes_back_in_another_mode_is_noticed(lab: Lab, eos: Any, watch: Watch) -> None:
    worker = lab.cluster().workers[1]
    assert worker.config is not None
    original = worker.config.read_bytes()
    lab.stop_worker(1)
    worker.config.write_bytes(set_property(original, MODE_PROPERTY, "disabled"))
    lab.start_worker(1, wait=False)
    try:
        since = time.monotonic()
        watch.notices(since, kind="edited file", subject=worker.worker_id)
        lab.start_worker(1)
        told = eos.run("drift", expect=FOUND).stdout
        assert f"{worker.worker_id} runs disabled, expected is enabled" in told
    finally:
        worker.config.write_bytes(original)
        lab.stop_worker(1)
        lab.start_worker(1)


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_worker_that_is_gone_is_noticed(lab: Lab, eos: Any, watch: Watch, kill: bool) -> None:
    worker_id = lab.cluster().workers[1].worker_id
    since = time.monotonic()
    lab.stop_worker(1, kill=kill)
    try:
        finding = watch.notices(since, kind="missing worker", subject=worker_id)
    finally:
        lab.start_worker(1)
    assert "does not run" in finding["what"]
    assert "start it again" in finding["remedy"]


def test_a_rollout_under_way_is_no_drift_and_one_left_half_way_is(lab: Lab, eos: Any) -> None:
    plan = eos.plan(Mode.PREPARING)
    rolling = eos.start("apply", plan)
    with eos.line_in_log(rolling, r"stopping pid"):
        answer = json.loads(eos.run("drift", "--json").stdout)
        assert answer["verdict"] == "pass"
        assert answer["expected"]["rollout_under_way"]
    told = eos.run("drift", expect=FOUND).stdout  # line_in_log has killed it
    assert "nobody carries it on" in told
    assert "eos rollout resume" in told
    eos.run("apply", plan)
    eos.run("drift")
