"""Errors of SSH connections, each with what to do. No message contains a secret."""

from __future__ import annotations

import asyncssh

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.rollout.hosts.machine.machine import MachineLostError
from airflow_eos_provider.rollout.hosts.machine.ssh.options import Hop


class HostKeyError(ConfigurationError):
    """A host key is not the known one, or none is known."""


def host_key_error(hop: Hop, presented: asyncssh.SSHKey | None, reason: str) -> HostKeyError:
    """A host key that is not taken."""
    if presented is None:
        return HostKeyError(
            f"The host key of {hop} is not accepted: {reason}.",
            expected=f"a known key of {hop.key_name}; searched: {hop.known_hosts.where}",
            remedy="Ask who runs that machine.",
        )
    shown = f"{presented.get_algorithm()} {presented.get_fingerprint()}"
    port = None if hop.port == asyncssh.DEFAULT_PORT else hop.port
    keys, authorities, _ = hop.known_hosts.look(hop.key_name, "", port)
    scan = f"ssh-keyscan -p {hop.port} {hop.host}"
    if keys or authorities:
        known = ", ".join(f"{key.get_algorithm()} {key.get_fingerprint()}" for key in (*keys, *authorities))
        renew = (
            "write its new key into the description that pins the old one (host_key in an Airflow connection)."
            if hop.known_hosts.pinned is not None
            else f"remove the old entry (ssh-keygen -R) and add what '{scan}' prints."
        )
        return HostKeyError(
            f"{hop} shows another host key than the known one: {shown}. It may be another machine. "
            "Nothing was sent to it.",
            expected=f"{known}, from {hop.known_hosts.where}",
            remedy=f"Compare fingerprints on the machine itself (ssh-keygen -lf). If it was reinstalled, {renew}",
        )
    entry = hop.key_name if port is None else f"[{hop.key_name}]:{port}"
    return HostKeyError(
        f"The host key of {hop} is unknown: {shown}.",
        expected=f"an entry for {entry} in {hop.known_hosts.where}",
        remedy=f"Compare the fingerprint on the machine itself (ssh-keygen -lf), then add what '{scan}' prints.",
    )


def connect_error(hop: Hop, error: BaseException, seconds: float) -> EosError:
    """Why a connection was not made."""
    if isinstance(error, EosError):
        return error
    if isinstance(error, asyncssh.PermissionDenied):
        return ConfigurationError(
            f"{hop} does not let {hop.user} log in. Tried: {hop.logins}.",
            remedy=f"Log in with 'ssh {hop.user}@{hop.name}', and see the log of its sshd for the reason.",
        )
    if isinstance(error, TimeoutError):
        return _unreachable(hop, f"no connection within {seconds:g} s")
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return ConfigurationError(
            f"{hop} and this side share no encryption algorithm: {error}.",
            remedy="Compare Ciphers, MACs, KexAlgorithms and HostKeyAlgorithms of both sides.",
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        return _unreachable(hop, f"its jump host answers: {error.reason}")
    if isinstance(error, OSError | asyncssh.Error):
        return _unreachable(hop, str(error) or type(error).__name__)
    return ConfigurationError(f"No connection to {hop} can be made: {error}.")


def _unreachable(hop: Hop, why: str) -> MachineLostError:
    return MachineLostError(
        f"{hop} cannot be reached over SSH: {why}.",
        remedy=f"Try 'ssh {hop.user}@{hop.name} true', and check whether the machine and its sshd run.",
    )
