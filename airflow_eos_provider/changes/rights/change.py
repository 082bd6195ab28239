"""The declarations of granting and revoking rights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_eos_provider.acls.tool_rules import acl_rights
from airflow_eos_provider.changes.change import Change, Done, Plan
from airflow_eos_provider.changes.rights.rights_request import RevokeRequest, RightsRequest
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.stored import from_json

if TYPE_CHECKING:
    from airflow_eos_provider.changes.rights.asked import AskedRights
    from airflow_eos_provider.changes.rights.rights_plan import AclPlan
    from airflow_eos_provider.connect.connect_session import ConnectSession
    from airflow_eos_provider.kafka.acl_values import Acl
    from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
    from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

R = TypeVar("R", bound=RightsRequest)

#: So many notes are lines of a plan, and so many names of what a prefix reaches.
_SHOWN_NOTES = 10
_SHOWN_NAMES = 5


class RightsChange(Change[R]):
    """A change of ACLs. It is safe to repeat, so it takes no lease.

    :param writer: a login on the same brokers, which alone has *Alter* on the cluster; None: that of the cluster.
    """

    rights = (acl_rights,)
    takes_lease = False

    def __init__(self, writer: KafkaSettings | None = None) -> None:
        self._writer = writer

    def plan(self, session: ConnectSession, request: R) -> Plan:
        asked, made, more = self._made(session, request)
        notes = [f"note: {note}" for note in asked.facts.notes]
        if len(notes) > _SHOWN_NOTES:
            notes[_SHOWN_NOTES:] = [f"and {counted(len(notes) - _SHOWN_NOTES, 'note')} more"]
        verb = self.name.split()[-1].capitalize()
        return Plan(
            self.name,
            asked.seen.group_id,
            about=counted(len(made.acls), "ACL"),
            question=f"{verb} {counted(len(made.acls), 'ACL')} of Kafka Connect group {asked.seen.group_id}?",
            lines=(*made.lines(), *more, *notes),
            content=made.content(),
            request=asdict(request),
            nothing="" if made.acls else _why_nothing(made),
        )

    @abstractmethod
    def _made(self, session: ConnectSession, request: R) -> tuple[AskedRights, AclPlan, Iterable[str]]:
        """What is created or deleted, what that was made from, and further lines."""

    @abstractmethod
    def _write(self, client: TransactionsClient, acls: Sequence[Acl]) -> None: ...

    def apply(self, session: ConnectSession, plan: Plan, act: None, report: Callable[[str], None]) -> Done:
        from airflow_eos_provider.kafka.acl_values import Acl
        from airflow_eos_provider.kafka.kafka_session import Session

        kafka, planned = session.kafka, plan.content["kafka_cluster_id"]
        with ExitStack() as stack:
            if self._writer is not None:
                kafka = stack.enter_context(Session(self._writer))
                if (found := kafka.cluster_id()) != planned:
                    raise ConfigurationError(
                        f"The connection that writes leads to Kafka cluster {found}, and the plan is for {planned}.",
                        remedy="Name brokers of the same cluster. Nothing was changed.",
                    )
            with kafka.transactions() as client:
                self._write(client, from_json(tuple[Acl, ...], plan.content["acls"]))
        document = {"acls": plan.content["acls"]}
        return Done(document)


class Grant(RightsChange[RightsRequest]):
    """ACLs that are missing."""

    name = "acl grant"
    title = "Grant rights"
    summary = "Create the ACLs that are missing."
    details = (
        "Rights that the ACLs give already are skipped. A right that an ACL denies is refused: no other ACL "
        "can grant it. Needs Alter on the cluster."
    )
    request = RightsRequest
    examples = ("eos acl grant", "eos acl grant --prefixed --plan 3f1c09ab77d2")
    dag = "acl_grant_dag"

    def _made(self, session: ConnectSession, request: RightsRequest) -> tuple[AskedRights, AclPlan, Iterable[str]]:
        from airflow_eos_provider.changes.rights.asked import asked_rights

        asked = asked_rights(session, request, request.connectors)
        made = asked.grant()
        reached = asked.also_reached(made)
        return asked, made, [f"! {also_reaches(rule, names)}" for rule, names in reached.items()]

    def _write(self, client: TransactionsClient, acls: Sequence[Acl]) -> None:
        client.create_acls(acls)


class Revoke(RightsChange[RevokeRequest]):
    """ACLs that a grant would create."""

    name = "acl revoke"
    title = "Revoke rights"
    summary = "Delete only ACLs that 'grant' would create."
    details = (
        "Keeps what existing connectors need, and the workers in the mode of their files; also what the "
        "pipelines (--pipeline) and verbs (--verb) that you name share with others. For a deleted connector "
        "(--connector), deletes the ACLs on the ids of its tasks. Needs Alter on the cluster."
    )
    request = RevokeRequest
    examples = (
        "eos acl revoke --mode enabled",
        "eos acl revoke --connector gone",
        "eos acl revoke --connector a --even-if-needed",
    )
    dag = "acl_revoke_dag"

    def _made(self, session: ConnectSession, request: RevokeRequest) -> tuple[AskedRights, AclPlan, Iterable[str]]:
        from airflow_eos_provider.changes.rights.asked import asked_rights

        asked = asked_rights(session, request)
        made = asked.revocation(request.connectors, even_if_needed=request.even_if_needed)
        if request.even_if_needed:
            return asked, made, ["! what workers and connectors need is deleted, too: they fail without it"]
        return asked, made, made.kept_lines()

    def _write(self, client: TransactionsClient, acls: Sequence[Acl]) -> None:
        client.delete_acls(acls)


GRANT, REVOKE = Grant(), Revoke()


def also_reaches(rule: Any, names: Sequence[str]) -> str:
    """What a prefix gives besides."""
    more = len(names) - _SHOWN_NAMES
    shown = ", ".join(names[:_SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")
    return f"The prefix {rule.name} of {rule.principal} also reaches {shown}."


def _why_nothing(made: AclPlan) -> str:
    if made.grants:
        return "No needed ACL is missing."
    kept = len(made.kept)
    return f"{counted(kept, 'ACL')} must stay: they are still needed." if kept else "None of these ACLs exists."
