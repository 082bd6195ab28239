"""A worker that is the main process of a systemd unit: systemd reports its state, keeps its log, and restarts it.

The unit's invocation id identifies one start: systemd makes a new id at each start (systemd.exec(5)). ``NRestarts`` and
``ActiveEnterTimestamp`` do not: ``systemctl reset-failed`` sets the first to 0 while the unit runs, and with
``Type=notify`` the second changes when a start is complete.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import SystemdUnit
from airflow_eos_provider.connect.startup_log import STARTUP_SECONDS, StartupLog, mode_from_own_log
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.redaction import remember, secrets_of
from airflow_eos_provider.rollout.hosts.address import accepts_connections
from airflow_eos_provider.rollout.hosts.host import (
    CLOCK_TICK_SECONDS,
    NOT_RUNNING,
    Moment,
    NotRestartedError,
    Obstacle,
    RestartEvent,
    RestartPendingError,
    RestartRequest,
    StartToken,
    WorkerStartError,
)
from airflow_eos_provider.rollout.hosts.launch import Launch, digest_of, shown_words
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, Machine, MachineLostError
from airflow_eos_provider.rollout.hosts.machine.processes import Process, Processes, as_word, probe
from airflow_eos_provider.rollout.hosts.machine.sudo import Command
from airflow_eos_provider.rollout.hosts.machine.worker_log import WorkerLog, shown_lines
from airflow_eos_provider.rollout.hosts.service.service import Service, ServiceFacts, suspended
from airflow_eos_provider.rollout.hosts.service.unit import PROPERTIES, Unit, files_of, may_write

#: Its arguments: the unit, the worker's file, and the command that tells whether the restart is allowed, if any. No
#: more than 8 MiB of base64 leaves it: these are small files.
_LOOK = f"""
    unit=$1; config=$2;
    shown=$(systemctl show --no-pager --property={",".join(PROPERTIES)} -- "$unit" 2>&1);
    part show; printf '%s\\n' "$shown";
    part config; readlink -f -- "$config"; part touched; stat -L -c %.Z -- "$config" 2>/dev/null;
    each() {{ part "file $1"; stat -L -c '%.Y %.Z' -- "$1" 2>/dev/null || echo;
    if [ -r "$1" ]; then head -c 1000000 -- "$1" | base64; else echo -; fi; }};
    printf '%s\\n' "$shown" | while IFS= read -r line; do case $line in
    FragmentPath=/*) each "${{line#*=}}";;
    DropInPaths=/*) for file in ${{line#*=}}; do each "$file"; done;;
    EnvironmentFiles=/*) line=${{line#*=}}; for file in ${{line% (ignore_errors=*}}; do
    if [ -e "$file" ]; then each "$file"; fi; done;;
    esac; done;
    part before; printf '%s\\n' "$shown" | while IFS= read -r line; do case $line in ExecStartPre=*)
    line=${{line#*argv[[]]=}}; for file in ${{line%% ; *}}; do case $file in "$config") ;; /*)
    if [ -f "$file" ]; then grep -hsIF -e "${{config##*/}}" -- "$file" | head -n 100; fi;; esac; done;; esac; done;
    part polkit; command -v pkcheck;
"""

#: In the output of the scripts: the journal may not be read, or sudo does not let it.
_CLOSED, _REFUSED = b"/=eos=closed", b"/=eos=refused"

#: Runs what reads the journal: of this invocation alone, or through sudo of the unit, newest first, as JSON.
_READ_JOURNAL = as_word(
    f"""
    LC_ALL=C; export LC_ALL; kind=$1; invocation=$2; shift 2;
    of_invocation() {{ if [ "$kind" = json ]; then grep -F -e "$invocation" -e '{_REFUSED.decode()}'; else cat; fi; }};
    read_journal() {{ "$@" || echo '{_REFUSED.decode()}'; }};
    if [ "$kind" = text ]; then for file in /var/log/journal/*/system.journal /run/log/journal/*/system.journal; do
    if [ -e "$file" ] && [ ! -r "$file" ]; then echo '{_CLOSED.decode()}'; fi; done; fi;
    """
)

#: Prints the heads of the settings' blocks, and the mode.
_STARTUP = f"{_READ_JOURNAL} " + as_word(
    f"""
    read_journal "$@" | of_invocation |
    grep -E -e '[A-Za-z]Config values:' -e 'exactly[.]once[.]source[.]support = ' -e '{_REFUSED.decode()}' |
    head -n 2000
    """
)

#: Prints the last lines; as JSON newest first, those of an invocation or, where that is empty, all.
_TAIL = f"{_READ_JOURNAL} " + as_word(
    """
    read_journal "$@" | of_invocation | if [ "$kind" = json ]; then head -n 60; else tail -n 60; fi
    """
)

_INVOCATION_FIELD = "_SYSTEMD_INVOCATION_ID"

#: The journal of a start is read to its end, within so many seconds.
JOURNAL_SECONDS = 20.0

_LOOK_AT_ITS_LOG = "check its log"

#: Of the commands before a start so much is shown.
_SHOWN_CHARACTERS = 300


#: A started worker is watched until it listens, at most this many seconds; one that ends meanwhile has refused its
#: configuration.
EARLY_END_SECONDS = 10.0

#: What systemd may take for a job beside its own timeouts: other jobs before it, a busy machine.
SLACK_SECONDS = 30.0

#: Where a unit says that its stop or its start may take for ever, the wait for it ends nevertheless.
LONGEST_SECONDS = 300.0

#: systemd gives up a stop some seconds after ``TimeoutStopSec=``: it kills, and waits as long again (systemd.kill(5)).
_KILLS = 2

#: The compare answers so where the unit is in another invocation by now, or has a job.
_MOVED, _BUSY = 75, 76

#: The compare is repeated so often where a unit that keeps ending moves under it.
_ATTEMPTS = 5

#: The last lines of a worker that has ended are waited for so long, seconds; it may have printed none.
LAST_LINES_SECONDS = 20.0

_LOOK_SECONDS = 0.2
_CONNECT_SECONDS = 0.5

#: Its arguments: the unit, the invocation that is to be replaced (empty: none), and the command that gives the job.
_COMPARE_AND_RESTART = as_word(
    f"""
    unit=$1; expected=$2; shift 2; LC_ALL=C; export LC_ALL;
    shown=$(systemctl show --property=InvocationID,Job,ActiveState -- "$unit") || exit 1;
    now=; job=; state=;
    for line in $shown; do case $line in
    InvocationID=*) now=${{line#*=}};; Job=*) job=${{line#*=}};; ActiveState=*) state=${{line#*=}};; esac; done;
    case $job in ''|0) ;; *) exit {_BUSY};; esac;
    if [ "$now" != "$expected" ]; then case "$now $state" in ' inactive'|' failed') ;; *) exit {_MOVED};; esac; fi;
    exec "$@"
    """
)

_PERMISSION_WORDS = ("authentication required", "access denied", "permission denied", "a password is required", "sudo:")


@dataclass(frozen=True, slots=True)
class UnitFacts(ServiceFacts):
    unit: Unit = field(default=Unit({}), repr=False)  #: as systemd shows it; empty if it could not be asked
    booted_at: float = 0.0  #: when its machine's uptime began, seconds since the epoch, by this machine's clock

    def at_uptime(self, seconds: float) -> float:
        """A moment that is known in seconds since the boot, by this machine's clock."""
        return self.booted_at + seconds


class SystemdService(Service):
    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        assert isinstance(worker.service, SystemdUnit)
        super().__init__(machine, worker)
        self.unit = worker.service.unit
        self.has_journal = worker.service.journal
        self._startup: tuple[StartToken, StartupLog] | None = None

    @property
    def how_to_start(self) -> str:
        return f"start {self.worker.worker_id}: systemctl start {self.unit} on {self.where}; read its log: {self.log}"

    @property
    def log(self) -> str:
        if self.has_journal or self.worker.log is None:
            return f"journalctl -u {self.unit}"
        return str(self.worker.log)

    def look(self) -> UnitFacts:
        """The unit, its process and its files as they are now: one round trip, two at a new start."""
        if self.unit.removesuffix(".service").endswith("@"):
            return UnitFacts(problem=f"{self.unit} is a template; name an instance of it ({_example(self.unit)})")
        config = str(self.worker.config or "")
        processes, parts = probe(self.machine, _LOOK, self.unit, config)
        shown = parts.get("show", b"").decode("utf-8", "replace").strip()
        unit = Unit.parse(shown, files_of(parts))
        problem = _problem(unit, self.unit, self.where, shown)
        if problem is not None:
            return UnitFacts(problem=problem, clock_offset=processes.clock_offset, unit=unit)
        variables = unit.variables()
        remember({name: value for name, (value, _) in variables.items()})
        paths = (config, parts.get("config", b"").decode("utf-8", "surrogateescape").strip())
        process, reads_file = self._process(unit, processes, paths)
        token = _token(unit, process)
        return UnitFacts(
            process=process,
            token=token,
            reads_file=reads_file,
            state="" if process else f"unit {unit.name} is {unit.state}",
            stopped=process is None and unit.is_stopped,
            runs_as=f"unit {unit.name}, pid {process.pid}" if process else "",
            details=_details(unit, process, processes, self.machine.name),
            problem=self._wrong_file(unit, process, reads_file, processes),
            obstacles=(
                *self._obstacles(unit, parts),
                *self._rewritten(unit, parts, processes),
                *suspended(processes.family(unit.main_pid)),
            ),
            restart=f"systemd's job {unit.job} of {unit.name} is running" if unit.job else None,
            variables={name: value for name, (value, _) in variables.items()},
            variable_sources={name: source for name, (_, source) in variables.items()},
            variables_changed_at=unit.variables_changed_at,
            clock_offset=processes.clock_offset,
            unit=unit,
            booted_at=processes.at_uptime(0.0) + processes.clock_offset,
        )

    def launch(self, facts: ServiceFacts | None = None) -> Launch:
        """The restart, and what the unit executes with which variables, as far as its machine has told."""
        if not isinstance(facts, UnitFacts) or not facts.unit.is_loaded:
            restart = ("systemctl", "restart", self.unit)
            return Launch(restart, digest=digest_of(self.worker.worker_id, json.dumps(restart)))
        unit = facts.unit
        executed = [word for command in unit.commands for word in command]
        words = ("systemctl", "restart", unit.name, "→", *shown_words(executed, facts.variables))
        content = json.dumps([unit.executes, sorted(facts.variables.items())])
        return Launch(
            words=words,
            cwd=unit.working_directory,
            variables=tuple(sorted(facts.variables)),
            digest=digest_of(self.worker.worker_id, content),
        )

    def startup(self, facts: ServiceFacts) -> StartupLog:
        """The mode that the process printed into the journal at this start of the unit.

        The journal knows the lines of one invocation, so no clock is needed.
        """
        if self._startup is not None and self._startup[0] == facts.token:
            return self._startup[1]
        if not isinstance(facts, UnitFacts) or facts.process is None:
            return StartupLog(None, facts.state or facts.problem or "its unit does not run")
        found = self._read_journal(facts.unit)
        age = time.time() - (facts.process.started_at + facts.clock_offset)
        if found.mode is not None or age > STARTUP_SECONDS:
            self._startup = (facts.token, found)
        return found

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands of a restart, for root where the description has sudo do them."""
        user = "root" if self.worker.uses_sudo_for("service") else ""
        restart = Command(("systemctl", "restart", "--no-block", self.unit), user)
        return (restart, Command(("systemctl", "reset-failed", self.unit), user))

    @property
    def log_commands(self) -> tuple[Command, ...]:
        """The command that reads the journal through sudo, which is always the same; empty where none is needed."""
        if not self.has_journal or not self.worker.uses_sudo_for("log"):
            return ()
        return (Command(self._entries_words, "root"),)

    @property
    def _entries_words(self) -> tuple[str, ...]:
        fields = f"--output-fields=MESSAGE,_PID,{_INVOCATION_FIELD}"
        return ("journalctl", "--no-pager", "-r", "-o", "json", fields, "-u", self.unit)

    def restart_words(self) -> tuple[str, ...]:
        return self.sudo.words(self.commands[0])

    def reset_words(self) -> tuple[str, ...]:
        return self.sudo.words(self.commands[1])

    def last_lines(self, invocations: Sequence[str]) -> str:
        """The last lines that the worker printed in its last invocations; they may hold secrets.

        A journal that is late finds no process any more, so it names no invocation of what that has printed. Such
        lines count where no line of an earlier invocation comes after them; last words of the worker that was replaced
        may stand before them.
        """
        if self.worker.log is not None and not self.has_journal:
            return WorkerLog(self.machine, PurePosixPath(self.worker.log), sudo=self.worker.uses_sudo_for("log")).tail()
        lines = self._journal(invocations[0], _TAIL)
        return (lines if lines.strip() else self._lines_of_none_but(invocations)).decode("utf-8", "replace")

    def restart(self, request: RestartRequest) -> None:
        UnitRestart(self, request).run()

    def _process(self, unit: Unit, processes: Processes, paths: Sequence[str]) -> tuple[Process | None, bool | None]:
        if not unit.main_pid:
            return None, None
        family = processes.family(unit.main_pid)
        if family:
            return self.command_lines.reader(family, paths, folder=unit.working_directory)
        started = unit.main_started_at_boottime
        return (
            Process(
                pid=unit.main_pid,
                start=f"{processes.boot}/{unit.main_pid}/{started}",
                started_at=processes.at_uptime(started) if started is not None else processes.now,
                clock_offset=processes.clock_offset,
            ),
            None,
        )

    def _wrong_file(
        self, unit: Unit, process: Process | None, reads_file: bool | None, processes: Processes
    ) -> str | None:
        if not self._reads_another_file(process, reads_file, processes):
            return None
        return (
            f"no process of unit {unit.name} was started with {self.worker.config}: it is the unit of another worker, "
            "or 'config' names another file than the unit does"
        )

    def _obstacles(self, unit: Unit, parts: Mapping[str, bytes]) -> tuple[Obstacle, ...]:
        found = []
        if unit.has_hit_start_limit:
            found.append(
                Obstacle(
                    "restart",
                    f"unit {unit.name} has hit its start limit: it ended right after each of its last starts",
                    f"{_LOOK_AT_ITS_LOG} ({self.log}), correct what it reports, then: systemctl reset-failed "
                    f"{unit.name}",
                )
            )
        if unit.needs_reload:
            found.append(
                Obstacle(
                    "restart",
                    f"the files of unit {unit.name} were changed, and systemd has not read them: a restart would start "
                    "what it has read before",
                    f"systemctl daemon-reload on {self.where}, then plan again",
                    of_next_start=True,
                )
            )
        if unit.refuses_restart:
            what = f"unit {unit.name} refuses to be stopped or started by a command (RefuseManualStart=, …Stop=)"
            found.append(Obstacle("restart", what, "change its unit file", of_next_start=True))
        found += self._unpermitted(unit, parts)
        return tuple(found)

    def _rewritten(self, unit: Unit, parts: Mapping[str, bytes], processes: Processes) -> Iterator[Obstacle]:
        """Whether each start rewrites the worker's file, so that a change of it would be lost."""
        config, before = str(self.worker.config or ""), unit.before_start
        if not config or not before:
            return
        scripts = parts.get("before", b"").decode("utf-8", "replace").splitlines()
        began, started = unit.start_began_at_boottime, unit.main_started_at_boottime
        touched = parts.get("touched", b"").strip()
        if (
            touched
            and began is not None
            and started is not None
            and _is_within(float(touched), processes.at_uptime(began), processes.at_uptime(started))
        ):
            what = f"the last start of unit {unit.name} has written {config} before the worker read it"
        elif any(may_write(line, config) for line in (*before, *scripts)):
            what = f"unit {unit.name} runs what may write {config} before each start"
        else:
            return
        variables = {name: value for name, (value, _) in unit.variables().items()}
        commands = "; ".join(" ".join(shown_words(each.split(), variables)) for each in before)
        yield Obstacle(
            "change",
            f"{what} (ExecStartPre={commands[:_SHOWN_CHARACTERS]}): a change of it would be lost at the restart",
            "change the mode where that command takes it from and restart the unit manually, or take the command out "
            f"of unit {unit.name}, then plan again",
        )

    def _unpermitted(self, unit: Unit, parts: Mapping[str, bytes]) -> tuple[Obstacle, ...]:
        """Whether this login may restart the unit. What polkit's rules allow is only known once it is tried."""
        if self.worker.uses_sudo_for("service"):
            return self._missing_right()
        if parts.get("user", b"").strip() == b"0" or parts.get("polkit", b"").strip():
            return ()
        what = f"this login may not restart unit {unit.name} on {self.where}: it is not root, and polkit is absent"
        remedy = "let it go through sudo (machine: {sudo: [service]}), with the lines of 'eos hosts sudoers'"
        return (Obstacle("restart", what, remedy, of_next_start=True),)

    def _read_journal(self, unit: Unit) -> StartupLog:
        where = f"the journal of {unit.name}"
        if not unit.invocation:
            return StartupLog(None, f"{where} cannot be searched: systemd names no invocation of it")
        text = self._journal(unit.invocation, _STARTUP)
        found = mode_from_own_log(text, where)
        if found is not None:
            return found
        lines = text.splitlines()
        if _CLOSED in lines or _REFUSED in lines:
            return StartupLog(
                None,
                f"{where} may not be read by this login: make it a member of the group systemd-journal, or let the log "
                "go through sudo (machine: {sudo: [log]}), with the lines of 'eos hosts sudoers'",
            )
        return StartupLog(None, f"{where} holds no start-up of this invocation (its settings are printed at INFO)")

    def _journal(self, invocation: str, script: str) -> bytes:
        """What the worker printed in an invocation, as a script leaves it, in the order of time."""
        by_sudo = self.log_commands
        if by_sudo:
            words = self.sudo.words(by_sudo[0])
        else:
            match = f"{_INVOCATION_FIELD}={invocation}"
            words = ("journalctl", "--no-pager", "-o", "cat", match)
        kind = "json" if by_sudo else "text"
        answer = self.machine.run(["/bin/sh", "-c", script, "sh", kind, invocation, *words], seconds=JOURNAL_SECONDS)
        return _messages(answer.out) if by_sudo else answer.out

    def _lines_of_none_but(self, invocations: Sequence[str]) -> bytes:
        """What stands at the journal's end, back to the first entry of another invocation, without systemd's own."""
        by_sudo = self.log_commands
        words = self.sudo.words(by_sudo[0]) if by_sudo else self._entries_words
        of_any = ["/bin/sh", "-c", _TAIL, "sh", "json", "", *words]
        entries = self.machine.run(of_any, seconds=JOURNAL_SECONDS).out.splitlines()
        own = itertools.takewhile(lambda entry: _field(entry, _INVOCATION_FIELD) in (None, *invocations), entries)
        return _messages(b"\n".join(entry for entry in own if _field(entry, "_PID") != "1"))


class UnitRestart:
    """One restart of one worker's unit: one job of systemd's, given once, waited for, and reported.

    Once systemd has the job, it stops and starts the unit without any connection. Only the request may come twice: a
    command that a dying connection has delayed arrives later, or an answer is lost. So the machine compares first: it
    requests the job only if the unit still has the invocation to replace and no job runs. A command that arrives after
    the restart finds another invocation, and does nothing.

    How long the worker may take to stop, the unit's own limit says. When the unit has ended and was started is as
    systemd has it.
    """

    def __init__(self, service: SystemdService, request: RestartRequest) -> None:
        self._service = service
        self._request = request
        self._told: Unit | None = None  # whose moments were told last; None before this act has begun

    def run(self) -> None:
        """Restart it, unless this very act was done already."""
        request = self._request
        facts = self._startable(self._service.look())
        before = facts.unit
        if before.job:
            self._say("an earlier restart is still running; waiting for its end")
            facts = self._startable(self._wait_for_job(facts))
        if facts.has_done(request):
            self._tell_end(before, facts)
            self._request.on_event(facts.restarted_already)
            self._watch(facts.unit, facts.unit.restarts)
            return
        unit = facts.unit
        self._say_stop_limit(unit)
        request.permit("stop" if facts.process else "start")
        self._told = unit
        if unit.active_state == "failed":
            self._run_checked(self._service.reset_words(), "systemd could not reset its failure")
        self._watch(*self._restart(unit))

    def _startable(self, facts: UnitFacts) -> UnitFacts:
        if not facts.unit.is_loaded:
            raise ConfigurationError(
                f"{self._service.worker.worker_id} cannot be restarted: {facts.problem}.",
                remedy="Correct 'service' or 'machine' in the cluster description.",
            )
        if facts.unit.refuses_restart or facts.unit.needs_reload:
            obstacle = next(each for each in facts.obstacles if each.of_next_start)
            raise NotRestartedError(
                f"{self._service.worker.worker_id} is not restarted: {obstacle.what}.", remedy=f"{obstacle.remedy}."
            )
        return facts

    def _restart(self, unit: Unit) -> tuple[Unit, int]:
        """Give systemd the job once, whatever the connection does, and wait for its end.

        Besides the unit, returns what its count of systemd's own restarts may be without any since then: systemd sets
        it to 0 at a start by a command, but not where it was about to start the unit by itself.
        """
        may_have_given = False
        for _ in range(_ATTEMPTS):
            before = unit
            answer = self._compare_and_restart(before.invocation)
            if answer is not None and answer.exit_code not in (0, _MOVED, _BUSY):
                raise self._refusal(answer)
            may_have_given = may_have_given or answer is None
            facts = self._look_again()
            if answer is not None and answer.ok:
                return self._wait_for_job(facts, replaces=before.invocation).unit, before.restarts
            if facts.unit.job:
                facts = self._wait_for_job(facts)
            unit = facts.unit
            if unit.invocation != before.invocation and (may_have_given or facts.has_done(self._request)):
                return unit, unit.restarts
            # The command was lost before it ran, or the unit was in another invocation when it came: once more.
        raise RefusedError(
            f"{self._service.worker.worker_id} was not restarted: its unit changed at each of {_ATTEMPTS} attempts.",
            remedy=f"It keeps ending: read its log ({self._service.log}).",
        )

    def _compare_and_restart(self, invocation: str) -> Answer | None:
        """Its answer; None where the connection was lost before that."""
        words = ["/bin/sh", "-c", _COMPARE_AND_RESTART, "sh", self._service.unit, invocation]
        try:
            return self._service.machine.run([*words, *self._service.restart_words()])
        except MachineLostError as error:
            if not error.may_have_run:
                raise
            self._say(f"the connection to {self._service.where} was lost; checking the restart there")
            return None

    def _look_again(self, give_up_at: float | None = None) -> UnitFacts:
        """A look after the act may have begun. No answer yet says nothing of the worker: the connection may have to be
        mended, systemd may just execute itself anew, and a machine that boots refuses logins until it is up.
        """
        deadline = time.monotonic() + SLACK_SECONDS if give_up_at is None else give_up_at
        while True:
            lost: EosError
            try:
                facts = self._service.look()
                if facts.unit.is_loaded:
                    self._tell(facts)
                    return facts
                lost = MachineLostError(f"{facts.problem}.", may_have_run=True)
            except EosError as error:
                lost = error
            if time.monotonic() >= deadline:
                if isinstance(lost, MachineLostError):
                    raise lost
                raise MachineLostError(lost.found, remedy=lost.remedy, may_have_run=True) from lost
            time.sleep(_LOOK_SECONDS)

    def _wait_for_job(self, facts: UnitFacts, *, replaces: str | None = None) -> UnitFacts:
        seconds = _bounded(facts.unit.stop_seconds) * _KILLS + _bounded(facts.unit.start_seconds)
        deadline = time.monotonic() + seconds + SLACK_SECONDS
        while facts.unit.job or not (replaces is None or _is_replaced(facts.unit, replaces)):
            if time.monotonic() >= deadline:
                raise RestartPendingError(
                    f"The restart of {self._service.worker.worker_id} is not over after {seconds:.0f} s; systemd "
                    f"continues it without this process. Unit {self._service.unit} is {facts.unit.state}.",
                    remedy=f"Check what it waits for on {self._service.where}: systemctl status {self._service.unit}; "
                    "systemctl list-jobs.",
                )
            time.sleep(_LOOK_SECONDS)
            facts = self._look_again(deadline)
        return facts

    def _watch(self, unit: Unit, restarts: int) -> None:
        """Wait until the worker listens, or its first seconds are over; what comes later is the gate's."""
        first, url = unit.invocation, self._service.worker.url
        deadline = time.monotonic() + EARLY_END_SECONDS
        while True:
            if unit.is_stopped or unit.invocation != first or unit.restarts not in (0, restarts):
                raise self._ended(unit, first)
            if accepts_connections(url, seconds=_CONNECT_SECONDS) or time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_SECONDS)
            unit = self._look_again(deadline + SLACK_SECONDS).unit

    def _ended(self, unit: Unit, invocation: str) -> WorkerStartError:
        service, state = self._service, unit.state
        again = f"; systemd has started it again {unit.restarts} times" if unit.restarts else ""
        return WorkerStartError(
            f"{service.worker.worker_id} (unit {service.unit}) ended right after its start: it is {state}{again}. "
            f"Its log:\n{self._tail(invocation)}",
            remedy=f"Correct what the log reports ({service.log}).",
        )

    def _tail(self, invocation: str) -> str:
        """What it printed last; on a busy machine the journal has that a moment after systemd has seen the end."""
        invocations = [invocation]
        deadline = time.monotonic() + LAST_LINES_SECONDS
        try:
            while not (text := self._service.last_lines(invocations)).strip() and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                latest = self._service.look().unit.invocation
                if latest not in ("", *invocations):
                    invocations.append(latest)
        except EosError as error:
            return f"(the log cannot be read: {error.found})"
        return shown_lines(text, secrets=secrets_of(dict(self._service.worker.env)))

    def _run_checked(self, words: tuple[str, ...], otherwise: str) -> None:
        answer = self._service.machine.run(words)
        if not answer.ok:
            self._say(f"{otherwise}: {answer.problem}")

    def _refusal(self, answer: Answer) -> NotRestartedError:
        words = " ".join(self._service.restart_words())
        said = answer.err.decode("utf-8", "replace").strip()
        if any(each in said.lower() for each in _PERMISSION_WORDS):
            why = said.splitlines()[0].rstrip(".")  # systemctl's last line says where to look for more
            return NotRestartedError(
                f"{self._service.worker.worker_id} was not restarted: '{words}' is not allowed: {why}. "
                "Nothing was stopped.",
                remedy="Let it go through sudo (machine: {sudo: [service]}), with the lines of 'eos hosts sudoers'.",
            )
        return NotRestartedError(
            f"{self._service.worker.worker_id} was not restarted: '{words}' failed: {answer.problem}.",
            remedy=f"Check it on {self._service.where}: systemctl status {self._service.unit}.",
        )

    def _say(self, words: str) -> None:
        self._request.on_event(RestartEvent(words))

    def _tell(self, facts: UnitFacts) -> None:
        """Report the moments of this act that are known by now, each once."""
        if self._told is None:
            return
        before, unit = self._told, facts.unit
        self._told = unit
        self._tell_end(before, facts)
        started = unit.main_started_at_boottime
        if started not in (None, before.main_started_at_boottime):
            words = f"started as pid {unit.main_pid}" if unit.main_pid else "started"
            self._request.on_event(RestartEvent(words, Moment.STARTED, facts.at_uptime(started)))

    def _tell_end(self, before: Unit, facts: UnitFacts) -> None:
        """Report when the unit has ended, if it has since it was seen before."""
        ended = facts.unit.ended_at_boottime
        if ended not in (None, before.ended_at_boottime):
            words = f"unit {facts.unit.name} has ended"
            self._request.on_event(RestartEvent(words, Moment.STOPPED, facts.at_uptime(ended)))

    def _say_stop_limit(self, unit: Unit) -> None:
        """Which limit the stop has, where it is not the one that the roll was given."""
        limit = unit.stop_seconds
        if limit is None:
            self._say(f"unit {unit.name} may take for ever to stop (TimeoutStopSec=infinity)")
        elif abs(limit - (grace := self._request.stop_grace_seconds)) > 1.0:
            self._say(
                f"systemd kills it {limit:.0f} s after its stop begins (TimeoutStopSec=), not after {grace:.0f} s"
            )


def _is_within(moment: float, begin: float, end: float) -> bool:
    return begin - CLOCK_TICK_SECONDS <= moment <= end + CLOCK_TICK_SECONDS


def _field(entry: bytes, name: str) -> object:
    """A field of an entry; None where it is absent, or where this is what a command has to say, not an entry."""
    try:
        return json.loads(entry).get(name)
    except (ValueError, AttributeError):
        return None


def _messages(out: bytes) -> bytes:
    """The messages of a journal's entries as JSON, newest first, as text in the order of time."""
    lines = []
    for line in reversed(out.splitlines()):
        try:
            message = json.loads(line)["MESSAGE"]
            lines.append(message.encode() if isinstance(message, str) else bytes(message))
        except (ValueError, KeyError, TypeError):
            lines.append(line)
    return b"\n".join(lines) + b"\n"


def _token(unit: Unit, process: Process | None) -> StartToken:
    """Names this start: the unit's, and of a process that the unit's own has started, that one's."""
    if process is None:
        return NOT_RUNNING
    name = unit.invocation or process.start
    return StartToken(name if process.pid == unit.main_pid else f"{name}/{process.start}")


def _problem(unit: Unit, asked: str, where: str, shown: str) -> str | None:
    """What the description has wrong, as systemd says."""
    if not unit.load_state:
        said = shown.splitlines()[-1][:200] if shown else "systemctl printed nothing"
        return f"systemd on {where} does not report {asked}: {said}"
    match unit.load_state:
        case "loaded":
            return None
        case "not-found":
            return f"there is no unit {asked} on {where}"
        case "masked":
            return f"unit {asked} on {where} is masked: nothing may start it (systemctl unmask)"
        case other:
            return f"unit {asked} on {where} is not loaded ({other}): {unit.load_error or 'see systemctl status'}"


def _details(unit: Unit, process: Process | None, processes: Processes, machine: str) -> dict[str, object]:
    details: dict[str, object] = {"unit": unit.name, "pid": process.pid if process else None, "state": unit.state}
    if machine:
        details["machine"] = machine
    if unit.restarts:
        details["restarts_by_systemd"] = unit.restarts
    if unit.unread_files:
        details["unreadable"] = list(unit.unread_files)
    if processes.hides and process is not None and not process.name:
        details["hidden"] = "processes of other users are hidden from this login (hidepid)"
    return details


def _example(template: str) -> str:
    return template.removesuffix(".service") + "1.service"


def _is_replaced(unit: Unit, invocation: str) -> bool:
    """Whether a start has come after that invocation; a unit that failed at once may be forgotten with its name."""
    return unit.invocation != invocation or (unit.active_state == "failed" and unit.result != "success")


def _bounded(seconds: float | None) -> float:
    return LONGEST_SECONDS if seconds is None else min(seconds, LONGEST_SECONDS)
