"""The next action of a rollout: a pure function of the plan, the steps done and the current observation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.journal.journal import Step, StepStatus
from airflow_eos_provider.rollout.gate.expectation import Baseline, Expectation
from airflow_eos_provider.rollout.hosts.host import HostFacts
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.plan.order import leader_that_ends_delay, next_worker
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind, Plan, WorkerChange


class ActionKind(StrEnum):
    """Everything that a rollout can do."""

    CHANGE_FILE = "change the configuration of a stopped worker"
    ROLL = "change the configuration and restart"
    RESTART = "restart"
    GATE = "wait for the gate"
    RESTORE = "restore the former configuration and restart"
    REFUSE = "stop: a configuration was edited"
    PAUSE = "pause"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Action:
    """The next thing to do, and why.

    :param may_pass: whether a later look may see what this one could not read.
    """

    kind: ActionKind
    worker_id: str = ""
    reason: str = ""
    may_pass: bool = False


def decide(plan: Plan, steps: Mapping[str, Step], observation: Observation) -> Action:
    """The next action. Whatever is half done is finished first, by whichever controller it was begun."""
    return (
        _conflict(plan, steps, observation)
        or _finish_what_was_begun(plan, steps, observation)
        or _change_stopped(plan, steps, observation)
        or _roll_next(plan, steps, observation)
        or _wait_for_the_stopped(plan, observation)
        or Action(ActionKind.DONE, reason=_done(plan, observation))
    )


def expectation(
    plan: Plan,
    steps: Mapping[str, Step],
    observation: Observation,
    baseline: Baseline,
    worker_id: str | None = None,
) -> Expectation:
    """What the gate holds the cluster against, for this worker or (None) before the first restart."""
    done = {w for w, step in steps.items() if step.status in (StepStatus.PASSED, StepStatus.RESTARTED)}
    half_done = {w for w, step in steps.items() if step.status is StepStatus.INTENT}  # may run either mode
    members, modes = set(), {}
    for change in plan.workers:
        is_started = change.kind is ChangeKind.START and change.worker_id in steps
        if change.mode == "stopped" and change.worker_id not in observation.members and not is_started:
            continue
        members.add(change.worker_id)
        arrived = change.worker_id in done or change.kind is ChangeKind.NONE or change.mode == "stopped"
        if arrived or change.worker_id == worker_id or _came_back_early(plan, steps, change.worker_id, observation):
            modes[change.worker_id] = plan.target
        elif change.mode in set(Mode) and change.worker_id not in half_done:
            modes[change.worker_id] = Mode(change.mode)
    step = steps.get(worker_id) if worker_id else None
    return Expectation(
        members=frozenset(members),
        baseline=baseline,
        modes=modes,
        worker_id=worker_id,
        digest=plan.change(worker_id).config_after if worker_id else None,
        restarted_after=step.restarted_after if step else 0.0,
        replaces=step.replaces if step else "",
    )


def _came_back_early(plan: Plan, steps: Mapping[str, Step], worker_id: str, observation: Observation) -> bool:
    """Whether a worker runs the new mode before its turn, because its edit was written for another one."""
    was_written = plan.edit_of(worker_id).was_written_for_another(worker_id, steps)
    return was_written and observation.mode_of(worker_id) is plan.target


def others_after_restore(plan: Plan, worker_id: str, observation: Observation) -> str:
    """In words, the state of the other workers whose edit was put back with this one's; empty if it serves no other."""
    edit = plan.edit_of(worker_id)
    if not edit.is_shared or edit.before == edit.after:
        return ""
    others = [observation.worker(other) for other in edit.workers if other != worker_id]
    now = ", ".join(
        f"{w.worker_id} runs {w.mode.verdict}" if w.is_running else f"{w.worker_id} is down" for w in others
    )
    return (
        f"{edit.name} serves {len(edit.workers)} workers and was restored for all of them: {now}; each of them uses "
        "the former settings after its next restart. For another attempt, make a new plan: it uses the modes that the "
        "workers run then"
    )


def left_after_restore(plan: Plan, worker_id: str, facts: HostFacts) -> str:
    """In words, how a worker and its configuration are after a restore that has failed."""
    change, edit = plan.change(worker_id), facts.edit
    if facts.is_running:
        runs = f"{worker_id} runs as {facts.runs_as}"
    elif facts.running.alive is False:
        runs = f"{worker_id} does not run: this roll stopped it"
    else:
        runs = f"eos cannot tell whether {worker_id} runs ({facts.running.detail})"
    if facts.digest is None:
        content = f"the {edit} cannot be read ({facts.problem})"
    elif facts.digest == change.config_before:
        content = f"the {edit} has its content from before the roll"
    elif facts.digest == change.config_after:
        content = f"the {edit} still has the roll's content ({plan.target})"
    else:
        content = f"the {edit} was edited since: its content is not from the roll or from before it"
    return f"{runs}; {content}"


def leader_to_restart(
    plan: Plan, steps: Mapping[str, Step], observation: Observation, expected: Expectation, remaining_seconds: float
) -> str | None:
    """The leader, where it is done and one more restart of it ends a rebalance delay sooner than waiting."""
    done = {c.worker_id for c in plan.workers if c.kind is ChangeKind.NONE and c.mode != "stopped"}
    arrived = (StepStatus.PASSED, StepStatus.RESTARTED)
    done |= {worker_id for worker_id, step in steps.items() if step.status in arrived}
    leader = leader_that_ends_delay(observation, done, remaining_seconds)
    return leader if expected.members == observation.members.keys() else None


def no_longer_described(plan: Plan, workers: Iterable[WorkerObservation | WorkerDescription]) -> list[str]:
    """The plan's workers that the cluster description does not have, in their order."""
    return sorted({change.worker_id for change in plan.workers} - {worker.worker_id for worker in workers})


def why_undescribed(worker_ids: Sequence[str]) -> str:
    """In words, which workers are no longer described, and what to do."""
    are = "is" if len(worker_ids) == 1 else "are"
    return (
        f"{', '.join(worker_ids)} {are} part of the plan and no longer described: add them to the cluster file (or "
        "connection) again; or, if they are gone for good, abort this rollout ('eos rollout abort') and "
        "make a new plan"
    )


def _conflict(plan: Plan, steps: Mapping[str, Step], observation: Observation) -> Action | None:
    planned = {change.worker_id for change in plan.workers}
    missing = no_longer_described(plan, observation.workers)
    if missing:
        return Action(ActionKind.PAUSE, missing[0], why_undescribed(missing))
    unknown = sorted(set(observation.members) - planned)
    if unknown:
        why = f"member {', '.join(unknown)} has joined and is not part of the plan: stop it, or add it to the cluster "
        return Action(ActionKind.PAUSE, reason=f"{why}file and make a new plan")
    for change in plan.workers:
        facts = observation.worker(change.worker_id).facts
        whose = f"the {facts.edit.kind} of {change.worker_id} ({change.config})"
        if facts.digest is None:
            why = f"{whose} cannot be read: {facts.problem}"
            return Action(ActionKind.PAUSE, change.worker_id, why, may_pass=True)
        if facts.digest not in plan.edit_of(change.worker_id).may_hold(steps):
            why = "; ".join(obstacle.what for obstacle in facts.obstacles_to("change")) or "it was edited"
            reason = f"{whose} differs from the plan and from this roll's own changes: {why}"
            return Action(ActionKind.REFUSE, change.worker_id, reason)
    return None


def _finish_what_was_begun(plan: Plan, steps: Mapping[str, Step], observation: Observation) -> Action | None:
    # An announced restart comes before a gate: a worker that may be down would keep every gate shut.
    for worker_id, step in sorted(steps.items(), key=lambda item: item[1].status is not StepStatus.INTENT):
        change = plan.change(worker_id)
        worker = observation.worker(worker_id)
        written = worker.facts.digest == change.config_after
        if step.status is StepStatus.FAILED and not _is_back(change, step, worker):
            return Action(ActionKind.RESTORE, worker_id, "it failed, and is not back on its former configuration yet")
        if step.status not in (StepStatus.INTENT, StepStatus.RESTARTED) or change.kind is ChangeKind.FILE_ONLY:
            continue
        if not written:
            return Action(ActionKind.ROLL, worker_id, "its change was announced, but its configuration is as before")
        if not worker.is_running or worker.facts.start_token == step.replaces:
            return Action(ActionKind.RESTART, worker_id, "its configuration is written, but its process is from before")
        return Action(ActionKind.GATE, worker_id, "it was restarted, its gate is not passed yet")
    return None


def _is_back(change: WorkerChange, step: Step, worker: WorkerObservation) -> bool:
    """Whether a failed worker runs on its former configuration, since before the roll or since after the failure."""
    if not worker.is_running or worker.facts.digest != change.config_before:
        return False
    is_unchanged = change.config_before == change.config_after
    return is_unchanged or worker.facts.start_token == step.replaces or worker.facts.start_token != step.failed_process


def _change_stopped(plan: Plan, steps: Mapping[str, Step], observation: Observation) -> Action | None:
    for change in plan.workers:
        if change.kind is not ChangeKind.FILE_ONLY or _is_done(change, steps):
            continue
        if observation.worker(change.worker_id).is_running:
            why = f"{change.worker_id} was stopped when the plan was made and has been started since"
            return Action(ActionKind.PAUSE, change.worker_id, why)
        return Action(ActionKind.CHANGE_FILE, change.worker_id, f"stopped: it will join as {plan.target}")
    return None


def _roll_next(plan: Plan, steps: Mapping[str, Step], observation: Observation) -> Action | None:
    rolled = (ChangeKind.ROLL, ChangeKind.START)
    pending = [c.worker_id for c in plan.workers if c.kind in rolled and not _is_done(c, steps)]
    for change in plan.workers:  # what is down comes first: while it is, every restart takes a second one away
        if change.kind is ChangeKind.START and change.worker_id in pending:
            return Action(ActionKind.ROLL, change.worker_id, f"rollout {change.left_by} left it down")
    worker_id = next_worker(pending, observation)
    if worker_id is None:
        return None
    if not observation.worker(worker_id).is_running:
        return Action(ActionKind.PAUSE, worker_id, f"{worker_id} ran when the plan was made and has stopped since")
    leads = worker_id == observation.leader_id
    return Action(ActionKind.ROLL, worker_id, "it leads the group" if leads else "none of the pending workers leads")


def _wait_for_the_stopped(plan: Plan, observation: Observation) -> Action | None:
    """A worker that has stopped since its gate, or since the plan was made, runs in no mode; it may be starting."""
    for change in plan.workers:
        worker = observation.worker(change.worker_id)
        if not change.stays_stopped and worker.has_ended:
            reason = f"{change.worker_id} has stopped since: {worker.facts.how_to_start}"
            return Action(ActionKind.PAUSE, change.worker_id, reason, may_pass=True)
    return None


def _done(plan: Plan, observation: Observation) -> str:
    stopped = [c.worker_id for c in plan.workers if not observation.worker(c.worker_id).is_running]
    if not stopped:
        return f"every worker runs {plan.target}"
    are, join = ("is", "joins") if len(stopped) == 1 else ("are", "join")
    return (
        f"every worker that runs is in {plan.target}; {', '.join(stopped)} {are} stopped, and {join} in it when started"
    )


def _is_done(change: WorkerChange, steps: Mapping[str, Step]) -> bool:
    step = steps.get(change.worker_id)
    return step is not None and step.status is StepStatus.PASSED
