"""Answers commands of coreutils that only read on this machine, without a process.

Only successes are answered here. Otherwise the command itself runs, since its messages explain the problem.
``test_read_here.py`` compares each answer with the command's own.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from airflow_eos_provider.rollout.hosts.machine.file_status import FORMAT
from airflow_eos_provider.rollout.hosts.machine.machine import MOST_OUTPUT_BYTES


def read_here(words: Sequence[str]) -> bytes | None:
    """What the command prints, with exit code 0; None where it has to be run."""
    for head, answer in _ANSWERS.items():
        if tuple(words[: len(head)]) == head:
            arguments = words[len(head) :]
            try:
                return answer(arguments)
            except (OSError, KeyError, ValueError):
                return None
    return None


def _lines(*lines: str) -> bytes:
    return b"".join(os.fsencode(line) + b"\n" for line in lines)


def _cat(arguments: Sequence[str]) -> bytes | None:
    (path,) = arguments
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_OUTPUT_BYTES:
        return None
    return Path(path).read_bytes()


def _stat(arguments: Sequence[str]) -> bytes:
    return _lines(*(_status(Path(path).lstat()) for path in arguments))


def _stat_target(arguments: Sequence[str]) -> bytes:
    return _lines(*(_status(Path(path).stat()) for path in arguments))


def _status(of: os.stat_result) -> str:
    numbers = (of.st_dev, of.st_ino, f"{of.st_mode:x}", of.st_nlink, of.st_uid, of.st_gid, of.st_size)
    times = (_seconds(of.st_mtime_ns), _seconds(of.st_ctime_ns))
    return "/".join(map(str, (*numbers, *times, _user(of.st_uid), _group(of.st_gid))))


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09d}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "UNKNOWN"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return "UNKNOWN"


def _real_path(arguments: Sequence[str]) -> bytes:
    (path,) = arguments
    return _lines(os.path.realpath(path, strict=True))


def _may_write(arguments: Sequence[str]) -> bytes | None:
    (path,) = arguments
    return b"" if os.access(path, os.W_OK, effective_ids=True) else None


def _free(arguments: Sequence[str]) -> bytes:
    (folder,) = arguments
    disk = os.statvfs(folder)
    point = Path(folder).resolve(strict=True)
    while not point.is_mount():
        point = point.parent
    return _lines("", f"{disk.f_bavail * disk.f_frsize} {disk.f_files} {disk.f_ffree} {point}")


def _own_name(arguments: Sequence[str]) -> bytes | None:
    return None if arguments else _lines(pwd.getpwuid(os.geteuid()).pw_name)


def _own_number(arguments: Sequence[str]) -> bytes | None:
    return None if arguments else _lines(str(os.geteuid()))


def _own_groups(arguments: Sequence[str]) -> bytes | None:
    return None if arguments else _lines(" ".join(map(str, dict.fromkeys((os.getegid(), *os.getgroups())))))


#: By the words that a command begins with.
_ANSWERS: Mapping[tuple[str, ...], Callable[[Sequence[str]], bytes | None]] = {
    ("cat", "--"): _cat,
    ("stat", FORMAT, "--"): _stat,
    ("stat", "-L", FORMAT, "--"): _stat_target,
    ("readlink", "-v", "-f", "--"): _real_path,
    ("test", "-w"): _may_write,
    ("df", "--output=avail,itotal,iavail,target", "-B1", "--"): _free,
    ("id", "-un"): _own_name,
    ("id", "-u"): _own_number,
    ("id", "-G"): _own_groups,
}
