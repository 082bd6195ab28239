"""How far partitions can be read, by readers of committed records and by all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import TypeAlias

from kafka.errors import KafkaError, TopicAuthorizationFailedError

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.client import Admin, Place
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.questions import LATEST

#: Limit of one question about all partitions, seconds.
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
        return self.end - self.stable


#: Of one partition; or why they are not known, such as that its topic was deleted.
EndsOrWhy: TypeAlias = PartitionEnds | str


def ends_document(ends: EndsOrWhy) -> dict[str, int | str]:
    """The same as JSON. Scripts rely on the names."""
    return {"unknown": ends} if isinstance(ends, str) else {**asdict(ends), "waiting": ends.waiting}


def ends_of(kafka: Session, places: Iterable[Place]) -> dict[Place, EndsOrWhy]:
    """The ends of partitions, asked for all at once; one that cannot be asked has the reason instead."""
    with kafka.admin() as admin:
        asked, found = _with_a_leader(admin, sorted(set(places)))
        what = "listing the end offsets of partitions"
        stable, ends = (
            admin.offsets(asked, LATEST, _ENDS_SECONDS, what, committed=committed) for committed in (True, False)
        )
    for place in asked:
        found[place] = _both(admin, stable[place], ends[place])
    return dict(sorted(found.items()))


def known_ends(kafka: Session, place: Place) -> PartitionEnds:
    found = ends_of(kafka, [place])[place]
    if isinstance(found, str):
        raise EosError(f"eos cannot tell how far {place[0]}-{place[1]} can be read: {found}.")
    return found


def _both(admin: Admin, stable: int | KafkaError, end: int | KafkaError) -> EndsOrWhy:
    for offset in (stable, end):
        if isinstance(offset, TopicAuthorizationFailedError):
            return "the principal may not read the topic"
        if isinstance(offset, KafkaError):
            return admin.explain(offset, "asking for its end").found.rstrip(".")
    return PartitionEnds(stable, max(end, stable))  # it may have moved between the two questions


def _with_a_leader(admin: Admin, places: Collection[Place]) -> tuple[list[Place], dict[Place, EndsOrWhy]]:
    """The partitions that can be asked, and of the others why not: a client waits its whole time for a leader."""
    topics = admin.topics(None, _ENDS_SECONDS)
    asked, found = [], dict[Place, EndsOrWhy]()
    for place in places:
        leaders = topics[place[0]].leaders if place[0] in topics else {}
        if place[1] not in leaders:
            found[place] = "there is no such partition, or the principal may not see its topic"
        elif leaders[place[1]] < 0:
            found[place] = "it has no leader"
        else:
            asked.append(place)
    return asked, found
