"""The lab's waits: each has a name, a bound, and an error with the end of the log of the part that is not ready."""

from __future__ import annotations

import base64
import http.client
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException

from airflow_eos_provider.connect.cluster.description import RestSettings
from airflow_eos_provider.connect.rest import tls_context
from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.kafka.clients import QuietAdmin
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.startup_wait import Starting, StartupLimits, wait_until_ready
from airflow_eos_provider.processes import ProcessIdentity

#: Alone a broker needs 2 s, a worker 3 s and PostgreSQL 0.3 s; the bounds are for machines that do much else.
STARTUP_LIMITS = StartupLimits(idle_seconds=120.0, overall_seconds=600.0)
GROUP_SECONDS = 180.0

_POLL_SECONDS = 0.1

T = TypeVar("T")


def until(look: Callable[[], T], what: str, seconds: float, *, pause_seconds: float = _POLL_SECONDS) -> T:
    """Look again and again until a look finds something. A look that nobody answers, as in a rebalance, finds nothing.

    :param look: ends the wait with its first true result.
    :param what: the event, for the error.
    :returns: that result.
    :raises EosError: no look found anything in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        problem = ""
        try:
            if found := look():
                return found
        except UnreachableError as error:
            problem = f" {error.found}"
        if time.monotonic() > deadline:
            raise EosError(f"Timed out after {seconds:.0f} s waiting for {what}.{problem}")
        time.sleep(pause_seconds)


def wait_for(name: str, ready: Callable[[], bool], process: ProcessIdentity, log: Path) -> None:
    """Return when a part that was just started is ready.

    :param name: as errors call it.
    :raises EosError: it ended.
    :raises UnreachableError: it is beyond :data:`STARTUP_LIMITS`.
    """
    wait_until_ready([Starting(name, process, log)], lambda: () if ready() else (name,), STARTUP_LIMITS)


def wait_for_broker(broker: KafkaSettings, process: ProcessIdentity, log: Path) -> None:
    """Return when the broker answers and has registered itself.

    :param broker: the one address of this broker, and how the lab logs in there.
    :raises EosError: it ended.
    :raises UnreachableError: it is beyond :data:`STARTUP_LIMITS`.
    """
    wait_for("The broker", lambda: broker_answers(broker), process, log)


def wait_for_worker(
    url: str,
    process: ProcessIdentity,
    log: Path,
    settings: RestSettings = RestSettings(),  # noqa: B008 - frozen
) -> None:
    """Return when the worker calls itself healthy: it has read its topics and taken part in a rebalance.

    :raises EosError: it ended.
    :raises UnreachableError: it is beyond :data:`STARTUP_LIMITS`.
    """
    wait_for(f"The worker {url}", lambda: is_healthy(url, settings), process, log)


def wait_for_group(kafka: KafkaSettings, group_id: str, members: int) -> None:
    """Return when the workers' group is stable and has at least so many members.

    :raises UnreachableError: it is not so in :data:`GROUP_SECONDS`.
    """
    admin = QuietAdmin(kafka)
    deadline = time.monotonic() + GROUP_SECONDS
    seen = "no answer"
    while time.monotonic() < deadline:
        try:
            groups = admin.client.list_groups(group_id, timeout=5)
        except KafkaException as error:
            seen = str(error.args[0])
        else:
            seen = next((f"{len(g.members)} members, {g.state}" for g in groups if g.id == group_id), "no such group")
            if any(g.state == "Stable" and len(g.members) >= members for g in groups if g.id == group_id):
                return
        time.sleep(_POLL_SECONDS)
    raise UnreachableError(
        f"The group {group_id} did not settle in {GROUP_SECONDS:.0f} s: {seen}.", expected=f"{members} members, Stable"
    )


def is_healthy(
    url: str,
    settings: RestSettings = RestSettings(),  # noqa: B008 - frozen
    timeout_seconds: float = 5.0,
) -> bool:
    """Whether the worker's ``/health`` answers 200.

    A worker before 3.9 has no such address. There the list of connectors must do: it comes from the herder's thread,
    too, which answers once it has joined its group. While a worker of any version starts, its port answers 404 to
    everything; so the first question is for an address that every worker has.
    """
    try:
        asked = partial(_status, url, settings, timeout_seconds)
        if asked("/") != 200:
            return False
        status = asked("/health")
        return (asked("/connectors") if status == 404 else status) == 200
    except (OSError, http.client.HTTPException):
        return False


def _status(url: str, settings: RestSettings, timeout_seconds: float, path: str) -> int:
    """The HTTP status of one GET."""
    scheme, _, address = url.partition("://")
    connection: http.client.HTTPConnection
    if scheme == "https":
        connection = http.client.HTTPSConnection(address, timeout=timeout_seconds, context=tls_context(settings))
    else:
        connection = http.client.HTTPConnection(address, timeout=timeout_seconds)
    login = base64.b64encode(f"{settings.username}:{settings.password}".encode()).decode()
    try:
        connection.request("GET", path, headers={"Authorization": f"Basic {login}"} if settings.username else {})
        return connection.getresponse().status
    finally:
        connection.close()


def broker_answers(broker: KafkaSettings) -> bool:
    """Whether the broker at this one address answers and has registered itself."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    try:
        socket.create_connection(
            (host, int(port)), timeout=1
        ).close()  # librdkafka backs off where no process listens yet
        known = QuietAdmin(broker).client.list_topics(timeout=5).brokers.values()
        return any(one.port == int(port) for one in known)
    except (OSError, KafkaException):
        return False
