"""A cluster that the lab has not made: own start scripts, own folders, a supervisor loop, another user.

Only its broker is the lab's. Its workers are started by a shell script that stays as their wrapper.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import RolloutState
from airflow_eos_provider.lab.jars.java import SHORT_LIVED
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers import part
from airflow_eos_provider.lab.servers.connect_worker import MAIN_CLASS as WORKER
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from tests.lab.class_data import class_data_archive
from tests.seen import pid_of
from tests.waiting import wait_for

#: ``eos`` that kills itself at one moment of a roll, and has a gate of a second.
EOS = Path(__file__).parents[1] / "faults" / "eos_at_a_moment.py"

REFUSED = 3

START = """#!/bin/bash
# Starts a Connect worker, and waits for it.
java -Xmx300m $JVM_OPTIONS -Dlog4j2.configurationFile="$LOGGING" \\
  -cp "$CLASSES" org.apache.kafka.connect.cli.ConnectDistributed "$1"
"""

SUPERVISE = """#!/bin/bash
# Starts a command again whenever it ends.
while true; do
  "${@:2}" >> "$LOG" 2>&1 &
  echo $! > "$1"
  wait
  sleep 0.2
done
"""

PROPERTIES = """\
bootstrap.servers={bootstrap}
group.id=orders
exactly.once.source.support=disabled
listeners=http://127.0.0.1:{port}
rest.advertised.host.name=127.0.0.1
rest.advertised.port={port}
scheduled.rebalance.max.delay.ms=200
session.timeout.ms=6000
heartbeat.interval.ms=1000
config.storage.topic=orders-c
offset.storage.topic=orders-o
offset.storage.partitions=2
status.storage.topic=orders-s
status.storage.partitions=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
plugin.discovery=service_load
"""


class Foreign:
    """Two workers in a folder of their own."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.folder = folder
        self.supervised: set[int] = set()
        for name in ("bin", "etc", "log", "run"):
            (folder / name).mkdir()
        self.start_script = self._script("connect.sh", START)
        self.loop = self._script("supervise.sh", SUPERVISE)
        shutil.copy(Path(part.__file__).with_name("log4j2.xml"), folder / "etc" / "log4j2.xml")
        archive = class_data_archive(WORKER, lab.broker.class_path)
        self.variables = {
            "CLASSES": lab.broker.class_path,
            "JVM_OPTIONS": " ".join([*SHORT_LIVED, "-Xshare:auto", f"-XX:SharedArchiveFile={archive}"]),
            "LOGGING": (folder / "etc" / "log4j2.xml").as_uri(),
            "DB_PASSWORD": "canary-of-the-environment",
        }
        workers = []
        for number, port in enumerate(free_ports(2), start=1):
            config = folder / "etc" / f"c{number}.properties"
            config.write_text(PROPERTIES.format(bootstrap=lab.bootstrap_servers, port=port), encoding="ascii")
            workers.append(
                {
                    "url": f"http://127.0.0.1:{port}",
                    "config": str(config),
                    "log": str(folder / "log" / f"c{number}.log"),
                    "pid_file": str(folder / "run" / f"c{number}.pid"),
                    "start": [str(self.start_script), str(config)],
                    "cwd": str(folder),
                    "env": self.variables,
                }
            )
        self.cluster_file = folder / "eos.yaml"
        description = {"bootstrap_servers": lab.bootstrap_servers, "group_id": "orders", "workers": workers}
        self.cluster_file.write_text(yaml.safe_dump(description), encoding="utf-8")
        self.cluster = ConnectCluster.from_file(self.cluster_file)

    def _script(self, name: str, text: str) -> Path:
        path = self.folder / "bin" / name
        path.write_text(text, encoding="ascii")
        path.chmod(0o755)
        return path

    def start(self, number: int) -> None:
        worker = self.cluster.workers[number]
        assert worker.log is not None
        assert worker.pid_file is not None
        with worker.log.open("ab") as log:
            process = subprocess.Popen(
                worker.start,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], **self.variables},
                start_new_session=True,
            )
        worker.pid_file.write_text(f"{process.pid}\n", encoding="ascii")

    def supervise(self, number: int) -> None:
        """The worker under a loop in a shell, as the user nobody where that is allowed."""
        worker = self.cluster.workers[number]
        assert worker.log is not None
        assert worker.pid_file is not None
        worker.log.chmod(0o666)
        worker.pid_file.chmod(0o666)
        as_nobody = []
        if os.geteuid() == 0:  # the jars may lie in root's own home, so nobody gets the right to read there
            capability = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
            as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *capability]
        subprocess.Popen(
            [*as_nobody, str(self.loop), str(worker.pid_file), *worker.start],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LOG": str(worker.log), **self.variables},
            start_new_session=True,
        )
        self.supervised.add(number)

    def ensure_unsupervised(self) -> None:
        for number in sorted(self.supervised):
            self.end(f"c{number + 1}.properties")
            self.start(number)
        if self.supervised:
            self.wait_until_whole()
        self.supervised.clear()

    def end(self, *names: str) -> None:
        """End every process that names this folder, or one of these files in it; the loop before what it starts."""
        found = []
        for process in psutil.process_iter():
            try:
                words = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if str(self.folder) in words and all(name in words for name in names):
                found.append((str(self.loop) not in words, process))
        for _, process in sorted(found, key=lambda pair: pair[0]):
            process.kill()
        psutil.wait_procs([process for _, process in found], timeout=180)

    def eos(self, moment: str, *arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, str(EOS), moment, "SIGKILL", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "300", "EOS_CLUSTER": str(self.cluster_file)},
            timeout=300,
            check=False,
        )
        assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{done.stdout}\n{done.stderr}"
        assert "canary" not in done.stdout + done.stderr
        return done

    def plan(self, target: Mode) -> dict[str, object]:
        plan: dict[str, object] = json.loads(self.eos("never", "plan", "--to", target, "--json").stdout)
        return plan

    def look(self) -> Observation:
        return Observer(self.cluster).observe()

    def pids(self) -> list[int]:
        return [pid_of(w.facts) for w in self.look().workers]

    def modes(self) -> set[Mode | None]:
        return {worker.mode.verdict.mode for worker in self.look().workers}

    def other_mode(self) -> Mode:
        """The one of two that the workers do not run."""
        return Mode.PREPARING if self.modes() == {Mode.DISABLED} else Mode.DISABLED

    def starts(self) -> list[int]:
        return [w.log.read_text(errors="replace").count("worker initializing") for w in self.cluster.workers if w.log]

    def wait_until_whole(self) -> None:
        wait_for("both workers are healthy", lambda: all(map(is_healthy, (w.url for w in self.cluster.workers))))

        def is_stable() -> bool:
            observation = self.look()
            return bool(observation.group and observation.group.is_stable and len(observation.members) == 2)

        wait_for("both workers are members", is_stable)


def is_healthy(url: str) -> bool:
    try:
        with ConnectRest(url, retry_seconds=0.0) as rest:
            return rest.health().status == "healthy"
    except EosError:
        return False


@pytest.fixture(scope="module")
def cluster(lab_factory: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    lab = lab_factory(LabOptions(name="broker", workers=0))
    foreign = Foreign(lab, tmp_path_factory.mktemp("foreign"))
    try:
        foreign.start(0)
        foreign.start(1)
        foreign.wait_until_whole()
        yield foreign
    finally:
        foreign.end()


@pytest.fixture
def foreign(cluster: Foreign) -> Foreign:
    """The cluster with both workers as their start script alone has started them."""
    cluster.ensure_unsupervised()
    return cluster


def test_a_worker_that_a_roll_left_down_is_named_by_the_next_plan_and_started(foreign: Foreign) -> None:
    """The machine went down, or somebody has killed the helper as well."""
    target = foreign.other_mode()
    first = str(foreign.plan(target)["hash"])
    foreign.eos("cut off", "apply", "--plan", first, expect=-signal.SIGKILL)
    down = [worker.worker_id for worker in foreign.look().workers if not worker.is_running]
    assert len(down) == 1

    plan = foreign.plan(target)
    rollout = read_journal(foreign.cluster.kafka, "orders").last_of(first)
    assert rollout is not None
    workers: list[dict[str, object]] = plan["workers"]  # type: ignore[assignment]
    assert {w["worker_id"]: (w["kind"], w["left_by"]) for w in workers}[down[0]] == ("START", rollout.rollout_id)
    shown = Plan.from_dict(plan).markdown()
    assert f"stopped by rollout {rollout.rollout_id}" in shown
    assert str(foreign.start_script) in shown
    assert "canary" not in shown

    foreign.eos("never", "apply", "--plan", str(plan["hash"]))
    assert foreign.modes() == {target}
    last = read_journal(foreign.cluster.kafka, "orders").last_of(str(plan["hash"]))
    assert last is not None
    assert last.state is RolloutState.DONE


def test_a_worker_under_a_supervisor_and_of_another_user_is_refused_before_anything_is_stopped(
    foreign: Foreign,
) -> None:
    foreign.end("c2.properties")
    foreign.supervise(1)
    foreign.wait_until_whole()
    pids, starts = foreign.pids(), foreign.starts()

    refused = foreign.eos("never", "plan", "--to", foreign.other_mode(), expect=REFUSED)

    reported = " ".join((refused.stdout + refused.stderr).split())
    assert "which still runs and may start it again" in reported
    if os.geteuid() == 0:
        assert "runs as nobody (uid 65534) and this is root (uid 0)" in reported
    assert (foreign.pids(), foreign.starts()) == (pids, starts)
