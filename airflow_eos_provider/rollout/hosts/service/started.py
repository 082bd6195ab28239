"""A worker that nobody owns: its description's start command starts it, on this machine or another one.

Its pid file identifies it or, without one, its start command. A restart stops it by signals and starts it again, by a
shell of its machine that outlives its caller; see ``restart_act.py``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import psutil

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.redaction import remember
from airflow_eos_provider.rollout.hosts import ownership
from airflow_eos_provider.rollout.hosts.address import accepts_connections
from airflow_eos_provider.rollout.hosts.host import NOT_RUNNING, Obstacle, StartToken
from airflow_eos_provider.rollout.hosts.launch import Launch, how_to_start, launch_of
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.processes import (
    BEGIN_PROBE,
    END_OF_PROBE,
    Process,
    Processes,
    as_word,
    line_here,
    names_path,
    parts_of,
    pids_here,
    processes_here,
    processes_of,
    words_here,
    words_of,
)
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
        self._looker = Looker(machine, worker) if machine.name else LookHere(machine, worker)
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
        look = self._looker.look(self.address)
        pid = _named_pid(look)
        if pid is None and (pid := self._find(look)) is not None:
            look = self._looker.look(self.address, pid=pid)
        family = look.processes.family(pid) if pid else ()
        paths = (str(worker.config or ""), look.config)
        process, reads_file = self.command_lines.reader(family, paths, folder=str(worker.cwd or ""))
        top = self._top(family[0], look) if family else None
        found = tuple(self._owners(family, top, look))
        held_by = "" if found else self._looker.rival(family, look, self.address)
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
            variables=self._looker.variables(process) if process else worker.env,
            variable_sources=dict.fromkeys(worker.env, "the cluster description"),
            clock_offset=look.processes.clock_offset,
            top=top,
            is_own=bool(reads_file) or (process is not None and process.command_line == worker.start),
            held_by=held_by,
            pid_file_said=look.pid_said,
        )
        return self._with_act(facts)

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
        lines = self._looker.lines_with(worker.config.name, look.processes)
        found = [pid for pid, line in lines if line == worker.start]
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
        foreign = self._looker.foreign(family)
        if foreign is not None:
            what = f"pid {foreign.pid}, which belongs to the worker, may not be stopped by this user"
            yield Obstacle("restart", what, "run this as a user who may stop it")

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


#: Its arguments: config, pid file, log, working folder, program, the worker's own PATH, where it listens, and a process
#: to view instead of the pid file's. A view is what tells whose a process is; views are taken of this shell, and of the
#: worker and those above it.
_LOOK = (
    as_word(
        BEGIN_PROBE
        + """
    config=$1; pid_file=$2; log=$3; cwd=$4; program=$5; path=$6; listen=$7; pid=$8;
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
    echo; part self; echo "$$"; view "$$" 2>/dev/null; steps=0;
    [ -n "$pid" ] || pid=$(head -n 1 -- "$pid_file" 2>/dev/null);
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

_MOST_PARENTS = 16

_CONNECT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StartedLook:
    processes: Processes  #: those of its machine; of this one none where no process is named
    config: str  #: the worker's file behind links; empty if it is not there
    pid_said: str  #: the first word of the pid file
    pid_at: float | None  #: when the pid file was written, seconds since the epoch; None if it is not there
    is_closed: bool  #: whether the pid file may not be read
    listens: bool | None  #: whether anything listens at the worker's address; None where that was not looked for
    unwritable: tuple[str, ...]  #: paths that a restart writes and this login may not
    wrong: tuple[str, ...]  #: what is wrong with the start command: ``cwd``, ``program``, ``setsid``
    me: int  #: the process that has looked
    above: frozenset[int]  #: it and the processes above it
    views: Mapping[int, ProcessView] = field(repr=False)  #: of it, of the worker's process, and of those above that one


class Looker:
    """Looks at one worker by one command on its machine."""

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        self._machine = machine
        self._worker = worker

    def look(self, url: str, *, pid: int = 0) -> StartedLook:
        """The worker that listens at an address as it is now, its process by its pid, else as its pid file names it."""
        worker = self._worker
        sent_at = time.time()
        files = (str(each or "") for each in (worker.config, worker.pid_file, worker.log))
        program = worker.start[0] if worker.start else ""
        words = (*files, str(worker.cwd or "/"), program, worker.env.get("PATH", ""), listening_at(url), str(pid or ""))
        parts = parts_of(self._machine.run(["/bin/sh", "-c", _LOOK, "sh", *words]).out)
        written_at, me = _text(parts, "pid_at"), int(_text(parts, "self") or 0)
        return StartedLook(
            processes=processes_of(parts, sent_at=sent_at, answered_at=time.time()),
            config=_text(parts, "config"),
            pid_said=_first_word(_text(parts, "pid")),
            pid_at=int(written_at) + 1.0 if written_at.isdecimal() else None,
            is_closed=bool(parts.get("closed")),
            listens=bool(_text(parts, "listens")),
            unwritable=tuple(_text(parts, "unwritable").splitlines()),
            wrong=tuple(_text(parts, "wrong").split()),
            me=me,
            above=frozenset({me}),
            views={view.pid: view for view in _views(parts)},
        )

    def lines_with(self, word: str, processes: Processes) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The command lines of the processes that have a word in them."""
        answer = self._machine.run(["/bin/sh", "-c", _FIND, "sh", word])
        for pid in answer.out.decode("ascii", "replace").split():
            if pid.isdigit() and int(pid) in processes.by_pid:
                yield int(pid), words_of(self._machine.run(["cat", f"/proc/{pid}/cmdline"]).out)

    def rival(self, family: Sequence[Process], look: StartedLook, url: str) -> str:
        """In words, a process outside of the worker's family that listens at its address; empty if none is known.

        Known only while the worker does not run: this login may not see whose process holds a socket.
        """
        return "another process" if look.listens and not family else ""

    def foreign(self, family: Sequence[Process]) -> Process | None:
        """A member of the family that this user may not stop; not known before the worker is stopped."""
        return None

    def variables(self, process: Process) -> Mapping[str, str]:
        """The variables of a process, as far as they are known: those of the description."""
        return self._worker.env


class LookHere(Looker):
    """Looks at a worker of this machine: reads ``/proc``, and starts no process."""

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        super().__init__(machine, worker)
        self._sockets: set[str] = set()
        self._variables: tuple[str, Mapping[str, str]] = ("", {})

    def look(self, url: str, *, pid: int = 0) -> StartedLook:
        worker, pid_file = self._worker, self._worker.pid_file
        said, written_at = _pid_file(pid_file) if pid_file is not None else ("", None)
        me = os.getpid()
        top = pid or (int(said) if said.isdecimal() else 0)
        return StartedLook(
            processes=processes_here(pids_here() if top and Path(f"/proc/{top}").exists() else ()),
            config=os.path.realpath(worker.config) if worker.config is not None else "",
            pid_said=said,
            pid_at=written_at,
            is_closed=pid_file is not None and pid_file.exists() and not _may(pid_file, os.R_OK),
            listens=None,
            unwritable=tuple(_unwritable(worker)),
            wrong=tuple(_wrong(worker)),
            me=me,
            above=frozenset({me}) | ownership.ancestors(me),
            views={view.pid: view for view in (*_views_here(me, 1), *_views_here(top, _MOST_PARENTS))},
        )

    def lines_with(self, word: str, processes: Processes) -> Iterator[tuple[int, tuple[str, ...]]]:
        for pid in pids_here():
            if os.fsencode(word) in (line := line_here(pid)):
                yield pid, words_of(line)

    def rival(self, family: Sequence[Process], look: StartedLook, url: str) -> str:
        """A socket is another's only if it listened both before and after the family's sockets were read.

        A worker may open or close its port in between. ``/proc/net/tcp`` costs milliseconds: the kernel goes through
        all of its tables; so it is only read while the family has none of the known sockets open, or somebody answers.
        """
        if self._sockets & _sockets_of(family) or not (family or accepts_connections(url, seconds=_CONNECT_SECONDS)):
            return ""
        before = _listening_sockets(url)
        opened = _sockets_of(family)
        others = before - opened
        self._sockets = before & opened
        if self._sockets or not others or others.isdisjoint(_listening_sockets(url)):
            return ""
        return _holder_of(others)

    def foreign(self, family: Sequence[Process]) -> Process | None:
        for member in family:
            try:
                os.kill(member.pid, 0)
            except PermissionError:
                return member
            except ProcessLookupError:
                continue
        return None

    def variables(self, process: Process) -> Mapping[str, str]:
        """Those that the process has; of one that may not be read, those of the description."""
        if self._variables[0] != process.start:
            try:
                text = os.fsdecode(Path(f"/proc/{process.pid}/environ").read_bytes())
            except OSError:
                return self._worker.env
            pairs = (pair.partition("=") for pair in text.split("\0"))
            self._variables = (process.start, {name: value for name, equals, value in pairs if equals})
        return self._variables[1]


def _pid_file(path: Path) -> tuple[str, float | None]:
    """The first word of a pid file, and when it was written."""
    with contextlib.suppress(OSError):
        if path.is_file():
            written_at = path.stat().st_mtime
            with path.open("rb") as file:
                return _first_word(file.read(100).decode("ascii", "replace")), written_at
    return "", None


def _first_word(text: str) -> str:
    return " ".join(text.strip().partition("\n")[0].split()[:1])


def _may(path: Path, access: int) -> bool:
    return os.access(path, access, effective_ids=True)


def _unwritable(worker: WorkerDescription) -> Iterator[str]:
    files = [path for path in (worker.log, worker.pid_file) if path is not None]
    yield from (str(path) for path in files if path.exists() and not (path.is_file() and _may(path, os.W_OK)))
    folders = {path.parent for path in files if path == worker.pid_file or not path.exists()}
    yield from (str(folder) for folder in sorted(folders) if folder.is_dir() and not _may(folder, os.W_OK | os.X_OK))


def _wrong(worker: WorkerDescription) -> Iterator[str]:
    if worker.cwd is not None and not worker.cwd.is_dir():
        yield "cwd"
    program = worker.start[0] if worker.start else ""
    if "/" in program and worker.cwd is not None:
        program = str(worker.cwd / program)
    if shutil.which(program, path=worker.env.get("PATH")) is None:
        yield "program"
    if shutil.which("setsid") is None:
        yield "setsid"


def _views_here(pid: int, most: int) -> Iterator[ProcessView]:
    while pid > 0 and most > 0 and (view := ownership.look(pid)) is not None:
        yield replace(view, line=words_here(pid))
        pid, most = view.parent, most - 1


def _listening_sockets(url: str) -> set[str]:
    """The TCP sockets of this network namespace that listen at an address, by their inode."""
    pattern = re.compile(rf"^ *\d+: ({listening_at(url)}) [0-9A-F]+:[0-9A-F]+ 0A (?:\S+ +){{5}}(\d+)", re.MULTILINE)
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/self/net/{table}").read_text(encoding="ascii")
            found |= {f"socket:[{match[match.re.groups]}]" for match in pattern.finditer(text)}
    return found


def _sockets_of(family: Sequence[Process]) -> set[str]:
    """What the processes have open, sockets by their inode."""
    return {target for process in family for target in _open_files(process.pid)}


def _open_files(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            with contextlib.suppress(OSError):  # closed meanwhile
                yield os.readlink(f"{folder}/{name}")  # noqa: PTH115


def _holder_of(sockets: set[str]) -> str:
    """In words, which process has one of these sockets open."""
    for pid in psutil.pids():
        if not sockets.isdisjoint(_open_files(pid)):
            return f"process {pid}"
    return "a process of another user"


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
