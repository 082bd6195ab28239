"""What the controller refuses before it looks at a cluster. The journal's content is given; all else is real."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, FencedError, PlanMovedError, StopRequestedError
from airflow_eos_provider.rollout import controller as module
from airflow_eos_provider.rollout.checkpoint import CHECKPOINT_KEY, CHECKPOINT_SCHEMA, GATE_KEY, TaskMemory
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.gate import GateWatch
from airflow_eos_provider.rollout.records import JournalContent, Lease, Owner, RolloutRecord, RolloutState
from airflow_eos_provider.rollout.waiting import GateWait


class Remembered:
    """A caller's note of the rollout that it carries."""

    def __init__(self, rollout_id: str) -> None:
        self.rollout_id = rollout_id

    def get(self, key: str) -> dict[str, Any]:
        assert key == CHECKPOINT_KEY
        return {"schema": CHECKPOINT_SCHEMA, "rollout_id": self.rollout_id, "plan_hash": "p1"}

    def set(self, key: str, value: dict[str, Any]) -> None:
        raise AssertionError("a rollout was begun")


@pytest.fixture
def described(tmp_path: Path) -> ConnectCluster:
    file = tmp_path / "eos.yaml"
    file.write_text(
        "bootstrap_servers: 127.0.0.1:1\ngroup_id: lab\nworkers:\n  - {url: 'http://127.0.0.1:2', host: process}\n",
        encoding="utf-8",
    )
    return ConnectCluster.from_file(file)


def test_a_retry_of_an_aborted_rollout_begins_nothing(
    described: ConnectCluster, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan may still fit, since nothing was touched: all the same somebody has given it up."""
    plan = cluster.plan(Mode.PREPARING)
    record = RolloutRecord("r1", plan.to_dict(), {}, RolloutState.ABORTED, 1.0, note="ann asked for abort: wrong one")
    monkeypatch.setattr(module, "read_journal", lambda *_: JournalContent(rollouts={"r1": record}))
    with pytest.raises(StopRequestedError, match="ann asked for abort: wrong one"):
        Controller(described, checkpoint=Remembered("r1")).apply(plan)


TASK = "upgrade/manual/roll"


def waited() -> GateWait:
    return GateWait("r1", None, 0.0, GateWatch(polls=1, hold_seconds=0.0, deadline=1.0).to_dict())


@pytest.mark.parametrize("owner", [Owner.deferred_task("upgrade/another/roll"), Owner.this_process()])
def test_a_task_that_was_taken_over_while_it_was_deferred_touches_nothing(
    described: ConnectCluster, cluster: Any, monkeypatch: pytest.MonkeyPatch, owner: Owner
) -> None:
    plan = cluster.plan(Mode.PREPARING)
    record = RolloutRecord("r1", plan.to_dict(), {}, RolloutState.RUNNING, 1.0)
    lease = Lease(owner, "r1", "bob", "w1: intent", time.time() + 60.0)
    monkeypatch.setattr(module, "read_journal", lambda *_: JournalContent(lease, {"r1": record}))
    with pytest.raises(FencedError, match="while this task was deferred"):
        Controller(described, task=TASK).go_on(plan, waited())


def test_a_deferred_task_whose_plan_was_changed_meanwhile_touches_nothing(
    described: ConnectCluster, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RolloutRecord("r1", cluster.plan(Mode.PREPARING).to_dict(), {}, RolloutState.RUNNING, 1.0)
    lease = Lease(Owner.deferred_task(TASK), "r1", "ann", "waiting", time.time() + 60.0)
    monkeypatch.setattr(module, "read_journal", lambda *_: JournalContent(lease, {"r1": record}))
    with pytest.raises(PlanMovedError, match="Rollout r1 carries out plan"):
        Controller(described, task=TASK).go_on(cluster.plan(Mode.ENABLED), waited())


def test_gates_are_handed_over_only_where_a_task_can_come_back(described: ConnectCluster, cluster: Any) -> None:
    with pytest.raises(ConfigurationError, match="no task was named"):
        Controller(described).advance(cluster.plan(Mode.PREPARING))


class Stored(Remembered):
    """A caller's note of the gate at which its last process was deferred."""

    def __init__(self, document: dict[str, Any] | None) -> None:
        self.document = document

    def get(self, key: str) -> Any:
        assert key == GATE_KEY
        return self.document


@pytest.mark.parametrize(
    ("document", "state", "remembered"),
    [
        (waited().to_dict(), RolloutState.RUNNING, True),
        (waited().to_dict(), RolloutState.PAUSED, False),  # that gate has answered, so the next one begins anew
        ({**waited().to_dict(), "rollout_id": "r0"}, RolloutState.RUNNING, False),
        ({"schema": 99}, RolloutState.RUNNING, False),
        (None, RolloutState.RUNNING, False),
    ],
)
def test_the_gate_at_which_a_killed_process_was_deferred_is_remembered(
    document: dict[str, Any] | None, state: RolloutState, remembered: bool
) -> None:
    found = TaskMemory(Stored(document)).gate_of(RolloutRecord("r1", {}, {}, state, 1.0))
    assert found == (waited() if remembered else None)
    assert TaskMemory(None).gate_of(RolloutRecord("r1", {}, {}, state, 1.0)) is None
