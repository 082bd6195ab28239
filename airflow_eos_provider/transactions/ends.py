"""How far partitions can be read, by readers of committed records and by all."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.kafka.admin.open_transactions import Place
from airflow_eos_provider.kafka.clients import MOVED, NOT_KNOWN, QuietAdmin
from airflow_eos_provider.kafka.session import Session

#: Limit of one question about all partitions, seconds.
_ENDS_SECONDS = 15.0

_PAUSE_SECONDS = 0.1

_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


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
        stable = _offsets(admin, asked, IsolationLevel.READ_COMMITTED)
        ends = _offsets(admin, asked, IsolationLevel.READ_UNCOMMITTED)
    for place in asked:
        found[place] = _both(stable[place], ends[place])
    return dict(sorted(found.items()))


def known_ends(kafka: Session, place: Place) -> PartitionEnds:
    found = ends_of(kafka, [place])[place]
    if isinstance(found, str):
        raise EosError(f"eos cannot tell how far {place[0]}-{place[1]} can be read: {found}.")
    return found


def _both(stable: int | str, end: int | str) -> EndsOrWhy:
    if isinstance(stable, int) and isinstance(end, int):
        return PartitionEnds(stable, max(end, stable))  # it may have moved between the two questions
    return next(why for why in (stable, end) if isinstance(why, str))


def _with_a_leader(admin: QuietAdmin, places: Collection[Place]) -> tuple[list[Place], dict[Place, EndsOrWhy]]:
    """The partitions that can be asked, and of the others why not: a client waits its whole time for a leader."""
    topics = admin.topics(_ENDS_SECONDS)
    asked, found = [], dict[Place, EndsOrWhy]()
    for place in places:
        partitions = topics[place[0]].partitions if place[0] in topics else {}
        if place[1] not in partitions:
            found[place] = "there is no such partition, or the principal may not see its topic"
        elif partitions[place[1]].leader < 0:
            found[place] = "it has no leader"
        else:
            asked.append(place)
    return asked, found


def _offsets(admin: QuietAdmin, places: Collection[Place], isolation: IsolationLevel) -> dict[Place, int | str]:
    """By partition its end for readers of one kind, or why it is not known. Who has just become its
    leader, or has not heard of it yet, is asked again."""
    found: dict[Place, int | str] = {}
    deadline = time.monotonic() + _ENDS_SECONDS
    left = set(places)
    while left:
        wanted = dict.fromkeys([TopicPartition(*place) for place in sorted(left)], _LATEST)
        answers: Mapping[TopicPartition, object] = admin.client.list_offsets(
            wanted, isolation_level=isolation, request_timeout=_ENDS_SECONDS
        )
        for tp, future in answers.items():
            try:
                found[tp.topic, tp.partition] = int(future.result().offset)  # type: ignore[attr-defined]
            except KafkaException as error:
                if error.args[0].code() in MOVED | NOT_KNOWN and time.monotonic() < deadline:
                    continue
                found[tp.topic, tp.partition] = _reason(admin, error)
            left.discard((tp.topic, tp.partition))
        if left:
            time.sleep(_PAUSE_SECONDS)  # between two questions; the deadline bounds them
    return found


def _reason(admin: QuietAdmin, error: KafkaException) -> str:
    code = error.args[0].code()
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return "the principal may not read the topic"
    return admin.explain(error, "asking for its end").found.rstrip(".")
