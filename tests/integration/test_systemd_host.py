"""Units of a real systemd on a machine of its own, as a service of a worker: seen, restarted once, and followed.

What runs in the units is no JVM but ``systemd_worker.py``: what is proved is what systemd does and tells.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import MachineDescription, Privilege, SystemdUnit
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict, Observed, judge
from airflow_eos_provider.errors import ConfigurationError, RefusedError, UnreachableError
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.rollout.hosts.host import (
    Moment,
    NotRestartedError,
    RestartEvent,
    RestartPendingError,
    RestartRequest,
    WorkerStartError,
    moments_of,
)
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, MachineLostError
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.service.systemd import SystemdService, UnitFacts
from airflow_eos_provider.rollout.hosts.serviced import ServicedHost
from tests.integration import systemd_worker
from tests.lab.machine import Machine, remove_control_groups
from tests.lab.machine_login import MachineLogin
from tests.lab.machine_needs import need_machines
from tests.lab.machine_root import Root
from tests.sshd import public
from tests.waiting import PATIENCE, until

CONFIG = "/etc/kafka/connect.properties"
PROGRAM = "/opt/worker.py"

#: As a word of :meth:`Unit.set`.
MODE = MODE_PROPERTY.replace(".", "_")

PROVIDED_CONFIG = f"""\
group.id=units
config.providers=env
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
{MODE_PROPERTY}={systemd_worker.PROVIDED}
"""

UNIT = """\
[Unit]
StartLimitIntervalSec=60
StartLimitBurst=3
[Service]
EnvironmentFile=-/etc/kafka/worker.env
Environment=COLOUR=blue "TWO=two words"
Environment=LOGIN_PASSWORD=hunter22
ExecStart=/usr/bin/python3 {program} {config} {port}
Restart={restart}
RestartSec=100ms
TimeoutStopSec=20
SuccessExitStatus=143
"""


@dataclass
class Booted:
    """A machine with systemd and sshd.

    :ivar numbers: for names of units that no other test has.
    """

    machine: Machine
    login: MachineLogin
    numbers: Iterator[int]

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 60) -> CompletedProcess[bytes]:
        return self.machine.run(words, stdin=stdin, seconds=seconds, check=False)

    def output(self, words: Sequence[str]) -> str:
        return self.machine.output(words)

    def write(self, path: str, text: str) -> None:
        self.machine.run(["sh", "-c", 'mkdir -p "${1%/*}"; cat >"$1"', "sh", path], stdin=text.encode())

    def kill_sessions(self) -> None:
        """End all that sshd has started for who has logged in; it goes on to listen itself."""
        self.run(["sh", "-c", "kill -9 $(pgrep -f 'sshd: eos|sshd-session: eos')"])


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    need_machines()
    folder = tmp_path_factory.mktemp("machine")
    machine = Machine(folder, 1, free_ports(1)[0], secrets.token_hex(8))
    login = MachineLogin(folder)
    login.write([machine])
    machine.prepare(
        Root(
            name=machine.name,
            address=machine.host,
            ssh_port=machine.ssh_port,
            hosts={machine.name: machine.host},
            public_key=public(login.key),
            host_key=(machine.host_key.read_text(encoding="ascii"), public(machine.host_key)),
        )
    )
    try:
        machine.power_on()
        made = Booted(machine, login, itertools.count(1))
        made.write(PROGRAM, Path(systemd_worker.__file__).read_text(encoding="utf-8"))
        yield made
    finally:
        machine.power_off()
        remove_control_groups(folder)


@contextlib.contextmanager
def suspended(booted: Booted, program: str) -> Iterator[None]:
    """A program of the machine's does nothing meanwhile."""
    pid = booted.output(["pgrep", "-f", program]).split()[0]
    booted.run(["kill", "-STOP", pid])
    try:
        yield
    finally:
        booted.run(["kill", "-CONT", pid])


@dataclass
class InMachine:
    """Commands in the machine, without SSH; connections die as a test wants it.

    :ivar asked: the commands so far.
    :ivar lose: for each next command that restarts whether it runs before its answer is lost.
    """

    booted: Booted
    user: str = ""
    asked: list[tuple[str, ...]] = field(default_factory=list)
    lose: list[bool] = field(default_factory=list)
    is_lost: bool = False
    name: str = "connect-1"

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 8.0) -> Answer:
        self.asked.append(tuple(words))
        if self.is_lost:
            raise MachineLostError("The connection was lost.", remedy="Look at the network.")
        if "restart" in words and self.lose:
            if self.lose.pop(0):
                self._run(words, stdin, seconds)
            raise MachineLostError("The connection was lost.", may_have_run=True)
        return self._run(words, stdin, seconds)

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        raise NotImplementedError("systemd needs none")

    def _run(self, words: Sequence[str], stdin: bytes, seconds: float) -> Answer:
        as_user = ("setpriv", "--reuid", self.user, "--regid", self.user, "--init-groups") if self.user else ()
        done = self.booted.run([*as_user, *words], stdin=stdin, seconds=PATIENCE * seconds)
        return Answer(done.returncode, done.stdout, done.stderr)

    @property
    def given(self) -> int:
        """How often systemd was asked for a restart."""
        return sum("restart" in words for words in self.asked)


@dataclass
class Unit:
    """One unit of the machine, with a worker in it."""

    booted: Booted
    name: str
    port: int
    config: str = CONFIG
    machine: InMachine = field(init=False)
    events: list[RestartEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = InMachine(self.booted)

    def described(self, machine: MachineDescription) -> WorkerDescription:
        return WorkerDescription(
            f"http://127.0.0.1:{self.port}",
            config=Path(self.config),
            service=SystemdUnit(self.name, journal=True),
            machine=machine,
        )

    def service(self, *, user: str = "", sudo: Sequence[Privilege] = ()) -> SystemdService:
        self.machine = InMachine(self.booted, user)
        return SystemdService(self.machine, self.described(MachineDescription("connect-1", sudo=frozenset(sudo))))

    def set(self, **settings: str) -> None:
        lines = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        self.booted.write(self.config, "\n".join(["group.id=units", *lines, ""]))

    def set_gate(self) -> str:
        """Let the worker stop only when there is the file that is returned."""
        gate = f"/run/{self.name}.gate"
        self.set(stop_gate=gate)
        return gate

    def restart(
        self,
        service: SystemdService,
        *,
        rollout: str = "",
        replaces: str = "",
        changed_at: float | None = None,
        asked: list[str] | None = None,
    ) -> None:
        request = RestartRequest(
            stop_grace_seconds=20.0,
            on_event=self.events.append,
            permit=(asked if asked is not None else []).append,
            rollout=rollout,
            replaces=replaces,
            changed_at=changed_at,
        )
        service.restart(request)

    def control(self, verb: str) -> None:
        self.booted.output(["systemctl", verb, self.name])

    def start(self) -> None:
        """Start it with its file as it is now, and wait until the worker listens: by then it stops as it should."""
        self.control("restart")
        until(self.is_listening, f"{self.name} listening", seconds=20)

    def is_listening(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def kill(self) -> None:
        self.booted.output(["systemctl", "kill", f"--signal={signal.SIGKILL.value}", self.name])


def host_of(unit: Unit, *, log: str = "") -> ServicedHost:
    """The host of a unit's worker, by root on the machine."""
    unit.machine = InMachine(unit.booted)
    worker = unit.described(MachineDescription("connect-1"))
    if log:
        worker = replace(worker, log=Path(log), service=SystemdUnit(unit.name))
    return ServicedHost(worker, unit.machine, SystemdService(unit.machine, worker))


def far_service(unit: Unit, booted: Booted) -> SystemdService:
    """The unit's service over SSH, by a login with no right but those that it says it needs."""
    description = MachineDescription("connect-1", sudo=frozenset({"service", "log"}), ssh_config=booted.login.config)
    service = SystemdService(machine_of(description), unit.described(description))
    lines = service.sudo.lines((*service.commands, *service.log_commands))
    booted.write("/etc/sudoers.d/eos-units", "\n".join([*lines, ""]))
    return service


@pytest.fixture
def unit(booted: Booted) -> Iterator[Unit]:
    """A unit that runs, of a name and with a port of its own."""
    yield from _unit(booted, f"worker{next(booted.numbers)}.service", "always")


def _unit(booted: Booted, name: str, restart: str) -> Iterator[Unit]:
    made = Unit(booted, name, free_ports(1)[0])
    booted.write(
        f"/etc/systemd/system/{name}", UNIT.format(program=PROGRAM, config=CONFIG, port=made.port, restart=restart)
    )
    booted.write("/etc/kafka/worker.env", "MODE=preparing\n")
    made.set()
    booted.output(["systemctl", "daemon-reload"])
    made.start()
    yield made
    booted.run(["systemctl", "stop", name])
    booted.run(["systemctl", "reset-failed", name])


def test_a_unit_tells_its_process_its_start_its_variables_and_who_sets_them(unit: Unit, booted: Booted) -> None:
    booted.write(f"/etc/systemd/system/{unit.name}.d/more.conf", "[Service]\nEnvironment=SHAPE=round\n")
    booted.output(["systemctl", "daemon-reload"])
    service = unit.service()
    facts = service.look()
    assert facts.process.command_line[1:3] == (PROGRAM, CONFIG)
    assert facts.reads_file is True
    assert facts.token == facts.unit.invocation
    assert facts.runs_as == f"unit {unit.name}, pid {facts.process.pid}"
    assert facts.variables["TWO"] == "two words"
    assert facts.variable_sources["MODE"] == "/etc/kafka/worker.env"
    assert facts.variable_sources["SHAPE"] == f"/etc/systemd/system/{unit.name}.d/more.conf"
    assert facts.variable_sources["COLOUR"] == f"/etc/systemd/system/{unit.name}"
    assert (facts.problem, facts.obstacles, facts.restart) == (None, (), None)
    assert "hunter22" not in repr(facts)
    assert abs(facts.clock_offset) < 1.0
    assert unit.machine.given == 0
    trips = len(unit.machine.asked)
    assert service.look() is not None
    assert len(unit.machine.asked) == trips + 1  # nothing has changed: one round trip


def test_the_mode_of_a_start_is_read_from_its_own_lines_of_the_journal(unit: Unit) -> None:
    service = unit.service()
    assert service.startup(service.look()).mode is Mode.DISABLED
    unit.set(**{MODE: systemd_worker.PROVIDED})
    unit.start()
    until(lambda: service.startup(service.look()).mode is Mode.PREPARING, "the printed settings", seconds=10)
    trips = len(unit.machine.asked)
    assert service.startup(service.look()).mode is Mode.PREPARING
    assert len(unit.machine.asked) <= trips + 2  # proven once, it is not read again


def test_a_restart_is_one_job_and_gives_another_start(unit: Unit) -> None:
    service, asked = unit.service(), list[str]()
    before, launch = service.look().token, service.launch(service.look())
    began = time.time()
    unit.restart(service, rollout="r1", replaces=before, changed_at=0.0, asked=asked)
    over = time.time()
    after = service.look()
    assert after.token not in ("", before)
    assert asked == ["stop"]
    (stopped, started) = moments_of(unit.events)
    assert (stopped.moment, started.moment) == (Moment.STOPPED, Moment.STARTED)
    assert began - 1.0 < stopped.at < over + 1.0
    assert began - 1.0 < started.at < over + 1.0
    assert started.words == f"started as pid {after.process.pid}"
    assert abs(started.at - after.process.started_at - after.clock_offset) < 1.0
    assert unit.machine.given == 1
    assert service.launch(after) == launch  # no moment and no pid is part of it


def test_what_a_restart_executes_changes_with_the_unit_and_shows_no_secret(unit: Unit, booted: Booted) -> None:
    service = unit.service()
    launch = service.launch(service.look())
    assert PROGRAM in launch.words
    assert {"LOGIN_PASSWORD", "MODE"} <= set(launch.variables)
    assert "hunter22" not in str(launch)
    booted.write("/etc/kafka/worker.env", "MODE=disabled\n")
    changed = service.launch(service.look())
    assert (changed.digest != launch.digest, changed.words) == (True, launch.words)


def test_an_answer_that_is_lost_after_the_job_was_given_is_looked_for_and_nothing_is_done_twice(unit: Unit) -> None:
    unit.set(stop_seconds="1.5")
    unit.start()
    service = unit.service()
    before = service.look().token
    unit.machine.lose = [True]
    unit.restart(service, rollout="r1", replaces=before, changed_at=0.0)
    after = service.look()
    assert after.token != before
    assert unit.machine.given == 1
    assert any("was lost" in event.words for event in unit.events)
    # The next controller, which knows no more than that the restart was announced:
    other, asked = unit.service(), list[str]()
    unit.restart(other, rollout="r1", replaces=before, changed_at=0.0, asked=asked)
    assert other.look().token == after.token
    assert (unit.machine.given, asked) == (0, [])
    assert any("restarted already" in event.words for event in unit.events)


def test_a_connection_that_dies_between_stop_and_start_is_mended_and_the_machine_has_finished(
    unit: Unit, booted: Booted
) -> None:
    gate = unit.set_gate()
    unit.start()
    service = far_service(unit, booted)
    before = service.look()
    assert (before.obstacles, service_mode(service)) == ((), Mode.DISABLED)

    def cut() -> None:
        until(lambda: unit.service().look().unit.job, "the stop", seconds=10)
        booted.kill_sessions()
        booted.write(gate, "")

    cutting = threading.Thread(target=cut)
    cutting.start()
    unit.restart(service, rollout="r1", replaces=before.token, changed_at=0.0)
    cutting.join(300)
    after = service.look()
    assert after.token not in ("", before.token)
    assert after.unit.restarts == 0
    assert unit.service().look().token == after.token


def test_a_command_that_is_lost_before_it_ran_is_given_again(unit: Unit) -> None:
    service = unit.service()
    before = service.look().token
    unit.machine.lose = [False, False]
    unit.restart(service, rollout="r1", replaces=before, changed_at=0.0)
    assert service.look().token != before
    assert unit.machine.given == 3


def test_a_command_that_arrives_when_its_restart_is_over_or_under_way_does_nothing(unit: Unit) -> None:
    gate = unit.set_gate()
    unit.start()
    service = unit.service()
    before = service.look().token
    first = threading.Thread(target=unit.restart, args=(service,))
    first.start()
    until(lambda: unit.service().look().unit.job, "the job", seconds=10)
    late = next(words for words in service.machine.asked if "restart" in words)  # type: ignore[attr-defined]
    assert unit.booted.run(list(late)).returncode == 76
    unit.booted.write(gate, "")
    first.join(300)
    after = unit.service().look().token
    assert after != before
    assert unit.booted.run(list(late)).returncode == 75
    assert unit.service().look().token == after


def test_a_restart_that_another_controller_has_begun_is_waited_for_and_reported(unit: Unit, booted: Booted) -> None:
    gate = unit.set_gate()
    unit.start()
    service = unit.service()
    before = service.look().token
    booted.output(["systemctl", "restart", "--no-block", unit.name])
    assert service.look().restart is not None
    asked: list[str] = []
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(unit.restart, service, rollout="r1", replaces=before, changed_at=0.0, asked=asked)
        try:
            until(lambda: any("waiting for its end" in event.words for event in unit.events), "the wait", seconds=10)
        finally:
            booted.write(gate, "")
        second.result(timeout=300)
    assert service.look().token != before
    assert (unit.machine.given, asked) == (0, [])


def test_a_start_before_the_last_change_of_the_file_is_not_taken_for_the_restart(unit: Unit) -> None:
    service = unit.service()
    facts = service.look()
    unit.restart(service, rollout="r1", replaces="another start", changed_at=facts.process.started_at + 1.0)
    assert unit.machine.given == 1


def test_a_worker_that_ends_at_once_is_reported_with_the_end_of_its_log(unit: Unit) -> None:
    service = unit.service()
    unit.set(**{MODE: "broken"})
    with pytest.raises(WorkerStartError) as error:
        unit.restart(service, rollout="r1", replaces=service.look().token, changed_at=0.0)
    assert "Invalid value broken" in str(error.value)
    assert "hunter22" not in str(error.value)


@pytest.mark.parametrize("sudo", [(), ("log",)], ids=["journalctl", "sudo journalctl"])
def test_the_log_of_a_worker_that_has_ended_is_shown_where_the_journal_comes_late(
    unit: Unit, booted: Booted, sudo: Sequence[Privilege]
) -> None:
    """journald then finds no process any more, and names no invocation of its lines."""
    service = unit.service(sudo=sudo)
    replaces = service.look().token
    unit.set(**{MODE: "broken"})
    errors: list[WorkerStartError] = []

    def restart() -> None:
        with pytest.raises(WorkerStartError) as error:
            unit.restart(service, rollout="r1", replaces=replaces, changed_at=0.0)
        errors.append(error.value)

    first = threading.Thread(target=restart)
    with suspended(booted, "systemd-journald"):
        first.start()
        until(lambda: unit.service().look().unit.restarts >= 1, "a restart by systemd", seconds=20)
    first.join(300)
    lines = str(errors[0])
    assert "Invalid value broken" in lines
    assert "Main process exited" not in lines
    assert "hunter22" not in lines


def test_a_unit_at_its_start_limit_is_an_obstacle_and_started_again_by_a_roll(unit: Unit) -> None:
    service = unit.service()
    unit.set(**{MODE: "broken"})
    with pytest.raises(WorkerStartError):
        unit.restart(service)
    until(lambda: service.look().unit.has_hit_start_limit, "the start limit", seconds=20)
    facts = service.look()
    (obstacle,) = facts.obstacles
    assert "start limit" in obstacle.what
    assert "reset-failed" in obstacle.remedy
    assert (facts.process, facts.stopped, facts.token) == (None, True, "")
    assert "start limit" in facts.state
    unit.set()
    asked: list[str] = []
    unit.restart(service, rollout="r1", replaces="", changed_at=0.0, asked=asked)
    assert asked == ["start"]
    assert service.look().reads_file


def test_a_worker_that_systemd_starts_again_by_itself_has_another_token(unit: Unit) -> None:
    service = unit.service()
    before = service.look()
    unit.kill()
    until(lambda: service.look().token not in ("", before.token), "systemd's own restart", seconds=10)
    after = service.look()
    assert after.details["restarts_by_systemd"] == 1
    unit.control("reset-failed")  # sets the counter to 0, and is no start
    assert service.look().token == after.token


def test_a_suspended_process_is_why_a_worker_does_not_answer(unit: Unit, booted: Booted) -> None:
    booted.output(["systemctl", "kill", f"--signal={signal.SIGSTOP.value}", unit.name])
    until(lambda: unit.service().look().obstacles, "the suspended process", seconds=5)
    (obstacle,) = unit.service().look().obstacles
    assert (obstacle.act, "kill -CONT" in obstacle.remedy) == ("answer", True)


def test_a_changed_unit_that_systemd_has_not_read_is_not_restarted(unit: Unit, booted: Booted) -> None:
    booted.output(["sh", "-c", 'echo "# edited" >>"$1"', "sh", f"/etc/systemd/system/{unit.name}"])
    service = unit.service()
    (obstacle,) = service.look().obstacles
    assert "daemon-reload" in obstacle.remedy
    before = service.look().token
    with pytest.raises(RefusedError, match="daemon-reload"):
        unit.restart(service)
    assert (service.look().token, unit.machine.given) == (before, 0)


def test_instances_of_a_template_share_their_file_and_are_restarted_one_by_one(booted: Booted) -> None:
    ports = free_ports(3)
    text = UNIT.format(program=PROGRAM, config=CONFIG, port="${PORT}", restart="always")
    booted.write("/etc/systemd/system/instance@.service", text.replace("-/etc/kafka/worker.env", "/etc/kafka/%i.env"))
    units = [Unit(booted, f"instance@{number}.service", port) for number, port in enumerate(ports, start=1)]
    for number, port in enumerate(ports, start=1):
        booted.write(f"/etc/kafka/{number}.env", f"PORT={port}\n")
    units[0].set()
    booted.output(["systemctl", "daemon-reload"])
    booted.output(["systemctl", "start", *(each.name for each in units)])
    services = [each.service() for each in units]
    until(lambda: all(service.look().reads_file for service in services), "three workers", seconds=20)
    before = [service.look().token for service in services]
    units[1].restart(services[1])
    after = [service.look().token for service in services]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]
    template = Unit(booted, "instance@.service", 1).service().look()
    assert "instance@1.service" in template.problem
    booted.run(["systemctl", "stop", *(each.name for each in units)])


def test_an_alias_is_the_unit_that_it_names(unit: Unit, booted: Booted) -> None:
    booted.output(["ln", "-sf", f"/etc/systemd/system/{unit.name}", f"/etc/systemd/system/alias-{unit.name}"])
    booted.output(["systemctl", "daemon-reload"])
    named = Unit(booted, f"alias-{unit.name}", unit.port).service()
    assert named.look().token == unit.service().look().token
    assert named.look().runs_as.startswith(f"unit {unit.name}, ")
    assert service_mode(named) is Mode.DISABLED


def service_mode(service: SystemdService) -> Mode | None:
    return service.startup(service.look()).mode


@pytest.mark.parametrize(
    ("name", "prepare", "says"),
    [
        ("nowhere.service", (), "there is no unit nowhere.service on connect-1"),
        ("masked.service", ("systemctl", "mask", "masked.service"), "is masked"),
    ],
)
def test_a_unit_that_is_not_there_or_masked_is_a_problem(
    booted: Booted, name: str, prepare: tuple[str, ...], says: str
) -> None:
    if prepare:
        booted.output(list(prepare))
    facts = Unit(booted, name, 1).service().look()
    assert says in facts.problem


def test_a_unit_of_another_worker_is_a_problem_once_its_start_script_had_its_time(
    unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit.config = "/etc/kafka/other.properties"
    facts = unit.service().look()
    assert (facts.reads_file, facts.problem) == (False, None)
    monkeypatch.setattr("airflow_eos_provider.rollout.hosts.service.service.START_SCRIPT_SECONDS", 0.0)
    problem = unit.service().look().problem
    assert "other.properties" in problem


def test_rights_that_are_missing_are_found_before_anything_is_stopped_and_narrow_ones_suffice(
    unit: Unit, booted: Booted
) -> None:
    without = unit.service(user="eos", sudo=("service", "log"))
    before = without.look()
    (obstacle,) = before.obstacles
    assert "systemctl restart" in obstacle.what
    assert "eos hosts sudoers" in obstacle.remedy
    assert without.startup(before).mode is None
    with pytest.raises(NotRestartedError, match="is not allowed"):
        unit.restart(without)
    assert without.look().token == before.token
    plain = unit.service(user="eos")
    assert "may not be read" in plain.startup(plain.look()).detail
    with pytest.raises(RefusedError, match="sudo"):
        unit.restart(plain)
    assert plain.look().token == before.token
    lines = without.sudo.lines((*without.commands, *without.log_commands))
    booted.write("/etc/sudoers.d/eos-units", "\n".join([*lines, ""]))
    try:
        allowed = unit.service(user="eos", sudo=("service", "log"))
        assert allowed.look().obstacles == ()
        assert service_mode(allowed) is Mode.DISABLED
        unit.restart(allowed)
        assert allowed.look().token not in ("", before.token)
    finally:
        booted.output(["rm", "/etc/sudoers.d/eos-units"])


def test_a_machine_where_systemd_does_not_run_is_a_problem(booted: Booted, unit: Unit) -> None:
    class WithoutBus(InMachine):
        def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 8.0) -> Answer:
            hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh", *words]
            return super().run(hidden, stdin=stdin, seconds=seconds)

    service = unit.service()
    service.machine = WithoutBus(booted)
    problem = service.look().problem
    assert "systemd on connect-1 does not report" in problem


def test_a_file_that_several_units_share_is_one_edit_of_their_machine(unit: Unit, booted: Booted) -> None:
    unit.set(**{MODE: "disabled"})
    unit.start()
    other = Unit(booted, "other-unit.service", unit.port)
    first, second = host_of(unit), host_of(other)
    before = first.observe()
    assert before.edit == second.observe().edit == first.unseen("not looked at").edit
    assert before.edit.name == f"connect-1:{CONFIG}"
    expected = first.digest_with({MODE_PROPERTY: "preparing"})
    assert before.digest is not None
    assert first.edit({MODE_PROPERTY: "preparing"}, expect=before.digest) == expected
    assert second.observe().digest == expected
    assert first.observe().declared.mode is Mode.PREPARING
    second.restore(expect=expected, original=before.digest)
    assert first.observe().digest == before.digest


def test_a_look_at_a_worker_takes_three_round_trips_at_most(unit: Unit) -> None:
    host = host_of(unit)
    facts = host.observe()
    assert (facts.problem, facts.obstacles) == (None, ())
    until(lambda: host.observe().running.mode, "the printed settings", seconds=10)

    def trips() -> int:
        before = len(unit.machine.asked)
        assert host.observe().start_token == facts.start_token
        return len(unit.machine.asked) - before

    # Within a second after the file was changed it is read anew at each look.
    until(lambda: trips() <= 3, "a look of three round trips", seconds=10)


def test_a_host_judges_the_file_and_the_process_of_its_machine(unit: Unit) -> None:
    unit.set(**{MODE: "disabled"})
    unit.start()
    host = host_of(unit)
    until(lambda: host.observe().running.mode, "the printed settings", seconds=10)
    facts = host.observe()
    verdict = judge(facts.worker_id, facts.declared, facts.running, Observed(None, "not asked"))
    assert verdict.verdict is ModeVerdict.DISABLED
    assert "unchanged since the process started" in verdict.reason
    assert facts.started_at is not None
    assert abs(facts.started_at - time.time()) < 60.0
    host.edit({MODE_PROPERTY: "preparing"}, expect=facts.digest or "")
    facts = host.observe()
    verdict = judge(facts.worker_id, facts.declared, facts.running, Observed(None, "not asked"))
    assert (verdict.verdict, verdict.declared.mode) == (ModeVerdict.DISABLED, Mode.PREPARING)
    events: list[RestartEvent] = []
    host.restart(
        RestartRequest(stop_grace_seconds=20.0, on_event=events.append, rollout="r1", replaces=facts.start_token)
    )
    until(lambda: host.observe().running.mode is Mode.PREPARING, "the new mode", seconds=10)
    # Once more, by a controller that only knows that this restart was announced:
    given = unit.machine.given
    host.restart(
        RestartRequest(stop_grace_seconds=20.0, on_event=events.append, rollout="r1", replaces=facts.start_token)
    )
    assert unit.machine.given == given


def test_a_mode_that_a_file_of_variables_sets_is_followed_and_its_edit_refused_by_that_files_name(
    unit: Unit, booted: Booted
) -> None:
    unit.booted.write(CONFIG, PROVIDED_CONFIG)
    unit.start()
    host = host_of(unit)
    until(lambda: host.observe().running.mode, "the printed settings", seconds=10)
    facts = host.observe()
    assert (facts.declared.mode, facts.running.mode) == (Mode.PREPARING, Mode.PREPARING)
    (obstacle,) = facts.obstacles_to("change")
    assert "/etc/kafka/worker.env" in obstacle.what
    with pytest.raises(ConfigurationError, match=r"MODE is set by /etc/kafka/worker\.env"):
        host.edit({MODE_PROPERTY: "enabled"}, expect=facts.digest or "")
    booted.write("/etc/kafka/worker.env", "MODE=enabled\n")
    written_at = float(booted.output(["stat", "-c", "%.Z", "/etc/kafka/worker.env"]))
    known = unit.service().look().unit.variables_changed_at
    assert known == pytest.approx(written_at, abs=1e-3)  # a worker that has started in the same second has not read it
    changed = host.observe()
    assert changed.declared.mode is Mode.ENABLED
    assert (changed.declared.changed_at or 0.0) > (changed.started_at or 0.0)
    verdict = judge(changed.worker_id, changed.declared, changed.running, Observed(None, "not asked"))
    assert (verdict.verdict, verdict.declared.mode) == (ModeVerdict.PREPARING, Mode.ENABLED)


def test_a_file_that_each_start_writes_anew_may_not_be_changed_by_a_roll(unit: Unit, booted: Booted) -> None:
    """Found by what the command, or its script, names; or, where it hides that, by what the last start has done."""
    hidden = '#!/bin/sh\nfolder=/etc/kafka\ncp -p /srv/template "$folder/$(cat /srv/name)"\n'
    booted.write("/srv/template", "group.id=units\n")
    booted.write("/srv/name", CONFIG.rpartition("/")[2])
    booted.write("/opt/hidden", hidden)
    booted.write("/opt/named", f"#!/bin/sh\nto={CONFIG}\n[ -e /srv/skip ] || cp -p /srv/template $to\n")
    booted.write("/srv/skip", "")
    booted.output(["touch", "-d", "2020-01-01", "/srv/template"])
    for command, may_write, after_a_start in (
        (f"/bin/sh -c 'test -r {CONFIG}'", "", ""),
        ("/bin/sh /opt/named", "runs what may write", "runs what may write"),
        ("/bin/sh /opt/hidden", "", "the last start of unit"),
    ):
        booted.write(f"/etc/systemd/system/{unit.name}.d/before.conf", f"[Service]\nExecStartPre={command}\n")
        booted.output(["systemctl", "daemon-reload"])
        for expected in (may_write, after_a_start):
            found = unit.service().look().obstacles
            assert [each.act for each in found] == (["change"] if expected else []), command
            assert all(expected in each.what and "/opt/" in each.what for each in found)
            unit.start()
    declared = host_of(unit).observe().declared
    assert (declared.changed_at or 0.0) > (declared.modified_at or 0.0) + 1.0, "the copy has the template's date"


def test_a_log_file_of_the_machine_proves_the_mode(unit: Unit, booted: Booted) -> None:
    log = f"/var/log/{unit.name}.log"
    booted.write(f"/etc/systemd/system/{unit.name}.d/log.conf", f"[Service]\nStandardOutput=append:{log}\n")
    booted.output(["systemctl", "daemon-reload"])
    unit.start()
    host = host_of(unit, log=log)
    until(lambda: host.observe().running.mode is Mode.DISABLED, "the printed settings", seconds=10)
    assert host.observe().log == f"{log} on connect-1"
    unit.set(**{MODE: "broken"})
    with pytest.raises(WorkerStartError, match="Invalid value broken") as error:
        host.restart(RestartRequest(stop_grace_seconds=20.0))
    assert "hunter22" not in str(error.value)


def test_a_machine_that_cannot_be_reached_says_so_and_nothing_is_taken_for_stopped(unit: Unit) -> None:
    host = host_of(unit)
    unit.machine.is_lost = True
    facts = host.observe()
    assert (facts.is_running, facts.running.alive, facts.digest) == (False, None, None)
    assert facts.problem == "The connection was lost"
    with pytest.raises(UnreachableError):
        host.restart()
    with pytest.raises(UnreachableError):
        host.edit({MODE_PROPERTY: "enabled"}, expect="")


def test_where_processes_are_hidden_from_the_login_systemd_tells_the_one_and_what_is_not_known_is_said(
    unit: Unit, booted: Booted
) -> None:
    seen = unit.service().look()
    booted.output(["mount", "-o", "remount,hidepid=2", "/proc"])
    try:
        hidden = unit.service(user="eos").look()
    finally:
        booted.output(["mount", "-o", "remount,hidepid=0", "/proc"])
    assert (hidden.process.pid, hidden.token, hidden.reads_file) == (seen.process.pid, seen.token, None)
    assert abs(hidden.process.started_at - seen.process.started_at) < 1.0
    assert "hidepid" in str(hidden.details["hidden"])


def test_a_start_of_systemds_own_since_the_announcement_is_reported_as_the_restart(unit: Unit) -> None:
    service = unit.service()
    before = service.look()
    assert before.process is not None
    unit.kill()
    until(lambda: service.look().token not in ("", before.token), "systemd's own restart", seconds=10)
    until(unit.is_listening, "the worker listening", seconds=10)
    assert service.look().details["restarts_by_systemd"] == 1
    unit.restart(service, rollout="r1", replaces=before.token, changed_at=0.0)
    assert unit.machine.given == 0
    assert any("restarted already" in event.words for event in unit.events)


def test_a_unit_that_systemd_is_about_to_start_again_is_restarted_by_the_roll(unit: Unit, booted: Booted) -> None:
    booted.write(f"/etc/systemd/system/{unit.name}.d/pause.conf", "[Service]\nRestartSec=1s\n")
    booted.output(["systemctl", "daemon-reload"])
    service = unit.service()
    unit.kill()
    until(lambda: service.look().unit.restarts, "systemd's own restart", seconds=10)
    until(unit.is_listening, "the worker listening", seconds=10)
    unit.kill()
    until(lambda: service.look().unit.is_between_starts, "the pause", seconds=5)
    unit.restart(service, rollout="r1", replaces="", changed_at=0.0)
    assert service.look().reads_file


def test_what_does_not_answer_for_a_moment_after_the_job_was_given_is_asked_again(
    unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd that executes itself anew, and a login that a machine refuses until it has booted: not provoked here."""
    service = unit.service()
    before, look_at_it = service.look().token, service.look
    answers: list[UnitFacts | Exception] = [
        UnitFacts(problem="systemd on connect-1 does not report it: Connection reset by peer"),
        ConfigurationError("connect-1 refuses the login of eos."),
    ]

    def answer() -> UnitFacts:
        if not unit.machine.given or not answers:
            return look_at_it()
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(service, "look", answer)
    unit.restart(service, rollout="r1", replaces=before, changed_at=0.0)
    assert (answers, unit.machine.given) == ([], 1)
    assert service.look().token not in ("", before)


def test_a_machine_that_refuses_the_login_after_the_job_was_given_is_lost_and_the_worker_is_not_to_blame(
    unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_eos_provider.rollout.hosts.service.systemd.SLACK_SECONDS", 0.0)
    service = unit.service()
    look_at_it = service.look

    def answer() -> UnitFacts:
        if unit.machine.given:
            raise ConfigurationError("connect-1 refuses the login of eos.", remedy="Allow it.")
        return look_at_it()

    monkeypatch.setattr(service, "look", answer)
    with pytest.raises(MachineLostError, match="refuses the login") as lost:
        unit.restart(service)
    assert (lost.value.may_have_run, lost.value.remedy) == (True, "Allow it.")


def test_a_stop_that_takes_longer_than_is_waited_for_is_said_and_systemd_goes_on(
    unit: Unit, booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = unit.set_gate()
    unit.start()
    service = unit.service()
    before = service.look().token
    with monkeypatch.context() as patched:
        patched.setattr("airflow_eos_provider.rollout.hosts.service.systemd.SLACK_SECONDS", 0.0)
        patched.setattr("airflow_eos_provider.rollout.hosts.service.systemd.LONGEST_SECONDS", 0.1)
        with pytest.raises(RestartPendingError, match="systemd continues it"):
            unit.restart(service, rollout="r1", replaces=before, changed_at=0.0)
    booted.write(gate, "")
    unit.restart(service, rollout="r1", replaces=before, changed_at=0.0)  # the next controller
    assert service.look().token not in ("", before)
    assert unit.machine.given == 1
