"""``eos clusters``: the cluster files that ``--cluster`` finds by name."""

from __future__ import annotations

from typing import Any

import typer

from airflow_eos_provider.cli.common import clusters_folder, console, named_clusters, table
from airflow_eos_provider.cli.look import Found, add_look
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.errors import EosError

clusters_app = typer.Typer(no_args_is_help=True, add_completion=False)


@clusters_app.callback()
def clusters() -> None:
    """List the cluster files that --cluster finds by name."""


@add_look(clusters_app, "list", "eos clusters list", "eos clusters list -o json")
def list_() -> Found:
    """Show the cluster files in ~/.config/airflow_eos_provider/clusters. Contacts no cluster."""
    found = [_described(name) for name in named_clusters()]
    return Found(found, [one["name"] for one in found], lambda wide: _show(found))


def _show(found: list[dict[str, Any]]) -> None:
    if not found:
        console.print(
            f"No cluster file is in {clusters_folder()}. 'eos discover … --write' writes one.", soft_wrap=True
        )
        return
    shown = table("", "name", "group", "brokers", "workers")
    for one in found:
        shown.add_row(one["name"], one["group"], one["bootstrap_servers"], one["problem"] or str(one["workers"]))
    console.print(shown)


def _described(name: str) -> dict[str, Any]:
    file = clusters_folder() / f"{name}.yaml"
    try:
        cluster = ConnectCluster.from_file(file)
    except EosError as error:
        return {**dict.fromkeys(("group", "bootstrap_servers", "workers"), None), "name": name, "problem": error.found}
    return {
        "name": name,
        "group": cluster.group_id,
        "bootstrap_servers": cluster.kafka.bootstrap_servers,
        "workers": len(cluster.workers),
        "problem": None,
    }
