"""What is tried on a worker's machine before a roll, judged."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import MachineDescription, SystemdUnit
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import Declared, Running
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.rollout.answer import Check, passed
from airflow_eos_provider.rollout.hosts.host import Edit, HostFacts, Obstacle
from airflow_eos_provider.rollout.hosts.machine.machine import MachineLostError
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.readiness import (
    MachineProbe,
    Readiness,
    check_all,
    of_facts,
    of_machine,
    of_polkit,
    outlives,
    probe,
    read_probe,
)
from tests.sshd import running_sshd

PRINTED = """\
now 1000.5
user eos 1001
system Linux 6.1.0
missing
coreutils stat (GNU coreutils) 9.1
session session-4.scope
kills no
spared root
"""


def by_name(checks: Any) -> dict[str, Check]:
    return {check.subject: check for check in checks}


def facts(**values: Any) -> HostFacts:
    said: dict[str, Any] = {
        "worker_id": "w:1",
        "edit": Edit("/etc/kafka/c.properties"),
        "digest": "d",
        "declared": Declared(Mode.DISABLED, "", None),
        "running": Running(Mode.DISABLED, "the log says so", 1.0, alive=True, reads_file=True),
        "is_running": True,
        "runs_as": "pid 7",
    }
    return HostFacts(**{**said, **values})


def test_what_a_machine_prints_is_read() -> None:
    assert read_probe(PRINTED, at=998.0, error=0.5) == MachineProbe(
        user="eos",
        system="Linux 6.1.0",
        clock_ahead=2.5,
        clock_error=0.5,
        coreutils="stat (GNU coreutils) 9.1",
        session="session-4.scope",
        kills="no",
        spared=("root",),
    )


@pytest.mark.parametrize(("printed", "ahead"), [("1000.%N", 2.0), ("1000.N", 2.0), ("Welcome", 0.0), ("", 0.0)])
def test_a_clock_that_is_printed_otherwise_breaks_nothing(printed: str, ahead: float) -> None:
    assert read_probe(PRINTED.replace("1000.5", printed), at=998.0, error=0.5).clock_ahead == ahead


def test_a_machine_of_the_real_kind_passes(tmp_path: Path) -> None:
    with running_sshd(tmp_path) as sshd:
        found = probe(machine_of(sshd.description()))
    assert found.user == sshd.user
    assert [check.verdict for check in of_machine("here", found)] == [Verdict.PASS] * 3
    assert found.clock_error < 5


def test_a_machine_that_prints_something_else_lacks_a_shell() -> None:
    checks = by_name(of_machine("menu", read_probe("Welcome\n1) Reboot\n", at=0, error=0)))
    assert checks["tools"].verdict is Verdict.FAIL


def test_missing_tools_and_those_that_are_not_gnus_fail() -> None:
    assert "lacks mktemp" in by_name(of_machine("m", MachineProbe("eos", missing=("mktemp",))))["tools"].found
    assert by_name(of_machine("m", MachineProbe("eos")))["tools"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("ahead", "words"), [(3600.0, "3600 s ahead of"), (-90.0, "90 s behind"), (3.0, "within 3.1 s")]
)
def test_a_clock_that_is_wrong_is_said_and_fails_nothing(ahead: float, words: str) -> None:
    found = MachineProbe("eos", clock_ahead=ahead, clock_error=0.1, coreutils="stat (GNU coreutils) 9.1")
    clock = by_name(of_machine("m", found))["clock"]
    assert clock.passed
    assert words in clock.found


@pytest.mark.parametrize(
    ("session", "kills", "spared", "verdict"),
    [
        ("session-4.scope", "no", (), Verdict.PASS),
        ("session-4.scope", "yes", ("root",), Verdict.FAIL),
        ("session-4.scope", "yes", ("root", "eos"), Verdict.PASS),
        ("", "yes", (), Verdict.PASS),
        ("session-4.scope", "", (), Verdict.INCONCLUSIVE),
    ],
)
def test_a_restart_beside_the_login_outlives_it(
    session: str, kills: str, spared: tuple[str, ...], verdict: Verdict
) -> None:
    assert outlives("m", MachineProbe("eos", session=session, kills=kills, spared=spared)).verdict is verdict


def test_a_worker_of_which_all_is_known_passes() -> None:
    checks = of_facts(facts())
    assert [check.verdict for check in checks] == [Verdict.PASS] * 3
    assert "disabled" in by_name(checks)["log"].found


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "words"),
    [
        ({"digest": None, "declared": Declared(None, "no such file", None)}, "file", Verdict.FAIL, "no such file"),
        ({"obstacles": (Obstacle("change", "its disk is full", "make room"),)}, "file", Verdict.FAIL, "disk is full"),
        ({"problem": "there is no unit x"}, "service", Verdict.FAIL, "no unit x"),
        ({"obstacles": (Obstacle("restart", "needs reload", "reload"),)}, "service", Verdict.FAIL, "needs reload"),
        ({"restart": "a job is under way"}, "service", Verdict.INCONCLUSIVE, "under way"),
        (
            {"is_running": False, "running": Running(None, "no such process", None, alive=None)},
            "service",
            Verdict.INCONCLUSIVE,
            "no such process",
        ),
        (
            {"is_running": False, "running": Running(None, "it is stopped", None, alive=False)},
            "service",
            Verdict.PASS,
            "can be started",
        ),
        (
            {"running": Running(None, "no start-up lines", 1.0, alive=True), "mode_remedy": "name its log"},
            "log",
            Verdict.INCONCLUSIVE,
            "no start-up lines",
        ),
        (
            {"running": Running(Mode.ENABLED, "x", 1.0, alive=True, reads_file=False)},
            "log",
            Verdict.FAIL,
            "not started with this file",
        ),
    ],
)
def test_what_stands_against_a_roll_is_named(changes: Any, name: str, verdict: Verdict, words: str) -> None:
    check = by_name(of_facts(facts(**changes)))[name]
    assert check.verdict is verdict
    assert words in check.found


def worker(name: str, **values: Any) -> WorkerDescription:
    return WorkerDescription(f"http://{name}:8083", **values)


def ready(described: WorkerDescription) -> Readiness:
    return Readiness(described.worker_id, "", "", (passed("machine", "answers"),))


def test_what_polkit_allows_is_not_known_before_it_is_tried() -> None:
    unit = SystemdUnit("connect.service", journal=True)
    plain = WorkerDescription("http://w:1", service=unit, machine=MachineDescription("w"))
    (check,) = of_polkit(plain, "eos", facts())
    assert (check.verdict, "connect.service" in check.found) == (Verdict.INCONCLUSIVE, True)
    by_sudo = WorkerDescription(
        "http://w:1", service=unit, machine=MachineDescription("w", sudo=frozenset({"service"}))
    )
    absent = facts(obstacles=(Obstacle("restart", "polkit is absent", "sudo"),))
    assert of_polkit(by_sudo, "eos", facts()) == ()
    assert of_polkit(plain, "root", facts()) == ()
    assert of_polkit(plain, "eos", absent) == ()
    assert of_polkit(WorkerDescription("http://w:1", machine=MachineDescription("w")), "eos", facts()) == ()


def test_a_machine_that_hangs_holds_up_no_other() -> None:
    over = threading.Event()

    def check(described: WorkerDescription) -> Readiness:
        if described.worker_id == "hangs:8083":
            over.wait(120)
        return ready(described)

    done: list[str] = []
    begun = time.monotonic()
    try:
        found = check_all(
            [worker("hangs"), worker("a"), worker("b")], check, lambda one: done.append(one.worker_id), seconds=5.0
        )
    finally:
        over.set()
    assert time.monotonic() - begun < 100
    assert [one.verdict for one in found] == [Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.PASS]
    assert not found[0].reached
    assert sorted(done) == ["a:8083", "b:8083"]


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (MachineLostError("connect-1 cannot be reached"), Verdict.INCONCLUSIVE),
        (ConfigurationError("the host key of connect-1 has changed"), Verdict.FAIL),
    ],
)
def test_a_machine_that_is_not_reached_is_not_known_and_one_that_refuses_fails(
    error: Exception, verdict: Verdict
) -> None:
    def check(described: WorkerDescription) -> Readiness:
        raise error

    (found,) = check_all([worker("connect-1", machine=MachineDescription("connect-1"))], check)
    assert (found.verdict, found.reached, found.machine) == (verdict, False, "connect-1")
