"""A worker that a service owns, where its machine answers oddly or its file cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import SystemdUnit
from airflow_eos_provider.rollout.hosts.host import NotRestartedError, RestartRequest
from airflow_eos_provider.rollout.hosts.machine.machine import COMMAND_SECONDS, Answer
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.service.service import Service
from airflow_eos_provider.rollout.hosts.service.systemd import SystemdService
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost


class Nameless(ThisMachine):
    """A machine that knows no name for the user that is logged in, as while its directory service is away."""

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = COMMAND_SECONDS) -> Answer:
        if tuple(words) == ("id", "-un"):
            return Answer(1, b"", b"id: cannot find name for user ID 4711")
        return super().run(words, stdin=stdin, seconds=seconds)


def test_a_login_without_a_name_may_change_its_own_file(tmp_path: Path) -> None:
    config = tmp_path / "c.properties"
    config.write_text("group.id=connect\nexactly.once.source.support=enabled\n")
    worker = WorkerDescription("http://127.0.0.1:8083", config=config)
    facts = ServicedHost(worker, Nameless(), Service(Nameless(), worker)).observe()
    assert facts.digest is not None
    assert facts.properties["group.id"] == "connect"
    assert facts.obstacles == ()


class UnaskedService(SystemdService):
    def restart(self, request: RestartRequest) -> None:
        raise AssertionError("the service was asked for a restart")


def test_a_worker_whose_file_cannot_be_read_is_not_restarted_and_not_to_blame(tmp_path: Path) -> None:
    worker = WorkerDescription(
        "http://127.0.0.1:1", config=tmp_path / "connect.properties", service=SystemdUnit("connect")
    )
    machine = ThisMachine()
    host = ServicedHost(worker, machine, UnaskedService(machine, worker))
    with pytest.raises(NotRestartedError, match=r"127.0.0.1:1 was not restarted: .*Nothing was stopped"):
        host.restart()
