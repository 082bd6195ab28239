"""Rolls of systemd units over SSH, each worker met by another fault in the midst of it: all on real machines.

Whatever happens, each worker is restarted once for one announced restart, files are what they were or what was planned,
and a further ``apply`` of the same plan ends the roll. What one host does about a fault by itself is proved in
``tests/unit/rollout/hosts``; here it is what the roll makes of it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import EosError, RolloutPausedError
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.waiting import is_healthy
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests import seen
from tests.faults.sabotage import Sabotage, unit_of
from tests.forked import FORKS
from tests.lab.lab import TestLabOptions
from tests.lab.machine import Machine
from tests.lab.machine_login import SUDOERS_FILE, MachineLogin, known_host
from tests.sshd import public
from tests.waiting import until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"

#: What has not come by then does not come; for a machine that does much else. Seconds.
DEADLINE_SECONDS = 300.0

#: A gate that is quick to pass, and is not given up because the machine does much else.
QUICK = RolloutSettings(polls=2, poll_interval_seconds=0.3, hold_seconds=1.0, gate_timeout_seconds=DEADLINE_SECONDS)

#: Exit codes of ``eos``, see airflow_eos_provider/errors.py.
WRONG_USE, REFUSED, GATE_FAILED = 2, 3, 4


class Far:
    """The workers of a lab's machines, as a test sees them from within the machines, not by the product."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.machines = {machine.name: machine for machine in lab.machines}
        self._lines = 0

    def machine(self, worker: WorkerDescription) -> Machine:
        assert worker.machine is not None
        return self.machines[worker.machine.ssh]

    def starts(self) -> dict[str, int]:
        """How often systemd has started each worker so far: the invocations that its journal has lines of."""
        return {w.worker_id: starts_of(self.machine(w), unit_of(w)) for w in self.lab.cluster().workers}

    def files(self) -> dict[str, bytes]:
        return {w.worker_id: self.machine(w).read(str(w.config)) for w in self.lab.cluster().workers}

    def left_files(self) -> list[str]:
        """What an edit has left beside a worker's file, but for the backup."""
        words = ["sh", "-c", "ls /etc/kafka | grep -e eos-new -e eos-part || true"]
        return [line for machine in self.machines.values() for line in machine.output(words).split()]

    def seen(self) -> tuple[dict[str, bytes], dict[str, int], list[str]]:
        return self.files(), self.starts(), self.left_files()

    def target(self) -> Mode:
        """The mode that the workers are not in."""
        return Mode.DISABLED if seen.modes(self.lab) == {Mode.PREPARING} else Mode.PREPARING

    def append(self, lines: int = 50) -> None:
        with (self.lab.data_dir / "lines.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"line {self._lines + n}\n" for n in range(lines))
        self._lines += lines

    def require_nothing_missing(self) -> None:
        """Each line of the source gets to readers of committed records."""
        written = {f"line {n}" for n in range(self._lines)}

        def missing() -> set[str]:
            records = read_to_end(self.lab.cluster().kafka, "lines").records
            got = {re.sub(r'.*"(line \d+)".*', r"\1", (record.value or b"").decode()) for record in records}
            assert got <= written, "lines that were never written"
            return written - got

        until(lambda: not missing(), "each line of the source", seconds=DEADLINE_SECONDS, pause=0.5)


def starts_of(machine: Machine, unit: str) -> int:
    script = (
        'journalctl -o json --output-fields=_SYSTEMD_INVOCATION_ID "_SYSTEMD_UNIT=$1" '
        """| grep -o '"_SYSTEMD_INVOCATION_ID" *: *"[^"]*"' | sort -u | wc -l"""
    )
    return int(machine.output(["sh", "-c", script, "sh", unit]))


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Three machines, and a file source."""
    lab = lab_factory(
        TestLabOptions(
            name="ssh-faults",
            machines=3,
            mode=Mode.DISABLED,
            rebalance_delay_ms=200,
            session_timeout_ms=6000,
        )
    )
    lab.create_topic("lines", 1)
    (lab.data_dir / "lines.txt").touch()
    with ConnectRest(lab.connect_urls[0]) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines"}
        rest.create("lines", {**config, "file": str(lab.data_dir / "lines.txt")})
    return lab


@pytest.fixture(scope="module")
def far(lab: Lab) -> Far:
    return Far(lab)


class Rolling:
    """One roll, applied again and again by new controllers, as an operator does after each pause."""

    def __init__(self, far: Far, cluster: ConnectCluster | None = None) -> None:
        self.far = far
        self.cluster = cluster or far.lab.cluster()
        self.sabotage = Sabotage(far.machines)
        self.said: list[str] = []
        with Controller(self.cluster) as controller:
            self.target = Mode.PREPARING if cluster else far.target()
            self.plan = controller.plan(self.target)
        self.before = far.starts()

    def apply(
        self, settings: RolloutSettings = QUICK, *, stop: Callable[[], bool] = lambda: False, resume: bool = False
    ) -> None:
        self.far.append()
        with Controller(
            self.cluster, report=self.said.append, settings=settings, hosts=self.sabotage.host, stop_requested=stop
        ) as controller:
            controller.apply(self.plan, resume=resume)

    def pauses(self, *words: str, settings: RolloutSettings = QUICK) -> EosError:
        """Apply it, which ends with a pause in these words."""
        with pytest.raises(RolloutPausedError) as raised:
            self.apply(settings)
        for each in words:
            assert each in str(raised.value)
        return raised.value

    def require_done(self, **more: int) -> None:
        """The roll has come to its end, and each worker was restarted once; some of them more often, by the fault."""
        self.sabotage.end()
        assert seen.modes(self.far.lab) == {self.target}
        after = self.far.starts()
        expected = {w: 1 + more.get(f"turn_{n}", 0) for n, w in enumerate(self.sabotage.order, 1)}
        assert {w: after[w] - self.before[w] for w in after} == expected
        assert self.far.left_files() == []


class ReadOnly:
    """The folder of a machine's worker files, which cannot be written for a while."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __enter__(self) -> None:
        self._machine.run(["mount", "--bind", "/etc/kafka", "/etc/kafka"])
        self._machine.run(["mount", "-o", "remount,bind,ro", "/etc/kafka"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._machine.run(["umount", "/etc/kafka"])


class NoSudo:
    """A machine whose login has no right by sudo for a while, or none for one program."""

    def __init__(self, machine: Machine, program: str = "") -> None:
        self._machine = machine
        self._program = program

    def __enter__(self) -> None:
        script = 'mv "$1" /root/eos-sudoers; umask 0337; grep -v -e "$2" /root/eos-sudoers >"$1" || true'
        self._machine.run(["sh", "-euc", script, "sh", SUDOERS_FILE, self._program])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._machine.run(["mv", "/root/eos-sudoers", SUDOERS_FILE])


def with_known_hosts(lab: Lab, folder: Path, lines: str) -> ConnectCluster:
    """The lab's cluster, whose machines' keys are looked for in other lines."""
    login = MachineLogin(lab.root)
    folder.mkdir()
    (folder / "known_hosts").write_text(lines, encoding="ascii")
    text = login.config.read_text(encoding="utf-8").replace(str(login.known_hosts), str(folder / "known_hosts"))
    (folder / "config").write_text(text, encoding="utf-8")
    cluster = lab.cluster()
    workers = tuple(replace(w, machine=replace(w.machine, ssh_config=folder / "config")) for w in cluster.workers)  # type: ignore[type-var]
    return replace(cluster, workers=workers)


def fingerprint(machine: Machine) -> str:
    words = ["ssh-keygen", "-lf", f"{machine.host_key}.pub"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[1]


def refusal(cluster: ConnectCluster, target: Mode) -> EosError:
    with Controller(cluster) as controller, pytest.raises(EosError) as raised:
        controller.plan(target)
    return raised.value


def test_what_a_machine_lacks_is_refused_before_anything_is_touched(far: Far, lab: Lab, tmp_path: Path) -> None:
    first, second, third = lab.machines
    target, before = far.target(), far.seen()

    unknown = refusal(with_known_hosts(lab, tmp_path / "unknown", known_host(first) + known_host(third)), target)
    assert unknown.exit_code in (WRONG_USE, REFUSED)
    assert "connect-2" in str(unknown)
    assert fingerprint(second) in str(unknown)
    assert "ssh-keyscan" in str(unknown)

    of_third = known_host(second).split()[0] + " " + public(third.host_key) + "\n"
    changed = refusal(
        with_known_hosts(lab, tmp_path / "changed", known_host(first) + of_third + known_host(third)), target
    )
    assert changed.exit_code in (WRONG_USE, REFUSED)
    assert "another host key than the known one" in str(changed)
    assert {fingerprint(second), fingerprint(third)} <= set(re.findall(r"SHA256:[^\s,.]+", str(changed)))

    with NoSudo(second):
        no_right = refusal(lab.cluster(), target)
    assert no_right.exit_code == REFUSED
    assert "systemctl restart --no-block kafka-connect@2.service" in str(no_right)
    assert "eos hosts sudoers" in str(no_right)

    with ReadOnly(first):
        read_only = refusal(lab.cluster(), target)
    assert read_only.exit_code == REFUSED
    assert "/etc/kafka" in str(read_only)

    assert far.seen() == before


def test_what_reads_workers_files_works_for_files_of_other_machines(far: Far, lab: Lab, tmp_path: Path) -> None:
    far.append()
    far.require_nothing_missing()
    shown = {"offsets list lines": "lines", "transactions list": "", "topics check": f"{lab.group_id}-offsets"}
    for words, expected in shown.items():
        done = FORKS.run(
            "airflow_eos_provider.cli",
            tuple(words.split()),
            folder=tmp_path,
            environment={**os.environ, "EOS_CLUSTER": str(lab.cluster_file)},
            seconds=DEADLINE_SECONDS,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert expected in done.stdout


def test_each_worker_meets_another_fault_of_its_machine_and_the_roll_goes_on_afterwards(far: Far) -> None:
    rolling = Rolling(far)
    faults, files = rolling.sabotage, far.files()
    held = ExitStack()

    # The first: no place on its disk; then a read-only file system.
    faults.at(1, "edit", lambda worker: held.enter_context(faults.machine(worker).full_disk()))
    rolling.pauses("could not be changed, so the worker was not restarted", "No space left on device")
    held.close()
    assert (far.files(), far.left_files()) == (files, [])
    faults.at(1, "edit", lambda worker: held.enter_context(ReadOnly(faults.machine(worker))))
    rolling.pauses("could not be changed, so the worker was not restarted", "Read-only file system")
    held.close()
    assert (far.files(), far.left_files(), far.starts()) == (files, [], rolling.before)

    # Another one is killed before its turn; systemd starts it again, and the roll still restarts it.
    def kill_another(worker: WorkerDescription) -> None:
        other = next(each for each in rolling.cluster.workers if each.worker_id != worker.worker_id)
        faults.machine(other).run(["systemctl", "kill", "--signal=SIGKILL", unit_of(other)])
        rolling.before[other.worker_id] += 1

    faults.at(1, "restarted", kill_another)

    # The second: once its file is changed, before it is restarted, one right is gone; then all of them.
    faults.at(2, "edited", lambda worker: held.enter_context(NoSudo(faults.machine(worker), "systemctl")))
    rolling.pauses("Nothing was stopped", "systemctl restart --no-block kafka-connect@", "eos hosts sudoers")
    second = faults.order[1]
    held.close()
    with NoSudo(faults.machine(rolling.cluster.worker(second))):
        rolling.pauses("cannot be read: sudo: a password is required")
    assert far.starts()[second] == rolling.before[second]

    # The third: its power fails at its own gate, and comes back.
    faults.at(3, "restarted", lambda worker: faults.machine(worker).power_off())
    # Its gate is the last one, so that it is not waited for as long.
    with pytest.raises(RolloutPausedError, match="asked to stop"):
        rolling.apply(stop=lambda: any(f"{second}: gate passed" in line for line in rolling.said))
    off = rolling.pauses(settings=replace(QUICK, gate_timeout_seconds=25.0))
    worker = rolling.cluster.worker(faults.order[2])
    assert f"{worker.machine} (" in str(off)
    assert "cannot be reached over SSH" in str(off)
    faults.machine(worker).power_on()
    until(lambda: is_healthy(worker.url), "the worker of the machine that is on again", seconds=DEADLINE_SECONDS)
    rolling.apply()

    rolling.require_done(turn_3=1)
    far.require_nothing_missing()
