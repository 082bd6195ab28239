"""The restart of a unit, where its machine answers oddly; for real ones see tests/integration/test_systemd_host.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import MachineDescription, SystemdUnit
from airflow_eos_provider.rollout.hosts.host import Moment, RestartEvent, RestartRequest, StartToken, moments_of
from airflow_eos_provider.rollout.hosts.machine.machine import COMMAND_SECONDS, Answer
from airflow_eos_provider.rollout.hosts.machine.processes import Process
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from airflow_eos_provider.rollout.hosts.service import systemd
from airflow_eos_provider.rollout.hosts.service.systemd import SystemdService, UnitFacts, UnitRestart
from airflow_eos_provider.rollout.hosts.service.unit import Unit


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
    error = UnitRestart(SystemdService(Bare(), worker), RestartRequest())._ended(unit, "1nv0cat10n")
    assert "ended right after its start" in error.found
    assert "the log cannot be read: There is no program 'journalctl'" in error.found


def shown(invocation: str, *, job: str = "", started: float, ended: float) -> UnitFacts:
    """A unit at one look, its moments in seconds since a boot at 1,000."""
    lines = [
        "Id=connect.service",
        "LoadState=loaded",
        "ActiveState=active",
        f"InvocationID={invocation}",
        f"Job={job}",
        "MainPID=12",
        f"ExecMainStartTimestampMonotonic={started * 1e6:.0f}",
        f"InactiveEnterTimestampMonotonic={ended * 1e6:.0f}",
    ]
    process = Process(12, f"boot/12/{started}", 1000.0 + started)
    return UnitFacts(unit=Unit.parse("\n".join(lines)), process=process, token=StartToken(invocation), booted_at=1000.0)


class Shown(SystemdService):
    """A unit that is shown as it is given."""

    def __init__(self, *looks: UnitFacts) -> None:
        super().__init__(Bare(), WorkerDescription("http://127.0.0.1:1", service=SystemdUnit("connect")))
        self.looks = list(looks)

    def look(self) -> UnitFacts:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def moments(service: Shown, *, changed_at: float = 1006.0) -> list[tuple[Moment | None, float]]:
    heard: list[RestartEvent] = []
    service.restart(RestartRequest(on_event=heard.append, rollout="r", replaces="i1", changed_at=changed_at))
    return [(event.moment, event.at) for event in moments_of(heard)]


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens where these workers should; that is not waited for."""
    monkeypatch.setattr(systemd, "EARLY_END_SECONDS", 0.0)


@pytest.mark.usefixtures("brief")
def test_of_a_unit_that_was_restarted_already_its_start_is_known_and_its_end_only_if_it_was_seen() -> None:
    done = shown("i2", started=9.5, ended=9.25)
    assert moments(Shown(done)) == [(Moment.STARTED, 1009.5)]
    assert moments(Shown(shown("i1", job="7", started=5.0, ended=2.0), done)) == [
        (Moment.STOPPED, 1009.25),
        (Moment.STARTED, 1009.5),
    ]


@pytest.mark.usefixtures("brief")
def test_a_restart_that_is_none_of_this_roll_has_no_moments_of_it() -> None:
    """It was under way, and the worker's file was changed since: what is asked for is yet to come."""
    other = shown("i2", started=7.5, ended=7.25)
    service = Shown(shown("i1", job="7", started=5.0, ended=2.0), other, other, shown("i3", started=9.5, ended=9.25))
    assert moments(service, changed_at=1008.0) == [(Moment.STOPPED, 1009.25), (Moment.STARTED, 1009.5)]
