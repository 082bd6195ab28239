"""A worker's REST API. Answers are typed; an answer that is not Connect's is an error, never a guess.

Certificates are verified unless that is turned off explicitly, redirects are not followed, and proxies of the
environment are not used: a request that wandered elsewhere could show credentials there, or ask the wrong worker.
Connect's traces and messages may quote a configuration: secrets are removed from them here.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from airflow_eos_provider.connect.cluster.description import RestSettings
from airflow_eos_provider.connect.properties import trimmed
from airflow_eos_provider.errors import (
    ConfigurationError,
    ConnectRestError,
    EosError,
    NotKafkaConnectError,
    RestRefusedError,
    UnreachableError,
)
from airflow_eos_provider.redaction import redact, remember

T = TypeVar("T")

_NO_ADDRESS = r"Connect 4 creates a connector with / \ or % in its name, but its web server takes no address with them."
#: What is said of an answer that Connect itself did not write.
NO_WORDS = "no words of Connect (its web server answered, or a proxy)"

_NO_ADDRESS_REMEDY = "Use a connector with another name; 'eos offsets restore --from' gives it the offsets."

#: Answers that another time, or another worker, may give differently: a timeout, a rebalance, too many requests.
_NOT_FINAL = frozenset({408, 409, 429})

#: Connect's own words are cut to this many characters: a message may echo configuration values.
MESSAGE_CHARACTERS = 500

#: Connect answers 409 for two reasons; this is the one that waiting does not cure.
_EXISTS = "already exists"

#: Connect's words where a worker has to take part in a rebalance before it may answer
#: (``DistributedHerder.checkRebalanceNeeded``). ``GET /connectors``, ``…/{name}``, ``…/config`` and ``…/tasks`` answer
#: so with 500, because only requests that may be forwarded turn it into 409 (``HerderRequestHandler``).
_REBALANCE_FIRST = "Request cannot be completed because a rebalance is expected"

#: How Connect's words begin where a request did not get to the leader, or its answer not back.
_NOT_FORWARDED = "IO Error trying to forward REST request"

#: How Connect's words begin where the leader may not write the config topic any more, since another worker that leads,
#: or led, has fenced its producer (``DistributedHerder.writeToConfigTopicAsLeader``), and until it has joined the group
#: again and, if it still leads, claimed the right anew (``KafkaConfigBackingStore.sendPrivileged``).
_NOT_WRITTEN = (
    "Failed to write to config topic",
    "Cannot produce to config topic without claiming write privileges first",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. The body is not part of the text form."""

    url: str
    status: int
    body: bytes = field(repr=False)

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise _not_connect(self.url, f"answered {self.status} with something that is not JSON") from None

    def message(self) -> str | None:
        """Connect's own words for an error, cut; None if the body is not Connect's."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        message = document.get("message") if isinstance(document, dict) else None
        return _cut(message) if isinstance(message, str) else None

    @property
    def is_final(self) -> bool:
        """Whether the same request gets the same answer. A worker that starts says 404 too, without Connect's words."""
        is_starting = self.status == 404 and self.message() is None
        return 400 <= self.status < 500 and self.status not in _NOT_FINAL and not is_starting

    @property
    def misses_leader(self) -> bool:
        """The worker could not pass the request on to the leader, or got no answer: the leader was killed, and the
        group has not noticed (``RestClient.httpRequest``). The next leader is known a session timeout later."""
        return self.status == 500 and (self.message() or "").startswith(_NOT_FORWARDED)

    @property
    def is_momentary(self) -> bool:
        """The group is rebalancing, its leader is not known yet, or was just fenced by another one, and nothing was
        done: the same request has another answer soon."""
        words = self.message() or ""
        return (self.status == 409 and _EXISTS not in words) or (
            self.status == 500 and (words == _REBALANCE_FIRST or words.startswith(_NOT_WRITTEN))
        )


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    """One call and how its answer is read.

    :param body: JSON document to send; never shown.
    :param accepted: statuses that ``parse`` understands.
    """

    method: str
    path: str
    parse: Callable[[Answer], T] = field(repr=False)
    body: Any = field(default=None, repr=False)
    accepted: frozenset[int] = frozenset({200, 201, 202, 204})

    def may_be_repeated(self, answer: Answer) -> bool:
        """Whether the same call has another answer soon, and a second one does no harm if the first one was heard."""
        return answer.is_momentary or (answer.misses_leader and self.method in ("GET", "PUT", "PATCH"))

    def read(self, answer: Answer) -> T:
        if answer.status not in self.accepted:
            raise self._error(answer)
        try:
            return self.parse(answer)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
            raise _not_connect(
                answer.url, f"answered {self.method} {self.path} in another form than Connect's"
            ) from None

    def _error(self, answer: Answer) -> EosError:
        if 300 <= answer.status < 400:
            return _not_connect(answer.url, f"answered {answer.status}, a redirect, which is not followed")
        message = answer.message()
        if answer.status in (401, 403):
            return RestRefusedError(
                f"{answer.url} refused {self.method} {self.path}: {answer.status} {message or ''}".rstrip() + ".",
                status=answer.status,
                remedy="Check rest.username, rest.password or rest.token in the cluster description.",
            )
        if self.path == "/" and 400 <= answer.status < 500 and not answer.is_momentary:
            does = (
                "a Connect worker does only while it is starting" if answer.status == 404 else "no Connect worker does"
            )
            return _not_connect(answer.url, f"answered GET / with {answer.status}, which {does}")
        kind = RestRefusedError if answer.is_final else ConnectRestError
        return kind(
            f"{answer.url} answered {self.method} {self.path} with {answer.status}: {message or NO_WORDS}",
            status=answer.status,
            remedy=self._remedy(answer, message),
        )

    def _remedy(self, answer: Answer, message: str | None) -> str | None:
        if message is not None and message.startswith(_NOT_WRITTEN):
            return (
                "The leader's log says why: another worker leads too, or a right is missing on the config topic or on "
                "the transactional id connect-cluster-<group>."
            )
        if answer.is_momentary:
            return "Try again when the group is stable."
        if answer.status == 400 and message is None and self.path.startswith("/connectors/"):
            # Jetty 12 calls such a path ambiguous; seen with 4.3.1.
            return f"{_NO_ADDRESS} {_NO_ADDRESS_REMEDY}"
        return None


@dataclass(frozen=True, slots=True)
class WorkerRoot:
    """``GET /``: version and commit of the worker, id of the Kafka cluster that holds its group."""

    version: str
    commit: str
    kafka_cluster_id: str


@dataclass(frozen=True, slots=True)
class Health:
    """``GET /health`` (KIP-1017).

    :param status: ``healthy``, ``starting``, ``unhealthy``, or ``absent`` for a worker older than 3.9.
    """

    status: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One task, as the status topic has it; a dead worker's tasks go on to be called RUNNING there."""

    number: int
    state: str
    worker_id: str
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """One connector with its tasks.

    :param type: ``source``, ``sink`` or ``unknown``.
    :param state: Connect's word, or ``UNKNOWN`` if the worker gave no status (it has none for the first moments).
    :param config: never shown: it may hold secrets.
    """

    name: str
    type: str
    state: str
    worker_id: str
    trace: str | None = None
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    tasks: tuple[TaskStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Validation:
    """What a worker says to a connector configuration.

    :param errors: messages by property, only properties that have some.
    :param properties: every property that this worker knows for such a connector.
    """

    errors: Mapping[str, tuple[str, ...]]
    properties: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """One source partition with its offset, or a sink's; the offset is None if Connect shows none."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None


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
            raise _not_connect(self._url, f"answered with more than {_ANSWER_BYTES} bytes")
        if time.monotonic() > self._deadline:
            raise UnreachableError(f"{self._url} had not answered completely after {self._limit_seconds:g} s.")

    def answer(self, status: int) -> Answer:
        return Answer(self._url, status, bytes(self._content))


class ConnectRest:
    """One worker's REST API.

    Every method raises :class:`UnreachableError` when no answer comes, :class:`NotKafkaConnectError` when the answer is
    not Connect's, and :class:`ConnectRestError` with status and Connect's words when it is an error.

    :param retry_seconds: for how long a request is repeated that meets a rebalance, or a leader that was killed or
        fenced (see :meth:`_Call.may_be_repeated`); 0 for one attempt. May be set anew between two requests.
    :param retry_refused: repeat it too while the worker refuses connections, as one that is starting does.
    :param give_up_at: when no request is waited for any longer, by the monotonic clock; None for no such moment. May be
        set anew between two requests.
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

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def root(self) -> WorkerRoot:
        """Version, commit and Kafka cluster id; the way to tell whether this is a Connect worker at all."""
        return self._ask("/", _root)

    def health(self) -> Health:
        return self._run(_Call("GET", "/health", _health, accepted=frozenset({200, 404, 500, 503})))

    def connectors(self) -> tuple[str, ...]:
        return self._ask("/connectors", _names)

    def statuses(self) -> dict[str, ConnectorStatus]:
        """All connectors with status, tasks and configuration, by name; one request. Without those that have no status
        yet, see :meth:`infos`."""
        return self._ask("/connectors?expand=status&expand=info", _connectors)

    def infos(self) -> dict[str, ConnectorStatus]:
        """All connectors with type and configuration, by name, and without status; one request."""
        return self._ask("/connectors?expand=info", _connectors)

    def connector_config(self, name: str) -> dict[str, str]:
        return self._ask(f"{_connector(name)}/config", _written_config)

    def create(self, name: str, config: Mapping[str, str], initial_state: str | None = None) -> None:
        """Create a connector.

        :param initial_state: ``RUNNING``, ``PAUSED`` or ``STOPPED`` (Connect 3.7 and later).
        """
        state = {} if initial_state is None else {"initial_state": initial_state}
        self._do("POST", "/connectors", {"name": name, "config": dict(config), **state})

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        self._do("PUT", f"{_connector(name)}/config", dict(config))

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some properties of a connector that is there (KIP-477, since 3.8); None removes one.

        :raises ConnectRestError: 404 if there is no such connector, 405 from an older worker.
        """
        self._do("PATCH", f"{_connector(name)}/config", dict(changes))

    def delete(self, name: str) -> None:
        self._do("DELETE", _connector(name))

    def stop(self, name: str) -> None:
        self._do("PUT", f"{_connector(name)}/stop")

    def pause(self, name: str) -> None:
        self._do("PUT", f"{_connector(name)}/pause")

    def resume(self, name: str) -> None:
        self._do("PUT", f"{_connector(name)}/resume")

    def restart(self, name: str, *, include_tasks: bool = False, only_failed: bool = False) -> None:
        flags = f"includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
        self._do("POST", f"{_connector(name)}/restart?{flags}")

    def restart_task(self, name: str, number: int) -> None:
        self._do("POST", f"{_connector(name)}/tasks/{number}/restart")

    def offsets(self, name: str) -> tuple[ConnectorOffset, ...]:
        """Offsets as Connect shows them; one whose JSON keys are in another order than Java's is shown as None."""
        return self._ask(f"{_connector(name)}/offsets", _offsets)

    def alter_offsets(self, name: str, wanted: Sequence[tuple[Any, Any]]) -> None:
        """Let Connect alter offsets of a stopped connector, which asks the connector's own check first (KIP-875, 3.6).

        :raises ConnectRestError: with the connector's words if it refuses, by the status 500; 404 or 405 from an older
            worker.
        """
        offsets = [{"partition": partition, "offset": offset} for partition, offset in wanted]
        self._do("PATCH", f"{_connector(name)}/offsets", {"offsets": offsets})

    def topics(self, name: str) -> tuple[str, ...]:
        """Topics that the connector has written or read since it was made; 403 where the workers do not track them."""
        return self._ask(
            f"{_connector(name)}/topics", lambda answer: tuple(sorted(map(str, _mapping(answer)[name]["topics"])))
        )

    def plugins(self) -> tuple[str, ...]:
        """The classes of the plugins on this worker's path."""
        return self._ask("/connector-plugins", lambda answer: tuple(str(each["class"]) for each in _list(answer)))

    def validate(self, plugin_class: str, config: Mapping[str, str]) -> Validation:
        """Let this very worker validate a configuration; nothing is created."""
        path = f"/connector-plugins/{quote(plugin_class, safe='')}/config/validate"
        return self._run(_Call("PUT", path, _validation, {"connector.class": plugin_class, **config}))

    def _ask(self, path: str, parse: Callable[[Answer], T]) -> T:
        return self._run(_Call("GET", path, parse))

    def _do(self, method: str, path: str, body: Any = None) -> None:
        self._run(_Call(method, path, lambda _: None, body))

    def _run(self, call: _Call[T]) -> T:
        pauses = self._pauses()
        while True:
            outcome: Answer | httpx.HTTPError
            try:
                with _ours():
                    outcome = self._send(call)
            except httpx.HTTPError as error:
                outcome = error
            pause = next(pauses, None) if self._must_repeat(call, outcome) else None
            if pause is not None:
                time.sleep(pause)
            elif isinstance(outcome, Answer):
                return call.read(outcome)
            else:
                raise self._no_answer(call, outcome) from outcome

    def _send(self, call: _Call[Any]) -> Answer:
        limit = self._seconds()
        body = _Body(self.url, limit)
        address, timeout = self.url + call.path, httpx.Timeout(limit, connect=min(_CONNECT_SECONDS, limit))
        with self._client.stream(call.method, address, json=call.body, timeout=timeout) as response:
            for piece in response.iter_bytes():
                body.add(piece)
        return body.answer(response.status_code)

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

    def _must_repeat(self, call: _Call[Any], outcome: Answer | httpx.HTTPError) -> bool:
        if isinstance(outcome, Answer):
            return call.may_be_repeated(outcome)
        # A refused connection has done nothing yet, so any request may be repeated after it.
        return self._retry_refused and isinstance(outcome, httpx.ConnectError)

    def _no_answer(self, call: _Call[Any], error: httpx.HTTPError) -> EosError:
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


def _root(answer: Answer) -> WorkerRoot:
    document = answer.json()
    return WorkerRoot(str(document["version"]), str(document["commit"]), str(document["kafka_cluster_id"]))


def _health(answer: Answer) -> Health:
    if answer.status == 404:
        return Health("absent", "this worker has no health endpoint (it came with Connect 3.9)")
    document = _mapping(answer)
    if "status" not in document and answer.message():  # Connect's general error, as for a request that timed out
        return Health("unhealthy", answer.message() or "")
    status = document["status"]
    if status not in ("healthy", "starting", "unhealthy"):
        raise ValueError(status)
    return Health(status, _cut(str(document.get("message") or "")))


def _names(answer: Answer) -> tuple[str, ...]:
    return tuple(sorted(_list(answer)))


def _written_config(answer: Answer) -> dict[str, str]:
    config = _mapping(answer)
    remember(config)
    return config


def _offsets(answer: Answer) -> tuple[ConnectorOffset, ...]:
    return tuple(ConnectorOffset(entry["partition"], entry.get("offset")) for entry in _mapping(answer)["offsets"])


def _validation(answer: Answer) -> Validation:
    # A plugin with a validation of its own may leave a property out, which Connect gives without a value then.
    values = [entry["value"] for entry in _mapping(answer)["configs"] if entry["value"] is not None]
    errors = {str(v["name"]): tuple(map(_cut, map(str, v["errors"]))) for v in values if v["errors"]}
    known = frozenset(str(value["name"]) for value in values)
    return Validation(errors, known)


def _not_connect(url: str, found: str) -> NotKafkaConnectError:
    return NotKafkaConnectError(
        f"{url} {found}.",
        expected="the REST API of a Kafka Connect worker",
        remedy="Give the worker's own address (its 'listeners' property, usually port 8083).",
    )


def _connectors(answer: Answer) -> dict[str, ConnectorStatus]:
    entries = sorted(_mapping(answer).items())
    for _, entry in entries:  # all before the first trace is read: one connector's may quote another's secret
        remember(_config(entry))
    return {name: _connector_status(name, entry) for name, entry in entries}


def _connector_status(name: str, entry: Mapping[str, Any]) -> ConnectorStatus:
    status, info = entry.get("status") or {}, entry.get("info") or {}
    connector = status.get("connector") or {}
    return ConnectorStatus(
        name=name,
        type=str(status.get("type") or info.get("type") or "unknown").lower(),
        state=str(connector.get("state", "UNKNOWN")),
        worker_id=str(connector.get("worker_id", "")),
        trace=_redacted(connector.get("trace")),
        config=_config(entry),
        tasks=tuple(
            TaskStatus(int(task["id"]), str(task["state"]), str(task["worker_id"]), _redacted(task.get("trace")))
            for task in sorted(status.get("tasks") or (), key=lambda task: int(task["id"]))
        ),
    )


def _config(entry: Mapping[str, Any]) -> dict[str, str]:
    return trimmed((entry.get("info") or {}).get("config") or {})


def _redacted(trace: Any) -> str | None:
    return None if trace is None else redact(str(trace))


def _connector(name: str) -> str:
    """The path of a connector.

    :raises RestRefusedError: no path can name it. Clients and servers remove ``.`` and ``..`` from a path, quoted or
        not, so that the request would be about something else.
    """
    try:
        if name in ("", ".", ".."):
            raise ValueError
        return f"/connectors/{quote(name, safe='')}"
    except ValueError:  # half a surrogate pair has no bytes
        raise RestRefusedError(
            f"The workers' REST API has no address for a connector with the name {name!r}.",
            status=404,
            remedy=_NO_ADDRESS_REMEDY,
        ) from None


def _mapping(answer: Answer) -> dict[str, Any]:
    document = answer.json()
    if not isinstance(document, dict):
        raise TypeError
    return document


def _list(answer: Answer) -> list[Any]:
    document = answer.json()
    if not isinstance(document, list):
        raise TypeError
    return document


def _cut(message: str) -> str:
    message = redact(message)
    return message if len(message) <= MESSAGE_CHARACTERS else f"{message[:MESSAGE_CHARACTERS]} …"


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
    """Whom the settings trust, and the certificate that they show."""
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
