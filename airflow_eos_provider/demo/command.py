"""``eos demo`` as a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from airflow_eos_provider.terminal import DataConsole

if TYPE_CHECKING:
    from rich.console import Console

    from airflow_eos_provider.demo.main_job import DemoOptions
    from airflow_eos_provider.demo.report import DemoReport

#: Connect's own default of ``scheduled.rebalance.max.delay.ms``.
CONNECT_DEFAULT_DELAY_MS = 300_000

#: Width of tables and plans where the output goes to a file or a pipe, characters.
LOG_WIDTH = 120


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the lab and Airflow up at the end.")] = False,
    down: Annotated[
        bool, typer.Option("--down", help="Only take down what a demo with --keep, or a killed one, left up.")
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            "--rate", min=1, max=5000, help="Flights a second; default 500, or 200 where a long delay is asked for."
        ),
    ] = None,
    days: Annotated[
        int,
        typer.Option(
            "--days",
            min=0,
            max=31,
            help="How many days of January 2013 to backfill after the upgrade; 0 leaves that part out.",
        ),
    ] = 3,
    rebalance_delay: Annotated[
        int,
        typer.Option(
            "--rebalance-delay",
            min=0,
            help=f"The workers' scheduled.rebalance.max.delay.ms. Connect's own default is {CONNECT_DEFAULT_DELAY_MS}.",
        ),
    ] = 3000,
    secure: Annotated[
        bool, typer.Option("--secure", help="On a lab with TLS, logins and ACLs; each part has a login of its own.")
    ] = False,
    folder: Annotated[Path, typer.Option("--dir", help="Folder for everything of the demo.")] = Path(".eos/demo"),
) -> None:
    """Run the main job on a lab: upgrade a loaded Connect cluster from Airflow, then backfill days with Spark.

    Takes about five minutes on two cores (--days 0: four, --days 31: seven). Writes report.json into the folder.
    Exits with 0 only if every check passed.
    """
    from airflow_eos_provider.demo.main_job import DemoOptions, run_demo, take_down  # the lab's libraries load slowly

    console = DataConsole()
    if not console.is_terminal:
        console = DataConsole(width=LOG_WIDTH)
    if down:
        take_down(folder, console)
        return
    options = DemoOptions(
        folder=folder, keep=keep, rate=rate, days=days, rebalance_delay_ms=rebalance_delay, secure=secure
    )
    try:
        report = run_demo(options, console)
    except KeyboardInterrupt:
        console.print(Text("Interrupted; nothing of the demo is left running.", style="yellow"))
        raise typer.Exit(130) from None
    console.print(Text(f"Report: {options.report_file}"))
    if keep and "url" in report.airflow:
        console.print(
            Text(f"Left up: Airflow at {report.airflow['url']}, and the lab. Down: eos demo --down --dir {folder}")
        )
    if not report.ok:
        _say_what_failed(report, options, console)
        raise typer.Exit(1)
    console.print(Text("Every check held.", style="bold green"))


def _say_what_failed(report: DemoReport, options: DemoOptions, console: Console) -> None:
    """What did not hold, what was not shown, and how to go on; the reasons in short."""
    promises = report.promises
    for verdict, names in (
        ("Did NOT hold", [promise for promise, held in promises.items() if held is False]),
        ("Not shown", [promise for promise, held in promises.items() if held is None]),
        ("Failed", [part.name for part in report.parts if part.outcome == "failed"]),
        ("Not tried", [part.name for part in report.parts if part.outcome == "not tried"]),
    ):
        if names:
            console.print(Text(f"{verdict}: {'; '.join(names)}.", style="bold red"))
    for part in report.parts:
        if part.remedy:
            console.print(Text(f"{part.name}: {part.remedy}"))
    console.print(Text(f"The logs are in {options.folder / 'lab'} and {options.folder / 'airflow'}."))
    console.print(Text(f"How to go on: remove the cause and run 'eos demo --dir {options.folder}' again;"))
    console.print(Text("with --keep, lab and Airflow stay up to look at them."))
