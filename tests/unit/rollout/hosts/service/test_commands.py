"""Workers of supervisord and runit, restarted by their supervisors' own commands on real machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.service import far_act
from airflow_eos_provider.rollout.hosts.service.commands import CommandFacts, CommandService
from tests.unit.rollout.hosts.service.supervisors import Supervised, runit, supervisord

KINDS: dict[str, Callable[[Path], AbstractContextManager[Supervised]]] = {"supervisord": supervisord, "runit": runit}


@pytest.fixture(params=KINDS)
def supervised(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    monkeypatch.setenv("HOME", str(tmp_path))
    with KINDS[request.param](tmp_path / "w") as supervised:
        yield supervised


def records(folder: Path) -> list[str]:
    """What acts have left."""
    return sorted(path.name for path in folder.glob(".local/state/airflow_eos_provider/*"))


def restart(service: CommandService, facts: CommandFacts | None = None, **arguments: Any) -> list[str]:
    """Restart a worker; what has happened, in words."""
    events: list[str] = []
    replaces = (facts or service.look()).token
    settings: dict[str, Any] = {"config_sha256": "c", "changed_at": None, "stop_grace_seconds": 20.0, "rollout": "r"}
    settings |= {"on_event": events.append, "permit": events.append, "replaces": replaces, **arguments}
    service.restart(**settings)
    return events


@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/bash"])
def test_a_supervisors_command_restarts_the_worker_and_the_new_process_is_known(
    supervised: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    name = tmp_path / "sh"  # a bash of this name is a POSIX shell
    name.symlink_to(shell)
    monkeypatch.setattr(far_act, "SHELL", str(name))
    machine: Machine = ThisMachine()
    service = CommandService(machine, supervised.worker)
    before = service.look()
    assert before.process is not None
    assert (before.problem, before.reads_file) == (None, True)
    events = restart(service, before)
    after = service.look()
    assert after.process is not None
    assert after.token != before.token
    assert events == [
        "stop",
        f"restarting pid {before.process.pid} by its supervisor's command",
        f"started as pid {after.process.pid}",
    ]
    assert records(tmp_path) == []
