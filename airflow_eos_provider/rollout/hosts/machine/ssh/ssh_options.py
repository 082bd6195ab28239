"""Options of asyncssh for a connection, from OpenSSH's configuration and a description: one entry per hop.

Taken from ``~/.ssh/config`` and ``/etc/ssh/ssh_config`` by asyncssh's reader (``asyncssh/config.py``): ``Host``,
``Match`` (all, host, originalhost, user, localuser, exec, final, canonical, tagged), ``Include``, ``HostName``,
``Port``, ``User``, ``IdentityFile``, ``IdentityAgent``, ``IdentitiesOnly``, ``CertificateFile``, ``ProxyJump``,
``ProxyCommand``, ``UserKnownHostsFile``, ``GlobalKnownHostsFile``, ``HostKeyAlias``, ``HostKeyAlgorithms``,
``CASignatureAlgorithms``, ``Ciphers``, ``MACs``, ``KexAlgorithms``, ``Compression``, ``PreferredAuthentications`` and
the switches of each kind of login, ``AddressFamily``, ``BindAddress``, ``Canonicalize…``, ``RekeyLimit``, ``SetEnv``,
``TCPKeepAlive``, ``PKCS11Provider``.

Read and not obeyed, on purpose: ``StrictHostKeyChecking``, ``UserKnownHostsFile none`` (host keys are always checked),
``GSSAPIKeyExchange`` (checks none), ``RemoteCommand``, ``RequestTTY``, ``SendEnv``, ``ForwardAgent``, ``ForwardX11``,
``ServerAliveInterval`` and ``ServerAliveCountMax`` (ours are shorter), ``ConnectTimeout`` (the description's).

Not known to asyncssh, so without effect: ``ControlMaster``/``ControlPath``, ``KnownHostsCommand``,
``RevokedHostKeys`` (``@revoked`` lines work), ``VerifyHostKeyDNS``, ``CheckHostIP``, ``PubkeyAcceptedAlgorithms``,
``HostbasedAcceptedAlgorithms``, ``BindInterface``, ``ConnectionAttempts``, ``NumberOfPasswordPrompts``, ``IPQoS``,
``ProxyUseFdpass``, ``SecurityKeyProvider``, ``AddKeysToAgent``, ``UpdateHostKeys``,
``NoHostAuthenticationForLocalhost``.

``ProxyCommand`` is split into words and runs without a shell; a ``ProxyJump`` within ``Match final`` or
``Match canonical`` is not followed; other conditions of ``Match`` (``localnetwork``, ``sessiontype``, ``version``) are
an error. ``%`` tokens in ``UserKnownHostsFile`` are not expanded.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.config import ConfigParseError, SSHClientConfig

from airflow_eos_provider.connect.cluster.placement import MachineDescription, SshLogin
from airflow_eos_provider.errors import ConfigurationError

#: OpenSSH's own configurations, the first that says something holds.
_CONFIGURATIONS = ("~/.ssh/config", "/etc/ssh/ssh_config")

#: A machine that is powered off does not answer three questions in a row, this many seconds apart.
KEEPALIVE_SECONDS, KEEPALIVE_COUNT = 2.5, 3

#: More jumps than this are a circle.
_MOST_HOPS = 8

#: Where OpenSSH looks, unless its configuration says otherwise.
USERS_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEMS_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")

#: asyncssh's answer: keys, certificate authorities, revoked keys; and nothing of X.509.
_Answer = tuple[Sequence[asyncssh.SSHKey], Sequence[asyncssh.SSHKey], Sequence[asyncssh.SSHKey]]


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """Host keys of files, or the one that was pinned.

    The host's name decides, hashed or not, or a certificate authority. A key that is known for another name does not
    count, even if both names have one address: so a name that leads to another machine is detected.
    """

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


@dataclass(frozen=True, slots=True)
class Hop:
    """One SSH connection on the way to a machine; the last one is to the machine itself."""

    name: str  #: as it is written in the description or in ``ProxyJump``
    user: str
    host: str  #: what ``name`` stands for
    port: int
    key_name: str  #: the name that its host key is known by
    known_hosts: KnownHosts
    logins: str  #: in words, the kinds of login that it may be tried by
    options: dict[str, Any]  #: keyword arguments of ``asyncssh.connect``; they hold secrets

    def __repr__(self) -> str:
        return f"Hop({self.user}@{self.host}:{self.port})"

    def __str__(self) -> str:
        where = self.host if self.port == asyncssh.DEFAULT_PORT else f"{self.host} port {self.port}"
        return f"{self.name} ({where})" if self.name != self.host else where


def route(description: MachineDescription) -> tuple[Hop, ...]:
    """The connections to make, one through the other."""
    try:
        return _route(description)
    except ConfigParseError as error:
        raise ConfigurationError(
            f"The OpenSSH configuration for {description.ssh} cannot be read: {error}.",
            remedy="Correct that line, or name another file with 'ssh_config'.",
        ) from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise ConfigurationError(
            f"A key for {description.ssh} cannot be read: {error}.",
            expected="a private key in OpenSSH's or PEM format, with its passphrase where it is encrypted",
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The login data for {description.ssh} cannot be read: {error}.") from None


def _route(description: MachineDescription) -> tuple[Hop, ...]:
    hops: list[Hop] = []
    left: MachineDescription | None = description
    while left is not None:
        config = _config_of(left)
        hops.insert(0, _hop(left, config))
        jumps = _jumps(left, config)
        hops[:0] = [_hop(jump, _config_of(jump)) for jump in jumps[1:]]
        left = jumps[0] if jumps else None
        if len(hops) > _MOST_HOPS:
            raise ValueError(f"ProxyJump leads over more than {_MOST_HOPS} machines")
    return tuple(hops)


def _this_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise ValueError(f"the user with the number {os.getuid()} has no name here; set the variable USER") from None


def _config_of(description: MachineDescription) -> SSHClientConfig:
    login = description.login
    user: Any = login.user or ()
    port: Any = login.port or ()
    return SSHClientConfig.load(  # type: ignore[return-value]
        None, _configurations(description), False, False, False, _this_user(), user, description.ssh, port
    )


def _configurations(description: MachineDescription) -> list[str]:
    if description.ssh_config is not None:
        return [str(_expanded(str(description.ssh_config)))]
    return [str(path) for path in map(_expanded, _CONFIGURATIONS) if path.is_file()]


def _hop(description: MachineDescription, config: SSHClientConfig) -> Hop:
    login = description.login
    known_hosts = _known_hosts(description, config)
    user = login.user or str(config.get("User") or _this_user())
    port = login.port or int(str(config.get("Port", asyncssh.DEFAULT_PORT)))
    host = str(config.get("Hostname", description.ssh))
    keys, logins = _keys(login, config)
    options: dict[str, Any] = {
        "host": description.ssh,
        "config": _configurations(description),
        "username": user,
        "port": port,
        "known_hosts": known_hosts.look,
        "x509_trusted_certs": None,
        "gss_kex": False,
        "gss_auth": bool(config.get("GSSAPIAuthentication", False)),
        "agent_forwarding": False,
        "x11_forwarding": False,
        "send_env": None,
        "command": None,
        "request_pty": False,
        "keepalive_interval": KEEPALIVE_SECONDS,
        "keepalive_count_max": KEEPALIVE_COUNT,
        "connect_timeout": description.connect_seconds,
        "login_timeout": description.connect_seconds,
        **keys,
    }
    key_name = str(config.get("HostKeyAlias") or host)
    return Hop(description.ssh, user, host, port, key_name, known_hosts, logins, options)


def _known_hosts(description: MachineDescription, config: SSHClientConfig) -> KnownHosts:
    if description.known_hosts is not None:
        files: Sequence[str] = (str(description.known_hosts),)
    else:
        users: Any = config.get("UserKnownHostsFile", USERS_FILES)
        systems: Any = config.get("GlobalKnownHostsFile", SYSTEMS_FILES)
        files = (*users, *systems)
    return KnownHosts(tuple(map(_expanded, files)), description.login.host_key)


def _keys(login: SshLogin, config: SSHClientConfig) -> tuple[dict[str, Any], str]:
    """How a login proves who it is, as options and in words. What a description names is tried, and nothing else."""
    options: dict[str, Any] = {}
    words: list[str] = []
    if login.private_key is not None:
        options |= {"client_keys": [asyncssh.import_private_key(login.private_key, login.passphrase)]}
        words.append("the private key of the description")
    elif login.key_file is not None:
        key = _expanded(str(login.key_file))
        options |= {"client_keys": asyncssh.load_keypairs([str(key)], login.passphrase, _certificate_files(config))}
        words.append(f"the key {key}")
    elif login.password is None:
        return _keys_of_user(config)
    else:
        options |= {"client_keys": None, "public_key_auth": False}
    if login.password is not None:
        options |= {"password": login.password}
        words.append("a password")
    return {"agent_path": "", **options}, " and ".join(words)


def _keys_of_user(config: SSHClientConfig) -> tuple[dict[str, Any], str]:
    """Keys as OpenSSH's client finds them: the agent's, and files; a file that is not there is passed over."""
    keys = _identity_files(config)
    options: dict[str, Any] = {
        "client_keys": keys,
        "client_certs": _certificate_files(config),
        "ignore_encrypted": True,
    }
    if config.get("IdentitiesOnly") and not keys:
        options |= {"agent_path": ""}
    words = f"keys of the SSH agent, if one runs, and {', '.join(keys) if keys else 'the keys in ~/.ssh'}"
    return options, words + " (encrypted ones only by the agent)"


def _certificate_files(config: SSHClientConfig) -> list[str]:
    """The files of ``CertificateFile`` that are there; the one beside a key is found without it."""
    certificates: Any = config.get("CertificateFile", ())
    return [str(path) for path in map(_expanded, certificates) if path.is_file()]


def _identity_files(config: SSHClientConfig) -> list[str]:
    """The files of ``IdentityFile`` that are there; with ``IdentitiesOnly``, a public key names one of the agent's."""
    identities: Any = config.get("IdentityFile", ())
    found: list[str] = []
    for path in map(_expanded, identities):
        public = path.with_name(f"{path.name}.pub")
        if path.is_file():
            if config.get("IdentitiesOnly") or b"PRIVATE KEY" in path.read_bytes():
                found.append(str(path))
        elif config.get("IdentitiesOnly") and public.is_file():
            found.append(str(public))
    return found


def _jumps(description: MachineDescription, config: SSHClientConfig) -> list[MachineDescription]:
    """The machines of ``ProxyJump``, with the login that the configuration has for them."""
    value = config.get("ProxyJump")
    if value is None:
        return []
    return [replace(description, ssh=host, login=login) for host, login in map(_jump, str(value).split(","))]


def _jump(text: str) -> tuple[str, SshLogin]:
    text = text.strip().removeprefix("ssh://").rstrip("/")
    user, _, place = text.rpartition("@")
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port = rest.removeprefix(":")
    elif place.count(":") == 1:
        host, _, port = place.partition(":")
    else:
        host, port = place, ""
    return host, SshLogin(user=user or None, port=int(port) if port else None)


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # "~user" without such a user, or "~" where this one has no entry and HOME is not set
        raise ValueError(f"~ in {path} cannot be expanded here; write the folder out") from None
