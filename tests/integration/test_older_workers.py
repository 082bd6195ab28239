"""Rolls of Connect 3.9.2 and 3.8.1 (which has no ``/health``) on a broker of today: up, and back, under load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.settings import RolloutSettings

pytestmark = pytest.mark.slow

#: A heartbeat of these labs and a second; a look costs half a second.
SETTINGS = RolloutSettings(poll_interval_seconds=0.5, hold_seconds=3.0)


@pytest.mark.parametrize(("version", "health"), [("3.9.2", "healthy"), ("3.8.1", "absent")])
def test_an_older_group_rolls_up_to_enabled_and_back(
    lab_factory: Callable[[LabOptions], Lab], load_on: Callable[[Lab, str], Any], version: str, health: str
) -> None:
    name = f"older-{version.replace('.', '-')}"
    lab = lab_factory(LabOptions(name=name, workers=2, connect_version=version, session_timeout_ms=6000))
    for url in lab.connect_urls:
        with ConnectRest(url) as rest:
            assert (rest.root().version, rest.health().status) == (version, health)
    controller = Controller(lab.cluster(), settings=SETTINGS)

    with load_on(lab, "lines") as load:
        controller.apply(controller.plan(Mode.PREPARING))
        enabled_at = controller.apply(controller.plan(Mode.ENABLED)).finished_at_ms
        controller.verify(Mode.ENABLED)
        seen = load.compared(since_ms=enabled_at)
    assert seen.exactly_once, seen

    with load_on(lab, "more") as load:
        controller.apply(controller.plan(Mode.DISABLED))
        controller.verify(Mode.DISABLED)
        seen = load.compared()
    assert seen.nothing_missing, seen
    for worker in lab.workers:
        assert parse(worker.config.read_bytes())[MODE_PROPERTY] == "disabled"
    assert "started with disabled" in controller.observe().workers[0].mode.reason
    lab.down()
