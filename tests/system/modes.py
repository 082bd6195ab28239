"""Brings a lab's workers into a mode by whatever rolls that takes, so that a test needs no other test before it."""

from __future__ import annotations

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.settings import RolloutSettings
from tests import seen

SETTINGS = RolloutSettings(poll_interval_seconds=0.3, hold_seconds=1.0)


def bring_to(lab: Lab, mode: Mode) -> None:
    """Have every worker run in a mode; nothing to do if all do.

    :raises EosError: a roll did not succeed.
    """
    modes = seen.modes(lab)
    if modes == {mode}:
        return
    if {mode, *modes} >= {Mode.DISABLED, Mode.ENABLED}:
        bring_to(lab, Mode.PREPARING)
    with Controller(lab.cluster(), settings=SETTINGS) as controller:
        controller.apply(controller.plan(mode), take_over=True)  # a test that failed may have left its lease
