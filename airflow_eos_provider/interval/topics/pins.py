"""Topics by name and topic id, as a run's records keep them.

A topic that is deleted and recreated has the same name, another id, and none of its content. With another ledger, a run
would write committed records again; with another target, it would complete with records that no one can read. So the
plan, the pipeline's record and ``complete`` name topics with their ids, and every attempt compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_eos_provider.errors import RefusedError

#: Names of the pinned values in ``complete``. Stored: never change them.
LEDGER_VALUE, LEDGER_ID_VALUE = "ledger", "ledgerId"
TARGET_VALUE, TARGET_ID_VALUE = "topic", "topicId"


class TopicChangedError(RefusedError):
    """A run or its pipeline was started with another topic. Continuing would lose or duplicate records."""


@dataclass(frozen=True, slots=True)
class TopicPin:
    """One topic.

    :param id: Kafka's id of it in the brokers' spelling (22 characters of base64); empty if the brokers gave none, or
        if there is no such topic.
    """

    name: str
    id: str = ""

    def __str__(self) -> str:
        return f"{self.name} (id {self.id})" if self.id else self.name


@dataclass(frozen=True, slots=True)
class Pins:
    """The topics of a run.

    :param target: where its records go; None where the rows name their topics.
    :param control: the control topic; None in what is stored, for there it is the topic that the record is in.
    """

    ledger: TopicPin
    target: TopicPin | None = None
    control: TopicPin | None = None

    def to_values(self) -> dict[str, str]:
        """As names and values of a record."""
        values = {LEDGER_VALUE: self.ledger.name, LEDGER_ID_VALUE: self.ledger.id}
        if self.target is not None:
            values |= {TARGET_VALUE: self.target.name, TARGET_ID_VALUE: self.target.id}
        return values

    @classmethod
    def of_values(cls, values: Mapping[str, object]) -> Pins | None:
        """The pins that :meth:`to_values` wrote; None where it names none."""
        if LEDGER_VALUE not in values:
            return None
        target = TopicPin(str(values[TARGET_VALUE]), str(values[TARGET_ID_VALUE])) if TARGET_VALUE in values else None
        return cls(TopicPin(str(values[LEDGER_VALUE]), str(values[LEDGER_ID_VALUE])), target)


@dataclass(frozen=True, slots=True)
class Pinned:
    """Pins that are on record."""

    by: str
    pins: Pins | None
    with_target: bool = True


def changes(pinned: Pins, found: Pins, *, with_target: bool = True) -> list[str]:
    """How the topics found differ from the pinned ones, a sentence each."""
    pairs: list[tuple[str, TopicPin | None, TopicPin]] = [("ledger", pinned.ledger, found.ledger)]
    if with_target and found.target is not None:
        pairs.append(("target", pinned.target, found.target))
    if pinned.control is not None and found.control is not None:
        pairs.append(("control topic", pinned.control, found.control))
    return [sentence for role, was, now in pairs if (sentence := _change(role, was, now))]


def _change(role: str, was: TopicPin | None, now: TopicPin) -> str:
    if was is None:
        return f"its rows named their topics, now the {role} is {now}"
    if was.name != now.name:
        return f"its {role} was {was}, now it is {now}"
    if was.id and not now.id:
        return f"its {role} {was} is gone"
    if was.id and was.id != now.id:
        return f"its {role} {was} was deleted and recreated: {now.name} now has the id {now.id}"
    return ""


def require_same(what: str, pinned: Sequence[Pinned], found: Pins) -> None:
    """Compare the topics found with those on record."""
    for entry in pinned:
        if entry.pins is None:
            raise TopicChangedError(
                f"{what}: {entry.by} names no topics, so nothing shows which ones it is about.",
                expected="the ledger's name and id, as every version writes them",
                remedy="Find out who wrote the record. Write the interval under another pipeline name.",
            )
        if different := changes(entry.pins, found, with_target=entry.with_target):
            raise TopicChangedError(
                f"{what} has other topics than {entry.by}: {'; '.join(different)}.",
                expected="the topics that it was started with",
                remedy=_remedy(entry.pins, found),
            )


def _remedy(pinned: Pins, found: Pins) -> str:
    if pinned.ledger.name != found.ledger.name:
        return f"Give the pipeline ledger_topic={pinned.ledger.name} again: it lists the written intervals."
    if pinned.ledger.id != found.ledger.id:
        return (
            "The old ledger's records of written intervals are lost. Find out which records are in the target, and "
            "write the missing ones under another pipeline name."
        )
    if pinned.target is not None and found.target is not None and pinned.target.name != found.target.name:
        return (
            f"Give the pipeline topic={pinned.target.name} again. To write a complete interval into another topic, "
            "write its next revision."
        )
    if pinned.control is not None and found.control is not None and pinned.control.id != found.control.id:
        return "Run the interval again. If no run is committed in part, the new control topic replaces the old one."
    return (
        "The records of the old topic are lost. If the interval is complete, write its next revision. If it is "
        "running, write it under another pipeline name, or abandon it if none of its slices is committed."
    )
