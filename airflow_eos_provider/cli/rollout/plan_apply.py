"""``eos plan`` and ``eos apply``."""

from __future__ import annotations

import inspect
import json
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from airflow_eos_provider.cli.common import (
    ClusterOption,
    ReasonOption,
    TakeOverOption,
    actor,
    console,
    load_cluster,
    report_line,
    table,
    warn,
    width_for,
)
from airflow_eos_provider.cli.confirm import (
    PlanOption,
    YesOption,
    asks,
    command_of,
    print_applied,
    show_and_ask,
    show_plan,
)
from airflow_eos_provider.cli.look import Found, look_command
from airflow_eos_provider.cli.options import COMMON, Options, own_options, with_options
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.downgrade.downgrade_state import left_behind
from airflow_eos_provider.errors import EosError, PlanMovedError
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.offsets import user_json
from airflow_eos_provider.offsets.seen.copies import Copies, left_behind_lines
from airflow_eos_provider.output import Output, is_for_scripts
from airflow_eos_provider.plan_hash import PLANS_FOLDER
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.outcome import RolloutReport, WorkerOutcome
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind, Plan
from airflow_eos_provider.rollout.roll_history import unfinished_rollout
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from airflow_eos_provider.stored import to_json

ToOption = Annotated[
    Mode | None,
    typer.Option(
        "--to",
        metavar="MODE",
        help="Mode to roll to: disabled, preparing or enabled. Default: the next step of the upgrade.",
    ),
]
DowntimeOption = Annotated[
    bool,
    typer.Option("--allow-downtime", help="Roll even if no other worker can take over the tasks during a restart."),
]
GateTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--gate-timeout",
        min=1.0,
        metavar="SECONDS",
        help="Time limit of each gate. Default: rebalance delay + session timeout + 120 s.",
    ),
]
LeaseOption = Annotated[
    float,
    typer.Option(
        "--lease-seconds", metavar="SECONDS", help="How long the group stays reserved if this command is killed."
    ),
]
StopGraceOption = Annotated[
    float, typer.Option("--stop-grace", metavar="SECONDS", help="Kill a worker that has not stopped after this time.")
]
_DEFAULTS = RolloutSettings()

#: The options of every command that carries out a roll.
_ROLL_OPTIONS: Options = {
    "reason": (ReasonOption, ""),
    "allow_downtime": (DowntimeOption, False),
    "take_over": (TakeOverOption, False),
    "gate_timeout": (GateTimeoutOption, None),
    "lease_seconds": (LeaseOption, _DEFAULTS.lease_seconds),
    "stop_grace": (StopGraceOption, _DEFAULTS.stop_grace_seconds),
    "output": COMMON["output"],
    "as_json": COMMON["as_json"],
}

#: The columns of :func:`figures`.
FIGURES = ("restart and gate", "task downtime", "predicted", "led")


def find_plan(cluster: Path | None, to: ToOption = None, allow_downtime: DowntimeOption = False) -> Found:
    """Show what a roll would change, its hash, and the command that applies it. Changes nothing."""
    described = load_cluster(cluster)
    stale = [] if to is Mode.DISABLED else _left_behind(described)
    with Controller(described, settings=RolloutSettings(allow_downtime=allow_downtime)) as controller:
        made = planned(controller, to)
    document = {**to_document(made), "own_topics_left_behind": to_json(stale)}

    def show_with_command(wide: bool) -> None:
        show(made)
        if not made.nothing_to_do:
            command = apply_command(made, cluster, allow_downtime)
            console.print(f"To apply this plan:  {command}", style="bold", soft_wrap=True)

    return Found(document, [made.short_hash], show_with_command)


plan = look_command(find_plan)


def _left_behind(cluster: ConnectCluster) -> list[Copies]:
    """The connectors whose own offsets topic is older than the global one; with a warning of each."""
    try:
        with ConnectSession(cluster) as session:
            found = left_behind(session)
    except EosError as error:
        warn(f"cannot tell whether an older Kafka Connect left own offsets topics behind: {error.found}")
        return []
    for line in left_behind_lines(found):
        warn(line)
    return found


def apply_command(made: Plan, cluster: Path | None, allow_downtime: bool, *words: str) -> str:
    """The command that applies a plan, on the same cluster and with the same consent."""
    more = ["--allow-downtime"] if allow_downtime else []
    return command_of(["eos", *(words or ["apply"]), *more], made.short_hash, cluster)


def to_document(made: Plan) -> dict[str, Any]:
    """A plan for a script."""
    return {**made.to_dict(), "nothing_to_do": made.nothing_to_do}


@dataclass(frozen=True, slots=True)
class How:
    """The options of a command that carries out a roll."""

    settings: RolloutSettings
    reason: str
    take_over: bool
    output: Output | None
    as_json: bool


def roll_command(run: Callable[..., None]) -> Callable[..., None]:
    """Make a command with the options of a function and those of every roll, which the function gets as ``how``."""

    def command(
        *,
        reason: str,
        allow_downtime: bool,
        take_over: bool,
        gate_timeout: float | None,
        lease_seconds: float,
        stop_grace: float,
        output: Output | None,
        as_json: bool,
        **own: Any,
    ) -> None:
        settings = RolloutSettings(
            allow_downtime=allow_downtime,
            gate_timeout_seconds=gate_timeout,
            lease_seconds=lease_seconds,
            stop_grace_seconds=stop_grace,
        )
        run(**own, how=How(settings, reason, take_over, output, as_json))

    own = {name: option for name, option in own_options(run).items() if name != "how"}
    return with_options(command, {**own, **_ROLL_OPTIONS}, inspect.getdoc(run) or "")


@roll_command
@asks
def apply(
    how: How, to: ToOption = None, plan: PlanOption = None, yes: YesOption = False, cluster: ClusterOption = None
) -> None:
    """Roll the group to a mode, one worker at a time, with a check after each.

    Safe to re-run after a crash: if a rollout is unfinished, its plan is shown and resumed.
    """

    def choose(controller: Controller) -> Chosen:
        if plan:
            return Chosen(find_planned(controller, plan, to))
        content = read_journal(controller.observer.session.kafka, controller.cluster.group_id)
        if begun := unfinished_rollout(content, to):
            return Chosen(begun.plan, (f"Rollout {begun.rollout_id} is {begun.state}: applying its plan resumes it.",))
        if to is not Mode.DISABLED:
            _left_behind(controller.cluster)
        return Chosen(planned(controller, to))

    command = partial(apply_command, cluster=cluster, allow_downtime=how.settings.allow_downtime)
    roll(load_cluster(cluster), choose, command, how, plan_hash=plan, yes=yes)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The plan that a command is about.

    :param notes: lines below it.
    :param more: further members of the document.
    """

    plan: Plan
    notes: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def roll(
    cluster: ConnectCluster,
    choose: Callable[[Controller], Chosen],
    command: Callable[[Plan], str],
    how: How,
    *,
    plan_hash: str | None = None,
    yes: bool = False,
    resume: bool = False,
) -> None:
    """Show a plan, and apply it once that is confirmed; progress is on standard error."""
    interrupt = _Interrupt()
    report: RolloutReport | None = None
    with Controller(
        cluster,
        report=report_line,
        stop_requested=interrupt.is_set,
        actor=actor(),
        reason=how.reason,
        settings=how.settings,
    ) as controller:
        chosen = choose(controller)
        made = chosen.plan
        with width_for(how.output):
            error = show_and_ask(
                partial(show, made, notes=chosen.notes),
                f"Roll group {made.group_id} to {made.target}?",
                command(made),
                confirmed=bool(plan_hash or yes or made.nothing_to_do),
                for_scripts=is_for_scripts(how.output, as_json=how.as_json),
            )
        if error is None and (plan_hash or not made.nothing_to_do):
            with interrupt:
                report = controller.apply(made, take_over=how.take_over, resume=resume)
    done = None if report is None else report.to_dict()
    is_printed = print_applied(to_document(made), made.short_hash, done, how.output, as_json=how.as_json, **chosen.more)
    if not is_printed and report is not None:
        _show_report(report)
    if error is not None:
        raise error


def planned(controller: Controller, to: Mode | None) -> Plan:
    """A new plan, kept so that a later refusal can say what has changed."""
    made = controller.plan(to)
    keep(made)
    return made


def find_planned(controller: Controller, plan_hash: str, to: Mode | None) -> Plan:
    """The plan with this hash."""
    try:
        found = controller.find_plan(plan_hash)
    except PlanMovedError:
        _explain_what_moved(controller, plan_hash)
        raise
    if to not in (None, found.target):
        raise PlanMovedError(f"Plan {plan_hash} rolls to {found.target}, not to {to}.", remedy="Make a new plan.")
    return found


class _Interrupt:
    """Ctrl-C or SIGTERM: the first stops the roll between two actions, the second ends it at once."""

    def __init__(self) -> None:
        self._set = False
        self._former: dict[int, Any] = {}

    def is_set(self) -> bool:
        return self._set

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._former[number] = signal.signal(number, self._note)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        if self._set:
            raise KeyboardInterrupt
        self._set = True
        report_line("Stopping before the next action. Press Ctrl-C again to stop at once.")


def keep(made: Plan) -> None:
    """Remember a plan that was shown. Where that cannot be written, a later refusal only says less."""
    try:
        PLANS_FOLDER.mkdir(parents=True, exist_ok=True)
        (PLANS_FOLDER / f"{made.hash}.json").write_text(json.dumps(made.to_dict(), indent=2), encoding="utf-8")
    except OSError as error:
        warn(
            f"the plan is not kept, because {PLANS_FOLDER.absolute()} cannot be written ({error.strerror}). You can "
            "apply it; but if the cluster changes first, eos cannot show the difference."
        )


def _explain_what_moved(controller: Controller, plan_hash: str) -> None:
    """Raise the more telling error, if the plan was made here and is still at hand."""
    for path in PLANS_FOLDER.glob(f"{plan_hash}*.json"):
        old = Plan.from_dict(user_json.parse_file(path, "a plan that 'eos plan' has kept"))
        old.require_unmoved(controller.replan(old.target))


def show(made: Plan, out: Console = console, notes: Iterable[str] = ()) -> None:
    """Print a plan."""
    shown = table(f"Group {made.group_id}: {made.current} -> {made.target}")
    for column in ("worker", "runs", "tasks", "what happens", "its tasks are unassigned"):
        shown.add_column(column, overflow="fold", no_wrap=column == "worker")
    for prediction in made.task_downtime:
        change = made.change(prediction.worker_id)
        downtime = "not at all" if change.kind is ChangeKind.NONE else str(prediction)
        shown.add_row(change.worker_id, change.runs, str(prediction.tasks), change.kind.words, downtime)
    out.print(shown)
    show_plan(made.diff(), out)
    executed, connectors = made.executed(), made.connectors
    _print_section(out, executed and "Start commands:", executed)
    summary = connectors.summary and f"Connectors ('eos preflight' shows more): {connectors.summary}"
    _print_section(out, summary, connectors.lines)
    if made.nothing_to_do:
        out.print("Nothing to do.")
        return
    if made.puts_back:
        out.print("isolation.level, which an earlier roll set temporarily, gets its former value again.")
    out.print("Workers are rolled one at a time, in this order unless another leader is elected.")
    show_plan((), out, made.short_hash, notes)


def _print_section(out: Console, title: object, lines: Iterable[str]) -> None:
    for line in [*([title] if title else []), *(f"  {line}" for line in lines)]:
        out.print(line, soft_wrap=True)


def _show_report(report: RolloutReport) -> None:
    if not report.workers:
        return
    shown = table(f"{report.from_modes} -> {report.to_mode}")
    for column in ("worker", "mode", *FIGURES):
        shown.add_column(column, no_wrap=column == "worker", overflow="fold")
    for worker in report.workers:
        shown.add_row(worker.worker, worker.mode, *figures(worker))
    console.print(shown)


def figures(worker: WorkerOutcome) -> list[str]:
    """How long a worker took, and whether it led the group, as cells of a table."""
    seconds = (worker.seconds, worker.task_downtime_seconds, worker.predicted_seconds)
    return [*(f"{each:.1f} s" for each in seconds), "yes" if worker.led else "no"]
