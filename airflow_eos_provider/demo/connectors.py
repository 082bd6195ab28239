"""The demo's connectors: a file source and a mirror with three tasks, their progress, and a fencing round."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.topics.config_topic import TaskCountRecord, read_cluster_state
from airflow_eos_provider.demo.oracle import Drained, drain
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription, TransactionsClient
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.waiting import until

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

_until = partial(until, seconds=_WAIT_SECONDS, pause_seconds=0.3)

#: Offsets by connector and source partition.
Offsets = Mapping[tuple[str, int], int]

_PARTITIONS = [(FILE_CONNECTOR, 0), *((MIRROR_CONNECTOR, number) for number in range(PARTITIONS))]


@dataclass(frozen=True, slots=True)
class Fencing:
    """The mirror's fencing round.

    :param epochs: of each transactional id, before and after; -1 for an id that is gone.
    :param is_real: whether every old id has a later owner, and Connect has fenced the ids of the removed tasks. A later
        epoch alone is no proof: since KIP-890 every transaction that ends raises it. The fencing client, however,
        registers its own transaction timeout, which stays until the id's next owner begins.
    """

    connector: str
    ids: list[str]
    epochs: list[tuple[int, int]]
    is_real: bool

    @classmethod
    def between(
        cls,
        before: Mapping[str, TransactionDescription],
        after: Mapping[str, TransactionDescription],
        count_before: TaskCountRecord,
        count_after: TaskCountRecord,
    ) -> Fencing:
        ids = sorted(before)
        is_real = (
            len(ids) == count_before.count == len(before.keys() & after.keys())
            and count_after.count == MIRROR_TASKS_AFTER
            and count_after.offset > count_before.offset
            and all(_owner(after[name]) > _owner(before[name]) for name in ids)
            and all(after[name].timeout_ms != before[name].timeout_ms for name in ids[MIRROR_TASKS_AFTER:])
        )
        epochs = [(before[i].producer_epoch, after[i].producer_epoch if i in after else -1) for i in ids]
        return cls(MIRROR_CONNECTOR, ids, epochs, is_real)


def _owner(one: TransactionDescription) -> tuple[int, int]:
    """Rises with each owner of the id; a new producer id follows when the epochs are used up."""
    return one.producer_id, one.producer_epoch


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
    """The two connectors on a lab; the first reads a file. Every wait raises :class:`EosError` at its bound."""

    def __init__(self, lab: Lab, session: ConnectSession, path: Path) -> None:
        self._lab = lab
        self._session = session
        self._path = path

    def create(self) -> None:
        """Create the topics, then the connectors, and wait until every task has committed an offset."""
        for topic in (FLIGHTS_TOPIC, MIRROR_TOPIC):
            self._lab.create_topic(topic, PARTITIONS, TOPIC_CONFIG)
        mirror = mirror_config(self._lab.bootstrap_servers, MIRROR_TASKS_BEFORE)
        self._session.ask(lambda rest: rest.create(FILE_CONNECTOR, file_source_config(self._path)))
        self._session.ask(lambda rest: rest.create(MIRROR_CONNECTOR, mirror))
        self.wait_for_progress({})

    def wait_for_progress(self, since: Offsets) -> None:
        """Wait until each connector has committed later offsets of each of its source partitions: every task works."""

        def all_later() -> bool:
            now = self.offsets()
            return all(now.get(one, -1) > since.get(one, -1) for one in _PARTITIONS)

        _until(all_later, "every task to commit an offset")

    def offsets(self) -> Offsets:
        """What both connectors have committed; ``-1`` where an entry has no offset."""
        return {
            (name, int(entry.partition.get("partition", 0))): int((entry.offset or {}).get(field, -1))
            for name, field in ((FILE_CONNECTOR, "position"), (MIRROR_CONNECTOR, "offset"))
            for entry in self._session.ask(methodcaller("offsets", name))
        }

    def kill_worker(self, *, with_duplicates: bool = False) -> dict[str, Any]:
        """Kill the worker that runs the file source, start it again, and wait until every task works.

        :param with_duplicates: kill it while records without an offset are in the topic, and wait until the topic
            has copies.
        """
        worker_id = _until(self._file_worker, f"the task of {FILE_CONNECTOR}")
        number = [worker.worker_id for worker in self._session.cluster.workers].index(worker_id)
        if with_duplicates:
            _until(self._has_uncommitted_records, f"{UNCOMMITTED_RECORDS} records without an offset")
        started = time.monotonic()
        self._lab.stop_worker(number, kill=True)
        before = self.offsets()
        self._lab.start_worker(number)
        self.wait_for_progress(before)
        seconds = round(time.monotonic() - started, 1)
        if with_duplicates:
            _until(self._has_copies, f"duplicates in {FLIGHTS_TOPIC}")
        return {"worker": self._lab.connect_urls[number], "tasks_running_again_seconds": seconds}

    def _file_worker(self) -> str:
        """The worker that runs the file source; Connect leaves a connector out while it has no status."""
        status = self._session.ask(lambda rest: rest.statuses()).get(FILE_CONNECTOR)
        return status.tasks[0].worker_id if status and status.tasks else ""

    def _has_uncommitted_records(self) -> bool:
        records = drain(self._lab.kafka, FLIGHTS_TOPIC).records
        position = self.offsets().get((FILE_CONNECTOR, 0), 0)  # read last: an offset that is committed now counts
        with self._path.open("rb") as file:
            return records - file.read(max(0, position)).count(b"\n") >= UNCOMMITTED_RECORDS

    def _has_copies(self) -> bool:
        drained = drain(self._lab.kafka, FLIGHTS_TOPIC)
        return drained.records > len(drained.copies)

    def reconfigure_mirror(self) -> Fencing:
        """Take the mirror from three tasks to two, for which Connect has to fence the three."""
        ids = [f"{self._lab.group_id}-{MIRROR_CONNECTOR}-{number}" for number in range(MIRROR_TASKS_BEFORE)]
        with TransactionsClient(self._lab.kafka) as transactions:
            count_before, before = self._task_count_record(), transactions.describe(ids)
            self._session.ask(lambda rest: rest.patch_config(MIRROR_CONNECTOR, {"tasks.max": str(MIRROR_TASKS_AFTER)}))
            _until(lambda: self._task_count_record().offset > count_before.offset, "the fencing round")
            self.wait_for_progress(self.offsets())
            after = transactions.describe(ids)
        return Fencing.between(before, after, count_before, self._task_count_record())

    def _task_count_record(self) -> TaskCountRecord:
        state = read_cluster_state(self._session.kafka, f"{self._lab.group_id}-configs")
        return state.task_count_records[MIRROR_CONNECTOR]

    def drain_both(self) -> tuple[Drained, Drained]:
        """Read both topics, the first when the file was read to its end, the second when the mirror has copied it."""
        size = self._path.stat().st_size
        _until(lambda: self.offsets()[FILE_CONNECTOR, 0] >= size, "the end of the file")
        flights = drain(self._lab.kafka, FLIGHTS_TOPIC)

        def is_copied() -> bool:
            now = self.offsets()
            return all(now[MIRROR_CONNECTOR, number] >= last for number, last in flights.last_offsets.items())

        _until(is_copied, f"the copies of {FLIGHTS_TOPIC}")
        return flights, drain(self._lab.kafka, MIRROR_TOPIC)
