"""Machines of a lab: root, systemd, units, journal, logins by OpenSSH's own client, power, clocks, and their end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from airflow_eos_provider.connect.cluster.placement import SystemdUnit
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.lab.lab_processes import MARKER_PROPERTY
from airflow_eos_provider.lab.waiting import is_healthy
from airflow_eos_provider.rollout.hosts.choose import service_of
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.readiness import check_all, check_worker
from tests.lab.lab import TestLab, TestLabOptions, take_down
from tests.lab.machine import control_group
from tests.lab.machine_login import MachineLogin
from tests.waiting import until

pytestmark = pytest.mark.by_name  # every test over SSH stands on these machines

HOUR = 3600

Guard = Callable[[Path], None]


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., TestLab]) -> Iterator[TestLab]:
    """Two machines, of which the second has a clock that is an hour ahead; nothing is left of them at the end."""
    lab = lab_factory(TestLabOptions(name="machines", machines=2, clock_offsets={"connect-2": HOUR}))
    assert left_of(lab.root)
    yield lab
    lab.down()
    assert left_of(lab.root) == []
    assert not lab.root.exists()


def ssh(lab: TestLab, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command by OpenSSH's own client with the lab's configuration."""
    command = ["ssh", "-F", str(MachineLogin(lab.root).config), "-o", "BatchMode=yes", name, *words]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=180, check=False)


def left_of(folder: Path) -> list[str]:
    """What a lab has left on this machine: processes, mounts, control groups; found without the lab's own code."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if f"{MARKER_PROPERTY}=" in line and f":{folder}" in line and process.status() != psutil.STATUS_ZOMBIE:
            found.append(line)
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            text = mounts.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found += [f"{mounts}: {line}" for line in text.splitlines() if str(folder) in line]
    groups = control_group(folder, "")
    return found + [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{groups}*")]


def test_a_machine_has_a_root_processes_and_a_name_of_its_own(lab: TestLab) -> None:
    first, second = lab.machines
    assert [first.output(["hostname"]), second.output(["hostname"])] == ["connect-1", "connect-2"]
    assert first.output(["systemctl", "is-system-running"]) == "running"
    assert first.output(["readlink", "/proc/1/exe"]).endswith("/systemd")
    ids = {machine.output(["cat", "/proc/sys/kernel/random/boot_id"]) for machine in (first, second)}
    assert len(ids | {Path("/proc/sys/kernel/random/boot_id").read_text().strip()}) == 3
    first.run(["touch", "/tmp/only-there", "/etc/only-there", "/run/only-there"])
    assert not any(Path(folder, "only-there").exists() for folder in ("/tmp", "/etc", "/run"))
    assert second.run(["test", "-e", "/etc/only-there"], check=False).returncode == 1


def test_what_runs_there_changes_no_setting_of_the_kernel(lab: TestLab) -> None:
    same = 'found=$(cat "$1") && echo "$found" >"$1"'
    for setting in ("fs/file-max", "net/unix/max_dgram_qlen", "kernel/core_pattern"):
        refused = lab.machines[0].run(["sh", "-c", same, "sh", f"/proc/sys/{setting}"], check=False)
        assert b"Read-only file system" in refused.stderr


def test_openssh_logs_in_with_the_labs_files(lab: TestLab) -> None:
    for machine in lab.machines:
        assert ssh(lab, machine.name, "hostname; id -un").stdout.split() == [machine.name, "eos"]


def test_the_login_may_do_what_a_roll_needs_and_no_more(lab: TestLab) -> None:
    assert ssh(lab, "connect-1", "cat", str(lab.cluster().workers[0].config)).returncode == 1
    assert ssh(lab, "connect-1", "sudo", "-n", "systemctl", "reset-failed", "kafka-connect@1.service").returncode == 0
    for words in (["systemctl", "reset-failed", "ssh.service"], ["systemctl", "stop", "kafka-connect@1"], ["true"]):
        assert "a password is required" in ssh(lab, "connect-1", "sudo", "-n", *words).stderr
    checks = [check for each in check_all(lab.cluster().workers, check_worker) for check in each.checks]
    assert [check for check in checks if check.verdict is Verdict.FAIL] == []
    assert checks


def test_the_cluster_file_says_where_the_workers_are(lab: TestLab) -> None:
    workers = lab.cluster().workers
    assert [worker.url for worker in workers] == lab.connect_urls
    assert [worker.service for worker in workers] == [
        SystemdUnit(f"kafka-connect@{number}.service", journal=True) for number in (1, 2)
    ]
    assert [str(worker.machine) for worker in workers] == ["connect-1", "connect-2"]
    assert lab.machines[0].run(["stat", "-c", "%U %a", str(workers[0].config)]).stdout == b"kafka 640\n"


def test_status_shows_the_machines_and_their_workers(lab: TestLab) -> None:
    status = lab.status()
    assert status.healthy
    assert [process.name for process in status.processes] == ["broker", "connect-1", "connect-2", "w1", "w2"]
    assert status.strays == ()
    first = lab.machines[0]
    assert status.processes[1].pid == first.pid1
    assert status.processes[1].address == f"127.0.0.2:{first.ssh_port}"


def shown(lab: TestLab, name: str) -> str:
    return lab.machines[0].output(["systemctl", "show", "-P", name, "kafka-connect@1.service"])


def test_a_killed_worker_is_started_anew_by_systemd_and_a_stopped_one_stays_down(lab: TestLab) -> None:
    before = shown(lab, "InvocationID")
    process = lab.worker_process(0)
    assert process is not None
    process.stop(kill=True)
    until(lambda: shown(lab, "InvocationID") not in ("", before), "the unit's next start", seconds=60)
    assert int(shown(lab, "NRestarts")) >= 1
    lab.stop_worker(0, kill=True)
    assert (shown(lab, "MainPID"), lab.worker_process(0)) == ("0", None)
    lab.start_worker(0)
    assert is_healthy(lab.connect_urls[0])


def test_a_worker_writes_the_journal_which_who_logs_in_reads_by_sudo(lab: TestLab) -> None:
    worker = lab.cluster().workers[0]
    assert worker.machine is not None
    words = service_of(machine_of(worker.machine), worker).log_commands[0].words
    assert "DistributedConfig values:" in ssh(lab, "connect-1", "sudo", "-n", *words).stdout
    assert "DistributedConfig values:" not in ssh(lab, "connect-1", *words).stdout


def test_files_and_units_come_back_with_the_power(lab: TestLab) -> None:
    machine = lab.machines[0]
    boot = machine.output(["cat", "/proc/sys/kernel/random/boot_id"])
    machine.run(["sh", "-c", "echo '# kept' >>/etc/kafka/connect-1.properties"])
    jvm = lab.worker_process(0)
    machine.power_off()
    assert (machine.pid1, lab.worker_process(0)) == (None, None)
    assert jvm is not None
    assert not jvm.is_alive()
    assert ssh(lab, machine.name, "true").returncode == 255
    assert not lab.status().healthy
    machine.power_on()
    assert ssh(lab, machine.name, "true").returncode == 0
    assert machine.output(["cat", "/proc/sys/kernel/random/boot_id"]) != boot
    assert machine.read("/etc/kafka/connect-1.properties").endswith(b"# kept\n")
    until(lambda: is_healthy(lab.connect_urls[0]), "the worker of the machine that is on again", seconds=120)


def test_a_clock_is_ahead_for_logins_sudo_and_units(lab: TestLab) -> None:
    for machine, expected in zip(lab.machines, (0, HOUR), strict=True):
        login = ssh(lab, machine.name, "date", "+%s").stdout
        by_sudo = machine.output(["sudo", "-u", "kafka", "date", "+%s"])
        for seconds in (login, by_sudo):
            assert abs(int(seconds) - time.time() - expected) < HOUR / 2
    pid = lab.machines[1].output(["systemctl", "show", "-P", "MainPID", "kafka-connect@2"])
    assert "faketime" in lab.machines[1].output(["grep", "-m1", "faketime", f"/proc/{pid}/maps"])


def test_a_full_disk_takes_nothing_more_and_is_put_back(lab: TestLab) -> None:
    machine = lab.machines[0]
    before = machine.read("/etc/kafka/connect-1.properties")
    with machine.full_disk():
        refused = machine.run(["sh", "-c", "cat /etc/kafka/connect-1.properties >/etc/kafka/copy"], check=False)
        assert refused.returncode != 0
        machine.run(["rm", "/etc/kafka/copy"])
        assert machine.run(["cat", "/etc/kafka/connect-1.properties"]).stdout == before
    machine.run(["cp", "/etc/kafka/connect-1.properties", "/etc/kafka/copy"])
    machine.run(["rm", "/etc/kafka/copy"])
    assert machine.read("/etc/kafka/connect-1.properties") == before
    assert machine.output(["stat", "-c", "%U %a", "/etc/kafka", "/etc/kafka/connect-1.properties"]).split() == [
        "kafka",
        "750",
        "kafka",
        "640",
    ]


@pytest.fixture
def folder(tmp_path: Path, guard: Guard, machines: None) -> Iterator[Path]:
    guard(tmp_path / "default")
    yield tmp_path / "default"
    take_down(tmp_path / "default")


def test_a_start_that_is_killed_leaves_nothing_that_down_does_not_find(folder: Path) -> None:
    command = [sys.executable, "-m", "tests.lab", "up", "--machines", "1", "--dir", str(folder.parent)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as start:
        until(lambda: any("/systemd --system" in line for line in left_of(folder)), "a machine that boots", seconds=120)
        start.kill()
    assert any("/systemd --system" in line for line in left_of(folder))
    take_down(folder)
    assert left_of(folder) == []
    assert not folder.exists()
