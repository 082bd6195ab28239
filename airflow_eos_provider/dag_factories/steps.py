"""Shared parts of the DAGs that change a cluster: their parameters and approvals, the steps of a roll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, TriggerRule

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.dag_factories.dag import also_call
from airflow_eos_provider.notifications.roll import ConnectRollNotifier
from airflow_eos_provider.operators.approval import REASON_CHARACTERS, PlanApprovalOperator
from airflow_eos_provider.operators.connect_preflight import ConnectorFindingsOperator
from airflow_eos_provider.operators.rolling_upgrade import (
    ConnectPlanOperator,
    ConnectPreflightOperator,
    ConnectRollingUpgradeOperator,
    ConnectVerifyOperator,
)
from airflow_eos_provider.operators.run_conf import refuse_unknown_conf

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, BaseOperator

REASON = "{{ params.reason }}"
TAKE_OVER = "{{ params.take_over }}"


def approval_arguments(
    given: Mapping[str, Any] | None,
    *,
    response_timeout: timedelta | None,
    require_other_approver: bool,
    **defaults: Any,
) -> dict[str, Any]:
    """The arguments of an approval.

    :param given: those that the author of the DAG file names; they win.
    :param defaults: what else it gets, such as ``subject``.
    """
    return {
        **defaults,
        "response_timeout": response_timeout,
        "require_other_approver": require_other_approver,
        **(given or {}),
    }


def run_params(reason: str, what: str) -> dict[str, Param]:
    """What a person may say when a run is triggered.

    :param reason: the default, unless another one is given.
    :param what: "the cluster is upgraded", say.
    """
    return {
        **reason_param(reason, what),
        "take_over": Param(
            False,
            title="Take over",
            type="boolean",
            description="Off: leaves a change of another controller alone. On: fences that controller before its "
            "lease ends, because it hangs; a controller that is only slow is stopped, too. The journal records it.",
        ),
    }


def reason_param(reason: str, what: str) -> dict[str, Param]:
    """The reason alone, where no lease is taken that could be taken over.

    :param reason: the default, unless another one is given.
    :param what: "the run is given up", say.
    """
    return {
        "reason": Param(
            reason,
            title="Reason",
            type="string",
            minLength=1,
            maxLength=REASON_CHARACTERS,
            description=f"Why {what}, such as a ticket, CHG-4711; shown to the approver, and stored in the journal.",
        )
    }


def chain_change(
    plans: type[BaseOperator],
    changes: type[BaseOperator],
    *,
    task_id: str,
    common: Mapping[str, Any],
    approval: Mapping[str, Any],
    plan: Mapping[str, Any] | None = None,
    change: Mapping[str, Any] | None = None,
    takes_over: bool = False,
) -> None:
    """Within a DAG: plan, approval, change.

    :param plans: the operator that makes the plan; and the one that carries it out.
    :param task_id: of the change.
    :param common: arguments of both.
    :param approval: arguments of the approval.
    :param plan: arguments of the plan alone; and of the change alone.
    :param takes_over: whether the form asks for it; then it is shown to the approver.
    """
    taking: dict[str, Any] = {"take_over": TAKE_OVER} if takes_over else {}
    planned = plans(task_id="plan", pre_execute=refuse_unknown_conf, **common, **(plan or {}))
    approved = PlanApprovalOperator(task_id="approve", plan=planned.output, reason=REASON, **{**taking, **approval})
    changed = changes(
        task_id=task_id,
        plan=planned.output,
        approval=approved.output,
        reason=REASON,
        **common,
        **taking,
        **(change or {}),
    )
    planned >> approved >> changed


def chain_rolls(
    modes: Sequence[Mode],
    *,
    conn_id: str,
    settings: Mapping[str, Any] | None,
    approval: Mapping[str, Any],
    notifiers: Sequence[BaseNotifier],
    deferrable: bool,
    downwards: bool = False,
    accept: Sequence[str] = (),
) -> None:
    """Within a DAG: preflight (upwards also of the connectors), then plan, approval, roll and proof for each mode.

    :param approval: arguments of the approvals.
    :param notifiers: what sends the message of a roll that fails or pauses.
    :param accept: findings about connectors that do not fail the preflight.
    """
    cluster: dict[str, Any] = {"conn_id": conn_id, "settings": settings}
    # Upwards the preflight finds the next step by itself, since some of the workers may be there already.
    last: BaseOperator = ConnectPreflightOperator(
        task_id="preflight",
        target=str(modes[0]) if downwards else None,
        pre_execute=refuse_unknown_conf,
        **cluster,
    )
    if not downwards:
        connectors = ConnectorFindingsOperator(
            task_id="preflight_connectors",
            conn_id=conn_id,
            mode=str(modes[-1]),
            accept=tuple(accept),
            fails_when_begun=False,
        )
        last >> connectors
        last = connectors
    for mode in modes:
        planned = ConnectPlanOperator(
            task_id=f"plan_{mode}",
            target=str(mode),
            downwards=downwards,
            trigger_rule=TriggerRule.NONE_FAILED,  # goes on behind a step that was skipped, not behind one that failed
            **cluster,
        )
        approved = PlanApprovalOperator(
            task_id=f"approve_{mode}",
            plan=planned.output,
            reason=REASON,
            **{"take_over": TAKE_OVER, **approval},
        )
        rolled = ConnectRollingUpgradeOperator(
            task_id=f"roll_{mode}",
            plan=planned.output,
            approval=approved.output,
            reason=REASON,
            take_over=TAKE_OVER,
            deferrable=deferrable,
            **cluster,
        )
        if notifiers:
            also_call(ConnectRollNotifier(notifiers=notifiers), rolled, "on_failure_callback", "on_retry_callback")
        verified = ConnectVerifyOperator(
            task_id=f"verify_{mode}",
            target=str(mode),
            # The last is proven even if there was nothing to do. A skipped first one is not: some may be beyond it.
            trigger_rule=TriggerRule.NONE_FAILED if mode is modes[-1] else TriggerRule.ALL_SUCCESS,
            **cluster,
        )
        last >> planned >> approved >> rolled >> verified
        last = verified
