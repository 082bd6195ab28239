"""A connection to one machine: opened when needed, kept, replaced when lost, closed when idle.

Everything here runs in one event loop, in a thread of its own (``ssh_machine.py``), so nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import asyncssh

from airflow_eos_provider.connect.cluster.placement import MachineDescription
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.rollout.hosts.machine.machine import Answer, MachineLostError
from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_options import Hop, route
from airflow_eos_provider.rollout.hosts.machine.ssh.ssh_session import REMOTE_COMMAND, CommandSession, lost, on_stdin

T = TypeVar("T")

#: Commands at once on one connection; sshd allows ten (``MaxSessions``), other users of that login may want two.
MOST_COMMANDS = 8

#: How long a command waits until another one has ended, seconds.
_QUEUE_SECONDS = 120.0

#: How long a kept connection may take to begin a command; then it is taken for lost and another one is made, seconds.
_BEGIN_SECONDS = 5.0

#: How often a server is asked again that takes no command while none runs.
_MOST_REFUSALS = 20

#: A failure to connect is the answer for all who ask within this many seconds, so that a machine is not hammered.
_FAILURE_SECONDS = 1.0

#: A connection without a command is closed after this many seconds.
IDLE_SECONDS = 300.0


class _Client(asyncssh.SSHClient):
    """Keeps the host key that was shown and not known; none is taken here."""

    def __init__(self) -> None:
        self.refused: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.refused = key
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.refused = key
        return False


class Connection:
    """The connection to one machine, and those that it goes through."""

    def __init__(self, description: MachineDescription) -> None:
        self._description = description
        self._hops: list[asyncssh.SSHClientConnection] = []
        self._connecting: asyncio.Task[asyncssh.SSHClientConnection] | None = None
        self._failure: tuple[float, EosError] | None = None
        self._given_up: list[asyncssh.SSHClientConnection] = []
        self._running = 0
        self._channels = 0
        self._opening = 0
        self._ends = 0
        self._has_begun = False
        self._most = MOST_COMMANDS
        self._place = asyncio.Condition()
        self._idle: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return self._description.ssh

    async def run(self, words: Sequence[str], stdin: bytes, seconds: float, *, detached: bool) -> Answer:
        async with self._taken():
            channel, session = await self._begun(words[0], detached=detached)
            self._channels += 1
            try:
                channel.write(on_stdin(words, stdin, None if detached else seconds))
                channel.write_eof()
                return await asyncio.wait_for(session.answer(), seconds)
            except TimeoutError:
                raise lost(self.name, f"{words[0]} did not end within {seconds:g} s", may_have_run=True) from None
            except OSError as error:
                raise lost(self.name, str(error), may_have_run=True) from None
            finally:
                self._channels -= 1
                channel.abort()

    async def _begun(self, program: str, *, detached: bool) -> tuple[Any, CommandSession]:
        """A channel that waits for the command's words: until they are there, nothing has begun.

        A kept connection that is found lost is replaced once.
        """
        refusals = 0
        while True:
            is_kept = self._is_open
            connection = await self._connected()
            seconds = _BEGIN_SECONDS if is_kept else self._description.connect_seconds
            try:
                return await self._opened(connection, CommandSession(self.name, program, detached=detached), seconds)
            except asyncssh.ChannelOpenError as error:
                refusals += 1
                if not connection.is_closed() and await self._has_place(refusals):
                    continue
                problem = error.reason
            except (asyncssh.Error, OSError) as error:
                problem = str(error) or "no answer in time"
            self._drop(connection)
            if not is_kept:
                raise lost(self.name, f"no command begins there: {problem}", may_have_run=False)

    async def _opened(
        self, connection: asyncssh.SSHClientConnection, session: CommandSession, seconds: float
    ) -> tuple[Any, CommandSession]:
        self._opening += 1
        try:
            channel, _ = await asyncio.wait_for(
                connection.create_session(lambda: session, REMOTE_COMMAND, encoding=None), seconds
            )
        finally:
            self._opening -= 1
        self._has_begun = True
        return channel, session

    # -- connecting

    @property
    def _is_open(self) -> bool:
        return bool(self._hops) and not self._hops[-1].is_closed()

    async def _connected(self) -> asyncssh.SSHClientConnection:
        """The open connection, or a new one; all who ask meanwhile wait for the same."""
        if self._is_open:
            return self._hops[-1]
        if self._failure is not None and time.monotonic() - self._failure[0] < _FAILURE_SECONDS:
            raise self._failure[1]
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._has_connected)
        return await asyncio.shield(self._connecting)

    def _has_connected(self, task: asyncio.Task[asyncssh.SSHClientConnection]) -> None:
        self._connecting = None
        error = None if task.cancelled() else task.exception()
        self._failure = (time.monotonic(), error) if isinstance(error, EosError) else None

    async def _connect(self) -> asyncssh.SSHClientConnection:
        if self._hops:
            self._drop(self._hops[-1])
        seconds = self._description.connect_seconds
        try:
            hops = await asyncio.wait_for(in_thread(lambda: route(self._description)), seconds)
        except TimeoutError:
            raise MachineLostError(
                f"OpenSSH's configuration for {self.name} was not read within {seconds:g} s.",
                remedy="Look for a 'Match exec' in it that does not end.",
            ) from None
        made: list[asyncssh.SSHClientConnection] = []
        try:
            for hop in hops:
                async with _login_place(hop, seconds):
                    made.append(await _connected_to(hop, made[-1] if made else None, seconds))
        except BaseException:
            for connection in reversed(made):
                connection.abort()
            raise
        self._hops, self._most, self._has_begun = made, MOST_COMMANDS, False
        return made[-1]

    def _drop(self, connection: asyncssh.SSHClientConnection) -> None:
        """Give up this very connection; another one that was made meanwhile stays.

        Commands that still run on it have their own time: it is closed when no command runs.
        """
        if self._hops and self._hops[-1] is connection:
            self._given_up += self._hops
            self._hops = []

    def close(self) -> None:
        """End the connection; what was detached goes on."""
        for hop in reversed((*self._given_up, *self._hops)):
            hop.close()
        self._hops, self._given_up = [], []

    def descriptors(self) -> list[int]:
        sockets = [hop.get_extra_info("socket") for hop in (*self._hops, *self._given_up)]
        return [each.fileno() for each in sockets if each is not None and each.fileno() >= 0]

    # -- no more commands at once than sshd takes

    @contextlib.asynccontextmanager
    async def _taken(self) -> Any:
        async with self._place:
            try:
                await asyncio.wait_for(self._place.wait_for(lambda: self._running < self._most), _QUEUE_SECONDS)
            except TimeoutError:
                raise lost(self.name, "other commands there do not end", may_have_run=False) from None
            self._running += 1
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            yield
        finally:
            self._running -= 1
            self._ends += 1
            if not self._running:
                for hop in reversed(self._given_up):
                    hop.abort()
                self._given_up = []
                self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.close)
            async with self._place:
                self._place.notify_all()

    async def _has_place(self, refusals: int) -> bool:
        """The server takes no more at once, as with a small ``MaxSessions``: whether there is a place by now.

        Waits for the end of another command, and lets no more run at once from now on. Where none runs, the server may
        not have done with the last one yet; it has the next time, or it takes none at all.
        """
        others = self._channels + self._opening
        self._most = max(1, min(self._most, others))
        if not others:
            return self._has_begun and refusals <= _MOST_REFUSALS
        seen = self._ends
        async with self._place:
            try:
                await asyncio.wait_for(self._place.wait_for(lambda: self._ends != seen), _QUEUE_SECONDS)
            except TimeoutError:
                raise lost(self.name, "other commands there do not end", may_have_run=False) from None
        return True


#: So many connections are made to one address at once. sshd drops at random what is beyond ten logins under way, unless
#: its ``MaxStartups`` says otherwise, and notices a little late that one is over. Thirty workers behind one jump host
#: would be too many.
MOST_LOGINS = 5

#: By event loop and address, the logins that are under way.
_LOGINS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], asyncio.Semaphore]] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def _login_place(hop: Hop, seconds: float) -> AsyncIterator[None]:
    """A place among the logins that are under way at one address."""
    places = _LOGINS.setdefault(asyncio.get_running_loop(), {})
    place = places.setdefault((hop.host, hop.port), asyncio.Semaphore(MOST_LOGINS))
    try:
        await asyncio.wait_for(place.acquire(), seconds)
    except TimeoutError as error:
        raise connect_error(hop, error, seconds) from None
    try:
        yield
    finally:
        place.release()


async def _connected_to(
    hop: Hop, tunnel: asyncssh.SSHClientConnection | None, seconds: float
) -> asyncssh.SSHClientConnection:
    """One hop, with its host key checked."""
    # A machine whose key is of another kind than the known one ends the connection. It is asked once more, for a key of
    # any kind, so that the error names the one that it has.
    for algorithms in ((), "default"):
        client = _Client()
        options = {**hop.options, "tunnel": tunnel, "server_host_key_algs": algorithms}
        host = options.pop("host")
        try:
            return await asyncio.wait_for(asyncssh.connect(host, client_factory=lambda c=client: c, **options), seconds)
        except asyncssh.HostKeyNotVerifiable as error:
            raise host_key_error(hop, client.refused, error.reason) from None
        except (asyncssh.KeyExchangeFailed, asyncssh.ConnectionLost, ConnectionResetError) as error:
            if algorithms:
                raise connect_error(hop, error, seconds) from None
        except (OSError, ValueError, EosError, asyncssh.Error, asyncssh.KeyImportError) as error:
            raise connect_error(hop, error, seconds) from None
    raise AssertionError("the second attempt returns or raises")


async def in_thread(act: Callable[[], T]) -> T:
    """Do what blocks in a thread that does not hold up the end of this process."""
    outcome: Future[T] = Future()

    def do() -> None:
        outcome.set_running_or_notify_cancel()  # from here on, whoever waits no longer does not cancel it
        try:
            outcome.set_result(act())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=do, name="eos-ssh-options", daemon=True).start()
    return await asyncio.wrap_future(outcome)


class HostKeyError(ConfigurationError):
    """A host key is not the known one, or none is known."""


def host_key_error(hop: Hop, presented: asyncssh.SSHKey | None, reason: str) -> HostKeyError:
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
