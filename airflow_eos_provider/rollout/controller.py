"""Carries a plan out, from its hash to the end of the roll. Used alike by ``eos`` and by Airflow's operators."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    FencedError,
    PlanMovedError,
    StopRequestedError,
)
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.journal import Journal, require_free
from airflow_eos_provider.journal.journal_topic import clock_of
from airflow_eos_provider.journal.records import (
    RequestKind,
    RolloutRecord,
    RolloutState,
)
from airflow_eos_provider.rollout.act.checkpoint import Checkpoint, TaskMemory
from airflow_eos_provider.rollout.act.handover import COME_BACK_SECONDS
from airflow_eos_provider.rollout.act.roll import Roll
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.hosts.choose import HostFactory, host_of
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.outcome import RolloutReport
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.planner import Planner
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from airflow_eos_provider.stored import from_json, to_json


class Controller(Planner):
    """A planner that carries its plans out; a context manager.

    :param report: receives one line of progress at a time.
    :param checkpoint: the caller's own note of the rollout.
    :param stop_requested: asked between two actions whether to stop, leaving everything as it is.
    :param task: the Airflow task that asks, as ``<dag>/<run>/<task>``; the lease is left to it while it is deferred.
    """

    def __init__(
        self,
        cluster: ConnectCluster,
        *,
        report: Callable[[str], None] = lambda line: None,
        checkpoint: Checkpoint | None = None,
        actor: str = "",
        reason: str = "",
        settings: RolloutSettings = RolloutSettings(),  # noqa: B008 (frozen)
        stop_requested: Callable[[], bool] = lambda: False,
        task: str = "",
        hosts: HostFactory = host_of,
    ) -> None:
        super().__init__(cluster, settings=settings, hosts=hosts)
        self._report = report
        self._memory = TaskMemory(checkpoint)
        self._actor = actor
        self._reason = reason
        self._stop_requested = stop_requested
        self._task = task

    def journal(self) -> Journal:
        """A journal of this cluster's group, not acquired yet."""
        return Journal(
            self.observer.session.kafka,
            self.cluster.group_id,
            lease_seconds=self.settings.lease_seconds,
            act_seconds=self.settings.act_seconds,
            actor=self._actor,
            reason=self._reason,
            task=self._task,
            report=self._report,
        )

    def apply(self, plan: Plan, *, take_over: bool = False, resume: bool = False) -> RolloutReport:
        """Roll the group as planned, or take up the unfinished roll of this very plan.

        :param take_over: fence a controller even though its lease still runs; kept in the journal.
        :param resume: go on even if a pause was requested while no controller carried the roll out.
        :returns: what was done; of a roll that was done already and still holds, what it did then.
        :raises PlanMovedError, LeaseHeldError: nothing was changed.
        :raises GateFailedError: a worker failed its gate; the message says how it and its configuration are.
        :raises RolloutPausedError: it is not known whether it is safe to go on; everything is left as it is.
        """
        # Nothing is handed over, so what comes back is the report.
        return cast(RolloutReport, self._carry_out(plan, take_over=take_over, resume=resume))

    def advance(self, plan: Plan, *, take_over: bool = False) -> RolloutReport | GateState:
        """Like :meth:`apply`, but a gate that does not hold at once is not waited for here.

        The journal's lease is left to the task then; what the task waits for comes back by :meth:`go_on`.
        """
        if not self._task:
            raise ConfigurationError(
                "A roll that hands its gates over leaves the lease to a task, and no task was named.",
                remedy="Use apply, or give the controller the task.",
            )
        return self._carry_out(plan, take_over=take_over, hands_over=True)

    def go_on(self, plan: Plan, gate: GateState, *, hands_over: bool = True) -> RolloutReport | GateState:
        """Go on at a gate that was waited for elsewhere."""
        content = self.read_journal()
        self._require_not_aborted(content)
        record = content.rollouts.get(gate.rollout_id)
        if record is not None and record.plan.get("hash") != plan.hash:
            raise PlanMovedError(
                f"Rollout {gate.rollout_id} carries out plan {record.plan.get('hash')}, not {plan.hash}.",
                remedy="Start a new run.",
            )
        is_done = record is not None and record.state is RolloutState.DONE
        if not is_done and (content.lease is None or not content.lease.belongs_to(self._task)):
            raise FencedError(
                f"Another controller has taken over group {self.cluster.group_id} while this task was deferred: "
                f"{content.lease}. This controller stops.",
                remedy="Follow the other one ('eos rollout show').",
            )
        return self._carry_out(plan, hands_over=hands_over, gate=gate)

    # carrying a plan out, in the order in which it happens

    def _carry_out(
        self,
        plan: Plan,
        *,
        take_over: bool = False,
        resume: bool = False,
        hands_over: bool = False,
        gate: GateState | None = None,
    ) -> RolloutReport | GateState:
        """The hops of every roll: is it free, is it done, does the plan still fit; take the lease; run.

        :param gate: the gate at which a deferred task comes back.
        """
        report = self._before_the_lease(plan, take_over=take_over)
        if report is not None:
            return report
        journal = self.journal()
        try:
            content = journal.acquire(take_over=take_over)
            content.require_no_open_change()
            record, seen = self._unfinished(plan, content), None
            if record is None:
                seen = self.observe_stable()
                record = self._new_record(plan, seen, content)
            running = self._begin(journal, record, content, resume=resume, comes_back=gate is not None)
            steps = content.steps.get(record.rollout_id, {})
            was_interrupted = any(event.what == "taken up" for event in content.events.get(record.rollout_id, ()))
            resumed = bool(steps) and (was_interrupted or gate is None)
            roll = Roll(
                record.rollout_id,
                plan,
                self.observer,
                journal,
                self.settings,
                self._report,
                {worker_id: journal.by_this_clock(step) for worker_id, step in steps.items()},
                baseline=from_json(Baseline, record.baseline),
                stop_requested=self._stop_requested,
                hands_over=hands_over,
                gate=self._memory.gate_of(record) if hands_over and gate is None else gate,
                seen=seen,
            )
            handed_over = self._run(roll, running)
            return handed_over or RolloutReport.of(plan, record, roll.steps, resumed=resumed)
        finally:
            journal.close()

    def _before_the_lease(self, plan: Plan, *, take_over: bool) -> RolloutReport | None:
        """Refuse what must not be rolled, before anything is written; returns the report if nothing is to be done."""
        content = self.read_journal()
        self._require_not_aborted(content)
        if not take_over:
            clock = clock_of(self.cluster.kafka, self.cluster.group_id)
            require_free(content.lease, self.cluster.group_id, self._task, now=clock.now)
        content.require_no_open_change()
        content.require_understood(content.last_of(plan.hash))
        if content.unfinished(plan.hash) is not None:
            return None
        observation = self.look_of_search()
        # What a roll of this plan did that is done and still holds; its caller may have been killed before it knew.
        if (done := self.still_done(plan, content, observation)) is not None:
            self._report(f"Nothing to do: rollout {done.rollout_id} of plan {plan.short_hash} is done.")
            return RolloutReport.of(plan, done, content.steps.get(done.rollout_id, {}), resumed=True)
        self.require_unmoved(plan, observation, content)
        if not plan.nothing_to_do:
            return None
        self._report(f"Nothing to do: every worker of {plan.group_id} is in {plan.target} already.")
        return RolloutReport.of_nothing(plan)

    def _require_not_aborted(self, content: JournalContent) -> None:
        """A caller that remembers its rollout is a retry, which must not begin an aborted one again."""
        record = content.rollouts.get(self._memory.rollout_id or "")
        if record is not None and record.state is RolloutState.ABORTED:
            raise StopRequestedError(
                f"Rollout {record.rollout_id} was aborted: {record.note}.",
                remedy="Make a new plan, and start a new run.",
            )

    def _unfinished(self, plan: Plan, content: JournalContent) -> RolloutRecord | None:
        """The rollout of this plan that is taken up; None if there is none."""
        record = content.unfinished(plan.hash)
        content.require_understood(record)
        if record is not None:
            steps = content.steps.get(record.rollout_id, {})
            progress = ", ".join(f"{worker_id} {step.status}" for worker_id, step in steps.items())
            what = progress or "no worker was touched yet"
            self._report(f"Resuming rollout {record.rollout_id} of plan {plan.short_hash}: {what}.")
        return record

    def _new_record(self, plan: Plan, observation: Observation, content: JournalContent) -> RolloutRecord:
        """A rollout of a plan that still fits what is seen while the lease is held."""
        self.require_unmoved(plan, observation, content)
        started_at = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(started_at))
        return RolloutRecord(
            rollout_id=f"{stamp}-{plan.target}-{uuid.uuid4().hex[:6]}",
            plan=plan.to_dict(),
            baseline=to_json(Baseline.of(observation)),
            state=RolloutState.RUNNING,
            started_at=started_at,
            actor=self._actor,
            reason=self._reason,
        )

    def _begin(
        self, journal: Journal, record: RolloutRecord, content: JournalContent, *, resume: bool, comes_back: bool
    ) -> RolloutRecord:
        """Announce that the rollout runs; returns its record as it was announced."""
        running = replace(record, state=RolloutState.RUNNING, actor=self._actor or record.actor, note="")
        request = content.requests.get(record.rollout_id)
        journal.begin(
            running,
            # One that this version does not understand is left as it is; a version that does finds its files moved.
            superseded=[
                other
                for other in content.rollouts.values()
                if other.rollout_id != record.rollout_id and other.rollout_id not in content.unreadable
            ],
            taken_up=record.rollout_id in content.rollouts,
            comes_back=comes_back,
            request=request,
            dismissed=resume and request is not None and request.kind is RequestKind.PAUSE,
        )
        self._memory.keep_rollout(record.rollout_id)
        return running

    def _run(self, roll: Roll, running: RolloutRecord) -> GateState | None:
        """Roll, and write down how it ended; returns the gate that was handed over, if one was."""
        journal = roll.journal
        try:
            gate = roll.run()
            if gate is not None:
                self._memory.keep_gate(gate)  # so that a crash does not move its deadline
                journal.hand_over(str(gate), until=gate.latest_deadline + COME_BACK_SECONDS)
                self._report(f"{gate}: handed over; the roll does nothing until it passes.")
                return gate
        except FencedError:
            raise  # the journal belongs to another controller now
        except BaseException as error:
            note = error.found if isinstance(error, EosError) else type(error).__name__
            self._end_unfinished(journal, replace(running, state=roll.failed_state, note=note), error)
            raise
        journal.end(replace(running, state=RolloutState.DONE))
        return None

    def _end_unfinished(self, journal: Journal, record: RolloutRecord, error: BaseException) -> None:
        """Give the lease back if that is still possible; otherwise the error that ended the roll matters more.

        Where another controller has taken over, what this one has seen last is that one's doing, so its error says
        nothing.
        """
        try:
            journal.end(record)
        except FencedError as fenced:
            if isinstance(error, EosError):
                raise fenced from error
        except EosError as unwritten:
            left = journal.left_behind()
            consequence = f"So {left}." if left else "Its lease has ended."
            self._report(
                f"Rollout {record.rollout_id} is {record.state}, but the journal could not record it: "
                f"{unwritten.found} {consequence}"
            )
        else:
            self._report(f"Rollout {record.rollout_id} is {record.state}.")
