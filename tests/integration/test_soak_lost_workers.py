"""``eos offsets migrate`` and ``eos fencing apply`` while workers are killed or suspended under load: a drain decides.

Minutes, so only on request: ``EOS_SOAK_MIGRATIONS=12 pytest -n0 -s tests/integration/test_soak_lost_workers.py``.
"""

from __future__ import annotations

import os
import random
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from airflow_eos_provider.changes.engine import carry_out
from airflow_eos_provider.changes.fencing.change import FENCING, FencingRequest
from airflow_eos_provider.changes.fencing.fencing_plan import ConnectorRound
from airflow_eos_provider.changes.offsets.change import MIGRATE, MigrateRequest, Whose
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.group import WorkerGroup, describe_group
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectorStatus, ConnectRest
from airflow_eos_provider.connect.topics.config_topic import read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.demo.connectors import mirror_config
from airflow_eos_provider.demo.oracle import compare, drain
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.stored import from_json
from tests.changed import changed
from tests.waiting import until

MIGRATIONS = int(os.environ.get("EOS_SOAK_MIGRATIONS", "8"))

pytestmark = [
    pytest.mark.by_name,
    pytest.mark.timeout(120 + 90 * MIGRATIONS),
]

#: Words of the lines that tell of each step: at one of them the leader is killed.
STEPS = ("stopping it", "transactional id", "written, and read back", "offsets.storage.topic is")

SECONDS = 120.0

#: The topic under load, and what MirrorSource makes of it; three partitions each, for three tasks.
ORDERS, COPY = "orders", "src.orders"
MIRROR = "mirror"

#: Two tasks that count, each with a source partition of its own; like a JDBC source, each goes on behind the last
#: number that is committed. A transaction stays open for half a second, so that one is open at almost any moment.
TABLE = "table"
TABLE_CONFIG = {
    "connector.class": "org.apache.kafka.connect.integration.TestableSourceConnector",
    "topic": TABLE,
    "tasks.max": "2",
    "throughput": "20",
    "messages.per.poll": "5",
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "500",
    "producer.override.transaction.timeout.ms": "600000",
}
TASKS = {MIRROR: 3, TABLE: 2}


class Cluster:
    """A lab of two workers, and what its connectors deliver."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.kafka = lab.cluster().kafka

    def session(self) -> ConnectSession:
        return ConnectSession(self.lab.cluster())

    def migrate(self, connector: str, to: str, events: Mapping[str, Callable[[], None]]) -> None:
        """Migrate a connector's offsets.

        :param to: its own topic; empty for the global one.
        :param events: what happens at the first line of progress with this text.
        """
        for index in range(2):  # that all are enabled can only be seen when all answer
            self.lab.start_worker(index)
        left = dict(events)

        def report(line: str) -> None:
            for text in [text for text in left if text in line]:
                left.pop(text)()

        request = MigrateRequest(connector=connector, to=Whose.OWN if to else Whose.GLOBAL, topic=to)
        changed(self.lab.cluster(), MIGRATE, request, report=report)
        config = read_cluster_state(self.kafka, f"{self.lab.group_id}-configs").connectors[connector].config
        assert (config.get(OWN_TOPIC) or "") == to
        assert not left

    def asked_briefly(self) -> ConnectCluster:
        """The cluster with a shorter limit of REST requests: one worker does not answer, and is asked at each look."""
        described = self.lab.cluster()
        return replace(described, rest=replace(described.rest, timeout_seconds=4))

    def group(self) -> WorkerGroup:
        return describe_group(self.kafka, self.lab.group_id)

    def statuses(self) -> Mapping[str, ConnectorStatus]:
        with self.session() as session:
            return session.ask(lambda rest: rest.statuses())

    def index_of(self, worker_id: str) -> int:
        return [worker.worker_id for worker in self.lab.cluster().workers].index(worker_id)

    def kill_leader(self) -> None:
        """SIGKILL the worker that leads the group; it is started again at once, as a supervisor does."""
        leaders = list[int]()

        def has_leader() -> bool:
            leader = self.group().leader
            leaders.extend([self.index_of(leader.worker_id)] if leader else [])
            return bool(leaders)

        until(has_leader, "a leader of the group", seconds=SECONDS)
        self.lab.stop_worker(leaders[0], kill=True)
        self.lab.start_worker(leaders[0], wait=False)

    def restart_broker(self) -> None:
        """Restart the only broker once no transaction is open and all markers are written.

        A broker that is started takes up what is left before its partitions have leaders, and leaves the markers out
        (KAFKA-20734).
        """
        with TransactionsClient(self.kafka) as client:
            until(lambda: not client.open_transactions(""), "the end of every transaction", seconds=SECONDS)
        self.lab.stop_broker()
        self.lab.start_broker()

    def restart_failed(self, connector: str) -> None:
        with self.session() as session:
            session.ask(lambda rest: rest.restart(connector, include_tasks=True, only_failed=True))

    def until_running(self, *connectors: str) -> None:
        """Two workers run every task. A task that has failed is restarted: Connect does not repeat a fencing round."""
        wanted = {(name, number) for name in connectors for number in range(TASKS[name])}

        def is_running() -> bool:
            placement = self.group().placement
            if placement is None or len(placement) != 2 or {t for on in placement.values() for t in on.tasks} != wanted:
                return False
            statuses = self.statuses()
            if not statuses.keys() >= set(connectors):
                return False
            tasks = {(name, task.number): task for name in connectors for task in statuses[name].tasks}
            failed = {name for (name, _), task in tasks.items() if task.state == "FAILED"}
            for name in sorted(failed):
                self.restart_failed(name)
            return tasks.keys() == wanted and all(
                task.state == "RUNNING" and which in placement[task.worker_id].tasks for which, task in tasks.items()
            )

        until(is_running, f"every task of {', '.join(connectors)} on two workers", seconds=SECONDS, pause=0.3)

    def until_more(self, *topics: str) -> None:
        """Each topic gets more committed records than it has now."""
        for topic in topics:
            now = drain(self.kafka, topic).records
            until(lambda: self.has_more(topic, now), f"more in {topic}", seconds=SECONDS, pause=0.3)  # noqa: B023

    def has_more(self, topic: str, records: int) -> bool:
        """Whether there are more committed records; tasks that have failed meanwhile are restarted."""
        for name, status in self.statuses().items():
            if any(task.state == "FAILED" for task in status.tasks):
                self.restart_failed(name)
        return drain(self.kafka, topic).records > records

    def numbers(self) -> dict[str, list[int]]:
        """By task of the table's connector the numbers that a reader of committed records gets."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for record in read_to_end(self.kafka, TABLE).records:
            matched = re.fullmatch(rb"value-(.+)-(\d+)", record.value or b"")
            assert matched, record.value
            found[matched[1].decode()].append(int(matched[2]))
        return found

    def end(self) -> int:
        """The offset behind the last record or marker of the table's topic, committed or not."""
        settings = {"group.id": "none", "isolation.level": "read_uncommitted"}
        with closing(Consumer({"bootstrap.servers": self.lab.bootstrap_servers, **settings})) as consumer:
            _, end = consumer.get_watermark_offsets(TopicPartition(TABLE, 0), timeout=180)
        return int(end)

    def require_exact_table(self) -> None:
        """Both tasks' numbers are there from the first on, in order, each once."""
        numbers = self.numbers()
        assert len(numbers) == TASKS[TABLE]
        for task, each in numbers.items():
            assert each == list(range(each[0], each[0] + len(each))), task
            assert each[0] <= 1, task


@pytest.fixture(scope="module")
def cluster(lab_factory: Callable[..., Lab]) -> Cluster:
    lab = lab_factory(
        name="offsets-migration",
        mode=Mode.ENABLED,
        workers=2,
        rebalance_delay_ms=500,
        session_timeout_ms=6000,
        test_connectors=True,
    )
    cluster = Cluster(lab)
    lab.create_topic(TABLE, 1)
    with cluster.session() as session:
        session.ask(lambda rest: rest.create(TABLE, TABLE_CONFIG))
    return cluster


class Orders:
    """A topic that gets records all the time: the source of the mirror."""

    def __init__(self, cluster: Cluster) -> None:
        # Not idempotent: what it repeats at the broker's restart is in the source as often as it has to be in the copy.
        self._producer = Producer({"bootstrap.servers": cluster.lab.bootstrap_servers})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._load, name="orders")
        self.written = 0

    def __enter__(self) -> Orders:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """No more records; returns when all of them are with the broker."""
        self._ended.set()
        self._thread.join(timeout=180)
        assert not self._thread.is_alive()
        assert self._producer.flush(180) == 0

    def _load(self) -> None:
        while not self._ended.wait(0.02):
            self._producer.produce(ORDERS, b'{"line":%d}' % self.written, partition=self.written % TASKS[MIRROR])
            self._producer.poll(0)
            self.written += 1


def test_migrations_there_and_back_under_load_deliver_each_record_once(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    for topic in (ORDERS, COPY):
        cluster.lab.create_topic(topic, TASKS[MIRROR])
    config = {**mirror_config(cluster.lab.bootstrap_servers, TASKS[MIRROR]), "topics": ORDERS}
    with Orders(cluster) as orders, cluster.session() as session:
        session.ask(lambda rest: rest.create(MIRROR, config))
        cluster.until_running(MIRROR, TABLE)
        for number in range(MIGRATIONS):
            began = time.monotonic()
            own = "" if number % 2 else f"own-{number}"
            restarts_broker = number % 4 == 2
            # No transaction may be open when the broker is restarted: none is while the mirror is stopped.
            step = "transactional id" if restarts_broker else chance.choice(STEPS)
            if restarts_broker:
                session.ask(lambda rest: rest.stop(TABLE))
                cluster.until_running(MIRROR)
            event = cluster.restart_broker if restarts_broker else cluster.kill_leader
            cluster.migrate(MIRROR, f"mirror-{own}" if own else "", {step: event})
            cluster.migrate(TABLE, f"table-{own}" if own else "", {})
            if restarts_broker:
                session.ask(lambda rest: rest.resume(TABLE))
            cluster.until_running(MIRROR, TABLE)
            cluster.until_more(COPY, TABLE)
            what = f"{'broker restarted' if restarts_broker else 'leader killed'} at '{step}'"
            sys.stderr.write(f"{number + 1}: to {own or 'global'}, {what}: {time.monotonic() - began:.0f} s\n")
        orders.end()
        source = drain(cluster.kafka, ORDERS)
        assert source.records >= orders.written > 500
        until(lambda: cluster.has_more(COPY, source.records - 1), "the rest of the mirror", seconds=SECONDS)
        session.ask(lambda rest: rest.stop(TABLE))
        session.ask(lambda rest: rest.delete(MIRROR))
    comparison = compare(source, drain(cluster.kafka, COPY))
    assert comparison.exactly_once, comparison
    cluster.require_exact_table()
    counted = sum(len(each) for each in cluster.numbers().values())
    sys.stderr.write(f"{source.records} records of the mirror, {counted} of the table: each there once\n")


def test_what_a_suspended_worker_holds_open_is_fenced_and_it_writes_nothing_more(cluster: Cluster) -> None:
    """The connector is paused meanwhile: its tasks' successors are placed, and do not take the ids by themselves."""
    with cluster.session() as session:
        session.ask(lambda rest: rest.resume(TABLE))
    with Suspended(cluster) as suspended, ConnectSession(cluster.asked_briefly()) as session:
        plan = FENCING.plan(session, FencingRequest((TABLE,)))
        (round_,) = from_json(tuple[ConnectorRound, ...], plan.content["rounds"])
        assert set(round_.fence) == set(round_.held) == suspended.tasks
        done = carry_out(FENCING, session, plan, actor="a test")
        assert done.problem is None
        (report,) = done.to_dict()["connectors"]
        assert {one["id"] for one in report["ids"]} == suspended.ids
        until(lambda: not suspended.open_ids(), "the markers of the abort", seconds=SECONDS)
        end, numbers = cluster.end(), cluster.numbers()

        suspended.process.resume()
        until(lambda: len(cluster.group().placement or ()) == 2, "both workers in the group", seconds=SECONDS)
        assert (cluster.end(), cluster.numbers()) == (end, numbers)
        session.ask(lambda rest: rest.resume(TABLE))
        cluster.until_running(TABLE)
        cluster.until_more(TABLE)
    cluster.require_exact_table()


class Suspended:
    """A worker that is suspended while tasks of its hold transactions open, and that the group has given up.

    It goes on at the latest at the end.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._prefix = f"{cluster.lab.group_id}-{TABLE}-"

    def __enter__(self) -> Suspended:
        until(self._is_caught, "a worker that is suspended with a transaction open", seconds=2 * SECONDS, pause=0)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.resume()

    @property
    def ids(self) -> set[str]:
        return {f"{self._prefix}{number}" for number in self.tasks}

    def open_ids(self) -> set[str]:
        """Those of its transactions that are not ended everywhere."""
        with TransactionsClient(self._cluster.kafka) as client:
            return self.ids & set(client.open_transactions(self._prefix))

    def _is_caught(self) -> bool:
        """One attempt: it may be suspended between two transactions, or given up before the connector is paused."""
        self._cluster.until_running(TABLE)
        self._choose()
        self.process.suspend()
        self.tasks = {number for number in self._placed if self._is_ongoing(number)}
        if self.tasks:
            with ConnectRest(self._other_url) as rest:
                rest.pause(TABLE)
                until(self._is_given_up, "the tasks on the other worker", seconds=SECONDS)
                if {number for number in self._placed if self._is_ongoing(number)} == self.tasks:
                    return True
                rest.resume(TABLE)
        self.process.resume()
        return False

    def _choose(self) -> None:
        """A worker with a task; of two the second: who asks one worker after another meets the other one first."""
        cluster, placement = self._cluster, self._cluster.group().placement
        assert placement is not None
        placed = {cluster.index_of(name): {number for _, number in on.tasks} for name, on in placement.items()}
        index = max(index for index, tasks in placed.items() if tasks)
        identity = cluster.lab.worker_process(index)
        assert identity is not None
        self.process, self._placed = psutil.Process(identity.pid), placed[index]
        self._other_url = cluster.lab.connect_urls[1 - index]

    def _is_ongoing(self, number: int) -> bool:
        with TransactionsClient(self._cluster.kafka) as client:
            known = client.describe([f"{self._prefix}{number}"])
        return any(one.state is TransactionState.ONGOING for one in known.values())

    def _is_given_up(self) -> bool:
        placement = self._cluster.group().placement
        return placement is not None and [len(on.tasks) for on in placement.values()] == [TASKS[TABLE]]
