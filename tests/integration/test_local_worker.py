"""A real worker of this machine, changed, restarted and put back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.processes import ProcessIdentity, from_pid_file
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import WorkerStartError
from airflow_eos_provider.rollout.hosts.service import restart_act


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Any]) -> Any:
    return lab_factory(name="process-host", workers=1, mode=Mode.DISABLED, rebalance_delay_ms=1000)


def wait_until_healthy(url: str, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with ConnectRest(url, retry_seconds=0.0) as rest:
                if rest.health().status == "healthy":
                    return
        except EosError:
            pass
        assert time.monotonic() < deadline, f"{url} was not healthy within {seconds} s"
        time.sleep(0.3)


def process_of(worker: WorkerDescription) -> ProcessIdentity:
    assert worker.pid_file is not None
    found = from_pid_file(worker.pid_file)
    assert found is not None
    return found


def test_a_worker_is_changed_restarted_and_put_back(lab: Any) -> None:
    (worker,) = lab.cluster().workers
    host = host_of(worker)
    before = host.observe()
    assert before.problem is None
    old = process_of(worker)
    assert before.running.mode is Mode.DISABLED, before.running.detail
    assert before.running.reads_file is True

    planned = host.digest_with({MODE_PROPERTY: "preparing"})
    written = host.edit({MODE_PROPERTY: "preparing"}, expect=before.digest or "")
    assert written == planned
    host.restart()
    wait_until_healthy(worker.url)
    after = host.observe()
    assert after.start_token not in ("", before.start_token)
    assert not old.is_alive()
    assert after.running.mode is Mode.PREPARING, after.running.detail
    assert after.declared.changed_at is not None
    assert after.running.started_at is not None
    assert after.declared.changed_at < after.running.started_at

    host.restore(expect=written, original=before.digest or "")
    host.restart()
    wait_until_healthy(worker.url)
    restored = host.observe()
    assert restored.digest == before.digest
    assert restored.running.mode is Mode.DISABLED


def test_a_worker_killed_from_outside_is_seen_and_started_again(lab: Any) -> None:
    (worker,) = lab.cluster().workers
    host = host_of(worker)
    process = process_of(worker)
    process.stop(kill=True)
    assert host.observe().running.alive is False
    host.restart()
    wait_until_healthy(worker.url)
    facts = host.observe()
    assert process_of(worker) != process
    assert facts.running.mode is Mode.DISABLED


def test_a_worker_that_refuses_its_settings_is_reported_with_what_its_log_says(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_act, "EARLY_END_SECONDS", 120.0)  # a JVM on a busy machine needs its time to end
    (worker,) = lab.cluster().workers
    assert worker.config is not None
    host = host_of(worker)
    good = worker.config.read_bytes()
    bad = set_property(set_property(good, MODE_PROPERTY, "nonsense"), "ssl.key.password", "canary")
    worker.config.write_bytes(bad)
    try:
        with pytest.raises(WorkerStartError) as caught:
            host.restart()
        assert "nonsense" in str(caught.value)
        assert "canary" not in str(caught.value)
        assert "would not start" in host.observe().declared.detail
    finally:
        worker.config.write_bytes(good)
        host.restart()
        wait_until_healthy(worker.url)


def test_a_worker_restarted_by_hand_behind_our_back_is_still_known(lab: Any) -> None:
    (worker,) = lab.cluster().workers
    assert worker.pid_file is not None
    hidden = replace(worker, pid_file=worker.pid_file.with_name("lost.pid"))
    facts = host_of(hidden).observe()
    assert facts.start_token == host_of(worker).observe().start_token != ""
    assert facts.running.alive is True
