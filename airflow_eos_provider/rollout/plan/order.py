"""In which order the workers are restarted, and how long their tasks are unassigned.

The order follows a measurement (``tests/benchmarks/order_of_restarts.py``, docs/explanation/how-a-roll-works.md):

* A worker that does not lead leaves its tasks unassigned for the leader's ``scheduled.rebalance.max.delay.ms``, five
  minutes by default: the leader remembers what it had assigned and waits for the worker to come back (KIP-415).
* When the leader itself goes, its successor remembers nothing, so it assigns everything at once; a delay that was
  already running ends as well.

So each restart takes the current leader, if it is pending. The broker chooses the next leader, though: where no pending
worker leads, a pending one is restarted, and then the leader, which is done already, once more, if that ends the delay
sooner than waiting.

Workers that are not ready come before all others: they run no tasks and may be the reason why the group is incomplete
(as in Strimzi's ``KafkaConnectRoller``).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation

#: Seconds from the stop of a worker until its tasks run again, where no rebalance delay adds to it (measured).
RESTART_SECONDS = 15.0

#: A rebalance delay that is longer than this is ended by one more restart of the leader.
LONG_DELAY_SECONDS = 2 * RESTART_SECONDS


@dataclass(frozen=True, slots=True)
class TaskDowntime:
    """For how long the tasks of one worker are unassigned.

    :param tasks: how many tasks it holds now.
    :param best_seconds: if it leads the group when it is restarted; ``worst_seconds``: if it does not.
    """

    worker_id: str
    tasks: int
    best_seconds: float
    worst_seconds: float
    reason: str

    def __str__(self) -> str:
        return f"{about(self.best_seconds, self.worst_seconds)}: {self.reason}"


def about(best_seconds: float, worst_seconds: float) -> str:
    """``about 15 s``, or ``about 15 s, at worst 30 s`` where the two differ as they are shown."""
    best, worst = f"{best_seconds:.0f} s", f"{worst_seconds:.0f} s"
    return f"about {best}" if best == worst else f"about {best}, at worst {worst}"


def next_worker(pending: Iterable[str], observation: Observation) -> str | None:
    """Which of the pending workers is restarted next; None if none is pending."""
    return next(iter(foreseen(pending, observation)), None)


def foreseen(worker_ids: Iterable[str], observation: Observation) -> list[str]:
    """The workers in the order in which they will be restarted, as far as it can be known now.

    Who leads once the leader is done is up to the broker, and decides the rest of the order at each step.
    """
    return sorted(worker_ids, key=lambda worker_id: _rank(observation.worker(worker_id), observation))


def _rank(worker: WorkerObservation, observation: Observation) -> tuple[int, int, str]:
    if not worker.is_running or not worker.is_healthy:
        return (0, 0, worker.worker_id)
    if worker.worker_id == observation.leader_id:
        return (1, 0, worker.worker_id)
    # None of the others leads: the one with the fewest tasks leaves the fewest unassigned for the delay.
    return (2, len(observation.tasks_on(worker.worker_id)), worker.worker_id)


def leader_that_ends_delay(observation: Observation, done: Set[str], remaining_seconds: float) -> str | None:
    """The leader, if restarting it ends a rebalance delay sooner than waiting would."""
    if observation.group is None or not observation.group.is_stable or observation.leader_id not in done:
        return None
    return observation.leader_id if remaining_seconds > LONG_DELAY_SECONDS else None


def predict(worker_id: str, observation: Observation) -> TaskDowntime:
    """The predicted task downtime of this worker, when its turn comes."""
    worker = observation.worker(worker_id)
    tasks, both = len(observation.tasks_on(worker_id)), (RESTART_SECONDS, RESTART_SECONDS)
    if not worker.is_running:
        return TaskDowntime(worker_id, 0, 0.0, 0.0, "it is stopped and holds no tasks; only its configuration changes")
    if all(other is worker or not other.is_running for other in observation.workers):
        alone = "no other worker runs, so no connector of the group runs until it is back"
        return TaskDowntime(worker_id, tasks, *both, alone)
    protocol = observation.group.protocol if observation.group else ""
    delay_seconds = observation.rebalance_delay_ms / 1000
    if protocol in ("default", "eager"):
        return TaskDowntime(worker_id, tasks, *both, "eager protocol: every rebalance stops all tasks")
    if worker_id == observation.leader_id:
        return TaskDowntime(worker_id, tasks, *both, "it leads the group, so no rebalance delay follows")
    if delay_seconds > LONG_DELAY_SECONDS:
        worst = 2 * RESTART_SECONDS
        otherwise = f"the leader is restarted once more to end the rebalance delay of {delay_seconds:.0f} s"
    else:
        worst = RESTART_SECONDS + delay_seconds
        otherwise = f"the rebalance delay of {delay_seconds:.0f} s"
    reason = f"no delay if it leads when its turn comes, otherwise {otherwise}"
    return TaskDowntime(worker_id, tasks, RESTART_SECONDS, worst, reason)
