"""The files beside a worker's properties file that a change of it needs, on any machine."""

from __future__ import annotations

import hashlib
from pathlib import PurePath
from typing import TypeVar

P = TypeVar("P", bound=PurePath)

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
