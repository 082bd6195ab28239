"""Checks each worker's machine for everything that a roll needs there, without changing anything.

:class:`~airflow_eos_provider.rollout.hosts.host.HostFacts` are judged as in the preflight of a plan; the machine itself
is asked for the rest: who logs in, which tools it has, its clock, what sudo allows, whether a restart outlives the
login.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import SystemdUnit
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.rollout.answer import Check, failed, inconclusive, passed
from airflow_eos_provider.rollout.hosts.choose import host_of
from airflow_eos_provider.rollout.hosts.host import HostFacts, Obstacle
from airflow_eos_provider.rollout.hosts.machine.machine import Machine, MachineLostError, in_words
from airflow_eos_provider.rollout.hosts.machine.machines import machine_of
from airflow_eos_provider.rollout.hosts.machine.sudo import Sudo
from airflow_eos_provider.rollout.hosts.service.systemd import SystemdService
from airflow_eos_provider.rollout.hosts.service.unit import Unit
from airflow_eos_provider.rollout.hosts.sudoers import ROOT, Grant, grants_of, kind_of, needs_sudo

#: A clock that differs by more is worth a word, seconds. Nothing depends on it.
CLOCK_WARNING_SECONDS = 5.0

#: No worker's checks take longer, seconds; every command in them has a limit of its own.
WORKER_SECONDS = 60.0

#: What the commands on a machine are made of: POSIX's shell, GNU coreutils, grep.
TOOLS = (
    *("sh", "grep", "base64", "cat", "cksum", "cp", "cut", "date", "dd", "df", "head", "id", "install", "ls", "mkdir"),
    *("mv", "readlink", "rm", "sha256sum", "sort", "stat", "sync", "tail", "test", "timeout", "tr"),
)

#: Asks a machine for what is known without rights. Its arguments are the tools.
PROBE = r"""
LC_ALL=C; export LC_ALL
echo "now $(date +%s.%N)"
echo "user $(id -un) $(id -u)"
echo "system $(uname -sr)"
missing=
for tool do command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"; done
echo "missing$missing"
echo "coreutils $(stat --version 2>/dev/null | head -n1)"
echo "session $(grep -o 'session-[^/]*\.scope' /proc/self/cgroup 2>/dev/null | head -n1)"
echo "kills $(timeout 5 loginctl show-session -p KillUserProcesses --value 2>/dev/null)"
echo "spared $(timeout 5 loginctl show-session -p KillExcludeUsers --value 2>/dev/null)"
"""


#: A ``date`` that does not know ``%N`` prints something else behind the point.
_MOMENT = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class MachineProbe:
    """What a machine says of itself to a login."""

    user: str  #: who is logged in there
    system: str = ""  #: kernel and its release
    clock_ahead: float = 0.0  #: seconds that its clock is ahead of this machine's
    clock_error: float = 0.0  #: by how much that may be wrong, seconds: half of the time that the answer took
    missing: tuple[str, ...] = ()  #: tools of :data:`TOOLS` that are not there
    coreutils: str = ""  #: what ``stat --version`` says; empty if it is not GNU's
    session: str = ""  #: the scope of logind's session in which a command of this login runs; empty if it is in none
    kills: str = ""  #: ``KillUserProcesses`` of its logind, ``yes`` or ``no``; empty where there is none
    spared: tuple[str, ...] = ()  #: users whose processes logind leaves (``KillExcludeUsers``)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What was found of one worker."""

    worker_id: str
    machine: str  #: its machine's name; empty for this one
    kind: str  #: in words, who owns its process
    checks: tuple[Check, ...]  #: one answer per check
    reached: bool = True  #: whether its machine has answered at all

    @property
    def verdict(self) -> Verdict:
        return overall(self.checks)

    def to_dict(self) -> dict[str, object]:
        return {
            "worker": self.worker_id,
            "machine": self.machine or None,
            "kind": self.kind,
            "reached": self.reached,
            "verdict": str(self.verdict),
            "checks": [check.to_dict() for check in self.checks],
        }


def probe(machine: Machine) -> MachineProbe:
    """Ask a machine about itself."""
    begun, clock = time.time(), time.monotonic()
    answer = machine.run(["sh", "-s", "--", *TOOLS], stdin=PROBE.encode())
    took = time.monotonic() - clock
    return read_probe(answer.out.decode("utf-8", "replace"), at=begun + took / 2, error=took / 2)


def read_probe(text: str, *, at: float, error: float) -> MachineProbe:
    """What :data:`PROBE` has printed."""
    said = {name: rest for name, _, rest in (line.partition(" ") for line in text.splitlines())}
    now = _MOMENT.match(said.get("now", ""))
    return MachineProbe(
        user=said.get("user", "").partition(" ")[0],
        system=said.get("system", ""),
        clock_ahead=float(now[0]) - at if now else 0.0,
        clock_error=error,
        missing=tuple(said["missing"].split()) if "missing" in said else ("sh",),
        coreutils=said.get("coreutils", "") if "GNU" in said.get("coreutils", "") else "",
        session=said.get("session", ""),
        kills=said.get("kills", ""),
        spared=tuple(said.get("spared", "").split()),
    )


def of_machine(name: str, found: MachineProbe) -> tuple[Check, ...]:
    """What a machine's words about itself mean for a roll."""
    return (passed("machine", f"{name} answers {found.user} ({found.system})"), _tools(name, found), _clock(found))


def _tools(name: str, found: MachineProbe) -> Check:
    if found.missing:
        return failed("tools", f"{name} lacks {', '.join(found.missing)}", "install coreutils and grep there")
    if not found.coreutils:
        return failed("tools", f"stat of {name} is not that of GNU coreutils", "install GNU coreutils there")
    return passed("tools", f"POSIX shell, grep, {found.coreutils.replace('stat ', '')}")


def _clock(found: MachineProbe) -> Check:
    """A clock that is wrong is said, and fails nothing: no two machines' clocks are compared."""
    apart = abs(found.clock_ahead)
    if apart - found.clock_error <= CLOCK_WARNING_SECONDS:
        return passed("clock", f"within {apart + found.clock_error:.1f} s of this machine's")
    where = "ahead of" if found.clock_ahead > 0 else "behind"
    return passed(
        "clock",
        f"{apart:.0f} s {where} this machine's: a roll does not depend on it, but log times differ; fix its NTP",
    )


def outlives(name: str, found: MachineProbe) -> Check:
    """Whether a restart that runs beside the login goes on when the connection ends.

    logind ends all of a session's processes with it where ``KillUserProcesses=yes`` (logind.conf(5)); root is spared
    unless ``KillExcludeUsers`` says otherwise. A login outside of any session has nothing to fear from it.
    """
    about = "detached"
    if not found.session:
        return passed(about, f"a login to {name} has no session of logind's, so nothing ends a restart with it")
    if found.kills == "yes" and found.user not in found.spared:
        return failed(
            about,
            f"KillUserProcesses=yes on {name}: systemd ends a running restart when the connection ends",
            f"KillExcludeUsers=root {found.user} in its /etc/systemd/logind.conf, or let the worker be a systemd unit",
        )
    if not found.kills:
        return inconclusive(
            about, f"logind of {name} does not say whether KillUserProcesses is set", "see loginctl there"
        )
    return passed(about, f"a restart continues when the connection ends (KillUserProcesses={found.kills})")


def lost(error: EosError) -> Check:
    """The check of a machine that was not reached, or has refused the login."""
    if isinstance(error, MachineLostError):
        return inconclusive("machine", error.found, error.remedy or "check whether it runs and ssh reaches it")
    return failed("machine", error.found, error.remedy or "")


def of_facts(facts: HostFacts) -> tuple[Check, ...]:
    """What the host's facts mean for a roll: its description, its file, its process, the proof of its mode."""
    return (_file(facts), _process(facts), _mode(facts))


def _file(facts: HostFacts) -> Check:
    """The properties can be read, and be changed."""
    if facts.digest is None:
        found = facts.declared.detail or facts.problem or "it cannot be read"
        return failed("file", found, "correct 'config', or let the login read it")
    found_against = facts.obstacles_to("change")
    if found_against:
        return _against("file", found_against)
    return passed("file", f"{facts.edit.name} can be read, and replaced in one step")


def _beside_file(facts: HostFacts) -> str:
    """What is wrong beside what the check of the file says already."""
    problem = facts.problem or ""
    return problem.replace(facts.declared.detail, "").strip("; ") if facts.digest is None else problem


def _process(facts: HostFacts) -> Check:
    """The worker can be restarted."""
    name = "service"
    problem = _beside_file(facts)
    if problem:
        return failed(name, problem, "correct the cluster description")
    if facts.restart is not None:
        return inconclusive(name, facts.restart, "wait until it is over")
    found = facts.obstacles_to("restart")
    if found:
        return _against(name, found)
    if not facts.is_running:
        reason = facts.running.detail
        if facts.running.alive is False:
            return passed(name, f"it is stopped ({reason}), and can be started")
        return inconclusive(name, f"eos cannot tell whether it runs: {reason}", "correct its description")
    return passed(name, f"{facts.runs_as} can be restarted")


def _mode(facts: HostFacts) -> Check:
    name = "log"
    running = facts.running
    if running.alive is False:
        return passed(name, "it is stopped, so it has no mode to prove")
    if running.reads_file is False:
        return failed(name, "its process was not started with this file", facts.mode_remedy)
    if running.mode is None:
        remedy = facts.mode_remedy if facts.mode_remedy != running.detail else ""
        return inconclusive(name, f"its mode is not proven: {running.detail}", remedy or facts.read_its_log)
    return passed(name, f"it runs {running.mode}: {running.detail}")


def _against(name: str, obstacles: Sequence[Obstacle]) -> Check:
    remedies = dict.fromkeys(each.remedy for each in obstacles)
    return failed(name, "; ".join(each.what for each in obstacles), "; ".join(remedies))


def check_all(
    workers: Sequence[WorkerDescription],
    check: Callable[[WorkerDescription], Readiness],
    on_done: Callable[[Readiness], None] = lambda _done: None,
    *,
    seconds: float = WORKER_SECONDS,
) -> tuple[Readiness, ...]:
    """Check workers side by side; a machine that hangs holds up no other."""
    pool = ThreadPoolExecutor(max_workers=len(workers), thread_name_prefix="check")
    found: dict[str, Readiness] = {}
    asked = {pool.submit(check, worker): worker for worker in workers}
    try:
        for future in as_completed(asked, timeout=seconds):
            found[asked[future].worker_id] = _result(future, asked[future])
            on_done(found[asked[future].worker_id])
    except TimeoutError:
        pass  # what hangs is said below
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    late = inconclusive("machine", f"no answer within {seconds:.0f} s", "find out what delays it, then check again")
    return tuple(found.get(each.worker_id) or _unreached(each, late) for each in workers)


def _result(future: Future[Readiness], worker: WorkerDescription) -> Readiness:
    try:
        return future.result()
    except EosError as error:
        return _unreached(worker, lost(error))


def _unreached(worker: WorkerDescription, check: Check) -> Readiness:
    return Readiness(worker.worker_id, str(worker.machine or ""), kind_of(worker), (check,), reached=False)


def check_worker(worker: WorkerDescription) -> Readiness:
    """Check one worker: its machine, its host, what goes through sudo."""
    machine = machine_of(worker.machine)
    name = in_words(machine)
    found = probe(machine)
    facts = host_of(worker).observe()
    checks = [*of_machine(name, found), *of_facts(facts), *of_polkit(worker, found.user, facts)]
    if worker.is_elsewhere and not isinstance(worker.service, SystemdUnit):
        checks.append(outlives(name, found))
    if needs_sudo(worker):
        checks.append(_sudo(worker, machine))
    if isinstance(worker.service, SystemdUnit):
        checks.append(of_unit(SystemdService(machine, worker).look().unit, worker.service.unit))
    return Readiness(worker.worker_id, machine.name, kind_of(worker), tuple(checks))


def of_polkit(worker: WorkerDescription, user: str, facts: HostFacts) -> tuple[Check, ...]:
    """Whether polkit's rules let a login restart a unit. It answers that for one unit to root alone (pkcheck(1))."""
    by_sudo = worker.uses_sudo_for("service")
    if not isinstance(worker.service, SystemdUnit) or by_sudo or user == ROOT or facts.obstacles_to("restart"):
        return ()
    return (
        inconclusive(
            "polkit",
            f"only a roll can find out whether polkit lets {user} restart {worker.service.unit}; if it does not, the "
            "roll pauses before anything is stopped",
            "machine: {sudo: [service]} can be checked; or see that a rule of polkit allows "
            "org.freedesktop.systemd1.manage-units for this unit",
        ),
    )


def _sudo(worker: WorkerDescription, machine: Machine) -> Check:
    """Whether sudo allows all that a roll runs through it; none of it is run."""
    try:
        return of_sudo(grants_of(worker, machine), Sudo(machine))
    except RefusedError as error:
        return failed("sudo", error.found, error.remedy or "")
    except ConfigurationError as error:
        return inconclusive("sudo", f"the commands that need it are unknown: {error.found}", error.remedy or "")


def of_sudo(grants: Sequence[Grant], sudo: Sudo) -> Check:
    """What sudo's own answers mean for a roll."""
    commands = tuple(dict.fromkeys(command for grant in grants for command in grant.commands))
    lacking = sudo.missing(commands)
    if not lacking:
        return passed("sudo", f"{counted(len(commands), 'command')} allowed" if commands else "none is needed")
    remedy = "'eos hosts sudoers' prints the file; missing there:\n" + "\n".join(sudo.lines(lacking))
    return failed("sudo", f"{len(lacking)} of {counted(len(commands), 'command')} not allowed: {lacking[0]} …", remedy)


def of_unit(unit: Unit, asked: str) -> Check:
    """What a unit's own settings mean for a roll; what stands against a restart is the check of the service.

    A worker's own limit for its tasks to stop (``task.shutdown.graceful.timeout.ms``) counts only within systemd's.
    """
    name = "unit"
    if not unit.load_state:
        return inconclusive(name, f"systemd does not report {asked}", f"try 'systemctl show {asked}' there")
    if not unit.is_loaded:
        return failed(name, f"{asked} is {unit.load_state}", "correct 'service'")
    limit = "never" if unit.stop_seconds is None else f"{unit.stop_seconds:.0f} s after its stop began"
    said = [f"{unit.name} is {unit.state}", f"Restart={unit.restart_policy}", f"killed {limit}"]
    if unit.before_start:
        said.append("runs commands before each start (ExecStartPre=): check that none writes the properties file")
    if unit.needs_reload:
        return failed(name, f"{', '.join(said)}; its files have changed since", "systemctl daemon-reload")
    return passed(name, ", ".join(said))
