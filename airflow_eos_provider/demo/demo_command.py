"""``eos demo`` as a command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from airflow_eos_provider.terminal import DataConsole

#: Width where the output goes to a file or a pipe, characters.
LOG_WIDTH = 80

INTRODUCTION = """\
This takes two to four minutes on two cores. Everything is real and runs here:
1. Kafka Connect without exactly-once loses a worker: records are duplicated.
2. An Airflow DAG rolls the cluster to exactly-once while connectors write.
3. It loses a worker again, and a connector is fenced: no duplicates, no loss.
4. Airflow and Spark write {days} day{plural} into Kafka, each exactly once; Spark dies.
5. Every topic is compared with its source, record by record.
Ctrl-C stops it and removes everything.
"""

NEXT_STEPS = """\
What to do next:
  eos demo --keep      # the same, left running: look at Airflow's pages
  eos lab up           # a cluster of your own to try things on
  eos discover --help  # describe a cluster that you have
"""

KEPT_STEPS = """\
Left running: Airflow at {url}, user admin,
password in {folder}/lab/demo/airflow/passwords.json
What to do next:
  eos status --cluster {folder}/lab/demo/eos.yaml
  eos rollout list --cluster {folder}/lab/demo/eos.yaml
  eos demo --down --dir {folder}
"""


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the lab and Airflow up at the end.")] = False,
    down: Annotated[
        bool, typer.Option("--down", help="Take down what a demo with --keep, or a killed one, left up.")
    ] = False,
    days: Annotated[int, typer.Option("--days", min=1, max=31, help="How many days of January 2013 to backfill.")] = 3,
    folder: Annotated[Path, typer.Option("--dir", help="Folder for everything of the demo.")] = Path(".eos/demo"),
) -> None:
    """Run the main job on a lab: upgrade a loaded Connect cluster from Airflow, then backfill days with Spark.

    Takes two to four minutes on two cores. Writes report.json into the folder. Exits with 0 only if every check passed.
    """
    from airflow_eos_provider.demo.main_job import run_demo, take_down  # the lab's libraries load slowly

    console = DataConsole()
    if not console.is_terminal:
        console = DataConsole(width=LOG_WIDTH)
    if down:
        console.print(f"Ended {take_down(folder)} processes of the demo in {folder}, and removed its files.")
        return
    console.print(Text(INTRODUCTION.format(days=days, plural="s" * (days > 1))))
    try:
        report = run_demo(folder, console, keep=keep, days=days)
    except KeyboardInterrupt:
        console.print(Text("Interrupted. Everything was taken down and removed.", style="yellow"))
        raise typer.Exit(130) from None
    failed = [promise for promise, held in report.checks.items() if not held]
    if failed:
        console.print(Text(f"NOT proved: {'; '.join(failed)}.", style="bold red"))
    else:
        before = report.source.duplicates_before_enabled if report.source else 0
        text = (
            f"Proved by {len(report.checks)} checks: {before:,} duplicates without exactly-once. "
            "With it: no duplicates, no records lost, after a kill, a fencing round and a killed Spark."
        )
        console.print(Text(text, style="bold green"))
    console.print(Text(f"Report: {folder / 'report.json'} ({sum(s for _, s in report.timings):.0f} seconds)"))
    console.print(Text((KEPT_STEPS if keep else NEXT_STEPS).format(folder=folder, url=report.airflow.get("url"))))
    if failed:
        raise typer.Exit(1)
