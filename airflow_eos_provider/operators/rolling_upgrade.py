"""Operators of a rolling upgrade: preflight, plan, roll, verify. Thin; ``rollout.controller`` does the work."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import (  # type: ignore[attr-defined]  # its stub lacks NEVER_EXPIRE
    NEVER_EXPIRE,
    BaseOperatorLink,
)
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowSkipException

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.errors import GateFailedError, RolloutPausedError
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.links.operator_links import ClusterPageLink, ConnectRestLink, RollPageLink, show, show_rest
from airflow_eos_provider.links.page import history_url, roll_url
from airflow_eos_provider.metrics import ROLLS_FAILED, ROLLS_PAUSED, of_roll
from airflow_eos_provider.operators.approval import (
    APPROVED_FIELDS,
    ApprovedOperator,
    actor_of,
    is_true,
    require_approved,
)
from airflow_eos_provider.operators.failures import LookOperator, no_retry_where_pointless
from airflow_eos_provider.triggers.gate import ConnectGateTrigger

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_eos_provider.rollout.controller import Controller
    from airflow_eos_provider.rollout.gate.state import GateState
    from airflow_eos_provider.rollout.outcome import RolloutReport
    from airflow_eos_provider.rollout.plan.obstacles import Preflight
    from airflow_eos_provider.rollout.plan.roll_plan import Plan
    from airflow_eos_provider.rollout.roll_settings import RolloutSettings

#: Schema of a document in the task state store. Changing it breaks runs in flight.
CHECKPOINT_SCHEMA = 1

#: The trigger reports the end of a gate's time; this much later Airflow itself would, and try the task again.
DEFERRAL_BACKSTOP = timedelta(minutes=5)


class TaskStateCheckpoint:
    """A controller's checkpoint in ``context["task_state_store"]``; it survives retries, crashes and clearing."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, key: str) -> dict[str, Any] | None:
        """The document of this key; None if there is none, or if it has another schema."""
        stored = self._store.get(key)
        if not isinstance(stored, dict) or stored.get("schema") != CHECKPOINT_SCHEMA:
            return None
        return dict(stored["document"])

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Keep a document; it does not expire, since a roll may wait for a person for longer than any default."""
        document = {"schema": CHECKPOINT_SCHEMA, "document": value}
        self._store.set(key, document, retention=NEVER_EXPIRE)


class _ConnectOperator(LookOperator):
    """What the operators of one cluster share.

    :param conn_id: a connection of type ``kafka_connect``.
    :param settings: fields of :class:`~airflow_eos_provider.rollout.roll_settings.RolloutSettings` that differ from its
        defaults.
    """

    template_fields: Sequence[str] = ("conn_id",)
    operator_extra_links: Collection[BaseOperatorLink] = (ClusterPageLink(), ConnectRestLink())

    def __init__(
        self,
        *,
        conn_id: str = KafkaConnectHook.default_conn_name,
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.settings = settings

    def controller(self, context: Context | None = None, **kwargs: Any) -> Controller:
        """The controller of this cluster; its progress goes to the task log, one line at a time."""
        from airflow_eos_provider.rollout.controller import Controller

        cluster = KafkaConnectHook(self.conn_id).get_cluster()
        if context is not None:
            show_rest(self, context, cluster)
        return Controller(cluster, report=self._report, settings=self._settings(), **kwargs)

    def _settings(self) -> RolloutSettings:
        from airflow_eos_provider.rollout.roll_settings import RolloutSettings

        return RolloutSettings(**(self.settings or {}))

    def _report(self, line: str) -> None:
        self.log.info("%s", one_line(line, LINE_CHARACTERS))

    def _log_checks(self, result: Preflight) -> None:
        for check in result.checks:
            self.log.info("%s", one_line(check, LINE_CHARACTERS))


class ConnectPreflightOperator(_ConnectOperator):
    """Answer every preflight check of the next roll, before an approver is asked.

    :param target: the mode to roll to; unset, the next step of the upgrade.
    :returns: target, verdict and one entry per check.
    :raises AirflowFailException: the cluster may not be rolled; with every reason.
    """

    def __init__(self, *, target: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = target

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_eos_provider.rollout.plan.roll_plan import next_target

        with no_retry_where_pointless():
            controller = self.controller(context)
            target = Mode.parse(self.target) if self.target else next_target(controller.observe())
            result = controller.preflight(target)
            self._log_checks(result)
            result.require()
        return result.to_dict()


class ConnectPlanOperator(_ConnectOperator):
    """Plan the roll to one mode. Nothing is changed.

    An upgrade never moves a worker back to a lower mode: the step to ``preparing`` is skipped if every running
    worker is prepared already. A downgrade never moves one to a higher mode.

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
            controller = self.controller(context)
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


class ConnectRollingUpgradeOperator(ApprovedOperator, _ConnectOperator):
    """Apply an approved plan: one worker after the other, each through its gate.

    It observes the cluster before it acts, so a retry after a crash resumes where the roll stopped. The checkpoint in
    the task state store says which rollout this task belongs to. The journal in Kafka overrides it, and the observed
    cluster overrides both.

    If the task is killed (*Mark failed*, a stopped Airflow worker), it starts no further action and leaves the cluster
    unchanged. That is safe: workers in ``preparing`` can run together with both other modes. An unexpected rollback is
    not.

    If deferrable, the task frees its slot while it waits for a gate. A trigger polls group, REST and topics; the task
    then resumes to check the hosts, decide and act. The task keeps the journal's lease until then.

    :param plan: the plan as :meth:`~airflow_eos_provider.rollout.plan.roll_plan.Plan.to_dict` gives it.
    :param deferrable: wait for gates in the triggerer, without a worker's slot; default: ``[operators]
        default_deferrable``.
    :param durable: keep in the task state store which rollout this task carries out, and until when its gate is waited
        for. Without it a retry knows only the journal: it resumes where the roll stopped, but restarts a gate's
        timeout, and starts an aborted rollout again.
    :returns: the report: ``rollout_id``, ``from``, ``to``, ``workers``, ``finished_at_ms``.
    :raises AirflowFailException: refused, moved, failed at a gate, or fenced; a person has to look first.
    """

    template_fields: Sequence[str] = (*_ConnectOperator.template_fields, *APPROVED_FIELDS)
    operator_extra_links = (RollPageLink(), *_ConnectOperator.operator_extra_links)

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        durable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.durable = durable
        self._killed = False
        self._told: tuple[Mapping[str, Any], str] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        with no_retry_where_pointless():
            plan = self._approved_plan()
            controller = self._controller(context)
            take_over = is_true(self.take_over)
            with _counted_stops(plan):
                outcome: RolloutReport | GateState
                if self.deferrable:
                    outcome = controller.advance(plan, take_over=take_over)
                else:
                    outcome = controller.apply(plan, take_over=take_over)
            return self._report_or_defer(context, outcome, plan)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Called with the trigger's event; nothing else is left of the process that was deferred."""
        from airflow_eos_provider.rollout.gate.state import GateState

        can_defer = event["status"] == "look"
        if can_defer:
            self.log.info("Continuing: %s", one_line(event["reason"], LINE_CHARACTERS))
        else:
            self.log.warning("The triggerer cannot check this gate, so the task waits itself: %s", event["reason"])
        with no_retry_where_pointless():
            plan = self._approved_plan()
            gate = GateState.from_dict(event["wait"])
            with _counted_stops(plan):
                outcome = self._controller(context).go_on(plan, gate, hands_over=can_defer)
            return self._report_or_defer(context, outcome, plan)

    def _approved_plan(self) -> Plan:
        from airflow_eos_provider.rollout.plan.roll_plan import Plan

        plan = Plan.from_dict(self.plan)
        require_approved(self.approval, plan.hash)
        return plan

    def _controller(self, context: Context) -> Controller:
        checkpoint = TaskStateCheckpoint(context["task_state_store"]) if self.durable else None
        show(self, context, RollPageLink(), history_url(self.conn_id))
        return self.controller(
            context,
            checkpoint=checkpoint,
            actor=actor_of(self.approval, context),
            reason=self.reason,
            stop_requested=lambda: self._killed,
            task=self._task_name(context),
        )

    def _report_or_defer(self, context: Context, outcome: RolloutReport | GateState, plan: Plan) -> dict[str, Any]:
        from airflow_eos_provider.rollout.gate.state import GateState

        if not isinstance(outcome, GateState):
            report = outcome.to_dict()
            of_roll(report, group_id=plan.group_id)
            self._told = (report, plan.group_id)
            if report.get("rollout_id"):
                show(self, context, RollPageLink(), roll_url(self.conn_id, report["rollout_id"]))
            return report
        settings = self._settings()
        self.defer(
            trigger=ConnectGateTrigger(
                conn_id=self.conn_id,
                task=self._task_name(context),
                wait=outcome.to_dict(),
                poll_interval=settings.poll_interval_seconds,
            ),
            method_name="resume",
            timeout=timedelta(seconds=max(outcome.latest_deadline - time.time(), 0.0)) + DEFERRAL_BACKSTOP,
        )

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """OpenLineage facets of a finished roll."""
        from airflow_eos_provider.lineage import events

        return None if self._told is None else events.of_roll(*self._told)

    def on_kill(self) -> None:
        """Runs inside the signal handler: only take note. The roll stops before its next action.

        Raising here instead could hit the moment in which a worker is stopped and not yet started. Airflow itself kills
        the process five seconds later; then the next attempt takes it up from what it observes.
        """
        self._killed = True

    def _task_name(self, context: Context) -> str:
        """The name by which the journal leaves its lease to this task; the same in each try, and after a *Clear*."""
        dag_run, index = context["dag_run"], getattr(context["ti"], "map_index", -1)
        name = f"{dag_run.dag_id}/{dag_run.run_id}/{self.task_id}"
        return name if index is None or index < 0 else f"{name}[{index}]"


@contextmanager
def _counted_stops(plan: Plan) -> Iterator[None]:
    """Count a roll that a gate has stopped, or that has paused."""
    tags = {"group_id": plan.group_id, "to": str(plan.target)}
    try:
        yield
    except GateFailedError:
        ROLLS_FAILED.send(1, tags)
        raise
    except RolloutPausedError:
        ROLLS_PAUSED.send(1, tags)
        raise


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
            result = self.controller(context).verify(target)
        self._log_checks(result)
        self.log.info("Every worker is proven to be in %s.", target)
        return result.to_dict()
