"""Operators that give an interval run up of which nothing is committed: plan, then carry out what was approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_eos_provider.errors import PlanMovedError, RefusedError
from airflow_eos_provider.hooks.pipeline import DEFAULT_GROUP_ID, DEFAULT_KAFKA_CONN_ID, find_pipeline, run_of
from airflow_eos_provider.operators.shown_change import APPROVED_FIELDS, ShownChangeOperator, ShownPlanOperator
from airflow_eos_provider.operators.shown_plan import ShownDocument
from airflow_eos_provider.plan_hash import hash_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.interval.interval import Run
    from airflow_eos_provider.interval.pipeline import Pipeline


class _AbandonOperator(BaseOperator):
    """What both operators share.

    :param pipeline: name of the pipeline.
    :param interval: ``start/end`` in ISO 8601 with offsets.
    :param revision: which revision of it.
    :param group_id: the group that the pipeline belongs to.
    :param kafka_conn_id: a connection of type ``kafka`` or ``kafka_connect``.
    """

    template_fields: Sequence[str] = ("pipeline", "interval", "revision", "group_id", "kafka_conn_id")

    def __init__(
        self,
        *,
        pipeline: str,
        interval: str,
        revision: int | str = 1,
        group_id: str = DEFAULT_GROUP_ID,
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.interval = interval
        self.revision = revision
        self.group_id = group_id
        self.kafka_conn_id = kafka_conn_id

    def _look(self, context: Context) -> tuple[Pipeline, Run, ShownDocument]:
        """The run as it is on record, and what is done to it.

        :raises RefusedError: nothing of it is on record, it is complete, or a slice is committed.
        """
        from airflow_eos_provider.interval.verify import status

        run = run_of(context, self.pipeline, self.interval, self.revision)
        pipeline = find_pipeline(self.pipeline, group_id=self.group_id, kafka_conn_id=self.kafka_conn_id)
        found = status(pipeline, run)
        if found is None:
            raise RefusedError(f"Nothing is on record of {run}, so there is nothing to give up.")
        if found.complete or found.done:
            what = "is complete" if found.complete else f"has {len(found.done)} of {found.slices} slices committed"
            raise RefusedError(f"{run} {what}; it cannot be given up.", remedy="Run it again to complete it.")
        rests_on = {"run": run.name, "group": self.group_id, "plan": found.plan_hash, "generation": found.generation}
        lines = (
            f"give up {run.name} of group {self.group_id}: none of its {found.slices} slices is committed",
            f"  its plan {found.plan_hash} and generation {found.generation} are removed",
            "  a driver that still runs it is fenced",
            "  its interval is as if never planned; the next run of it makes a new plan",
        )
        return pipeline, run, ShownDocument(f"Give up the interval run {run.name}?", lines, hash_of(rests_on))


class IntervalAbandonPlanOperator(ShownPlanOperator, _AbandonOperator):
    """Plan to give an interval run up. Nothing is changed.

    :returns: the plan, as :class:`~airflow_eos_provider.operators.shown_plan.ShownDocument` gives it.
    :raises AirflowFailException: nothing is on record, a slice is committed, or the interval is complete.
    """

    def shown(self, context: Context) -> ShownDocument:
        return self._look(context)[2]


class IntervalAbandonOperator(ShownChangeOperator, _AbandonOperator):
    """Give the run up as approved. The coordinator looks once more behind its fencing, and refuses what is committed.

    :param plan: the plan as :class:`IntervalAbandonPlanOperator` returns it. The other parameters are those it had.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's, and an approval without a result, as one that was marked as success, is none.
    :param reason: why, for the task's log.
    :returns: ``run`` and ``abandoned``.
    :raises AirflowFailException: refused, or begun anew since it was planned; nothing was changed then.
    """

    template_fields: Sequence[str] = (*_AbandonOperator.template_fields, *APPROVED_FIELDS)

    def carry_out(self, approved: ShownDocument, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.interval.protocol.coordinator import Coordinator

        pipeline, run, now = self._look(context)
        if now.plan_hash != approved.plan_hash:
            raise PlanMovedError(
                f"{run} was begun anew since the plan was made. Nothing was changed.", remedy="Start a new run."
            )
        with Coordinator(pipeline, run, report=self.report) as coordinator:
            coordinator.abandon()
        return {"run": run.name, "abandoned": True}
