"""What the commands share: finding the cluster file, printing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.errors import ConfigurationError

#: Where a cluster file is looked for when none is named: here first, then the default lab.
DEFAULT_CLUSTER_FILES = (Path("eos.yaml"), Path(".eos/lab/default/eos.yaml"))

ClusterOption = Annotated[
    Path | None,
    typer.Option("--cluster", "-c", envvar="EOS_CLUSTER", help="Cluster file; default: ./eos.yaml, then the lab's."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]

#: Width of what is printed into a file or a pipe, where no terminal says how wide it is.
PIPE_WIDTH = 160


def _console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, highlight=False, width=width)


console = _console()
progress_console = _console(stderr=True)


def load_cluster(path: Path | None) -> ConnectCluster:
    """The cluster that is meant.

    :raises ConfigurationError: none is named and none is found.
    """
    if path is not None:
        return ConnectCluster.from_file(path)
    for candidate in DEFAULT_CLUSTER_FILES:
        if candidate.is_file():
            return ConnectCluster.from_file(candidate)
    raise ConfigurationError(
        f"No cluster file is named, and neither {' nor '.join(map(str, DEFAULT_CLUSTER_FILES))} is here.",
        remedy="Name one with --cluster, start a lab with 'eos lab up', or let 'eos discover' propose one.",
    )


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
