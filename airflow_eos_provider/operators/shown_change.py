"""What operators share whose plan is made anew before it is carried out: one shows it, one does what was approved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.operators.approved import NOBODY_ASKED, actor_of, require_approved
from airflow_eos_provider.operators.failures import no_retry_where_pointless
from airflow_eos_provider.operators.shown_plan import MOST_LINES, ShownDocument

if TYPE_CHECKING:
    from airflow.sdk import Context

#: What such an operator has besides what its plan was asked with; to be added to its ``template_fields``.
APPROVED_FIELDS = ("plan", "approval", "reason")


class ShownPlanOperator(BaseOperator):
    """Show a plan. Nothing is changed."""

    def shown(self, context: Context) -> ShownDocument:
        """The plan as it is now.

        :raises AirflowSkipException: there is nothing to do.
        """
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless():
            document = self.shown(context)
            if len(document.lines) > MOST_LINES:
                raise RefusedError(
                    f"The plan has {len(document.lines):,} lines, more than an approver can be shown ({MOST_LINES}).",
                    remedy="Start a run that does less at a time: for some connectors, or with one rule for all ids of "
                    "a connector.",
                )
        self.log.info("Plan %s", document.hash)
        for line in document.lines:
            self.log.info("%s", one_line(line, LINE_CHARACTERS))
        return document.to_dict()


class ShownChangeOperator(BaseOperator):
    """Carry out what was shown and approved.

    :param plan: the plan as the task before has made it.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's. An approval task that was marked as success has no result and does not count.
    :param reason: why, for the task's log.
    """

    def __init__(self, *, plan: Any, approval: Any = NOBODY_ASKED, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval
        self.reason = reason

    def carry_out(self, approved: ShownDocument, context: Context) -> dict[str, Any]:
        """Make the plan anew, and carry it out if it is the approved one.

        :raises PlanMovedError: it is another one; nothing was changed.
        """
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless():
            document = ShownDocument.from_dict(self.plan)
            require_approved(self.approval, document.hash)
            self.log.info("%s: %s", actor_of(self.approval, context), one_line(self.reason, LINE_CHARACTERS))
            return self.carry_out(document, context)

    def report(self, line: str) -> None:
        """A line of progress, for the task's log."""
        self.log.info("%s", one_line(line, LINE_CHARACTERS))
