"""A cluster of mixed kinds: a process of this machine, a program of supervisord, and a worker of a machine over SSH."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.processes import from_pid_file
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.families import stop_family
from tests.sshd import Sshd, running_sshd
from tests.unit.rollout.hosts.service.supervisors import end_with_children, program
from tests.waiting import until

SUPERVISORD = """
[unix_http_server]
file={folder}/s.sock
[supervisord]
logfile={folder}/supervisord.log
pidfile={folder}/supervisord.pid
nodaemon=true
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/s.sock
[program:connect]
command={command}
directory={cwd}
environment={environment}
stopwaitsecs=60
stdout_logfile={log}
stdout_logfile_maxbytes=0
redirect_stderr=true
"""


@contextlib.contextmanager
def supervised(worker: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Hand a worker over to a supervisord; how it is described then."""
    process = from_pid_file(Path(worker["pid_file"]))
    assert process is not None
    stop_family(process, grace_seconds=60)
    config = folder / "supervisord.conf"
    variables = ",".join(f'{name}="{value.replace("%", "%%")}"' for name, value in worker.get("env", {}).items())
    config.write_text(
        SUPERVISORD.format(
            folder=folder,
            command=shlex.join(worker["start"]).replace("%", "%%"),
            cwd=worker.get("cwd", "/"),
            environment=variables,
            log=worker["log"],
        )
    )
    supervisor = subprocess.Popen([program("supervisord"), "-c", str(config)], stdout=subprocess.DEVNULL)
    ask = [program("supervisorctl"), "-c", str(config)]
    service = {"command": {"restart": [*ask, "restart", "connect"], "status": [*ask, "pid", "connect"]}}
    try:
        yield {"url": worker["url"], "config": worker["config"], "log": worker["log"], "service": service}
    finally:
        end_with_children(supervisor.pid)
        supervisor.wait()


def over_ssh(worker: dict[str, Any], sshd: Sshd) -> dict[str, Any]:
    """The same worker, as one of another machine."""
    machine = {"ssh": sshd.address, "user": sshd.user, "port": sshd.port, "key_file": str(sshd.user_key)}
    return {
        **worker,
        "machine": {**machine, "ssh_config": str(sshd.ssh_config), "known_hosts": str(sshd.known_hosts)},
    }


def test_a_cluster_of_a_process_a_program_and_a_worker_over_ssh_is_rolled(
    lab_factory: Callable[[LabOptions], Lab], tmp_path: Path, eos_of: Callable[[Lab, Path], Any]
) -> None:
    options = LabOptions(name="mixed", workers=3, mode=Mode.DISABLED, rebalance_delay_ms=500, session_timeout_ms=6000)
    lab = lab_factory(options)
    document = yaml.safe_load(lab.cluster_file.read_text(encoding="utf-8"))
    first, second, third = document["workers"]
    state = tmp_path / "state"
    with (
        running_sshd(tmp_path / "sshd", options={"SetEnv": f"XDG_STATE_HOME={state}"}) as sshd,
        supervised(second, tmp_path) as program_of_supervisord,
    ):
        document["workers"] = [first, program_of_supervisord, over_ssh(third, sshd)]
        file = tmp_path / "eos.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        cluster = ConnectCluster.from_file(file)

        def modes() -> list[Mode | None]:
            with Observer(cluster) as observer:
                return [worker.mode.verdict.mode for worker in observer.observe().workers]

        def is_whole() -> bool:
            with Observer(cluster) as observer:
                seen = observer.observe()
            are_there = all(worker.is_healthy and worker.worker_id in seen.members for worker in seen.workers)
            return are_there and [worker.mode.verdict.mode for worker in seen.workers] == [Mode.DISABLED] * 3

        until(is_whole, "the group of three", seconds=180, pause=1.0)
        eos = eos_of(lab, tmp_path)
        described = ("--cluster", str(file))
        plan = eos.run("plan", "--to", "preparing", "--json", *described)
        eos.run("apply", "--plan", yaml.safe_load(plan.stdout)["hash"], *described)
        assert modes() == [Mode.PREPARING] * 3
        assert not [*state.rglob("*.restart"), *(Path.home() / ".local/state").rglob("*mixed*.restart")]
