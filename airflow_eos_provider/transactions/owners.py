"""The owner of a transactional id, by the naming rules of Connect and this package."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_eos_provider.connect.transactional_ids import KnownGroup, claims, leader_id, task_of
from airflow_eos_provider.journal.name import journal_topic


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes under a transactional id.

    :param group_id: of the Connect group; None if it is not this one's.
    :param connector: whose task it is; None if it is none.
    """

    text: str
    group_id: str | None = None
    connector: str | None = None


def owner_of(
    transactional_id: str, group_id: str, connectors: Collection[str] | None, others: Iterable[KnownGroup] = ()
) -> Owner:
    """Who writes under an id, as far as the groups of the Kafka cluster can tell.

    The id ``a-b-c-0`` may be that of the connector ``b-c`` in the group ``a``, or of ``c`` in ``a-b``. So only a
    connector that the group knows is called one of its own; where another group claims the id too, both are named.

    :param connectors: that exist, or existed, in the group; None if they are not known, so that the name decides.
    """
    if transactional_id == leader_id(group_id):
        return Owner("the leader, for the config topic", group_id)
    if transactional_id == journal_topic(group_id):
        return Owner("eos, for its journal", group_id)
    claiming = claims(transactional_id, others)
    theirs = [_said(transactional_id, other) for other in claiming]
    task = task_of(transactional_id, group_id)
    is_named = connectors is None and not any(other.connectors for other in claiming)
    if task is not None and (is_named or task.connector in (connectors or ())):
        own = f"{task.connector}, task {task.number}"
        if theirs:
            return Owner(f"{own}; or {' or '.join(theirs)}", group_id, task.connector)
        return Owner(own if connectors is not None else f"perhaps {own}", group_id, task.connector)
    return Owner(" or ".join(theirs) or "not this group")


def _said(transactional_id: str, other: KnownGroup) -> str:
    task = task_of(transactional_id, other.group_id)
    if task is None or transactional_id == leader_id(other.group_id):
        return f"group {other.group_id}: the leader"
    perhaps = "" if other.connectors else "perhaps "
    return f"group {other.group_id}: {perhaps}{task.connector}, task {task.number}"
