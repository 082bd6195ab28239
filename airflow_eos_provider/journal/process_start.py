"""The start token of a process: it identifies one start among all starts of all processes on all machines.

Two machines' clocks cannot be compared, pids are reused, and host names are shared or changed. A token is made of what
the kernel itself reports: which machine, which boot of it, which pid namespace, which pid, and the clock tick of the
process's start. Two tokens are equal if and only if they name the same start.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

#: The pid namespace of a machine that is no container (``PROC_PID_INIT_INO`` in the kernel's ``proc_ns.h``).
_MACHINES_OWN_NAMESPACE = "pid:[4026531836]"

_SEPARATOR = "/"

#: Fields of ``/proc/PID/stat`` by their place behind the state.
_NUM_THREADS, _START_TIME = 16, 18
_FIELDS = 5


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """One start of one process."""

    machine: str  #: the machine id (``/etc/machine-id``); empty where the machine has none
    boot: str  #: the boot id, random for each boot of a kernel; empty where it cannot be read
    namespace: str  #: the pid namespace, such as ``pid:[4026531836]``: in a container the same pid is another process
    pid: int  #: process id within that namespace
    ticks: int  #: start of the process in clock ticks since the boot (field 22 of ``/proc/PID/stat``, proc(5))

    @classmethod
    def of(cls, pid: int) -> ProcessStart | None:
        """The token of the process that has this pid now; None if there is none, or only a zombie."""
        stat = _stat(pid)
        if stat is None:
            return None
        return cls(_read("/etc/machine-id"), _read("/proc/sys/kernel/random/boot_id"), _own_namespace(), pid, stat)

    @classmethod
    def of_this_process(cls) -> ProcessStart:
        """The token of the calling process."""
        token = cls.of(os.getpid())
        if token is None:
            raise RuntimeError("This process's start cannot be read from /proc; the provider runs on Linux.")
        return token

    @classmethod
    def parse(cls, text: str) -> ProcessStart | None:
        """Read :meth:`__str__` back; None if the text is no token, e.g. one of another kind of host."""
        parts = text.split(_SEPARATOR)
        if len(parts) != _FIELDS or not (parts[3].isdecimal() and parts[4].isdecimal()):
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), int(parts[4]))

    def __str__(self) -> str:
        """The token as one word, to be stored; nothing but equality is to be read from it elsewhere."""
        return _SEPARATOR.join((self.machine, self.boot, self.namespace, str(self.pid), str(self.ticks)))

    @property
    def is_alive(self) -> bool:
        """Whether this very process is seen to run from here; False proves nothing, see :attr:`is_proven_dead`."""
        return ProcessStart.of(self.pid) == self

    @property
    def is_proven_dead(self) -> bool:
        """Whether this process has certainly ended; of another machine or container nothing is proven from here.

        The same boot id is the same running kernel, so there the process itself can be looked for. Another boot id
        proves only something about a machine that has been booted again since: the same machine id, and neither side
        within a container, since containers of one image share a machine id on any number of machines.
        """
        here = ProcessStart.of_this_process()
        if self.boot and self.boot == here.boot:
            return self.namespace == here.namespace and not self.is_alive
        is_this_machine = bool(self.machine) and self.machine == here.machine
        in_no_container = self.namespace == here.namespace == _MACHINES_OWN_NAMESPACE
        return bool(self.boot and here.boot) and is_this_machine and in_no_container


def _stat(pid: int) -> int | None:
    """Start ticks of a live process; a zombie with more threads than the ended one is still at work (proc(5))."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        is_dead = state == b"X" or (state == b"Z" and int(fields[_NUM_THREADS]) <= 1)
        return None if is_dead else int(fields[_START_TIME])
    except (OSError, ValueError, IndexError):
        return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _own_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
