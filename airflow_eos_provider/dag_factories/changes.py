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
from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.dag_factories.dag import make_dag
from airflow_eos_provider.dag_factories.dag_steps import REASON, TAKE_OVER, approval_arguments, run_params
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.operators import changes as changes  # defines those of each change_base
from airflow_eos_provider.operators.approval import PlanApprovalOperator
from airflow_eos_provider.operators.change_base import APPLIES, PLANS, ChangeOperator, default_conn_id
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

    :ivar name: the last part of the DAG's id.
    """

    def __init__(self, change: Change[Any]) -> None:
        self.change = change
        self.name = change.dag.removesuffix("_dag")
        dag_id = self.name if change.brokers_only else f"connect_{self.name}"
        tags = ("exactly-once" if change.brokers_only else "kafka-connect", change.group)
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
                conn_id=conn_id,
                kind=kind,
                title=change.title,
                summary=change.summary,
                details=change.details,
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


#: By their names, the functions that make DAGs.
FACTORIES: Mapping[str, ChangeDag] = {change.dag: ChangeDag(change) for change in CHANGES.values()}


def change_dags(*, conn_id: str, prefix: str, without: Collection[str] = (), **arguments: Any) -> dict[str, DAG]:
    """The DAGs of every change of one Kafka Connect cluster, for a DAG file of a few lines.

    :param conn_id: a connection of type ``kafka_connect``.
    :param prefix: what their ids begin with, as in ``connect_offsets_reset``; one for each cluster.
    :param without: the rest of the ids of those that are left out, such as ``uninstall``.
    :param arguments: further arguments of all of them, as :func:`offsets_reset_dag` takes them; those of a single one
        as a mapping, under the rest of its id: ``acl_grant={"admin_conn_id": "kafka_admin"}``.
    :returns: the DAGs by their ids; ``globals().update(…)`` lets Airflow find them.
    """
    factories = {each.name: each for each in FACTORIES.values() if not each.change.brokers_only}
    own = {name: arguments.pop(name) for name in factories if name in arguments}
    if unknown := set(without) - factories.keys():
        raise ConfigurationError(
            f"There is no DAG {', '.join(sorted(unknown))}.", expected=f"one of {', '.join(factories)}"
        )
    dags = (
        make(conn_id=conn_id, dag_id=f"{prefix}_{name}", **{**arguments, **own.get(name, {})})
        for name, make in factories.items()
        if name not in without
    )
    return {dag.dag_id: dag for dag in dags}
