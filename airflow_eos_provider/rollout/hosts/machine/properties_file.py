"""Replaces a worker's properties file on a machine in one step: at every moment the file is the old or the new one.

Each step is one command of GNU coreutils with fixed words, so sudo can grant each by itself. The new bytes go into a
copy of the file with the same owner, group, permissions and attributes; only a complete, checked copy takes over the
name. If one of these cannot be kept, the file stays unchanged and the reason is raised.

Concurrent attempts and late commands put no half-written file in place: bytes are only written under the first of two
names (``.eos-part``), and only a complete file under the second (``.eos-new``) is renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePath, PurePosixPath
from typing import TypeVar

from airflow_eos_provider.connect.properties import remove_property, set_property
from airflow_eos_provider.data_text import sentence
from airflow_eos_provider.errors import ConfigurationError, EosError, PlanMovedError, RefusedError
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.hosts.machine.file_status import (
    FORMAT,
    FileStatus,
    require_absolute,
    statuses,
    writable_by_others,
)
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, CommandError, Machine, MachineLostError
from airflow_eos_provider.rollout.hosts.machine.sudo import Command, Sudo

P = TypeVar("P", bound=PurePath)

#: How long a command that writes may take, seconds: a disk may be slow.
WRITE_SECONDS = 30.0

#: What stands against a change is looked for at most this often, seconds, while the file is the same.
OBSTACLE_SECONDS = 30.0

#: A file system may give two changes the same time within one tick of its clock, seconds. Bytes that were read later
#: than this after that time are those of the time.
TICK_SECONDS = 1.1

#: A file or a link that changes while it is read is looked at this many times.
_TRIES = 4

_MOST_LINKS = 40

#: Besides the new bytes and the backup, free bytes that a replacement needs.
_SPARE_BYTES = 16 << 10

#: The bytes before the last change stand beside the file under this suffix. Renaming it breaks rollouts in flight.
BACKUP_SUFFIX = ".eos-backup"

_NEW_SUFFIX = ".eos-new"
_PART_SUFFIX = ".eos-part"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def backup_path(path: P) -> P:
    """Where the bytes before the last change stand."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def replacement_path(path: P) -> P:
    """Where the new bytes stand until they take over the name; a process that is killed right then leaves them."""
    return path.with_name(f".{path.name}{_NEW_SUFFIX}")


def part_path(path: P) -> P:
    """Where the new bytes are written on another machine, before they stand whole at :func:`replacement_path`."""
    return path.with_name(f".{path.name}{_PART_SUFFIX}")


@dataclass(frozen=True, slots=True)
class FileContent:
    path: PurePosixPath  #: the file itself, behind any symbolic links
    data: bytes = field(repr=False)  #: its bytes, never shown
    modified_at: float  #: its date, seconds since the epoch by its machine's clock; a tool may have set it
    changed_at: float  #: last change of anything about it, or of a link on the way to it, by the same clock
    status: FileStatus

    @property
    def sha256(self) -> str:
        return digest(self.data)


@dataclass(frozen=True, slots=True)
class _Place:
    path: PurePosixPath  #: the file itself
    links: tuple[PurePosixPath, ...] = ()  #: symbolic links on the way to it

    @property
    def folder(self) -> PurePosixPath:
        return self.path.parent


@dataclass(frozen=True, slots=True)
class _Look:
    place: _Place
    links: tuple[FileStatus, ...]
    file: FileStatus
    folder: FileStatus


class FileCommands:
    """The commands that read and replace one file, as they run and as they are granted; ``user`` runs them by sudo."""

    def __init__(self, path: PurePosixPath, links: tuple[PurePosixPath, ...] = (), user: str = "") -> None:
        def of_user(*words: str) -> Command:
            return Command(words, user)

        file, folder, part, new = str(path), str(path.parent), str(part_path(path)), str(replacement_path(path))
        backup, backup_part = str(backup_path(path)), str(replacement_path(backup_path(path)))
        self.path = path
        self.user = user
        self.look = of_user("stat", FORMAT, "--", *map(str, links), file, folder)
        self.read = of_user("cat", "--", file)
        self.may_write_folder = of_user("test", "-w", folder)
        self.may_write_file = of_user("test", "-w", file)
        self.clear = of_user("rm", "-f", "--", part, new, backup_part)
        # A copy of the file that only its owner may read, at every moment.
        self.save = of_user("install", "-m", "600", "-T", "--", file, backup_part)
        self.saved_digest = of_user("sha256sum", "--", backup_part)
        self.flush_saved = of_user("sync", "--", backup_part)
        self.name_saved = of_user("mv", "-T", "-f", "--", backup_part, backup)
        # Not --preserve=all: with that, cp succeeds although attributes are lost. A lost owner it never tells.
        kept = ("--no-target-directory", "--remove-destination", "--preserve=mode,ownership,xattr")
        self.copy = of_user("cp", *kept, "--", file, part)
        self.write = of_user("dd", f"of={part}", "conv=nocreat,fsync", "oflag=nofollow", "status=none")
        self.stage = of_user("mv", "-T", "-f", "--", part, new)
        self.digests = of_user("sha256sum", "--", new, file)
        self.compare = of_user("stat", FORMAT, "--", new, file)
        self.flush = of_user("sync", "--", folder)
        self.commit = of_user("mv", "-T", "-f", "--", new, file)
        self.read_backup = of_user("cat", "--", backup)

    @property
    def changing(self) -> tuple[Command, ...]:
        """All that a change and its restore run, in their order."""
        saving = (self.clear, self.save, self.saved_digest, self.flush_saved, self.name_saved)
        staging = (self.copy, self.write, self.stage, self.digests, self.compare)
        return (
            *(self.may_write_folder, self.may_write_file, *saving, *staging),
            *(self.flush, self.commit, self.read_backup),
        )


class _StepError(Exception):
    def __init__(self, command: Command, answer: Answer) -> None:
        super().__init__(answer.problem)
        self.command = command
        self.answer = answer


class PropertiesFile:
    """A worker's properties file on a machine.

    A look costs one command while the file is as it was. It may be used from several threads; each looks for itself.
    """

    def __init__(self, machine: Machine, path: PurePosixPath, *, sudo: bool) -> None:
        require_absolute("config", path)
        self._machine = machine
        self._config = path
        self._with_sudo = sudo
        self._sudo = Sudo(machine)
        self._by_sudo: set[str] = set()
        self._last: _Look | None = None
        self._seen_at: tuple[FileStatus, float] | None = None
        self._kept: FileContent | None = None
        self._obstacle: tuple[object, float, Obstacle | None] | None = None

    def read(self, *, fresh: bool = False) -> FileContent:
        for _ in range(_TRIES):
            look = self._look()
            if not stat.S_ISREG(look.file.mode):
                raise self._unreadable("it is no ordinary file")
            kept = self._kept
            if kept is not None and not fresh and kept.status == look.file and kept.path == look.place.path:
                return _content(look, kept.data)
            data, final = self._bytes(look)
            if self._look() == look:
                content = _content(look, data)
                self._kept = content if final else None
                return content
        raise self._unreadable("it changes while it is read")

    def digest_with(self, properties: Mapping[str, str | None]) -> str:
        return digest(_with_properties(self.read().data, properties))

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        """Set properties; the bytes before stand in ``<file>.eos-backup`` (mode 0600)."""
        content = self.read(fresh=True)
        self._require_expected(content, expect)
        data = _with_properties(content.data, properties)
        if data != content.data:
            self.replace(data, expect_sha256=expect, backup=True)
        return digest(data)

    def restore(self, *, expect: str, original: str) -> None:
        """Put the file back as it was before :meth:`edit`. Nothing happens if it is so already."""
        if self.read(fresh=True).sha256 != original:
            self.replace(self.backup_of(original), expect_sha256=expect, backup=False)

    def backup_of(self, sha256: str) -> bytes:
        """The bytes that :meth:`replace` kept."""
        look = self._look()
        saved = self._shown(backup_path(look.place.path))
        answer = self._sudo.run(self._commands_at(look).read_backup, seconds=WRITE_SECONDS)
        if not answer.ok:
            raise RefusedError(
                f"The backup {saved} cannot be read: {_reason(answer)}.",
                remedy="Restore the worker's file manually.",
            )
        if digest(answer.out) != sha256:
            raise RefusedError(
                f"The backup {saved} differs from the worker's file before the change.",
                expected=f"SHA-256 {sha256}",
                remedy="Restore the worker's file manually.",
            )
        return answer.out

    def replace(self, data: bytes, *, expect_sha256: str, backup: bool) -> None:
        """Put new content into the file, if it is still what it is expected to be.

        A connection that is lost meanwhile leaves the old file or the new one, and what the next attempt clears.
        """
        before = self.read(fresh=True)
        self._require_expected(before, expect_sha256)
        look = self._look()
        if look.file != before.status:
            raise self._edited_a_moment_ago(before.path)
        refused = self._first((self._hard_links, self._unsafe_folders, self._foreign), look)
        if refused is not None:
            raise RefusedError(f"{refused.what}.", remedy=sentence(refused.remedy))
        commands = self._commands_at(look)
        try:
            self._do(commands.clear)
            if backup:
                self._save(commands, before)
            self._stage(commands, before, data)
            self._commit(commands, data)
        except _StepError as failed:
            self._clear(commands)
            raise self._explained(failed, before, data) from failed
        except MachineLostError:
            raise
        except EosError:
            self._clear(commands)
            raise
        self._require_arrived(before, data)

    def obstacle_to_change(self) -> Obstacle | None:
        """Why the file could not be replaced, found without touching anything; None if nothing is seen against it."""
        look = self._look()
        key = (look.place, look.file, look.folder.uid, look.folder.gid, look.folder.mode)
        known = self._obstacle
        if known is not None and known[0] == key and time.monotonic() < known[1] + OBSTACLE_SECONDS:
            return known[2]
        checks = (
            self._hard_links,
            self._unsafe_folders,
            self._foreign,
            self._mounted,
            self._ungranted,
            self._unwritable_folder,
            self._immutable,
            self._full,
        )
        found = self._first(checks, look)
        self._obstacle = (key, time.monotonic(), found)
        return found

    def commands(self) -> tuple[Command, ...]:
        """All that reads and replaces this file and needs sudo; none without it.

        Rights that are not there yet are no hindrance; then a link that the login may not see is not followed.
        """
        if not self._with_sudo:
            return ()
        seen = self._machine.run(("readlink", "-v", "-f", "--", str(self._config)))
        resolving = () if seen.ok else (self._resolving(),)
        place = _Place(_path(seen.out), self._links()) if seen.ok else _Place(self._config)
        with contextlib.suppress(ConfigurationError):  # with rights that are there already
            place = self._look().place
        folder = self._stat_plainly(place.folder)
        commands = self._commands_of(place, folder)
        unsafe = self._unsafe(place, folder)
        if unsafe is not None:
            raise RefusedError(f"{unsafe.what}.", remedy=sentence(unsafe.remedy))
        hidden = not self._machine.run(commands.look.words).ok
        unreadable = not self._machine.run(("test", "-r", str(place.path))).ok
        reading = [commands.look] * hidden + [commands.read] * unreadable
        changing = [c for c in commands.changing if hidden or c != commands.compare]
        return tuple(c for c in (*resolving, *reading, *changing) if c.user)

    # The look: where the file is, and what about it.

    def _look(self) -> _Look:
        """File and folder now; one command while its links stay as they are."""
        problem = ""
        for _ in range(_TRIES):
            last = self._last
            place = last.place if last is not None else self._resolve()
            folder = last.folder if last is not None else None
            words = self._commands_of(place, folder).look.words
            answer = self._observe(words, self._user(place, folder))
            if not answer.ok:
                problem = _reason(answer)
            else:
                *links, file, own = statuses(answer, len(place.links) + 2)
                look = _Look(place, tuple(links), file, own)
                moved = stat.S_ISLNK(file.mode) or (last is not None and last.links != look.links)
                if not moved:
                    self._note(look)
                    return look
            self._last = None
            if last is None and problem:
                break
        raise self._missing(problem or "its links change while it is read")

    def _note(self, look: _Look) -> None:
        self._last = look
        if self._seen_at is None or self._seen_at[0] != look.file:
            self._seen_at = (look.file, time.monotonic())

    def _resolve(self) -> _Place:
        words = ("readlink", "-v", "-f", "--", str(self._config))
        answer = self._machine.run(words)
        if not answer.ok and self._with_sudo:
            answer = self._sudo.run(self._resolving())
        if not answer.ok:
            raise self._missing(_reason(answer))
        path = _path(answer.out)
        return _Place(path, () if path == self._config else self._links())

    def _resolving(self) -> Command:
        owner = self._stat_plainly(self._config.parent)
        return Command(("readlink", "-v", "-f", "--", str(self._config)), self._owner(owner))

    def _links(self) -> tuple[PurePosixPath, ...]:
        """The symbolic links on the way; one that is turned to another file changes what a worker reads."""
        found: list[PurePosixPath] = []
        path = self._config
        while len(found) < _MOST_LINKS:
            steps = [*reversed(path.parents), path]
            answer = self._machine.run(("stat", FORMAT, "--", *map(str, steps)))
            if not answer.ok:  # the login may not see it: at least the name in the description is watched
                return (*found, self._config) if self._config not in found else tuple(found)
            pairs = zip(steps, statuses(answer, len(steps)), strict=True)
            link = next((step for step, status in pairs if stat.S_ISLNK(status.mode)), None)
            if link is None:
                break
            found.append(link)
            target = self._machine.run(("readlink", "-v", "--", str(link)))
            path = link.parent / _path(target.out) / path.relative_to(link)
        return tuple(found)

    def _stat_plainly(self, path: PurePosixPath) -> FileStatus:
        answer = self._machine.run(("stat", FORMAT, "--", str(path)))
        if not answer.ok:
            raise ConfigurationError(
                f"The folder {self._shown(path)} cannot be seen: {_reason(answer)}.",
                remedy="Correct the worker's 'config', or let the login pass through the folders above it.",
            )
        return statuses(answer, 1)[0]

    def _observe(self, words: tuple[str, ...], user: str) -> Answer:
        """Run what only looks: as the login, and where that does not succeed through sudo, which is remembered."""
        plain: Answer | None = None
        if words[0] not in self._by_sudo:
            plain = self._machine.run(words, seconds=WRITE_SECONDS)
            if plain.ok or not user or user == self._sudo.login:
                return plain
        answer = self._sudo.run(Command(words, user), seconds=WRITE_SECONDS)
        if answer.ok:
            self._by_sudo.add(words[0])
            return answer
        self._by_sudo.discard(words[0])
        return plain if plain is not None and _is_missing(plain) else answer

    def _bytes(self, look: _Look) -> tuple[bytes, bool]:
        """Its bytes, and whether no other bytes can have the same status."""
        assert self._seen_at is not None
        final = time.monotonic() >= self._seen_at[1] + TICK_SECONDS
        answer = self._observe(self._commands_at(look).read.words, self._user(look.place, look.folder))
        if not answer.ok:
            raise self._missing(_reason(answer))
        return answer.out, final

    def _user(self, place: _Place, folder: FileStatus | None) -> str:
        """Who changes the file through sudo; empty for the login itself."""
        if not self._with_sudo:
            return ""
        return self._owner(folder or self._stat_plainly(place.folder))

    def _owner(self, folder: FileStatus) -> str:
        return "" if self._sudo.login in ("root", folder.owner) else folder.owner

    def _commands_at(self, look: _Look) -> FileCommands:
        return self._commands_of(look.place, look.folder)

    def _commands_of(self, place: _Place, folder: FileStatus | None) -> FileCommands:
        return FileCommands(place.path, place.links, self._user(place, folder))

    # The steps of a replacement.

    def _do(self, command: Command, *, stdin: bytes = b"") -> Answer:
        answer = self._sudo.run(command, stdin=stdin, seconds=WRITE_SECONDS)
        if not answer.ok:
            raise _StepError(command, answer)
        return answer

    def _save(self, commands: FileCommands, before: FileContent) -> None:
        self._do(commands.save)
        (sha256,) = _digests(self._do(commands.saved_digest), 1)
        if sha256 != before.sha256:
            raise self._edited_a_moment_ago(before.path)
        self._do(commands.flush_saved)
        self._do(commands.name_saved)

    def _stage(self, commands: FileCommands, before: FileContent, data: bytes) -> None:
        """The whole new file under its second name, and a last look at the old one."""
        self._do(commands.copy)
        self._do(commands.write, stdin=data)
        self._do(commands.stage)
        self._do(commands.flush)
        new, old = _digests(self._do(commands.digests), 2)
        compared = self._observe(commands.compare.words, commands.user)
        if not compared.ok:
            raise _StepError(commands.compare, compared)
        copied, now = statuses(compared, 2)
        if old != before.sha256 or now != before.status:
            raise self._edited_a_moment_ago(before.path)
        if new != digest(data):
            raise RefusedError(
                f"The bytes written next to {self._shown(before.path)} are not those sent; the file is unchanged.",
                remedy="Check whether something else is changing it, then try again.",
            )
        if (copied.uid, copied.gid, copied.mode) != (before.status.uid, before.status.gid, before.status.mode):
            raise self._not_kept(before, f"a copy of it belongs to {copied}")

    def _commit(self, commands: FileCommands, data: bytes) -> None:
        try:
            answer = self._sudo.run(commands.commit, seconds=WRITE_SECONDS)
        except MachineLostError as lost:
            if not lost.may_have_run or not self._is(data):
                raise
        else:
            if not answer.ok and not self._is(data):  # another attempt may have put the same bytes in place
                raise _StepError(commands.commit, answer)
        flushed = self._sudo.run(commands.flush, seconds=WRITE_SECONDS)
        if not flushed.ok:
            raise EosError(
                f"{self._shown(commands.path)} was replaced, but it is unknown whether it has reached the disk: "
                f"{_reason(flushed)}.",
                remedy="Check the machine's disk before the worker is restarted.",
            )

    def _is(self, data: bytes) -> bool:
        try:
            return self.read(fresh=True).data == data
        except EosError:
            return False

    def _require_arrived(self, before: FileContent, data: bytes) -> None:
        after = self.read(fresh=True)
        if after.data != data:
            raise PlanMovedError(
                f"{self._shown(before.path)} was replaced, and then edited by someone else: its SHA-256 is "
                f"{after.sha256[:12]}…",
                expected=f"{digest(data)[:12]}…",
                remedy="Review the change, then make a new plan.",
            )

    def _clear(self, commands: FileCommands) -> None:
        with contextlib.suppress(EosError):  # what is left is cleared by the next attempt
            self._sudo.run(commands.clear)

    def _explained(self, failed: _StepError, before: FileContent, data: bytes) -> EosError:
        """What to tell of a step that has failed; the file is as it was."""
        shown = self._shown(before.path)
        with contextlib.suppress(EosError):
            if self.read(fresh=True).sha256 != before.sha256:
                return self._edited_a_moment_ago(before.path)
        reason = _reason(failed.answer)
        full = self._full_disk(before.path.parent, len(before.data) + len(data) + _SPARE_BYTES)
        if full is not None:
            return ConfigurationError(
                f"{shown} cannot be replaced: {reason}; it is unchanged. {sentence(full.what)}",
                remedy=sentence(full.remedy),
            )
        if reason.startswith("sudo:"):
            return ConfigurationError(
                f"{shown} cannot be replaced: {reason} (for '{failed.command}' as {failed.command.user}); "
                "it is unchanged.",
                remedy="Put the lines that 'eos hosts sudoers' prints into a file of /etc/sudoers.d there.",
            )
        if failed.command.words[0] == "cp":
            return self._not_kept(before, reason)
        who = self._who(failed.command.user)
        return ConfigurationError(
            f"{shown} cannot be replaced: {reason}; it is unchanged.",
            expected=f"a folder {before.path.parent} that {who} may write",
            remedy=f"Let {who} write that folder, or log in as a user who may.",
        )

    def _not_kept(self, before: FileContent, reason: str) -> RefusedError:
        return RefusedError(
            f"Owner, group, permissions and attributes of {self._shown(before.path)} cannot be kept: {reason}. "
            "The file is unchanged.",
            expected=f"a user who may give a file to {before.status.user}:{before.status.group}",
            remedy="Remove the access list or attribute that cannot be kept, or log in as the file's owner.",
        )

    # What stands against a change.

    def _first(self, checks: Sequence[Callable[[_Look], Obstacle | None]], look: _Look) -> Obstacle | None:
        """The first of these that finds something; asked side by side where each waits for its machine."""
        if not self._machine.name:
            return next((found for check in checks if (found := check(look)) is not None), None)
        with ThreadPoolExecutor(len(checks), thread_name_prefix="worker-file") as pool:
            answers = [pool.submit(check, look) for check in checks]
            return next((found for answer in answers if (found := answer.result()) is not None), None)

    def _hard_links(self, look: _Look) -> Obstacle | None:
        if look.file.names == 1:
            return None
        return _change(
            f"{self._shown(look.place.path)} has {look.file.names} names (hard links); a new file would leave the "
            "others behind",
            "make it a file of its own",
        )

    def _unsafe_folders(self, look: _Look) -> Obstacle | None:
        return self._unsafe(look.place, look.folder)

    def _unsafe(self, place: _Place, folder: FileStatus) -> Obstacle | None:
        """Who could turn the rights of sudo to other files, by a link in one of the folders on the way."""
        user = self._user(place, folder)
        if not user:
            return None
        steps = [*reversed(place.path.parents)]
        answer = self._machine.run(("stat", FORMAT, "--", *map(str, steps)))
        if not answer.ok:
            return _change(
                f"the folders above {self._shown(place.path)} cannot be seen: {_reason(answer)}",
                "let the login pass through them (chmod o+x)",
            )
        reason = writable_by_others(list(zip(steps, statuses(answer, len(steps)), strict=True)), folder.uid)
        if reason is None:
            return None
        return _change(
            f"{reason}, and so redirect commands that run as {user} for {self._shown(place.path)} to other files",
            f"let only root{'' if folder.uid == 0 else f' and {user}'} write that folder (chmod, chown)",
        )

    def _foreign(self, look: _Look) -> Obstacle | None:
        """An owner or a group that a new file cannot get."""
        user = self._user(look.place, look.folder)
        of_user = ("--", user.lstrip("#")) if user else ()
        ids = self._machine.run(("id", "-u", *of_user))
        groups = self._machine.run(("id", "-G", *of_user))
        uid = int(ids.out) if ids.ok and ids.out.strip().isdigit() else look.folder.uid
        if uid == 0:
            return None
        shown, who = self._shown(look.place.path), self._who(user)
        if uid != look.file.uid:
            how = ", who owns its folder and so replaces it through sudo," if user else ""
            return _change(
                f"{shown} belongs to {look.file.user}, and {who}{how} may not give a new file to that user",
                f"give file and folder the same owner ({look.folder.user} or {look.file.user}; chown)"
                if user
                else f"log in as {look.file.user}",
            )
        if groups.ok and str(look.file.gid) not in groups.out.decode().split():
            return _change(
                f"{shown} has the group {look.file.group}, which {who} is no member of",
                f"make {who} a member of that group, or give the file another one (chgrp)",
            )
        return None

    def _mounted(self, look: _Look) -> Obstacle | None:
        """A file that is mounted itself, or stands where only reading is allowed."""
        answer = self._machine.run(("cat", "--", "/proc/self/mountinfo"))
        mount = mount_of(look.place.path, answer.out.decode("utf-8", "surrogateescape"))
        if mount is None:
            return None
        point, options = mount
        if point == look.place.path:
            return _change(
                f"{self._shown(look.place.path)} is mounted by itself, so no other file can take over its name",
                "mount its folder instead",
            )
        if "ro" in options:
            return _change(
                f"{self._shown(look.place.path)} is on a file system that is mounted read-only ({point})",
                "mount it for writing, or move the worker's file",
            )
        return None

    def _ungranted(self, look: _Look) -> Obstacle | None:
        commands = self._commands_at(look)
        return self._sudo.obstacle(self._granted(commands), "change") if commands.user else None

    def _granted(self, commands: FileCommands) -> Sequence[Command]:
        """What sudo has to allow; looks only where they have been through sudo."""
        reading = [c for c in (commands.look, commands.read) if c.words[0] in self._by_sudo]
        hidden = "stat" in self._by_sudo
        return [*reading, *(c for c in commands.changing if hidden or c != commands.compare)]

    def _unwritable_folder(self, look: _Look) -> Obstacle | None:
        commands = self._commands_at(look)
        if self._sudo.run(commands.may_write_folder).ok:
            return None
        who = self._who(commands.user)
        return _change(
            f"the folder {self._shown(look.place.folder)} may not be written by {who}, so its file cannot be replaced",
            f"let {who} write that folder (it belongs to {look.folder}; chattr -i if it is immutable)",
        )

    def _immutable(self, look: _Look) -> Obstacle | None:
        if not look.file.mode & stat.S_IWUSR or self._sudo.run(self._commands_at(look).may_write_file).ok:
            return None
        return _change(
            f"{self._shown(look.place.path)} may not be written by its owner: it is immutable",
            "take the attribute from it (chattr -i -a)",
        )

    def _full(self, look: _Look) -> Obstacle | None:
        return self._full_disk(look.place.folder, 2 * look.file.size + _SPARE_BYTES)

    def _full_disk(self, folder: PurePosixPath, needed: int) -> Obstacle | None:
        """Too little space for a new file; also where less than one of the smallest blocks is free."""
        answer = self._machine.run(("df", "--output=avail,itotal,iavail,target", "-B1", "--", str(folder)))
        fields = answer.out.decode("utf-8", "surrogateescape").splitlines()[-1:] or [""]
        found = re.match(r"\s*(\d+)\s+(\d+|-)\s+(\d+|-)\s+(.*)", fields[0])
        if not answer.ok or found is None:
            return None
        free, point = int(found[1]), found[4]
        is_out_of_entries = found[3] == "0" and found[2] != "0"  # some file systems, such as Btrfs, count none
        if free >= max(needed, 4096) and not is_out_of_entries:
            return None
        what = f"{free} bytes are free" if not is_out_of_entries else "no file can be made any more (no inode is free)"
        return _change(f"on the file system {point} of {self._shown(folder)} {what}", "free some space there")

    # Words.

    def _who(self, user: str) -> str:
        """Who acts; a login may have no name."""
        try:
            return user or self._sudo.login
        except ConfigurationError:
            return "this user"

    def _shown(self, path: PurePosixPath) -> str:
        return f"{path} on {self._machine.name}" if self._machine.name else str(path)

    def _require_expected(self, content: FileContent, expect_sha256: str) -> None:
        if content.sha256 != expect_sha256:
            raise PlanMovedError(
                f"{self._shown(content.path)} was edited: its SHA-256 is {content.sha256[:12]}…",
                expected=f"{expect_sha256[:12]}…",
                remedy="Review the change, then make a new plan.",
            )

    def _edited_a_moment_ago(self, path: PurePosixPath) -> PlanMovedError:
        return PlanMovedError(
            f"{self._shown(path)} was edited a moment ago; eos leaves it unchanged.",
            remedy="Review the change, then make a new plan.",
        )

    def _missing(self, reason: str) -> ConfigurationError:
        if "No such file" in reason:
            return ConfigurationError(
                f"There is no file {self._shown(self._config)}.", remedy="Correct the worker's 'config'."
            )
        return self._unreadable(reason)

    def _unreadable(self, reason: str) -> ConfigurationError:
        if reason.startswith("sudo:"):
            remedy = "Put the lines that 'eos hosts sudoers' prints into a file of /etc/sudoers.d there."
        else:
            remedy = "Log in as a user who may read the worker's files, or allow sudo for its file."
        return ConfigurationError(f"The file {self._shown(self._config)} cannot be read: {reason}.", remedy=remedy)


def mount_of(path: PurePosixPath, mountinfo: str) -> tuple[PurePosixPath, frozenset[str]] | None:
    """The mount that a path is on, and its options; None if the text does not tell."""
    found = None
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 7 or "-" not in fields:
            continue
        point = PurePosixPath(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
        options = {*fields[5].split(","), *fields[-1].split(",")}
        within = point == path or point in path.parents
        if within and (found is None or len(point.parts) >= len(found[0].parts)):
            found = point, frozenset(options)
    return found


def _with_properties(data: bytes, properties: Mapping[str, str | None]) -> bytes:
    for name, value in properties.items():
        data = remove_property(data, name) if value is None else set_property(data, name, value)
    return data


def _change(what: str, remedy: str) -> Obstacle:
    return Obstacle("change", what, remedy)


def _content(look: _Look, data: bytes) -> FileContent:
    changed = max(status.changed_ns for status in (look.file, *look.links))
    return FileContent(look.place.path, data, look.file.modified_ns / 1e9, changed / 1e9, look.file)


def _path(out: bytes) -> PurePosixPath:
    return PurePosixPath(os.fsdecode(out.removesuffix(b"\n")))


def _digests(answer: Answer, files: int) -> list[str]:
    # A line begins with a backslash where the name has one.
    lines = answer.out.decode("utf-8", "surrogateescape").splitlines()
    if len(lines) != files:
        raise CommandError(
            f"The output of sha256sum cannot be read: {' | '.join(lines)[:200]!r}.",
            expected=f"{files} lines, as GNU coreutils' sha256sum prints them",
            remedy="See which program 'sha256sum' is on that machine.",
        )
    return [line.lstrip("\\")[:64] for line in lines]


def _is_missing(answer: Answer) -> bool:
    return b"No such file" in answer.err


def _reason(answer: Answer) -> str:
    return answer.problem.rstrip(".")
