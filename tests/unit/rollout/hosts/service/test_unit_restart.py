"""The restart of a unit, where its machine answers oddly; for real ones see tests/integration/test_systemd_host.py."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_eos_provider.connect.cluster import WorkerDescription
from airflow_eos_provider.connect.placement import MachineDescription, SystemdUnit
from airflow_eos_provider.rollout.hosts.machine.machine import COMMAND_SECONDS, Answer
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.service.systemd import SystemdService
from airflow_eos_provider.rollout.hosts.service.unit import Unit
from airflow_eos_provider.rollout.hosts.service.unit_restart import UnitRestart


class Bare(ThisMachine):
    """A machine with the login eos, and without the programs that are looked for."""

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = COMMAND_SECONDS) -> Answer:
        return Answer(0, b"eos\n" if words[0] == "id" else b"", b"")


def test_a_log_that_cannot_be_read_does_not_hide_that_the_worker_has_ended() -> None:
    worker = WorkerDescription(
        "http://127.0.0.1:8083",
        machine=MachineDescription("", sudo=frozenset({"log"})),
        service=SystemdUnit("kafka-connect.service", journal=True),
    )
    unit = Unit.parse("Id=kafka-connect.service\nActiveState=failed\nSubState=failed\n")
    error = UnitRestart(SystemdService(Bare(), worker), 10.0, lambda event: None)._ended(unit, "1nv0cat10n")
    assert "ended right after its start" in error.found
    assert "the log cannot be read: There is no program 'journalctl'" in error.found


class LateJournal(SystemdService):
    """A unit whose last lines are in the journal at the third look: a journal that is late cannot be had at will."""

    looks = 0

    def last_lines(self, invocation: str) -> str:
        self.looks += 1
        return f"the end of {invocation}" if self.looks == 3 else "\n"


def test_the_last_lines_of_a_worker_that_has_ended_are_waited_for() -> None:
    worker = WorkerDescription("http://127.0.0.1:1", service=SystemdUnit("connect"))
    unit = Unit.parse("Id=connect.service\nActiveState=failed\nSubState=failed\n")
    restart = UnitRestart(LateJournal(ThisMachine(), worker), 20.0, lambda _event: None)
    assert "the end of 4711" in restart._ended(unit, "4711").found
