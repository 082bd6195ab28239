"""The public face of a rollout: look, plan, apply, verify. Used alike by ``eos`` and by Airflow's operators."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    FencedError,
    PlanMovedError,
    RefusedError,
    StopRequestedError,
)
from airflow_eos_provider.rollout import preflight
from airflow_eos_provider.rollout.checkpoint import Checkpoint, TaskMemory
from airflow_eos_provider.rollout.expectation import Baseline
from airflow_eos_provider.rollout.journal import Journal, read_journal, require_free
from airflow_eos_provider.rollout.observation import Observation
from airflow_eos_provider.rollout.observer import Observer
from airflow_eos_provider.rollout.plan import Plan, make_plan, next_target
from airflow_eos_provider.rollout.preflight import Preflight
from airflow_eos_provider.rollout.properties import Former, properties_to_set
from airflow_eos_provider.rollout.records import (
    JournalContent,
    RequestKind,
    RolloutRecord,
    RolloutState,
    Step,
)
from airflow_eos_provider.rollout.report import RolloutReport, WorkerOutcome
from airflow_eos_provider.rollout.roll import Roll
from airflow_eos_provider.rollout.settings import RolloutSettings
from airflow_eos_provider.rollout.temporary import temporary_isolation
from airflow_eos_provider.rollout.waiting import COME_BACK_SECONDS, GateWait

#: How long planning waits for a rebalance that happens to be under way.
CALM_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class _Manner:
    """How a plan is carried out, see :meth:`Controller.apply`, :meth:`Controller.advance`, :meth:`Controller.go_on`."""

    take_over: bool = False
    resume: bool = False
    hands_over: bool = False
    waited: GateWait | None = None
    comes_back: bool = False


class Controller:
    """Drives one cluster.

    :param cluster: its description.
    :param report: receives one line of progress at a time.
    :param checkpoint: the caller's own note of the rollout.
    :param actor: who asked for it, for the journal.
    :param reason: why, for the journal.
    :param stop_requested: asked between two actions whether a roll shall end, leaving everything as it is.
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
    ) -> None:
        self.cluster = cluster
        self.observer = Observer(cluster)
        self.settings = settings
        self._report = report
        self._memory = TaskMemory(checkpoint)
        self._actor = actor
        self._reason = reason
        self._stop_requested = stop_requested
        self._task = task

    def observe(self) -> Observation:
        """One look at the cluster."""
        return self.observer.observe()

    def preflight(self, target: Mode) -> Preflight:
        """Every condition for a roll to ``target``, answered. A rebalance under way is waited for."""
        return preflight.check(self._observe_calm(), target, self.settings)

    def plan(self, target: Mode | None = None) -> Plan:
        """What a roll would change.

        :param target: the mode to roll to; unset, the next step of the upgrade.
        :raises RefusedError: the cluster may not be rolled there; with every reason.
        :raises RolloutPausedError: it cannot be told whether it may.
        """
        observation = self._observe_calm()
        wanted = target or next_target(observation)
        preflight.check(observation, wanted, self.settings).require()
        return self._plan_from(observation, wanted)

    def find_plan(self, hash_prefix: str) -> Plan:
        """The plan with this hash: one that the journal has as unfinished, or one that fits what is seen now.

        :raises PlanMovedError: no plan has it.
        """
        content = read_journal(self.cluster.kafka, self.cluster.group_id)
        own = [r for r in content.rollouts.values() if str(r.plan.get("hash", "")).startswith(hash_prefix)]
        newest_first = sorted(own, key=lambda r: r.started_at, reverse=True)
        for record in newest_first:
            if content.unfinished(record.plan["hash"]):
                return Plan.from_dict(record.plan)
        observation = self._observe_calm()
        plans = [self._plan_from(observation, target) for target in Mode]
        for plan in plans:
            if plan.hash.startswith(hash_prefix):
                return plan
        for record in newest_first:  # done already: apply tells so, if it still holds
            plan = Plan.from_dict(record.plan)
            if self._done_already(plan, content, observation) is not None:
                return plan
        raise PlanMovedError(
            f"No plan {hash_prefix} fits the cluster as it is now: "
            f"the files, modes, versions or the roster have moved since it was made.",
            remedy="Make a new plan with 'eos plan' and look at what it says.",
        )

    def replan(self, target: Mode) -> Plan:
        """A plan from what is seen now, whether it may be applied or not; to compare an older one with."""
        return self._plan_from(self._observe_calm(), target)

    def apply(self, plan: Plan, *, take_over: bool = False, resume: bool = False) -> RolloutReport:
        """Roll the group as planned, or take up the unfinished roll of this very plan.

        :param take_over: fence a controller even though its lease still runs; kept in the journal.
        :param resume: go on even if somebody asked for a pause while nobody was rolling.
        :returns: what was done; of a roll that was done already and still holds, what it did then.
        :raises PlanMovedError: the cluster is no longer as planned; nothing was changed.
        :raises LeaseHeldError: another controller is at it; nothing was changed.
        :raises FencedError: another controller has taken over meanwhile.
        :raises GateFailedError: a worker failed its gate; its file is back, the others are as they are.
        :raises StopRequestedError: somebody asked for a pause, or to give the roll up.
        :raises RolloutPausedError: it cannot be told whether it is safe to go on; everything is left as it is.
        """
        # Nothing is handed over, so what comes back is the report.
        return cast(RolloutReport, self._carry_out(plan, _Manner(take_over=take_over, resume=resume)))

    def advance(self, plan: Plan, *, take_over: bool = False) -> RolloutReport | GateWait:
        """Like :meth:`apply`, but a gate that does not hold at once is not waited for here.

        The journal's lease is left to the task then; what the task waits for comes back by :meth:`go_on`.

        :returns: the report, or the gate to be waited for.
        :raises ConfigurationError: there is no task to leave the lease to.
        """
        if not self._task:
            raise ConfigurationError(
                "A roll that hands its gates over leaves the lease to a task, and no task was named.",
                remedy="Use apply, or give the controller the task.",
            )
        return self._carry_out(plan, _Manner(take_over=take_over, hands_over=True))

    def go_on(self, plan: Plan, waited: GateWait, *, hands_over: bool = True) -> RolloutReport | GateWait:
        """Go on at a gate that was waited for elsewhere.

        :param waited: the gate, as it was seen last.
        :param hands_over: whether a gate may be handed over again; otherwise all are waited for here.
        :raises FencedError: another controller has taken the group over meanwhile.
        :raises PlanMovedError: that rollout carries out another plan.
        """
        content = read_journal(self.cluster.kafka, self.cluster.group_id)
        self._require_not_aborted(content)
        record = content.rollouts.get(waited.rollout_id)
        if record is not None and record.plan.get("hash") != plan.hash:
            raise PlanMovedError(
                f"Rollout {waited.rollout_id} carries out plan {record.plan.get('hash')}, and not {plan.hash}.",
                remedy="Start a new run.",
            )
        is_done = record is not None and record.state is RolloutState.DONE
        if not is_done and (content.lease is None or not content.lease.belongs_to(self._task)):
            raise FencedError(
                f"Another controller has taken over group {self.cluster.group_id} while this task was deferred: "
                f"{content.lease}. This one does no more.",
                remedy="Follow the other one ('eos rollout show').",
            )
        return self._carry_out(plan, _Manner(hands_over=hands_over, waited=waited, comes_back=True))

    def _carry_out(self, plan: Plan, manner: _Manner) -> RolloutReport | GateWait:
        known = read_journal(self.cluster.kafka, self.cluster.group_id)
        self._require_not_aborted(known)
        if not manner.take_over:
            require_free(known.lease, self.cluster.group_id, self._task)
        if known.unfinished(plan.hash) is None:
            observation = self._observe_calm()
            report = self._done_already(plan, known, observation)
            if report is not None:
                return report
            self._require_unmoved(plan, observation)
            if plan.nothing_to_do:
                self._report(f"Nothing to do: every worker of {plan.group_id} is in {plan.target} already.")
                return RolloutReport.of_nothing(plan)
        journal = self.journal()
        try:
            content = journal.acquire(take_over=manner.take_over)
            record = content.unfinished(plan.hash)
            if record is not None:
                steps = content.steps.get(record.rollout_id, {})
                self._report(
                    f"Taking up rollout {record.rollout_id} of plan {plan.short_hash}: {_progress(plan, steps)}."
                )
            else:
                observation = self._observe_calm()
                self._require_unmoved(plan, observation)
                record = self._new_record(plan, observation)
            if manner.hands_over and manner.waited is None:
                manner = replace(manner, waited=self._memory.gate_of(record))
            return self._run(journal, plan, record, content, manner)
        finally:
            journal.close()

    def journal(self) -> Journal:
        """A journal of this cluster's group, not acquired yet."""
        return Journal(
            self.cluster.kafka,
            self.cluster.group_id,
            lease_seconds=self.settings.lease_seconds,
            act_seconds=self.settings.act_seconds,
            actor=self._actor,
            reason=self._reason,
            task=self._task,
        )

    def verify(self, target: Mode) -> Preflight:
        """Prove that every running member is in ``target``.

        :raises RefusedError: a member is not.
        :raises RolloutPausedError: of a member it cannot be told.
        """
        result = preflight.verify(self._observe_calm(), target)
        result.require()
        return result

    def _run(
        self, journal: Journal, plan: Plan, record: RolloutRecord, content: JournalContent, manner: _Manner
    ) -> RolloutReport | GateWait:
        steps = dict(content.steps.get(record.rollout_id, {}))
        taken_up = record.rollout_id in content.rollouts
        was_interrupted = any(event.what == "taken up" for event in content.events.get(record.rollout_id, ()))
        resumed = bool(steps) and (was_interrupted or not manner.comes_back)
        running = replace(record, state=RolloutState.RUNNING, actor=self._actor or record.actor, note="")
        request = content.requests.get(record.rollout_id)
        journal.begin(
            running,
            superseded=[r for r in content.rollouts.values() if r.rollout_id != record.rollout_id],
            taken_up=taken_up,
            comes_back=manner.comes_back,
            request=request,
            dismissed=manner.resume and request is not None and request.kind is RequestKind.PAUSE,
        )
        self._memory.keep_rollout(record.rollout_id, plan.hash)
        roll = Roll(
            rollout_id=record.rollout_id,
            plan=plan,
            baseline=Baseline.from_dict(record.baseline),
            steps=steps,
            observer=self.observer,
            journal=journal,
            settings=self.settings,
            report=self._report,
            stop_requested=self._stop_requested,
            hands_over=manner.hands_over,
            waited=manner.waited,
        )
        try:
            wait = roll.run()
            if wait is not None:
                self._hand_over(journal, wait)
                return wait
        except FencedError:
            raise  # the journal belongs to another controller now
        except BaseException as error:
            self._end_unfinished(journal, replace(running, state=roll.failed_state, note=_note(error)), error)
            raise
        journal.end(replace(running, state=RolloutState.DONE))
        return RolloutReport.of(plan, record, roll.steps, resumed=resumed)

    def _hand_over(self, journal: Journal, wait: GateWait) -> None:
        """Note the gate, so that a crash does not move its deadline, and leave the lease to the task."""
        self._memory.keep_gate(wait)
        journal.hand_over(str(wait), until=wait.latest_deadline + COME_BACK_SECONDS)
        self._report(f"{wait}: nothing is done until it holds; handed over.")

    def _require_not_aborted(self, content: JournalContent) -> None:
        """A caller that remembers its rollout is a retry, which must not begin anew what somebody has given up."""
        record = content.rollouts.get(self._memory.rollout_id or "")
        if record is not None and record.state is RolloutState.ABORTED:
            raise StopRequestedError(
                f"Rollout {record.rollout_id} was aborted: {record.note}.", remedy="Plan anew, and start a new run."
            )

    def _end_unfinished(self, journal: Journal, record: RolloutRecord, error: BaseException) -> None:
        """Give the lease back if that is still possible; otherwise the error that ended the roll matters more.

        :raises FencedError: another controller has taken over. What this one has seen last is that one's doing, so the
            error that ended the roll says nothing.
        """
        try:
            journal.end(record)
        except FencedError as fenced:
            if isinstance(error, EosError):
                raise fenced from error
        except EosError:
            return
        else:
            self._report(f"Rollout {record.rollout_id} is {record.state}.")

    def _done_already(self, plan: Plan, content: JournalContent, observation: Observation) -> RolloutReport | None:
        """What a roll of this plan did that is done and still holds; its caller may have been killed before he knew."""
        record = content.last_of(plan.hash)
        if record is None or record.state is not RolloutState.DONE:
            return None
        if not self._plan_from(observation, plan.target).nothing_to_do:
            return None  # somebody has moved the cluster on: the plan is refused for what has moved
        self._report(f"Nothing to do: rollout {record.rollout_id} of plan {plan.short_hash} is done, and it holds.")
        return RolloutReport.of(plan, record, content.steps.get(record.rollout_id, {}), resumed=True)

    def _new_record(self, plan: Plan, observation: Observation) -> RolloutRecord:
        started_at = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(started_at))
        return RolloutRecord(
            rollout_id=f"{stamp}-{plan.target}-{uuid.uuid4().hex[:6]}",
            plan=plan.to_dict(),
            baseline=Baseline.of(observation).to_dict(),
            state=RolloutState.RUNNING,
            started_at=started_at,
            actor=self._actor,
            reason=self._reason,
        )

    def _require_unmoved(self, plan: Plan, observation: Observation) -> None:
        now = self._plan_from(observation, plan.target)
        plan.require_unmoved(now)
        preflight.check(observation, plan.target, self.settings).require()

    def _plan_from(self, observation: Observation, target: Mode) -> Plan:
        digests = {}
        temporary = self._temporary(observation, target)
        for worker in observation.workers:
            facts = worker.facts
            properties = properties_to_set(facts, target, temporary.get(worker.worker_id))
            if facts.problem:
                digests[worker.worker_id] = ""
            elif not properties:
                digests[worker.worker_id] = facts.config_sha256 or ""
            else:
                digests[worker.worker_id] = self.observer.hosts[worker.worker_id].digest_with(properties)
        return make_plan(observation, target, digests, temporary)

    def _temporary(self, observation: Observation, target: Mode) -> dict[str, Former]:
        """What a roll has set for the way, and this one may put back."""
        if not target.runs_exactly_once_tasks:
            return {}
        return temporary_isolation(read_journal(self.cluster.kafka, self.cluster.group_id), observation)

    def _observe_calm(self) -> Observation:
        """One look at a moment without a rebalance, if there is one within :data:`CALM_SECONDS`."""
        deadline = time.monotonic() + CALM_SECONDS
        observation = self.observe()
        while not (observation.group and observation.group.is_stable) and time.monotonic() < deadline:
            if observation.group is None or not observation.group.members:
                break
            time.sleep(self.settings.poll_interval_seconds)
            observation = self.observe()
        return observation


def _progress(plan: Plan, steps: Mapping[str, Step]) -> str:
    if not steps:
        return "no worker was touched yet"
    return ", ".join(f"{worker_id} {step.status}" for worker_id, step in steps.items())


def _note(error: BaseException) -> str:
    return error.found if isinstance(error, EosError) else type(error).__name__


__all__ = ["Checkpoint", "Controller", "RefusedError", "RolloutReport", "WorkerOutcome"]
