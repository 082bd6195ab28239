"""``eos discover --ssh``: from the addresses of a group's members to entries of a cluster file, over a real sshd."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_eos_provider.cli.cluster.discover import _write_new
from airflow_eos_provider.cli.cluster.discover_ssh import (
    SshOptions,
    alias_of,
    is_elsewhere,
    look_over_ssh,
    with_defaults,
)
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.cluster.placement import MachineDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from tests.sshd import Sshd, running_sshd
from tests.waiting import until

CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"

LISTENER = """
import socket, sys
log = open("connect.log", "a")
print("INFO DistributedConfig values:", file=log, flush=True)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.read()
"""

CONFIG = """\
Host bastion
    HostName 10.0.0.1
Host *.example
    User deploy
Host connect-1 c1
    Port 2222
    HostName 127.0.0.2
Host other
    HostName=127.0.0.3
Match host 127.0.0.9
    HostName 127.0.0.4
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[int]:
    """A listener that looks like a worker; its port."""
    port = free_ports(1)[0]
    (tmp_path / "listener.py").write_text(LISTENER)
    (tmp_path / "worker.properties").write_text(f"group.id=orders\nlisteners=http://:{port}\n")
    out = tmp_path / "out"
    words = [sys.executable, "-u", "listener.py", str(port), CLASS, "worker.properties"]
    with out.open("wb") as file:
        process = subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=file)
    until(lambda: out.read_text() == "listening\n", "the listener", seconds=60)
    yield port
    process.communicate(timeout=180)


def reaching(sshd: Sshd) -> Callable[[MachineDescription], Machine]:
    """Machines by their names: all but ``gone`` are the sshd's."""

    def reach(description: MachineDescription) -> Machine:
        own = sshd.description()
        return machine_of(own if description.ssh != "gone" else MachineDescription("127.0.0.1", own.login))

    return reach


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.2", "connect-1"),
        ("127.0.0.3", "other"),
        ("connect-1", "connect-1"),
        ("c1", "c1"),
        ("127.0.0.4", "127.0.0.4"),
        ("kafka.example", "kafka.example"),
    ],
)
def test_a_host_goes_by_the_name_that_the_ssh_configuration_gives_it(host: str, name: str) -> None:
    assert alias_of(CONFIG, host) == name


def test_this_machine_is_not_logged_in_to() -> None:
    urls = [
        "http://localhost:1",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://127.0.0.2:1",
        "https://connect-1:8083",
    ]
    assert [is_elsewhere(url) for url in urls] == [False, False, False, True, True]


def test_a_worker_is_found_over_ssh_and_its_entry_is_taken_as_a_description(
    sshd: Sshd, worker: int, tmp_path: Path
) -> None:
    url = f"http://connect-1:{worker}"
    looked = look_over_ssh([url], "orders", SshOptions(user="eos"), reaching(sshd))[url]
    assert looked.entry["machine"] == {"ssh": "connect-1", "user": "eos"}
    assert looked.entry["config"] == f"{tmp_path}/worker.properties"
    assert looked.entry["log"] == f"{tmp_path}/connect.log"
    assert looked.entry["service"]["cwd"] == str(tmp_path)
    assert looked.remarks[0].endswith(f"on connect-1, run by {sshd.user}; seen as {sshd.user}.")
    described = cluster([looked.entry]).workers[0]
    assert str(described.machine) == "connect-1"
    assert described.start[-1] == "worker.properties"


def test_a_machine_that_is_not_reached_leaves_the_others_and_says_why(sshd: Sshd, worker: int) -> None:
    here, gone = f"http://connect-1:{worker}", f"http://gone:{worker}"
    looked = look_over_ssh([gone, here], "orders", SshOptions(), reaching(sshd))
    assert "config" in looked[here].entry
    assert looked[gone].entry == {"url": gone}
    assert "gone was not looked at" in looked[gone].remarks[0]


def test_each_machine_is_looked_at_once(sshd: Sshd, worker: int) -> None:
    asked: list[str] = []

    def reach(description: MachineDescription) -> Machine:
        asked.append(description.ssh)
        return reaching(sshd)(description)

    urls = [f"http://connect-1:{worker}", "http://connect-1:1", "http://connect-2:1"]
    looked = look_over_ssh(urls, "orders", SshOptions(), reach)
    assert sorted(asked) == ["connect-1", "connect-2"]
    assert ["config" in looked[url].entry for url in urls] == [True, False, False]


def cluster(entries: Sequence[Any], defaults: Any = None) -> ConnectCluster:
    document = {"bootstrap_servers": "b:1", "group_id": "g", "workers": list(entries)}
    document |= {"defaults": defaults} if defaults else {}
    return ConnectCluster.from_mapping(yaml.safe_load(yaml.safe_dump(document)), base=Path("/"))


def test_defaults_mean_the_same_as_entries_that_say_all() -> None:
    entries = [
        {
            "url": f"http://connect-{number}:8083",
            "machine": {"ssh": f"connect-{number}", "user": "eos", "sudo": ["file", "service"]},
            "service": {"systemd": "kafka-connect"},
            "config": "/etc/kafka/connect.properties",
            "log": {"journal": True},
        }
        for number in (1, 2)
    ]
    defaults, rest = with_defaults(entries)
    assert defaults == {
        "machine": {"user": "eos", "sudo": ["file", "service"]},
        "service": {"systemd": "kafka-connect"},
        "config": "/etc/kafka/connect.properties",
        "log": {"journal": True},
    }
    assert rest[0] == {"url": "http://connect-1:8083", "machine": {"ssh": "connect-1"}}
    assert cluster(rest, defaults) == cluster(entries)


def test_there_are_no_defaults_beside_a_worker_of_this_machine() -> None:
    entries = [
        {"url": "http://connect-1:8083", "machine": {"ssh": "connect-1"}, "config": "/c"},
        {"url": "http://localhost:8083", "config": "/c"},
    ]
    assert with_defaults(entries) == ({}, entries)


def test_a_description_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "eos.yaml"
    _write_new(path, "group_id: a\n")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigurationError, match="exists already"):
        _write_new(path, "group_id: b\n")
    assert path.read_text() == "group_id: a\n"
