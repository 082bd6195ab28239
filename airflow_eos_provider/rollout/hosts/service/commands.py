"""A worker that belongs to a supervisor with commands of its own: supervisord, runit, s6, or an owner's scripts.

The supervisor's status names a pid; that pid, its start ticks and its machine's boot identify the process. So only
another process counts as a restart, not the supervisor's report of one.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.cluster.placement import OwnCommands
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.redaction import redact
from airflow_eos_provider.rollout.hosts.host import NOT_RUNNING, StartToken
from airflow_eos_provider.rollout.hosts.launch import Launch, digest_of, one_line, shown_words
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, Machine
from airflow_eos_provider.rollout.hosts.machine.processes import Process, Processes, probe
from airflow_eos_provider.rollout.hosts.machine.sudo import Command
from airflow_eos_provider.rollout.hosts.service.restart_act import ActingService, ActKey, RestartTask
from airflow_eos_provider.rollout.hosts.service.service import ServiceFacts, details_of, suspended

#: A status command that does not answer within this many seconds is ended.
STATUS_SECONDS = 10

#: A process that ended between the status and the look at it is asked for so often.
_LOOKS = 3

#: What ``timeout`` and a shell answer: too slow, may not be executed, no such program.
_TOO_SLOW, _NOT_EXECUTABLE, _NOT_FOUND = 124, 126, 127

#: Exit code of a status for "program is not running" (LSB). supervisorctl has it for what is about to run, too.
_NOT_RUNNING = 3

#: Programs whose only way to say that nothing runs is exit code 1 and no word.
_SILENT_PROGRAMS = frozenset({"pgrep", "pidof"})

#: ``pid 4711``, ``(pid 4711)``, ``MainPID=4711``, ``pid: 4711``.
_PID = re.compile(r"(?<![A-Za-z0-9_.-])(?:pid|PID|Pid|MainPID)[ \t:=]+([0-9]{1,10})(?![\w.-])")

_NUMBER = re.compile(r"-?[0-9]{1,10}|none", re.IGNORECASE)

#: What supervisors call a worker that does not run; not one that is being started or stopped.
_STOPPED = re.compile(
    r"(?<![\w./-])(down|stopped|exited|fatal|not running|not started|inactive|dead|failed)(?![\w./-])",
    re.IGNORECASE,
)

_ON_ITS_WAY = re.compile(r"\b(BACKOFF|STARTING|STOPPING|UNKNOWN)\b")


@dataclass(frozen=True, slots=True)
class Status:
    """What a status command has answered."""

    pid: int | None = None  #: the worker's first process; None where none is named
    stopped: bool = False  #: whether it is said not to run
    said: str = ""  #: in words, its answer, or what is wrong with it
    problem: str | None = None  #: in words, why it tells neither; None if it does


class CommandService(ActingService):
    """One worker of a supervisor."""

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        assert isinstance(worker.service, OwnCommands)
        super().__init__(machine, worker)
        self._own = worker.service
        self._paths: tuple[str, ...] = ()

    @property
    def how_to_start(self) -> str:
        command = one_line(shown_words(self._own.restart, {}))
        log = f"; its log {self.log} may say why it ended" if self.log else ""
        return f"start {self.worker.worker_id}: {command} on {self.where}{log}"

    @property
    def commands(self) -> tuple[Command, ...]:
        """Its restart and its status, for root where the description has sudo do them."""
        user = "root" if self.worker.uses_sudo_for("service") else ""
        return (Command(self._own.restart, user), Command(self._own.status, user))

    def launch(self, facts: ServiceFacts | None = None) -> Launch:
        """The command that restarts it; what that executes, only its supervisor knows."""
        words = self._own.restart
        return Launch(shown_words(words, {}), digest=digest_of(self.worker.worker_id, json.dumps(words)))

    def look(self) -> ServiceFacts:
        for attempt in range(_LOOKS):
            status = self._status()
            processes, _ = probe(self.machine)
            if status.pid is None or status.pid in processes.by_pid or attempt == _LOOKS - 1:
                break
        family = processes.family(status.pid) if status.pid is not None else ()
        process, reads_file = self.command_lines.reader(family, self._config_paths())
        facts = ServiceFacts(
            process=process,
            token=StartToken(process.start) if process else NOT_RUNNING,
            reads_file=reads_file,
            state="" if process else status.problem or f"its supervisor says: {status.said}",
            stopped=status.stopped,
            runs_as=f"pid {process.pid}" if process else "",
            details=details_of(process, self.machine),
            problem=self._problem(status, process, reads_file, processes),
            obstacles=(*self._missing_right(), *suspended(family)),
            clock_offset=processes.clock_offset,
            top=family[0] if family else None,
        )
        return self._with_act(facts)

    def _task(self, facts: ServiceFacts, key: ActKey, grace_seconds: float) -> RestartTask:
        worker_id = self.worker.worker_id
        if facts.problem is not None:
            raise ConfigurationError(
                f"{worker_id} cannot be restarted: {facts.problem}.",
                remedy="Correct 'service' or 'machine' in the cluster description.",
            )
        facts.require_restartable(worker_id)
        restart, status = self.commands
        return RestartTask(
            key=key,
            kind="commands",
            words=self.sudo.words(restart),
            status=self.sudo.words(status),
            stop_pid=facts.top.pid if facts.top else 0,
            stop_ticks=facts.top.ticks if facts.top else 0,
            grace_seconds=grace_seconds,
            url=self.worker.url,
            log=self.log,
        )

    def _status(self) -> Status:
        words = self.sudo.words(self.commands[1])
        answer = self.machine.run(["timeout", str(STATUS_SECONDS), *words], seconds=STATUS_SECONDS + 5.0)
        return status_of(answer, self._own.status)

    def _config_paths(self) -> tuple[str, ...]:
        """The worker's file, as it is described and behind links."""
        if self.worker.config is None:
            return ()
        if not self._paths:
            config = str(self.worker.config)
            answer = self.machine.run(["readlink", "-f", "--", config])
            self._paths = (config, answer.out.decode("utf-8", "surrogateescape").rstrip("\n"))
        return self._paths

    def _problem(
        self, status: Status, process: Process | None, reads_file: bool | None, processes: Processes
    ) -> str | None:
        if status.problem is not None:
            return status.problem
        shown = one_line(shown_words(self._own.status, {}))
        if status.pid is not None and process is None:
            if processes.hides:
                return f"'{shown}' names pid {status.pid}, which is hidden from this login on {self.where} (hidepid)"
            return (
                f"'{shown}' names pid {status.pid}, which does not run on {self.where}: it speaks of another machine "
                "or of a container"
            )
        if not self._reads_another_file(process, reads_file, processes):
            return None
        return (
            f"'{shown}' names pid {status.pid}, and no process of it was started with {self.worker.config}: it is "
            "another worker's, or 'config' names another file"
        )


def status_of(answer: Answer, command: Sequence[str]) -> Status:
    """What a status command's answer says.

    A worker runs where one pid is named. It does not run where that is said: by the pid 0 or none, by a word of the
    supervisors', or by an exit code that means nothing else. Anything else is not known.
    """
    out = answer.out.decode("utf-8", "replace").strip()
    said = redact((out or answer.err.decode("utf-8", "replace").strip()).partition("\n")[0].strip())[:300]
    shown = one_line(shown_words(command, {}))
    if answer.exit_code == _TOO_SLOW:
        return Status(problem=f"'{shown}' did not answer within {STATUS_SECONDS} s")
    if answer.exit_code in (_NOT_EXECUTABLE, _NOT_FOUND):
        return Status(problem=f"'{shown}' cannot be run: {answer.problem}")
    # runit's sv tells of the log's process behind a semicolon, in the same line
    texts = [line.partition(";")[0].strip() for line in out.splitlines()]
    pids = {int(match[1]) for text in texts for match in _PID.finditer(text)}
    if _NUMBER.fullmatch(out):
        pids = {max(0, int(out))} if out.lower() != "none" else {0}
    named = sorted(pids - {0})
    if len(named) > 1:
        return Status(problem=f"'{shown}' names several pids ({', '.join(map(str, named))}); let it name the worker's")
    if named:
        return Status(named[0], said=said)
    if pids or _is_stopped(answer, texts, command):
        return Status(stopped=True, said=said or "nothing runs")
    code = f" (exit {answer.exit_code})" if answer.exit_code else ""
    return Status(problem=f"'{shown}' names no pid, and does not say that the worker is stopped{code}: {said}")


def _is_stopped(answer: Answer, texts: Sequence[str], command: Sequence[str]) -> bool:
    if answer.exit_code == _NOT_RUNNING:
        return not any(_ON_ITS_WAY.search(text) for text in texts)
    if answer.ok:
        return any(_STOPPED.search(text) for text in texts)
    is_silent = not answer.out.strip() and not answer.err.strip()
    return answer.exit_code == 1 and is_silent and posixpath.basename(command[0]) in _SILENT_PROGRAMS
