"""Operators of a rolling upgrade: preflight, plan, roll, verify. Thin; ``rollout.controller`` does the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import NEVER_EXPIRE, BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.operators.failures import no_retry_where_pointless

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_eos_provider.rollout.controller import Controller
    from airflow_eos_provider.rollout.preflight import Preflight

#: Schema of a document in the task state store. Changing it breaks runs in flight.
CHECKPOINT_SCHEMA = 1

#: A task process that is killed leaves a lease of four minutes behind (``RolloutSettings.lease_seconds``) unless its
#: death can be proven, so the tries together wait for longer than that.
ROLL_RETRIES = 9
ROLL_RETRY_DELAY = timedelta(seconds=30)

#: Looking at a cluster can meet a moment of unrest.
LOOK_RETRIES = 3
LOOK_RETRY_DELAY = timedelta(seconds=10)


class TaskStateCheckpoint:
    """A controller's checkpoint in Airflow's task state store; it survives retries, crashes and clearing.

    :param store: ``context["task_state_store"]``.
    :param clear_number: how often the run was cleared. It is kept with each document, since a retry leaves it alone
        and a clear raises it: the only way to tell the two apart.
    """

    def __init__(self, store: Any, clear_number: int) -> None:
        self._store = store
        self._clear_number = clear_number

    def get(self, key: str) -> dict[str, Any] | None:
        """The document of this key; None if there is none, or if it has another schema."""
        stored = self._store.get(key)
        if not isinstance(stored, dict) or stored.get("schema") != CHECKPOINT_SCHEMA:
            return None
        return dict(stored["document"])

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Keep a document; it does not expire, since a roll may wait for a person for longer than any default."""
        document = {"schema": CHECKPOINT_SCHEMA, "clear_number": self._clear_number, "document": value}
        self._store.set(key, document, retention=NEVER_EXPIRE)


class _ConnectOperator(BaseOperator):
    """What the operators of one cluster share.

    :param conn_id: a connection of type ``kafka_connect``.
    :param settings: fields of :class:`~airflow_eos_provider.rollout.settings.RolloutSettings` that differ from its
        defaults.
    """

    template_fields: Sequence[str] = ("conn_id",)

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", LOOK_RETRIES)
        kwargs.setdefault("retry_delay", LOOK_RETRY_DELAY)
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.settings = settings

    def controller(self, **kwargs: Any) -> Controller:
        """The controller of this cluster; its progress goes to the task log, one line at a time."""
        from airflow_eos_provider.rollout.controller import Controller
        from airflow_eos_provider.rollout.settings import RolloutSettings

        return Controller(
            KafkaConnectHook(self.conn_id).get_cluster(),
            report=self._report,
            settings=RolloutSettings(**(self.settings or {})),
            **kwargs,
        )

    def _report(self, line: str) -> None:
        self.log.info("%s", line)

    def _log_checks(self, result: Preflight) -> None:
        for check in result.checks:
            self.log.info("%s", check)


class ConnectPreflightOperator(_ConnectOperator):
    """Answer every condition for the next roll, before anybody is asked anything.

    :param target: the mode to roll to; unset, the next step of the upgrade.
    :returns: target, verdict and one entry per condition.
    :raises AirflowFailException: the cluster may not be rolled; with every reason.
    """

    def __init__(self, *, target: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = target

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.rollout.plan import next_target

        with no_retry_where_pointless():
            controller = self.controller()
            target = Mode.parse(self.target) if self.target else next_target(controller.observe())
            result = controller.preflight(target)
            self._log_checks(result)
            result.require()
        return result.to_dict()


class ConnectPlanOperator(_ConnectOperator):
    """Plan the roll to one mode. Nothing is changed.

    On the way up a worker beyond the target is never taken back: the step to ``preparing`` is skipped where every
    worker that runs is prepared already. On the way down none is taken up.

    :param target: the mode.
    :param downwards: whether this is a step of a downgrade.
    :returns: the plan, as ``Plan.to_dict`` gives it.
    :raises AirflowSkipException: there is nothing to do.
    :raises AirflowFailException: the cluster may not be rolled there; with every reason.
    """

    def __init__(self, *, target: str, downwards: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = target
        self.downwards = downwards

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless():
            target = Mode.parse(self.target)
            controller = self.controller()
            # Upwards the next step of the upgrade, unless the last step is meant: planning "preparing" for a cluster
            # that is enabled in part would be a way back.
            plan = controller.plan(target if self.downwards or target.runs_exactly_once_tasks else None)
        if plan.target is not target or plan.nothing_to_do or (self.downwards and not plan.is_downgrade):
            raise AirflowSkipException(
                f"Nothing to do: the workers of group {plan.group_id} run in {plan.current}, "
                f"so no roll to {target} is due."
            )
        self.log.info("Plan %s\n%s", plan.hash, plan.markdown())
        return plan.to_dict()


class ConnectRollingUpgradeOperator(_ConnectOperator):
    """Apply an approved plan: one worker after the other, each through its gate.

    It observes the cluster before it acts, so a retry after a crash goes on where the roll stands. The checkpoint in
    the task state store says which rollout this task belongs to; the authority is the journal in Kafka, and above it
    the cluster itself.

    Being killed (*Mark failed*, a stopped Airflow worker): no further action is begun and the cluster stays as it is.
    That is safe, since workers in ``preparing`` live beside both other modes; a surprising way back would not be.

    :param plan: the plan as :meth:`~airflow_eos_provider.rollout.plan.Plan.to_dict` gives it.
    :param approval: result of :class:`~airflow_eos_provider.operators.approval.PlanApprovalOperator`; if given, its
        hash must be the plan's.
    :param reason: why, for the journal.
    :param take_over: fence a controller though its lease still runs; a template gives the words ``True`` or ``False``.
    :returns: the report: ``rollout_id``, ``from``, ``to``, ``workers``, ``finished_at_ms``.
    :raises AirflowFailException: refused, moved, failed at a gate, or fenced; a person has to look first.
    """

    template_fields: Sequence[str] = (*_ConnectOperator.template_fields, "plan", "approval", "reason", "take_over")

    def __init__(
        self, *, plan: Any, approval: Any = None, reason: str = "", take_over: bool | str = False, **kwargs: Any
    ) -> None:
        kwargs.setdefault("retries", ROLL_RETRIES)
        kwargs.setdefault("retry_delay", ROLL_RETRY_DELAY)
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval
        self.reason = reason
        self.take_over = take_over
        self._killed = False

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.rollout.plan import Plan

        with no_retry_where_pointless():
            plan = Plan.from_dict(self.plan)
            if self.approval is not None and self.approval.get("plan_hash") != plan.hash:
                raise AirflowFailException(
                    f"Plan {plan.hash} is not the one that was approved ({self.approval.get('plan_hash')}). "
                    "Nothing was changed. Start a new run."
                )
            dag_run = context["dag_run"]
            controller = self.controller(
                checkpoint=TaskStateCheckpoint(context["task_state_store"], dag_run.clear_number or 0),
                actor=self._actor(context),
                reason=self.reason,
                stop_requested=lambda: self._killed,
            )
            return controller.apply(plan, take_over=str(self.take_over).lower() == "true").to_dict()

    def on_kill(self) -> None:
        """Runs inside the signal handler: only take note. The roll stops before its next action.

        Raising here instead could hit the moment in which a worker is stopped and not yet started. Airflow itself kills
        the process five seconds later; then the next attempt takes it up from what it observes.
        """
        self._killed = True

    def _actor(self, context: Context) -> str:
        dag_run = context["dag_run"]
        who = (self.approval or {}).get("approved_by") or dag_run.triggering_user_name or "nobody"
        return f"airflow {dag_run.dag_id}/{dag_run.run_id}, approved by {who}"


class ConnectVerifyOperator(_ConnectOperator):
    """Prove that every running worker is in one mode.

    :param target: the mode.
    :returns: target, verdict and one entry per worker.
    :raises AirflowFailException: a worker is not in that mode.
    """

    def __init__(self, *, target: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = target

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless():
            target = Mode.parse(self.target)
            result = self.controller().verify(target)
        self._log_checks(result)
        self.log.info("Every worker is proven to be in %s.", target)
        return result.to_dict()
