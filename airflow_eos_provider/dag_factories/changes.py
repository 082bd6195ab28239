"""The DAGs of changes, made from their declarations: form, plan, approval, change."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from airflow.sdk import DAG, Param

from airflow_eos_provider.changes.change import Option, kind_of, options
from airflow_eos_provider.dag_factories.dag import make_dag
from airflow_eos_provider.dag_factories.steps import (
    approval_arguments,
    chain_change,
    reason_param,
    run_params,
)
from airflow_eos_provider.operators import changes as operators
from airflow_eos_provider.operators.changes import ChangeOperator, ChangePlanOperator, default_conn_id

_DOC = """
### {title} in the {kind} cluster of connection `{conn_id}`

{summary} {details}

Shows the plan, asks a person under **Required actions**, then carries it out.

* *Clear* a failed `apply`: a change that was cut off resumes where it stopped.
* Nothing to do: the run skips the rest.
"""


class ChangeDag:
    """Makes the DAG of a change.

    :param plans: the operator that plans it; and the one that carries it out.
    :param dag_id: the DAG's id, unless another one is given.
    :param tags: the DAG's tags, likewise.
    :param apply_arguments: further arguments of the DAG, which only the operator that carries it out gets.
    """

    def __init__(
        self,
        plans: type[ChangePlanOperator],
        applies: type[ChangeOperator],
        dag_id: str,
        tags: Collection[str],
        apply_arguments: Collection[str] = (),
    ) -> None:
        self.change = plans.change
        self.plan_operator, self.apply_operator = plans, applies
        self._dag_id, self._tags, self._apply_arguments = dag_id, tuple(tags), tuple(apply_arguments)
        defaults = {"conn_id": default_conn_id(self.change), "dag_id": dag_id, "tags": self._tags}
        own = inspect.signature(self.__call__).parameters.values()
        self.__signature__ = inspect.Signature(
            [each.replace(default=defaults.get(each.name, each.default)) for each in own]
        )
        documented = inspect.cleandoc(self.__call__.__doc__ or "").replace("A change", self.change.title, 1)
        known = ", ".join(options(self.change.request))
        if apply_arguments:
            known += f"; and of the operator that applies it: {', '.join(apply_arguments)}"
        self.__doc__ = documented.replace("its request", f"its request: {known}")

    def __call__(
        self,
        *,
        conn_id: str = "",
        dag_id: str = "",
        pool: str = "default_pool",
        response_timeout: timedelta | None = None,
        require_other_approver: bool = False,
        approval: Mapping[str, Any] | None = None,
        default_args: Mapping[str, Any] | None = None,
        tags: Collection[str] = (),
        **fixed: Any,
    ) -> DAG:
        """A change in one cluster, for a DAG file of a few lines. Make one DAG per cluster.

        :param conn_id: a connection of type ``kafka_connect``; for a change of interval runs also of type ``kafka``.
        :param dag_id: the DAG's id; one for each cluster.
        :param pool: pool of all tasks. The lease in Kafka already prevents two changes of one group at a time.
        :param response_timeout: how long the approval waits; without it, for ever. No answer is never a yes.
        :param require_other_approver: the user who started a run may not approve its plan; see
            ``docs/connect/security.md``.
        :param approval: further arguments of the approval, such as ``assigned_users`` or ``notifiers``.
        :param default_args: of the tasks, as every DAG takes them. The approval and the change keep their own
            ``retries`` and ``retry_delay``.
        :param tags: the DAG's tags.
        :param fixed: fields of its request. Fields given here are not in the trigger form.
        :returns: the DAG; assign it to a module-level name, so that Airflow finds it.
        """
        change = self.change
        conn_id = conn_id or default_conn_id(change)
        kind = "Kafka" if change.brokers_only else "Kafka Connect"
        known = options(change.request)
        own = {name: fixed.pop(name) for name in self._apply_arguments if name in fixed}
        if unknown := fixed.keys() - known.keys():
            raise TypeError(f"unknown arguments: {', '.join(sorted(unknown))}")
        asked = {name: each for name, each in known.items() if each[0].title and name not in fixed}
        common_params = run_params if change.takes_lease else reason_param
        with make_dag(
            dag_id or self._dag_id,
            schedule=None,
            pool=pool,
            default_args=default_args,
            params={
                **{name: form_field(kind_of(change.request, name), *each) for name, each in asked.items()},
                **common_params(change.name, "the cluster is changed"),
            },
            description=f"{change.title} in the {kind} cluster of {conn_id}",
            doc=_DOC.format(
                conn_id=conn_id, kind=kind, title=change.title, summary=change.summary, details=change.details
            ),
            tags=tags or self._tags,
        ) as dag:
            chain_change(
                self.plan_operator,
                self.apply_operator,
                task_id="apply",
                common={"conn_id": conn_id},
                plan={**fixed, **{name: _template(name, kind_of(change.request, name)) for name in asked}},
                change=own,
                takes_over=change.takes_lease,
                approval=approval_arguments(
                    approval,
                    response_timeout=response_timeout,
                    require_other_approver=require_other_approver,
                    subject=f"Approve: {change.title}",
                ),
            )
        return dag


def _template(name: str, kind: type) -> str:
    return f"{{{{ params.{name} }}}}" if kind is bool else f"{{{{ '' if params.{name} is none else params.{name} }}}}"


def form_field(kind: type, option: Option, field: Field[Any]) -> Param:
    """A field of a request in the form of a DAG."""
    is_required = field.default is MISSING
    help = option.help
    if kind is tuple:
        help += " Separate several by commas" + ("." if is_required else "; leave it empty for the default.")
    elif not is_required and kind is not bool and field.default in ("", None):
        help += " Leave it empty for the default."
    more: dict[str, Any] = {"title": option.title, "description": help}
    if issubclass(kind, StrEnum):
        more["enum"] = [str(each) for each in kind]
    if kind in (int, float) and option.least is not None:
        more["minimum"] = option.least
    type_ = {bool: "boolean", int: "integer", float: "number"}.get(kind, "string")
    default = None if is_required or field.default in ((), "", None) else field.default
    if is_required and type_ == "string":
        more["minLength"] = 1
    return Param(default, type=type_ if is_required or default is not None else ["null", type_], **more)


fence_dag = ChangeDag(
    operators.ConnectFencePlanOperator,
    operators.ConnectFenceOperator,
    dag_id="connect_fence",
    tags=("kafka-connect", "fencing"),
)


_OFFSETS_TAGS = ("kafka-connect", "offsets")

offsets_alter_dag = ChangeDag(
    operators.ConnectOffsetsAlterPlanOperator,
    operators.ConnectOffsetsAlterOperator,
    dag_id="connect_offsets_alter",
    tags=_OFFSETS_TAGS,
)
offsets_reset_dag = ChangeDag(
    operators.ConnectOffsetsResetPlanOperator,
    operators.ConnectOffsetsResetOperator,
    dag_id="connect_offsets_reset",
    tags=_OFFSETS_TAGS,
)
offsets_restore_dag = ChangeDag(
    operators.ConnectOffsetsRestorePlanOperator,
    operators.ConnectOffsetsRestoreOperator,
    dag_id="connect_offsets_restore",
    tags=_OFFSETS_TAGS,
)
offsets_migrate_dag = ChangeDag(
    operators.ConnectOffsetsMigratePlanOperator,
    operators.ConnectOffsetsMigrateOperator,
    dag_id="connect_offsets_migrate",
    tags=_OFFSETS_TAGS,
)
offsets_prune_dag = ChangeDag(
    operators.ConnectOffsetsPrunePlanOperator,
    operators.ConnectOffsetsPruneOperator,
    dag_id="connect_offsets_prune",
    tags=_OFFSETS_TAGS,
)


topics_dag = ChangeDag(
    operators.ConnectTopicsPlanOperator,
    operators.ConnectTopicsOperator,
    dag_id="connect_topics",
    tags=("kafka-connect", "topics"),
)


#: A connection whose login has *Alter* on the cluster; only the task that writes uses it.
_WRITER = ("admin_conn_id",)
_ACL_TAGS = ("kafka-connect", "acl")

acl_grant_dag = ChangeDag(
    operators.ConnectAclGrantPlanOperator,
    operators.ConnectAclGrantOperator,
    dag_id="connect_acl_grant",
    tags=_ACL_TAGS,
    apply_arguments=_WRITER,
)
acl_revoke_dag = ChangeDag(
    operators.ConnectAclRevokePlanOperator,
    operators.ConnectAclRevokeOperator,
    dag_id="connect_acl_revoke",
    tags=_ACL_TAGS,
    apply_arguments=_WRITER,
)


transaction_abort_dag = ChangeDag(
    operators.TransactionAbortPlanOperator,
    operators.TransactionAbortOperator,
    dag_id="connect_transaction_abort",
    tags=("kafka-connect", "transactions"),
)


close_dag = ChangeDag(
    operators.ConnectClosePlanOperator,
    operators.ConnectCloseOperator,
    dag_id="connect_close",
    tags=("kafka-connect", "journal"),
)
uninstall_dag = ChangeDag(
    operators.ConnectUninstallPlanOperator,
    operators.ConnectUninstallOperator,
    dag_id="connect_uninstall",
    tags=("kafka-connect", "uninstall"),
)


interval_abandon_dag = ChangeDag(
    operators.IntervalAbandonPlanOperator,
    operators.IntervalAbandonOperator,
    dag_id="interval_abandon",
    tags=("exactly-once", "intervals"),
)
