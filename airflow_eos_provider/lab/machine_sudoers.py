"""What the user who logs in to a lab's machine may do there as others."""

from __future__ import annotations

from pathlib import Path

from airflow_eos_provider.lab.machine_root import LOGIN_USER


def sudoers(unit: str, config: Path) -> str:
    """The lines of a sudoers file.

    :param unit: of the worker.
    :param config: the worker's properties file.
    """
    return f"# For {unit} and {config}.\n{LOGIN_USER} ALL=(root, kafka) NOPASSWD: ALL\n"
