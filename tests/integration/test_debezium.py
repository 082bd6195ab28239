"""Debezium on the lab's PostgreSQL, there and back under load: the topic holds the table, and nothing twice."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.demo.oracle import Comparison, Drained, compare, drain, expected_from_values
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.postgres import USER, Postgres
from tests.integration.offsets_cluster import PATIENT_STOP
from tests.lab.jars import jars_of
from tests.waiting import wait_for

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection

pytestmark = pytest.mark.timeout(1800)

PLUGIN = "debezium-postgres-3.5.0.Final"
CONNECTOR = "shop"
TOPIC = "shop.public.orders"
ROWS_AT_FIRST = 500


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    # Each folder in a plugin path is one plugin.
    plugins = tmp_path_factory.mktemp("plugins")
    (plugins / "debezium").symlink_to(jars_of(PLUGIN), target_is_directory=True)
    return lab_factory(
        name="debezium",
        mode=Mode.DISABLED,
        workers=2,
        rebalance_delay_ms=500,
        session_timeout_ms=6000,
        postgres=True,
        worker_properties={"plugin.path": str(plugins), **PATIENT_STOP},
    )


def connector(postgres: Postgres) -> dict[str, str]:
    """Each row as JSON, as it is in the table; the rows that are there already are read first."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": USER,
        "database.password": postgres.password_file.read_text().strip(),
        "database.dbname": "shop",
        "plugin.name": "pgoutput",
        "topic.prefix": "shop",
        "table.include.list": "public.orders",
        "publication.autocreate.mode": "filtered",
        "slot.drop.on.stop": "false",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "row",
        "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
    }


class Orders:
    """The table, and a thread that inserts rows, several in one transaction, until it is paused or ended."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._postgres = lab, lab.postgres
        self._postgres.create_database("shop")
        self._postgres.run("CREATE TABLE orders (line bigint PRIMARY KEY, note text NOT NULL)", database="shop")
        self.inserted = 0
        with closing(self._postgres.connect("shop")) as connection:
            self._insert(connection, ROWS_AT_FIRST)
        self._running, self._ended = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._load, name="orders")

    def __enter__(self) -> Orders:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._running.set()
        self._thread.join(timeout=180)
        assert not self._thread.is_alive()

    def resume(self) -> None:
        self._running.set()

    def pause(self) -> None:
        """No more rows; returns when the last transaction is committed."""
        self._running.clear()
        self._idle.clear()
        assert self._idle.wait(600)

    def compared(self, since_ms: int | None = None) -> Comparison:
        """The topic beside the table, once every row has come; to be called while paused.

        :param since_ms: broker time from which on duplicates count as such.
        """
        table = self.expected()
        wait_for(
            "every row is delivered", lambda: set(table.copies) <= set(drain(self._lab.cluster().kafka, TOPIC).copies)
        )
        return compare(table, drain(self._lab.cluster().kafka, TOPIC), since_ms)

    def expected(self) -> Drained:
        """What the database itself says."""
        rows = self._postgres.run("SELECT line, note FROM orders", database="shop")
        values = (json.dumps({"line": line, "note": note}, separators=(",", ":")).encode() for line, note in rows)
        return expected_from_values(values, "the table")

    def _insert(self, connection: Connection, count: int) -> None:
        lines = range(self.inserted, self.inserted + count)
        rows = ",".join(f"({line},'order {line}')" for line in lines)
        with connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO orders VALUES {rows}")
        self.inserted += count

    def _load(self) -> None:
        with closing(self._postgres.connect("shop")) as connection:
            while not self._ended.is_set():
                if not self._running.is_set():
                    self._idle.set()
                    self._running.wait(1)
                    continue
                self._insert(connection, 7)
                self._ended.wait(0.05)


def worker_of_the_task(lab: Lab) -> int | None:
    """The worker that the group has placed the task on; None while it is on none."""
    cluster = lab.cluster()
    placement = describe_group(cluster.kafka, cluster.group_id).placement or {}
    placed = [worker_id for worker_id, on in placement.items() if (CONNECTOR, 0) in on.tasks]
    return [worker.worker_id for worker in cluster.workers].index(placed[0]) if placed else None


def kill_the_tasks_worker(lab: Lab) -> None:
    """SIGKILL, in the midst of transactions; then it is started again, as a supervisor would."""
    placed: list[int] = []

    def is_placed() -> bool:
        index = worker_of_the_task(lab)
        placed.extend([] if index is None else [index])
        return bool(placed)

    wait_for("the task is placed", is_placed)
    (index,) = placed
    lab.stop_worker(index, kill=True)
    lab.start_worker(index)
    wait_for("the task is placed again", lambda: worker_of_the_task(lab) is not None)


def test_there_and_back_under_load_the_topic_holds_the_table(
    lab: Lab, eos_of: Callable[[Lab, Path], Any], tmp_path: Path
) -> None:
    eos = eos_of(lab, tmp_path)
    lab.create_topic(TOPIC, 1, {"message.timestamp.type": "LogAppendTime"})
    with Orders(lab) as orders:
        with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
            rest.create(CONNECTOR, connector(lab.postgres))
        orders.compared()  # the snapshot is through: Debezium is exactly-once for what it streams
        orders.resume()
        inserted = [orders.inserted]

        eos.roll(Mode.PREPARING)
        enabled_at_ms = int(eos.roll(Mode.ENABLED)["finished_at_ms"])
        inserted.append(orders.inserted)
        kill_the_tasks_worker(lab)
        orders.pause()
        inserted.append(orders.inserted)
        enabled = orders.compared(enabled_at_ms)
        assert enabled.exactly_once, enabled

        orders.resume()
        assert eos.roll(Mode.DISABLED)["to"] == "disabled"
        orders.pause()
        inserted.append(orders.inserted)
        back = orders.compared(enabled_at_ms)
        assert back.nothing_missing, back
        assert back.duplicates == 0, back  # no worker was killed on this way

    # There was load on each way, or the comparisons say little.
    assert all(later - earlier > 100 for earlier, later in itertools.pairwise(inserted)), inserted
    assert {worker.mode_in_file() for worker in lab.workers} == {Mode.DISABLED}
