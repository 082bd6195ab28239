"""Where a worker lives, as it is written down: every form means one thing, and what is wrong is named by its key."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_eos_provider.connect.cluster.description import ConnectCluster, WorkerDescription
from airflow_eos_provider.connect.cluster.placement import (
    MachineDescription,
    OwnCommands,
    SshConnection,
    SshLogin,
    SystemdUnit,
)
from airflow_eos_provider.connect.topics.internal_topics import read_worker_files
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.redaction import redact

URL = "https://connect-1:8083"
BASE = Path("/base")


def cluster(*workers: Any, defaults: Any = None, **given: Any) -> ConnectCluster:
    mapping = {"bootstrap_servers": "b:1", "group_id": "g", "workers": list(workers)}
    return ConnectCluster.from_mapping(
        {**mapping, **({} if defaults is None else {"defaults": defaults})}, **{"base": BASE, **given}
    )


def worker(defaults: Any = None, **entry: Any) -> WorkerDescription:
    (only,) = cluster({"url": URL, **entry}, defaults=defaults).workers
    return only


def refused(defaults: Any = None, **entry: Any) -> str:
    with pytest.raises(ConfigurationError) as error:
        worker(defaults, **entry)
    return str(error.value)


def test_thirty_workers_are_described_by_their_addresses_and_one_default() -> None:
    text = """
    bootstrap_servers: b:1
    group_id: g
    defaults:
      machine: {user: eos, sudo: [service, file]}
      service: {systemd: kafka-connect}
      config: /etc/kafka/connect.properties
      log: {journal: true}
    workers:
      - url: https://connect-1:8083
      - url: https://connect-2:8083
        machine: {user: admin, port: 2222}
      - url: https://[::1]:8083
        log: /var/log/kafka/connect.log
    """
    first, second, third = ConnectCluster.from_mapping(yaml.safe_load(text), base=BASE).workers
    assert first == WorkerDescription(
        url="https://connect-1:8083",
        config=Path("/etc/kafka/connect.properties"),
        machine=MachineDescription("connect-1", SshLogin(user="eos"), frozenset({"file", "service"})),
        service=SystemdUnit("kafka-connect.service", journal=True),
    )
    assert second.machine == MachineDescription(
        "connect-2", SshLogin(user="admin", port=2222), frozenset({"file", "service"})
    )
    assert third.machine is not None
    assert (third.machine.ssh, third.log) == ("::1", Path("/var/log/kafka/connect.log"))
    assert third.service == SystemdUnit("kafka-connect.service")


def test_a_machine_has_all_its_keys() -> None:
    machine = {
        "ssh": "jump-alias",
        "user": "eos",
        "port": 2222,
        "sudo": True,
        "key_file": "keys/eos",
        "ssh_config": "ssh_config",
        "known_hosts": "/etc/eos/known_hosts",
        "connect_seconds": 3,
    }
    assert worker(machine=machine).machine == MachineDescription(
        ssh="jump-alias",
        login=SshLogin(user="eos", port=2222, key_file=BASE / "keys/eos"),
        sudo=frozenset({"file", "service", "log"}),
        ssh_config=BASE / "ssh_config",
        known_hosts=Path("/etc/eos/known_hosts"),
        connect_seconds=3.0,
    )
    assert worker(machine="connect-9").machine == MachineDescription("connect-9")
    assert worker(machine={}).machine == MachineDescription("connect-1")
    assert worker(machine=None).machine is None


def test_a_worker_may_be_on_this_machine_in_spite_of_the_defaults(tmp_path: Path) -> None:
    defaults = {"machine": {"user": "eos", "conn_id": "login", "key_file": "k"}, "service": {"systemd": "kc"}}
    here = worker(defaults, machine={"ssh": False}, config="c.properties")
    assert (here.machine, here.config, here.is_elsewhere) == (None, BASE / "c.properties", False)
    with_sudo = worker(defaults, machine={"ssh": False, "sudo": ["service"]})
    assert with_sudo.machine == MachineDescription(ssh="", sudo=frozenset({"service"}))
    assert (with_sudo.is_elsewhere, str(with_sudo.machine)) == (False, "this machine")
    assert worker(machine={"ssh": False, "sudo": True}, start=["java"]).machine is None
    assert "port has no meaning" in refused(machine={"ssh": False, "port": 22})
    assert "by defaults.machine.ssh the worker is on this machine" in refused(
        {"machine": {"ssh": False}}, machine={"user": "eos"}
    )
    assert worker({"machine": {"ssh": False}}, machine="connect-7").machine == MachineDescription("connect-7")


def test_a_start_command_in_the_entry_and_in_a_service_mean_the_same() -> None:
    start = {"start": ["java", 1, True], "pid_file": "w.pid", "cwd": "/opt", "env": {"A": 1, "B": None, "C": False}}
    old = worker(config="w.properties", log="w.log", **start)
    assert old == worker(service=start, config="w.properties", log="w.log")
    assert (old.start, old.pid_file, old.cwd, old.service) == (
        ("java", "1", "true"),
        BASE / "w.pid",
        Path("/opt"),
        None,
    )
    assert old.env == {"A": "1", "B": "", "C": "false"}
    assert worker({"service": {"systemd": "kc"}}, start=["java"]).service is None
    assert worker({"service": {"start": ["java"]}}).start == ("java",)
    assert worker({"service": {"start": ["java"]}}, service={"systemd": "kc"}).start == ()


def test_a_worker_belongs_to_another_supervisor_by_its_commands() -> None:
    found = worker(service={"command": {"restart": ["sv", "restart", "kc"], "status": ["sv", "status", "kc"]}})
    assert found.service == OwnCommands(("sv", "restart", "kc"), ("sv", "status", "kc"))
    assert not found.is_url_only


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        ("kafka-connect", "kafka-connect.service"),
        ("kafka-connect@1", "kafka-connect@1.service"),
        ("kafka@10.0", "kafka@10.0.service"),
        ("a.service", "a.service"),
        (r"kc@x\x2dy", r"kc@x\x2dy.service"),
    ],
)
def test_a_unit_has_its_whole_name(written: str, unit: str) -> None:
    assert worker(service={"systemd": written}).service == SystemdUnit(unit)


@pytest.mark.parametrize(
    "name",
    ["", "-kc", "a b", "a\nb", "a/b", "kc*", "kc@", "kc@.service", ".service", "kc.socket", "@1", "é", "k" * 250, 7],
)
def test_what_is_no_name_of_a_service_unit_is_refused(name: Any) -> None:
    assert "workers[1].service.systemd is " in refused(service={"systemd": name})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"machine": True}, "workers[1].machine is true"),
        ({"machine": ["a"]}, "workers[1].machine is a list"),
        ({"machine": "  "}, "workers[1].machine is '  '"),
        ({"machine": {"host": "a"}}, "Unknown key host in workers[1].machine"),
        ({"machine": {"password": "c4n4ry"}}, "Unknown key password in workers[1].machine"),
        ({"machine": {"ssh": True}}, "workers[1].machine.ssh is true"),
        ({"machine": {"ssh": "eos@connect-1"}}, "the user goes into 'user'"),
        ({"machine": {"ssh": "ssh://connect-1"}}, "workers[1].machine.ssh is"),
        ({"machine": "-oProxyCommand=x"}, "does not begin with '-'"),
        ({"machine": "a b"}, "workers[1].machine.ssh is 'a b'"),
        ({"machine": {"user": "-x"}}, "workers[1].machine.user is '-x'"),
        ({"machine": {"user": ["a"]}}, "workers[1].machine.user is a list"),
        ({"machine": {"user": ""}}, "workers[1].machine.user is ''"),
        ({"machine": {"port": 0}}, "workers[1].machine.port is 0"),
        ({"machine": {"port": 65536}}, "workers[1].machine.port is 65536"),
        ({"machine": {"port": True}}, "workers[1].machine.port is true"),
        ({"machine": {"port": "22"}}, "workers[1].machine.port is '22'"),
        ({"machine": {"sudo": "service"}}, "a list of file, service, log"),
        ({"machine": {"sudo": ["all"]}}, "a list of file, service, log"),
        ({"machine": {"sudo": [["file"]]}}, "a list of file, service, log"),
        ({"machine": {"connect_seconds": 0}}, "workers[1].machine.connect_seconds is 0"),
        ({"machine": {"connect_seconds": float("nan")}}, "workers[1].machine.connect_seconds is nan"),
        ({"machine": {"connect_seconds": float("inf")}}, "workers[1].machine.connect_seconds is inf"),
        ({"machine": {"connect_seconds": "10"}}, "workers[1].machine.connect_seconds is '10'"),
        ({"machine": {"key_file": ["k"]}}, "workers[1].machine.key_file is a list"),
        ({"machine": {"key_file": "~no-such-user-here/k"}}, "no such user on this machine"),
        ({"machine": {"conn_id": "login"}}, "known in Airflow only"),
        ({"service": "kafka-connect"}, "workers[1].service is 'kafka-connect'"),
        ({"service": {}}, "workers[1].service is empty"),
        ({"service": {"systemd": None}}, "workers[1].service is empty"),
        ({"service": {"unit": "a"}}, "Unknown key unit in workers[1].service"),
        ({"service": {"systemd": "a", "start": ["b"]}}, "workers[1].service says systemd and start"),
        ({"service": {"command": {}, "systemd": "a"}}, "workers[1].service says command and systemd"),
        ({"service": {"command": ["a"]}}, "workers[1].service.command is a list"),
        ({"service": {"command": {"restart": ["a"]}}}, "workers[1].service.command.status is missing"),
        ({"service": {"command": {"status": ["a"]}}}, "workers[1].service.command.restart is missing"),
        ({"service": {"command": {"stop": ["a"]}}}, "Unknown key stop in workers[1].service.command"),
        ({"service": {"command": {"restart": "a b"}}}, "workers[1].service.command.restart is not a list of words"),
        ({"service": {"command": {"restart": ["a\nb"]}}}, "workers[1].service.command.restart has a word with a line"),
        ({"service": {"command": {"restart": ["-u", "a"]}}}, "workers[1].service.command.restart begins with '-u'"),
        ({"service": {"pid_file": "p"}}, "workers[1].service.start is missing"),
        ({"service": {"start": [" "]}}, "workers[1].service.start begins with ' '"),
        ({"service": {"start": ["a"]}, "pid_file": "p"}, "workers[1] says service and also pid_file"),
        ({"service": {"systemd": "a"}, "start": ["b"]}, "workers[1] says service and also start"),
        ({"host": "process"}, "Unknown key host in workers[1]"),
        ({"start": "java -jar"}, "workers[1].start is not a list of words"),
        ({"start": [["a"]]}, "workers[1].start is not a list of words"),
        ({"start": ["a", "b\0"]}, "workers[1].start has a word with a line end"),
        ({"start": ["a"], "env": ["A"]}, "workers[1].env is not a mapping"),
        ({"start": ["a"], "env": {"A": {"b": "c4n4ry"}}}, "workers[1].env.A is not text"),
        ({"start": ["a"], "env": {"A=B": "c"}}, "workers[1].env has the name 'A=B'"),
        ({"config": "a\nb"}, "workers[1].config has a line end in it"),
        ({"config": {"a": 1}}, "workers[1].config is a mapping"),
        ({"log": {"journal": False}}, "workers[1].log is a mapping"),
        ({"log": {"journal": True}}, "the worker is no systemd unit"),
        ({"log": {"journal": True}, "start": ["a"]}, "the worker is no systemd unit"),
        ({"kubernetes": {"pod": "a"}}, "workers[1] says kubernetes"),
        ({"service": {"strimzi": "a"}}, "workers[1].service says strimzi"),
        ({"url": "http://[::1"}, "workers[1].url does not name a REST address"),
        ({"url": "http://a:99999"}, "workers[1].url does not name a REST address"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(entry: dict[str, Any], said: str) -> None:
    message = refused(**entry)
    assert said in message
    assert "c4n4ry" not in message


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        ([], "defaults is a list"),
        ({"url": URL}, "Unknown key url in defaults"),
        ({"start": ["a"]}, "Unknown key start in defaults"),
        ({"machine": 7}, "defaults.machine is 7"),
        ({"machine": {"port": "x"}}, "defaults.machine.port is 'x'"),
        ({"service": {"systemd": "-a"}}, "defaults.service.systemd is '-a'"),
        ({"kubernetes": {}}, "defaults says kubernetes"),
        ({"log": {"journal": True}}, "the worker is no systemd unit"),
    ],
)
def test_what_is_wrong_in_the_defaults_is_named_there(defaults: Any, said: str) -> None:
    assert said in refused(defaults)


@pytest.mark.parametrize("key", ["config", "log", "pid_file", "cwd"])
@pytest.mark.parametrize("path", ["w/connect.x", "~/connect.x", "./x"])
def test_on_another_machine_paths_are_absolute(key: str, path: str) -> None:
    entry = {"start": ["java"], key: path}
    assert f"{key} is {path}, which has no meaning on another machine (connect-1)" in refused(machine={}, **entry)
    assert getattr(worker(machine={}, **{**entry, key: "/w/x"}), key) == Path("/w/x")


def test_a_variable_of_several_lines_stays_on_this_machine() -> None:
    service = {"start": ["java"], "env": {"A": "1\n2"}}
    assert worker(service=service).env == {"A": "1\n2"}
    assert "service.env.A has more than one line" in refused(machine={}, service=service)


def test_secrets_in_commands_are_known_as_such() -> None:
    command = {"restart": ["sv", "-Dpassword=c4n4ry-word"], "status": ["sv", "status"]}
    described = cluster({"url": URL, "service": {"command": command}})
    assert described.holds_secrets
    assert "c4n4ry-word" not in redact("it said c4n4ry-word there")


def test_an_ssh_connection_gives_the_login_and_what_is_written_stands_before_it() -> None:
    asked: list[str] = []
    login = SshLogin("ada", 2022, password="c4n4ry-pw", private_key="c4n4ry-key")

    def connections(conn_id: str) -> SshConnection:
        asked.append(conn_id)
        return SshConnection("of-connection", login, 4.0)

    def machine(defaults: Any = None, **entry: Any) -> MachineDescription | None:
        described = cluster({"url": URL, **entry}, defaults=defaults, ssh_connections=connections)
        return described.workers[0].machine

    assert machine(machine={"conn_id": "login"}) == MachineDescription("of-connection", login, connect_seconds=4.0)
    named = machine(machine={"conn_id": "login", "ssh": "c1", "user": "bob", "connect_seconds": 9})
    assert named == MachineDescription("c1", replace(login, user="bob"), connect_seconds=9.0)
    with_file = machine(machine={"conn_id": "login", "key_file": "k"})
    assert with_file is not None
    assert (with_file.login.key_file, with_file.login.private_key) == (BASE / "k", None)
    for_all = {"machine": {"conn_id": "login"}}
    assert machine(for_all) == MachineDescription("connect-1", login, connect_seconds=4.0)
    assert asked == ["login"] * 4
    assert machine(for_all, machine={"ssh": False}) is None
    assert asked == ["login"] * 4
    assert "c4n4ry" not in repr(named)


@pytest.mark.parametrize("key", ["key_file", "ssh_config", "known_hosts"])
def test_a_connection_does_not_choose_among_the_logins_of_this_machine(key: str) -> None:
    for defaults, machine in (({"machine": {key: "/x"}}, {}), ({}, {key: "/x"})):
        with pytest.raises(ConfigurationError, match=f"{key} names a file with a login of this machine"):
            cluster({"url": URL, "machine": machine}, defaults=defaults, base=None)


def test_a_file_of_another_machine_is_not_looked_for_on_this_one(tmp_path: Path) -> None:
    file = tmp_path / "connect.properties"
    file.write_text("group.id=of-this-machine\n")
    files = read_worker_files(cluster({"url": URL, "machine": "connect-1", "config": str(file)}))
    assert files.properties == {}
    assert "on connect-1" in files.unread["connect-1:8083"]


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 22, -1, 1.5, float("nan"), "", " ", "a", "-a", "~", "/a", "a\nb", "\0", "é", "http://h:1",
    "http://[", "kc@1", [], ["a"], [[]], [None], {}, {"journal": True}, {"ssh": "a"}, {"ssh": False}, {"start": ["a"]},
    {"systemd": "a"}, {"command": {"restart": ["a"], "status": ["b"]}}, {1: 2}, {None: None}, Path("/x"), object(),
)  # fmt: skip
KEYS: tuple[Any, ...] = (
    "url", "machine", "service", "config", "log", "start", "pid_file", "cwd", "env", "kubernetes", "ssh",
    "user", "port", "sudo", "key_file", "ssh_config", "known_hosts", "connect_seconds", "conn_id", "systemd",
    "command", "restart", "status", "A", 7, None,
)  # fmt: skip


def anything(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.random()
    if depth and kind < 0.3:
        return {chance.choice(KEYS): anything(chance, depth - 1) for _ in range(chance.randrange(4))}
    if depth and kind < 0.4:
        return [anything(chance, depth - 1) for _ in range(chance.randrange(3))]
    return chance.choice(VALUES)


@pytest.mark.parametrize("seed", range(8))
def test_any_mapping_is_a_description_or_refused_as_one(seed: int) -> None:
    chance = random.Random(seed)
    described = 0
    for _ in range(1500):
        entry = {"url": URL, **{key: anything(chance) for key in chance.sample(KEYS[1:9], chance.randrange(4))}}
        defaults = {key: anything(chance) for key in chance.sample(KEYS[1:5], chance.randrange(3))}
        top = {"workers": [entry] if chance.random() < 0.95 else anything(chance), "defaults": defaults}
        if chance.random() < 0.1:
            top[chance.choice(("bootstrap_servers", "client", "rest", "group_id", "other_kafka"))] = anything(chance)
        try:
            found = ConnectCluster.from_mapping({"bootstrap_servers": "b:1", "group_id": "g", **top}, base=BASE)
        except ConfigurationError:
            continue
        described += 1
        assert all(isinstance(each, WorkerDescription) for each in found.workers)
    assert described > 50
