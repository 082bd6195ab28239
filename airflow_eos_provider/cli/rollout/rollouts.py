"""``eos rollout``: show rollouts; pause, resume, abort or undo one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    ReasonOption,
    actor,
    console,
    load_cluster,
    table,
    timeout_option,
    watch_option,
)
from airflow_eos_provider.cli.completion import LOOK_SECONDS, Candidate, candidates
from airflow_eos_provider.cli.confirm import PlanOption, YesOption, asks
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.cli.rollout.plan_apply import (
    FIGURES,
    Chosen,
    How,
    apply_command,
    figures,
    find_planned,
    planned,
    roll,
    roll_command,
)
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
from airflow_eos_provider.journal.stop_requests import ANSWER_SECONDS, Answer, ask_to_stop
from airflow_eos_provider.kafka.kafka_session import Kafka, Session
from airflow_eos_provider.output import OutputOption, print_document
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.outcome import WorkerOutcome
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.roll_history import (
    INTERRUPTED,
    ForeignRollout,
    Rollout,
    find_rollout,
    former_mode,
    restart_moments,
    restores_files,
    whole_history,
)

rollouts_app = typer.Typer(no_args_is_help=True, add_completion=False)


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
        help="Id of the rollout, or the beginning of it. Default: the newest.",
    ),
]
AnswerOption = Annotated[float, timeout_option("How long to wait for the controller's answer.")]


#: Seconds between two looks at the journal, unless --watch is given.
_LOOK_SECONDS = 1.0

#: Tests replace it.
_sleep = time.sleep

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


@add_look(rollouts_app, "list", "eos rollout list", "eos rollout list -o wide", "eos rollout list -o name")
def list_(cluster: Path | None) -> Found:
    """Show the rollouts of the group, newest first. Changes nothing."""
    described = load_cluster(cluster)
    rollouts = whole_history(read_journal(described.kafka, described.group_id))
    document = {"group_id": described.group_id, "rollouts": [rollout.to_dict() for rollout in rollouts]}
    ids = [rollout.rollout_id for rollout in rollouts]
    return Found(document, ids, lambda wide: _show_all(described.group_id, rollouts, wide=wide))


def _show_all(group_id: str, rollouts: Sequence[Rollout | ForeignRollout], *, wide: bool) -> None:
    if not rollouts:
        console.print(f"Group {group_id} was never rolled.")
        return
    # An id is typed again, so it is never broken; it begins with the moment (UTC) and has the mode that was rolled to.
    columns = ("rollout", "state", "from", "workers", *(("began", "by") if wide else ()), "why")
    shown = table(f"Rollouts of group {group_id}", *columns, whole="rollout")
    for rollout in rollouts:
        if isinstance(rollout, ForeignRollout):
            more = (_moment(rollout.started_at), "?") if wide else ()
            shown.add_row(rollout.rollout_id, "not understood", "?", "?", *more, f"it {rollout.found.why}")
            continue
        more = (_moment(rollout.record.started_at), rollout.record.actor) if wide else ()
        done = f"{rollout.workers_done} of {rollout.workers_to_roll}"
        shown.add_row(rollout.rollout_id, rollout.state, rollout.plan.current, done, *more, rollout.record.reason)
    console.print(shown)


@rollouts_app.command("show", epilog=examples("eos rollout show", "eos rollout show 20261121T2336 --watch 5"))
def show(
    rollout: RolloutArgument = None,
    cluster: ClusterOption = None,
    watch: Annotated[
        float | None, watch_option("Check this often until the rollout ends or pauses; show it after each change.")
    ] = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one rollout: who began it, when and why, each worker and its evidence. Changes nothing."""
    described = load_cluster(cluster)
    for found in _looks(described, rollout, seconds=math.inf if watch else 0.0, every=watch or _LOOK_SECONDS):
        if not print_document(found.to_dict(), [found.rollout_id], output, as_json=as_json):
            _show(found)


@add_look(rollouts_app, "wait", "eos rollout wait --timeout 1800")
def wait(
    cluster: Path | None,
    rollout: RolloutArgument = None,
    timeout: Annotated[float, timeout_option("How long to wait at most.")] = 3600.0,
) -> Found:
    """Wait until a rollout ends or pauses. Changes nothing.

    Exit code: 0 if it is done, 1 if it still runs after the time limit, 3 if it was aborted or replaced by another
    plan, 4 if a worker failed its gate, 5 if it is paused or was interrupted.
    """
    for found in _looks(load_cluster(cluster), rollout, seconds=timeout, every=_LOOK_SECONDS):
        last = found
    said = f"Rollout {last.rollout_id} is {last.state}."
    return Found(last.to_dict(), [last.rollout_id], lambda wide: console.print(said), EXIT_CODES[last.state])


def _add_request(kind: RequestKind, example: str, summary: str) -> None:
    """A command that asks the controller of a rollout for something."""

    def request(
        cluster: Path | None,
        rollout: RolloutArgument = None,
        reason: ReasonOption = "",
        timeout: AnswerOption = ANSWER_SECONDS,
    ) -> Found:
        described = load_cluster(cluster)
        found = _find(described.kafka, described.group_id, rollout)
        wanted = Request(found.rollout_id, kind, time.time(), actor(), reason)
        journal = Controller(described, actor=actor(), reason=reason).journal
        with Session(described.kafka) as kafka:
            return _answered(ask_to_stop(kafka, described.group_id, wanted, journal, timeout))

    request.__doc__ = summary
    add_look(rollouts_app, str(kind), example)(request)


_add_request(
    RequestKind.PAUSE, "eos rollout pause --reason lunch", "Stop a rollout before its next action. You can resume it."
)
_add_request(
    RequestKind.ABORT,
    "eos rollout abort 20261121T2336 --reason CHG-4711",
    "Stop a rollout before its next action, for good. Changes no worker: 'undo' brings back the mode before.",
)


@rollouts_app.command(
    "resume",
    epilog=examples(
        "eos rollout resume", "eos rollout resume --take-over  # though the lease of another controller still runs"
    ),
)
@roll_command
def resume(how: How, rollout: RolloutArgument = None, cluster: ClusterOption = None) -> None:
    """Resume a rollout from this machine, by the plan that was confirmed for it. Does not ask again."""
    described = load_cluster(cluster)
    found = _find(described.kafka, described.group_id, rollout)
    found.require_applicable()
    command = partial(apply_command, cluster=cluster, allow_downtime=how.settings.allow_downtime)
    roll(described, lambda _: Chosen(found.plan), command, how, yes=True, resume=True)


@rollouts_app.command("undo", epilog=examples("eos rollout undo", "eos rollout undo --yes --reason CHG-4712"))
@roll_command
@asks
def undo(
    how: How,
    rollout: RolloutArgument = None,
    plan: PlanOption = None,
    yes: YesOption = False,
    cluster: ClusterOption = None,
) -> None:
    """Roll the group back to the mode that it had before a rollout."""
    described = load_cluster(cluster)
    former = _find(described.kafka, described.group_id, rollout)
    mode = former_mode(former.plan)

    def choose(controller: Controller) -> Chosen:
        made = find_planned(controller, plan, mode) if plan else planned(controller, mode)
        restored = restores_files(made, former.plan)
        notes = [
            f"{worker_id}: its file will have the mode, but not be byte for byte what it was before."
            for worker_id, same in sorted(restored.items())
            if not same
        ]
        return Chosen(made, tuple(notes), {"restores_files": restored})

    def command(made: Plan) -> str:
        return apply_command(made, cluster, how.settings.allow_downtime, "rollout", "undo", former.rollout_id)

    how = replace(how, reason=how.reason or f"back from rollout {former.rollout_id}")
    roll(described, choose, command, how, plan_hash=plan, yes=yes)


def _answered(answer: Answer) -> Found:
    document = {
        "rollout_id": answer.rollout_id,
        "request": str(answer.kind),
        "state": str(answer.state),
        "answered": answer.answered,
        "half_done": answer.half_done,
    }
    return Found(document, [answer.rollout_id], lambda wide: _show_answer(answer))


def _show_answer(answer: Answer) -> None:
    if answer.answered:
        console.print(f"Rollout {answer.rollout_id} is {answer.state}.")
    else:
        console.print(
            f"No answer yet. The request is in the journal: the controller of rollout {answer.rollout_id} stops "
            "before its next action.",
            soft_wrap=True,
        )
    for worker_id in answer.half_done:
        console.print(
            f"{worker_id}: its restart was announced, but it has not passed its gate. Check with 'eos status' that it "
            "runs.",
            soft_wrap=True,
        )


def _looks(cluster: ConnectCluster, prefix: str | None, *, seconds: float, every: float) -> Iterator[Rollout]:
    """A rollout now, and again whenever it has changed, until no controller carries it out."""
    deadline = time.monotonic() + seconds
    with Session(cluster.kafka) as session:
        found = _find(session, cluster.group_id, prefix)
        yield found
        while found.state == RolloutState.RUNNING and time.monotonic() < deadline:
            _sleep(min(every, max(0.0, deadline - time.monotonic())))
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
    console.print(f"plan {rollout.plan.short_hash}: {rollout.plan.current} -> {rollout.plan.target}")
    console.print(f"began {_moment(record.started_at)}, by {record.actor or 'unknown'}: {record.reason or 'no reason'}")
    if rollout.lease:
        console.print(f"carried out by {rollout.lease}", soft_wrap=True)
    if rollout.request:
        console.print(f"not answered yet: {rollout.request}", soft_wrap=True)
    shown = table()
    for column in ("worker", "status", "at", *FIGURES):
        shown.add_column(column, overflow="fold", no_wrap=column == "worker")
    for change in rollout.plan.workers:
        step = rollout.steps.get(change.worker_id)
        if step is None:
            shown.add_row(change.worker_id, "not touched", *[""] * 5)
            continue
        cells = figures(WorkerOutcome.of(step, rollout.plan))
        shown.add_row(change.worker_id, str(step.status), _moment(step.at), *cells)
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
    words = [f"{what} {'at an unknown time' if at is None else _moment(at)}" for what, at in moments.items()]
    return f"restart announced {_moment(step.announced_at)}, {', '.join(words)}"


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
