"""The lab's waits: each has a name, a bound, and an error with the end of the log of the part that is not ready."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx

from airflow_eos_provider.connect.cluster.description import RestSettings
from airflow_eos_provider.connect.rest import tls_context
from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.kafka.admin.groups import describe_groups
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab_processes import log_tail
from airflow_eos_provider.local_processes import ProcessIdentity, inherited_variables

#: Alone Airflow needs 30 s, Spark 8 s, a worker 3 s, a broker 2 s; the bound is for machines that do much else.
STARTUP_SECONDS = 900.0
GROUP_SECONDS = 180.0

_POLL_SECONDS = 0.1

T = TypeVar("T")


def until(look: Callable[[], T], what: str, seconds: float, *, pause_seconds: float = _POLL_SECONDS) -> T:
    """Look until a look finds something true, and return that.

    A look that raises :class:`UnreachableError`, as in a rebalance, finds nothing; the last one is in the error.

    :param what: the event, for the error.
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


@dataclass(frozen=True, slots=True)
class Starting:
    """One process that has to come up, under the name that errors give it, and its own log."""

    name: str
    process: ProcessIdentity
    log: Path

    def end_of_log(self) -> str:
        return f"The end of {self.log}:\n{log_tail(self.log)}"


def wait_until_ready(
    parts: Sequence[Starting],
    not_ready: Callable[[], Collection[str]],
    *,
    seconds: float = STARTUP_SECONDS,
    poll_seconds: float = _POLL_SECONDS,
) -> None:
    """Return when ``not_ready`` names no part any more. All parts have to live, also those that are ready.

    :raises EosError: a part has ended; with the end of its own log.
    :raises UnreachableError: some are not ready in time; with the end of the log of each.
    """
    deadline = time.monotonic() + seconds
    while awaited := not_ready():
        for part in parts:
            if not part.process.is_alive():
                raise EosError(f"{part.name} ended while it started. {part.end_of_log()}", remedy=f"Read {part.log}.")
        if time.monotonic() > deadline:
            late = [part for part in parts if part.name in awaited]
            raise UnreachableError(
                "\n".join(f"{part.name} is not ready after {seconds:.0f} s. {part.end_of_log()}" for part in late),
                remedy=f"Read {', '.join(str(part.log) for part in late)}.",
            )
        time.sleep(poll_seconds)


def run_to_end(
    name: str,
    command: Sequence[str],
    log: Path,
    seconds: float,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a program, with its output in a log.

    :raises EosError: it failed, or did not end in time; with the end of the log.
    """
    with log.open("ab") as output:
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**inherited_variables(), **(env or {})},
                timeout=seconds,
                check=False,
            ).returncode
            problem = f"ended with exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            problem = f"did not end in {seconds:.0f} s"
    if problem:
        raise EosError(f"{name} {problem}. The end of {log}:\n{log_tail(log)}", remedy=f"Read {log}.")


def wait_for(name: str, ready: Callable[[], bool], process: ProcessIdentity, log: Path) -> None:
    """:func:`wait_until_ready` for one part."""
    wait_until_ready([Starting(name, process, log)], lambda: () if ready() else (name,))


def wait_for_broker(broker: KafkaSettings, process: ProcessIdentity, log: Path) -> None:
    """Return when the broker at this one address answers and has registered itself."""
    wait_for("The broker", lambda: broker_answers(broker), process, log)


def wait_for_worker(
    url: str,
    process: ProcessIdentity,
    log: Path,
    settings: RestSettings = RestSettings(),  # noqa: B008 - frozen
) -> None:
    """Return when the worker calls itself healthy: it has read its topics and taken part in a rebalance."""
    wait_for(f"The worker {url}", lambda: is_healthy(url, settings), process, log)


def wait_for_group(kafka: KafkaSettings, group_id: str, members: int) -> None:
    """Return when the workers' group is stable and has at least so many members."""

    def settled() -> bool:
        with session.admin() as admin:
            group = describe_groups(admin, [group_id], 5.0)[group_id]
        if isinstance(group, Exception):
            raise UnreachableError(str(group))
        if group.state == "Stable" and len(group.members) >= members:
            return True
        raise UnreachableError(f"It is {group.state} with {len(group.members)} members.")

    with Session(kafka) as session:
        until(settled, f"the group {group_id} to be stable with {members} members", GROUP_SECONDS)


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
    login = (settings.username, settings.password or "") if settings.username else None
    trust = tls_context(settings) if url.startswith("https:") else False
    with httpx.Client(base_url=url, auth=login, verify=trust, timeout=timeout_seconds, trust_env=False) as client:
        try:
            if client.get("/").status_code != 200:
                return False
            status = client.get("/health").status_code
            return (client.get("/connectors").status_code if status == 404 else status) == 200
        except httpx.HTTPError:
            return False


def broker_answers(broker: KafkaSettings) -> bool:
    """Whether the broker at this one address answers and has registered itself."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    if not listens(host, int(port)):  # a client takes longer to find that
        return False
    try:
        with Session(broker) as session, session.admin() as admin:
            return int(port) in admin.cluster(5.0).ports.values()
    except EosError:
        return False


def listens(host: str, port: int) -> bool:
    """Whether a connection to this port is taken."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
