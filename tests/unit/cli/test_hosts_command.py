"""``eos hosts check`` and ``sudoers``: what they print, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from airflow_eos_provider.cli.app import app
from airflow_eos_provider.cli.cluster import hosts
from airflow_eos_provider.cli.completion import complete_worker
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.rollout.answer import Check, failed, inconclusive, passed
from airflow_eos_provider.rollout.hosts.readiness import Readiness
from tests.waiting import until

LISTENER = """
import datetime, socket, sys
now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
print(f"[{now}] INFO DistributedConfig values: \\n\\texactly.once.source.support = preparing\\n", flush=True)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
sys.stdin.read()
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["hosts", *words])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """A worker of this machine that lacks nothing, as far as a roll's hosts look."""
    port = free_ports(1)[0]
    (tmp_path / "listener.py").write_text(LISTENER)
    (tmp_path / "worker.properties").write_text("group.id=g\nexactly.once.source.support=preparing\n")
    start = [sys.executable, "-u", str(tmp_path / "listener.py"), str(port), str(tmp_path / "worker.properties")]
    log = tmp_path / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(start, cwd=tmp_path, stdin=subprocess.PIPE, stdout=out, start_new_session=True)
    until(lambda: "listening" in log.read_text(), "the listener", seconds=60)
    (tmp_path / "worker.pid").write_text(f"{process.pid}\n")
    worker = {
        "url": f"http://127.0.0.1:{port}",
        "config": "worker.properties",
        "log": "worker.log",
        "pid_file": "worker.pid",
        "start": start,
    }
    write(tmp_path, [worker])
    yield tmp_path / "eos.yaml"
    process.communicate(timeout=180)


def write(folder: Path, workers: list[dict[str, Any]]) -> Path:
    file = folder / "eos.yaml"
    file.write_text(yaml.safe_dump({"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "workers": workers}))
    return file


def test_a_worker_of_this_machine_that_lacks_nothing_passes(cluster: Path) -> None:
    ended = run("check", "--cluster", str(cluster), "--json")
    (worker,) = json.loads(ended.stdout)["workers"]
    assert {check["subject"]: check["verdict"] for check in worker["checks"]} == dict.fromkeys(
        ("machine", "tools", "clock", "file", "service", "log"), "pass"
    ), worker
    assert ended.exit_code == 0
    assert (worker["machine"], worker["kind"]) == (None, "start command")


def test_what_failed_stands_with_what_to_do_and_ends_with_1(cluster: Path) -> None:
    (cluster.parent / "worker.properties").unlink()
    ended = run("check", "--cluster", str(cluster))
    assert ended.exit_code == 1
    assert "fail" in ended.stdout
    assert "What to do: " in ended.stdout
    assert "0 of 1 worker ready. A roll would be refused." in ended.stdout


def test_one_worker_is_checked_alone_and_an_unknown_one_is_refused(cluster: Path) -> None:
    ended = run("check", "--cluster", str(cluster), "--worker", "nobody:1")
    assert isinstance(ended.exception, ConfigurationError)
    assert "no worker nobody:1" in str(ended.exception)


def test_a_machine_that_is_not_reached_ends_with_5_alone_and_beside_one_that_is(cluster: Path, tmp_path: Path) -> None:
    gone = {
        "url": "http://127.0.0.9:8083",
        "machine": {"ssh": "127.0.0.1", "user": "eos", "port": free_ports(1)[0], "connect_seconds": 3},
        "service": {"systemd": "kafka-connect"},
        "config": "/etc/kafka/connect.properties",
        "log": {"journal": True},
    }
    here = yaml.safe_load(cluster.read_text())["workers"][0]
    write(tmp_path, [gone, here])
    assert run("check", "--cluster", str(cluster)).exit_code == 5
    write(tmp_path, [gone])
    ended = run("check", "--cluster", str(cluster), "-o", "name")
    assert (ended.exit_code, ended.stdout) == (5, "127.0.0.9:8083\n")


def test_without_sudo_in_the_description_no_rights_are_printed(cluster: Path) -> None:
    ended = run("sudoers", "--cluster", str(cluster))
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "no rights are needed" in ended.stderr


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([[passed("a", "")], [passed("a", "")]], 0),
        ([[passed("a", "")], [failed("a", "")]], 1),
        ([[inconclusive("a", "")], [failed("a", "")]], 1),
        ([[inconclusive("a", "")], [passed("a", "")]], 5),
    ],
)
def test_the_exit_code_is_that_of_the_worst_answer(
    checks: list[list[Check]], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Readiness(f"w:{n}", "", "", tuple(each)) for n, each in enumerate(checks)]
    monkeypatch.setattr(hosts, "load_cluster", lambda _: SimpleNamespace(workers=()))
    monkeypatch.setattr(hosts, "check_all", lambda *_: found)
    assert run("check").exit_code == code


def test_the_shell_completes_workers_from_the_file_alone(tmp_path: Path) -> None:
    file = write(tmp_path, [{"url": "http://connect-1:8083"}, {"url": "http://kafka:8083"}])
    context: Any = SimpleNamespace(params={"cluster": file})
    assert complete_worker(context, "con") == [("connect-1:8083", "")]
