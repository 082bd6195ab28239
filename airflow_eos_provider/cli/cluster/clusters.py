"""``eos clusters``: the cluster files that ``--cluster`` finds by name."""

from __future__ import annotations

from typing import Any

import typer

from airflow_eos_provider.cli.common import JsonOption, clusters_folder, console, named_clusters, table, width_for
from airflow_eos_provider.cli.examples import examples
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.output import OutputOption, print_document

clusters_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="List the cluster files that --cluster finds by name.",
)


@clusters_app.callback()
def clusters() -> None:
    """List the cluster files that --cluster finds by name."""


@clusters_app.command("list", epilog=examples("eos clusters list", "eos clusters list -o json"))
def list_(output: OutputOption = None, as_json: JsonOption = False) -> None:
    """Show the cluster files in ~/.config/airflow_eos_provider/clusters. Contacts no cluster."""
    found = [_described(name) for name in named_clusters()]
    if print_document(found, [one["name"] for one in found], output, as_json=as_json):
        return
    if not found:
        console.print(
            f"No cluster file is in {clusters_folder()}. 'eos discover … --write' writes one.", soft_wrap=True
        )
        return
    shown = table()
    for column in ("name", "group", "brokers", "workers"):
        shown.add_column(column, overflow="fold")
    for one in found:
        shown.add_row(one["name"], one["group"], one["bootstrap_servers"], one["problem"] or str(one["workers"]))
    with width_for(output):
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
