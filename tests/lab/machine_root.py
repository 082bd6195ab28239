"""The own files of a lab's machine: its users, units, sshd, sudo. They are the upper layer of its root.

The lower layer is this machine's own root, so the machine has the same programs. What would start or name something
there is covered: the units that are enabled here, the users' passwords, the host keys.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Who logs in; has no rights but what sudo gives.
LOGIN_USER = "eos"

#: Who runs the workers.
WORKER_USER = "kafka"

#: Read by no other user than Connect's, as its package would have it.
CONFIG_FOLDER = Path("/etc/kafka")

#: What systemd starts of itself on a machine; all else that is enabled here is not on the lab's machines.
_SYSTEM_UNITS = {
    "sysinit.target.wants": ("systemd-journald.service", "systemd-journal-flush.service"),
    "sockets.target.wants": ("systemd-journald.socket", "systemd-journald-dev-log.socket", "dbus.socket"),
}

#: systemd's own folder of units, without links: a folder of the upper layer must not cover a link of the lower one.
UNITS = Path("/usr/lib/systemd/system")

_SSHD_UNIT = """\
[Unit]
Description=OpenSSH server

[Service]
ExecStart=/usr/sbin/sshd -D -e -f /etc/ssh/sshd_config
RuntimeDirectory=sshd
KillMode=process
Restart=always

[Install]
WantedBy=machine.target
"""

_SSHD_CONFIG = """\
ListenAddress {address}:{port}
HostKey /etc/ssh/ssh_host_ed25519_key
AuthenticationMethods publickey
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin no
UsePAM no
PrintMotd no
MaxStartups 100
"""

_JOURNALD = """\
[Journal]
Storage=persistent
SystemMaxUse=64M
RateLimitIntervalSec=0
ReadKMsg=no
Audit=no
"""

_TARGET = """\
[Unit]
Description=A machine of a lab
Requires=basic.target
After=basic.target
AllowIsolate=yes
"""

#: Loaded into the processes of a machine whose clock is wrong.
FAKETIME_LIBRARY = "faketime/libfaketime.so.1"

#: Variables that sudo gives to its commands: it takes none for the loader from its caller.
CLOCK_FILE = Path("/etc/clock")


@dataclass(frozen=True, slots=True)
class Account:
    """A user of a machine, with a group of the same name."""

    name: str
    number: int
    home: str
    shell: str = "/bin/sh"


def with_accounts(lines: str, accounts: Iterable[Account], form: str) -> str:
    """A file of accounts (``/etc/passwd`` and its kind) with some of them in place of those of the same name.

    :param form: of a new line, with the fields of :class:`Account`.
    """
    ours = list(accounts)
    names = {account.name for account in ours}
    kept = [line for line in lines.splitlines() if line.partition(":")[0] not in names]
    new = [
        form.format(name=account.name, number=account.number, home=account.home, shell=account.shell)
        for account in ours
    ]
    return "\n".join([*kept, *new]) + "\n"


PASSWD = "{name}:x:{number}:{number}::{home}:{shell}"
GROUP = "{name}:x:{number}:"
#: Of every user there, so that no password of this machine is copied.
#: No password fits, but the account is not locked, which sshd would refuse.
SHADOW = "{name}:*:19000:0:99999:7:::"


def accounts(passwd: str) -> tuple[Account, ...]:
    """The users that a machine has beside those of this one, under numbers that are free."""
    taken = {int(fields[2]) for line in passwd.splitlines() if len(fields := line.split(":")) > 3}
    numbers = (number for number in range(2000, 60000) if number not in taken)
    return (
        Account(LOGIN_USER, next(numbers), f"/home/{LOGIN_USER}"),
        Account(WORKER_USER, next(numbers), f"/var/lib/{WORKER_USER}", "/usr/sbin/nologin"),
    )


class Layer:
    """Writes files into the upper layer of a machine's root, before it is mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, inside: Path | str) -> Path:
        """Where a file of the machine lies here."""
        return self.folder / str(inside).lstrip("/")

    def directory(self, inside: Path | str, mode: int = 0o755, *, covering: bool = False) -> None:
        """Make a folder.

        :param covering: whether nothing of the lower layer is seen in it.
        """
        path = self.path(inside)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        if covering:
            os.setxattr(path, "trusted.overlay.opaque", b"y")

    def write(self, inside: Path | str, text: str, mode: int = 0o644, owner: Account | None = None) -> None:
        """Write a file; missing folders are made for all to read."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        if owner is not None:
            os.chown(path, owner.number, owner.number)

    def link(self, inside: Path | str, target: Path | str) -> None:
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


@dataclass(frozen=True, slots=True)
class Root:
    """What a machine's own files say.

    :param host_key: a private key of its own, in OpenSSH's form, and the public one.
    :param clock_offset_seconds: by which the machine's clock is ahead; wants libfaketime.
    """

    name: str
    address: str
    ssh_port: int
    hosts: Mapping[str, str]
    public_key: str
    host_key: tuple[str, str]
    clock_offset_seconds: int = 0

    def write(self, layer: Layer) -> None:
        """Write all but what a worker needs."""
        ours = accounts(Path("/etc/passwd").read_text(encoding="utf-8"))
        self._write_accounts(layer, ours)
        self._write_system(layer)
        self._write_ssh(layer, ours[0])
        if self.clock_offset_seconds:
            self._write_clock(layer)

    def _write_accounts(self, layer: Layer, ours: tuple[Account, ...]) -> None:
        for file, form in (("passwd", PASSWD), ("group", GROUP)):
            lines = Path("/etc", file).read_text(encoding="utf-8")
            layer.write(f"/etc/{file}", with_accounts(lines, ours, form))
        names = [line.partition(":")[0] for line in layer.path("/etc/passwd").read_text(encoding="utf-8").splitlines()]
        layer.write("/etc/shadow", "".join(SHADOW.format(name=name) + "\n" for name in names), 0o640)
        for account in ours:
            layer.directory(account.home, 0o750, covering=True)
            os.chown(layer.path(account.home), account.number, account.number)

    def _write_system(self, layer: Layer) -> None:
        layer.write("/etc/hostname", f"{self.name}\n")
        hosts = "".join(f"{address} {name}\n" for name, address in self.hosts.items())
        layer.write("/etc/hosts", f"127.0.0.1 localhost\n{hosts}")
        layer.write("/etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
        layer.write("/etc/fstab", "")
        for folder in ("/etc/systemd/system", "/usr/lib/systemd/system-generators", "/var/log/journal"):
            layer.directory(folder, covering=True)
        for wants in UNITS.glob("*.wants"):
            layer.directory(wants, covering=True)
        for wants_name, units in _SYSTEM_UNITS.items():
            for unit in units:
                layer.link(UNITS / wants_name / unit, f"../{unit}")
        layer.link("/etc/systemd/system/tmp.mount", "/dev/null")  # it is mounted already
        layer.write("/etc/systemd/system/machine.target", _TARGET)
        layer.directory("/etc/systemd/journald.conf.d", covering=True)
        layer.write("/etc/systemd/journald.conf.d/lab.conf", _JOURNALD)
        # Units of systemd's own and of other packages have limits of 90 s; nothing here takes so long.
        layer.directory("/etc/systemd/system.conf.d", covering=True)
        layer.write("/etc/systemd/system.conf.d/lab.conf", "[Manager]\nDefaultTimeoutStopSec=20s\n")

    def _write_clock(self, layer: Layer) -> None:
        """Let units, logins and what these do by sudo see another time of day.

        systemd and its journal keep the true one: libfaketime moves absolute timers of the time since the boot as well,
        and a timer before that boot is refused (EINVAL), which ends them.
        """
        words = [f"{name}={value}" for name, value in clock_environment(self.clock_offset_seconds).items()]
        layer.write("/etc/systemd/system.conf.d/clock.conf", f"[Manager]\nDefaultEnvironment={' '.join(words)}\n")
        for unit in ("systemd-journald.service", "systemd-journal-flush.service", "dbus.service", "ssh.service"):
            layer.write(f"/etc/systemd/system/{unit}.d/clock.conf", "[Service]\nUnsetEnvironment=LD_PRELOAD\n")
        layer.write(CLOCK_FILE, "".join(f"{word}\n" for word in words))
        with layer.path("/etc/ssh/sshd_config").open("a", encoding="utf-8") as config:
            config.write(f"SetEnv {' '.join(words)}\n")

    def _write_ssh(self, layer: Layer, login: Account) -> None:
        layer.directory("/etc/ssh", covering=True)
        layer.write("/etc/ssh/sshd_config", _SSHD_CONFIG.format(address=self.address, port=self.ssh_port))
        private, public = self.host_key
        layer.write("/etc/ssh/ssh_host_ed25519_key", private, 0o600)
        layer.write("/etc/ssh/ssh_host_ed25519_key.pub", f"{public}\n")
        layer.write(f"{login.home}/.ssh/authorized_keys", f"{self.public_key}\n", 0o600, login)
        folder = layer.path(f"{login.home}/.ssh")
        folder.chmod(0o700)
        os.chown(folder, login.number, login.number)
        enable(layer, "ssh.service", _SSHD_UNIT)


def enable(layer: Layer, unit: str, text: str, instance: str | None = None) -> None:
    """Write a unit, to be started at each boot.

    :param instance: its name with what stands for ``%i``, of a template.
    """
    layer.write(f"/etc/systemd/system/{unit}", text)
    layer.link(f"/etc/systemd/system/machine.target.wants/{instance or unit}", f"../{unit}")


def faketime_library() -> Path | None:
    """Debian's libfaketime, None where it is not installed."""
    return next(iter(Path("/usr/lib").glob(f"*/{FAKETIME_LIBRARY}")), None)


def clock_environment(offset_seconds: int) -> dict[str, str]:
    """The variables of a process that sees another time of day, and the true time since the boot."""
    return {
        "LD_PRELOAD": str(faketime_library()),
        "FAKETIME": f"{offset_seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Else each timed wait of a JVM, which goes by the time since the boot, is over at once: it waits in circles.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }
