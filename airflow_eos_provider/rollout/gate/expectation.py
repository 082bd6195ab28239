"""The states that the gate compares a cluster with: those before the roll, and those expected by now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.rollout.observe.observation import Observation


@dataclass(frozen=True, slots=True)
class Baseline:
    """The connectors before the roll, so that a task that was broken before is not blamed on it.

    :param connectors: state by connector.
    :param tasks: state by ``connector/number``.
    :param configs: by connector, the offset of its configuration in the config topic; empty if that was not readable.
    """

    connectors: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, observation: Observation) -> Baseline:
        statuses = observation.statuses or {}
        configs = observation.config.connectors if observation.config else {}
        return cls(
            connectors={name: status.state for name, status in statuses.items()},
            tasks={f"{n}/{task.number}": task.state for n, status in statuses.items() for task in status.tasks},
            configs={name: state.config_offset for name, state in configs.items()},
        )

    def was_reconfigured(self, connector: str, observation: Observation) -> bool:
        """Whether someone has given the connector another configuration since, so that its trouble may be theirs."""
        now = observation.config.connectors.get(connector) if observation.config else None
        return now is not None and self.configs.get(connector, now.config_offset) != now.config_offset


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the gate holds the cluster against.

    :param members: worker ids that must form the group, no more and no fewer.
    :param baseline: states before the roll.
    :param modes: the mode that each running worker must be proven to have by now.
    :param worker_id: the worker that was just restarted; None for a look before the first restart.
    :param digest: of what its edit must hold.
    :param restarted_after: when its restart was announced, seconds since the epoch.
    :param replaces: start token of the process that its restart replaces; it must run as another one.
    """

    members: frozenset[str]
    baseline: Baseline
    modes: Mapping[str, Mode]
    worker_id: str | None = None
    digest: str | None = None
    restarted_after: float = 0.0
    replaces: str = ""
