"""What the commands share: finding the cluster file, printing."""

from __future__ import annotations

import getpass
import glob
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from airflow_eos_provider.changes.change import TAKE_OVER_HELP
from airflow_eos_provider.connect.cluster.description import ConnectCluster, exposed_file, kafka_of_file
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.output import WIDE, Output
from airflow_eos_provider.plan_hash import MIN_HASH_LENGTH
from airflow_eos_provider.terminal import console_on

#: Of findings, by their verdict.
STYLES = {Verdict.PASS: "", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "yellow"}

#: Where a cluster file is looked for when none is named: here first, then the default lab.
DEFAULT_CLUSTER_FILES = (Path("eos.yaml"), Path(".eos/lab/default/eos.yaml"))


def clusters_folder() -> Path:
    """Where a user keeps the cluster files that are called by their names."""
    configuration = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(configuration) / "airflow_eos_provider" / "clusters"


def named_clusters() -> list[str]:
    """The names that ``--cluster`` takes beside paths."""
    return sorted(file.stem for file in clusters_folder().glob("*.yaml"))


def _complete_cluster(incomplete: str) -> list[str]:
    folder, slash, begun = incomplete.rpartition("/")
    files = Path(folder + slash).glob(f"{glob.escape(begun)}*")
    return [*(name for name in named_clusters() if name.startswith(incomplete)), *map(str, files)]


ClusterOption = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        "-c",
        envvar="EOS_CLUSTER",
        metavar="NAME|PATH",
        autocompletion=_complete_cluster,
        help="Cluster file, or the name of one in ~/.config/airflow_eos_provider/clusters. Default: ./eos.yaml, then "
        "the lab's.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as -o json.")]


ExitCodeOption = Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if there are findings.")]

TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help=TAKE_OVER_HELP,
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, stored in the journal.")]


def timeout_option(help: str) -> Any:
    """``--timeout SECONDS``: the time limit of a command."""
    return typer.Option("--timeout", min=0.0, metavar="SECONDS", help=help)


def watch_option(help: str) -> Any:
    """``--watch SECONDS``: how often a command repeats what it does."""
    return typer.Option("--watch", min=1.0, metavar="SECONDS", help=help)


def accept_option(metavar: str, help: str) -> Any:
    """``--accept``: a finding that does not count."""
    return typer.Option("--accept", metavar=metavar, help=f"{help} Repeatable.")


#: Length of a bar of progress, characters.
_BAR = 20

console = console_on()
#: For what --quiet leaves out, and for warnings and errors.
progress_console = console_on(stderr=True)
error_console = console_on(stderr=True)


def load_cluster(path: Path | None) -> ConnectCluster:
    """The cluster that is meant."""
    file = cluster_file(path)
    cluster = ConnectCluster.from_file(file)
    warn(exposed_file(file, holds_secrets=cluster.holds_secrets))
    for each in cluster.java_files:
        warn(each.exposed)
    return replace(cluster, read_elsewhere=_read_elsewhere)


def load_kafka(path: Path | None) -> KafkaSettings:
    """The brokers of the cluster, as :func:`load_cluster`; its file need not describe Connect workers."""
    file = cluster_file(path)
    settings, warnings = kafka_of_file(file)
    for warning in warnings:
        warn(warning)
    return settings


def _read_elsewhere(worker: WorkerDescription) -> bytes:
    from airflow_eos_provider.rollout.hosts.worker_file import read_properties_file  # brings the SSH client

    return read_properties_file(worker)


def cluster_file(path: Path | None) -> Path:
    """The file of the cluster that is meant."""
    if path is None:
        for candidate in DEFAULT_CLUSTER_FILES:
            if candidate.is_file():
                return candidate
        raise ConfigurationError(
            f"No cluster is named, and no default file exists: {', '.join(map(str, DEFAULT_CLUSTER_FILES))}.",
            remedy="Name one with --cluster, start a lab with 'eos lab up', or let 'eos discover' propose one.",
        )
    is_path = len(path.parts) != 1 or path.suffix in (".yaml", ".yml") or path.is_file()
    if is_path or (named := clusters_folder() / f"{path}.yaml").is_file():
        return path if is_path else named
    raise ConfigurationError(
        f"There is no cluster {path}: {named} does not exist, nor a file {path} here.",
        expected=f"one of {', '.join(known)}, or the path of a cluster file" if (known := named_clusters()) else None,
        remedy=f"Put its cluster file there ('eos discover … --write {named}'), or name a file.",
    )


def actor() -> str:
    """Who calls, for the journal: the user's name, or the uid where it has none, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # before Python 3.13 it is a KeyError
        return f"uid {os.getuid()}"


def warn(warning: str | None) -> None:
    """Print a warning on standard error, if there is one."""
    if warning:
        error_console.print(f"warning: {warning}", soft_wrap=True)


def table(title: str = "", *columns: str, whole: str = "") -> Table:
    """A table that fits eight columns about a worker into a terminal of 80. Its cells are data unless they are Text.

    :param whole: the column that is never folded.
    """
    made = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column == whole)
    return made


def require_enough_digits(plan_hash: str | None) -> str | None:
    """Refuse a hash that could be of several plans."""
    if plan_hash is not None and len(plan_hash) < MIN_HASH_LENGTH:
        raise typer.BadParameter(f"give at least {MIN_HASH_LENGTH} digits of the hash")
    return plan_hash


@contextmanager
def width_for(output: Output | None) -> Iterator[None]:
    """Within it no table is folded if ``-o wide`` is asked for, however narrow the terminal."""
    before = console.width
    if output is Output.WIDE:
        console.width = WIDE
    try:
        yield
    finally:
        console.width = before


def show_finding(one: Finding, before: str = "", style: str | None = None) -> None:
    """A finding on one line; below it the expectation and the remedy."""
    first, *more = one.lines()
    console.print(f"{before}{first}", style=STYLES[one.verdict] if style is None else style, soft_wrap=True)
    for line in more:
        console.print(f"    {line}", soft_wrap=True)


def show_checks(kinds: tuple[str, str], checked: Sequence[tuple[str, str, str, Finding]], *, wide: bool) -> None:
    """Checks of several places: below each place its own; or as a table.

    :param kinds: what the places are, and where each is; the first columns of the table.
    :param checked: place, where it is, what is checked, and what was found.
    """
    shown = table("", *kinds, "check", "answer", "found", "what to do")
    for (place, where), theirs in groupby(checked, key=lambda each: each[:2]):
        if not wide:
            console.print(Text(f"{place} on {where}" if where else place, "bold"), soft_wrap=True)
        for *_, what, found in theirs:
            if wide:
                shown.add_row(place, where, what, str(found.verdict), found.found, found.remedy)
            else:
                show_finding(found, f"  {found.verdict:<14}{what}: ")
    if wide:
        console.print(shown)


def show_answer(text: str, verdict: Verdict) -> None:
    """The answer of a whole check."""
    print_lines(text, style=STYLES[verdict] or "green")


def print_lines(text: str, *, on: Console = console, style: str | None = None) -> None:
    """Print a text of several lines; a plain ``print`` takes a string for one line of data."""
    for line in text.split("\n"):
        on.print(line, style=style, soft_wrap=True)


def print_over(line: str) -> None:
    """Print progress over the line before, on a terminal; an empty line takes it away."""
    if progress_console.is_terminal:
        progress_console.control(Control((ControlType.ERASE_IN_LINE, 2)))
        progress_console.print(line, end="")
        progress_console.control(Control(ControlType.CARRIAGE_RETURN))  # as text it would be shown by its code


def print_share_read(topic: str, passed: int, total: int) -> None:
    """How far the reads of a topic are: a bar on one line of a terminal, gone at the end."""
    share = passed / max(total, 1)
    print_over(f"{topic}: [{'#' * int(_BAR * share):<{_BAR}}] {share:4.0%} read" if passed < total else "")


def report_line(line: str) -> None:
    """Print a line of progress with the time."""
    progress_console.print(f"{time.strftime('%H:%M:%S')}  {line}", soft_wrap=True)
