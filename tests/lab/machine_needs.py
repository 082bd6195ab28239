"""What machines of their own need from this one, and what of it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pytest

from tests.lab.machine_root import faketime_library
from tests.missing import not_run

SYSTEMD = Path("/lib/systemd/systemd")

#: Program -> Debian's package.
_PROGRAMS: Mapping[str, str] = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "pivot_root": "util-linux",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sudo": "sudo",
    "systemctl": "systemd",
    "journalctl": "systemd",
    "dbus-daemon": "dbus",
}

#: Set to 1, a run that must be complete may leave out the tests that need machines.
LEAVE_OUT = "EOS_NO_MACHINES"

_TRIAL_SECONDS = 30.0

_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@lru_cache(maxsize=1)
def missing() -> tuple[str, ...]:
    """What is missing here, one sentence each; none where a lab may have machines."""
    if os.geteuid() != 0:
        return ("The lab's machines are made by root only, and this user is another.",)
    packages = {package for program, package in _PROGRAMS.items() if _which(program) is None}
    if not SYSTEMD.exists():
        packages.add("systemd")
    if faketime_library() is None:
        packages.add("libfaketime")
    if packages:
        return (f"Not installed: {', '.join(sorted(packages))}.",)
    if Path(__file__).is_relative_to("/tmp"):
        return ("This checkout is below /tmp, of which each machine has its own: clone it elsewhere.",)
    refused = _namespaces_refused()
    return (f"The kernel allows no namespaces: {refused}",) if refused else ()


def _which(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join(_SYSTEM_FOLDERS))


def _namespaces_refused() -> str | None:
    """Why namespaces and mounts are refused; None if they are not."""
    words = ["unshare", "--pid", "--fork", "--mount", "--uts", "--ipc", "--cgroup", "mount", "-t", "tmpfs", "t", "/mnt"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()


def need_machines(environment: Mapping[str, str] = os.environ) -> None:
    """Skip the test where a lab cannot have machines; fail it if the run must be complete (``CI`` is set)."""
    left_out = environment.get(LEAVE_OUT) == "1"
    found = missing()
    if not found and not left_out:
        return
    if left_out:
        pytest.skip(f"not run: {LEAVE_OUT} is set")
    not_run(f"{' '.join(found)} Install what is missing, or set {LEAVE_OUT}=1.", environment)
