"""The DAGs of changes, made from their declarations: form, plan, approval, change."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from airflow.sdk import DAG, Param

from airflow_eos_provider.changes.change import Change, Option, kind_of, options
from airflow_eos_provider.changes.closing.change import CLOSE
from airflow_eos_provider.changes.fencing.change import FENCING
from airflow_eos_provider.changes.intervals.change import ABANDON
from airflow_eos_provider.changes.offsets.change import ALTER, MIGRATE, PRUNE, RESET, RESTORE
from airflow_eos_provider.changes.own_topic.change import DROP_OWN
from airflow_eos_provider.changes.rights.change import GRANT, REVOKE
from airflow_eos_provider.changes.topics.change import CREATE_TOPICS
from airflow_eos_provider.changes.transactions.change import ABORT
from airflow_eos_provider.changes.uninstall.change import UNINSTALL
from airflow_eos_provider.dag_factories.dag import make_dag
from airflow_eos_provider.dag_factories.steps import REASON, TAKE_OVER, approval_arguments, run_params
from airflow_eos_provider.operators.approval import PlanApprovalOperator
from airflow_eos_provider.operators.changes import APPLIES, PLANS, ChangeOperator, default_conn_id
from airflow_eos_provider.operators.run_conf import refuse_unknown_conf

_DOC = """
### {title} in the {kind} cluster of connection `{conn_id}`

{summary} {details}

Shows the plan, asks a person under **Required actions**, then carries it out.

* *Clear* a failed `apply`: a change that was cut off resumes where it stopped.
* Nothing to do: the run skips the rest.
"""


class ChangeDag:
    """Makes the DAG of a change.

    :param dag_id: the DAG's id, unless another one is given.
    :param tags: the DAG's tags, likewise.
    """

    def __init__(self, change: Change[Any], dag_id: str, *tags: str) -> None:
        self.change = change
        self.plan_operator, self.apply_operator = PLANS[change.name], APPLIES[change.name]
        self._dag_id, self._tags = dag_id, tags
        # What only the operator that carries it out takes, such as a connection that no other task has.
        self._apply_arguments = [
            name for name in self.apply_operator.template_fields if name not in ChangeOperator.template_fields
        ]
        defaults = {"conn_id": default_conn_id(change), "dag_id": dag_id, "tags": tags}
        own = inspect.signature(self.__call__).parameters.values()
        self.__signature__ = inspect.Signature(
            [each.replace(default=defaults.get(each.name, each.default)) for each in own]
        )
        documented = inspect.cleandoc(self.__call__.__doc__ or "").replace("A change", change.title, 1)
        known = ", ".join(options(change.request))
        if self._apply_arguments:
            known += f"; and of the operator that applies it: {', '.join(self._apply_arguments)}"
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
        with make_dag(
            dag_id or self._dag_id,
            schedule=None,
            pool=pool,
            default_args=default_args,
            params={
                **{name: form_field(kind_of(change.request, name), *each) for name, each in asked.items()},
                **run_params(change.name, "the cluster is changed", takes_over=change.takes_lease),
            },
            description=f"{change.title} in the {kind} cluster of {conn_id}",
            doc=_DOC.format(
                conn_id=conn_id, kind=kind, title=change.title, summary=change.summary, details=change.details
            ),
            tags=tags or self._tags,
        ) as dag:
            planned = self.plan_operator(
                task_id="plan",
                conn_id=conn_id,
                pre_execute=refuse_unknown_conf,
                **fixed,
                **{name: _template(name, kind_of(change.request, name)) for name in asked},
            )
            taking: dict[str, Any] = {"take_over": TAKE_OVER} if change.takes_lease else {}
            shown = approval_arguments(
                approval,
                response_timeout=response_timeout,
                require_other_approver=require_other_approver,
                subject=f"Approve: {change.title}",
                **taking,
            )
            approved = PlanApprovalOperator(task_id="approve", plan=planned.output, reason=REASON, **shown)
            applied = self.apply_operator(
                task_id="apply",
                conn_id=conn_id,
                plan=planned.output,
                approval=approved.output,
                reason=REASON,
                **taking,
                **own,
            )
            planned >> approved >> applied
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


_CONNECT = "kafka-connect"

fence_dag = ChangeDag(FENCING, "connect_fence", _CONNECT, "fencing")
offsets_alter_dag = ChangeDag(ALTER, "connect_offsets_alter", _CONNECT, "offsets")
offsets_reset_dag = ChangeDag(RESET, "connect_offsets_reset", _CONNECT, "offsets")
offsets_restore_dag = ChangeDag(RESTORE, "connect_offsets_restore", _CONNECT, "offsets")
offsets_migrate_dag = ChangeDag(MIGRATE, "connect_offsets_migrate", _CONNECT, "offsets")
offsets_prune_dag = ChangeDag(PRUNE, "connect_offsets_prune", _CONNECT, "offsets")
offsets_drop_own_dag = ChangeDag(DROP_OWN, "connect_offsets_drop_own", _CONNECT, "offsets")
topics_dag = ChangeDag(CREATE_TOPICS, "connect_topics", _CONNECT, "topics")
acl_grant_dag = ChangeDag(GRANT, "connect_acl_grant", _CONNECT, "acl")
acl_revoke_dag = ChangeDag(REVOKE, "connect_acl_revoke", _CONNECT, "acl")
transaction_abort_dag = ChangeDag(ABORT, "connect_transaction_abort", _CONNECT, "transactions")
close_dag = ChangeDag(CLOSE, "connect_close", _CONNECT, "journal")
uninstall_dag = ChangeDag(UNINSTALL, "connect_uninstall", _CONNECT, "uninstall")
interval_abandon_dag = ChangeDag(ABANDON, "interval_abandon", "exactly-once", "intervals")
