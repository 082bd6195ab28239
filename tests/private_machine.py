"""A machine for tests: this one, as another user sees it, with users, sudo's rights and mounts of its own.

A mount namespace holds a copy of ``/etc/passwd`` without any passwords, an empty ``/etc/sudoers.d`` and whatever a test
mounts. Nothing of it is to be seen outside, and nothing stays when its one process has ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_eos_provider.rollout.hosts.machine.machine import Answer
from airflow_eos_provider.rollout.hosts.machine.this_machine import ThisMachine
from tests.missing import not_run

#: Who logs in, who owns the workers' files, and who may do nothing.
USERS = {"eos": 7101, "kafka": 7102, "other": 7103}

_PATH = "/usr/local/bin:/usr/bin:/bin"
_PATHS = {"root": f"{_PATH}:/usr/sbin:/sbin"}

_SETUP = """
set -e
cd "$1"
for f in passwd group; do grep -v -E '^(eos|kafka|other):' "/etc/$f" > "$f" || true; done
echo 'root:*:19000:0:99999:7:::' > shadow  # no password of the real one is copied
echo 'root:*::' > gshadow
while read -r name id; do
    echo "$name:x:$id:$id::/nonexistent:/bin/sh" >> passwd
    echo "$name:*:19000:0:99999:7:::" >> shadow
    echo "$name:x:$id:" >> group
    echo "$name:!::" >> gshadow
done < users
for f in passwd group shadow gshadow; do mount --bind "$f" "/etc/$f"; done
mount -t tmpfs -o mode=755 tmpfs /etc/sudoers.d
echo ready
exec cat
"""


@dataclass
class PrivateMachine:
    """A :class:`~airflow_eos_provider.rollout.hosts.machine.machine.Machine`; ``run`` is the login ``eos``."""

    pid: int
    folder: Path
    name: str = "connect-1"
    user: str = "eos"
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 120.0) -> Answer:
        self.commands.append(tuple(words))
        return self.run_as(self.user, *words, stdin=stdin, seconds=seconds)

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        raise NotImplementedError

    def run_as(self, user: str, *words: str, stdin: bytes = b"", seconds: float = 120.0) -> Answer:
        become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
        clean = ("env", "-i", f"PATH={_PATHS.get(user, _PATH)}", "LC_ALL=C.UTF-8")
        enter = ("nsenter", f"--target={self.pid}", "--mount", "--wd=/")
        return ThisMachine().run((*enter, *become, *clean, *words), stdin=stdin, seconds=seconds)

    def as_root(self, *words: str, stdin: bytes = b"") -> bytes:
        """Run a command as root; it must succeed."""
        answer = self.run_as("root", *words, stdin=stdin)
        assert answer.ok, (words, answer.err)
        return answer.out

    def grant(self, lines: Sequence[str]) -> None:
        """These are the rights that sudo knows of, besides root's."""
        text = "".join(f"{line}\n" for line in lines).encode()
        self.as_root("visudo", "-c", "-f", "-", stdin=text)
        self.as_root("dd", "of=/etc/sudoers.d/eos", "status=none", stdin=text)
        self.as_root("chmod", "440", "/etc/sudoers.d/eos")

    def owned(self, path: Path, user: str, mode: int, *, group: str = "") -> Path:
        os.chown(path, USERS.get(user, 0), USERS.get(group or user, 0))
        path.chmod(mode)
        return path


@contextlib.contextmanager
def private_machine() -> Iterator[PrivateMachine]:
    """A machine of its own; skips the test where a namespace or sudo is not to be had."""
    if os.geteuid() != 0:
        pytest.skip("only root may make a mount namespace and become another user")
    for program in ("sudo", "visudo", "unshare", "nsenter", "setpriv"):
        if shutil.which(program) is None:
            not_run(f"there is no {program}")
    folder = Path(tempfile.mkdtemp(prefix="eos-machine-"))
    folder.chmod(0o755)
    etc = folder / "etc"
    etc.mkdir(mode=0o700)
    (etc / "users").write_text("".join(f"{name} {uid}\n" for name, uid in USERS.items()))
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SETUP, "sh", str(etc)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            if holder.stdout.readline() != b"ready\n":
                holder.kill()
                pytest.skip(f"a mount namespace is not allowed here: {holder.stderr.read().decode()}")
            yield PrivateMachine(holder.pid, folder)
        finally:
            holder.stdin.close()
            holder.wait(180)
            shutil.rmtree(folder)
