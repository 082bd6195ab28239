"""What the DAGs of a roll have in common: a run's parameters; and plan, approval, roll and proof of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, TriggerRule

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.operators.approval import PlanApprovalOperator
from airflow_eos_provider.operators.rolling_upgrade import (
    ConnectPlanOperator,
    ConnectPreflightOperator,
    ConnectRollingUpgradeOperator,
    ConnectVerifyOperator,
)

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

REASON = "{{ params.reason }}"
TAKE_OVER = "{{ params.take_over }}"


def run_params(reason: str, what: str) -> dict[str, Param]:
    """What a person may say when a run is triggered.

    :param reason: stands there unless another one is given.
    :param what: "the cluster is upgraded", say.
    """
    return {
        "reason": Param(
            reason,
            type="string",
            minLength=1,
            description=f"Why {what}; it is shown to whoever approves, and kept in the journal.",
        ),
        "take_over": Param(
            False,
            type="boolean",
            description="Fence a controller that hangs, though its lease still runs. Kept in the journal.",
        ),
    }


def chain_rolls(
    modes: Sequence[Mode],
    *,
    conn_id: str,
    settings: Mapping[str, Any] | None,
    approval: Mapping[str, Any],
    deferrable: bool,
    downwards: bool = False,
) -> None:
    """Within a DAG: preflight, then plan, approval, roll and proof for each of these modes.

    :param approval: arguments of the approvals.
    """
    cluster: dict[str, Any] = {"conn_id": conn_id, "settings": settings}
    # Upwards the preflight finds the next step by itself, since some of the workers may be there already.
    last: BaseOperator = ConnectPreflightOperator(
        task_id="preflight", target=str(modes[0]) if downwards else None, **cluster
    )
    for mode in modes:
        planned = ConnectPlanOperator(
            task_id=f"plan_{mode}",
            target=str(mode),
            downwards=downwards,
            trigger_rule=TriggerRule.NONE_FAILED,  # goes on behind a step that was skipped, not behind one that failed
            **cluster,
        )
        approved = PlanApprovalOperator(task_id=f"approve_{mode}", plan=planned.output, reason=REASON, **approval)
        rolled = ConnectRollingUpgradeOperator(
            task_id=f"roll_{mode}",
            plan=planned.output,
            approval=approved.output,
            reason=REASON,
            take_over=TAKE_OVER,
            deferrable=deferrable,
            **cluster,
        )
        verified = ConnectVerifyOperator(
            task_id=f"verify_{mode}",
            target=str(mode),
            # The last is proven even if there was nothing to do. A skipped first one is not: some may be beyond it.
            trigger_rule=TriggerRule.NONE_FAILED if mode is modes[-1] else TriggerRule.ALL_SUCCESS,
            **cluster,
        )
        last >> planned >> approved >> rolled >> verified
        last = verified
