"""A cluster of mixed kinds, in all three modes at once.

Kinds: processes of this machine, a program of supervisord, and a worker of a machine over SSH.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.local_processes import from_pid_file
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.families import stop_family
from tests.sshd import Sshd, running_sshd
from tests.unit.rollout.hosts.service.supervisors import end_with_children, start_supervisord
from tests.waiting import until

#: Exit code of ``eos``, see airflow_eos_provider/errors.py.
REFUSED = 3


@contextlib.contextmanager
def supervised(worker: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Hand a worker over to a supervisord; how it is described then."""
    process = from_pid_file(Path(worker["pid_file"]))
    assert process is not None
    stop_family(process, grace_seconds=60)
    variables = ",".join(f'{name}="{value.replace("%", "%%")}"' for name, value in worker.get("env", {}).items())
    settings = {"directory": worker.get("cwd", "/"), "environment": variables}
    supervisor, own = start_supervisord(folder, worker["start"], worker["log"], **settings)
    service = {"command": {"restart": [*own.restart], "status": [*own.status]}}
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


def test_a_cluster_of_processes_a_program_and_a_worker_over_ssh_is_rolled_from_three_modes(
    lab_factory: Callable[[LabOptions], Lab], tmp_path: Path, eos_of: Callable[[Lab, Path], Any]
) -> None:
    options = LabOptions(name="mixed", workers=3, mode=Mode.DISABLED, rebalance_delay_ms=500, session_timeout_ms=6000)
    lab = lab_factory(options)
    lab.add_worker(mode=Mode.PREPARING, wait=False)
    document = yaml.safe_load(lab.cluster_file.read_text(encoding="utf-8"))
    first, second, third, fourth = document["workers"]
    state, config = tmp_path / "state", Path(second["config"])
    config.write_bytes(set_property(config.read_bytes(), MODE_PROPERTY, Mode.ENABLED))
    with (
        running_sshd(tmp_path / "sshd", options={"SetEnv": f"XDG_STATE_HOME={state}"}) as sshd,
        supervised(second, tmp_path) as program_of_supervisord,
    ):
        document["workers"] = [first, program_of_supervisord, over_ssh(third, sshd), fourth]
        file = tmp_path / "eos.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        cluster = ConnectCluster.from_file(file)
        three = [Mode.DISABLED, Mode.ENABLED, Mode.DISABLED, Mode.PREPARING]

        def seen() -> Observation:
            with Observer(cluster) as observer:
                return observer.observe()

        def modes(observation: Observation) -> list[Mode | None]:
            return [worker.mode.verdict.mode for worker in observation.workers]

        def is_whole() -> bool:
            now = seen()
            are_there = all(worker.is_healthy and worker.worker_id in now.members for worker in now.workers)
            return are_there and modes(now) == three

        until(is_whole, "the group of four", seconds=180, pause=1.0)
        eos = eos_of(lab, tmp_path)
        described = ("--cluster", str(file))
        status = json.loads(eos.run("status", "--json", *described).stdout)
        assert [worker["mode"] for worker in status["workers"]] == three
        (found,) = [each for each in status["findings"] if each["subject"] == lab.group_id]
        assert "disabled and enabled workers share the group" in found["found"]
        assert "'eos plan --to preparing'" in found["remedy"]

        # Up, only by preparing; down at once.
        refusal = eos.run("plan", "--to", "enabled", *described, expect=REFUSED).stderr
        running_disabled = ", ".join(sorted(worker["url"].removeprefix("http://") for worker in (first, third)))
        assert f"{running_disabled} still run disabled" in refusal
        assert "roll to preparing first" in refusal
        eos.run("plan", "--to", "disabled", *described)
        before = lab.worker_process(3)
        plan = eos.run("plan", "--to", "preparing", "--json", *described)
        eos.run("apply", "--plan", json.loads(plan.stdout)["hash"], *described)
        assert modes(seen()) == [Mode.PREPARING] * 4
        assert lab.worker_process(3) == before, "a worker that needed nothing was restarted"
        assert not [*state.rglob("*.restart"), *(Path.home() / ".local/state").rglob("*mixed*.restart")]
