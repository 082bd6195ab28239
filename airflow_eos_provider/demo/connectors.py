"""The demo's connectors: a file source and a mirror with three tasks, their progress, and a fencing round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.config_topic import TaskCountRecord, read_cluster_state
from airflow_eos_provider.demo.oracle import Drained, drain
from airflow_eos_provider.errors import EosError, UnreachableError
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription, TransactionsClient
from airflow_eos_provider.lab.lab import Lab

FLIGHTS_TOPIC = "flights"
MIRROR_TOPIC = "src.flights"
FILE_CONNECTOR = "flights-file"
MIRROR_CONNECTOR = "flights-mirror"
MIRROR_TASKS_BEFORE = 3
MIRROR_TASKS_AFTER = 2
PARTITIONS = 6

#: The broker's clock decides what was appended after the last worker was enabled; see oracle.py.
TOPIC_CONFIG = {"message.timestamp.type": "LogAppendTime"}

#: So many records without an offset come again after a kill. At 500 a second, and with an offset every 5 s, this state
#: lasts for seconds.
UNCOMMITTED_RECORDS = 500

#: Bound of each wait, seconds: many times what two busy cores need.
_WAIT_SECONDS = 300.0
_POLL_SECONDS = 0.3

#: Between two looks at the transactional ids: the next task soon covers the traces of a fencing round.
_FENCING_POLL_SECONDS = 0.05

#: Offsets by connector and source partition.
Offsets = Mapping[tuple[str, int], int]


class ConnectorsError(EosError):
    """The connectors did not do what the demo needs."""


@dataclass(frozen=True, slots=True)
class Fencing:
    """What a fencing round did to a connector's transactional ids.

    A later epoch alone is no proof: since KIP-890 every transaction that ends raises it. The fencing client, however,
    registers its own transaction timeout, which stays until the id's next owner begins.

    :param before: by transactional id, before the round.
    :param fenced: the ids that were seen with the fencing client's timeout. A new task may begin before anyone looks,
        but the id of a removed task stays so.
    :param after: by transactional id, once the new tasks ran.
    :param count_before: the task count record before: the number of ids that the round had to fence.
    :param count_after: the record that the round wrote.
    """

    connector: str
    before: Mapping[str, TransactionDescription]
    fenced: Mapping[str, TransactionDescription]
    after: Mapping[str, TransactionDescription]
    count_before: TaskCountRecord
    count_after: TaskCountRecord

    @property
    def is_real(self) -> bool:
        """Whether every old id has a later epoch, removed ids stayed fenced, and a new record was written."""
        return (
            len(self.before) == self.count_before.count
            and all(_is_later(self.before[name], self.after.get(name)) for name in self.before)
            and self._removed_ids_stayed_fenced()
            and self.count_after.offset > self.count_before.offset
            and self.count_after.count == MIRROR_TASKS_AFTER
        )

    def _removed_ids_stayed_fenced(self) -> bool:
        removed = [name for name in self.before if int(name.rpartition("-")[2]) >= self.count_after.count]
        return bool(removed) and all(
            name in self.fenced
            and name in self.after
            and self.after[name].timeout_ms == self.fenced[name].timeout_ms != self.before[name].timeout_ms
            and self.after[name].producer_epoch == self.fenced[name].producer_epoch
            for name in removed
        )

    def to_dict(self) -> dict[str, Any]:
        ids = sorted(self.before)
        return {
            "connector": self.connector,
            "ids": ids,
            "epochs": [[self.before[i].producer_epoch, self.after[i].producer_epoch] for i in ids if i in self.after],
            "fenced_epochs": {i: self.fenced[i].producer_epoch for i in ids if i in self.fenced},
            "task_count_record": {
                name: {"tasks": record.count, "offset": record.offset}
                for name, record in (("before", self.count_before), ("after", self.count_after))
            },
        }


def _is_later(before: TransactionDescription, after: TransactionDescription | None) -> bool:
    """A later epoch of the same producer id, or a new producer id: it follows when the epochs are used up."""
    return after is not None and (after.producer_id, after.producer_epoch) > (before.producer_id, before.producer_epoch)


def file_source_config(path: Path) -> dict[str, str]:
    """FileStreamSource: each line of the file becomes one record, byte for byte."""
    converter = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(path),
        "topic": FLIGHTS_TOPIC,
        "batch.size": "1000",
        "value.converter": converter,
        "key.converter": converter,
    }


def mirror_config(bootstrap_servers: str, tasks: int) -> dict[str, str]:
    """MirrorSource inside one cluster: ``flights`` is copied to ``src.flights``.

    It reads committed records only, or it would copy what the file source aborted. Connect also takes that setting as
    the sign that this connector supports exactly-once.
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
    }


class Connectors:
    """The two connectors on a lab. Every wait raises :class:`ConnectorsError` at its bound.

    :param path: the file that is read.
    """

    def __init__(self, lab: Lab, path: Path) -> None:
        self._lab = lab
        self._path = path
        self._cluster = lab.cluster()

    def create(self) -> None:
        """Create the topics, then the connectors, and wait until every task has committed an offset."""
        for topic in (FLIGHTS_TOPIC, MIRROR_TOPIC):
            self._lab.create_topic(topic, PARTITIONS, TOPIC_CONFIG)
        with self._rest() as rest:
            rest.create(FILE_CONNECTOR, file_source_config(self._path))
            rest.create(MIRROR_CONNECTOR, mirror_config(self._lab.bootstrap_servers, MIRROR_TASKS_BEFORE))
        self.wait_for_progress({})

    def wait_for_progress(self, since: Offsets) -> None:
        """Wait until each connector has committed later offsets of each of its source partitions: every task works."""

        def idle() -> str:
            now = self.offsets()
            partitions = [(FILE_CONNECTOR, 0), *((MIRROR_CONNECTOR, number) for number in range(PARTITIONS))]
            stuck = [one for one in partitions if now.get(one, -1) <= since.get(one, -1)]
            return ", ".join(f"{name}: partition {number} has no later offset" for name, number in stuck)

        self._wait(idle)

    def offsets(self) -> Offsets:
        """What both connectors have committed; ``-1`` where an entry has no offset."""
        with self._rest() as rest:
            return {
                (name, int(entry.partition.get("partition", 0))): int((entry.offset or {}).get(field, -1))
                for name, field in ((FILE_CONNECTOR, "position"), (MIRROR_CONNECTOR, "offset"))
                for entry in rest.offsets(name)
            }

    def kill_worker(self, *, with_duplicates: bool = False) -> str:
        """Kill the worker that runs the file source, start it again, and wait until every task works.

        :param with_duplicates: kill it while records without an offset are in the topic, and wait until the topic
            has copies.
        :returns: the worker's address.
        """
        if with_duplicates:
            self._wait(self._without_uncommitted_records)
        number = self._worker_of_file_task()
        self._lab.stop_worker(number, kill=True)
        before = self.offsets()
        self._lab.start_worker(number)
        self.wait_for_progress(before)
        if with_duplicates:
            self._wait(lambda: "" if self.drain(FLIGHTS_TOPIC).repeats else f"{FLIGHTS_TOPIC} has no duplicate")
        return self._lab.connect_urls[number]

    def _without_uncommitted_records(self) -> str:
        records = self.drain(FLIGHTS_TOPIC).records
        position = self.offsets().get((FILE_CONNECTOR, 0), 0)  # read last: an offset that is committed now counts
        with self._path.open("rb") as file:
            ahead = records - file.read(max(0, position)).count(b"\n")
        return "" if ahead >= UNCOMMITTED_RECORDS else f"{FLIGHTS_TOPIC} has {ahead} records without an offset"

    def _worker_of_file_task(self) -> int:
        """Number of the worker that runs the file source's task."""
        found: list[str] = []

        def missing() -> str:
            placement = describe_group(self._cluster.kafka, self._cluster.group_id).placement or {}
            found[:] = [worker for worker, placed in placement.items() if (FILE_CONNECTOR, 0) in placed.tasks]
            return "" if found else f"the task of {FILE_CONNECTOR} is on no worker"  # during a rebalance

        self._wait(missing)
        return [worker.worker_id for worker in self._cluster.workers].index(found[0])

    def reconfigure_mirror(self) -> Fencing:
        """Take the mirror from three tasks to two and watch the fencing round that this causes."""
        ids = [f"{self._cluster.group_id}-{MIRROR_CONNECTOR}-{number}" for number in range(MIRROR_TASKS_BEFORE)]
        count_before = count_after = self._task_count_record()
        fenced: dict[str, TransactionDescription] = {}
        with TransactionsClient(self._cluster.kafka) as transactions:
            before = transactions.describe(ids)

            def unfenced() -> str:
                nonlocal count_after
                count_after = self._task_count_record()
                for _ in range(int(_POLL_SECONDS / _FENCING_POLL_SECONDS)):
                    now = transactions.describe(before)
                    fenced.update({name: one for name, one in now.items() if one.timeout_ms != before[name].timeout_ms})
                    time.sleep(_FENCING_POLL_SECONDS)
                done = count_after.offset > count_before.offset
                return "" if done else f"{MIRROR_CONNECTOR} was reconfigured and not fenced"

            with self._rest() as rest:
                rest.put_config(MIRROR_CONNECTOR, mirror_config(self._lab.bootstrap_servers, MIRROR_TASKS_AFTER))
            self._wait(unfenced)
            self.wait_for_progress(self.offsets())
            return Fencing(MIRROR_CONNECTOR, before, fenced, transactions.describe(ids), count_before, count_after)

    def _task_count_record(self) -> TaskCountRecord:
        topic = f"{self._cluster.group_id}-configs"
        record = read_cluster_state(self._cluster.kafka, topic).task_count_records.get(MIRROR_CONNECTOR)
        if record is None:
            raise ConnectorsError(f"The config topic {topic} has no task count record of {MIRROR_CONNECTOR}.")
        return record

    def drain_both(self) -> tuple[Drained, Drained]:
        """Read both topics, the first when the file was read to its end, the second when the mirror has copied it."""
        size = self._path.stat().st_size
        self._wait(lambda: "" if self.offsets()[FILE_CONNECTOR, 0] >= size else "the file was not read to its end")
        flights = self.drain(FLIGHTS_TOPIC)

        def behind() -> str:
            now = self.offsets()
            late = [n for n, last in flights.last_offsets.items() if now.get((MIRROR_CONNECTOR, n), -1) < last]
            return f"the mirror has not copied partitions {late}" if late else ""

        self._wait(behind)
        return flights, self.drain(MIRROR_TOPIC)

    def drain(self, topic: str) -> Drained:
        """Read a topic as a reader of committed records."""
        return drain(self._lab.kafka, topic, timeout_seconds=_WAIT_SECONDS)

    @contextmanager
    def _rest(self) -> Iterator[ConnectRest]:
        """A client of the first worker that answers."""
        for worker in self._cluster.workers:
            with ConnectRest(worker.url, self._cluster.rest) as client:
                try:
                    client.root()
                except EosError:
                    continue
                yield client
                return
        raise UnreachableError("No worker of the lab answers.", remedy=f"Read their logs in {self._lab.root}.")

    def _wait(self, obstacle: Callable[[], str]) -> None:
        """Return when there is no obstacle any more."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                found = obstacle()
            except UnreachableError as error:  # no answer during a rebalance
                found = error.found
            if not found:
                return
            if time.monotonic() > deadline:
                raise ConnectorsError(f"After {_WAIT_SECONDS:.0f} s: {found}.")
            time.sleep(_POLL_SECONDS)
