"""A worker's REST API, by the calls of ``rest_calls.py``.

Certificates are verified unless that is turned off explicitly, redirects are not followed, and proxies of the
environment are not used: a request that wandered elsewhere could show credentials there, or ask the wrong worker.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from airflow_eos_provider.connect import rest_calls
from airflow_eos_provider.connect.cluster.description import RestSettings
from airflow_eos_provider.connect.rest_calls import (
    Answer,
    Call,
    ConnectorOffset,
    ConnectorStatus,
    Health,
    Plugin,
    TaskStatus,
    Validation,
    WorkerRoot,
    not_connect,
)
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError

__all__ = [
    "ConnectRest",
    "ConnectorOffset",
    "ConnectorStatus",
    "Health",
    "Plugin",
    "TaskStatus",
    "Validation",
    "WorkerRoot",
]

T = TypeVar("T")

#: Whether the request that is on its way is ours.
_is_ours: ContextVar[bool] = ContextVar("eos_rest_request", default=False)


class _NotOurs(logging.Filter):
    """Drops httpx's line about each of our requests, several a second while a gate is waited for; other users of httpx
    in this process keep theirs. Whoever wants them sets this package's logger to DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_ours.get() or logging.getLogger("airflow_eos_provider").isEnabledFor(logging.DEBUG)


logging.getLogger("httpx").addFilter(_NotOurs())


@contextmanager
def _ours() -> Iterator[None]:
    token = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(token)


#: First pause before a request is repeated, and the longest, seconds.
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0

#: A worker on the same network that does not take a connection for this long is not there.
_CONNECT_SECONDS = 5.0

#: An answer that is larger is not read on; a thousand connectors with their traces are far smaller.
_ANSWER_BYTES = 64 * 1024 * 1024


class _Body:
    """An answer's body as it arrives. httpx bounds the wait for each piece only, so the whole is bounded here."""

    def __init__(self, url: str, limit_seconds: float) -> None:
        self._url = url
        self._limit_seconds = limit_seconds
        self._deadline = time.monotonic() + limit_seconds
        self._content = bytearray()

    def add(self, piece: bytes) -> None:
        self._content += piece
        if len(self._content) > _ANSWER_BYTES:
            raise not_connect(self._url, f"answered with more than {_ANSWER_BYTES} bytes")
        if time.monotonic() > self._deadline:
            raise UnreachableError(f"{self._url} had not answered completely after {self._limit_seconds:g} s.")

    def answer(self, status: int) -> Answer:
        return Answer(self._url, status, bytes(self._content))


class ConnectRest:
    """One worker's REST API.

    Every method raises :class:`UnreachableError` when no answer comes, :class:`NotKafkaConnectError` when the answer is
    not Connect's, and :class:`ConnectRestError` with status and Connect's words when it is an error.

    :param url: REST address of one worker, ``http(s)://host:port``.
    :param retry_seconds: for how long a request is repeated that meets a rebalance, or a leader that was killed or
        fenced (see :meth:`Call.may_be_repeated`); 0 for one attempt. May be set anew between two requests.
    :param retry_refused: repeat it too while the worker refuses connections, as one that is starting does.
    :param give_up_at: when no request is waited for any longer, by the monotonic clock; None for no such moment. May be
        set anew between two requests.
    :raises ConfigurationError: the url holds credentials or is none; a certificate file cannot be read.
    """

    def __init__(
        self,
        url: str,
        settings: RestSettings = RestSettings(),  # noqa: B008 - frozen
        *,
        retry_seconds: float = 20.0,
        retry_refused: bool = False,
        give_up_at: float | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or not _parses(url):
            raise ConfigurationError(
                f"{parts.netloc.rpartition('@')[2] or 'An empty text'} is not the address of a worker.",
                expected="http://host:port or https://host:port, without user or password",
            )
        self.url = url.rstrip("/")
        self._settings = settings
        self.retry_seconds = retry_seconds
        self._retry_refused = retry_refused
        self.give_up_at = give_up_at

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url})"

    def __enter__(self) -> Self:
        self._client = httpx.Client(**self._client_options())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def run(self, call: Call[T]) -> T:
        """Carry out one call."""
        pauses = self._pauses()
        while True:
            outcome: Answer | httpx.HTTPError
            try:
                with _ours():
                    outcome = self._send(call)
            except httpx.HTTPError as error:
                outcome = error
            pause = next(pauses, None) if self._must_repeat(call, outcome) else None
            if pause is None:
                return self._value(call, outcome)
            time.sleep(pause)

    def _send(self, call: Call[Any]) -> Answer:
        limit = self._seconds()
        body = _Body(self.url, limit)
        address = self.url + call.path
        with self._client.stream(call.method, address, json=call.body, timeout=_timeout(limit)) as response:
            for piece in response.iter_bytes():
                body.add(piece)
        return body.answer(response.status_code)

    def root(self) -> WorkerRoot:
        """Version, commit and Kafka cluster id; the way to tell whether this is a Connect worker at all."""
        return self.run(rest_calls.root())

    def health(self) -> Health:
        return self.run(rest_calls.health())

    def connectors(self) -> tuple[str, ...]:
        return self.run(rest_calls.connectors())

    def statuses(self) -> dict[str, ConnectorStatus]:
        """All connectors with status, tasks and configuration, by name; one request. Without those that have no status
        yet, see :meth:`infos`."""
        return self.run(rest_calls.statuses())

    def infos(self) -> dict[str, ConnectorStatus]:
        """All connectors with type and configuration, by name, and without status; one request."""
        return self.run(rest_calls.infos())

    def connector_config(self, name: str) -> dict[str, str]:
        return self.run(rest_calls.connector_config(name))

    def create(self, name: str, config: Mapping[str, str], initial_state: str | None = None) -> None:
        """Create a connector.

        :param initial_state: ``RUNNING``, ``PAUSED`` or ``STOPPED`` (Connect 3.7 and later).
        """
        self.run(rest_calls.create(name, config, initial_state))

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector or replace its configuration."""
        self.run(rest_calls.put_config(name, config))

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some properties of a connector that is there (KIP-477, since 3.8); None removes one.

        :raises ConnectRestError: 404 if there is no such connector, 405 from an older worker.
        """
        self.run(rest_calls.patch_config(name, changes))

    def delete(self, name: str) -> None:
        self.run(rest_calls.delete(name))

    def stop(self, name: str) -> None:
        self.run(rest_calls.stop(name))

    def pause(self, name: str) -> None:
        self.run(rest_calls.pause(name))

    def resume(self, name: str) -> None:
        self.run(rest_calls.resume(name))

    def restart(self, name: str, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        """Restart a connector.

        :param include_tasks: its tasks too.
        :param only_failed: only what has failed.
        """
        self.run(rest_calls.restart(name, include_tasks=include_tasks, only_failed=only_failed))

    def restart_task(self, name: str, number: int) -> None:
        """Restart one task, whatever its state."""
        self.run(rest_calls.restart_task(name, number))

    def offsets(self, name: str) -> tuple[ConnectorOffset, ...]:
        """Offsets as Connect shows them; one whose JSON keys are in another order than Java's is shown as None."""
        return self.run(rest_calls.offsets(name))

    def alter_offsets(self, name: str, wanted: Sequence[tuple[Any, Any]]) -> None:
        """Let Connect alter offsets of a stopped connector, which asks the connector's own check first (KIP-875, 3.6).

        :param wanted: source partitions with their offsets.
        :raises ConnectRestError: with the connector's words if it refuses, by the status 500; 404 or 405 from an older
            worker.
        """
        self.run(rest_calls.alter_offsets(name, wanted))

    def topics(self, name: str) -> tuple[str, ...]:
        """Topics that the connector has written or read since it was made; 403 where the workers do not track them."""
        return self.run(rest_calls.topics(name))

    def plugins(self) -> tuple[Plugin, ...]:
        return self.run(rest_calls.plugins())

    def validate(self, plugin_class: str, config: Mapping[str, str]) -> Validation:
        """Let this very worker validate a configuration; nothing is created."""
        return self.run(rest_calls.validate(plugin_class, config))

    def _client_options(self) -> dict[str, Any]:
        settings = self._settings
        headers = {"Accept": "application/json"}
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        return {
            "auth": (settings.username, settings.password or "") if settings.username else None,
            "headers": headers,
            # Over plain http there is nothing to verify, and loading the authorities takes a while.
            "verify": tls_context(settings) if self.url.startswith("https:") else False,
            "trust_env": False,
            "follow_redirects": False,
        }

    def _seconds(self) -> float:
        """Limit of the next request."""
        if self.give_up_at is None:
            return self._settings.timeout_seconds
        left = self.give_up_at - time.monotonic()
        if left <= 0:
            raise UnreachableError(
                f"{self.url} did not answer everything in time.", remedy="Check that the worker runs and is not stuck."
            )
        return min(self._settings.timeout_seconds, left)

    def _pauses(self) -> Iterator[float]:
        """Pauses between attempts, in seconds, until the time for them is used up."""
        deadline = time.monotonic() + self.retry_seconds
        pause = _FIRST_PAUSE_SECONDS
        while time.monotonic() + pause < deadline:
            yield pause
            pause = min(pause * 1.6, _LONGEST_PAUSE_SECONDS)

    def _must_repeat(self, call: Call[Any], outcome: Answer | httpx.HTTPError) -> bool:
        if isinstance(outcome, Answer):
            return call.may_be_repeated(outcome)
        # A refused connection has done nothing yet, so any request may be repeated after it.
        return self._retry_refused and isinstance(outcome, httpx.ConnectError)

    def _value(self, call: Call[T], outcome: Answer | httpx.HTTPError) -> T:
        if isinstance(outcome, Answer):
            return call.read(outcome)
        raise self._no_answer(call, outcome) from outcome

    def _no_answer(self, call: Call[Any], error: httpx.HTTPError) -> EosError:
        words = _reason(error)
        what = f"{self.url} did not answer {call.method} {call.path}"
        if isinstance(error, httpx.TimeoutException):
            limit = self._settings.timeout_seconds
            if isinstance(error, httpx.ConnectTimeout):
                limit = min(_CONNECT_SECONDS, limit)
            return UnreachableError(
                f"{what} within {limit:g} s.", remedy="Check that the worker runs and is not stuck."
            )
        if "CERTIFICATE_VERIFY_FAILED" in words:
            return UnreachableError(
                f"{what}: its certificate is not trusted ({words}).",
                remedy="Set rest.ca in the cluster description to the authority that signed it; a self-signed "
                "certificate is its own authority.",
            )
        # A worker that wants a certificate hangs up; its alert that says so may not come through.
        is_cut = self.url.startswith("https:") and isinstance(error, httpx.ReadError | httpx.WriteError)
        if "SSL" in words or is_cut:
            return UnreachableError(
                f"{what}: {words}.", remedy="Check http against https, and rest.client_certificate."
            )
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            return UnreachableError(
                f"{what}: {words}.",
                expected="an HTTP answer",
                remedy="Check that this is the worker's REST port (not the broker's, not TLS), and the worker's log.",
            )
        return UnreachableError(f"{what}: {words}.", remedy="Check the address, and that the worker runs.")


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds))


def _parses(url: str) -> bool:
    try:
        return bool(httpx.URL(url).host) and urlsplit(url).port != 0
    except (httpx.InvalidURL, ValueError):  # a port that is no number or too high, for one
        return False


def _reason(error: BaseException) -> str:
    """The words of the system where there are some."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, OSError) and cause.strerror:
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def tls_context(settings: RestSettings) -> ssl.SSLContext:
    """Whom the settings trust, and the certificate that they show.

    :raises ConfigurationError: a certificate file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=str(settings.ca) if settings.ca else None)
        if settings.client_certificate:
            key = str(settings.client_key) if settings.client_key else None
            # Without a password OpenSSL would ask for one on a terminal, which may not be there.
            context.load_cert_chain(str(settings.client_certificate), key, password=settings.client_key_password or "")
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"The certificate files for the REST API cannot be used: {error}.",
            expected="PEM files in rest.ca, rest.client_certificate and rest.client_key; a passphrase of that key in "
            "rest.client_key_password",
        ) from error
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
