"""Which host keys are known, read as OpenSSH does: the host's name decides, hashed or not, or a certificate authority.

A key that is known for another name does not count, even if both names have one address: so a name that leads to
another machine is detected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from airflow_eos_provider.errors import ConfigurationError

#: Where OpenSSH looks, unless its configuration says otherwise.
USERS_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEMS_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")

#: asyncssh's answer: keys, certificate authorities, revoked keys; and nothing of X.509.
_Answer = tuple[Sequence[asyncssh.SSHKey], Sequence[asyncssh.SSHKey], Sequence[asyncssh.SSHKey]]


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """Host keys of files, or the one that was pinned."""

    files: tuple[Path, ...]  #: where they are looked for; those that are not there hold none
    pinned: str | None = None  #: the only key that is taken: ``ssh-ed25519 AAAA…``

    def look(self, host: str, address: str, port: int | None) -> _Answer:
        """What asyncssh asks for; the address is none of the names."""
        if self.pinned is not None:
            return [_pinned_key(self.pinned)], [], []
        known = asyncssh.SSHKnownHosts()
        for file in self.files:
            for line in _lines(file):
                try:
                    known.load(line)
                except ValueError:  # as OpenSSH does: a line that cannot be read is no key
                    continue
        keys, authorities, revoked, *_ = known.match(host.lower(), "", port)
        return keys, authorities, revoked

    @property
    def where(self) -> str:
        """In words, where keys were looked for."""
        if self.pinned is not None:
            return "the description, which pins one"
        return ", ".join(f"{file}{'' if file.is_file() else ' (no such file)'}" for file in self.files) or "no file"


def _pinned_key(text: str) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_public_key(text)
    except (asyncssh.KeyImportError, ValueError):
        raise ConfigurationError(
            "The host key of a description is no public key.", expected="ssh-ed25519 AAAA…, as ssh-keyscan prints it"
        ) from None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
