"""Operators that close an unfinished roll or change: plan, then carry out the approved plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_eos_provider.changes.change import MOST_LINES
from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.errors import EosError, RefusedError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.links.operator_links import ClusterPageLink
from airflow_eos_provider.operators.approved import NOBODY_ASKED, actor_of, is_true, require_approved
from airflow_eos_provider.operators.failures import no_retry_where_pointless
from airflow_eos_provider.operators.shown_plan import ShownDocument

if TYPE_CHECKING:
    from airflow.sdk import Context


class _CloseOperator(BaseOperator):
    """What both operators share.

    :param which: the id of the roll or change, or its beginning; empty: the only open one.
    :param take_over: fence a controller that carries it out, rather than ask its roll to stop; a template gives the
        words ``True`` or ``False``.
    :param conn_id: a connection of type ``kafka_connect``.
    """

    template_fields: Sequence[str] = ("conn_id", "which", "take_over")
    operator_extra_links = (ClusterPageLink(),)

    def __init__(
        self,
        *,
        which: str = "",
        take_over: bool | str = False,
        conn_id: str = KafkaConnectHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.which = which
        self.take_over = take_over
        self.conn_id = conn_id

    def _report(self, line: str) -> None:
        self.log.info("%s", one_line(line, LINE_CHARACTERS))


class ConnectClosePlanOperator(_CloseOperator):
    """Plan to close an unfinished roll or change, or to stop a running roll for good. Nothing is changed.

    For a roll, it asks the half-done workers, so that the approver sees whether they answer.

    :returns: the plan, as :class:`~airflow_eos_provider.operators.shown_plan.ShownDocument` gives it.
    :raises AirflowSkipException: nothing of the group is open.
    :raises AirflowFailException: several are open, or another version has written it; with the reason.
    :raises LeaseHeldError: a controller carries a change out.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless():
            document = self._plan()
            if len(document.lines) > MOST_LINES:
                raise RefusedError(
                    f"The plan has {len(document.lines):,} lines, more than an approver can be shown ({MOST_LINES}).",
                    remedy="Start a run with a smaller plan: for some connectors, or with one rule for all ids of a "
                    "connector.",
                )
        self.log.info("Plan %s", document.hash)
        for line in document.lines:
            self._report(line)
        return document.to_dict()

    def _plan(self) -> ShownDocument:
        from airflow_eos_provider.journal.closing import plan_close
        from airflow_eos_provider.kafka.session import Session

        hook = KafkaConnectHook(self.conn_id)
        cluster = hook.get_cluster()
        with Session(cluster.kafka) as kafka:
            plan = plan_close(kafka, cluster.group_id, self.which, take_over=is_true(self.take_over))
        if plan is None:
            raise AirflowSkipException(f"No roll and no change of group {cluster.group_id} is open.")
        answers = [f"  {worker} now: {_answer_of(hook, worker)}" for worker in plan.half_done]
        question = f"Close {one_line(plan.name)} of Kafka Connect group {one_line(cluster.group_id)} as it is?"
        return ShownDocument(question, (*plan.lines(), *answers), plan.hash)


class ConnectCloseOperator(_CloseOperator):
    """Close it as approved. It can never be resumed; no worker and no connector is touched.

    A roll that is carried out stops before its next action, which is waited for.

    :param plan: the plan as :class:`ConnectClosePlanOperator` returns it. The other parameters are those it had.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's, and an approval without a result, as one that was marked as success, is none.
    :param reason: why, for the journal.
    :returns: ``closed`` (its id) and ``half_done``, the workers that have not passed their gate.
    :raises AirflowFailException: it has gone on since it was planned, is closed, or does not stop; nothing was closed.
    """

    template_fields: Sequence[str] = (*_CloseOperator.template_fields, "plan", "approval", "reason")

    def __init__(self, *, plan: Any, approval: Any = NOBODY_ASKED, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval
        self.reason = reason

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless():
            approved = ShownDocument.from_dict(self.plan)
            require_approved(self.approval, approved.hash)
            actor = actor_of(self.approval, context)
            self._report(f"{actor}: {self.reason}")
            return self._close(approved.plan_hash, actor)

    def _close(self, plan_hash: str, actor: str) -> dict[str, Any]:
        from airflow_eos_provider.journal.change import change_journal
        from airflow_eos_provider.journal.closing import close
        from airflow_eos_provider.kafka.session import Session

        cluster = KafkaConnectHook(self.conn_id).get_cluster()
        with Session(cluster.kafka) as kafka:
            plan = close(
                kafka,
                cluster.group_id,
                plan_hash,
                self.which,
                journal=lambda: change_journal(
                    kafka, cluster.group_id, actor=actor, reason=self.reason, report=self._report
                ),
                note=self.reason or "closed",
                actor=actor,
                take_over=is_true(self.take_over),
            )
        return {"closed": plan.name, "half_done": list(plan.half_done)}


def _answer_of(hook: KafkaConnectHook, worker: str) -> str:
    """Whether a worker answers, in words."""
    try:
        with hook.rest(worker) as client:
            return f"it answers, Connect {client.root().version}"
    except EosError as error:
        return f"it does not answer: {error.found}"
