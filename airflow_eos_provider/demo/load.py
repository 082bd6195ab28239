"""The demo's live load: starts a file source and a mirror on the lab, watches them, and reconfigures the mirror."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect import properties
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.config_topic import TaskCountRecord, read_cluster_state
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription, TransactionsClient
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.security import Principal

FLIGHTS_TOPIC = "flights"
MIRROR_TOPIC = "src.flights"
FILE_CONNECTOR = "flights-file"
MIRROR_CONNECTOR = "flights-mirror"
OFFSET_SYNCS_TOPIC = "mm2-offset-syncs.dst.internal"
MIRROR_TASKS_BEFORE = 3
MIRROR_TASKS_AFTER = 2
PARTITIONS = 6

#: Broker time, so that "appended after the enabled moment" is one clock's word; see oracle.py.
TOPIC_CONFIG = {"message.timestamp.type": "LogAppendTime"}

#: Statuses may be three seconds older than a rebalance, so tasks count as running when they have for this long.
_HELD_SECONDS = 4.0
_POLL_SECONDS = 0.7
_FENCING_POLL_SECONDS = 0.05

#: A rebalance is over by then.
_PLACED_SECONDS = 60.0

Now = Callable[[str], None]


class LoadError(EosError):
    """The connectors did not do what the demo needs."""


@dataclass(frozen=True, slots=True)
class Fencing:
    """What a fencing round did to a connector's transactional ids.

    A later epoch alone is no proof: since KIP-890 every transaction that ends raises it. Whoever fences, however, names
    its own transaction timeout, which is not the tasks'; it remains until the id's next owner begins.

    :param before: by transactional id, before the round.
    :param fenced: the ids that were seen with the timeout of the one who fences. A new task may begin before anyone
        looks, but the id of a task that is no more stays so.
    :param after: by transactional id, once the new tasks ran.
    :param count_before: the task count record before, that is how many ids the round had to fence.
    :param count_after: the record that the round wrote.
    """

    connector: str
    before: Mapping[str, TransactionDescription]
    fenced: Mapping[str, TransactionDescription]
    after: Mapping[str, TransactionDescription]
    count_before: TaskCountRecord
    count_after: TaskCountRecord

    @property
    def every_id_went_on(self) -> bool:
        """Whether each id of the old tasks has a later epoch; without that, none was fenced."""
        return len(self.before) == self.count_before.count and all(
            _is_later(self.before[name], self.after.get(name)) for name in self.before
        )

    @property
    def retired_ids_were_fenced(self) -> bool:
        """Whether the ids of the tasks that are no more were fenced, and have not been used since."""
        retired = [name for name in self.before if int(name.rpartition("-")[2]) >= self.count_after.count]
        return bool(retired) and all(
            name in self.fenced
            and name in self.after
            and self.after[name].timeout_ms == self.fenced[name].timeout_ms != self.before[name].timeout_ms
            and self.after[name].producer_epoch == self.fenced[name].producer_epoch
            for name in retired
        )

    @property
    def is_real(self) -> bool:
        """Whether a round took place: the ids are fenced, and a new task count record is in the config topic."""
        return (
            self.every_id_went_on
            and self.retired_ids_were_fenced
            and self.count_after.offset > self.count_before.offset
            and self.count_after.count == MIRROR_TASKS_AFTER
        )

    def to_dict(self) -> dict[str, Any]:
        ids = sorted(self.before)
        return {
            "connector": self.connector,
            "ids": ids,
            "epochs": [[self.before[i].producer_epoch, self.after[i].producer_epoch] for i in ids if i in self.after],
            "fenced_epochs": {i: self.fenced[i].producer_epoch for i in ids if i in self.fenced},
            "timeouts_ms": {
                i: {"task": self.before[i].timeout_ms, "fenced": self.fenced[i].timeout_ms}
                for i in ids
                if i in self.fenced
            },
            "producer_ids": [self.before[i].producer_id for i in ids],
            "task_count_record": {
                "before": {"tasks": self.count_before.count, "offset": self.count_before.offset},
                "after": {"tasks": self.count_after.count, "offset": self.count_after.offset},
            },
        }


def file_source_config(path: Path) -> dict[str, str]:
    """FileStreamSource: each line of the file becomes one record, byte for byte."""
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(path),
        "topic": FLIGHTS_TOPIC,
        "batch.size": "1000",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    }


def mirror_config(bootstrap_servers: str, tasks: int, login: Mapping[str, str] | None = None) -> dict[str, str]:
    """MirrorSource inside one cluster: ``flights`` is copied to ``src.flights``.

    It reads committed records only, or it would copy what the file source aborted; Connect, too, takes that setting
    for the sign that this connector can be exactly once.

    :param login: properties of Java's clients, for those that the connector makes itself.
    """
    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": str(tasks),
        "source.cluster.alias": "src",
        "target.cluster.alias": "dst",
        "source.cluster.bootstrap.servers": bootstrap_servers,
        "target.cluster.bootstrap.servers": bootstrap_servers,
        "topics": FLIGHTS_TOPIC,
        "key.converter": converter,
        "value.converter": converter,
        "consumer.isolation.level": "read_committed",
        "source.consumer.isolation.level": "read_committed",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "refresh.topics.enabled": "false",
        **{f"{side}.cluster.{name}": value for side in ("source", "target") for name, value in (login or {}).items()},
    }


class Load:
    """The two connectors on a lab.

    :param path: the file that is read.
    :param now: receives what is being waited for, at least every two seconds.
    """

    def __init__(self, lab: Lab, path: Path, now: Now) -> None:
        self._lab = lab
        self._path = path
        self._now = now
        self.cluster: ConnectCluster = lab.cluster()

    def create(self) -> None:
        """Topics first (the lab's broker makes none by itself), then the connectors; the mirror needs its source."""
        for topic in (FLIGHTS_TOPIC, MIRROR_TOPIC):
            self._lab.create_topic(topic, PARTITIONS, dict(TOPIC_CONFIG))
        with self.rest() as rest:
            rest.create(FILE_CONNECTOR, file_source_config(self._path))
            rest.create(MIRROR_CONNECTOR, self._mirror_config(MIRROR_TASKS_BEFORE))

    def _mirror_config(self, tasks: int) -> dict[str, str]:
        security = self._lab.security
        login = security.java_client(Principal.MIRROR) if security else None
        return mirror_config(self._lab.bootstrap_servers, tasks, login)

    def wait_running(self, mirror_tasks: int, deadline_seconds: float) -> float:
        """Wait until every task runs where the group has placed it, for as long as a status can be stale.

        :returns: seconds until they ran.
        :raises LoadError: a task failed, or they do not run by the deadline.
        """
        started = time.monotonic()
        since: float | None = None
        while True:
            problem = self._not_running({FILE_CONNECTOR: 1, MIRROR_CONNECTOR: mirror_tasks})
            elapsed = time.monotonic() - started
            if problem is None:
                since = since if since is not None else time.monotonic()
                if time.monotonic() - since >= _HELD_SECONDS:
                    return since - started
            else:
                since = None
            if elapsed > deadline_seconds:
                raise LoadError(f"The connectors do not run after {elapsed:.0f} s: {problem}.")
            self._now(f"connectors ({elapsed:.0f} s): {problem or 'all tasks run; for how long?'}")
            time.sleep(_POLL_SECONDS)

    def worker_of_file_task(self) -> int:
        """Number of the worker that runs the file source's task, that is, holds a transaction open while it writes."""
        deadline = time.monotonic() + _PLACED_SECONDS
        while True:
            placement = describe_group(self.cluster.kafka, self.cluster.group_id).placement
            for worker_id, placed in (placement or {}).items():
                if (FILE_CONNECTOR, 0) in placed.tasks:
                    return [worker.worker_id for worker in self.cluster.workers].index(worker_id)
            if time.monotonic() > deadline:
                raise LoadError(
                    f"The group has placed the task of {FILE_CONNECTOR} nowhere for {_PLACED_SECONDS:.0f} s."
                )
            time.sleep(_POLL_SECONDS)  # in a rebalance nothing is placed

    def reconfigure_mirror(self, deadline_seconds: float) -> Fencing:
        """Take the mirror from three tasks to two and watch the fencing round that this causes.

        :raises LoadError: no round is seen by the deadline.
        """
        ids = [f"{self.cluster.group_id}-{MIRROR_CONNECTOR}-{number}" for number in range(MIRROR_TASKS_BEFORE)]
        count_before = self._task_count_record()
        with TransactionsClient(self.cluster.kafka) as transactions:
            before = transactions.describe(ids)
            with self.rest() as rest:
                rest.put_config(MIRROR_CONNECTOR, self._mirror_config(MIRROR_TASKS_AFTER))
            fenced, count_after = self._watch_fencing(transactions, before, count_before, deadline_seconds)
            self.wait_running(MIRROR_TASKS_AFTER, deadline_seconds)
            after = transactions.describe(ids)
        return Fencing(MIRROR_CONNECTOR, before, fenced, after, count_before, count_after)

    def _watch_fencing(
        self,
        transactions: TransactionsClient,
        before: Mapping[str, TransactionDescription],
        count_before: TaskCountRecord,
        deadline_seconds: float,
    ) -> tuple[dict[str, TransactionDescription], TaskCountRecord]:
        """Look at the ids many times a second, for a new task soon covers the traces, until the record is there."""
        fenced: dict[str, TransactionDescription] = {}
        started = asked_at = time.monotonic()
        while True:
            for name, description in transactions.describe(before).items():
                if description.timeout_ms != before[name].timeout_ms:
                    fenced[name] = description
            elapsed = time.monotonic() - started
            if time.monotonic() - asked_at >= _POLL_SECONDS:
                count_after = self._task_count_record()
                if count_after.offset > count_before.offset:
                    last = transactions.describe(before)  # what was fenced between the last look and the record
                    fenced |= {
                        name: description
                        for name, description in last.items()
                        if name not in fenced and description.timeout_ms != before[name].timeout_ms
                    }
                    return fenced, count_after
                asked_at = time.monotonic()
            if elapsed > deadline_seconds:
                raise LoadError(f"{MIRROR_CONNECTOR} was reconfigured; {elapsed:.0f} s later no round has fenced it.")
            self._now(f"fencing ({elapsed:.0f} s): ids fenced so far: {len(fenced)}; awaiting the task count record")
            time.sleep(_FENCING_POLL_SECONDS)

    def wait_file_read(self, deadline_seconds: float) -> None:
        """Wait until the file source's committed offset is the file's end."""
        size = self._path.stat().st_size

        def state(rest: ConnectRest) -> tuple[int, int]:
            positions = [int((entry.offset or {}).get("position", 0)) for entry in rest.offsets(FILE_CONNECTOR)]
            return max(positions, default=0), size

        self._wait_position("the file source reads the file to its end (bytes)", state, deadline_seconds)

    def wait_mirrored(self, last_offsets: Mapping[int, int], deadline_seconds: float) -> None:
        """Wait until the mirror's committed offsets have passed the last record of each partition of its source."""

        def state(rest: ConnectRest) -> tuple[int, int]:
            reached = {
                int(entry.partition["partition"]): int((entry.offset or {}).get("offset", -1))
                for entry in rest.offsets(MIRROR_CONNECTOR)
                if "partition" in entry.partition
            }
            passed = sum(min(reached.get(number, -1), last) + 1 for number, last in last_offsets.items())
            return passed, sum(last + 1 for last in last_offsets.values())

        self._wait_position("the mirror copies the rest (offsets)", state, deadline_seconds)

    @contextmanager
    def rest(self) -> Iterator[ConnectRest]:
        """A client of the first worker that answers."""
        for worker in self.cluster.workers:
            client = ConnectRest(worker.url, self.cluster.rest)
            with client:
                try:
                    client.root()
                except EosError:
                    continue
                yield client
                return
        raise UnreachableError("No worker of the lab answers.", remedy=f"Read their logs in {self._lab.root}.")

    def _wait_position(
        self, what: str, state: Callable[[ConnectRest], tuple[int, int]], deadline_seconds: float
    ) -> None:
        started = time.monotonic()
        while True:
            try:
                with self.rest() as rest:
                    reached, end = state(rest)
            except UnreachableError:
                reached, end = 0, -1
            elapsed = time.monotonic() - started
            if reached >= end >= 0:
                return
            if elapsed > deadline_seconds:
                raise LoadError(f"After {elapsed:.0f} s still: {what}: {reached:,} of {end:,}.")
            self._now(f"{what}: {reached:,} of {end:,} ({elapsed:.0f} s)")
            time.sleep(_POLL_SECONDS)

    def _not_running(self, wanted: Mapping[str, int]) -> str | None:
        """What keeps the connectors from running as wanted, None if nothing does."""
        try:
            with self.rest() as rest:
                statuses = rest.statuses()
            group = describe_group(self.cluster.kafka, self.cluster.group_id)
        except (UnreachableError, ConfigurationError) as error:
            return error.found
        placement = group.placement
        if placement is None:
            return f"the group is {group.state}"
        if len(placement) != len(self.cluster.workers):
            return f"{len(placement)} of {len(self.cluster.workers)} workers are in the group"
        placed = {task: worker_id for worker_id, on in placement.items() for task in on.tasks}
        for name, tasks in wanted.items():
            status = statuses.get(name)
            if status is None or status.state != "RUNNING":
                return f"connector {name} is {status.state if status else 'unknown'}"
            states = {task.number: (task.state, task.worker_id) for task in status.tasks}
            if len(states) != tasks:
                return f"{name} has {len(states)} tasks, not {tasks}"
            for number in range(tasks):
                if states.get(number) != ("RUNNING", placed.get((name, number))):
                    state, worker_id = states.get(number, ("UNKNOWN", "nowhere"))
                    return f"task {name}-{number} is {state} on {worker_id}"
        return None

    def _task_count_record(self) -> TaskCountRecord:
        worker = self.cluster.workers[0]
        if worker.config is None:
            raise LoadError(f"The lab's worker {worker.worker_id} has no properties file.")
        topic = properties.parse(worker.config.read_bytes())["config.storage.topic"]
        record = read_cluster_state(self.cluster.kafka, topic).task_count_records.get(MIRROR_CONNECTOR)
        if record is None:
            raise LoadError(f"The config topic {topic} has no task count record of {MIRROR_CONNECTOR}.")
        return record


def _is_later(before: TransactionDescription, after: TransactionDescription | None) -> bool:
    """A later epoch of the same producer id; a new producer id follows when the epochs are used up."""
    return after is not None and (after.producer_id, after.producer_epoch) > (before.producer_id, before.producer_epoch)
