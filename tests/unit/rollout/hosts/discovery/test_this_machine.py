"""What is found out about a worker of this machine, with a small listener in a worker's place."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.cli.cluster.discover import _write_new
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.rollout.hosts.discovery.this_machine import (
    LocalWorker,
    find_local_worker,
    is_same_port,
    secret_words,
)
from tests.waiting import until

LISTENER = """
import socket, sys
log = open("connect.log", "a"); gc = open("worker-gc.log", "a"); read = open("other.log")
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
server.accept()
"""


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a listener by a script, or without one, and waits until it listens."""
    (tmp_path / "listener.py").write_text(LISTENER)
    (tmp_path / "other.log").touch()
    (tmp_path / "worker.properties").write_text("group.id=g\n")
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, script: str | None = None, supervised: bool = False) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-u", str(tmp_path / "listener.py"), str(port), *words, "worker.properties"]
        if script is not None:
            (tmp_path / "start.sh").write_text(script.format(command=" ".join(command)))
            command = ["/bin/sh", "start.sh"]
        if supervised:
            command = [sys.executable, "-c", f"import subprocess; subprocess.run({command!r})"]
        with (tmp_path / "out").open("wb") as out:
            started.append(subprocess.Popen(command, cwd=tmp_path, stdout=out))
        until(lambda: (tmp_path / "out").read_text() == "listening\n", "the listener", seconds=60)
        return started[0]

    yield run
    for process in started:
        with socket.create_connection(("127.0.0.1", port)):  # ends the listener, and with it the script
            process.wait(180)


def found(port: int) -> LocalWorker:
    worker = find_local_worker(f"http://127.0.0.1:{port}", "g")
    assert worker is not None
    return worker


def test_the_script_that_waits_for_it_is_the_start_command(start: Any, port: int, tmp_path: Path) -> None:
    process = start(script="{command} &\necho $! > worker.pid\nwait\n")
    worker = found(port)
    assert (worker.start, worker.start_pid) == (("/bin/sh", "start.sh"), process.pid)
    assert worker.pid == int((tmp_path / "worker.pid").read_text())
    assert (worker.cwd, worker.config) == (tmp_path, tmp_path / "worker.properties")
    assert worker.pid_file == tmp_path / "worker.pid"
    assert worker.remarks == ()


def test_the_log_is_a_file_that_it_writes_and_no_garbage_collectors(start: Any, port: int, tmp_path: Path) -> None:
    start()
    assert found(port).log == tmp_path / "connect.log"


def test_without_a_script_its_own_command_line_is_proposed_and_that_is_said(
    start: Any, port: int, tmp_path: Path
) -> None:
    start()
    worker = found(port)
    assert worker.start[-1] == "worker.properties"
    assert worker.pid_file is None
    assert [remark for remark in worker.remarks if remark.startswith("no script waits for it")]


def test_what_would_start_it_again_is_said(start: Any, port: int) -> None:
    process = start(supervised=True)
    (remark,) = [remark for remark in found(port).remarks if remark.startswith("eos would refuse to restart it")]
    assert f"was started by pid {process.pid}" in remark


def test_a_command_line_with_a_secret_is_left_out_and_that_is_said(start: Any, port: int) -> None:
    start("-Dssl.keystore.password=CANARY")
    worker = found(port)
    assert worker.start == ()
    assert [remark for remark in worker.remarks if "(-Dssl.keystore.password)" in remark]
    assert "CANARY" not in repr(worker)


def test_a_listener_of_another_address_of_this_machine_is_another(start: Any, port: int) -> None:
    start()
    assert find_local_worker(f"http://127.0.0.2:{port}", "g") is None
    assert find_local_worker(f"http://127.0.0.1:{port}", "another-group") is None


def test_a_proxy_at_the_advertised_port_is_not_taken_for_the_worker_behind_it(
    start: Any, port: int, tmp_path: Path
) -> None:
    proxy = start(script="exec {command} proxy.conf\n")  # names worker.properties before, so that its file is none
    (tmp_path / "proxy.conf").touch()
    config = tmp_path / "behind.properties"
    config.write_text(f"group.id=behind\nlisteners=http://127.0.0.1:1\nrest.advertised.port={port}\n")
    url = f"http://127.0.0.1:{port}"
    assert find_local_worker(url, "behind") is None
    words = [sys.executable, "-c", "import sys; sys.stdin.read()", "org.apache.kafka.connect.cli.ConnectDistributed"]
    with subprocess.Popen([*words, str(config)], stdin=subprocess.PIPE, cwd=tmp_path) as worker:
        found = find_local_worker(url, "behind")
        assert found is not None
        assert (found.pid, found.config, found.start[-1]) == (worker.pid, config, str(config))
        assert f"port {port} is held by process {proxy.pid} (" in found.remarks[0]
        worker.communicate(timeout=180)


@pytest.mark.parametrize(
    ("words", "secrets"),
    [
        (("java", "-cp", "/x/oauth-token.jar:/y", "-Xmx1g", "/etc/worker.properties"), ()),
        (("java", "-Djavax.net.ssl.trustStorePassword=CANARY"), ("-Djavax.net.ssl.trustStorePassword",)),
        (("run", "--password", "CANARY"), ("--password",)),
        (("run", "DB_PASSWORD=CANARY"), ("DB_PASSWORD",)),
        (("run", "http://user:CANARY@host/"), ("an address with a password",)),
        (("/opt/secrets/start.sh", "worker.properties"), ()),
    ],
)
def test_secrets_on_a_command_line_are_named_without_their_values(
    words: tuple[str, ...], secrets: tuple[str, ...]
) -> None:
    assert secret_words(words) == secrets


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("http://127.0.0.1:8083", True),
        ("http://127.0.0.1:8083/", True),
        ("https://127.0.0.1:8083", True),
        ("http://127.0.0.1:8084", False),
        ("http://127.0.0.2:8083", False),
        ("http://no-such-host.invalid:8083", False),
    ],
)
def test_two_names_of_one_port_are_the_same(other: str, same: bool) -> None:
    assert is_same_port("http://localhost:8083", other) is same


def test_a_description_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "eos.yaml"
    _write_new(path, "group_id: a\n")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigurationError, match="exists already"):
        _write_new(path, "group_id: b\n")
    assert path.read_text() == "group_id: a\n"
