"""Paths of files on a machine: what ``stat`` shows, and which users could replace a folder or link in them."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, CommandError

#: The word for ``stat`` that :func:`statuses` reads the answer of.
FORMAT = "--format=%d/%i/%f/%h/%u/%g/%s/%.9Y/%.9Z/%U/%G"


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What ``stat`` shows of one file; times are nanoseconds of its machine's clock."""

    device: int
    inode: int
    mode: int
    names: int
    uid: int
    gid: int
    size: int
    modified_ns: int
    changed_ns: int
    user: str
    group: str

    @property
    def owner(self) -> str:
        """Its owner as sudo takes it: a name, or ``#`` and a number."""
        return f"#{self.uid}" if self.user == "UNKNOWN" else self.user

    def __str__(self) -> str:
        return f"{self.user}:{self.group}, mode {stat.S_IMODE(self.mode):o}"


def require_absolute(key: str, path: PurePosixPath) -> None:
    """Refuse a relative path: on another machine it has no meaning."""
    if not path.is_absolute():
        raise ConfigurationError(
            f"The worker's '{key}' {path} is not absolute.", remedy="Name it with its folder, from / on."
        )


def statuses(answer: Answer, files: int | None = None) -> list[FileStatus]:
    """What ``stat`` has printed with :data:`FORMAT`, a file after the other."""
    lines = answer.out.decode("utf-8", "surrogateescape").splitlines()
    try:
        found = [_status(line) for line in lines]
    except ValueError:
        found = None
    if found is None or (files is not None and len(found) != files):
        raise CommandError(
            f"The output of stat cannot be read: {' | '.join(lines)[:200]!r}.",
            expected=f"{len(lines) if files is None else files} lines as GNU coreutils' stat {FORMAT} prints them",
            remedy="See which program 'stat' is on that machine.",
        )
    return found


def _status(line: str) -> FileStatus:
    numbers, user, group = line.split("/")[:9], *line.split("/")[9:11]
    device, inode, mode, names, uid, gid, size, modified, changed = numbers
    return FileStatus(
        *(int(device), int(inode), int(mode, 16), int(names), int(uid), int(gid), int(size)),
        *(_nanoseconds(modified), _nanoseconds(changed), user, group),
    )


def _nanoseconds(moment: str) -> int:
    seconds, fraction = re.split(r"[.,]", moment)  # as the locale writes it
    return int(seconds) * 1_000_000_000 + int(fraction)


def writable_by_others(steps: Sequence[tuple[PurePosixPath, FileStatus]], uid: int) -> str | None:
    """In words, who besides root and one user could put another file in place of one; None if no user could.

    Whoever may write a folder that a user other than root owns may change the worker's file anyway, so a group is only
    looked at where root would act. There, root's own group counts too: of a folder with an access list, ``stat`` shows
    the most that the list allows to anybody as what the group may (acl(5)).
    """
    for path, status in steps:
        if status.uid not in (0, uid):
            return f"{status.user} owns the folder {path}, could put a link there"
        if path != steps[-1][0] and status.mode & stat.S_ISVTX:
            continue  # what others own there nobody but they may rename
        if status.mode & stat.S_IWOTH:
            return f"everybody may write the folder {path}, could put a link there"
        if status.mode & stat.S_IWGRP and uid == 0:
            who = f"the group {status.group}, or a user of an access list (getfacl),"
            return f"{who} may write the folder {path}, could put a link there"
    return None
