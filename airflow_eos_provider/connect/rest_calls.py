"""The calls of Connect's REST API as plain values: what to send, and what to make of the answer.

A :class:`Call` knows no HTTP client; ``rest.py`` carries calls out, blocking or async. Answers are typed; an answer
that is not Connect's is an error, never a guess. Connect's traces and messages may quote a configuration: secrets are
removed from them here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from airflow_eos_provider.connect.properties import trimmed
from airflow_eos_provider.errors import (
    ConnectRestError,
    EosError,
    NotKafkaConnectError,
    RestRefusedError,
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
        """The body as JSON.

        :raises NotKafkaConnectError: it is none.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise not_connect(self.url, f"answered {self.status} with something that is not JSON") from None

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
class Call(Generic[T]):
    """One call and how its answer is read.

    :param path: path and query, already quoted.
    :param parse: from a successful answer to the value.
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
        """The value in an answer.

        :raises NotKafkaConnectError: the answer is not Connect's.
        :raises ConnectRestError: Connect answered with an error.
        """
        if answer.status not in self.accepted:
            raise self._error(answer)
        try:
            return self.parse(answer)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
            raise not_connect(
                answer.url, f"answered {self.method} {self.path} in another form than Connect's"
            ) from None

    def _error(self, answer: Answer) -> EosError:
        if 300 <= answer.status < 400:
            return not_connect(answer.url, f"answered {answer.status}, a redirect, which is not followed")
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
            return not_connect(answer.url, f"answered GET / with {answer.status}, which {does}")
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
    :param trace: why it has failed, without secrets.
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
class Plugin:
    """One plugin on a worker's path."""

    plugin_class: str
    type: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Validation:
    """What a worker says to a connector configuration.

    :param errors: messages by property, only properties that have some.
    :param error_count: Connect's own count.
    :param properties: every property that this worker knows for such a connector.
    """

    plugin_class: str
    error_count: int
    errors: Mapping[str, tuple[str, ...]]
    properties: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """One source partition with its offset, or a sink's; the offset is None if Connect shows none."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None


def root() -> Call[WorkerRoot]:
    def parse(answer: Answer) -> WorkerRoot:
        document = answer.json()
        return WorkerRoot(str(document["version"]), str(document["commit"]), str(document["kafka_cluster_id"]))

    return Call("GET", "/", parse)


def health() -> Call[Health]:
    def parse(answer: Answer) -> Health:
        if answer.status == 404:
            return Health("absent", "this worker has no health endpoint (it came with Connect 3.9)")
        document = _mapping(answer)
        if "status" not in document and answer.message():  # Connect's general error, as for a request that timed out
            return Health("unhealthy", answer.message() or "")
        status = document["status"]
        if status not in ("healthy", "starting", "unhealthy"):
            raise ValueError(status)
        return Health(status, _cut(str(document.get("message") or "")))

    return Call("GET", "/health", parse, accepted=frozenset({200, 404, 500, 503}))


def connectors() -> Call[tuple[str, ...]]:
    return Call("GET", "/connectors", lambda answer: tuple(sorted(_list(answer))))


def statuses() -> Call[dict[str, ConnectorStatus]]:
    """All connectors with status and configuration by one request. Connect leaves out one that has no status yet."""
    return Call("GET", "/connectors?expand=status&expand=info", _connectors)


def infos() -> Call[dict[str, ConnectorStatus]]:
    """All connectors with configuration and without status by one request: also those that have no status yet."""
    return Call("GET", "/connectors?expand=info", _connectors)


def connector_config(name: str) -> Call[dict[str, str]]:
    def parse(answer: Answer) -> dict[str, str]:
        config = _mapping(answer)
        remember(config)
        return config

    return Call("GET", f"{_connector(name)}/config", parse)


def create(name: str, config: Mapping[str, str], initial_state: str | None = None) -> Call[None]:
    body: dict[str, Any] = {"name": name, "config": dict(config)}
    if initial_state is not None:
        body["initial_state"] = initial_state
    return Call("POST", "/connectors", _nothing, body)


def put_config(name: str, config: Mapping[str, str]) -> Call[None]:
    return Call("PUT", f"{_connector(name)}/config", _nothing, dict(config))


def patch_config(name: str, changes: Mapping[str, str | None]) -> Call[None]:
    return Call("PATCH", f"{_connector(name)}/config", _nothing, dict(changes))


def delete(name: str) -> Call[None]:
    return Call("DELETE", _connector(name), _nothing)


def stop(name: str) -> Call[None]:
    return Call("PUT", f"{_connector(name)}/stop", _nothing)


def pause(name: str) -> Call[None]:
    return Call("PUT", f"{_connector(name)}/pause", _nothing)


def resume(name: str) -> Call[None]:
    return Call("PUT", f"{_connector(name)}/resume", _nothing)


def restart(name: str, *, include_tasks: bool, only_failed: bool) -> Call[None]:
    flags = f"includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
    return Call("POST", f"{_connector(name)}/restart?{flags}", _nothing)


def restart_task(name: str, number: int) -> Call[None]:
    return Call("POST", f"{_connector(name)}/tasks/{number}/restart", _nothing)


def offsets(name: str) -> Call[tuple[ConnectorOffset, ...]]:
    def parse(answer: Answer) -> tuple[ConnectorOffset, ...]:
        return tuple(ConnectorOffset(entry["partition"], entry.get("offset")) for entry in _mapping(answer)["offsets"])

    return Call("GET", f"{_connector(name)}/offsets", parse)


def alter_offsets(name: str, wanted: Sequence[tuple[Any, Any]]) -> Call[None]:
    body = {"offsets": [{"partition": partition, "offset": offset} for partition, offset in wanted]}
    return Call("PATCH", f"{_connector(name)}/offsets", _nothing, body)


def topics(name: str) -> Call[tuple[str, ...]]:
    def parse(answer: Answer) -> tuple[str, ...]:
        return tuple(sorted(map(str, _mapping(answer)[name]["topics"])))

    return Call("GET", f"{_connector(name)}/topics", parse)


def plugins() -> Call[tuple[Plugin, ...]]:
    def parse(answer: Answer) -> tuple[Plugin, ...]:
        return tuple(Plugin(str(e["class"]), str(e["type"]), e.get("version")) for e in _list(answer))

    return Call("GET", "/connector-plugins", parse)


def validate(plugin_class: str, config: Mapping[str, str]) -> Call[Validation]:
    def parse(answer: Answer) -> Validation:
        document = _mapping(answer)
        # A plugin with a validation of its own may leave a property out, which Connect gives without a value then.
        values = [entry["value"] for entry in document["configs"] if entry["value"] is not None]
        errors = {str(v["name"]): tuple(map(_cut, map(str, v["errors"]))) for v in values if v["errors"]}
        known = frozenset(str(value["name"]) for value in values)
        return Validation(str(document["name"]), int(document["error_count"]), errors, known)

    body = {"connector.class": plugin_class, **config}
    return Call("PUT", f"/connector-plugins/{quote(plugin_class, safe='')}/config/validate", parse, body)


def not_connect(url: str, found: str) -> NotKafkaConnectError:
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


def _nothing(answer: Answer) -> None:
    return None


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
