"""The public face of a rollout: look, plan, apply, verify. Used alike by ``eos`` and by Airflow's operators."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.errors import EosError, FencedError, LeaseHeldError, PlanMovedError, RefusedError
from airflow_eos_provider.rollout import preflight
from airflow_eos_provider.rollout.conditions import Baseline
from airflow_eos_provider.rollout.journal import (
    Journal,
    RolloutRecord,
    RolloutState,
    Step,
    read_journal,
)
from airflow_eos_provider.rollout.observation import Observation
from airflow_eos_provider.rollout.observer import Observer
from airflow_eos_provider.rollout.plan import Plan, make_plan, next_target
from airflow_eos_provider.rollout.preflight import Preflight
from airflow_eos_provider.rollout.roll import Roll
from airflow_eos_provider.rollout.settings import RolloutSettings

#: How long planning waits for a rebalance that happens to be under way.
CALM_SECONDS = 20.0


class Checkpoint(Protocol):
    """A place of the caller's for what this rollout is about: Airflow's task state store, or nothing.

    The journal in Kafka is the authority; this lets the caller show and find the rollout it belongs to.
    """

    def get(self, key: str) -> dict[str, Any] | None: ...

    def set(self, key: str, value: dict[str, Any]) -> None: ...


#: Key and schema of the checkpoint. Renaming them breaks rollouts that are under way.
CHECKPOINT_KEY = "eos_rollout"
CHECKPOINT_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """How one worker came through.

    :param seconds: from the announcement of its restart to its passed gate.
    :param tasks_stood_seconds: how long tasks that it held stood still.
    :param mode: the mode that it is proven to have now, or that its file gives it when it is started.
    """

    worker: str
    seconds: float
    tasks_stood_seconds: float
    mode: str
    led: bool


@dataclass(frozen=True, slots=True)
class RolloutReport:
    """What a rollout did.

    :param finished_at_ms: the broker's time of the last gate, milliseconds since the epoch; from then on every
        worker was proven to run in the new mode. Zero if there was nothing to do.
    """

    rollout_id: str
    plan_hash: str
    from_modes: str
    to_mode: str
    workers: tuple[WorkerOutcome, ...]
    finished_at_ms: int
    resumed: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "rollout_id": self.rollout_id,
            "plan": self.plan_hash,
            "from": self.from_modes,
            "to": self.to_mode,
            "workers": [asdict(worker) for worker in self.workers],
            "finished_at_ms": self.finished_at_ms,
            "resumed": self.resumed,
        }


class Controller:
    """Drives one cluster.

    :param cluster: its description.
    :param report: receives one line of progress at a time.
    :param checkpoint: the caller's own note of the rollout.
    :param actor: who asked for it, for the journal.
    :param reason: why, for the journal.
    :param stop_requested: asked between two actions whether a roll shall end, leaving everything as it is.
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
    ) -> None:
        self.cluster = cluster
        self.observer = Observer(cluster)
        self.settings = settings
        self._report = report
        self._checkpoint = checkpoint
        self._actor = actor
        self._reason = reason
        self._stop_requested = stop_requested

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
        for record in sorted(content.rollouts.values(), key=lambda r: r.started_at, reverse=True):
            if str(record.plan.get("hash", "")).startswith(hash_prefix) and content.unfinished(record.plan["hash"]):
                return Plan.from_dict(record.plan)
        observation = self._observe_calm()
        plans = [self._plan_from(observation, target) for target in Mode]
        for plan in plans:
            if plan.hash.startswith(hash_prefix):
                return plan
        raise PlanMovedError(
            f"No plan {hash_prefix} fits the cluster as it is now: "
            f"the files, modes, versions or the roster have moved since it was made.",
            remedy="Make a new plan with 'eos plan' and look at what it says.",
        )

    def replan(self, target: Mode) -> Plan:
        """A plan from what is seen now, whether it may be applied or not; to compare an older one with."""
        return self._plan_from(self._observe_calm(), target)

    def apply(self, plan: Plan) -> RolloutReport:
        """Roll the group as planned, or take up the unfinished roll of this very plan.

        :raises PlanMovedError: the cluster is no longer as planned; nothing was changed.
        :raises LeaseHeldError: another controller is at it; nothing was changed.
        :raises FencedError: another controller has taken over meanwhile.
        :raises GateFailedError: a worker failed its gate; its file is back, the others are as they are.
        :raises RolloutPausedError: it cannot be told whether it is safe to go on; everything is left as it is.
        """
        known = read_journal(self.cluster.kafka, self.cluster.group_id)
        lease = known.lease
        if lease is not None and lease.is_held(time.time()):
            raise LeaseHeldError(
                f"Group {self.cluster.group_id} is being rolled by {lease.owner}: "
                f"rollout {lease.rollout_id}, {lease.step}.",
                remedy="Wait until it is done, or stop it first.",
            )
        if known.unfinished(plan.hash) is None:
            observation = self._observe_calm()
            self._require_unmoved(plan, observation)
            if plan.nothing_to_do:
                self._report(f"Nothing to do: every worker of {plan.group_id} is in {plan.target} already.")
                return RolloutReport("", plan.hash, plan.current, str(plan.target), (), 0)
        journal = Journal(
            self.cluster.kafka,
            self.cluster.group_id,
            lease_seconds=self.settings.lease_seconds,
            actor=self._actor,
        )
        try:
            content = journal.acquire()
            record = content.unfinished(plan.hash)
            steps: Mapping[str, Step] = {}
            if record is not None:
                steps = content.steps.get(record.rollout_id, {})
                self._report(
                    f"Taking up rollout {record.rollout_id} of plan {plan.short_hash}: {_progress(plan, steps)}."
                )
            else:
                observation = self._observe_calm()
                self._require_unmoved(plan, observation)
                record = self._new_record(plan, observation)
            return self._run(journal, plan, record, dict(steps), content.rollouts)
        finally:
            journal.close()

    def verify(self, target: Mode) -> Preflight:
        """Prove that every running member is in ``target``.

        :raises RefusedError: a member is not.
        :raises RolloutPausedError: of a member it cannot be told.
        """
        result = preflight.verify(self._observe_calm(), target)
        result.require()
        return result

    def _run(
        self,
        journal: Journal,
        plan: Plan,
        record: RolloutRecord,
        steps: dict[str, Step],
        others: Mapping[str, RolloutRecord],
    ) -> RolloutReport:
        resumed = bool(steps)
        running = replace(record, state=RolloutState.RUNNING, actor=self._actor or record.actor)
        journal.begin(running, superseded=[r for r in others.values() if r.rollout_id != record.rollout_id])
        if self._checkpoint is not None:
            self._checkpoint.set(
                CHECKPOINT_KEY,
                {"schema": CHECKPOINT_SCHEMA, "rollout_id": record.rollout_id, "plan_hash": plan.hash},
            )
        roll = Roll(
            plan=plan,
            baseline=Baseline.from_dict(record.baseline),
            steps=steps,
            observer=self.observer,
            journal=journal,
            settings=self.settings,
            report=self._report,
            stop_requested=self._stop_requested,
        )
        try:
            finished_at_ms = roll.run()
        except FencedError:
            raise  # the journal belongs to another controller now
        except BaseException as error:
            state = roll.failed_state
            self._report(f"Rollout {record.rollout_id} is {state}.")
            _end_quietly(journal, replace(running, state=state, note=_note(error)))
            raise
        journal.end(replace(running, state=RolloutState.DONE))
        return RolloutReport(
            rollout_id=record.rollout_id,
            plan_hash=plan.hash,
            from_modes=plan.current,
            to_mode=str(plan.target),
            workers=tuple(
                WorkerOutcome(s.worker_id, round(s.seconds, 1), round(s.tasks_stood_seconds, 1), s.mode, s.led)
                for s in roll.steps.values()
            ),
            finished_at_ms=finished_at_ms,
            resumed=resumed,
        )

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
        for worker in observation.workers:
            facts = worker.facts
            if facts.declared.mode is target:
                digests[worker.worker_id] = facts.config_sha256 or ""
            elif facts.problem:
                digests[worker.worker_id] = ""
            else:
                digests[worker.worker_id] = self.observer.hosts[worker.worker_id].digest_with(MODE_PROPERTY, target)
        return make_plan(observation, target, digests)

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


def _end_quietly(journal: Journal, record: RolloutRecord) -> None:
    """Give the lease back if that is still possible; the error that ended the roll matters more."""
    try:
        journal.end(record)
    except EosError:
        return


__all__ = ["Checkpoint", "Controller", "RefusedError", "RolloutReport", "WorkerOutcome"]
