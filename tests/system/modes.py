"""Brings a lab's workers into a mode by whatever rolls that takes, so that a test needs no other test before it.

What a test that failed has left open, nobody would finish, and everything else is refused meanwhile: it is closed.
"""

from __future__ import annotations

from airflow_eos_provider.changes.closing.change import CLOSE, CloseRequest
from airflow_eos_provider.changes.engine import carry_out, planned
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests import seen

SETTINGS = RolloutSettings(poll_interval_seconds=0.3, hold_seconds=1.0, gate_timeout_seconds=600.0)


def close_what_is_open(lab: Lab) -> None:
    """Close each roll and each change that is not finished, whoever carries it out."""
    cluster = lab.cluster()
    content = read_journal(cluster.kafka, cluster.group_id)
    is_open = [name for name, record in {**content.rollouts, **content.changes}.items() if record.state.is_open]
    if not is_open:
        return
    with ConnectSession(cluster) as session:
        for name in is_open:
            plan = planned(CLOSE, session, CloseRequest(name, take_over=True))
            if not plan.nothing:
                carry_out(CLOSE, session, plan, actor="a test", reason="its test has ended")


def bring_to(lab: Lab, mode: Mode) -> None:
    """Have every worker run in a mode; nothing to do if all do."""
    close_what_is_open(lab)
    modes = seen.modes(lab)
    if modes == {mode}:
        return
    if {mode, *modes} >= {Mode.DISABLED, Mode.ENABLED}:
        bring_to(lab, Mode.PREPARING)
    with Controller(lab.cluster(), settings=SETTINGS) as controller:
        controller.apply(controller.plan(mode), take_over=True)  # a test that failed may have left its lease
