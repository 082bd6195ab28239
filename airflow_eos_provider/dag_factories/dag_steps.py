"""Shared parts of the DAGs that change a cluster: their parameters and approvals, the steps of a roll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def approval_arguments(given: Mapping[str, Any] | None, **defaults: Any) -> dict[str, Any]:
    """The arguments of an approval; those that the author of the DAG file names win."""
    return {**defaults, **(given or {})}


def run_params(reason: str, what: str, *, takes_over: bool = True) -> dict[str, Param]:
    """What a person may say when a run is triggered."""
    params = {
        "reason": Param(
            reason,
            title="Reason",
            type="string",
            minLength=1,
            maxLength=REASON_CHARACTERS,
            description=f"Why {what}, such as a ticket, CHG-4711; shown to the approver, and stored in the journal.",
        )
    }
    if takes_over:
        params["take_over"] = Param(
            False,
            title="Take over",
            type="boolean",
            description="Off: leaves a change of another controller alone. On: fences that controller before its "
            "lease ends, because it hangs; a controller that is only slow is stopped, too. The journal records it.",
        )
    return params


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
    """Within a DAG: preflight (upwards also of the connectors), then plan, approval, roll and proof for each mode."""
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
