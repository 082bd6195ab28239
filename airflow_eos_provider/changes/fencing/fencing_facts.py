"""Collects, for each connector, its task count record, transactional ids and tasks before a fencing round.

A task of a connector writes with the transactional id ``<group>-<connector>-<task>`` if its worker is ``enabled``
(KIP-618). The next producer with the id fences the previous one, and so any earlier task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from airflow_eos_provider.connect.connect_session import ANSWER_SECONDS, ConnectSession
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import probe
from airflow_eos_provider.connect.rest import ConnectorStatus, TaskStatus
from airflow_eos_provider.connect.topics.config_topic import ClusterState, ConnectorConfigState, read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import read_worker_files
from airflow_eos_provider.connect.transactional_ids import task_number
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.offsets.stores import WorkersKafka, unknown_connector

#: An open transaction that has neither ended nor made place for another one within so many seconds is called held.
HELD_SECONDS = 1.0
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class FenceId:
    """One transactional id of a connector's tasks."""

    transactional_id: str
    number: int
    #: What its coordinator knows; None if no broker knows the id (never used, or idle for seven days).
    known: TransactionDescription | None = None
    held: bool = False  #: whether a transaction of it is open and was the same one all the time of the look


@dataclass(frozen=True, slots=True)
class ConnectorLook:
    """One source connector."""

    state: ConnectorConfigState
    #: Those of the last task count record, and further ones with an open transaction; by number.
    ids: tuple[FenceId, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    cluster_id: str = ""  #: of the Kafka cluster of its ids; empty if that is the workers'
    unknown: str = ""  #: why that is not known; empty if it is

    @property
    def name(self) -> str:
        return self.state.name


@dataclass(frozen=True, slots=True)
class FenceLook:
    """The source connectors of a group."""

    at: float  #: when everything had been read, seconds since the epoch
    group_id: str
    kafka_cluster_id: str
    #: By worker that answers: does it run exactly-once source tasks? None if unknown.
    enabled: Mapping[str, bool | None]
    connectors: tuple[ConnectorLook, ...]


def look(session: ConnectSession, config_topic: str, names: Collection[str] = ()) -> FenceLook:
    """Look at the source connectors of a group. Changes nothing."""
    group_id = session.cluster.group_id
    enabled = enabled_workers(session)
    config = read_cluster_state(session.kafka, config_topic)
    statuses = session.ask(lambda rest: rest.statuses())
    chosen = _chosen(config, statuses, names, group_id)
    looks = {state.name: ConnectorLook(state, tasks=_tasks(statuses.get(state.name))) for state in chosen}
    if True in enabled.values():
        looks |= _with_ids(session, looks)
    return FenceLook(
        at=time.time(),
        group_id=group_id,
        kafka_cluster_id=session.kafka.cluster_id(),
        enabled=enabled,
        connectors=tuple(looks.values()),
    )


def _tasks(status: ConnectorStatus | None) -> tuple[TaskStatus, ...]:
    return status.tasks if status else ()


def _with_ids(session: ConnectSession, looks: Mapping[str, ConnectorLook]) -> dict[str, ConnectorLook]:
    """By name, the connectors with their transactional ids, or with why these are unknown."""
    workers_kafka, found = WorkersKafka(session), dict[str, ConnectorLook]()
    clusters: dict[str, tuple[Session, list[ConnectorLook]]] = {}
    for name, one in looks.items():
        try:
            kafka, cluster_id = workers_kafka.of_producers(one.state.config)
        except EosError as error:
            found[name] = replace(one, unknown=error.found)
        else:
            clusters.setdefault(cluster_id, (kafka, []))[1].append(replace(one, cluster_id=cluster_id))
    for cluster_id, (kafka, there) in clusters.items():
        try:
            ids = _ids(kafka, session.cluster.group_id, [one.state for one in there])
        except EosError as error:
            if not cluster_id:
                raise
            found |= {one.name: replace(one, unknown=error.found) for one in there}
        else:
            found |= {one.name: replace(one, ids=ids[one.name]) for one in there}
    return found


def _chosen(
    config: ClusterState, statuses: Mapping[str, ConnectorStatus], names: Collection[str], group_id: str
) -> list[ConnectorConfigState]:
    sinks = {name for name, status in statuses.items() if status.type == "sink"}
    sources = {name: state for name, state in config.connectors.items() if name not in sinks}
    for name in names:
        if name in sinks:
            raise ConfigurationError(
                f"{name} is a sink connector: it has no transactional ids.", expected="a source connector"
            )
        if name not in sources:
            raise unknown_connector(name, group_id, sources)
    return [state for name, state in sources.items() if not names or name in names]


def _ids(kafka: Session, group_id: str, connectors: Sequence[ConnectorConfigState]) -> dict[str, tuple[FenceId, ...]]:
    """By connector its ids in one Kafka cluster; held transactions are known after :data:`HELD_SECONDS` at most."""

    def open_numbers(name: str) -> set[int]:
        """The numbers of a connector's tasks that have something open."""
        found = (task_number(id_, f"{group_id}-{name}-") for id_ in open_ids)
        return {number for number in found if number is not None}

    with kafka.transactions() as client:
        open_ids = client.open_transactions(f"{group_id}-")
        numbers = {
            state.name: sorted({*range(state.task_count_record or 0), *open_numbers(state.name)})
            for state in connectors
        }
        wanted = [f"{group_id}-{name}-{number}" for name, each in numbers.items() for number in each]
        known = client.describe(wanted)
        held = _held(client.describe, {name: one for name, one in known.items() if one.state.is_open})
    return {
        name: tuple(
            FenceId(id_ := f"{group_id}-{name}-{number}", number, known.get(id_), held=id_ in held) for number in each
        )
        for name, each in numbers.items()
    }


def _held(
    describe: Callable[[Sequence[str]], Mapping[str, TransactionDescription]],
    first: Mapping[str, TransactionDescription],
) -> set[str]:
    """Those of the open transactions that stay the same: a task at work ends one after the other."""
    left = dict(first)
    deadline = time.monotonic() + HELD_SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)  # between two questions; the deadline bounds them
        now = describe(list(left))
        left = {name: one for name, one in left.items() if name in now and _same_transaction(one, now[name])}
    return set(left)


def _same_transaction(one: TransactionDescription, now: TransactionDescription) -> bool:
    """Whether it is still open; its partitions become more while it is written."""
    return now.state.is_open and one == now._replace(state=one.state, partitions=one.partitions)


def enabled_workers(session: ConnectSession) -> dict[str, bool | None]:
    """By worker that answers, whether it runs exactly-once source tasks; by its file where it does not say.

    A worker that does not answer is left out: one that is suspended is what a fencing round is for.
    """
    files = read_worker_files(session.cluster).properties

    def ask(worker_id: str, url: str) -> tuple[bool, bool | None]:
        try:
            with session.rest(url, give_up_at=time.monotonic() + ANSWER_SECONDS) as rest:
                rest.root()
                observed = probe(rest).runs_exactly_once
        except EosError:
            return False, None
        declared = files.get(worker_id, {}).get(MODE_PROPERTY, "").lower()
        if observed is None and declared in tuple(Mode):
            return True, Mode(declared).runs_exactly_once_tasks
        return True, observed

    workers = session.cluster.workers
    with ThreadPoolExecutor(len(workers)) as pool:
        answers = list(pool.map(lambda worker: ask(worker.worker_id, worker.url), workers))
    found = {w.worker_id: enabled for w, (answered, enabled) in zip(workers, answers, strict=True) if answered}
    if not found:
        raise UnreachableError(
            f"No worker of group {session.cluster.group_id} answers, so their modes are unknown.",
            remedy="Check the workers' addresses in the cluster file, and that they run.",
        )
    return found
