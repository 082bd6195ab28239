"""A machine over SSH.

By asyncssh, not by OpenSSH's client: keys of an Airflow connection stay in memory and never touch a disk, each wait can
be bounded, and no master process with a control socket is left behind. It reads OpenSSH's configuration, agent, known
hosts and certificates; :mod:`~airflow_eos_provider.rollout.hosts.machine.ssh.ssh_options` lists the limits.

Host keys are always checked, when a connection is made. One connection per machine is kept by this process, shared by
all its threads, replaced when it is lost, and closed when no command has run on it for five minutes; so an entry that
is taken out of the known hosts, or revoked there, counts from the next connection on, as with OpenSSH.

asyncssh is imported when the first machine is asked: most clusters need none.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_eos_provider import redaction
from airflow_eos_provider.connect.cluster.placement import MachineDescription
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.rollout.hosts.machine.machine import COMMAND_SECONDS, HAND_OVER_SECONDS, Answer, checked_words

if TYPE_CHECKING:
    from airflow_eos_provider.rollout.hosts.machine.ssh.connection import Connection

T = TypeVar("T")

#: How long the connections may take to be closed when this process ends, seconds.
_CLOSE_SECONDS = 2.0


class SshMachine:
    """A machine that is reached over SSH. Equal descriptions share one connection.

    What a command starts is ended with it on its machine once its time is over, also when this process was killed; but
    for :meth:`detached`. There, ``setsid`` gives the command a session that nothing ends with the connection: sshd
    sends no signal to what has no terminal. Where ``KillUserProcesses=yes`` stands in a machine's ``logind.conf``,
    systemd ends all processes of a login with its last connection; let such a worker be a systemd unit, or name its
    user in ``KillExcludeUsers=``.
    """

    def __init__(self, description: MachineDescription) -> None:
        login = description.login
        redaction.remember_values(filter(None, (login.password, login.passphrase, login.private_key)))
        self._description = description

    @property
    def name(self) -> str:
        return self._description.ssh

    def __repr__(self) -> str:
        return f"SshMachine({self.name!r})"

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = COMMAND_SECONDS) -> Answer:
        return _CONNECTIONS.run(self._description, checked_words(words), stdin, seconds)

    def detached(self, words: Sequence[str], *, stdin: bytes = b"") -> Answer:
        return _CONNECTIONS.run(self._description, checked_words(words), stdin, HAND_OVER_SECONDS, detached=True)


class LoopThread:
    """An event loop that runs in a thread of its own until this process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="eos-ssh", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], *, seconds: float | None = None) -> T:
        """Do the work there, and wait for it here. Whoever stops waiting (Ctrl-C) ends the work."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(seconds)
        except BaseException:
            future.cancel()
            raise


class _Connections:
    """The connections of this process, by description."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._by_description: dict[MachineDescription, Connection] = {}

    def run(
        self,
        description: MachineDescription,
        words: Sequence[str],
        stdin: bytes,
        seconds: float,
        *,
        detached: bool = False,
    ) -> Answer:
        """Run one command on the machine's connection."""
        make = _connection_class()
        key = replace(description, sudo=frozenset())
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
            if key not in self._by_description:
                self._by_description[key] = make(key)
            thread, connection = self._thread, self._by_description[key]
        return thread.run(connection.run(words, stdin, seconds, detached=detached))

    def close(self) -> None:
        with self._lock:
            thread, connections = self._thread, [*self._by_description.values()]
        if thread is not None:

            async def close() -> None:
                for connection in connections:
                    connection.close()

            with contextlib.suppress(TimeoutError, RuntimeError):
                thread.run(close(), seconds=_CLOSE_SECONDS)

    def leave_to_parent(self) -> None:
        """In a forked process: the connections are the parent's, and their sockets would hold them open."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for connection in self._by_description.values():
            for number in connection.descriptors():
                os.dup2(nowhere, number)
        os.close(nowhere)


def _connection_class() -> type[Connection]:
    try:
        from airflow_eos_provider.rollout.hosts.machine.ssh.connection import Connection
    except ImportError as error:
        raise ConfigurationError(
            f"A machine over SSH needs asyncssh, which cannot be imported: {error}.",
            remedy="pip install 'airflow-eos-provider[ssh]'",
        ) from None
    logger = logging.getLogger("asyncssh")
    if logger.level == logging.NOTSET:  # it writes several lines for each command
        logger.setLevel(logging.WARNING)
    return Connection


_CONNECTIONS = _Connections()

#: Those of the processes that this one was forked from. Their clean-up would reach into the parent's event loop.
_OF_PARENTS: list[_Connections] = []


def _begin_anew() -> None:
    global _CONNECTIONS
    _CONNECTIONS.leave_to_parent()
    _OF_PARENTS.append(_CONNECTIONS)
    _CONNECTIONS = _Connections()


def _close() -> None:
    _CONNECTIONS.close()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_close)
