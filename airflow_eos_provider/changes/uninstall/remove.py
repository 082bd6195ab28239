"""Finds what this package has left of one group, and removes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.errors import EosError, RefusedError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.verify import control
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.group_change import GroupChange, require_no_open_rollout
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.plan_hash import PLANS_FOLDER
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.machine.properties_file import backup_path
from airflow_eos_provider.rollout.hosts.worker_file import leftovers_of
from airflow_eos_provider.stored import from_json, to_json

_WHY_UNSEEN = "they are on another machine, or its description names none; see docs/reference/left-behind.md"
_AGAIN = "eos then cannot tell which intervals are complete; an interval that runs again is delivered again"
_KEPT = "it says which intervals are complete; without it they would be delivered again (--ledgers removes it)"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was found."""

    kind: str  #: ``topic``, ``file`` or ``transactional id``
    name: str  #: the topic, the path, or the id
    id: str = ""  #: of a topic
    why: str = ""  #: why it stays, or what goes with it

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" (id {self.id})" if self.id else "")


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a group."""

    kafka_cluster_id: str
    removes: tuple[Item, ...]  #: in the order in which they are removed, without the journal, which is the last
    journal: Item | None = None  #: the journal, if there is one
    has_history: bool = False  #: whether it holds a roll, or a change other than an uninstall that was cut off
    stays: tuple[Item, ...] = ()  #: what was found and is left
    not_seen: tuple[str, ...] = ()  #: what could not be looked at, and why

    def content(self) -> dict[str, Any]:
        """What a plan's hash covers.

        Of the journal only one with a history counts, by its id: the lease of the uninstall itself may create it.
        """
        return {
            "kafka_cluster_id": self.kafka_cluster_id,
            "removes": to_json(self.removes),
            "journal": self.journal.id if self.journal and self.has_history else "",
        }

    def lines(self) -> Iterator[str]:
        """What is left, for a person."""
        for item in (*self.removes, *([self.journal] if self.journal else [])):
            yield f"-{item}" + (f": {item.why}" if item.why else "")
        yield from (f" {item} stays: {item.why}" for item in self.stays)
        yield from (f" not seen: {what}" for what in self.not_seen)


def find(session: ConnectSession, kind: str, interval_group: str, *, ledgers: bool) -> Left:
    """What is left now."""
    kafka, cluster = session.kafka, session.cluster
    content = read_journal(kafka, cluster.group_id)
    require_at_rest(content, kind)
    for worker in cluster.workers:
        if (restart := host_of(worker).observe().restart) is not None:
            raise RefusedError(f"{worker.worker_id}: {restart}.", remedy="Wait until that is over.")
    not_seen: list[str] = []
    files = [*_worker_files(session, not_seen), *_plans()]
    of_intervals = _interval_topics(session, interval_group, ledgers=ledgers)
    return Left(
        kafka.cluster_id(),
        (*files, *(of_intervals if ledgers else ())),
        _journal(session),
        bool(content.rollouts) or any(change.kind != kind for change in content.changes.values()),
        (*(() if ledgers else of_intervals), *_ids(session)),
        tuple(not_seen),
    )


def remove(session: ConnectSession, plan: Plan, act: GroupChange, report: Callable[[str], None]) -> Iterator[str]:
    """Remove what is planned, and last the journal."""
    topics = Topics(session.kafka.settings)
    for item in from_json(tuple[Item, ...], plan.content["removes"]):
        with act.step(str(item)):
            act.confirm(f"remove {item}")
            if item.kind == "file":
                _remove_file(Path(item.name))
            else:
                topics.delete(item.name)
        report(f"{item} is gone.")
        yield item.name
    journal = journal_topic(plan.group_id)
    with act.removal_of_the_journal():
        topics.delete(journal)
    report(f"topic {journal} is gone.")
    yield journal


def require_at_rest(content: JournalContent, kind: str) -> None:
    """Refuse an unfinished roll or change of a group, but for an uninstall that was cut off."""
    require_no_open_rollout(content)
    if content.open_change is not None and content.open_change.kind != kind:
        content.require_no_open_change()


def _journal(session: ConnectSession) -> Item | None:
    name = journal_topic(session.cluster.group_id)
    found = Topics(session.kafka.settings).describe([name]).get(name)
    why = "history, and which lines of workers' files a roll has set temporarily"
    return Item("topic", name, found.id, why) if found is not None else None


def _ids(session: ConnectSession) -> Iterator[Item]:
    name = journal_topic(session.cluster.group_id)
    with session.kafka.transactions() as client:
        known = client.describe([name])
    if name in known:
        yield Item("transactional id", name, why="the brokers forget it after transactional.id.expiration.ms")


def _worker_files(session: ConnectSession, not_seen: list[str]) -> Iterator[Item]:
    for worker in session.cluster.workers:
        if worker.is_url_only or worker.is_elsewhere:
            not_seen.append(f"files of {worker.worker_id}: {_why_unseen(worker)}")
            continue
        try:
            yield from [Item("file", str(path)) for path in leftovers_of(worker)]
        except OSError as error:
            not_seen.append(f"files of {worker.worker_id}: {error.strerror}")


def _plans() -> Iterator[Item]:
    for path in sorted(PLANS_FOLDER.glob("*.json")):
        yield Item("file", str(path.absolute()))


def _interval_topics(session: ConnectSession, group: str, *, ledgers: bool) -> list[Item]:
    """The interval runs' topics."""
    kafka = session.kafka.settings
    if group == session.cluster.group_id:
        raise RefusedError(
            f"{group} is the Connect cluster's group, and its topics are Connect's.",
            remedy="Name the group of the pipelines with --group.",
        )
    # Which ledgers are ours is in the control topic: a topic with such a name may be a connector's own.
    any_of_group = Pipeline(name="any", group_id=group, kafka=kafka)
    state = control(any_of_group)
    if ledgers and state.runs:
        raise RefusedError(
            f"Interval runs are in progress: {', '.join(sorted(state.runs)[:5])}.",
            remedy="Let them end, or abandon the runs without a committed slice ('eos intervals abandon').",
        )
    pinned_topics = [pins.ledger for _, pins in sorted(state.pipelines.items()) if pins is not None]
    names = [*(ledger.name for ledger in pinned_topics), any_of_group.control_topic]
    found = Topics(kafka).describe(names)
    pinned = {ledger.name: ledger.id for ledger in pinned_topics}
    return [
        Item("topic", name, found[name].id, _AGAIN if ledgers else _KEPT)
        for name in names
        if name in found and pinned.get(name, found[name].id) == found[name].id
    ]


def _why_unseen(worker: WorkerDescription) -> str:
    """Why a worker's files are not looked for, and how the one is named that a roll may have left."""
    if worker.config is None or worker.machine is None:
        return _WHY_UNSEEN
    return (
        f"they are on {worker.machine}, and a roll's rights do not suffice to remove the backup of its file there; "
        f"if a roll has changed that file, log in as the owner and run: rm {backup_path(worker.config)}"
    )


def _remove_file(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise EosError(
            f"{path} cannot be removed: {error.strerror}.", remedy="Let its owner remove it, then run this again."
        ) from error
