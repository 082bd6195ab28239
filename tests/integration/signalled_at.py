"""``eos`` that sends itself a signal at one point of a change: ``python -m … SIGKILL write announced offsets reset c``.

The points of a step are ``announced`` (on record, its body not begun) and ``carried-out`` (its body over, and that not
on record yet). Several steps are separated by commas: a signal that suspends it comes at each of them. A step may
also be a topic's name: its creation; or ``marker``: the abort of a transaction that hangs.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from airflow_eos_provider.cli import main
from airflow_eos_provider.journal.journal import Journal
from airflow_eos_provider.journal.records import ChangeRecord, RolloutState
from airflow_eos_provider.kafka.admin.open_transactions import HeldOpen
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.topics import Topics

_write_change = Journal.write_change
_create = Topics.create
_abort = TransactionsClient.abort


def _signalled(number: int, steps: list[str], point: str) -> None:
    def write_change(self: Journal, change: ChangeRecord, event: str = "") -> None:
        if point == "carried-out" and not change.under_way and change.done and change.done[-1] in steps:
            os.kill(os.getpid(), number)
        _write_change(self, change, event)
        is_announced = not event and change.state is RolloutState.RUNNING  # and not the state of one that is taken up
        if point == "announced" and is_announced and change.under_way in steps:
            os.kill(os.getpid(), number)

    def create(self: Topics, *arguments: Any) -> bool:
        if arguments[0] in steps and point == "announced":
            os.kill(os.getpid(), number)
        is_new = _create(self, *arguments)
        if arguments[0] in steps and point == "carried-out":
            os.kill(os.getpid(), number)
        return is_new

    def abort(self: TransactionsClient, held: HeldOpen) -> None:
        if "marker" in steps and point == "announced":
            os.kill(os.getpid(), number)
        _abort(self, held)
        if "marker" in steps and point == "carried-out":
            os.kill(os.getpid(), number)

    TransactionsClient.abort = abort  # type: ignore[method-assign]
    Journal.write_change = write_change  # type: ignore[method-assign]
    Topics.create = create  # type: ignore[method-assign]


if __name__ == "__main__":
    name, at_steps, at_point, *arguments = sys.argv[1:]
    _signalled(int(signal.Signals[name]), at_steps.split(","), at_point)
    sys.argv[1:] = arguments
    main()
