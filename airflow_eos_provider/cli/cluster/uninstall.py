"""``eos uninstall``: shows and removes what this package has left of a group."""

from __future__ import annotations

import typer

from airflow_eos_provider.changes.uninstall.change import UNINSTALL
from airflow_eos_provider.cli.change import add_apply

uninstall_app = typer.Typer(add_completion=False)
add_apply(uninstall_app, UNINSTALL)
