"""The declaration of the removal of what this package has left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_eos_provider.acls.tool_rules import uninstall_rights
from airflow_eos_provider.changes.change import Change, Done, Plan, option
from airflow_eos_provider.interval.interval import DEFAULT_GROUP_ID, GROUP_HELP

if TYPE_CHECKING:
    from airflow_eos_provider.connect.connect_session import ConnectSession
    from airflow_eos_provider.journal.group_change import GroupChange


@dataclass(frozen=True, slots=True)
class UninstallRequest:
    """What is removed."""

    ledgers: bool = option(
        "Also the interval runs' control topic and ledgers: eos then no longer knows which intervals are complete, and "
        "would deliver them again.",
        False,
        title="Ledgers, too",
    )
    group: str = option(GROUP_HELP, DEFAULT_GROUP_ID, envvar="EOS_GROUP")


class Uninstall(Change[UninstallRequest]):
    """The removal of what this package has left of a group."""

    name = "uninstall"
    title = "Remove what this package has left"
    summary = "Show what this package has left of a group, in Kafka and in files, and remove it."
    details = (
        "Removes backups of workers' files, leftovers of killed commands next to them, the plans shown in this "
        "directory, and last the group's journal. Never touches Connect's own topics. Refused while a roll, a change "
        "or a restart is running or unfinished; with ledgers also while an interval run is. --yes "
        "alone is refused: pass --plan."
    )
    request = UninstallRequest
    examples = ("eos uninstall", "eos uninstall --plan 3f1c09ab77d2", "eos uninstall --ledgers --group etl")
    dag = "uninstall_dag"
    rights = (uninstall_rights,)
    begins_again = True

    def plan(self, session: ConnectSession, request: UninstallRequest) -> Plan:
        """What is left now."""
        from airflow_eos_provider.changes.uninstall.remove import find

        group_id, found = session.cluster.group_id, find(session, self.name, request.group, ledgers=request.ledgers)
        return Plan(
            self.name,
            group_id,
            about=group_id,
            question=f"Remove what eos has left of group {group_id}? It cannot be restored.",
            lines=tuple(found.lines()),
            content=found.content(),
            request=asdict(request),
            nothing="" if found.removes or found.journal else f"Nothing of group {group_id} is left.",
            needs_hash="what is removed cannot be restored.",
        )

    def apply(self, session: ConnectSession, plan: Plan, act: GroupChange, report: Callable[[str], None]) -> Done:
        """Remove what is planned."""
        from airflow_eos_provider.changes.uninstall.remove import remove

        document = {"removed": list(remove(session, plan, act, report))}
        return Done(document)


UNINSTALL = Uninstall()
