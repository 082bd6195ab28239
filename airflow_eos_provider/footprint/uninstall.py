"""Finds what this package has left of one group, and removes it: planned, approved by its hash, then carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.errors import EosError, PlanMovedError, RefusedError
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.verify import control
from airflow_eos_provider.journal.change import group_change, require_no_open_rollout
from airflow_eos_provider.journal.journal import Journal, JournalContent, read_journal, require_free
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.topic import clock_of
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.plan_hash import ShownPlan, hash_of
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.leftovers import leftovers_of
from airflow_eos_provider.rollout.hosts.machine.edited_file import backup_path

KIND, SCHEMA = "uninstall", 1

_WHY_UNSEEN = "they are on another machine, or its description names none; see docs/reference/left-behind.md"
_AGAIN = "eos then cannot tell which intervals are complete; an interval that runs again is delivered again"
_KEPT = "it says which intervals are complete; without it they would be delivered again (--ledgers removes it)"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was found.

    :param kind: ``topic``, ``file`` or ``transactional id``.
    :param name: the topic, the path, or the id.
    :param id: of a topic.
    :param why: why it stays, or what goes with it.
    """

    kind: str
    name: str
    id: str = ""
    why: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" (id {self.id})" if self.id else "")

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {"kind": self.kind, "name": self.name, "id": self.id, "why": self.why}


@dataclass(frozen=True, slots=True)
class UninstallPlan(ShownPlan):
    """What is removed, and what is only named.

    :param removes: in the order in which they are removed; the journal is the last.
    :param stays: what was found and is left.
    :param not_seen: what could not be looked at, and why.
    """

    moved: ClassVar[str] = "the leftovers have changed, or another option was given"

    group_id: str
    kafka_cluster_id: str
    removes: tuple[Item, ...]
    stays: tuple[Item, ...] = ()
    not_seen: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 over what is removed."""
        return hash_of(self._content())

    def lines(self) -> list[str]:
        """The plan for a person."""
        removed = [f"-{item}" + (f": {item.why}" if item.why else "") for item in self.removes]
        left = [f" {item} stays: {item.why}" for item in self.stays]
        return [*removed, *left, *(f" not seen: {what}" for what in self.not_seen)]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {
            **self._content(),
            "stays": [item.to_dict() for item in self.stays],
            "not_seen": list(self.not_seen),
            "nothing_to_do": not self.removes,
            "hash": self.hash,
        }

    def _content(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "schema": SCHEMA,
            "group_id": self.group_id,
            "kafka_cluster_id": self.kafka_cluster_id,
            "removes": [item.to_dict() for item in self.removes],
        }


class Uninstaller:
    """Plans and carries out the removal of what was left of one group.

    :param session: of the Connect cluster.
    :param interval_group: the group of pipelines whose topics are looked for.
    :param ledgers: remove these, too.
    :param plans_folder: of plans that were shown.
    """

    def __init__(self, session: ConnectSession, interval_group: str, *, ledgers: bool, plans_folder: Path) -> None:
        self._session, self._interval_group = session, interval_group
        self._ledgers, self._plans_folder = ledgers, plans_folder
        self._topics = Topics(session.kafka.settings)
        self._group_id = session.cluster.group_id

    def plan(self) -> UninstallPlan:
        """What is left now.

        :raises RefusedError: a roll, a change, a restart or an interval run is under way, or was not finished.
        :raises UnreachableError: no broker answers.
        """
        self._require_rest()
        not_seen: list[str] = []
        files = [*self._worker_files(not_seen), *self._plans()]
        gone, kept = self._interval_topics()
        return UninstallPlan(
            self._group_id,
            self._session.kafka.cluster_id(),
            (*files, *gone, *self._journal()),
            (*kept, *self._ids()),
            tuple(not_seen),
        )

    def apply(self, plan: UninstallPlan, journal: Journal, report: Callable[[str], None]) -> None:
        """Remove what is planned, under the group's lease. Cut off, it is begun again by a plan for what is left.

        :param plan: made a moment ago.
        :param journal: not acquired yet. It is removed, too, also where it is made for this only.
        :param report: receives a line for each thing that is gone.
        :raises LeaseHeldError: a controller has begun meanwhile.
        :raises RefusedError: a roll or a change was begun meanwhile, and not finished.
        :raises FencedError: a controller has taken over; what was not removed is left.
        :raises PlanMovedError: a topic was deleted and made anew; nothing is removed.
        :raises EosError: a file cannot be removed, or the principal may not delete a topic.
        """
        if not plan.removes:
            return
        journal_name = journal_topic(self._group_id)
        with group_change(journal, KIND, self._group_id, plan.to_dict(), begins_again=True) as change:
            self._require_same(plan)
            for item in plan.removes:
                if item.name != journal_name:
                    with change.step(str(item)):
                        change.confirm(f"remove {item}")
                        self._remove(item)
                    report(f"{item} is gone.")
            with change.removal_of_the_journal():
                self._topics.delete(journal_name)
        for item in plan.removes:
            if item.name == journal_name:
                report(f"{item} is gone.")

    def _require_same(self, plan: UninstallPlan) -> None:
        """Go on only if each topic is the one that was planned, and the journal has nothing that was not shown.

        :raises PlanMovedError: one is another.
        """
        planned = {item.name: item.id for item in plan.removes if item.kind == "topic"}
        for name, found in self._topics.describe(list(planned)).items():
            if found.id != planned[name]:
                raise PlanMovedError(f"Topic {name} was deleted and recreated: its id is {found.id} now.")
        if journal_topic(self._group_id) not in planned:  # made by this very call, for its lease
            content = read_journal(self._session.kafka, self._group_id)
            if content.rollouts or any(change.kind != KIND for change in content.changes.values()):
                raise PlanMovedError(
                    f"Group {self._group_id} has a journal now: it was rolled or changed since the plan was made.",
                    remedy="Make the plan again, without --plan.",
                )

    def _remove(self, item: Item) -> None:
        if item.kind == "file":
            _remove_file(Path(item.name))
        else:
            self._topics.delete(item.name)

    def _require_rest(self) -> None:
        """Go on only if nothing of this package is at work on the group."""
        content = read_journal(self._session.kafka, self._group_id)
        require_at_rest(content, self._group_id, clock_of(self._session.kafka.settings, self._group_id).now)
        for worker in self._session.cluster.workers:
            if (restart := host_of(worker).observe().restart) is not None:
                raise RefusedError(f"{worker.worker_id}: {restart}.", remedy="Wait until that is over.")

    def _journal(self) -> Iterator[Item]:
        name = journal_topic(self._group_id)
        if (found := self._topics.describe([name]).get(name)) is not None:
            yield Item("topic", name, found.id, "history, and which lines of workers' files a roll has set temporarily")

    def _ids(self) -> Iterator[Item]:
        name = journal_topic(self._group_id)
        with self._session.kafka.transactions() as client:
            known = client.describe([name])
        if name in known:
            yield Item("transactional id", name, why="the brokers forget it after transactional.id.expiration.ms")

    def _worker_files(self, not_seen: list[str]) -> Iterator[Item]:
        for worker in self._session.cluster.workers:
            if worker.is_url_only or worker.is_elsewhere:
                not_seen.append(f"files of {worker.worker_id}: {_why_unseen(worker)}")
                continue
            try:
                yield from [Item("file", str(path)) for path in leftovers_of(worker)]
            except OSError as error:
                not_seen.append(f"files of {worker.worker_id}: {error.strerror}")

    def _plans(self) -> Iterator[Item]:
        for path in sorted(self._plans_folder.glob("*.json")):
            yield Item("file", str(path.absolute()))

    def _interval_topics(self) -> tuple[list[Item], list[Item]]:
        """The interval runs' topics that are removed, and those that stay.

        :raises RefusedError: a run is under way, and its topics were to be removed.
        """
        kafka, group = self._session.kafka.settings, self._interval_group
        if group == self._group_id:
            raise RefusedError(
                f"{group} is the Connect cluster's group, and its topics are Connect's.",
                remedy="Name the group of the pipelines with --group.",
            )
        # Which ledgers are ours is in the control topic: a topic with such a name may be a connector's own.
        any_of_group = Pipeline(name="any", group_id=group, kafka=kafka)
        state = control(any_of_group)
        if self._ledgers and state.runs:
            raise RefusedError(
                f"Interval runs are in progress: {', '.join(sorted(state.runs)[:5])}.",
                remedy="Let them end, or abandon the runs without a committed slice ('eos intervals abandon').",
            )
        ledgers = [pins.ledger for _, pins in sorted(state.pipelines.items()) if pins is not None]
        names = [*(ledger.name for ledger in ledgers), any_of_group.control_topic]
        found = self._topics.describe(names)
        pinned = {ledger.name: ledger.id for ledger in ledgers}
        items = [
            Item("topic", name, found[name].id, _AGAIN if self._ledgers else _KEPT)
            for name in names
            if name in found and pinned.get(name, found[name].id) == found[name].id
        ]
        return (items, []) if self._ledgers else ([], items)


def require_at_rest(content: JournalContent, group_id: str, now: Callable[[], float]) -> None:
    """Go on only if no roll and no change of a group is under way or unfinished, but for an uninstall that was cut off.

    :param now: the broker's time, seconds since the epoch; asked only where it decides.
    :raises LeaseHeldError: a controller holds the group.
    :raises RefusedError: a roll or a change was not finished.
    """
    require_free(content.lease, group_id, now=now)
    require_no_open_rollout(content)
    if content.open_change is not None and content.open_change.kind != KIND:
        content.require_no_open_change()


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
