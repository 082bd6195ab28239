"""Processes of a machine, read from its ``/proc`` by one command, with its own clock.

A machine's boot, a pid and its start ticks identify a process, so no clocks are compared. Times are from the machine's
own clock, and come with its offset from this machine's clock.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_eos_provider.rollout.hosts.machine.machine import CommandError, Machine

#: Clock ticks a second where ``getconf`` does not tell (``USER_HZ`` of every Linux that Java runs on).
USUAL_TICKS = 100

#: Begins the lines that stand between the parts of a probe's output. What any user of the machine may choose, the names
#: of processes, is printed without a slash.
MARK = "/=eos="

#: States of a suspended process (proc(5)): by a signal, by a debugger.
_SUSPENDED = frozenset("Tt")

#: A word of a command line longer than this is no path.
_LONGEST_PATH = 4096

#: ``pid (name) state parent …``: a name may hold blanks, brackets and newlines, but is too short to hold forty numbers.
_STAT = re.compile(rb"(?<!\d)(\d+) \((.{0,64}?)\) ([A-Za-z])((?: -?\d+){40,})\n", re.DOTALL)

#: Fields of ``/proc/PID/stat`` by their place behind the state.
_PARENT, _NUM_THREADS, _START = 0, 16, 18


def as_word(script: str) -> str:
    """A shell script as one word without newlines, as :meth:`Machine.run` takes it; each command ends with ``;``."""
    return " ".join(line.strip() for line in script.strip().splitlines())


#: Prints clock, uptime, ticks and boot; :data:`_END_OF_PROBE` ends what it has begun.
_BEGIN_PROBE = as_word(
    f"""
    LC_ALL=C; export LC_ALL;
    part() {{ printf '\\n%s%s\\n' '{MARK}' "$1"; }};
    part begun; date +%s.%N;
    part uptime; cat /proc/uptime;
    part ticks; getconf CLK_TCK 2>/dev/null;
    part boot; cat /proc/sys/kernel/random/boot_id;
    part user; id -u;
    part mounts; grep ' /proc proc ' /proc/mounts;
    """
)

_STATS = "part stat; cat /proc/[0-9]*/stat 2>/dev/null | tr / _;"

_END_OF_PROBE = "part ended; date +%s.%N"

#: Prints the command lines and working folders of the pids that it is given.
_COMMAND_LINES = as_word(
    f"""
    for pid do
    printf '\\n%s%s\\n' '{MARK}' "$pid"; readlink "/proc/$pid/cwd" 2>/dev/null || echo;
    cat "/proc/$pid/cmdline" 2>/dev/null;
    done; true
    """
)


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    start: str  #: names this start of this pid on this machine: boot id and start ticks
    started_at: float  #: its start, seconds since the epoch, by the clock of its machine
    clock_offset: float = 0.0  #: seconds to add to a moment of that machine's clock to have it by this one's
    command_line: tuple[str, ...] = field(default=(), repr=False)  #: its words; empty where they are not known
    parent: int = 0  #: pid of the process that started it
    name: str = ""  #: name of its program, as the kernel has it, with ``_`` for a slash
    is_suspended: bool = False  #: whether it is stopped by a signal or a debugger

    @property
    def ticks(self) -> int:
        """Its start in clock ticks since its machine's boot; 0 where that is not known."""
        ticks = self.start.rpartition("/")[2]
        return int(ticks) if ticks.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Processes:
    by_pid: Mapping[int, Process]  #: those that this login may see
    now: float  #: the moment by the machine's clock, seconds since the epoch
    uptime: float  #: the same moment in seconds since its boot
    ticks: int = USUAL_TICKS  #: clock ticks a second
    boot: str = ""  #: its boot id; empty where it cannot be read
    clock_offset: float = 0.0  #: seconds to add to a moment of the machine's clock to have it by this one's
    hides: bool = False  #: whether this login sees its own processes only (``hidepid``, proc(5))

    def family(self, pid: int) -> tuple[Process, ...]:
        """A process and all that it has started, and theirs; itself first. Empty if it is not seen."""
        top = self.by_pid.get(pid)
        if top is None:
            return ()
        family = [top]
        children: dict[int, list[Process]] = {}
        for process in self.by_pid.values():
            children.setdefault(process.parent, []).append(process)
        for member in family:  # grows while it is gone through
            family += [child for child in children.get(member.pid, ()) if child not in family]
        return tuple(family)

    def at_uptime(self, seconds: float) -> float:
        """A moment that is known in seconds since the boot, by the machine's clock."""
        return self.now - (self.uptime - seconds)


def parts_of(out: bytes) -> dict[str, bytes]:
    """The parts of a probe's output by name, each with its last newline.

    Of the same name twice the first one counts: what follows may stand in a command line.
    """
    parts: dict[str, bytes] = {}
    for chunk in out.split(f"\n{MARK}".encode())[1:]:
        name, _, content = chunk.partition(b"\n")
        parts.setdefault(name.decode("utf-8", "replace"), content)
    return parts


def processes_of(parts: Mapping[str, bytes], *, sent_at: float, answered_at: float) -> Processes:
    try:
        begun = _seconds(parts["begun"])
        ended = _seconds(parts.get("ended", b"")) if parts.get("ended", b"").strip() else begun
        uptime = float(parts["uptime"].split()[0])
    except (KeyError, ValueError, IndexError):
        raise CommandError(
            "The machine does not report its clock and its processes.",
            expected="a machine with Linux' /proc, a POSIX shell and coreutils",
            remedy="Check the output of 'date +%s.%N; cat /proc/uptime' there.",
        ) from None
    ticks_text = parts.get("ticks", b"").strip()
    ticks = int(ticks_text) if ticks_text.isdigit() and int(ticks_text) else USUAL_TICKS
    boot = parts.get("boot", b"").decode("ascii", "replace").strip()
    offset = (sent_at + answered_at) / 2 - (begun + ended) / 2
    found = {
        pid: Process(
            pid=pid,
            start=f"{boot}/{pid}/{started}",
            started_at=begun - (uptime - started / ticks),
            clock_offset=offset,
            parent=parent,
            name=name,
            is_suspended=state in _SUSPENDED,
        )
        for pid, name, state, parent, started in _stats(parts.get("stat", b""))
    }
    is_root = parts.get("user", b"").strip() == b"0"
    hides = not is_root and b"hidepid=" in parts.get("mounts", b"").replace(b"hidepid=0", b"")
    return Processes(found, begun, uptime, ticks, boot, offset, hides)


class CommandLines:
    """The command lines of a machine's processes. What names a file once does so until it ends."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}

    def reader(
        self, family: Sequence[Process], paths: Iterable[str], *, folder: str = ""
    ) -> tuple[Process | None, bool | None]:
        """The process of a family that reads a worker's file: the last one whose words name it, else the first.

        And whether its words name the file; None if none may be read. The folder is that of a process whose own may
        not be seen.
        """
        if not family:
            return None, None
        # A process that executes another program keeps its pid and its start, but not its name.
        key = {member.pid: (member.start, member.name) for member in family}
        unknown = [member.pid for member in family if key[member.pid] not in self._known]
        lines = {key[member.pid]: self._known[key[member.pid]] for member in family if key[member.pid] in self._known}
        if unknown:
            read = self._read(unknown)
            lines.update({key[pid]: line for pid, line in read.items()})
        readers = [
            member
            for member in family
            if (known := lines.get(key[member.pid])) and names_path(known[1], known[0] or folder, paths)
        ]
        # Only an answer is kept: a script may execute a program of its own name, with the file among its words.
        self._known = lines if readers else {}
        chosen = readers[-1] if readers else family[0]
        words = lines.get(key[chosen.pid], ("", ()))[1]
        return replace(chosen, command_line=words), bool(readers) if lines else None

    def _read(self, pids: Sequence[int]) -> dict[int, tuple[str, tuple[str, ...]]]:
        words = ["/bin/sh", "-c", _COMMAND_LINES, "sh", *(str(pid) for pid in pids)]
        answer = self._machine.run(words)
        parts = parts_of(answer.out)
        found = {}
        for pid in pids:
            folder, _, line = parts.get(str(pid), b"").partition(b"\n")
            if line:
                found[pid] = (folder.decode("utf-8", "surrogateescape"), words_of(line))
        return found


def names_path(words: Sequence[str], folder: str, paths: Iterable[str]) -> bool:
    wanted = {posixpath.normpath(path) for path in paths if path}
    for word in words:
        if not word or len(word) > _LONGEST_PATH:
            continue
        path = word if word.startswith("/") or not folder else posixpath.join(folder, word)
        if posixpath.normpath(path) in wanted:
            return True
    return False


def probe(machine: Machine, script: str = "", *arguments: str, before: str = "") -> tuple[Processes, dict[str, bytes]]:
    """A machine's processes, and the parts that scripts print before and after them; each command ends with ``;``."""
    probing = f"{_BEGIN_PROBE} {as_word(before)} {_STATS} {as_word(script)} {_END_OF_PROBE}"
    sent_at = time.time()
    answer = machine.run(["/bin/sh", "-c", probing, "sh", *arguments])
    answered_at = time.time()
    parts = parts_of(answer.out)
    if not machine.name and "uptime" in parts:  # this machine's clock is read without a program that delays it
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        sent_at = answered_at = time.time()
        parts |= {"begun": f"{sent_at:.9f}".encode(), "uptime": f"{uptime:.9f}".encode(), "ended": b""}
    return processes_of(parts, sent_at=sent_at, answered_at=answered_at), parts


def words_of(command_line: bytes) -> tuple[str, ...]:
    """The words of a command line as ``/proc/PID/cmdline`` has it."""
    text = command_line.decode("utf-8", "surrogateescape")
    return tuple(text.removesuffix("\0").split("\0")) if text else ()


def _stats(text: bytes) -> Iterator[tuple[int, str, str, int, int]]:
    position = 0
    while (match := _STAT.search(text, position)) is not None:
        numbers = match[4].split()
        position = match.end()
        if match[3] == b"X" or (match[3] == b"Z" and int(numbers[_NUM_THREADS]) <= 1):
            continue  # ended; of many threads the first one may end before the others
        name = match[2].decode("utf-8", "replace")
        yield int(match[1]), name, match[3].decode("ascii"), int(numbers[_PARENT]), int(numbers[_START])


def _seconds(text: bytes) -> float:
    """``1732400000.123456789``; a ``date`` that does not know ``%N`` prints something else behind the point."""
    whole, _, fraction = text.decode("ascii", "replace").strip().partition(".")
    return float(f"{int(whole)}.{fraction}") if fraction.isdigit() else float(int(whole))
