"""A worker that nobody owns: its description's start command starts it, on this machine or another one.

Its pid file identifies it or, without one, its start command. A restart stops it by signals and starts it again, by a
shell of its machine that outlives its caller; see ``restart_act.py``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import psutil

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.redaction import remember
from airflow_eos_provider.rollout.hosts import ownership
from airflow_eos_provider.rollout.hosts.host import NOT_RUNNING, Obstacle, StartToken
from airflow_eos_provider.rollout.hosts.launch import Launch, how_to_start, launch_of
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.processes import Process, Processes, names_path, probe, words_of
from airflow_eos_provider.rollout.hosts.ownership import SHELLS, ProcessView, obstacles
from airflow_eos_provider.rollout.hosts.service.restart_act import ActingService, ActKey, RestartTask, listening_at
from airflow_eos_provider.rollout.hosts.service.service import ServiceFacts, details_of, suspended

#: Option of ``connect-distributed.sh`` to end at once and let the worker run on.
_DAEMON = "-daemon"

#: A process that started so long after its pid file was written merely inherited the number, seconds.
_PID_FILE_SECONDS = 1.0

#: A process that is about to end is looked at so often, with a pause of so many seconds.
_LOOKS, _LOOK_SECONDS = 5, 0.2

#: Programs that start scripts are written for.
_INTERPRETERS = (*sorted(SHELLS), "python", "perl", "ruby")

_WORDS = {
    "cwd": "its working folder {cwd} does not exist on {where}",
    "program": "its start command names no program that can be run on {where} ({program})",
    "setsid": "{where} has no setsid (util-linux)",
}


@dataclass(frozen=True, slots=True)
class StartedFacts(ServiceFacts):
    is_own: bool = False  #: whether its command line names the worker's file or is its start command
    held_by: str = ""  #: in words, another process that listens at the worker's address; empty if none is known
    pid_file_said: str = ""  #: the pid file's first word


class StartedService(ActingService):
    """One worker that nobody owns: a start command starts it."""

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        super().__init__(machine, worker)
        remember(worker.env)

    @property
    def how_to_start(self) -> str:
        return f"on {self.where}, {how_to_start(self.worker)}"

    def launch(self, facts: ServiceFacts | None = None) -> Launch:
        return launch_of(self.worker)

    def look(self) -> StartedFacts:
        for _ in range(_LOOKS):
            facts = self._look_once()
            if facts.process is None or facts.process.command_line:
                break
            time.sleep(_LOOK_SECONDS)  # a process that is ending has no words any more
        return facts

    def _look_once(self) -> StartedFacts:
        worker = self.worker
        look = self._look_there()
        pid = _named_pid(look)
        if pid is None and (pid := self._find(look)) is not None:
            look = self._look_there(pid)
        family = look.processes.family(pid) if pid else ()
        paths = (str(worker.config or ""), look.config)
        process, reads_file = self.command_lines.reader(family, paths, folder=str(worker.cwd or ""))
        top = self._top(family[0], look) if family else None
        found = tuple(self._owners(family, top, look))
        held_by = "" if found else self._rival(family, look)
        facts = StartedFacts(
            process=process,
            token=StartToken(process.start) if process else NOT_RUNNING,
            reads_file=reads_file,
            state="" if process else self._state(look, held_by),
            stopped=process is None and not held_by and worker.pid_file is not None and not look.is_closed,
            runs_as=f"pid {process.pid}" if process else "",
            details=details_of(process, self.machine),
            problem="; ".join(self._gaps(look)) or None,
            obstacles=(*found, *self._obstacles(family, look, held_by)),
            variables=self._variables(process),
            variable_sources=dict.fromkeys(worker.env, "the cluster description"),
            clock_offset=look.processes.clock_offset,
            top=top,
            is_own=bool(reads_file) or (process is not None and process.command_line == worker.start),
            held_by=held_by,
            pid_file_said=look.pid_said,
        )
        return self._with_act(facts)

    def _look_there(self, pid: int | None = None) -> StartedLook:
        """The worker as its machine shows it now, its process by its pid, else as its pid file names it."""
        worker = self.worker
        files = (str(each or "") for each in (worker.config, worker.pid_file, worker.log))
        program = worker.start[0] if worker.start else ""
        listen = listening_at(self.address)
        words = (*files, str(worker.cwd or "/"), program, worker.env.get("PATH", ""), listen, str(pid or ""))
        processes, parts = probe(self.machine, _LOOK, *words, before=_READ_PID_FILE)
        written_at, me = _text(parts, "pid_at"), int(_text(parts, "self") or 0)
        above = frozenset() if self.machine.name else ownership.own_view()[1]
        return StartedLook(
            processes=processes,
            config=_text(parts, "config"),
            pid_said=_first_word(_text(parts, "pid")),
            pid_at=int(written_at) + 1.0 if written_at.isdecimal() else None,
            is_closed=bool(parts.get("closed")),
            sockets=frozenset(f"socket:[{line.split()[9]}]" for line in _text(parts, "listens").splitlines()),
            unwritable=tuple(_text(parts, "unwritable").splitlines()),
            wrong=tuple(_text(parts, "wrong").split()),
            me=me,
            above=above | {me},
            views={view.pid: view for view in _views(parts)},
        )

    def _rival(self, family: Sequence[Process], look: StartedLook) -> str:
        """In words, a process outside of the worker's family that listens at its address; empty if none is known."""
        if self.machine.name:  # a login may not see whose process holds a socket
            return "another process" if look.sockets and not family else ""
        opened = {target for member in family for target in _open_files(member.pid)}
        if not look.sockets or look.sockets & opened:
            return ""
        # The worker may open or close its port between two readings, so what listens all the time counts.
        others = look.sockets & self._look_there().sockets - opened
        if not others:
            return ""
        holders = (pid for pid in psutil.pids() if not others.isdisjoint(_open_files(pid)))
        return next((f"process {pid}" for pid in holders), "a process of another user")

    def _variables(self, process: Process | None) -> Mapping[str, str]:
        """Those that a process of this machine has; else, and where they may not be read, those of the description."""
        if process is None or self.machine.name:
            return self.worker.env
        try:
            text = os.fsdecode(Path(f"/proc/{process.pid}/environ").read_bytes())
        except OSError:
            return self.worker.env
        pairs = (pair.partition("=") for pair in text.split("\0"))
        return {name: value for name, equals, value in pairs if equals}

    def _task(self, facts: ServiceFacts, key: ActKey, grace_seconds: float) -> RestartTask:
        worker = self.worker
        assert isinstance(facts, StartedFacts)
        if facts.problem is not None:
            raise ConfigurationError(
                f"{worker.worker_id} cannot be started: {facts.problem}.",
                remedy="Complete the worker in the cluster description.",
            )
        if facts.process is None and facts.held_by:
            raise RefusedError(
                f"The port of {worker.worker_id} is held by {facts.held_by} on {self.where}, "
                f"which the pid file {worker.pid_file} does not name.",
                remedy="Find out what that process is. If it is this worker, write its pid into the pid file.",
            )
        if facts.process is not None and not facts.is_own:
            raise RefusedError(
                f"The pid file {worker.pid_file} names process {facts.process.pid} on {self.where}, whose command "
                f"line does not contain {worker.config} or the start command of {worker.worker_id}.",
                remedy="Find out what that process is, then correct pid_file, config or start.",
            )
        facts.require_restartable(worker.worker_id)
        return RestartTask(
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
            env=worker.env if self.machine.name else {**_own_locale(), **worker.env},
        )

    def _find(self, look: StartedLook) -> int | None:
        """The pid of the process whose command line is the start command, with the worker's file in it.

        Finds a worker whose pid file is stale: restarted manually, or by a restart that was killed.
        """
        worker = self.worker
        paths = (str(worker.config or ""), look.config)
        if worker.config is None or worker.pid_file is None or not names_path(worker.start, str(worker.cwd), paths):
            return None
        pids = (
            self.machine.run(["/bin/sh", "-c", _FIND, "sh", worker.config.name]).out.decode("ascii", "replace").split()
        )
        alive = [pid for pid in pids if pid.isdigit() and int(pid) in look.processes.by_pid]
        lines = {pid: words_of(self.machine.run(["cat", f"/proc/{pid}/cmdline"]).out) for pid in alive}
        found = [int(pid) for pid, line in lines.items() if line == worker.start]
        return found[0] if len(found) == 1 else None

    def _top(self, first: Process, look: StartedLook) -> Process:
        """Above the given process, as far as the worker's own start command goes: a start script that stays."""
        top = first
        while (above := look.views.get(top.parent)) is not None and top.parent > 1:
            if not self._is_start_command(above.line) or top.parent not in look.processes.by_pid:
                break
            top = look.processes.by_pid[top.parent]
        return top

    def _is_start_command(self, line: Sequence[str]) -> bool:
        """Whether a command line is the start command; a script's interpreter may stand before it."""
        start = self.worker.start
        first = len(line) - len(start)
        if not start or first < 0 or tuple(line[first + 1 :]) != start[1:]:
            return False
        by_interpreter = first == 1 or (first == 2 and line[1].startswith("-"))
        if first and not (by_interpreter and PurePosixPath(line[0]).name.startswith(_INTERPRETERS)):
            return False
        return PurePosixPath(line[first]).name == PurePosixPath(start[0]).name

    def _owners(self, family: Sequence[Process], top: Process | None, look: StartedLook) -> Iterator[Obstacle]:
        """Who else owns the worker's process."""
        here, view = look.views.get(look.me), look.views.get(top.pid) if top else None
        if here is not None and view is not None:
            parent = look.views.get(view.parent)
            yield from obstacles(view, parent, here, look.above)
        for member in family if not self.machine.name else ():
            try:
                os.kill(member.pid, 0)
            except PermissionError:
                what = f"pid {member.pid}, which belongs to the worker, may not be stopped by this user"
                yield Obstacle("restart", what, "run this as a user who may stop it")
                return
            except ProcessLookupError:
                continue

    def _obstacles(self, family: Sequence[Process], look: StartedLook, held_by: str) -> Iterator[Obstacle]:
        if family and held_by:
            what = (
                f"{self.worker.pid_file} names pid {family[0].pid}, but the worker's port is held by {held_by}, "
                f"which pid {family[0].pid} has not started: the worker runs twice, or the pid file is wrong"
            )
            remedy = (
                "if that is a proxy, set 'listeners' in the worker's properties file to the worker's own port; "
                "otherwise end the process that does not belong there, and write the worker's pid into its pid file"
            )
            yield Obstacle("restart", what, remedy)
        for path in look.unwritable:
            what = f"{path} on {self.where} may not be written by this login"
            yield Obstacle("restart", what, "let this login write it, or log in as the user who runs the worker")
        yield from suspended(family)

    def _gaps(self, look: StartedLook) -> Iterator[str]:
        """What the description lacks for a roll, in words."""
        worker = self.worker
        for name in ("config", "log", "pid_file", "start"):
            if not getattr(worker, name):
                yield f"it has no '{name}'"
        wrong = [*look.wrong]
        if "cwd" in wrong and "program" in wrong:
            wrong.remove("program")
        for word in wrong if worker.start else ():
            yield _WORDS[word].format(cwd=worker.cwd, where=self.where, program=worker.start[0])
        if _DAEMON in worker.start:
            yield f"its start command detaches the worker ({_DAEMON}), so its process is unknown"

    def _state(self, look: StartedLook, held_by: str) -> str:
        pid_file = self.worker.pid_file
        if pid_file is None:
            return "its process is unknown: the description has no pid_file"
        if look.is_closed:
            return f"its pid file {pid_file} cannot be read on {self.where}"
        held = f", but its port is held by {held_by}" if held_by else ""
        return f"{pid_file} names no live process on {self.where}{held}"


def _own_locale() -> Mapping[str, str]:
    """The locale of this process, for the worker: commands on this machine run with an English one."""
    return {"LC_ALL": os.environ["LC_ALL"]} if "LC_ALL" in os.environ else {}


def _named_pid(look: StartedLook) -> int | None:
    """The process that the pid file names, if it still runs and is older than the file."""
    if not look.pid_said.isdecimal() or look.pid_at is None:
        return None
    process = look.processes.by_pid.get(int(look.pid_said))
    if process is None or process.started_at > look.pid_at + _PID_FILE_SECONDS:
        return None
    return process.pid


#: The pid file is read before the processes: one that it names and that is not among them has ended.
_READ_PID_FILE = """
    part pid_at; stat -L -c %Y -- "$2" 2>/dev/null;
    part pid; head -c 100 -- "$2" 2>/dev/null;
"""

#: Its arguments: config, pid file, log, working folder, program, the worker's own PATH, where it listens, and a process
#: to view instead of the pid file's. A view is what tells whose a process is; views are taken of this shell, and of the
#: worker and those above it.
_LOOK = """
    config=$1; pid_file=$2; log=$3; cwd=$4; program=$5; path=$6; listen=$7; pid=$8;
    part config; readlink -f -- "$config";
    part closed; if [ -e "$pid_file" ] && [ ! -r "$pid_file" ]; then echo closed; fi;
    part listens; grep -hE "^ *[0-9]+: ($listen) [0-9A-F]+:[0-9A-F]+ 0A " /proc/self/net/tcp /proc/self/net/tcp6;
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
    echo; part self; echo "$$"; view "$$" 2>/dev/null; steps=0;
    [ -n "$pid" ] || pid=$(head -n 1 -- "$pid_file" 2>/dev/null);
    case $pid in ''|*[!0-9]*) pid=0;; esac;
    while [ "$pid" -gt 0 ] && [ "$steps" -lt 16 ]; do view "$pid" 2>/dev/null; steps=$((steps + 1));
    above=; while read -r key value; do case $key in PPid:) above=$value;; esac; done 2>/dev/null <"/proc/$pid/status";
    pid=${above:-0}; done;
"""

#: Prints the pids of the processes whose command line has a word in it.
_FIND = 'grep -lasF -e "$1" /proc/[0-9]*/cmdline | cut -d / -f 3'


@dataclass(frozen=True, slots=True)
class StartedLook:
    processes: Processes  #: those of its machine
    config: str  #: the worker's file behind links; empty if it is not there
    pid_said: str  #: the first word of the pid file
    pid_at: float | None  #: when the pid file was written, seconds since the epoch; None if it is not there
    is_closed: bool  #: whether the pid file may not be read
    sockets: frozenset[str]  #: what listens at the worker's address: ``socket:[4711]``
    unwritable: tuple[str, ...]  #: paths that a restart writes and this login may not
    wrong: tuple[str, ...]  #: what is wrong with the start command: ``cwd``, ``program``, ``setsid``
    me: int  #: the process that has looked
    above: frozenset[int]  #: it and the processes above it
    views: Mapping[int, ProcessView] = field(repr=False)  #: of it, of the worker's process, and of those above that one


def _first_word(text: str) -> str:
    return " ".join(text.strip().partition("\n")[0].split()[:1])


def _open_files(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            with contextlib.suppress(OSError):  # closed meanwhile
                yield os.readlink(f"{folder}/{name}")  # noqa: PTH115


def _views(parts: Mapping[str, bytes]) -> Iterator[ProcessView]:
    for name, content in parts.items():
        if name.startswith("view "):
            pid = name.removeprefix("view ")
            line = words_of(parts.get(f"line {pid}", b"").removesuffix(b"\n"))
            view = ownership.view_of(
                content.strip(), _text(parts, f"status {pid}"), _text(parts, f"cgroup {pid}"), line
            )
            if view is not None:
                yield view


def _text(parts: Mapping[str, bytes], name: str) -> str:
    return parts.get(name, b"").decode("utf-8", "surrogateescape").strip()
