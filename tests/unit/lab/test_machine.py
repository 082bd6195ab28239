"""The pure parts of a lab's machines: accounts, logins, the record."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from airflow_eos_provider.lab.record import LabRecord
from tests.lab.lab import TestLabOptions, TestLabRecord
from tests.lab.machine import Machine
from tests.lab.machine_login import MachineLogin, known_host
from tests.lab.machine_needs import LEAVE_OUT, need_machines
from tests.lab.machine_root import PASSWD, Layer, Root, accounts, with_accounts

PASSWORDS = (
    "root:x:0:0:root:/root:/bin/bash\nsshd:x:104:65534::/run/sshd:/usr/sbin/nologin\neos:x:2000:2000::/old:/bin/zsh\n"
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(folder=tmp_path, number=2, ssh_port=2222, token="t", bound=("/jars", "rw:/data"))


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


def test_a_test_without_its_machines_is_not_run_and_in_ci_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.lab.machine_needs.missing", lambda: ("Not installed: systemd.",))
    with pytest.raises(pytest.skip.Exception, match="not run: Not installed: systemd"):
        need_machines({})
    with pytest.raises(pytest.fail.Exception, match="not run: Not installed: systemd"):
        need_machines({"CI": "true"})
    with pytest.raises(pytest.skip.Exception, match="not run: EOS_NO_MACHINES"):
        need_machines({"CI": "true", LEAVE_OUT: "1"})
