"""What a task remembers of its rollout from one of its processes to the next.

The journal in Kafka is the authority; this lets a task find the rollout that it belongs to, and the gate it waits for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.journal.records import RolloutRecord, RolloutState
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.observe.topic_progress import Memory

#: Key of the rollout's document. Renaming it breaks rollouts that are under way.
CHECKPOINT_KEY = "eos_rollout"

#: Key of the gate that is waited for elsewhere. Renaming it gives gates that are being waited for a new deadline.
GATE_KEY = "eos_gate"


class Checkpoint(Protocol):
    """A place of the caller's: Airflow's task state store."""

    def get(self, key: str) -> dict[str, Any] | None: ...

    def set(self, key: str, value: dict[str, Any]) -> None: ...


class TaskMemory:
    """The documents that a task keeps.

    :param checkpoint: where; None if nothing is kept.
    """

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint

    @property
    def rollout_id(self) -> str | None:
        """The rollout that this task has begun or taken up; None if it has not, or does not know."""
        document = self._checkpoint.get(CHECKPOINT_KEY) if self._checkpoint is not None else None
        return str(document["rollout_id"]) if document else None

    def keep_rollout(self, rollout_id: str) -> None:
        if self._checkpoint is not None:
            self._checkpoint.set(CHECKPOINT_KEY, {"rollout_id": rollout_id})

    def keep_gate(self, gate: GateState) -> None:
        """Note the gate that is handed over, so that a crash does not move its deadline."""
        if self._checkpoint is not None:
            self._checkpoint.set(GATE_KEY, replace(gate, memory=Memory()).to_dict())

    def gate_of(self, record: RolloutRecord) -> GateState | None:
        """The gate of this rollout at which an earlier process was deferred, for one that comes without it."""
        if self._checkpoint is None or record.state is not RolloutState.RUNNING:
            return None  # a gate that has answered since: applied again, the plan gives it its time again
        try:
            gate = GateState.from_dict(self._checkpoint.get(GATE_KEY) or {})
        except ConfigurationError:  # there is none, or none that this version understands
            return None
        return gate if gate.rollout_id == record.rollout_id else None
