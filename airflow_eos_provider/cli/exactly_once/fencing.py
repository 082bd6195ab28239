"""``eos fencing``: lists pending rounds and carries them out."""

from __future__ import annotations

import typer

from airflow_eos_provider.changes.fencing.change import FENCING
from airflow_eos_provider.cli.change import add_apply, add_list

fencing_app = typer.Typer(no_args_is_help=True, add_completion=False)
add_list(
    fencing_app,
    FENCING,
    "Show the fencing of source connectors, and what a round would do. Changes nothing.",
    "eos fencing list",
    "eos fencing list orders -o wide  # with every transactional id",
)
add_apply(fencing_app, FENCING)
