"""Sudoers files for the workers' machines: read by the real ``visudo``, no wider than what runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import (
    PRIVILEGES,
    MachineDescription,
    OwnCommands,
    SshLogin,
    SystemdUnit,
)
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.rollout.hosts.machine.sudo import Command
from airflow_eos_provider.rollout.hosts.readiness import of_sudo, of_unit
from airflow_eos_provider.rollout.hosts.service.unit import Unit
from airflow_eos_provider.rollout.hosts.sudoers import Grant, Section, SudoersFile, sudoers_of
from tests.missing import not_run
from tests.sshd import Sshd

VISUDO = shutil.which("visudo", path="/usr/sbin:/usr/bin:/sbin")


def accepted(text: str, folder: Path) -> bool:
    """Whether sudo's own editor takes a file."""
    if VISUDO is None:
        not_run("visudo is not installed (Debian: sudo)")
    file = folder / "eos.sudoers"
    file.write_text(text)
    return subprocess.run([VISUDO, "-c", "-f", str(file)], capture_output=True, timeout=30).returncode == 0


def worker(name: str, **values: Any) -> WorkerDescription:
    said: dict[str, Any] = {
        "config": Path("/etc/kafka/connect.properties"),
        "service": SystemdUnit("kafka-connect@1.service", journal=True),
        "machine": nowhere(name),
    }
    return WorkerDescription(f"http://{name}:8083", **{**said, **values})


def nowhere(name: str, **values: Any) -> MachineDescription:
    """A machine that nothing answers for."""
    login = SshLogin(user="eos", port=free_ports(1)[0])
    return MachineDescription(
        **{"ssh": "127.0.0.1", "login": login, "sudo": frozenset(PRIVILEGES), "connect_seconds": 3.0, **values}
    )


def test_a_file_says_what_each_line_is_for_and_is_taken_by_visudo(tmp_path: Path) -> None:
    lines = ("eos ALL=(root) NOPASSWD: /usr/bin/systemctl restart --no-block kafka-connect@1.service",)
    file = SudoersFile("connect-1", "eos", (Section("w: restart it", lines),), ("a remark",))
    assert file.text().splitlines() == [
        "# connect-1, login eos: visudo -f /etc/sudoers.d/eos",
        "# a remark",
        "# w: restart it",
        *lines,
    ]
    assert accepted(file.text(), tmp_path)
    assert not accepted("eos ALL=(root NOPASSWD: x\n", tmp_path)


def test_of_a_machine_that_is_not_reached_it_is_said_what_was_assumed(tmp_path: Path) -> None:
    (file,) = sudoers_of([worker("connect-1")])
    text = file.text()
    assert "# not checked: " in text
    assert "# assumed: the login is eos" in text
    assert "eos ALL=(root) NOPASSWD: /usr/bin/systemctl restart --no-block kafka-connect@1.service" in text
    assert "eos ALL=(kafka) NOPASSWD: /usr/bin/cat -- /etc/kafka/connect.properties" in text
    assert "eos ALL=(root) NOPASSWD: /usr/bin/journalctl" in text
    assert accepted(text, tmp_path)
    rights = [line for line in text.splitlines() if not line.startswith("#")]
    assert rights
    assert not [line for line in rights if "*" in line or line.endswith(("ALL", "systemctl", "cat"))]


def test_what_a_machine_says_is_quoted_in_a_comment_and_grants_nothing(tmp_path: Path) -> None:
    said = "it cannot be read:\nALL ALL=(ALL) NOPASSWD: ALL\n"
    text = SudoersFile("connect-1", "eos", (), (said,)).text()
    assert [line for line in text.splitlines() if not line.startswith("# ")] == []
    assert accepted(text, tmp_path)


def test_of_a_machine_that_is_not_reached_a_program_with_its_folder_stays_that_program() -> None:
    service = OwnCommands(restart=("/opt/bin/supervisorctl", "restart", "w"), status=("supervisorctl", "pid", "w"))
    (file,) = sudoers_of([worker("connect-1", service=service)])
    assert "NOPASSWD: /opt/bin/supervisorctl restart w" in file.text()
    assert "NOPASSWD: /usr/bin/supervisorctl pid w" in file.text()


def test_of_a_machine_that_is_not_reached_what_cannot_be_granted_is_said_and_the_rest_is_there() -> None:
    machine = nowhere("connect-1")
    spaced = worker("a", machine=machine, config=Path("/etc/kafka/my connect.properties"))
    logging = worker("b", machine=machine, service=SystemdUnit("b.service"), log=Path("/var/log/b.log"))
    (file,) = sudoers_of([spaced, logging])
    assert "# a:8083: no lines, since sudo cannot be narrowed" in file.text()
    assert "# b:8083: no lines for its log /var/log/b.log" in file.text()
    assert "systemctl restart --no-block b.service" in file.text()


def test_only_what_the_description_gives_to_sudo_is_granted() -> None:
    (file,) = sudoers_of([worker("connect-1", machine=nowhere("connect-1", sudo=frozenset({"service"})))])
    assert [section.what_for for section in file.sections] == [
        "connect-1:8083: restart it (systemd unit kafka-connect@1.service)"
    ]
    assert sudoers_of([worker("connect-1", machine=nowhere("connect-1", sudo=frozenset()))]) == ()


def test_workers_of_one_machine_are_in_one_file() -> None:
    machine = nowhere("connect-1")
    two = [worker("a", machine=machine), worker("b", machine=machine, service=SystemdUnit("other.service"))]
    (file,) = sudoers_of(two)
    assert {section.what_for.partition(":")[0] for section in file.sections} == {"a", "b"}
    assert len(sudoers_of([worker("a"), worker("b", machine=nowhere("b"))])) == 2


@pytest.fixture
def grants() -> list[Grant]:
    commands = (Command(("cat", "--", "/c"), "kafka"), Command(("rm", "-f", "--", "/c.new"), "kafka"))
    return [Grant("w:1", "read and replace /c", commands)]


def test_what_sudo_does_not_allow_is_named_with_its_lines(grants: list[Grant]) -> None:
    def lacking(first: int) -> Any:
        return SimpleNamespace(missing=lambda all_: all_[first:], lines=lambda some: [f"line for {c}" for c in some])

    check = of_sudo(grants, lacking(1))
    assert check.verdict is Verdict.FAIL
    assert "1 of 2 commands not allowed: rm -f -- /c.new" in check.found
    assert check.remedy.splitlines()[1:] == ["line for rm -f -- /c.new"]
    assert of_sudo(grants, lacking(2)).verdict is Verdict.PASS
    assert of_sudo([], lacking(0)).found == "none is needed"


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, Verdict.PASS, "Restart=always, killed 90 s after its stop began"),
        ({"TimeoutStopUSec": "infinity"}, Verdict.PASS, "killed never"),
        ({"LoadState": "not-found"}, Verdict.FAIL, "x.service is not-found"),
        ({"LoadState": ""}, Verdict.INCONCLUSIVE, "systemd does not report x.service"),
        ({"NeedDaemonReload": "yes"}, Verdict.FAIL, "files have changed since"),
    ],
)
def test_a_units_own_settings_are_said(changes: dict[str, str], verdict: Verdict, words: str) -> None:
    shown = {
        "Id": "x.service",
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "Restart": "always",
        "TimeoutStopUSec": "1min 30s",
        **changes,
    }
    check = of_unit(Unit.parse("\n".join(f"{name}={value}" for name, value in shown.items())), "x.service")
    assert check.verdict is verdict
    assert words in check.found


def test_what_a_machine_needs_is_found_on_it(sshd: Sshd, tmp_path: Path) -> None:
    """This login is root, so what belongs to root needs no sudo; the folder of another user does."""
    config = tmp_path / "connect.properties"
    config.write_text("group.id=g\n")
    machine = sshd.description()
    described = worker(
        "here",
        config=config,
        machine=MachineDescription(
            machine.ssh, machine.login, frozenset(PRIVILEGES), machine.ssh_config, machine.known_hosts
        ),
    )
    (file,) = sudoers_of([described])
    assert file.login == sshd.user
    assert not [line for section in file.sections for line in section.lines if f"({sshd.user})" in line]
    assert accepted(file.text(), tmp_path)
