"""``eos lab``: the lab on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.jars.jars import DEFAULT_VERSION, VERSIONS
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.lab_status import LabStatus
from airflow_eos_provider.lab.record import LabOptions, LabRecord
from airflow_eos_provider.lab.teardown import take_down
from airflow_eos_provider.output import WIDE, Output, OutputOption, print_document
from airflow_eos_provider.terminal import DataConsole

lab_app = typer.Typer(
    name="lab",
    no_args_is_help=True,
    add_completion=False,
    help="Real Kafka brokers and Connect workers on this machine, to try things on.",
)

# One line each, never wrapped or coloured by its content: scripts read the first, people watch the second.
_out = DataConsole(soft_wrap=True)
_err = DataConsole(soft_wrap=True, stderr=True)

_EXAMPLES = {
    "up": "\b\nExamples:\n  eos lab up --workers 3 --mode disabled\n  eos lab up --name older --connect-version 3.9.2",
    "status": "\b\nExamples:\n  eos lab status\n  eos lab status --name older -o name",
    "down": "\b\nExamples:\n  eos lab down --keep-data",
}


Name = Annotated[str, typer.Option("--name", help="Labs of different names run side by side.")]
Dir = Annotated[Path, typer.Option("--dir", help="The folder that holds the labs' folders.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_DEFAULTS = LabOptions()


@lab_app.command(epilog=_EXAMPLES["up"])
def up(
    name: Name = _DEFAULTS.name,
    directory: Dir = _DEFAULTS.root,
    workers: Annotated[
        int | None, typer.Option(min=0, max=20, help=f"Connect workers; default: {_DEFAULTS.workers}.")
    ] = None,
    brokers: Annotated[int | None, typer.Option(help="Brokers, 1 or 3; default: 1.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="The workers' mode; default: disabled.")] = None,
    rebalance_delay: Annotated[
        int | None,
        typer.Option(
            metavar="MS",
            min=0,
            help="The workers' scheduled.rebalance.max.delay.ms; default: "
            f"{_DEFAULTS.rebalance_delay_ms} (Connect's own: 300000).",
        ),
    ] = None,
    session_timeout: Annotated[
        int | None,
        typer.Option(
            metavar="MS",
            min=6_000,  # what brokers allow
            max=1_800_000,
            help="The workers' session.timeout.ms; default: Connect's, 10000.",
        ),
    ] = None,
    connect_version: Annotated[
        str | None,
        typer.Option(help=f"The workers' version: {', '.join(VERSIONS)}. The brokers' is {DEFAULT_VERSION} always."),
    ] = None,
    worker_property: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="One more property of each worker; may be given several times."),
    ] = None,
    test_connectors: Annotated[
        bool | None, typer.Option("--test-connectors", help="Also offer the connectors of Connect's own tests.")
    ] = None,
    postgres: Annotated[bool | None, typer.Option("--postgres", help="Also start a PostgreSQL server.")] = None,
) -> None:
    """Start a lab, or what is missing of it, and print one JSON line that tells where it is.

    For a lab that exists, options that are not given keep their values.
    """
    given: dict[str, Any] = {
        "workers": workers,
        "brokers": brokers,
        "mode": mode,
        "rebalance_delay_ms": rebalance_delay,
        "session_timeout_ms": session_timeout,
        "connect_version": connect_version,
        "test_connectors": test_connectors,
        "postgres": postgres,
        "worker_properties": _properties(worker_property) if worker_property else None,
    }
    given = {key: value for key, value in given.items() if value is not None}
    options = LabOptions(name=name, root=directory)
    record = LabRecord.read(options.folder)
    if record is not None and record.complete:
        options = replace(record.options, root=directory)
    lab = Lab.up(replace(options, **given), progress=_err.print)
    _out.print(json.dumps(lab.summary()))


@lab_app.command(epilog=_EXAMPLES["status"])
def status(
    name: Name = _DEFAULTS.name,
    directory: Dir = _DEFAULTS.root,
    output: OutputOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a lab's processes. Exit code 0 if all of them run and answer, 1 if not, 2 if there is no lab."""
    seen = Lab.load(LabOptions(name=name, root=directory).folder).status()
    if as_json or output is Output.JSON:
        _out.print(json.dumps(seen.as_json()))  # one line, as 'up' prints it
    elif not print_document(seen.as_json(), [process.name for process in seen.processes], output, as_json=False):
        wide = output is Output.WIDE
        console = DataConsole(soft_wrap=True, width=WIDE) if wide else _out
        console.print(_table(seen, wide=wide))
    if not seen.healthy:
        raise typer.Exit(1)


@lab_app.command(epilog=_EXAMPLES["down"])
def down(
    name: Name = _DEFAULTS.name,
    directory: Dir = _DEFAULTS.root,
    keep_data: Annotated[bool, typer.Option("--keep-data", help="Leave the folder for the next 'up'.")] = False,
) -> None:
    """Stop everything of a lab, workers first, and remove its folder."""
    folder = LabOptions(name=name, root=directory).folder
    if not take_down(folder, keep_data=keep_data, progress=_err.print):
        _err.print(f"There is no lab in {folder}: nothing to do.")


def _properties(given: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping."""
    properties = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"{word!r} is no property.", expected="NAME=VALUE")
        properties[name] = value
    return properties


def _table(seen: LabStatus, *, wide: bool = False) -> Table:
    """A table of processes; their logs only where it may be wider than a terminal."""
    table = Table(title=f"Lab {seen.name}, group {seen.group_id}, in {seen.folder}", title_justify="left")
    for column in ("process", "pid", "state", "address", "mode in file", *(("log",) if wide else ())):
        table.add_column(column, no_wrap=column in ("process", "address"))
    for process in seen.processes:
        state = "ready" if process.ready else "alive, not ready" if process.alive else "not running"
        log = (str(process.log),) if wide else ()
        table.add_row(process.name, str(process.pid or "-"), state, process.address, process.mode_in_file or "-", *log)
    for pid in seen.strays:
        table.add_row("?", str(pid), "left by an interrupted command; 'up' or 'down' stops it", "-", "-")
    return table
