"""Operators for fencing rounds: plan, then carry out what was approved. ``offsets.fencing.round`` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.links.operator_links import ClusterPageLink
from airflow_eos_provider.operators.approved import NOBODY_ASKED, actor_of, is_true, require_approved
from airflow_eos_provider.operators.failures import no_retry_where_pointless
from airflow_eos_provider.operators.rolling_upgrade import (
    LOOK_RETRIES,
    LOOK_RETRY_DELAY,
    ROLL_RETRIES,
    ROLL_RETRY_DELAY,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.offsets.fencing.round import Fencer


class _FenceOperator(BaseOperator):
    """What both operators share.

    :param conn_id: a connection of type ``kafka_connect``.
    :param config_topic: the workers' ``config.storage.topic``; empty: as their properties files say.
    """

    template_fields: Sequence[str] = ("conn_id", "config_topic")

    operator_extra_links = (ClusterPageLink(),)

    def __init__(
        self, *, conn_id: str = KafkaConnectHook.default_conn_name, config_topic: str = "", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.config_topic = config_topic

    def fencer(self) -> AbstractContextManager[Fencer]:
        """What fences in the cluster."""
        return KafkaConnectHook(self.conn_id).fencer(config_topic=self.config_topic, report=self._report)

    def _report(self, line: str) -> None:
        self.log.info("%s", one_line(line, LINE_CHARACTERS))


class ConnectFencePlanOperator(_FenceOperator):
    """Plan fencing rounds. Nothing is changed.

    :param connectors: names of source connectors, separated by commas; empty for all. Of one that is named, also what
        a running task holds open is ended.
    :param pending: only connectors whose round is due or has failed; a template gives the words ``True`` or ``False``.
    :returns: the plan, as ``FencePlan.to_dict`` gives it.
    :raises AirflowSkipException: there is nothing to do.
    :raises AirflowFailException: it cannot be done; with the reason.
    """

    template_fields: Sequence[str] = (*_FenceOperator.template_fields, "connectors", "pending")

    def __init__(self, *, connectors: str = "", pending: bool | str = False, **kwargs: Any) -> None:
        kwargs.setdefault("retries", LOOK_RETRIES)
        kwargs.setdefault("retry_delay", LOOK_RETRY_DELAY)
        super().__init__(**kwargs)
        self.connectors = connectors
        self.pending = pending

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless(), self.fencer() as fencer:
            plan, why = fencer.unfinished(), ""
            if plan is None:
                _, decision = fencer.look(self._names(), pending_only=is_true(self.pending))
                plan, why = decision.plan, decision.unused
                for line in [line for round_ in decision.rounds for line in round_.lines()]:
                    self._report(line)
        if plan.nothing_to_do:
            raise AirflowSkipException(why or "No round is pending, and no transaction is held open: nothing to do.")
        self.log.info("Plan %s", plan.hash)
        return plan.to_dict()

    def _names(self) -> list[str]:
        return [name.strip() for name in self.connectors.split(",") if name.strip()]


class ConnectFenceOperator(_FenceOperator):
    """Carry approved fencing rounds out.

    Killed in mid-act, its next try takes the fencing up where the journal says that it stopped.

    :param plan: the plan as :class:`ConnectFencePlanOperator` returns it.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's, and an approval without a result, as one that was marked as success, is none.
    :param reason: why, for the journal.
    :param take_over: fence a controller though its lease still runs; a template gives the words ``True`` or ``False``.
    :returns: for each connector ``connector``, ``ids``, ``restarted``, ``task_count_record`` and ``problem``.
    :raises AirflowFailException: refused, or moved since it was planned.
    """

    template_fields: Sequence[str] = (*_FenceOperator.template_fields, "plan", "approval", "reason", "take_over")

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

    def execute(self, context: Context) -> list[dict[str, Any]]:
        from airflow_eos_provider.journal.change import change_journal
        from airflow_eos_provider.offsets.fencing.plan import FencePlan
        from airflow_eos_provider.offsets.fencing.round import combined_problem

        with no_retry_where_pointless():
            plan = FencePlan.from_dict(self.plan)
            require_approved(self.approval, plan.hash)
            with self.fencer() as fencer:
                journal = change_journal(
                    fencer.session.kafka,
                    fencer.group_id,
                    actor=actor_of(self.approval, context),
                    reason=self.reason,
                    report=self._report,
                )
                reports = fencer.apply(plan, journal, take_over=is_true(self.take_over))
            for one in (one for report in reports for one in report.ids):
                self._report(str(one))
            if problem := combined_problem(reports):
                raise problem
        return [report.to_dict() for report in reports]
