"""Operators that end a hanging transaction in its partition: plan, then carry out what was approved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_eos_provider.data_text import one_line
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.links.operator_links import ClusterPageLink
from airflow_eos_provider.operators.approved import is_true
from airflow_eos_provider.operators.shown_change import APPROVED_FIELDS, ShownChangeOperator, ShownPlanOperator
from airflow_eos_provider.operators.shown_plan import ShownDocument

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.transactions.abort import Aborter


class _AbortOperator(BaseOperator):
    """What both operators share.

    :param topic: the topic that holds the transaction open.
    :param partition: its partition; a number, or the text of one.
    :param start_offset: of its first record; needed where several hang there. Empty: the only one.
    :param fence: shut its producer out first, where that may be alive; a template gives the words ``True`` or
        ``False``.
    :param conn_id: a connection of type ``kafka_connect``.
    """

    template_fields: Sequence[str] = ("conn_id", "topic", "partition", "start_offset", "fence")
    operator_extra_links = (ClusterPageLink(),)

    def __init__(
        self,
        *,
        topic: str,
        partition: int | str,
        start_offset: int | str = "",
        fence: bool | str = False,
        conn_id: str = KafkaConnectHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.partition = partition
        self.start_offset = start_offset
        self.fence = fence
        self.conn_id = conn_id

    @contextmanager
    def aborter(self) -> Iterator[Aborter]:
        """What plans and carries out the end.

        :raises ConfigurationError: a number is none; or there is no such topic or partition.
        """
        from airflow_eos_provider.connect.session import ConnectSession
        from airflow_eos_provider.transactions.abort import Aborter

        place = (self.topic, _number("partition", self.partition))
        start = None if self.start_offset in ("", None) else _number("start_offset", self.start_offset)
        with ConnectSession(KafkaConnectHook(self.conn_id).get_cluster()) as session:
            yield Aborter(session.kafka, place, start, fence=is_true(self.fence))


class TransactionAbortPlanOperator(ShownPlanOperator, _AbortOperator):
    """Plan the end of the transaction that hangs in one partition. Nothing is changed.

    :returns: the plan, as :class:`~airflow_eos_provider.operators.shown_plan.ShownDocument` gives it.
    :raises AirflowFailException: none hangs there, or several, or it may be alive; with the reason.
    """

    def shown(self, context: Context) -> ShownDocument:
        with self.aborter() as aborter:
            plan = aborter.plan()
        question = f"End the transaction that hangs in {one_line(self.topic)}-{self.partition}?"
        return ShownDocument(question, tuple(plan.lines()), plan.hash)


class TransactionAbortOperator(ShownChangeOperator, _AbortOperator):
    """End the transaction as approved. Its records in that partition are given up for good.

    :param plan: the plan as :class:`TransactionAbortPlanOperator` returns it. The other parameters are those it had.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's, and an approval without a result, as one that was marked as success, is none.
    :param reason: why, for the task's log.
    :returns: ``topic``, ``partition``, ``start_offset``, and the partition's ends ``before`` and ``after``.
    :raises AirflowFailException: refused, or another transaction hangs there now; nothing was changed then.
    """

    template_fields: Sequence[str] = (*_AbortOperator.template_fields, *APPROVED_FIELDS)

    def carry_out(self, approved: ShownDocument, context: Context) -> dict[str, Any]:
        with self.aborter() as aborter:
            return aborter.apply(approved.plan_hash).to_dict()


def _number(name: str, value: int | str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ConfigurationError(f"{name} is {value!r}.", expected="a whole number from 0 on")
    return number
