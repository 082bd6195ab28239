"""``eos plan`` and ``eos apply``."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_eos_provider import user_json
from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    ReasonOption,
    TakeOverOption,
    actor,
    console,
    load_cluster,
    report_line,
    require_enough_digits,
    table,
    warn,
    width_for,
)
from airflow_eos_provider.cli.drop_own import left_behind_lines
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.downgrade.look import left_behind
from airflow_eos_provider.errors import EosError, PlanMovedError
from airflow_eos_provider.offsets.seen.copies import Copies
from airflow_eos_provider.output import OutputOption, print_document, print_json
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.outcome import RolloutReport
from airflow_eos_provider.rollout.plan.plan import ChangeKind, Plan
from airflow_eos_provider.rollout.settings import RolloutSettings

#: Plans that were shown, so that a refusal can say what has moved since. Nothing depends on this folder.
PLANS_FOLDER = Path(".eos/plans")

DowntimeOption = Annotated[
    bool, typer.Option("--allow-downtime", help="Roll even if no other worker can take over the tasks meanwhile.")
]

GateTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--gate-timeout",
        min=1.0,
        metavar="SECONDS",
        help="How long a gate may take before the roll fails; default: rebalance delay + session timeout + 120 s.",
    ),
]
LeaseOption = Annotated[
    float,
    typer.Option(
        "--lease-seconds", metavar="SECONDS", help="How long the group stays reserved after this controller dies."
    ),
]
StopGraceOption = Annotated[
    float,
    typer.Option("--stop-grace", metavar="SECONDS", help="How long a worker has to stop before it is killed."),
]
DEFAULTS = RolloutSettings()


def plan(
    cluster: ClusterOption = None,
    to: Annotated[Mode | None, typer.Option("--to", help="Mode to roll to; default: the next step upwards.")] = None,
    allow_downtime: DowntimeOption = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a roll would change, and the hash to apply it by. Changes nothing."""
    described = load_cluster(cluster)
    stale = [] if to is Mode.DISABLED else _left_behind(described)
    for line in left_behind_lines(stale):
        warn(line)
    with Controller(described, settings=RolloutSettings(allow_downtime=allow_downtime)) as controller:
        made = controller.plan(to)
    keep(made)
    document = {
        **made.to_dict(),
        "nothing_to_do": made.nothing_to_do,
        "own_topics_left_behind": [one.to_dict() for one in stale],
    }
    if print_document(document, [made.short_hash], output, as_json=as_json):
        return
    with width_for(output):
        show(made, apply_command(made, cluster, allow_downtime=allow_downtime))


def _left_behind(cluster: ConnectCluster) -> list[Copies]:
    """The connectors whose own offsets topic is older than the global one; said before the plan, also of one refused.

    Where that cannot be seen, the plan says why, if it matters there.
    """
    try:
        with ConnectSession(cluster) as session:
            return left_behind(session)
    except EosError as error:
        warn(f"whether own offsets topics are left behind by an older Kafka Connect is not known: {error.found}")
        return []


def apply_command(made: Plan, cluster: Path | None, *, allow_downtime: bool) -> str:
    """The command that applies a plan, with what this one was given: without it another cluster, or none, is meant.

    :param cluster: the cluster file that was named; None if the default was found.
    """
    words = ["eos", "apply", made.short_hash]
    if cluster is not None:
        words += ["--cluster", str(cluster)]
    if allow_downtime:
        words.append("--allow-downtime")
    return shlex.join(words)


def apply(
    plan_hash: Annotated[
        str, typer.Argument(metavar="HASH", help="The hash that 'eos plan' has shown (8 or more digits).")
    ],
    cluster: ClusterOption = None,
    reason: ReasonOption = "",
    allow_downtime: DowntimeOption = False,
    take_over: TakeOverOption = False,
    gate_timeout: GateTimeoutOption = None,
    lease_seconds: LeaseOption = DEFAULTS.lease_seconds,
    stop_grace: StopGraceOption = DEFAULTS.stop_grace_seconds,
    as_json: JsonOption = False,
) -> None:
    """Roll the group as planned. Killed and called again with the same hash, it continues where it was."""
    require_enough_digits(plan_hash)
    settings = RolloutSettings(
        allow_downtime=allow_downtime,
        gate_timeout_seconds=gate_timeout,
        lease_seconds=lease_seconds,
        stop_grace_seconds=stop_grace,
    )
    described = load_cluster(cluster)

    def find(controller: Controller) -> Plan:
        try:
            return controller.find_plan(plan_hash)
        except PlanMovedError:
            _explain_what_moved(controller, plan_hash)
            raise

    carry_out(described, find, settings, reason=reason, take_over=take_over, as_json=as_json)


def carry_out(
    cluster: ConnectCluster,
    find: Callable[[Controller], Plan],
    settings: RolloutSettings,
    *,
    reason: str,
    take_over: bool = False,
    resume: bool = False,
    as_json: bool = False,
) -> None:
    """Apply a plan, with progress on standard error and the report on standard output.

    :param find: the plan that is meant.
    """
    interrupted = _Interrupt()
    controller = Controller(
        cluster,
        report=report_line,
        stop_requested=interrupted.is_set,
        actor=actor(),
        reason=reason,
        settings=settings,
    )
    with controller:
        found = find(controller)
        with interrupted:
            report = controller.apply(found, take_over=take_over, resume=resume)
    if as_json:
        print_json(report.to_dict())
    else:
        _show_report(report)


class _Interrupt:
    """Ctrl-C or SIGTERM: the first asks the roll to stop between two actions, the second ends it at once."""

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
        report_line("Stopping before the next action; once more to stop at once.")


def keep(made: Plan) -> None:
    """Remember a plan that was shown. Where that cannot be written, a later refusal only says less."""
    try:
        PLANS_FOLDER.mkdir(parents=True, exist_ok=True)
        (PLANS_FOLDER / f"{made.hash}.json").write_text(json.dumps(made.to_dict(), indent=2), encoding="utf-8")
    except OSError as error:
        warn(
            f"the plan is not kept, since {PLANS_FOLDER.absolute()} cannot be written ({error.strerror}); it can be "
            "applied all the same, but if the cluster changes before, the refusal cannot say what has changed"
        )


def _explain_what_moved(controller: Controller, plan_hash: str) -> None:
    """Raise the more telling error, if the plan was made here and is still at hand."""
    for path in PLANS_FOLDER.glob(f"{plan_hash}*.json"):
        old = Plan.from_dict(user_json.parse_file(path, "a plan that 'eos plan' has kept"))
        old.require_unmoved(controller.replan(old.target))


def show(made: Plan, command: str) -> None:
    """Print a plan, and how to apply it.

    :param command: that applies it.
    """
    shown = table(f"Group {made.group_id}: {made.current} -> {made.target}")
    for column in ("worker", "runs", "tasks", "what happens", "its tasks are unassigned"):
        shown.add_column(column, overflow="fold", no_wrap=column == "worker")
    for prediction in made.task_downtime:
        change = made.change(prediction.worker_id)
        downtime = "not at all" if change.kind is ChangeKind.NONE else str(prediction)
        shown.add_row(change.worker_id, change.runs, str(prediction.tasks), str(change.kind), downtime)
    console.print(shown)
    for line in made.diff():
        console.print(line, style={"+": "green", "-": "red"}.get(line[0]), soft_wrap=True)
    executed = made.executed()
    if executed:
        console.print("Start commands:")
    for line in executed:
        console.print(f"  {line}", highlight=False, soft_wrap=True)
    if made.connectors.summary:
        console.print(f"The connectors ('eos preflight' has more): {made.connectors.summary}", soft_wrap=True)
    for line in made.connectors.lines:
        console.print(f"  {line}", soft_wrap=True)
    if made.nothing_to_do:
        console.print("Nothing to do.")
        return
    if made.puts_back:
        console.print("isolation.level, which an earlier roll has set temporarily, gets its former value again.")
    console.print("One worker at a time, in this order unless another leader is elected; nothing is changed yet.")
    console.print(f"To do it:  {command}", style="bold", soft_wrap=True)


def _show_report(report: RolloutReport) -> None:
    if not report.workers:
        console.print("Nothing was to be done.")
        return
    shown = table(f"{report.from_modes} -> {report.to_mode}")
    for column in ("worker", "mode", "led", "restart and gate", "task downtime", "predicted"):
        shown.add_column(column, no_wrap=column == "worker", overflow="fold")
    for worker in report.workers:
        shown.add_row(
            worker.worker,
            worker.mode,
            "yes" if worker.led else "no",
            f"{worker.seconds:.1f} s",
            f"{worker.task_downtime_seconds:.1f} s",
            f"{worker.predicted_seconds:.1f} s",
        )
    console.print(shown)
