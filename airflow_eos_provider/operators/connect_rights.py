"""Operators that grant rights (ACLs), or revoke those that were granted: plan, then carry out what was approved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import counted, one_line
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.hooks.pipeline import kafka_settings
from airflow_eos_provider.links.operator_links import ClusterPageLink
from airflow_eos_provider.operators.approved import is_true
from airflow_eos_provider.operators.shown_change import APPROVED_FIELDS, ShownChangeOperator, ShownPlanOperator
from airflow_eos_provider.operators.shown_plan import ShownDocument

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.acls.asked import AskedRights
    from airflow_eos_provider.acls.grant import AclPlan

#: What may be done.
ACTIONS = ("grant", "revoke")

#: So many notes are shown with a plan, and so many names of what a prefix reaches; the task's log has all notes.
SHOWN_NOTES = 10
SHOWN_NAMES = 5


class _RightsOperator(BaseOperator):
    """What both operators share.

    :param action: ``grant`` creates the ACLs that are missing; ``revoke`` deletes those that a grant would create.
    :param connectors: names of source connectors, separated by commas: only the rights of their clients; empty for
        all. A revocation also takes the names of connectors that are gone.
    :param mode: that the workers have, or are to have: ``preparing``, say.
    :param prefixed: one rule for all transactional ids of a connector; a template gives the words ``True`` or
        ``False``, as for the next two.
    :param for_tasks_max: ids for as many tasks as ``tasks.max`` allows, not only for those that there are.
    :param even_if_needed: revoke also what workers and connectors need that are there, other pipelines of the group,
        and other verbs.
    :param principals: who the parts of the cluster are, where files and configurations do not say it: ``worker``,
        ``producer``, ``consumer`` and ``admin``, as in ``{"worker": "User:connect"}``.
    :param pipelines: also the rights of the interval runs of these, each as ``GROUP/NAME:TOPIC,…``.
    :param interval_principal: of these interval runs.
    :param verbs: also what this package itself needs for these, as in ``fence``.
    :param topics: names of internal topics by the workers' properties, where their files cannot be read.
    :param conn_id: a connection of type ``kafka_connect``, with *Describe* on the cluster, which reads ACLs.
    """

    template_fields: Sequence[str] = (
        *("conn_id", "action", "connectors", "mode"),
        *("prefixed", "for_tasks_max", "even_if_needed"),
    )
    operator_extra_links = (ClusterPageLink(),)

    def __init__(
        self,
        *,
        action: str,
        connectors: str = "",
        mode: str = str(Mode.ENABLED),
        prefixed: bool | str = False,
        for_tasks_max: bool | str = False,
        even_if_needed: bool | str = False,
        principals: Mapping[str, str] | None = None,
        pipelines: Sequence[str] = (),
        interval_principal: str = "User:spark",
        verbs: Sequence[str] = (),
        topics: Mapping[str, str] | None = None,
        conn_id: str = KafkaConnectHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.action = action
        self.connectors = connectors
        self.mode = mode
        self.prefixed = prefixed
        self.for_tasks_max = for_tasks_max
        self.even_if_needed = even_if_needed
        self.principals = principals
        self.pipelines = pipelines
        self.interval_principal = interval_principal
        self.verbs = verbs
        self.topics = topics
        self.conn_id = conn_id

    @contextmanager
    def planned(self) -> Iterator[tuple[AskedRights, AclPlan]]:
        """The plan as it is now, and what it was made from.

        :raises ConfigurationError: there is no such action, connector or mode, or the ACLs cannot be read.
        :raises RefusedError: an ACL denies what is to be granted; or what runs is not known, which keeps its rights.
        """
        from airflow_eos_provider.acls.asked import WantedRights, asked_rights, interval_facts
        from airflow_eos_provider.acls.facts import Principals
        from airflow_eos_provider.interval.group_pipelines import pipelines_on_record

        if self.action not in ACTIONS:
            raise ConfigurationError(f"There is no action {self.action!r}.", expected=" or ".join(ACTIONS))
        if self.action == "grant" and is_true(self.even_if_needed):
            raise ConfigurationError(
                "even_if_needed has no meaning for a grant, which deletes nothing.",
                expected="even_if_needed with action 'revoke' only",
                remedy="Switch it off, or choose revoke.",
            )
        names = tuple(name.strip() for name in self.connectors.split(",") if name.strip())
        grants = self.action == "grant"
        wanted = WantedRights(
            Principals(**(self.principals or {})),
            Mode.parse(self.mode),
            connectors=names if grants else (),
            pipelines=interval_facts(self.pipelines, self.interval_principal),
            verbs=tuple(self.verbs),
            topics=dict(self.topics or {}),
            prefixed=is_true(self.prefixed),
            for_tasks_max=is_true(self.for_tasks_max),
        )
        with asked_rights(KafkaConnectHook(self.conn_id).get_cluster(), wanted) as asked:
            if grants:
                yield asked, asked.grant()
            else:
                even_if_needed = is_true(self.even_if_needed)
                yield asked, asked.revocation(names, on_record=pipelines_on_record, even_if_needed=even_if_needed)


class ConnectRightsPlanOperator(ShownPlanOperator, _RightsOperator):
    """Plan which ACLs are created or deleted. Nothing is changed.

    The plan has every ACL, for whoever approves.

    :returns: the plan, as :class:`~airflow_eos_provider.operators.shown_plan.ShownDocument` gives it.
    :raises AirflowSkipException: there is nothing to do.
    :raises AirflowFailException: refused, or more than is shown to an approver; with the reason.
    """

    def shown(self, context: Context) -> ShownDocument:
        with self.planned() as (asked, plan):
            reached = {} if self.action == "revoke" else asked.also_reached(plan)
            notes, group = asked.facts.notes, asked.seen.group_id
        for note in notes:
            self.log.warning("%s", one_line(note, 1_000))
        if not plan.acls:
            raise AirflowSkipException(f"Nothing to {self.action}: {_why_nothing(self.action, len(plan.kept))}.")
        lines = [*plan.grouped_lines(), *plan.everybody]
        lines += [
            f"the prefix {rule.name} of {rule.principal} also reaches {_some(names)}" for rule, names in reached.items()
        ]
        if is_true(self.even_if_needed) and self.action == "revoke":
            lines.append("what workers and connectors need that are there is deleted, too: they fail without it")
        elif plan.kept:
            lines.append(f"kept, since it is needed: {counted(len(plan.kept), 'ACL')}")
        lines += [f"note: {note}" for note in notes[:SHOWN_NOTES]]
        if len(notes) > SHOWN_NOTES:
            lines.append(f"and {counted(len(notes) - SHOWN_NOTES, 'note')} more, in the log of the task plan")
        verb = "Create" if self.action == "grant" else "Delete"
        question = f"{verb} {counted(len(plan.acls), 'ACL')} of Kafka Connect group {one_line(group)}?"
        return ShownDocument(question, tuple(lines), plan.hash)


class ConnectRightsOperator(ShownChangeOperator, _RightsOperator):
    """Create or delete the approved ACLs, and no others.

    The plan is made anew; if the ACLs, connectors or tasks have changed since, nothing is done. May be repeated.

    :param plan: the plan as :class:`ConnectRightsPlanOperator` returns it. The other parameters are those it had.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's, and an approval without a result, as one that was marked as success, is none.
    :param reason: why, for the task's log.
    :param admin_conn_id: a connection of type ``kafka`` or ``kafka_connect`` of the same brokers, with *Alter* on the
        cluster; empty: the cluster's own connection. Keep that right out of the connections of other tasks.
    :returns: the plan, as ``AclPlan.to_dict`` gives it.
    :raises AirflowFailException: refused, or the plan is another one now; nothing was changed then.
    """

    template_fields: Sequence[str] = (*_RightsOperator.template_fields, *APPROVED_FIELDS, "admin_conn_id")

    def __init__(self, *, admin_conn_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.admin_conn_id = admin_conn_id

    def carry_out(self, approved: ShownDocument, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.kafka.session import Session

        with self.planned() as (asked, plan):
            plan.require(approved.plan_hash)
            if not self.admin_conn_id:
                plan.apply(asked.session.kafka)
            else:
                with Session(kafka_settings(self.admin_conn_id)) as kafka:
                    self._require_same_cluster(kafka.cluster_id(), plan.kafka_cluster_id)
                    plan.apply(kafka)
        for line in plan.lines():
            self.report(line)
        return plan.to_dict()

    def _require_same_cluster(self, found: str, planned: str) -> None:
        if found != planned:
            raise ConfigurationError(
                f"The connection {self.admin_conn_id} leads to Kafka cluster {found}, and the plan is for {planned}.",
                remedy="Name brokers of the same cluster. Nothing was changed.",
            )


def _why_nothing(action: str, kept: int) -> str:
    if action == "grant":
        return "all that is needed is there"
    return f"{counted(kept, 'ACL')} must stay, since what runs needs them" if kept else "none of these is there"


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")
