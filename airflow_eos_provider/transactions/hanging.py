"""Hanging transactions: open in a partition, and known to no coordinator as open there (KIP-664).

Nothing ends such a transaction: readers of committed records wait behind it for ever, and the topic is not compacted.
A write that came late leaves one (KIP-890), or a marker that was never written (KAFKA-20734).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_eos_provider.kafka.admin.client import Place
from airflow_eos_provider.kafka.admin.open_transactions import HeldLook, HeldOpen
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription, TransactionListing, TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of

#: The brokers' own topic of transactional ids; each of its partitions has a coordinator.
STATE_TOPIC = "__transaction_state"


@dataclass(frozen=True, slots=True)
class Hanging:
    """A transaction that a partition holds open and no coordinator knows there.

    :param transactional_id: of its producer; None if no coordinator knows the producer any more.
    :param state: what the coordinator says of that id.
    :param epoch: the epoch that it has there; that of the partition, if its producer was not fenced since.
    """

    held: HeldOpen
    transactional_id: str | None = None
    state: TransactionState | None = None
    epoch: int | None = None

    @property
    def may_be_written(self) -> bool:
        """Whether its producer may be alive, and write into this very transaction again."""
        return self.transactional_id is not None and self.epoch == self.held.producer_epoch

    @property
    def may_be_committed(self) -> bool:
        """Whether its commit may have been acknowledged to its producer: the brokers left its marker out here.

        A broker that decides a transaction takes a partition without a leader for one that was deleted, and leaves it
        out (KAFKA-20734). A late write after a commit looks the same; and a producer that came later hides it.
        """
        return self.state is TransactionState.COMPLETE_COMMIT

    @property
    def is_open_elsewhere(self) -> bool:
        return self.state is not None and self.state.is_open

    @property
    def abort_command(self) -> str:
        """The command that ends it, with ``--fence`` where it is refused without."""
        held = self.held
        which = f"--topic {held.topic} --partition {held.partition} --start-offset {held.start_offset}"
        return f"eos transactions abort {which}{' --fence' if self.may_be_written else ''}"

    @property
    def how_to_end(self) -> str:
        """What to do about it, as part of a sentence."""
        first = (
            f"stop the producer of {self.transactional_id}, which is at work; then " if self.is_open_elsewhere else ""
        )
        return f"{first}'{self.abort_command}' ends it"


@dataclass(frozen=True, slots=True)
class HangingLook:
    """What was found in some partitions.

    :param unseen: open, of producers that no coordinator has named, while not all of them could be asked: alive or
        hanging.
    :param unknown: partitions of which nothing is known, with the reason.
    :param hidden: why there may be further topics; empty if all that are of interest were looked at.
    """

    hanging: tuple[Hanging, ...]
    unseen: tuple[HeldOpen, ...]
    unknown: Mapping[Place, str]
    hidden: str = ""

    @property
    def is_whole(self) -> bool:
        return not (self.unseen or self.unknown or self.hidden)


def find_hanging(kafka: Kafka, places: Collection[Place], coordinators: int, hidden: str = "") -> HangingLook:
    """Look for hanging transactions.

    The partitions are asked, then the coordinators, then the partitions again. What was open both times is one and the
    same transaction; a coordinator that had it has named it in between, if all of them were asked.
    """
    with session_of(kafka) as session, session.transactions() as client:
        first = client.held_open(places)
        first = first._replace(held=_suspects(client, first.held))
        if not first.held:
            return HangingLook((), (), first.unknown, hidden)
        whole = client.whole_list(coordinators) if coordinators else None
        listed = {one.producer_id: one for one in (client.list() if whole is None else whole)}
        producers = {held.producer_id for held in first.held}
        described = client.describe(one.transactional_id for one in listed.values() if one.producer_id in producers)
        second = client.held_open(sorted({held.place for held in first.held}))
    found = decide(first, second, listed, described.values(), is_whole=whole is not None)
    return replace(found, hidden=hidden)


def _suspects(client: TransactionsClient, held: Collection[HeldOpen]) -> tuple[HeldOpen, ...]:
    """Those that no coordinator has open there. Usually there are none, so the whole list need not be read."""
    if not held:
        return ()
    opened = client.describe(one.transactional_id for one in client.list(open_only=True))
    alive = {(one.producer_id, place) for one in opened.values() if one.state.is_open for place in one.partitions}
    return tuple(one for one in held if (one.producer_id, one.place) not in alive)


def decide(
    first: HeldLook,
    second: HeldLook,
    listed: Mapping[int, TransactionListing],
    described: Iterable[TransactionDescription],
    *,
    is_whole: bool,
) -> HangingLook:
    """What two looks at the partitions, and one at the coordinators between them, come to.

    :param is_whole: whether an id that is not listed is known to no coordinator.
    """
    known = {one.producer_id: one for one in described}
    before = {(held.place, held.producer_id, held.start_offset) for held in first.held}
    hanging, unseen = [], []
    for held in second.held:
        if (held.place, held.producer_id, held.start_offset) not in before:
            continue
        owner = known.get(held.producer_id)
        if owner is not None and owner.state.is_open and held.place in owner.partitions:
            continue
        if owner is not None:
            hanging.append(Hanging(held, owner.transactional_id, owner.state, owner.producer_epoch))
        elif held.producer_id in listed or not is_whole:
            unseen.append(held)
        else:
            hanging.append(Hanging(held))
    return HangingLook(tuple(hanging), tuple(unseen), {**first.unknown, **second.unknown})
