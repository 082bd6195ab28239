"""``eos transactions list --watch``: prints the changes between polls."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Annotated, Any, NoReturn, Self

import typer

from airflow_eos_provider.cli.common import print_lines, progress_console, report_line
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import RolloutPausedError, UnreachableError
from airflow_eos_provider.transactions.differences import Change, ChangeKind, Moment, changes
from airflow_eos_provider.transactions.known_ids import Filter
from airflow_eos_provider.transactions.scope import Scope

_STYLES = {
    ChangeKind.HANGING: "bold red",
    ChangeKind.OVERDUE: "red",
    ChangeKind.OPEN: "yellow",
    ChangeKind.UNSEEN: "yellow",
}


TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Only this topic; may be repeated. Default: every topic that you may see."),
]


def watch_(
    described: ConnectCluster,
    every: float,
    seconds: float | None,
    longer_than: float,
    connector: str | None,
    topics: list[str] | None,
    everyone: bool,
    *,
    as_json: bool,
) -> NoReturn:
    """Print what changes: open long, overdue, hanging, ended. The last look decides the exit code."""
    wanted = Filter(everyone=everyone, connector=connector or "", open_only=True)
    with ConnectSession(described) as session:
        scope = Scope(session, None, topics or (), report_line)
        scope.partitions()  # a topic that does not exist is named at once
        last, error = _watch(lambda: scope.look(wanted), every, seconds, longer_than, as_json=as_json)
    if error is not None:
        raise error
    if last.hanging is not None and last.hanging.hanging:
        raise typer.Exit(1)
    raise typer.Exit(RolloutPausedError.exit_code if last.hanging is None or last.unseen else 0)


def _watch(
    look: Callable[[], Moment], every: float, seconds: float | None, longer_than: float, *, as_json: bool
) -> tuple[Moment, UnreachableError | None]:
    """Look until the time is over or an operator interrupts; the last look, and why it failed if it did."""
    deadline = None if seconds is None else time.monotonic() + seconds
    last, known, error = Moment(time.time()), None, None
    with suppress(KeyboardInterrupt), _Interruption() as interruption:
        while not interruption.requested:
            error = None
            try:
                last = look()
            except UnreachableError as unreachable:  # a broker that is away comes back
                last, error = Moment(time.time(), problem=unreachable.found), unreachable
            if known is None:
                opened = counted(len(last.opened), "open transaction")
                print_lines(f"Watching; {opened} now.", on=progress_console)
            _show(changes(known, last, longer_than), as_json=as_json)
            known = last if error is None else replace(known or last, problem=last.problem)
            left = every if deadline is None else min(every, deadline - time.monotonic())
            if left <= 0:
                break
            interruption.sleep(left)
    return last, error


class _Interruption:
    """Ctrl-C. It ends a pause at once, and otherwise waits for the end of a look: raised within a client's callback an
    exception is lost. A second one ends the command wherever it is.
    """

    def __init__(self) -> None:
        self.requested = False
        self._pausing = False
        self._former: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._former = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, self._former)

    def sleep(self, seconds: float) -> None:
        self._pausing = True  # before the question: whatever comes after it ends the pause
        if not self.requested:
            time.sleep(seconds)
        self._pausing = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._pausing or self.requested:
            raise KeyboardInterrupt
        self.requested = True


def _show(found: tuple[Change, ...], *, as_json: bool) -> None:
    for change in found:
        if as_json:
            typer.echo(json.dumps(change.to_dict()))
        else:
            at = time.strftime("%H:%M:%S", time.localtime(change.at))
            print_lines(f"{at} {change.kind}: {change.what}", style=_STYLES.get(change.kind, ""))
