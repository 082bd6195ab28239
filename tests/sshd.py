"""A real sshd (Debian's ``openssh-server``) on a free port of 127.0.0.1, with a folder of its own for all that it has.

It is started as this user, logs this user in, and touches nothing of the machine's own sshd or of ``~/.ssh``.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from airflow_eos_provider.connect.cluster.placement import MachineDescription, SshLogin
from airflow_eos_provider.lab.ports import free_ports
from tests.missing import not_run
from tests.waiting import until

#: Where Debian has it; it is on no user's path.
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


def require_sshd() -> str:
    """The path of sshd. Without one the test is reported as not run; where CI is set, as failed."""
    if SSHD is None:
        not_run("sshd is not installed (Debian: openssh-server)")
    return SSHD


def make_key(path: Path, *, kind: str = "ed25519") -> Path:
    """A new pair of keys: ``path`` and ``path.pub``."""
    for old in (path, path.with_name(f"{path.name}.pub")):
        old.unlink(missing_ok=True)
    keygen("-q", "-t", kind, "-N", "", "-C", "eos test", "-f", str(path))
    return path


def keygen(*arguments: str) -> str:
    """What ``ssh-keygen`` prints."""
    return subprocess.run(
        ("ssh-keygen", *arguments), check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    ).stdout


def public(key: Path) -> str:
    """The public key of a pair: ``ssh-ed25519 AAAA…``, without its comment."""
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


class Sshd:
    """One sshd."""

    address = "127.0.0.1"

    def __init__(self, folder: Path, *, options: Mapping[str, str] | None = None) -> None:
        self.program = require_sshd()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_ports(1)[0]
        self.user = getpass.getuser()
        self.host_key = make_key(folder / "host_key")
        self.user_key = make_key(folder / "user_key")
        self.known_hosts = folder / "known_hosts"
        self.ssh_config = folder / "ssh_config"  # empty: the user's own is none of the test's
        self.authorized_keys = folder / "authorized_keys"
        self.log = folder / "sshd.log"
        self.options = dict(options or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.authorized_keys.write_text(f"{public(self.user_key)}\n")
        self.ssh_config.write_text("")
        self.know()

    def know(self) -> None:
        """Write the present host key into :attr:`known_hosts`, alone."""
        self.known_hosts.write_text(f"[{self.address}]:{self.port} {public(self.host_key)}\n")

    def start(self) -> Sshd:
        """Start it, and wait until it answers."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where its unprivileged part is locked in
        own = {
            "ListenAddress": self.address,
            "Port": str(self.port),
            "HostKey": str(self.host_key),
            "AuthorizedKeysFile": str(self.authorized_keys),
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "yes",
            "MaxStartups": "100:30:200",
            "LogLevel": "VERBOSE",
        }
        # A home without start-up files of the shell: each command would run what this user has in them.
        variables = f"{self.options.get('SetEnv', '')} HOME={self.folder}".strip()
        config = self.folder / "sshd_config"
        options = {**own, **self.options, "SetEnv": variables}
        config.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                (self.program, "-D", "-e", "-f", str(config)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, f"sshd on port {self.port}; its log:\n{self.log.read_text()}", seconds=20)
        return self

    def stop(self) -> None:
        """End it with the sessions that it has; what was detached in them is left."""
        if self._process is not None:
            sessions = self.session_pids()
            self._process.kill()
            self._process.wait(180)
            self._process = None
            _kill(sessions)

    def session_pids(self) -> list[int]:
        """The sshd processes of all connections."""
        if self._process is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [
                child.pid
                for child in psutil.Process(self._process.pid).children(recursive=True)
                if _name_of(child).startswith("sshd")
            ]
        return []

    def kill_sessions(self) -> int:
        """Kill the sshd processes of all connections, as a network or a machine ends them; it goes on listening."""
        pids = self.session_pids()
        _kill(pids)
        return len(pids)

    def swap_host_key(self, kind: str = "ed25519") -> None:
        """Another host key from now on, as another machine at this address has; :attr:`known_hosts` keeps the old."""
        self.stop()
        make_key(self.host_key, kind=kind)
        self.start()

    def description(self, *, ssh: str | None = None, **login: Any) -> MachineDescription:
        """How this machine is described, with its own configuration and known hosts, and the key that it takes."""
        fields = {"user": self.user, "port": self.port, "key_file": self.user_key, **login}
        return MachineDescription(
            ssh=ssh or self.address,
            connect_seconds=120.0,
            login=replace(SshLogin(), **fields),
            ssh_config=self.ssh_config,
            known_hosts=self.known_hosts,
        )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
        return False


@contextlib.contextmanager
def running_sshd(folder: Path, **settings: Any) -> Iterator[Sshd]:
    """An sshd for a while; see :class:`Sshd`."""
    sshd = Sshd(folder, **settings)
    try:
        yield sshd.start()
    finally:
        sshd.stop()


def _name_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
