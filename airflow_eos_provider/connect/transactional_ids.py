"""Connect's names of transactional ids, read backwards: which groups and connectors an id may belong to.

The leader of a group has ``connect-cluster-<group>``, a task ``<group>-<connector>-<n>``. Both parts may contain
hyphens, so ``a-b-c-0`` is the first task of the connector ``b-c`` in the group ``a``, and of ``c`` in ``a-b``: a name
alone does not say whose an id is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

_LEADER = "connect-cluster-"


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A Connect group of a Kafka cluster.

    :param connectors: that it has, or has had; None if they are not known.
    """

    group_id: str
    connectors: frozenset[str] | None = None
    topics: frozenset[str] = frozenset()

    def with_more(self, connectors: Iterable[str] | None, topics: Iterable[str] = ()) -> KnownGroup:
        """The group with what else is known of it."""
        both = self.connectors if connectors is None else frozenset((*(self.connectors or ()), *connectors))
        return replace(self, connectors=both, topics=self.topics.union(topics))


@dataclass(frozen=True, slots=True)
class TaskId:
    """A transactional id read as that of a task."""

    group_id: str
    connector: str
    number: int


def leader_id(group_id: str) -> str:
    """The transactional id of a group's leader, for the config topic."""
    return f"{_LEADER}{group_id}"


def leaders(ids: Iterable[str], groups: Iterable[KnownGroup]) -> dict[str, str]:
    """By group the id of its leader: also of groups without workers, whose leaders' ids the brokers know for days.

    An id that may as well be a task's names no further group: the tasks of ``connect-cluster``, the ``group.id`` in the
    file that Kafka ships, have ids that begin like a leader's.
    """
    named = {one.removeprefix(_LEADER): one for one in ids if one.startswith(_LEADER)}
    known = {group.group_id: group for group in groups}
    may_be = {name: KnownGroup(name) for name in named} | known
    alike = [group for name, group in may_be.items() if name.startswith(_LEADER.partition("-")[0])]
    return {name: one for name, one in named.items() if name in known or not claims(one, alike, but=name)}


def task_number(transactional_id: str, prefix: str) -> int | None:
    """The number of a task, if an id is that of one; None if it is another connector's, whose name goes on.

    :param prefix: ``<group>-<connector>-``.
    """
    rest = transactional_id.removeprefix(prefix)
    return int(rest) if transactional_id.startswith(prefix) and rest.isascii() and rest.isdecimal() else None


def task_of(transactional_id: str, group_id: str) -> TaskId | None:
    """An id read as that of a task of this group; None if its name does not allow that."""
    name, _, digits = transactional_id.removeprefix(f"{group_id}-").rpartition("-")
    is_task = transactional_id.startswith(f"{group_id}-") and digits.isascii() and digits.isdecimal() and name
    return TaskId(group_id, name, int(digits)) if is_task else None


def claims(transactional_id: str, groups: Iterable[KnownGroup], but: str = "") -> tuple[KnownGroup, ...]:
    """The groups, but for one, of which an id may be, by its name and by the connectors that each is known to have."""
    return tuple(group for group in groups if group.group_id != but and _claims(transactional_id, group))


def _claims(transactional_id: str, group: KnownGroup) -> bool:
    if transactional_id == leader_id(group.group_id):
        return True
    task = task_of(transactional_id, group.group_id)
    return task is not None and (group.connectors is None or task.connector in group.connectors)


def is_of_group(
    transactional_id: str, group_id: str, others: Iterable[KnownGroup] = (), connectors: Collection[str] = ()
) -> bool:
    """Whether an id counts as one of this group: its leader's, or a task's ``<group>-<connector>-<n>``.

    What another group claims, such as ``connect-orders`` an id that ``connect`` would have for its connector
    ``orders-x``, does not count; it does if this group has that connector, and then the two groups fence each other.
    """
    if transactional_id == leader_id(group_id):
        return True
    task = task_of(transactional_id, group_id)
    if task is None:
        return False
    return task.connector in connectors or not claims(transactional_id, others)
