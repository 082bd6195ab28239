"""Operators that carry out a plan, and the approval that they require."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.operators.failures import ROLL_RETRIES, ROLL_RETRY_DELAY

if TYPE_CHECKING:
    from airflow.sdk import Context


class NotAsked(Enum):
    """What an operator has in place of an approval where nobody is to be asked.

    It is none of the values that a template or an XCom can have. None is one: Airflow renders it for the result of an
    approval that has none, since somebody marked a rejected or unanswered one as success.
    """

    NOBODY = "nobody is asked"


#: The default of ``approval``: the operator's author wants nobody to be asked.
NOBODY_ASKED = NotAsked.NOBODY

#: Add these to the ``template_fields`` of an :class:`ApprovedOperator`.
APPROVED_FIELDS = ("plan", "approval", "reason", "take_over")


class ApprovedOperator(BaseOperator):
    """Carries out an approved plan under the group's lease.

    :param plan: the plan as the plan operator returns it.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's. An approval task that was marked as success has no result and does not count.
    :param reason: why, for the journal.
    :param take_over: fence a controller though its lease still runs; a template gives the words ``True`` or ``False``.
    """

    def __init__(
        self, *, plan: Any, approval: Any = NOBODY_ASKED, reason: str = "", take_over: bool | str = False, **kwargs: Any
    ) -> None:
        kwargs.setdefault("retries", ROLL_RETRIES)
        kwargs.setdefault("retry_delay", ROLL_RETRY_DELAY)
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval
        self.reason = reason
        self.take_over = take_over


def require_approved(approval: object, plan_hash: str) -> None:
    """Go on only with the plan that was approved.

    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`;
        :data:`NOBODY_ASKED` where nobody was to be asked.
    :raises AirflowFailException: another plan was, or none.
    """
    if approval is NOBODY_ASKED:
        return
    if not isinstance(approval, Mapping):
        raise AirflowFailException(
            f"Plan {plan_hash} is not approved: it was rejected, or nobody has answered the task that asks. Marking "
            "that task as success is no approval. Nothing was changed. Start a new run and answer there; or omit the "
            "operator's parameter approval to apply plans without asking."
        )
    if approval.get("plan_hash") != plan_hash:
        raise AirflowFailException(
            f"Plan {plan_hash} is not the approved one ({approval.get('plan_hash')}). "
            "Nothing was changed. Start a new run."
        )


def actor_of(approval: object, context: Context) -> str:
    """On whose behalf a task acts, for the journal."""
    dag_run = context["dag_run"]
    approver = approval.get("approved_by") if isinstance(approval, Mapping) else None
    who = approver or dag_run.triggering_user_name or "nobody"
    return f"airflow {dag_run.dag_id}/{dag_run.run_id}, approved by {who}"


def is_true(value: bool | str) -> bool:
    """What a parameter says that may come from a template, which gives the words ``True`` or ``False``."""
    return str(value).lower() == "true"
