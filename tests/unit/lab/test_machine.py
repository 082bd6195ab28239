"""The pure parts of a lab's machines: addresses, accounts, logins, what is missing, what the options refuse."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.lab.record import LabRecord
from tests.lab import machine_needs
from tests.lab.lab import TestLabOptions, TestLabRecord
from tests.lab.machine import Machine, control_group
from tests.lab.machine_login import MachineLogin, known_host
from tests.lab.machine_needs import LEAVE_OUT, need_machines
from tests.lab.machine_root import PASSWD, Layer, Root, accounts, clock_environment, with_accounts
from tests.lab.machine_worker import MachineWorker

PASSWORDS = (
    "root:x:0:0:root:/root:/bin/bash\nsshd:x:104:65534::/run/sshd:/usr/sbin/nologin\neos:x:2000:2000::/old:/bin/zsh\n"
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(lab_folder=tmp_path, number=2, ssh_port=2222, token="t", bound=("/jars", "rw:/data"))


@pytest.fixture
def nothing_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_needs, "missing", lambda: ())


def test_each_machine_has_an_address_and_a_name_of_its_own(machine: Machine) -> None:
    assert (machine.name, machine.host) == ("connect-2", "127.0.0.3")


def test_the_labs_marker_stands_in_the_start_command_in_a_form_that_systemd_ignores(machine: Machine) -> None:
    assert f"eos.lab=t:{machine.lab_folder}" in machine.start_command
    assert machine.start_command[-2:] == ["/jars", "rw:/data"]


def test_machines_of_two_labs_have_different_control_groups(tmp_path: Path) -> None:
    assert control_group(tmp_path / "a", "connect-1") != control_group(tmp_path / "b", "connect-1")


def test_a_machines_users_have_free_numbers_and_replace_those_of_the_same_name() -> None:
    ours = accounts(PASSWORDS)
    assert [(user.name, user.number) for user in ours] == [("eos", 2001), ("kafka", 2002)]
    lines = with_accounts(PASSWORDS, ours, PASSWD).splitlines()
    assert lines == [
        "root:x:0:0:root:/root:/bin/bash",
        "sshd:x:104:65534::/run/sshd:/usr/sbin/nologin",
        "eos:x:2001:2001::/home/eos:/bin/sh",
        "kafka:x:2002:2002::/var/lib/kafka:/usr/sbin/nologin",
    ]


def test_no_password_of_this_machine_is_copied_to_a_labs(tmp_path: Path) -> None:
    need_machines()
    layer = Layer(tmp_path)
    Root("connect-1", "127.0.0.2", 2222, {}, "public", ("private", "public")).write(layer)
    lines = [line.split(":") for line in layer.path("/etc/shadow").read_text(encoding="utf-8").splitlines()]
    users = [line.split(":")[0] for line in layer.path("/etc/passwd").read_text(encoding="utf-8").splitlines()]
    assert [name for name, *_ in lines] == users
    assert {"root", "eos", "kafka"} <= set(users)
    assert {password for _, password, *_ in lines} == {"*"}  # not "!", which sshd takes for a locked account


def test_openssh_reads_the_labs_configuration(machine: Machine, tmp_path: Path) -> None:
    login = MachineLogin(tmp_path)
    login.write([machine])
    command = ["ssh", "-F", str(login.config), "-G", machine.name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert (said["hostname"], said["port"], said["user"]) == ("127.0.0.3", "2222", "eos")
    assert said["identityfile"] == str(login.key)
    assert said["userknownhostsfile"] == str(login.known_hosts)
    assert said["stricthostkeychecking"] == "true"
    assert login.known_hosts.read_text(encoding="ascii") == known_host(machine)
    assert known_host(machine).startswith("[127.0.0.3]:2222 ssh-ed25519 ")


def test_the_cluster_file_names_machine_unit_and_journal(machine: Machine, tmp_path: Path) -> None:
    worker = MachineWorker(
        folder=tmp_path, number=2, port=8083, class_path="/jars/*", marker="-Deos.lab=t:/f", machine=machine
    )
    assert worker.description() == {
        "url": "http://127.0.0.3:8083",
        "machine": {"ssh": "connect-2", "ssh_config": str(tmp_path / "ssh_config"), "sudo": True},
        "service": {"systemd": "kafka-connect@2.service"},
        "config": "/etc/kafka/connect-2.properties",
        "log": {"journal": True},
    }


def test_a_wrong_clock_is_ahead_and_the_time_since_the_boot_stays() -> None:
    assert clock_environment(3600)["FAKETIME"] == "+3600s"
    assert clock_environment(-60)["FAKETIME"] == "-60s"
    assert clock_environment(1)["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"
    assert clock_environment(1)["FAKETIME_FORCE_MONOTONIC_FIX"] == "0"  # with 1, a JVM takes ten times its CPU


def test_there_are_as_many_workers_as_machines_unless_more_are_asked_for() -> None:
    assert TestLabOptions().workers == 3
    assert TestLabOptions(machines=2).workers == 2
    assert TestLabOptions(machines=2, workers=3).workers == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machines": 2, "workers": 1}, "2 machines for 1 workers"),
        ({"machines": -1}, "-1 machines"),
        ({"machines": 1, "secure": True}, "secured lab with machines"),
        ({"secure": True, "connect_version": "3.9.2"}, "version 3.9.2"),
        ({"machines": 1, "clock_offsets": {"connect-2": 1}}, "clock of connect-2"),
    ],
)
def test_machines_that_cannot_be_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TestLabOptions(**options)  # type: ignore[arg-type]


def test_a_record_keeps_machines_and_secured_ports_and_the_product_reads_the_rest(tmp_path: Path) -> None:
    for options in (
        TestLabOptions(machines=2, workers=3, clock_offsets={"connect-2": 3600}),
        TestLabOptions(secure=True, brokers=3),
    ):
        record = TestLabRecord.draw(options)
        record.write(tmp_path)
        assert TestLabRecord.read(tmp_path) == record
        ports = [*record.worker_ports, *record.machine_ports, *sum(record.broker_ports, ())]
        ports += [*{port for each in record.secured_ports for port in each}]
        assert len(set(ports)) == len(ports) == (2 + 3 + 2 if options.machines else 3 + 6 + 7)
        plain = LabRecord.read(tmp_path)
        assert plain is not None
        assert (plain.token, plain.worker_ports) == (record.token, record.worker_ports)


def test_where_a_program_is_missing_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(machine_needs, "_which", lambda program: None if program == "sshd" else "/usr/bin/true")
    monkeypatch.setattr(machine_needs, "SYSTEMD", Path("/nowhere"))
    assert machine_needs.missing.__wrapped__() == ("Not installed: openssh-server, systemd.",)


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "root only" in machine_needs.missing.__wrapped__()[0]


def test_a_kernel_that_refuses_namespaces_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(machine_needs, "_which", lambda program: "/usr/bin/true")
    monkeypatch.setattr(machine_needs, "SYSTEMD", Path("/"))
    monkeypatch.setattr(machine_needs, "_namespaces_refused", lambda: "unshare failed: Operation not permitted")
    monkeypatch.setattr(machine_needs, "missing", machine_needs.missing.__wrapped__)
    with pytest.raises(RefusedError, match="Operation not permitted") as refused:
        machine_needs.require_machines()
    assert "apt-get install" in str(refused.value)


def test_a_wrong_clock_wants_libfaketime(monkeypatch: pytest.MonkeyPatch, nothing_missing: None) -> None:
    monkeypatch.setattr(machine_needs, "faketime_library", lambda: None)
    machine_needs.require_machines()
    with pytest.raises(RefusedError, match="libfaketime"):
        machine_needs.require_machines(with_clocks=True)


def test_a_test_without_its_machines_is_not_run_and_in_ci_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.lab.machine_needs.missing", lambda: ("Not installed: systemd.",))
    with pytest.raises(pytest.skip.Exception, match="not run: Not installed: systemd"):
        need_machines({})
    with pytest.raises(pytest.fail.Exception, match="not run: Not installed: systemd"):
        need_machines({"CI": "true"})
    with pytest.raises(pytest.skip.Exception, match="not run: EOS_NO_MACHINES"):
        need_machines({"CI": "true", LEAVE_OUT: "1"})


def test_a_test_whose_machines_can_be_is_run_unless_they_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.lab.machine_needs.missing", lambda: ())
    need_machines({"CI": "true"})
    with pytest.raises(pytest.skip.Exception, match="EOS_NO_MACHINES"):
        need_machines({LEAVE_OUT: "1"})
