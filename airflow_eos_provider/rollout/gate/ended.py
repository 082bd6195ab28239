"""Workers that ended during a roll and were not stopped by it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from airflow_eos_provider.rollout.gate.expectation import Expectation
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation


def has_ended(worker: WorkerObservation) -> bool:
    """Whether this worker's process is known to be gone; False also where that is not known."""
    return not worker.facts.is_running and worker.facts.running.alive is False


def ended_elsewhere(expectation: Expectation, observation: Observation) -> dict[str, WorkerObservation]:
    """The expected members that have ended, by worker id, without the one whose gate this is."""
    return {
        worker.worker_id: worker
        for worker in observation.workers
        if worker.worker_id in expectation.members and worker.worker_id != expectation.worker_id and has_ended(worker)
    }


def reported_changes(before: Collection[str], ended: Mapping[str, WorkerObservation]) -> Iterator[str]:
    """In words, which workers have ended since the look before, how they are started, and which run again.

    :param before: worker ids that had ended at the look before.
    """
    for worker_id in sorted(ended.keys() - set(before)):
        start = ended[worker_id].facts.how_to_start
        yield f"{worker_id} has ended, and not by this roll. The roll waits for it: {start}."
    for worker_id in sorted(set(before) - ended.keys()):
        yield f"{worker_id} runs again; the roll continues when it is a healthy member."


def silent_elsewhere(expectation: Expectation, observation: Observation) -> frozenset[str]:
    """The expected members whose REST API does not answer, without the one whose gate this is.

    Where no host can be seen, this is the first sign of a worker's end.
    """
    return frozenset(
        worker.worker_id
        for worker in observation.workers
        if worker.worker_id in expectation.members and worker.worker_id != expectation.worker_id and worker.root is None
    )
