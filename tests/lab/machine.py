"""One machine of a lab: a root, processes, a host name and a loopback address of its own, systemd and sshd.

It is made of namespaces, without containers: ``machine_boot.sh``. Only the network is shared, so a machine has an
address of 127.0.0.0/8, and nothing of it is reached from another host. Its files survive a power-off.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.lab_processes import MARKER_PROPERTY, own_process
from airflow_eos_provider.lab.ports import require_free
from airflow_eos_provider.lab.servers.part import Part
from airflow_eos_provider.lab.waiting import wait_for
from airflow_eos_provider.local_processes import ProcessIdentity, identify, spawn
from tests.lab.machine_root import Layer, Root

#: The first machine's address ends with this number; 127.0.0.1 is this machine.
_FIRST_ADDRESS = 2

#: For a command in a machine, seconds.
RUN_SECONDS = 60.0

#: For the kernel to end all processes of a machine, seconds.
_OFF_SECONDS = 30.0

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def machine_name(number: int) -> str:
    """``connect-1`` for the first."""
    return f"connect-{number}"


@dataclass(frozen=True, slots=True)
class Machine(Part):
    """One machine of a lab, on or off.

    :param bound: folders of this machine that are seen there, too; ``rw:`` before those that may be written.
    """

    folder: Path
    number: int
    ssh_port: int
    token: str
    bound: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return machine_name(self.number)

    @property
    def host(self) -> str:
        """Its address."""
        return f"127.0.0.{_FIRST_ADDRESS + self.number - 1}"

    @property
    def own_folder(self) -> Path:
        """What makes up the machine."""
        return self.folder / "machines" / self.name

    @property
    def layer(self) -> Layer:
        """The machine's own files; to be changed here only while it is off."""
        return Layer(self.own_folder / "upper")

    @property
    def host_key(self) -> Path:
        """Its private host key; the public one lies beside it."""
        return self.own_folder / "ssh_host_ed25519_key"

    @property
    def log(self) -> Path:
        """What its boot said before systemd ran, usually nothing."""
        return self.own_folder / "boot.log"

    @property
    def pid_file(self) -> Path:
        return self.own_folder / "machine.pid"

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.ssh_port,)

    @property
    def start_command(self) -> list[str]:
        boot = Path(__file__).with_name("machine_boot.sh")
        marker = f"{MARKER_PROPERTY}={self.token}:{self.folder}"  # without dashes: systemd lets such an argument be
        group = control_group(self.folder, self.name)
        return ["/bin/sh", str(boot), group, str(self.own_folder), self.name, marker, *self.bound]

    def prepare(self, root: Root) -> None:
        """Write the machine's own files."""
        for part in ("upper", "work", "merged"):
            (self.own_folder / part).mkdir(parents=True)
        (self.own_folder / "upper").chmod(0o755)
        root.write(self.layer)

    @property
    def pid1(self) -> int | None:
        """Pid, on this machine, of its first process; None while it is off or has not got as far."""
        process = self.first_process
        return process.pid if process else None

    def process(self, token: str) -> ProcessIdentity | None:
        return self.first_process

    @property
    def address(self) -> str:
        """Of its sshd."""
        return f"{self.host}:{self.ssh_port}"

    def answers(self) -> bool:
        """Whether an SSH server says its version there."""
        try:
            with socket.create_connection((self.host, self.ssh_port), timeout=5) as connection:
                return connection.recv(255).startswith(b"SSH-")  # all of its line, or it logs a reset
        except OSError:
            return False

    def wait(self, process: ProcessIdentity) -> None:
        """Return when its sshd answers."""
        wait_for(f"The machine {self.name}", self.answers, process, self.log)

    @property
    def starter(self) -> ProcessIdentity | None:
        """The process that keeps it on, on this machine: it ends together with the first one there."""
        return own_process(self.pid_file, self.token)

    @property
    def first_process(self) -> ProcessIdentity | None:
        """Its systemd; None while it is off or has not got as far."""
        starter = self.starter
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(starter.pid).children() if starter else ():
                if Path(child.exe()).name == "systemd":
                    return identify(child.pid)
        return None

    def run(
        self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = RUN_SECONDS, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the machine as root, not over SSH."""
        pid = self.pid1
        if pid is None:
            raise EosError(f"The machine {self.name} is off.", remedy="Switch it on: power_on().")
        done = run_in(pid, words, stdin=stdin, seconds=seconds, what=self.name)
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise EosError(f"{' '.join(words)} on {self.name} ended with {done.returncode}: {said}")
        return done

    def output(self, words: Sequence[str]) -> str:
        """What a command in the machine prints, without the last line's end."""
        return self.run(words).stdout.decode(errors="replace").rstrip("\n")

    def read(self, inside: Path | str) -> bytes:
        """A file's content, whether the machine is on or off."""
        return self.layer.path(inside).read_bytes()

    def power_off(self) -> None:
        """Cut its power: all its processes end at once, and its mounts with them; its files stay."""
        parts = [process for process in (self.first_process, self.starter) if process is not None]
        for process in parts:
            process.stop(kill=True, grace_seconds=_OFF_SECONDS)
        left = [process.pid for process in parts if process.is_alive()]
        if left:
            raise EosError(f"The machine {self.name} does not end: processes {left}.")
        remove_control_groups(self.folder, self.name)

    def boot(self) -> ProcessIdentity:
        """Switch it on, without a wait."""
        require_free(self.ssh_port, self.name, self.host)
        return spawn(self.start_command, log=self.log, pid_file=self.pid_file, cwd=self.folder)

    def power_on(self) -> None:
        """Switch it on, and wait until its sshd answers; one that is on is left alone.

        The worker's unit starts by itself, as at every boot; ``Lab.start_worker`` waits for it.
        """
        self.wait(self.starter or self.boot())

    @contextmanager
    def full_disk(self, folder: Path | str = "/etc/kafka") -> Iterator[None]:
        """Let nothing more be written to a folder of the machine: it is on a file system that is full.

        What is changed in its files meanwhile (overwritten, shortened) is kept.
        """
        there = str(folder)
        self.run(["sh", "-euc", _FILL, "sh", there])
        try:
            yield
        finally:
            self.run(["sh", "-euc", _EMPTY, "sh", there])


_FILL = """
mkdir -p /run/full
mount -t tmpfs -o size=256k,mode="$(stat -c %a "$1")" tmpfs /run/full
cp -a "$1/." /run/full/
cat /dev/zero >/run/full/.filler 2>/dev/null || true
mount --move /run/full "$1"
"""

_EMPTY = """
rm -f "$1/.filler"
mkdir -p /run/kept
mount --bind "$1" /run/kept
umount "$1"
rm -rf "$1"/* "$1"/.[!.]*
cp -a /run/kept/. "$1/"
umount /run/kept
"""


def run_in(
    pid: int, words: Sequence[str], *, what: str, stdin: bytes = b"", seconds: float = RUN_SECONDS
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as root in the namespaces of a machine."""
    # Not its control group: systemd would count the command to its own scope.
    enter = ["nsenter", "-t", str(pid), "-m", "-p", "-u", "-i", "-r", "-w", "--", *words]
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    try:
        return subprocess.run(enter, input=stdin, capture_output=True, timeout=seconds, check=False, env=environment)
    except subprocess.TimeoutExpired as error:
        raise EosError(f"{words[0]} on {what} did not end in {seconds:.0f} s.") from error


def is_machine(process: ProcessIdentity) -> bool:
    """Whether a process of a lab is a machine's own: what has started it, or its first process."""
    return any(argument.startswith(f"{MARKER_PROPERTY}=") for argument in process.command_line())


def control_group(lab_folder: Path, name: str) -> str:
    """The name of a machine's control groups, the same at each boot and unlike those of other labs."""
    return f"{_group_prefix(lab_folder)}{name}"


def _group_prefix(lab_folder: Path) -> str:
    return f"eos-lab-{hashlib.sha256(str(lab_folder).encode()).hexdigest()[:12]}-"


def remove_control_groups(lab_folder: Path, name: str = "*") -> None:
    """Remove the empty control groups that machines of a lab have left; those of a machine that is on stay."""
    pattern = f"{_group_prefix(lab_folder)}{name}"
    for group in (*_CONTROL_GROUPS.glob(pattern), *_CONTROL_GROUPS.glob(f"*/{pattern}")):
        inner = sorted((path for path in group.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
        for path in (*inner, group):
            with contextlib.suppress(OSError):
                path.rmdir()
