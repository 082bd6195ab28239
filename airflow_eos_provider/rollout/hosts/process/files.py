"""A worker's properties file replaced in one step: at every moment it is the old one or the new one, whole.

The new bytes go into a second file in the same folder, reach the disk, take over owner, group, permissions and extended
attributes, and only then the name. Where one of these cannot be kept, the file stays as it is and the reason is raised.
"""

from __future__ import annotations

import contextlib
import grp
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.rollout.hosts.edited_file import (
    backup_path,
    digest,
    edited_a_moment_ago,
    replacement_path,
    require_backup,
    require_expected,
)
from airflow_eos_provider.rollout.hosts.host import Obstacle
from airflow_eos_provider.rollout.hosts.ownership import user_name

#: Attributes that the kernel itself maintains; copying them is neither needed nor always allowed.
_KERNEL_ATTRIBUTES = ("security.ima", "security.evm")


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file at one moment.

    :param path: the file itself, behind any symbolic links.
    :param data: its bytes, never shown.
    :param modified_at: its date, seconds since the epoch; a tool may have set it.
    :param changed_at: last change of anything about it, or of a link on the way to it, seconds since the epoch.
    """

    path: Path
    data: bytes = field(repr=False)
    modified_at: float
    changed_at: float
    status: os.stat_result = field(repr=False)

    @property
    def sha256(self) -> str:
        return digest(self.data)


def read(path: Path) -> FileContent:
    """A file as it is now.

    :raises ConfigurationError: it is missing, unreadable or no ordinary file.
    """
    try:
        links = max((link.lstat().st_ctime for link in _links(path)), default=0.0)
        target = path.resolve(strict=True)
        with target.open("rb") as stream:
            status = os.fstat(stream.fileno())
            data = stream.read()
    except FileNotFoundError as error:
        raise ConfigurationError(f"There is no file {path}.", remedy="Correct the worker's 'config'.") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"The file {path} cannot be read: {reason}.", remedy="Run this as a user who may read the worker's files."
        ) from error
    return FileContent(target, data, status.st_mtime, max(status.st_ctime, links), status)


def replace(path: Path, data: bytes, *, expect_sha256: str, backup: bool) -> None:
    """Put new content into a file that is still what it is expected to be.

    :param path: the file; behind a symbolic link the target is replaced and the link kept.
    :param data: its new bytes.
    :param expect_sha256: digest of the bytes that are to be replaced.
    :param backup: keep those bytes beside the file (mode 0600), see :func:`backup_of`.
    :raises PlanMovedError: the file is another one by now.
    :raises RefusedError: its owner, group, permissions, attributes or hard links cannot be kept.
    :raises ConfigurationError: the folder cannot be written.
    """
    before = read(path)
    require(before, expect_sha256)
    if before.status.st_nlink > 1:
        raise RefusedError(
            f"{before.path} has {before.status.st_nlink} names (hard links); a new file would leave the others behind.",
            remedy="Make it a file of its own.",
        )
    with _explained(before.path):
        if backup:
            with _new_file(backup_path(before.path)) as descriptor:
                _write(descriptor, before.data)
        with _new_file(before.path, still=before) as descriptor:
            _write(descriptor, data)
            _take_over(descriptor, before)


def backup_of(path: Path, sha256: str) -> bytes:
    """The bytes that :func:`replace` kept.

    :raises RefusedError: there is no backup, or not of these bytes.
    """
    saved = backup_path(path.resolve())
    try:
        data = saved.read_bytes()
    except OSError as error:
        raise RefusedError(
            f"The backup {saved} cannot be read: {error.strerror}.", remedy="Restore the worker's file manually."
        ) from error
    require_backup(str(saved), data, sha256)
    return data


def require(content: FileContent, expect_sha256: str) -> None:
    """Refuse to touch a file that is not the expected one.

    :raises PlanMovedError: its digest is another.
    """
    require_expected(str(content.path), content.sha256, expect_sha256)


def obstacle_to_change(path: Path) -> Obstacle | None:
    """Why this process could not replace the file, found without touching it; None if nothing is seen against it.

    :raises ConfigurationError: the file cannot be read.
    """
    before = read(path)
    owner, group = before.status.st_uid, before.status.st_gid
    what, remedy = "", ""
    if before.status.st_nlink > 1:
        what = (
            f"{before.path} has {before.status.st_nlink} names (hard links); a new file would leave the others behind"
        )
        remedy = "make it a file of its own"
    elif not may(before.path.parent, os.W_OK | os.X_OK):
        what = f"the folder {before.path.parent} may not be written by {_this_user()}, so its file cannot be replaced"
        remedy = f"let {_this_user()} write that folder (it belongs to {_who(before.path.parent.stat())})"
    elif os.geteuid() != 0 and owner != os.geteuid():
        what = f"{before.path} belongs to {user_name(owner)}, and {_this_user()} may not give a new file to that user"
        remedy = f"run this as {user_name(owner)}"
    elif os.geteuid() != 0 and group not in {os.getegid(), *os.getgroups()}:
        what = f"{before.path} has the group {_group_name(group)}, which {_this_user()} is no member of"
        remedy = f"make {_this_user()} a member of that group, or give the file another one (chgrp)"
    return Obstacle("change", what, remedy) if what else None


def may(path: Path, access: int) -> bool:
    """Whether this process, as the user that it acts as, has this access (``os.R_OK`` and the like)."""
    return os.access(path, access, effective_ids=True)


def _this_user() -> str:
    return user_name(os.geteuid())


def _who(status: os.stat_result) -> str:
    return f"{user_name(status.st_uid)}:{_group_name(status.st_gid)}, mode {stat.S_IMODE(status.st_mode):o}"


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error


def _unwritable(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be replaced: {reason}; it is as it was.",
        expected=f"a folder {path.parent} that {_this_user()} may write",
        remedy=f"Let {_this_user()} write that folder, or run this as a user who may.",
    )


@contextlib.contextmanager
def _new_file(path: Path, *, still: FileContent | None = None) -> Iterator[int]:
    """A file that takes over the name ``path`` when the block ends well, and is removed when it does not.

    :param still: what stands there must be this until the last moment.
    """
    temporary = replacement_path(path)
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()  # left behind by a run that was killed
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if still is not None:
            _require_untouched(still)
        os.replace(temporary, path)  # noqa: PTH105 - the one atomic step, by its own name
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _require_untouched(content: FileContent) -> None:
    now = content.path.stat()
    was = content.status
    if (now.st_ino, now.st_size, now.st_mtime_ns) != (was.st_ino, was.st_size, was.st_mtime_ns):
        raise edited_a_moment_ago(str(content.path))


def _take_over(descriptor: int, before: FileContent) -> None:
    """Give the new file owner, group, permissions and extended attributes (access lists among them) of the old."""
    was = before.status
    now = os.fstat(descriptor)
    try:
        if (now.st_uid, now.st_gid) != (was.st_uid, was.st_gid):
            os.fchown(descriptor, was.st_uid, was.st_gid)
        attributes = os.listxattr(before.path)
        for name in set(os.listxattr(descriptor)) - set(attributes):  # inherited from the folder's access list
            os.removexattr(descriptor, name)
        for name in attributes:
            if name in _KERNEL_ATTRIBUTES:
                continue
            value = os.getxattr(before.path, name)
            if _attribute(descriptor, name) != value:
                os.setxattr(descriptor, name, value)
        os.fchmod(descriptor, stat.S_IMODE(was.st_mode))
    except OSError as error:
        raise RefusedError(
            f"Owner, group, permissions and attributes of {before.path} cannot be kept: {error.strerror}. "
            "The file is as it was.",
            expected=f"a user who may give a file to {user_name(was.st_uid)}:{_group_name(was.st_gid)}",
            remedy=_remedy_for_owner(was),
        ) from error


def _remedy_for_owner(was: os.stat_result) -> str:
    """What to do about an owner or group that cannot be kept: true for whoever is asked to do it."""
    if was.st_uid != os.geteuid():
        return f"Run this as {user_name(was.st_uid)}, who owns the file, or as root."
    if was.st_gid not in {os.getegid(), *os.getgroups()}:
        return f"Make {_this_user()} a member of the group {_group_name(was.st_gid)}, or give the file another group."
    return "Take what cannot be kept (an access list, an attribute) from the file, or run this as root."


def _attribute(descriptor: int, name: str) -> bytes | None:
    try:
        return os.getxattr(descriptor, name)
    except OSError:
        return None


def _links(path: Path) -> Iterator[Path]:
    """The symbolic links on the way to a file; one that is turned to another file changes what a worker reads."""
    seen = 0
    here = path.absolute()
    for parent in [*reversed(here.parents), here]:
        while parent.is_symlink() and seen < 40:
            seen += 1
            yield parent
            parent = parent.parent / parent.readlink()
