"""How far partitions can be read, by readers of committed records and by all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from airflow_eos_provider.kafka.ends import Ends, Reach
from airflow_eos_provider.kafka.held_open import Place
from airflow_eos_provider.kafka.session import Session

#: Limit of one question for a topic's ends, seconds.
_ENDS_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """How far a partition can be read.

    :param stable: the last stable offset: readers of committed records get no further.
    :param end: the offset after the last record or marker.
    """

    stable: int
    end: int

    @property
    def waiting(self) -> int:
        """Offsets that readers of committed records wait for."""
        return self.end - self.stable

    def to_dict(self) -> dict[str, int]:
        """The same as JSON. Scripts rely on the names."""
        return {**asdict(self), "waiting": self.waiting}


def ends_of(kafka: Session, places: Iterable[Place]) -> dict[Place, PartitionEnds]:
    """The ends of partitions.

    :raises ConfigurationError: there is no such topic or partition.
    :raises UnreachableError: no broker answers.
    """
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(set(places)):
        wanted[topic].append(partition)
    found = {}
    with kafka.admin() as admin:
        for topic, partitions in wanted.items():
            stable = Ends(admin, topic, Reach(partitions=partitions, stable_only=True), _ENDS_SECONDS).now()
            end = Ends(admin, topic, Reach(partitions=partitions), _ENDS_SECONDS).now()
            found.update({(topic, number): PartitionEnds(stable[number], end[number]) for number in partitions})
    return found
