"""The states that the gate compares a cluster with: those before the roll, and those expected by now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation


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

    def state(self, connector: str, task: int | None) -> str | None:
        """The state of a connector, or of a task of it, before the roll; None if it was not there."""
        return self.connectors.get(connector) if task is None else self.tasks.get(f"{connector}/{task}")

    def was_reconfigured(self, connector: str, observation: Observation) -> bool:
        """Whether someone has given the connector another configuration since, so that its trouble may be theirs."""
        now = observation.config.connectors.get(connector) if observation.config else None
        return now is not None and self.configs.get(connector, now.config_offset) != now.config_offset


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the gate holds the cluster against.

    :param members: worker ids that must form the group, no more and no fewer.
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


def ended_elsewhere(expectation: Expectation, observation: Observation) -> dict[str, WorkerObservation]:
    """The expected members that have ended, by worker id, without the one whose gate this is."""
    return {worker.worker_id: worker for worker in _elsewhere(expectation, observation) if worker.has_ended}


def silent_elsewhere(expectation: Expectation, observation: Observation) -> frozenset[str]:
    """The expected members whose REST API does not answer, without the one whose gate this is.

    Where no host can be seen, this is the first sign of a worker's end.
    """
    return frozenset(worker.worker_id for worker in _elsewhere(expectation, observation) if worker.root is None)


def _elsewhere(expectation: Expectation, observation: Observation) -> list[WorkerObservation]:
    others = expectation.members - {expectation.worker_id}
    return [worker for worker in observation.workers if worker.worker_id in others]


def reported_changes(before: Collection[str], ended: Mapping[str, WorkerObservation]) -> Iterator[str]:
    """In words, which workers have ended since the look before, how they are started, and which run again."""
    for worker_id in sorted(ended.keys() - set(before)):
        start = ended[worker_id].facts.how_to_start
        yield f"{worker_id} has ended, and not by this roll. The roll waits for it: {start}."
    for worker_id in sorted(set(before) - ended.keys()):
        yield f"{worker_id} runs again; the roll continues when it is a healthy member."
