"""``eos plan`` and ``eos apply``."""

from __future__ import annotations

import getpass
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from airflow_eos_provider.cli.common import (
    ClusterOption,
    JsonOption,
    console,
    load_cluster,
    print_json,
    progress_console,
)
from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import PlanMovedError
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.plan import ChangeKind, Plan
from airflow_eos_provider.rollout.report import RolloutReport
from airflow_eos_provider.rollout.settings import RolloutSettings

#: Plans that were shown, so that a refusal can say what has moved since. Nothing depends on this folder.
PLANS_FOLDER = Path(".eos/plans")

DowntimeOption = Annotated[
    bool, typer.Option("--allow-downtime", help="Roll even if no other worker can take over the tasks meanwhile.")
]

TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Fence a controller though its lease still runs; one that is only slow is stopped by that. Journalled.",
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why, for the journal.")]
GateTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--gate-timeout",
        min=1.0,
        metavar="SECONDS",
        help="When a gate that does not hold is given up; default: rebalance delay + session timeout + 120 s.",
    ),
]
LeaseOption = Annotated[
    float,
    typer.Option(
        "--lease-seconds", metavar="SECONDS", help="How long this controller, once silent, keeps the group to itself."
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
    as_json: JsonOption = False,
) -> None:
    """Show what a roll would change, and the hash to apply it by. Changes nothing."""
    controller = Controller(load_cluster(cluster), settings=RolloutSettings(allow_downtime=allow_downtime))
    made = controller.plan(to)
    keep(made)
    if as_json:
        print_json({**made.to_dict(), "nothing_to_do": made.nothing_to_do})
        return
    show(made)


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
    """Roll the group as planned. Killed and called again with the same hash, it goes on where it stands."""
    if len(plan_hash) < 8:
        raise typer.BadParameter("give at least 8 digits of the hash")
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
        report=_report,
        stop_requested=interrupted.is_set,
        actor=actor(),
        reason=reason,
        settings=settings,
    )
    found = find(controller)
    with interrupted:
        report = controller.apply(found, take_over=take_over, resume=resume)
    if as_json:
        print_json(report.to_dict())
    else:
        _show_report(report)


def actor() -> str:
    """Who calls, for the journal."""
    return getpass.getuser()


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
        _report("Stopping before the next action; once more to stop at once.")


def _report(line: str) -> None:
    progress_console.print(f"{time.strftime('%H:%M:%S')}  {line}", markup=False, soft_wrap=True)


def keep(made: Plan) -> None:
    """Remember a plan that was shown."""
    PLANS_FOLDER.mkdir(parents=True, exist_ok=True)
    (PLANS_FOLDER / f"{made.hash}.json").write_text(json.dumps(made.to_dict(), indent=2), encoding="utf-8")


def _explain_what_moved(controller: Controller, plan_hash: str) -> None:
    """Raise the more telling error, if the plan was made here and is still at hand."""
    for path in PLANS_FOLDER.glob(f"{plan_hash}*.json"):
        old = Plan.from_dict(json.loads(path.read_text(encoding="utf-8")))
        old.require_unmoved(controller.replan(old.target))


def show(made: Plan) -> None:
    """Print a plan, and how to apply it."""
    predictions = {prediction.worker_id: prediction for prediction in made.stand_still}
    table = Table(title=f"Group {made.group_id}: {made.current} -> {made.target}", title_justify="left")
    for column in ("worker", "runs", "tasks", "what happens", "its tasks stand still"):
        table.add_column(column, overflow="fold")
    for change in made.workers:
        prediction = predictions[change.worker_id]
        stands = "not at all" if change.kind is ChangeKind.NONE else str(prediction)
        table.add_row(change.worker_id, change.mode, str(prediction.tasks), str(change.kind), stands)
    console.print(table)
    for line in made.diff():
        console.print(line, style={"+": "green", "-": "red"}.get(line[0]), markup=False, soft_wrap=True)
    if made.nothing_to_do:
        console.print("Nothing to do.")
        return
    if made.puts_back:
        console.print("isolation.level, which an earlier roll had set for the way, is put back as it was.")
    console.print("One worker at a time, the leader of the moment first; nothing has been changed yet.")
    console.print(f"To do it:  eos apply {made.short_hash}", style="bold")


def _show_report(report: RolloutReport) -> None:
    if not report.workers:
        console.print("Nothing was to be done.")
        return
    table = Table(title=f"{report.from_modes} -> {report.to_mode}", title_justify="left")
    for column in ("worker", "mode", "led", "restart and gate", "its tasks stood still", "predicted"):
        table.add_column(column, no_wrap=column == "worker", overflow="fold")
    for worker in report.workers:
        table.add_row(
            worker.worker,
            worker.mode,
            "yes" if worker.led else "no",
            f"{worker.seconds:.1f} s",
            f"{worker.tasks_stood_seconds:.1f} s",
            f"{worker.predicted_seconds:.1f} s",
        )
    console.print(table)
