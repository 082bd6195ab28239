"""An edit of a worker's properties file on any machine: names, digests, the new bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import TypeVar

from airflow_eos_provider.connect.properties import remove_property, set_property
from airflow_eos_provider.errors import PlanMovedError, RefusedError

P = TypeVar("P", bound=PurePath)

#: The bytes before the last change stand beside the file under this suffix. Renaming it breaks rollouts in flight.
BACKUP_SUFFIX = ".eos-backup"

_NEW_SUFFIX = ".eos-new"
_PART_SUFFIX = ".eos-part"


def digest(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
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


def with_properties(data: bytes, properties: Mapping[str, str | None]) -> bytes:
    """A file's bytes with these properties set; None stands for taken away."""
    for name, value in properties.items():
        data = remove_property(data, name) if value is None else set_property(data, name, value)
    return data


def require_expected(shown: str, sha256: str, expect_sha256: str) -> None:
    """Refuse to touch a file that is not the expected one."""
    if sha256 != expect_sha256:
        raise PlanMovedError(
            f"{shown} was edited: its SHA-256 is {sha256[:12]}…",
            expected=f"{expect_sha256[:12]}…",
            remedy="Review the change, then make a new plan.",
        )


def require_backup(shown: str, data: bytes, sha256: str) -> None:
    """Refuse a backup of other bytes."""
    if digest(data) != sha256:
        raise RefusedError(
            f"The backup {shown} differs from the worker's file before the change.",
            expected=f"SHA-256 {sha256}",
            remedy="Restore the worker's file manually.",
        )


def edited_a_moment_ago(shown: str) -> PlanMovedError:
    """A file that was changed between the first look at it and the last."""
    return PlanMovedError(
        f"{shown} was edited a moment ago; eos leaves it unchanged.",
        remedy="Review the change, then make a new plan.",
    )
