"""A worker of another machine that nobody owns: its description's start command starts it there.

It is known by its pid file, else by its very start command. A restart stops it by signals and starts it anew, by a
shell of its machine that outlives the connection; see ``far_act.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.startup_log import StartupLog
from airflow_eos_provider.data_text import sentence
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.redaction import remember
from airflow_eos_provider.rollout.hosts.host import NOT_RUNNING, Obstacle, Permit, StartToken
from airflow_eos_provider.rollout.hosts.launch import Launch, how_to_start, launch_of
from airflow_eos_provider.rollout.hosts.machine.far_process import (
    BEGIN_PROBE,
    END_OF_PROBE,
    CommandLines,
    FarProcess,
    FarProcesses,
    as_word,
    names_path,
    parts_of,
    processes_of,
)
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.sudo import Command
from airflow_eos_provider.rollout.hosts.ownership import SHELLS, ProcessView, obstacles
from airflow_eos_provider.rollout.hosts.restart_event import OnEvent
from airflow_eos_provider.rollout.hosts.service.far_act import ActKey, FarTask, listening_at
from airflow_eos_provider.rollout.hosts.service.far_restart import FarRestart, restarted_by, under_way
from airflow_eos_provider.rollout.hosts.service.service import ServiceFacts

#: Option of ``connect-distributed.sh`` to end at once and let the worker run on.
_DAEMON = "-daemon"

#: A process that started so long after its pid file was written merely inherited the number, seconds.
_PID_FILE_SECONDS = 1.0

#: A process that is about to end is looked at so often, with a pause of so many seconds.
_LOOKS, _LOOK_SECONDS = 5, 0.2

#: Programs that start scripts are written for.
_INTERPRETERS = (*sorted(SHELLS), "python", "perl", "ruby")

#: Its arguments: config, pid file, log, working folder, program, the worker's own PATH, and where it listens. A view of
#: a process is what tells whose it is; views are taken of this shell, and of the worker and those above it.
_LOOK = (
    as_word(
        BEGIN_PROBE
        + """
    config=$1; pid_file=$2; log=$3; cwd=$4; program=$5; path=$6; listen=$7;
    part config; readlink -f -- "$config";
    part pid_at; stat -L -c %Y -- "$pid_file" 2>/dev/null;
    part pid; head -c 100 -- "$pid_file" 2>/dev/null;
    part closed; if [ -e "$pid_file" ] && [ ! -r "$pid_file" ]; then echo closed; fi;
    part listens; grep -E "^ *[0-9]+: ($listen) [0-9A-F]+:[0-9A-F]+ 0A " /proc/self/net/tcp /proc/self/net/tcp6;
    part unwritable; for file in "$log" "$pid_file"; do
    if [ -e "$file" ]; then [ -f "$file" ] && [ -w "$file" ] || echo "$file"; fi; done;
    folder=${pid_file%/*}; [ ! -d "$folder" ] || [ -w "$folder" ] || echo "$folder";
    folder=${log%/*}; [ -e "$log" ] || [ ! -d "$folder" ] || [ -w "$folder" ] || echo "$folder";
    part wrong; [ -d "$cwd" ] || echo cwd; command -v setsid >/dev/null || echo setsid;
    (cd "$cwd" 2>/dev/null; PATH=${path:-$PATH}; command -v "$program" >/dev/null) || echo program;
    view() { part "view $1"; cat "/proc/$1/stat"; part "status $1"; grep -E '^Uid:' "/proc/$1/status";
    stat -c 'User: %U' "/proc/$1"; for kind in pid mnt; do
    link=$(readlink "/proc/$1/ns/$kind") && echo "$kind: $link"; done;
    part "cgroup $1"; cat "/proc/$1/cgroup"; part "line $1"; cat "/proc/$1/cmdline"; };
    echo; part self; echo "$$"; view "$$" 2>/dev/null;
    pid=$(head -n 1 -- "$pid_file" 2>/dev/null); steps=0;
    case $pid in ''|*[!0-9]*) pid=0;; esac;
    while [ "$pid" -gt 0 ] && [ "$steps" -lt 16 ]; do view "$pid" 2>/dev/null; steps=$((steps + 1));
    above=; while read -r key value; do case $key in PPid:) above=$value;; esac; done 2>/dev/null <"/proc/$pid/status";
    pid=${above:-0}; done;
    """
    )
    + END_OF_PROBE
)

#: Prints the pids of the processes whose command line has a word in it.
_FIND = 'grep -lasF -e "$1" /proc/[0-9]*/cmdline | cut -d / -f 3'

_WORDS = {
    "cwd": "its working folder {cwd} does not exist on {where}",
    "program": "its start command names no program that can be run on {where} ({program})",
    "setsid": "{where} has no setsid (util-linux)",
}


@dataclass(frozen=True, slots=True)
class StartedFacts(ServiceFacts):
    """The facts of a worker that a start command starts.

    :param top: the first process of the worker's family.
    :param is_own: whether its command line names the worker's file or is its start command.
    :param listens: whether anything listens at the worker's port.
    :param pid_file_said: the pid file's first word.
    """

    top: FarProcess | None = field(default=None, repr=False)
    is_own: bool = False
    listens: bool = False
    pid_file_said: str = ""


class StartedService:
    """One worker that nobody owns; a :class:`~airflow_eos_provider.rollout.hosts.service.service.Service`.

    :param machine: where it runs.
    :param worker: its description.
    :ivar address: where the worker itself listens; behind a proxy that is not the address that it advertises.
    """

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        self._machine = machine
        self._worker = worker
        self.address = worker.url
        self._command_lines = CommandLines(machine)
        self._restart = FarRestart(machine, worker, self.look, self._task)
        remember(worker.env)

    @property
    def _where(self) -> str:
        return self._machine.name or "this machine"

    @property
    def launch(self) -> Launch:
        """The start command, its folder and its variables."""
        return launch_of(self._worker)

    @property
    def how_to_start(self) -> str:
        """In words, how the worker is started again where it has ended."""
        return f"on {self._where}, {how_to_start(self._worker)}"

    @property
    def log(self) -> str:
        """A path."""
        return str(self._worker.log or "")

    @property
    def commands(self) -> tuple[Command, ...]:
        """None: what the login itself has started, it may stop."""
        return ()

    @property
    def log_commands(self) -> tuple[Command, ...]:
        """None of its own: its log is a file."""
        return ()

    def look(self) -> StartedFacts:
        """The worker's process as it is now.

        :raises MachineLostError: its machine cannot be reached.
        :raises CommandError: it is no Linux.
        """
        for _ in range(_LOOKS):
            facts = self._look_once()
            if facts.process is None or facts.process.command_line:
                break
            time.sleep(_LOOK_SECONDS)  # a process that is ending has no words any more
        return facts

    def _look_once(self) -> StartedFacts:
        worker = self._worker
        sent_at = time.time()
        arguments = (
            *(str(each or "") for each in (worker.config, worker.pid_file, worker.log)),
            str(worker.cwd or "/"),
        )
        program = worker.start[0] if worker.start else ""
        words = (*arguments, program, worker.env.get("PATH", ""), listening_at(self.address))
        parts = parts_of(self._machine.run(["/bin/sh", "-c", _LOOK, "sh", *words]).out)
        processes = processes_of(parts, sent_at=sent_at, answered_at=time.time())
        pid = _named_pid(parts, processes) or self._find(processes)
        family = processes.family(pid) if pid else ()
        paths = (str(worker.config or ""), _text(parts, "config"))

        def names(line: Sequence[str], folder: str) -> bool:
            return names_path(line, folder or str(worker.cwd or ""), paths)

        process, reads_file = self._command_lines.reader(family, names)
        views = dict(_views(parts))
        listens = bool(parts.get("listens", b"").strip())
        top = self._top(family[0], processes, views) if family else None
        record = self._restart.record()
        return StartedFacts(
            process=process,
            token=StartToken(process.start) if process else NOT_RUNNING,
            reads_file=reads_file,
            state="" if process else self._state(parts, listens=listens),
            stopped=process is None and not listens and worker.pid_file is not None and not parts.get("closed"),
            runs_as=f"pid {process.pid}" if process else "",
            details={"pid": process.pid if process else None, "machine": self._where},
            problem="; ".join(self._gaps(parts)) or None,
            obstacles=tuple(self._obstacles(parts, family, top, views)),
            restart=under_way(record),
            restarted=restarted_by(record, top),
            variables=worker.env,
            variable_sources=dict.fromkeys(worker.env, "the cluster description"),
            clock_offset=processes.clock_offset,
            top=top,
            is_own=bool(reads_file) or (process is not None and process.command_line == worker.start),
            listens=listens,
            pid_file_said=" ".join(_text(parts, "pid").partition("\n")[0].split()[:1]),
        )

    def launch_now(self, facts: ServiceFacts) -> Launch:
        """The start command, its folder and its variables."""
        return self.launch

    def startup(self, facts: ServiceFacts) -> StartupLog:
        """Nothing: what it prints goes into a file, if anywhere."""
        return StartupLog(None, "the description has no log")

    def restart(
        self,
        *,
        config_sha256: str,
        changed_at: float | None,
        stop_grace_seconds: float,
        on_event: OnEvent,
        permit: Permit,
        rollout: str,
        replaces: str,
    ) -> None:
        """Stop it by signals and start it by its start command; see ``far_act.py``."""
        self._restart.run(
            config_sha256=config_sha256,
            changed_at=changed_at,
            stop_grace_seconds=stop_grace_seconds,
            on_event=on_event,
            permit=permit,
            rollout=rollout,
            replaces=replaces,
        )

    def _task(self, facts: ServiceFacts, key: ActKey, grace_seconds: float) -> FarTask:
        """What is to be done.

        :raises ConfigurationError: the worker cannot be started.
        :raises RefusedError: it is not this worker's alone.
        """
        worker = self._worker
        assert isinstance(facts, StartedFacts)
        if facts.problem is not None:
            raise ConfigurationError(
                f"{worker.worker_id} cannot be started: {facts.problem}.",
                remedy="Complete the worker in the cluster description.",
            )
        if facts.process is None and facts.listens:
            raise RefusedError(
                f"{worker.worker_id} is held by another process on {self._where}, "
                f"which the pid file {worker.pid_file} does not name.",
                remedy="Look what that process is. If it is this worker, write its pid into the pid file.",
            )
        if facts.process is not None and not facts.is_own:
            raise RefusedError(
                f"The pid file {worker.pid_file} names process {facts.process.pid} on {self._where}, whose command "
                f"line names neither {worker.config} nor the start command of {worker.worker_id}.",
                remedy="Look what that process is, then correct pid_file, config or start.",
            )
        for obstacle in [each for each in facts.obstacles if each.act == "restart"]:
            raise RefusedError(
                f"{worker.worker_id} may not be restarted from here: {obstacle.what}. Nothing was stopped.",
                remedy=sentence(obstacle.remedy),
            )
        return FarTask(
            key=key,
            kind="started",
            words=worker.start,
            stop_pid=facts.top.pid if facts.top else 0,
            stop_ticks=facts.top.ticks if facts.top else 0,
            grace_seconds=grace_seconds,
            url=self.address,
            cwd=str(worker.cwd or "/"),
            log=str(worker.log),
            pid_file=str(worker.pid_file),
            pid_file_said=facts.pid_file_said,
            env=worker.env,
        )

    def _find(self, processes: FarProcesses) -> int | None:
        """The pid of the process whose command line is the start command, with the worker's file in it.

        Finds a worker whose pid file is stale: restarted manually, or by a restart that was killed.
        """
        worker = self._worker
        if worker.config is None or str(worker.config) not in worker.start:
            return None
        answer = self._machine.run(["/bin/sh", "-c", _FIND, "sh", str(worker.config)])
        found = []
        for pid in answer.out.decode("ascii", "replace").split():
            if pid.isdigit() and int(pid) in processes.by_pid:
                line = self._machine.run(["cat", f"/proc/{pid}/cmdline"]).out
                if _words(line) == worker.start:
                    found.append(int(pid))
        return found[0] if len(found) == 1 else None

    def _top(self, first: FarProcess, processes: FarProcesses, views: Mapping[int, _View]) -> FarProcess:
        """Above the given process, as far as the worker's own start command goes: a start script that stays."""
        top = first
        while (above := views.get(top.parent)) is not None and top.parent > 1 and self._is_start_command(above.line):
            top = processes.by_pid.get(top.parent, top)
            if top.pid != above.view.pid:
                break
        return top

    def _is_start_command(self, line: Sequence[str]) -> bool:
        """Whether a command line is the start command; a script's interpreter may stand before it."""
        start = self._worker.start
        first = len(line) - len(start)
        if not start or first < 0 or tuple(line[first + 1 :]) != start[1:]:
            return False
        by_interpreter = first == 1 or (first == 2 and line[1].startswith("-"))
        if first and not (by_interpreter and PurePosixPath(line[0]).name.startswith(_INTERPRETERS)):
            return False
        return PurePosixPath(line[first]).name == PurePosixPath(start[0]).name

    def _obstacles(
        self,
        parts: Mapping[str, bytes],
        family: Sequence[FarProcess],
        top: FarProcess | None,
        views: Mapping[int, _View],
    ) -> Iterator[Obstacle]:
        own = int(_text(parts, "self") or 0)
        here, view = views.get(own), views.get(top.pid) if top else None
        if here is not None and view is not None:
            parent = views.get(view.view.parent)
            yield from obstacles(view.view, parent.view if parent else None, here.view, frozenset({own}))
        for path in _text(parts, "unwritable").splitlines():
            what = f"{path} on {self._where} may not be written by this login"
            yield Obstacle("restart", what, "let this login write it, or log in as the user who runs the worker")
        for member in family:
            if member.is_suspended:
                what = f"its process {member.pid} is suspended (SIGSTOP)"
                yield Obstacle("answer", what, f"continue it: kill -CONT {member.pid}")
                break

    def _gaps(self, parts: Mapping[str, bytes]) -> Iterator[str]:
        """What the description lacks for a roll, in words."""
        worker = self._worker
        for name in ("config", "log", "pid_file", "start"):
            if not getattr(worker, name):
                yield f"it has no '{name}'"
        wrong = _text(parts, "wrong").split()
        if "cwd" in wrong and "program" in wrong:
            wrong.remove("program")
        for word in wrong if worker.start else ():
            yield _WORDS[word].format(cwd=worker.cwd, where=self._where, program=worker.start[0])
        if _DAEMON in worker.start:
            yield f"its start command leaves the worker to itself ({_DAEMON}), so nobody knows its process"

    def _state(self, parts: Mapping[str, bytes], *, listens: bool) -> str:
        pid_file = self._worker.pid_file
        if pid_file is None:
            return "its process is not known: the description has no pid_file"
        if parts.get("closed"):
            return f"its pid file {pid_file} cannot be read on {self._where}"
        held = ", but its port is held by another process" if listens else ""
        return f"{pid_file} names no live process on {self._where}{held}"


@dataclass(frozen=True, slots=True)
class _View:
    view: ProcessView
    line: tuple[str, ...] = field(repr=False)


def _named_pid(parts: Mapping[str, bytes], processes: FarProcesses) -> int | None:
    """The process that the pid file names, if it still runs and is older than the file."""
    pid, written_at = _text(parts, "pid").partition("\n")[0].strip(), _text(parts, "pid_at")
    if not pid.isdecimal() or not written_at.isdecimal():
        return None
    process = processes.by_pid.get(int(pid))
    if process is None or process.started_at > int(written_at) + 1 + _PID_FILE_SECONDS:
        return None
    return process.pid


def _views(parts: Mapping[str, bytes]) -> Iterator[tuple[int, _View]]:
    for name, content in parts.items():
        if not name.startswith("view ") or not content.strip():
            continue
        pid = name.removeprefix("view ")
        numbers = content.rpartition(b")")[2].split()
        status = dict(
            line.partition(": ")[::2] for line in _text(parts, f"status {pid}").replace("\t", " ").splitlines()
        )
        uids = status.get("Uid", "").split()
        if len(numbers) < 4 or len(uids) < 2:
            continue
        cgroups = _text(parts, f"cgroup {pid}").splitlines()
        view = ProcessView(
            pid=int(pid),
            name=content.partition(b"(")[2].rpartition(b")")[0].decode("utf-8", "replace"),
            uid=int(uids[1]),
            parent=int(numbers[1]),
            session=int(numbers[3]),
            cgroups=tuple(line.split(":", 2)[2] for line in cgroups if line.count(":") >= 2),
            namespaces={kind: status[kind] for kind in ("pid", "mnt") if kind in status},
            user=status.get("User", ""),
        )
        yield view.pid, _View(view, _words(parts.get(f"line {pid}", b"").removesuffix(b"\n")))


def _words(line: bytes) -> tuple[str, ...]:
    text = line.decode("utf-8", "surrogateescape")
    return tuple(text.removesuffix("\0").split("\0")) if text else ()


def _text(parts: Mapping[str, bytes], name: str) -> str:
    return parts.get(name, b"").decode("utf-8", "surrogateescape").strip()
