"""A process with all that it has started."""

from __future__ import annotations

import contextlib

import psutil

from airflow_eos_provider.local_processes import ProcessIdentity, identify


def family_of(top: ProcessIdentity) -> list[ProcessIdentity]:
    """A process and all that it has started, and theirs; itself first."""
    children = psutil.Process(top.pid).children(recursive=True) if top.is_alive() else []
    return [top, *(found for child in children if (found := identify(child.pid)) is not None)]


def stop_family(top: ProcessIdentity, *, grace_seconds: float) -> None:
    """Stop a process and all that it has started: all are asked at once, and each is killed after its grace."""
    members = family_of(top)
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            if member.is_alive():
                psutil.Process(member.pid).terminate()
    for member in members:
        member.stop(grace_seconds=grace_seconds)
        assert not member.is_alive(), f"{member} does not end"
