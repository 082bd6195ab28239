"""What a roll to enabled does to source connectors whose clients use another Kafka cluster than the workers.

Below ``enabled`` such a connector has its offsets in the workers' global topic, unless it names a topic of its own. In
the mode ``enabled`` its task writes them with its producer, so they are in the producer's cluster; it reads them with
its consumer's overrides, and its zombies are fenced with its admin client's overrides
(``Worker.offsetStoreForExactlyOnceSourceTask`` and ``fenceZombies``, Connect 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_eos_provider.connect.cluster.other_kafka import OVERRIDES
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.rollout.check import Check, failed, inconclusive, passed
from airflow_eos_provider.rollout.observe.client_clusters import ClientClusters
from airflow_eos_provider.rollout.observe.observation import Observation

NAME = "other clusters"


def matters(observation: Observation, target: Mode) -> bool:
    """Whether this roll is the one that begins exactly-once: its target does, and no worker runs in it yet."""
    begun = any(worker.mode.verdict.mode is Mode.ENABLED for worker in observation.workers)
    return target.runs_exactly_once_tasks and not begun


def other_clusters(clients: Mapping[str, ClientClusters] | None) -> Check:
    """No source connector loses its offsets, or its fencing, to another Kafka cluster.

    :param clients: of those that are not stopped and have addresses of their own; None where this roll does not begin
        exactly-once.
    """
    if clients is None:
        return passed(NAME, "asked when exactly-once begins")
    for name, found in clients.items():
        if not found.problem and (problem := _problem(name, found)) is not None:
            evidence, remedy = problem
            return failed(NAME, f"{name}: {evidence}", f"{remedy}; or stop {name} until that is done")
    for name, found in clients.items():
        if found.problem:
            return inconclusive(
                NAME, f"{name}: {found.problem}", f"{found.remedy}; or stop {name}, and see docs/connect/offsets.md"
            )
    return passed(NAME, "no running source connector has its offsets or its fencing elsewhere")


def _problem(name: str, found: ClientClusters) -> tuple[str, str] | None:
    """What is wrong, and what to do."""
    if found.admin != found.producer:
        return (
            f"its producers write to the Kafka cluster {found.producer} and would be fenced in {found.admin}: a zombie "
            "task could continue to write",
            f"set {OVERRIDES['admin']} to the addresses of {OVERRIDES['producer']}",
        )
    if found.consumer != found.producer:
        return (
            f"its offsets would be written to the Kafka cluster {found.producer} and read from {found.consumer}, so "
            "the offsets that it resumes from are not part of its transactions",
            f"set {OVERRIDES['consumer']} to the addresses of {OVERRIDES['producer']}",
        )
    if found.producer != found.workers and not found.has_own_topic:
        return (
            f"its offsets are in the workers' Kafka cluster {found.workers}; in the mode enabled its tasks read them "
            f"in {found.producer}, find none, and start from the beginning",
            f"move its offsets there first: 'eos offsets migrate {name} --to own'",
        )
    return None
