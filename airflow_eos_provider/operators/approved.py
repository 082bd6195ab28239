"""What the operators that carry a plan out do with the approval that came before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context


def require_approved(approval: Mapping[str, Any] | None, plan_hash: str) -> None:
    """Go on only with the plan that was approved.

    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; None where nobody
        was to be asked.
    :raises AirflowFailException: another plan was.
    """
    if approval is not None and approval.get("plan_hash") != plan_hash:
        raise AirflowFailException(
            f"Plan {plan_hash} is not the one that was approved ({approval.get('plan_hash')}). "
            "Nothing was changed. Start a new run."
        )


def actor_of(approval: Mapping[str, Any] | None, context: Context) -> str:
    """On whose behalf a task acts, for the journal."""
    dag_run = context["dag_run"]
    who = (approval or {}).get("approved_by") or dag_run.triggering_user_name or "nobody"
    return f"airflow {dag_run.dag_id}/{dag_run.run_id}, approved by {who}"


def is_true(value: bool | str) -> bool:
    """What a parameter says that may come from a template, which gives the words ``True`` or ``False``."""
    return str(value).lower() == "true"
