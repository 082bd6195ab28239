"""What the operators of changes are made of: one plans, one carries out the approved plan.

A plan operator's parameters are the fields of the change's request.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowSkipException

from airflow_eos_provider.changes.change import Change, Option, Plan, options, read_request
from airflow_eos_provider.changes.declared import CHANGES
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.hooks.pipeline import DEFAULT_KAFKA_CONN_ID, kafka_settings
from airflow_eos_provider.links.operator_links import ClusterPageLink
from airflow_eos_provider.operators.approval import (
    APPROVED_FIELDS,
    ApprovedOperator,
    actor_of,
    is_true,
    require_approved,
)
from airflow_eos_provider.operators.failures import LookOperator, no_retry_where_pointless

if TYPE_CHECKING:
    from airflow.sdk import Context


#: By a change's name the operator that plans it, and the one that carries it out.
PLANS: dict[str, type[ChangePlanOperator]] = {}
APPLIES: dict[str, type[ChangeOperator]] = {}


class ChangePlanOperator(LookOperator):
    """Plan a change. Nothing is changed. Each further parameter is a field of the change's request.

    :param conn_id: a connection of type ``kafka_connect``, by default ``kafka_connect_default``. For interval runs
        also one of type ``kafka``, by default ``kafka_default``.
    :returns: the plan, as ``Plan.to_dict`` gives it.
    :raises AirflowSkipException: there is nothing to do.
    :raises AirflowFailException: it cannot be done; with the reason.
    """

    change: ClassVar[Change[Any]]
    operator_extra_links = (ClusterPageLink(),)

    def __init__(self, *, conn_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id or default_conn_id(self.change)

    def __init_subclass__(cls, change: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if change:
            cls.change = CHANGES[change]
            PLANS[change] = cls
            cls.__doc__ = f"{cls.change.summary}\n\nThis operator plans it. Nothing is changed."
            _take_fields(cls, options(cls.change.request))
            cls.__doc__ = f"{cls.__doc__}\n{_outcome(ChangePlanOperator)}"

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.changes.engine import planned

        change = self.change
        with no_retry_where_pointless():
            given = {name: getattr(self, name) for name in options(change.request)}
            request: Any = read_request(change.request, given)
            with change.session(_described(change, self.conn_id)) as session:
                plan = planned(change, session, request)
        for line in plan.lines:
            self.log.info("%s", one_line(line, LINE_CHARACTERS))
        if plan.nothing:
            raise AirflowSkipException(f"{plan.nothing} Nothing to do.")
        self.log.info("Plan %s", plan.hash)
        return plan.to_dict()


class ChangeOperator(ApprovedOperator):
    """Carry an approved change out. If its process is killed, its next try resumes where the journal says.

    :param plan: the plan as the plan operator returns it.
    :param conn_id: as of the plan operator.
    :returns: the report, from its ``to_dict``.
    :raises AirflowFailException: refused, or moved since it was planned; nothing was changed then.
    """

    change: ClassVar[Change[Any]]
    template_fields: Sequence[str] = ("conn_id", *APPROVED_FIELDS)
    operator_extra_links = (ClusterPageLink(),)

    def __init__(self, *, conn_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id or default_conn_id(self.change)

    def __init_subclass__(cls, change: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if change:
            cls.change = CHANGES[change]
            APPLIES[change] = cls
            resumes = cls.change.takes_lease and not cls.change.begins_again
            killed = "the next try resumes where the journal says" if resumes else "start a new run for what is left"
            cls.__doc__ = (
                f"{cls.change.summary}\n\nThis operator carries the approved plan out. If its process is killed, "
                f"{killed}.\n\n{_outcome(ChangeOperator)}"
            )

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.changes.engine import carry_out

        with no_retry_where_pointless():
            change = self.change_to_apply()
            plan = Plan.from_dict(self.plan, change.name)
            require_approved(self.approval, plan.hash)
            actor = actor_of(self.approval, context)
            self._report(f"{actor}: {self.reason}")
            with change.session(_described(change, self.conn_id)) as session:
                report = carry_out(
                    change,
                    session,
                    plan,
                    actor=actor,
                    reason=self.reason,
                    take_over=is_true(self.take_over),
                    report=self._report,
                )
            for line in report.lines():
                self._report(line)
            if report.problem:
                raise report.problem
        return report.to_dict()

    def change_to_apply(self) -> Change[Any]:
        """The change, with what only this task knows."""
        return self.change

    def _report(self, line: str) -> None:
        self.log.info("%s", one_line(line, LINE_CHARACTERS))


def default_conn_id(change: Change[Any]) -> str:
    """The connection that is taken when none is named."""
    return DEFAULT_KAFKA_CONN_ID if change.brokers_only else KafkaConnectHook.default_conn_name


def _described(change: Change[Any], conn_id: str) -> ConnectCluster:
    if change.brokers_only:
        return ConnectCluster.of_brokers(kafka_settings(conn_id))
    return KafkaConnectHook(conn_id).get_cluster()


def _take_fields(cls: type[ChangePlanOperator], known: Mapping[str, tuple[Option, Field[Any]]]) -> None:
    """Give an operator the fields of its change's request as parameters, and their texts as its docstring."""
    defaults = {
        name: inspect.Parameter.empty if each.default is MISSING else _as_given(each.default)
        for name, (_, each) in known.items()
    }

    def init(self: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name, default) for name, default in defaults.items()}
        super(cls, self).__init__(**kwargs)
        for name, value in given.items():
            setattr(self, name, value)

    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each) for name, each in defaults.items()),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
    init.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    cls.__init__ = init  # type: ignore[method-assign]
    cls.template_fields = ("conn_id", *known)
    texts = "\n".join(f":param {name}: {option.help}" for name, (option, _) in known.items())
    cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{texts}"


def _outcome(base: type) -> str:
    """What the docstring of a base says of its result and its errors."""
    text = inspect.cleandoc(base.__doc__ or "")
    return text[text.index(":returns:") :]


def _as_given(default: Any) -> Any:
    """A default as a template gives it: names are separated by commas."""
    return "" if default in ((), None) else default


class RightsOperator(ChangeOperator):
    """Writes ACLs, with a connection of its own if it has one.

    :param admin_conn_id: a connection of type ``kafka`` or ``kafka_connect`` of the same brokers, with *Alter* on the
        cluster; empty: the cluster's own connection. Keep that right out of the connections of other tasks.
    """

    template_fields: Sequence[str] = (*ChangeOperator.template_fields, "admin_conn_id")

    def __init__(self, *, admin_conn_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.admin_conn_id = admin_conn_id

    def change_to_apply(self) -> Change[Any]:
        if not self.admin_conn_id:
            return self.change
        rights: Any = type(self.change)
        return rights(kafka_settings(self.admin_conn_id))  # type: ignore[no-any-return]
