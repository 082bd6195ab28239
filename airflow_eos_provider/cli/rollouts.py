"""``eos rollout``: what rolls there were and are, and how to stop one, go on with it, or go back."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from airflow_eos_provider.cli.common import ClusterOption, JsonOption, console, load_cluster, print_json
from airflow_eos_provider.cli.rollout import (
    DEFAULTS,
    DowntimeOption,
    GateTimeoutOption,
    LeaseOption,
    ReasonOption,
    StopGraceOption,
    TakeOverOption,
    actor,
    carry_out,
    keep,
)
from airflow_eos_provider.cli.rollout import show as show_plan
from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.history import Rollout, find_rollout, former_mode, history, restores_files
from airflow_eos_provider.rollout.journal import read_journal
from airflow_eos_provider.rollout.records import Request, RequestKind, Step
from airflow_eos_provider.rollout.report import WorkerOutcome
from airflow_eos_provider.rollout.requests import ANSWER_SECONDS, request
from airflow_eos_provider.rollout.settings import RolloutSettings

rollouts_app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)

RolloutArgument = Annotated[
    str | None, typer.Argument(metavar="[ROLLOUT]", help="Its id, or the beginning of it; default: the newest.")
]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0.0, metavar="SECONDS", help="How long to wait for the controller's answer.")
]


@rollouts_app.command("list")
def list_(cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """Show every rollout of the group, the newest first. Changes nothing."""
    described = load_cluster(cluster)
    rollouts = history(read_journal(described.kafka, described.group_id))
    if as_json:
        print_json({"group_id": described.group_id, "rollouts": [rollout.to_dict() for rollout in rollouts]})
        return
    if not rollouts:
        console.print(f"Group {described.group_id} was never rolled.")
        return
    table = Table(title=f"Rollouts of group {described.group_id}", title_justify="left")
    for column in ("rollout", "state", "from", "to", "workers", "began", "by", "why"):
        table.add_column(column, overflow="fold")
    for rollout in rollouts:
        table.add_row(
            rollout.rollout_id,
            rollout.state,
            rollout.plan.current,
            str(rollout.plan.target),
            f"{rollout.workers_through} of {rollout.workers_to_roll}",
            _moment(rollout.record.started_at),
            rollout.record.actor,
            rollout.record.reason,
        )
    console.print(table)


@rollouts_app.command("show")
def show(rollout: RolloutArgument = None, cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """Show one rollout: who, when, why, each worker and the evidence on it. Changes nothing."""
    found = _find(load_cluster(cluster), rollout)
    if as_json:
        print_json(found.to_dict())
        return
    _show(found)


@rollouts_app.command("pause")
def pause(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    wait: WaitOption = ANSWER_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Ask a rollout to stop before its next action; it can be resumed."""
    _ask(RequestKind.PAUSE, rollout, cluster=load_cluster(cluster), reason=reason, wait=wait, as_json=as_json)


@rollouts_app.command("abort")
def abort(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    wait: WaitOption = ANSWER_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Ask a rollout to stop before its next action, for good. It touches no worker; see 'back' for the way back."""
    _ask(RequestKind.ABORT, rollout, cluster=load_cluster(cluster), reason=reason, wait=wait, as_json=as_json)


@rollouts_app.command("resume")
def resume(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    allow_downtime: DowntimeOption = False,
    take_over: TakeOverOption = False,
    gate_timeout: GateTimeoutOption = None,
    lease_seconds: LeaseOption = DEFAULTS.lease_seconds,
    stop_grace: StopGraceOption = DEFAULTS.stop_grace_seconds,
    as_json: JsonOption = False,
) -> None:
    """Go on with a rollout here, where it stands: the same as applying its plan again."""
    described = load_cluster(cluster)
    found = _find(described, rollout)
    if not found.record.state.is_open:
        raise RefusedError(
            f"Rollout {found.rollout_id} is {found.state}, so it cannot be resumed.",
            remedy="Make a new plan: 'eos plan'.",
        )
    settings = RolloutSettings(
        allow_downtime=allow_downtime,
        gate_timeout_seconds=gate_timeout,
        lease_seconds=lease_seconds,
        stop_grace_seconds=stop_grace,
    )
    carry_out(
        described, lambda _: found.plan, settings, reason=reason, take_over=take_over, resume=True, as_json=as_json
    )


@rollouts_app.command("back")
def back(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show the plan.")] = False,
    allow_downtime: DowntimeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Roll the group back to the mode that it had before a rollout. Shows the plan; does it with --yes."""
    described = load_cluster(cluster)
    former = _find(described, rollout)
    settings = RolloutSettings(allow_downtime=allow_downtime)
    made = Controller(described, settings=settings).plan(former_mode(former.plan))
    if yes and not made.nothing_to_do:
        why = reason or f"back from rollout {former.rollout_id}"
        carry_out(described, lambda _: made, settings, reason=why, as_json=as_json)
        return
    keep(made)
    restored = restores_files(made, former.plan)
    if as_json:
        print_json({**made.to_dict(), "nothing_to_do": made.nothing_to_do, "restores_files": restored})
        return
    show_plan(made)
    for worker_id in sorted(worker_id for worker_id, same in restored.items() if not same):
        console.print(
            f"{worker_id}: its file will name the mode, but is not byte for byte what it was before.", soft_wrap=True
        )


def _ask(
    kind: RequestKind, rollout: str | None, *, cluster: ConnectCluster, reason: str, wait: float, as_json: bool
) -> None:
    found = _find(cluster, rollout)
    wanted = Request(found.rollout_id, kind, time.time(), actor(), reason)
    controller = Controller(cluster, actor=actor(), reason=reason)
    answer = request(cluster, wanted, journal=controller.journal, wait_seconds=wait)
    if as_json:
        print_json(
            {
                "rollout_id": answer.rollout_id,
                "request": str(answer.kind),
                "state": str(answer.state),
                "answered": answer.answered,
                "half_done": answer.half_done,
            }
        )
        return
    if answer.answered:
        console.print(f"Rollout {answer.rollout_id} is {answer.state}.")
    else:
        console.print(
            f"Nobody has answered yet. The request stands: whoever carries rollout {answer.rollout_id} out, "
            "or takes it up, stops for it before the next action.",
            soft_wrap=True,
        )
    for worker_id in answer.half_done:
        console.print(
            f"{worker_id} is half done: its restart was announced, its gate not passed. See that it runs "
            "('eos status').",
            soft_wrap=True,
        )


def _find(cluster: ConnectCluster, prefix: str | None) -> Rollout:
    return find_rollout(read_journal(cluster.kafka, cluster.group_id), prefix)


def _show(rollout: Rollout) -> None:
    record = rollout.record
    console.print(f"Rollout {rollout.rollout_id} is {rollout.state}", style="bold")
    console.print(f"plan {rollout.plan.short_hash}: {rollout.plan.current} -> {rollout.plan.target}")
    console.print(f"began {_moment(record.started_at)}, by {record.actor or 'unknown'}: {record.reason or 'no reason'}")
    if rollout.lease:
        console.print(f"carried out by {rollout.lease}", soft_wrap=True)
    if rollout.request:
        console.print(f"not answered yet: {rollout.request}", soft_wrap=True)
    table = Table()
    for column in ("worker", "status", "at", "restart and gate", "its tasks stood still", "predicted", "led"):
        table.add_column(column, overflow="fold", no_wrap=column == "worker")
    for change in rollout.plan.workers:
        step = rollout.steps.get(change.worker_id)
        if step is None:
            table.add_row(change.worker_id, "not touched", *[""] * 5)
            continue
        table.add_row(*_row(step, WorkerOutcome.of(step, rollout.plan)))
    console.print(table)
    for step in rollout.steps.values():
        for line in step.evidence:
            console.print(f"{step.worker_id}: {line}", markup=False, soft_wrap=True)
    for event in rollout.events:
        words = [event.what, f"by {event.actor or 'unknown'} ({event.owner})", event.reason, event.note]
        console.print(f"{_moment(event.at)}  {'; '.join(filter(None, words))}", markup=False, soft_wrap=True)


def _row(step: Step, outcome: WorkerOutcome) -> list[str]:
    return [
        step.worker_id,
        str(step.status),
        _moment(step.at),
        f"{outcome.seconds:.1f} s",
        f"{outcome.tasks_stood_seconds:.1f} s",
        f"{outcome.predicted_seconds:.1f} s",
        "yes" if outcome.led else "no",
    ]


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
