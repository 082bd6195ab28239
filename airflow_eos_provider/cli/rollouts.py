"""``eos rollout``: what rolls there were and are, and how to stop one, go on with it, or go back."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    ReasonOption,
    TakeOverOption,
    actor,
    console,
    load_cluster,
    table,
    width_for,
)
from airflow_eos_provider.cli.completion import LOOK_SECONDS, Candidate, candidates
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.cli.plan_apply import (
    DEFAULTS,
    DowntimeOption,
    GateTimeoutOption,
    LeaseOption,
    StopGraceOption,
    apply_command,
    carry_out,
    keep,
)
from airflow_eos_provider.cli.plan_apply import show as show_plan
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.errors import (
    EosError,
    GateFailedError,
    ReadTimeoutError,
    RefusedError,
    RolloutPausedError,
    UnreachableError,
)
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import Request, RequestKind, RolloutState, Step
from airflow_eos_provider.journal.stop_requests import ANSWER_SECONDS, request
from airflow_eos_provider.kafka.session import Kafka, Session
from airflow_eos_provider.output import Output, OutputOption, print_document, print_json
from airflow_eos_provider.plan_hash import SHORT_HASH_LENGTH
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.history import (
    INTERRUPTED,
    ForeignRollout,
    Rollout,
    find_rollout,
    former_mode,
    restart_moments,
    restores_files,
    whole_history,
)
from airflow_eos_provider.rollout.outcome import WorkerOutcome
from airflow_eos_provider.rollout.settings import RolloutSettings

rollouts_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Rollouts of the group: list, show, wait, pause, resume, abort, undo.",
)


def _complete_rollout(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Ids with their states."""
    return candidates(ctx, incomplete, _ids_with_states)


def _ids_with_states(cluster: ConnectCluster) -> Iterator[Candidate]:
    for one in whole_history(read_journal(cluster.kafka, cluster.group_id, LOOK_SECONDS)):
        yield one.rollout_id, one.state if isinstance(one, Rollout) else "not understood"


RolloutArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ROLLOUT",
        autocompletion=_complete_rollout,
        help="Its id, or the beginning of it; default: the newest.",
    ),
]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0.0, metavar="SECONDS", help="How long to wait for the controller's answer.")
]


_EXAMPLES = {
    "show": examples("eos rollout show", "eos rollout show 20261121T2336 --watch"),
    "wait": examples("eos rollout wait --timeout 1800"),
    "pause": examples("eos rollout pause --reason lunch"),
    "abort": examples("eos rollout abort 20261121T2336 --reason CHG-4711"),
}

#: Seconds between two looks at the journal.
_LOOK_SECONDS = 1.0

#: What ``eos rollout wait`` ends with, by the rollout's state. Scripts rely on them.
EXIT_CODES = {
    RolloutState.DONE: 0,
    RolloutState.RUNNING: EosError.exit_code,
    RolloutState.FAILED: GateFailedError.exit_code,
    RolloutState.PAUSED: RolloutPausedError.exit_code,
    INTERRUPTED: RolloutPausedError.exit_code,
    RolloutState.ABORTED: RefusedError.exit_code,
    RolloutState.SUPERSEDED: RefusedError.exit_code,
}


@rollouts_app.command(
    "list", epilog=examples("eos rollout list", "eos rollout list -o wide", "eos rollout list -o name")
)
def list_(cluster: ClusterOption = None, output: OutputOption = None, as_json: JsonOption = False) -> None:
    """Show every rollout of the group, the newest first. Changes nothing."""
    described = load_cluster(cluster)
    rollouts = whole_history(read_journal(described.kafka, described.group_id))
    document = {"group_id": described.group_id, "rollouts": [rollout.to_dict() for rollout in rollouts]}
    if print_document(document, [rollout.rollout_id for rollout in rollouts], output, as_json=as_json):
        return
    if not rollouts:
        console.print(f"Group {described.group_id} was never rolled.")
        return
    wide = output is Output.WIDE
    shown = table(f"Rollouts of group {described.group_id}")
    # An id is typed again, so it is never broken; it begins with the moment (UTC) and has the mode that was rolled to.
    for column in ("rollout", "state", "from", "workers", *(("began", "by") if wide else ()), "why"):
        shown.add_column(column, overflow="fold", no_wrap=column == "rollout")
    for rollout in rollouts:
        if isinstance(rollout, ForeignRollout):
            more = (_moment(rollout.started_at), "?") if wide else ()
            shown.add_row(rollout.rollout_id, "not understood", "?", "?", *more, f"it {rollout.found.why}")
            continue
        more = (_moment(rollout.record.started_at), rollout.record.actor) if wide else ()
        done = f"{rollout.workers_done} of {rollout.workers_to_roll}"
        shown.add_row(rollout.rollout_id, rollout.state, rollout.plan.current, done, *more, rollout.record.reason)
    with width_for(output):
        console.print(shown)


@rollouts_app.command("show", epilog=_EXAMPLES["show"])
def show(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again after each change, until no controller carries it out.")
    ] = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one rollout: who, when, why, each worker and the evidence on it. Changes nothing."""
    described = load_cluster(cluster)
    for found in _looks(described, rollout, seconds=math.inf if watch else 0.0):
        if not print_document(found.to_dict(), [found.rollout_id], output, as_json=as_json):
            _show(found)


@rollouts_app.command("wait", epilog=_EXAMPLES["wait"])
def wait(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="How long to wait at most.")
    ] = 3600.0,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until a rollout ends or pauses. Changes nothing.

    Exit code 0 if it is done; 4 if a worker did not pass its gate, 5 if it is paused or was interrupted, 3 if it was
    aborted or another plan took its place, 1 if it still runs when the time is up.
    """
    for found in _looks(load_cluster(cluster), rollout, seconds=timeout):
        last = found
    if not print_document(last.to_dict(), [last.rollout_id], output, as_json=as_json):
        console.print(f"Rollout {last.rollout_id} is {last.state}.")
    raise typer.Exit(EXIT_CODES[last.state])


@rollouts_app.command("pause", epilog=_EXAMPLES["pause"])
def pause(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    wait: WaitOption = ANSWER_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Ask a rollout to stop before its next action; it can be resumed."""
    _ask(RequestKind.PAUSE, rollout, cluster=load_cluster(cluster), reason=reason, wait=wait, as_json=as_json)


@rollouts_app.command("abort", epilog=_EXAMPLES["abort"])
def abort(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    wait: WaitOption = ANSWER_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Ask a rollout to stop before its next action, for good. It touches no worker; see 'undo' for the mode before."""
    _ask(RequestKind.ABORT, rollout, cluster=load_cluster(cluster), reason=reason, wait=wait, as_json=as_json)


@rollouts_app.command(
    "resume",
    epilog=examples(
        "eos rollout resume", "eos rollout resume --take-over  # though the lease of another controller still runs"
    ),
)
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
    """Continue a rollout from this machine: the same as applying its plan again."""
    described = load_cluster(cluster)
    found = _find(described.kafka, described.group_id, rollout)
    found.require_applicable()
    settings = RolloutSettings(
        allow_downtime=allow_downtime,
        gate_timeout_seconds=gate_timeout,
        lease_seconds=lease_seconds,
        stop_grace_seconds=stop_grace,
    )
    carry_out(
        described, lambda _: found.plan, settings, reason=reason, take_over=take_over, resume=True, as_json=as_json
    )


@rollouts_app.command(
    "undo", epilog=examples("eos rollout undo  # shows the plan", "eos rollout undo --yes --reason CHG-4712")
)
def undo(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show the plan.")] = False,
    allow_downtime: DowntimeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Roll the group back to the mode that it had before a rollout. Shows the plan; does it with --yes."""
    described = load_cluster(cluster)
    former = _find(described.kafka, described.group_id, rollout)
    settings = RolloutSettings(allow_downtime=allow_downtime)
    with Controller(described, settings=settings) as controller:
        made = controller.plan(former_mode(former.plan))
    if yes and not made.nothing_to_do:
        why = reason or f"back from rollout {former.rollout_id}"
        carry_out(described, lambda _: made, settings, reason=why, as_json=as_json)
        return
    keep(made)
    restored = restores_files(made, former.plan)
    if as_json:
        print_json({**made.to_dict(), "nothing_to_do": made.nothing_to_do, "restores_files": restored})
        return
    show_plan(made, apply_command(made, cluster, allow_downtime=allow_downtime))
    for worker_id in sorted(worker_id for worker_id, same in restored.items() if not same):
        console.print(
            f"{worker_id}: its file will name the mode, but is not byte for byte what it was before.", soft_wrap=True
        )


def _ask(
    kind: RequestKind, rollout: str | None, *, cluster: ConnectCluster, reason: str, wait: float, as_json: bool
) -> None:
    found = _find(cluster.kafka, cluster.group_id, rollout)
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
            "There is no answer yet. The request is on record: whichever controller carries rollout "
            f"{answer.rollout_id} out stops for it before the next action.",
            soft_wrap=True,
        )
    for worker_id in answer.half_done:
        console.print(
            f"{worker_id} may be half done: its restart was announced, and its gate is not passed. Check with "
            "'eos status' that it runs.",
            soft_wrap=True,
        )


def _looks(cluster: ConnectCluster, prefix: str | None, *, seconds: float) -> Iterator[Rollout]:
    """A rollout now, and again whenever it has changed, until no controller carries it out.

    :param seconds: when it is given up; 0 is one look.
    """
    deadline = time.monotonic() + seconds
    with Session(cluster.kafka) as session:
        found = _find(session, cluster.group_id, prefix)
        yield found
        while found.state == RolloutState.RUNNING and time.monotonic() < deadline:
            time.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
            before, found = found, _find_again(session, cluster.group_id, found.rollout_id)
            if found.to_dict() != before.to_dict():
                yield found


def _find_again(session: Session, group_id: str, rollout_id: str) -> Rollout:
    """Look with the kept clients and, if they fail, once with new ones.

    A client whose broker was away may need longer than a look to connect again. The session does not lend it again.
    """
    try:
        return _find(session, group_id, rollout_id)
    except (ReadTimeoutError, UnreachableError):
        return _find(session, group_id, rollout_id)


def _find(kafka: Kafka, group_id: str, prefix: str | None) -> Rollout:
    found = find_rollout(read_journal(kafka, group_id), prefix)
    if found.state != INTERRUPTED:
        return found
    # Its controller may have written its end, and ended, after what was read: nothing follows now.
    return find_rollout(read_journal(kafka, group_id), found.rollout_id)


def _show(rollout: Rollout) -> None:
    record = rollout.record
    console.print(f"Rollout {rollout.rollout_id} is {rollout.state}", style="bold")
    console.print(f"plan {rollout.plan_hash[:SHORT_HASH_LENGTH]}: {rollout.plan.current} -> {rollout.plan.target}")
    console.print(f"began {_moment(record.started_at)}, by {record.actor or 'unknown'}: {record.reason or 'no reason'}")
    if rollout.lease:
        console.print(f"carried out by {rollout.lease}", soft_wrap=True)
    if rollout.request:
        console.print(f"not answered yet: {rollout.request}", soft_wrap=True)
    shown = table()
    for column in ("worker", "status", "at", "restart and gate", "task downtime", "predicted", "led"):
        shown.add_column(column, overflow="fold", no_wrap=column == "worker")
    for change in rollout.plan.workers:
        step = rollout.steps.get(change.worker_id)
        if step is None:
            shown.add_row(change.worker_id, "not touched", *[""] * 5)
            continue
        shown.add_row(*_row(step, WorkerOutcome.of(step, rollout.plan)))
    console.print(shown)
    for step in rollout.steps.values():
        if restart := _restart(step):
            console.print(f"{step.worker_id}: {restart}", soft_wrap=True)
        for line in step.evidence:
            after = step.conditions_after.get(line.partition(":")[0])
            when = "" if after is None else f", {after:.1f} s after the restart was announced"
            console.print(f"{step.worker_id}: {line}{when}", soft_wrap=True)
    for event in rollout.events:
        words = [event.what, f"by {event.actor or 'unknown'} ({event.owner})", event.reason, event.note]
        console.print(f"{_moment(event.at)}  {'; '.join(filter(None, words))}", soft_wrap=True)


def _restart(step: Step) -> str:
    """In words, the moments of the worker's last restart; empty where none is known yet."""
    moments = restart_moments(step)
    if step.announced_at is None or not moments:
        return ""
    words = [f"{what} {'at a time not known' if at is None else _moment(at)}" for what, at in moments.items()]
    return f"restart announced {_moment(step.announced_at)}, {', '.join(words)}"


def _row(step: Step, outcome: WorkerOutcome) -> list[str]:
    return [
        step.worker_id,
        str(step.status),
        _moment(step.at),
        f"{outcome.seconds:.1f} s",
        f"{outcome.task_downtime_seconds:.1f} s",
        f"{outcome.predicted_seconds:.1f} s",
        "yes" if outcome.led else "no",
    ]


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
