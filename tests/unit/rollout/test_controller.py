"""What the controller refuses before it looks at a cluster. The journal's content is given; all else is real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import StopRequestedError
from airflow_eos_provider.rollout import controller as module
from airflow_eos_provider.rollout.controller import CHECKPOINT_KEY, CHECKPOINT_SCHEMA, Controller
from airflow_eos_provider.rollout.records import JournalContent, RolloutRecord, RolloutState


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
