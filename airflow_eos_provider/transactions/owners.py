"""Whose a transactional id is, by Connect's names and ours."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_eos_provider.journal.topic import journal_topic


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes under a transactional id.

    :param text: for a person.
    :param group_id: of the Connect group; None if it is not this one's.
    :param connector: whose task it is; None if it is none.
    """

    text: str
    group_id: str | None = None
    connector: str | None = None


def owner_of(transactional_id: str, group_id: str, connectors: Collection[str] | None) -> Owner:
    """Who writes under an id, as far as one group can tell.

    The id ``a-b-c-0`` may be that of the connector ``b-c`` in the group ``a``, or of ``c`` in ``a-b``. So only a
    connector that the group knows is called one of its own.

    :param connectors: that exist, or existed, in the group; None if they are not known, so that the name decides.
    """
    if transactional_id == f"connect-cluster-{group_id}":
        return Owner("the leader, for the config topic", group_id)
    if transactional_id == journal_topic(group_id):
        return Owner("eos, for its journal", group_id)
    name, _, number = transactional_id.removeprefix(f"{group_id}-").rpartition("-")
    if transactional_id.startswith(f"{group_id}-") and number.isascii() and number.isdecimal() and name:
        if connectors is None:
            return Owner(f"perhaps {name}, task {int(number)}", group_id, name)
        if name in connectors:
            return Owner(f"{name}, task {int(number)}", group_id, name)
    return Owner("not this group")
