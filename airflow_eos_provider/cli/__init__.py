"""The command line ``eos``: the same core as the Airflow layer, for a terminal."""

from __future__ import annotations

import sys

import typer

from airflow_eos_provider import __version__
from airflow_eos_provider.cli import discover, drift, rollout, status
from airflow_eos_provider.cli.common import console, progress_console
from airflow_eos_provider.cli.intervals import intervals_app
from airflow_eos_provider.cli.rollouts import rollouts_app
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.command import lab_app
from airflow_eos_provider.lab.demo_command import demo

app = typer.Typer(
    name="eos",
    help="Operate Kafka Connect through exactly-once source support (KIP-618).",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)
app.command("status")(status.status)
app.command("discover")(discover.discover)
app.command("drift")(drift.drift)
app.command("plan")(rollout.plan)
app.command("apply")(rollout.apply)
app.command("demo")(demo)
app.add_typer(rollouts_app, name="rollout", help="Rolls of the group: history, pause, resume, abort, back.")
app.add_typer(intervals_app, name="intervals", help="Interval runs: what was written into Kafka exactly once.")
app.add_typer(lab_app, name="lab", help="A real Kafka with real Connect workers on this machine.")


def _print_version(value: bool) -> None:
    if value:
        console.print(f"airflow-eos-provider {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    """Operate Kafka Connect through exactly-once source support (KIP-618)."""


def main() -> None:
    """Run ``eos``; every expected error is a few lines on standard error and an exit code of its own."""
    try:
        app()
    except EosError as error:
        progress_console.print(f"error: {error}", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
