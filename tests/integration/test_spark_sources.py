"""Intervals from a real database and from real topics, and what a retry does where they have changed."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, EosError, ReadTimeoutError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.protocol.input_check import InputChangedError
from airflow_eos_provider.interval.spark import write_interval
from airflow_eos_provider.interval.spark.job import JobSpec
from airflow_eos_provider.interval.verify import completion
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.postgres import Postgres
from tests.integration import source_jobs
from tests.integration.interval_target import DAY, Driver, Target, day
from tests.lab.jars import jars_of
from tests.secret_search import Found, search_files, search_topics
from tests.spark_session import add_jars

ROWS = 40
SLICES = 4

#: The database's password for who reads from it.
CANARY = "canary-of-the-database-4711"

IN_DAY = "2013-01-01 12:00:00Z"


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    return sorted(jars_of("spark-sources-4.2.0").glob("*.jar"))


@pytest.fixture(scope="module")
def session(spark: SparkSession, jars: list[Path]) -> SparkSession:
    """The session of the tests, with what reads the sources."""
    add_jars(spark, jars)
    return spark


@pytest.fixture
def target(broker_lab: Lab) -> Target:
    return Target.make(broker_lab, "sources")


def require_refused(target: Target, committed: list[bytes], frame: DataFrame, key: str = "key") -> None:
    """A retry with this input names a committed slice, and nothing of it becomes visible."""
    with pytest.raises(InputChangedError, match=r"slice \d is committed with \d+ records?, digest \w+; the input now"):
        write_interval(frame, target.pipeline, DAY, key=key)
    assert sorted(target.values()) == committed
    assert completion(target.pipeline, Run(target.pipeline.name, DAY)) is None


# A table


@dataclass(frozen=True)
class Shop:
    """A database with a table of orders, of which :data:`ROWS` are of the day and one is of the next."""

    postgres: Postgres
    database: str

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://{self.postgres.address}/{self.database}"

    @property
    def source(self) -> dict[str, Any]:
        """What the function that reads it is given."""
        return {"url": self.url, "login": {"user": "reader", "password": CANARY, "driver": "org.postgresql.Driver"}}

    def orders(self, spark: SparkSession) -> DataFrame:
        return source_jobs.orders_of_table(spark, DAY, **self.source)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return self.postgres.run(statement, database=self.database)

    def values(self) -> list[bytes]:
        """What the day's orders are as records now."""
        rows = self.run(f"select id, amount from orders where at < '{DAY.end.isoformat()}'")
        return [f'{{"id":{number},"amount":{amount}}}'.encode() for number, amount in rows]


@pytest.fixture(scope="module")
def reader(postgres: Postgres) -> Postgres:
    """The server with a role that may read."""
    postgres.run("drop role if exists reader")
    postgres.run(f"create role reader login password '{CANARY}'")
    return postgres


@pytest.fixture
def shop(reader: Postgres) -> Iterator[Shop]:
    shop = Shop(reader, f"shop_{uuid.uuid4().hex[:8]}")
    reader.create_database(shop.database)
    shop.run("create table orders (id bigint primary key, amount numeric(10, 2) not null, at timestamptz not null)")
    shop.run(f"insert into orders select n, n * 1.25, '{IN_DAY}' from generate_series(1, {ROWS}) n")
    shop.run(f"insert into orders values (1000, 1, '{DAY.end.isoformat()}')")
    shop.run("grant select on orders to reader")
    yield shop
    reader.run(f"drop database {shop.database} with (force)")


def slice_of(spark: SparkSession, numbers: Iterable[int]) -> dict[int, int]:
    """The slice of each order."""
    ids = ", ".join(map(str, numbers))
    rows = spark.sql(
        f"select id, pmod(xxhash64(cast(id as string)), {SLICES}) as slice from (select explode(array({ids})) id)"
    )
    return {row.id: row.slice for row in rows.collect()}


def test_a_table_arrives_exactly_once_read_in_parts(session: SparkSession, target: Target, shop: Shop) -> None:
    frame = shop.orders(session)
    assert frame.rdd.getNumPartitions() == 4
    done = write_interval(frame, target.pipeline, DAY, slices=SLICES)
    assert done.records == ROWS
    shop.run("update orders set amount = 0")
    assert write_interval(shop.orders(session), target.pipeline, DAY).already
    shop.run("update orders set amount = id * 1.25")
    target.require_exactly_once(shop.values())


def test_a_table_that_has_changed_between_attempts_is_refused_until_it_is_as_it_was(
    session: SparkSession, target: Target, shop: Shop
) -> None:
    committed = target.fail_at_the_last_slice(shop.orders(session), SLICES)
    slices = slice_of(session, range(1, 60))
    old = next(number for number in range(1, ROWS + 1) if slices[number] != SLICES - 1)
    new = next(number for number in range(ROWS + 1, 60) if slices[number] != SLICES - 1)
    for change, back in (
        (f"update orders set amount = 0 where id = {old}", f"update orders set amount = id * 1.25 where id = {old}"),
        (f"insert into orders values ({new}, 1, '{IN_DAY}')", f"delete from orders where id = {new}"),
        (f"delete from orders where id = {old}", f"insert into orders values ({old}, {old} * 1.25, '{IN_DAY}')"),
    ):
        shop.run(change)
        require_refused(target, committed, shop.orders(session))
        shop.run(back)

    assert write_interval(shop.orders(session), target.pipeline, DAY).records == ROWS
    target.require_exactly_once(shop.values())


def test_a_change_within_the_slices_that_are_left_is_taken_as_it_is(
    session: SparkSession, target: Target, shop: Shop
) -> None:
    """Nothing is lost or doubled, but the run has rows of two moments."""
    committed = target.fail_at_the_last_slice(shop.orders(session), SLICES)
    slices = slice_of(session, range(1, ROWS + 1))
    left = next(number for number in range(1, ROWS + 1) if slices[number] == SLICES - 1)
    shop.run(f"update orders set amount = 0 where id = {left}")

    assert write_interval(shop.orders(session), target.pipeline, DAY).records == ROWS

    target.require_exactly_once(shop.values())
    assert set(committed) < set(target.values())


def test_a_database_that_gives_no_rows_fails_the_attempt_and_the_next_one_writes_the_rest(
    session: SparkSession, target: Target, shop: Shop
) -> None:
    frame = shop.orders(session)
    committed = target.fail_at_the_last_slice(frame, SLICES)
    shop.run("revoke select on orders from reader")
    with pytest.raises(EosError, match="permission denied for table orders") as refused:
        write_interval(frame, target.pipeline, DAY)
    assert CANARY not in "".join(traceback.format_exception(refused.value))
    assert sorted(target.values()) == committed

    shop.run("grant select on orders to reader")
    assert write_interval(frame, target.pipeline, DAY).records == ROWS
    target.require_exactly_once(shop.values())


def test_the_databases_password_is_in_no_topic_log_or_error(
    session: SparkSession,
    broker_lab: Lab,
    target: Target,
    shop: Shop,
    spark_properties: dict[str, str],
    jars: list[Path],
    tmp_path: Path,
) -> None:
    function = f"{source_jobs.__file__}:orders_with_a_wrong_row"
    properties = {**spark_properties, "spark.jars": ",".join(map(str, jars))}
    spec = JobSpec(target.pipeline, DAY, function, shop.source, slices=SLICES, tasks=1, spark=properties)
    driver = Driver.start(tmp_path, spec)
    _, reported = driver.wait()
    assert "partition 99" in reported["message"], reported

    found = Found({"password": CANARY})
    search_files(found, [tmp_path])
    search_topics(found, broker_lab)
    assert found.looked_at["files"] == 2
    assert found.looked_at["records"] > 2
    assert "partition 99" in driver.log.read_text()
    assert not found.hits

    assert write_interval(shop.orders(session), target.pipeline, DAY).records == ROWS
    target.require_exactly_once(shop.values())


# A topic


@dataclass(frozen=True)
class Clicks:
    """A topic of two partitions that is read by its offsets."""

    lab: Lab
    topic: str

    def add(self, values: Iterable[bytes], *, aborted: bool = False, moment: datetime | None = None) -> None:
        """Write records in one transaction, in turn into the partitions."""
        from confluent_kafka import Producer

        producer = Producer(self._settings.confluent(**{"transactional.id": f"{self.topic}-clicks"}))
        producer.init_transactions(180)
        producer.begin_transaction()
        self._produce(producer, values, moment)
        (producer.abort_transaction if aborted else producer.commit_transaction)(180)

    def add_at(self, moment: datetime, values: Iterable[bytes]) -> None:
        """Write records of this moment, in no transaction, whose marker would have the time of now."""
        from confluent_kafka import Producer

        self._produce(Producer(self._settings.confluent()), values, moment)

    def _produce(self, producer: Any, values: Iterable[bytes], moment: datetime | None) -> None:
        times = {} if moment is None else {"timestamp": int(moment.timestamp() * 1000)}
        for number, value in enumerate(values):
            producer.produce(self.topic, key=b"k", value=value, partition=number % 2, **times)
        assert producer.flush(180) == 0

    @property
    def _settings(self) -> KafkaSettings:
        return KafkaSettings.of(self.lab.bootstrap_servers)

    def ends(self) -> dict[str, int]:
        """The offsets behind the last records, as Spark takes them."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._settings.confluent(group_id="ends"))
        try:
            return {str(p): consumer.get_watermark_offsets(TopicPartition(self.topic, p), 180)[1] for p in range(2)}
        finally:
            consumer.close()

    def delete_before(self, offset: int) -> None:
        """As retention does, in the first partition."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(self._settings.confluent())
        for deleted in admin.delete_records([TopicPartition(self.topic, 0, offset)]).values():
            deleted.result(180)

    def of_offsets(self, spark: SparkSession, end: dict[str, int]) -> DataFrame:
        return source_jobs.clicks_of_offsets(spark, DAY, self.lab.bootstrap_servers, self.topic, {"0": 0, "1": 0}, end)

    def of_times(self, spark: SparkSession, interval: Interval = DAY, **options: Any) -> DataFrame:
        return source_jobs.clicks_of_times(spark, interval, self.lab.bootstrap_servers, self.topic, **options)

    @contextmanager
    def open_at(self, moment: datetime, values: Iterable[bytes]) -> Iterator[Callable[[], None]]:
        """A transaction with records of this moment; what is given commits it."""
        from confluent_kafka import Producer

        identity = {"transactional_id": f"{self.topic}-open", "transaction_timeout_ms": 600_000}
        producer = Producer(self._settings.confluent(**identity))
        producer.init_transactions(180)
        producer.begin_transaction()
        self._produce(producer, values, moment)
        yield lambda: producer.commit_transaction(180)


def values(first: int = 0, count: int = ROWS) -> list[bytes]:
    return [f"click {number}".encode() for number in range(first, first + count)]


@pytest.fixture
def topic(broker_lab: Lab) -> Clicks:
    clicks = Clicks(broker_lab, f"clicks-{uuid.uuid4().hex[:8]}")
    broker_lab.create_topic(clicks.topic, 2)
    return clicks


@pytest.fixture
def clicks(topic: Clicks) -> Clicks:
    """The topic with :func:`values`, and some between them that were given up."""
    topic.add(values()[: ROWS // 2])
    topic.add([b"given up"] * 4, aborted=True)
    topic.add(values()[ROWS // 2 :])
    return topic


def test_a_range_of_offsets_is_the_same_whatever_comes_behind_it(
    session: SparkSession, target: Target, clicks: Clicks
) -> None:
    end = clicks.ends()
    target.fail_at_the_last_slice(clicks.of_offsets(session, end), SLICES, key="place")
    clicks.add(values(ROWS))

    assert write_interval(clicks.of_offsets(session, end), target.pipeline, DAY, key="place").records == ROWS

    target.require_exactly_once(values())


def test_a_range_up_to_the_latest_offset_is_refused_once_more_records_have_come(
    session: SparkSession, target: Target, clicks: Clicks
) -> None:
    end = clicks.ends()
    latest = {"0": -1, "1": -1}
    committed = target.fail_at_the_last_slice(clicks.of_offsets(session, latest), SLICES, key="place")
    clicks.add(values(ROWS))
    require_refused(target, committed, clicks.of_offsets(session, latest), key="place")

    assert write_interval(clicks.of_offsets(session, end), target.pipeline, DAY, key="place").records == ROWS

    target.require_exactly_once(values())


def test_times_make_a_range_that_stays_once_a_record_of_a_later_time_is_behind_it(
    session: SparkSession, target: Target, topic: Clicks
) -> None:
    topic.add_at(DAY.start - timedelta(seconds=1), [b"of the day before"] * 2)
    topic.add_at(DAY.start, values())
    topic.add_at(DAY.end, [b"of the next day"] * 2)
    target.fail_at_the_last_slice(topic.of_times(session), SLICES, key="place")
    topic.add_at(DAY.end - timedelta(seconds=1), [b"late"] * 20)

    assert write_interval(topic.of_times(session), target.pipeline, DAY, key="place").records == ROWS
    target.require_exactly_once(values())
    next_day = source_jobs.clicks_of_times(session, day(1), topic.lab.bootstrap_servers, topic.topic)
    assert next_day.count() == 22, "late records are of the next day: none is of two days or of none"


def test_a_range_of_times_waits_for_a_transaction_that_is_open_in_it(
    session: SparkSession, target: Target, topic: Clicks
) -> None:
    """Spark's own look-up ends where the transaction begins, and loses what is behind it."""
    topic.add_at(DAY.start, values()[:10])
    with topic.open_at(DAY.start, [b"of the transaction"] * 2) as commit:
        topic.add_at(DAY.start, values()[10:])
        topic.add_at(DAY.end, [b"of the next day"] * 2)
        with pytest.raises(ReadTimeoutError, match=r"a transaction is open in partition \d from offset 5 on"):
            topic.of_times(session, timeout_seconds=0)
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(topic.of_times, session)
            commit()
            frame = reading.result(180)
    assert write_interval(frame, target.pipeline, DAY, key="place").records == ROWS + 2
    target.require_exactly_once([*values(), *[b"of the transaction"] * 2])


def test_a_range_whose_beginning_may_have_been_removed_is_refused(session: SparkSession, topic: Clicks) -> None:
    topic.add_at(DAY.start, values())
    topic.add_at(DAY.end, [b"of the next day"] * 2)
    topic.delete_before(10)
    with pytest.raises(
        ConfigurationError, match=r"Partition 0 of clicks-\w+ begins at offset 10: records of .* removed"
    ):
        topic.of_times(session)
    assert topic.of_times(session, allow_removed=True).count() == ROWS - 10
    assert topic.of_times(session, start={0: 10}).count() == ROWS - 10
    with pytest.raises(ConfigurationError, match="begins at offset 10"):
        topic.of_times(session, start={0: 9}, allow_removed=True)
    assert source_jobs.clicks_of_times(session, day(1), topic.lab.bootstrap_servers, topic.topic).count() == 2


def test_a_range_that_a_record_of_the_future_bounds_is_refused(session: SparkSession, broker_lab: Lab) -> None:
    """It is the first record of each later time, so the ranges of all days until then would be empty."""
    topic = Clicks(broker_lab, f"clicks-{uuid.uuid4().hex[:8]}")
    broker_lab.create_topic(topic.topic, 2, {"message.timestamp.after.max.ms": str(2**62)})
    topic.add_at(DAY.start, values()[:10])
    topic.add_at(datetime.now(UTC) + timedelta(days=300), [b"of the future"] * 2)
    topic.add_at(DAY.start, values()[10:])
    with pytest.raises(ConfigurationError, match=r"record at offset 5 of partition 0 .* has a time in the future"):
        topic.of_times(session)
    assert topic.of_times(session, end=topic.ends()).count() == ROWS + 2
    with pytest.raises(ConfigurationError, match="The options have endingTimestamp"):
        topic.of_times(session, options={"endingTimestamp": "1"})


def test_a_range_whose_bound_is_a_later_commit_with_older_records_behind_it_is_refused(
    session: SparkSession, topic: Clicks
) -> None:
    """By times the first commit bounds all days of the past."""
    topic.add(values()[:8], moment=DAY.start)
    for moment in (DAY.start, day(2).start):
        topic.add([b"given up"] * 2, aborted=True, moment=moment)
    assert topic.of_times(session).count() == 8, "behind the bound are only markers and aborted records"
    topic.add(values()[8:16], moment=day(1).start)
    assert topic.of_times(session).count() == 8

    refused = r"Offset 4 of partition \d of .* bounds 2013-01-03T.* at offset 9 behind it is of 2013-01-02T05:00:00\+00"
    for number in (1, 2):
        with pytest.raises(ConfigurationError, match=refused):
            topic.of_times(session, day(number))
    assert topic.of_times(session, day(1), start={0: 9, 1: 9}, end=topic.ends()).count() == 8


def test_a_range_without_a_later_record_ends_when_none_can_be_late(session: SparkSession, topic: Clicks) -> None:
    topic.add_at(DAY.start, values())
    assert topic.of_times(session).count() == ROWS
    ended_now = Interval(DAY.start, datetime.now(UTC).replace(microsecond=0))
    with pytest.raises(ReadTimeoutError, match=r"records of .* may come to partition 0 for"):
        topic.of_times(session, ended_now, late_seconds=3600)
    assert topic.of_times(session, ended_now, late_seconds=0).count() == ROWS
    assert topic.of_times(session, ended_now, late_seconds=3600, end={0: 5, 1: 5}).count() == 10
    assert topic.of_times(session, start={"0": 3}, end={"0": 5}).count() == 2 + ROWS // 2, "as JSON has the partitions"
    for wrong, words in (
        ({"start": {0: 5}, "end": {0: 4}}, "Partition 0 of .* has no range from offset 5 to 4"),
        ({"end": {7: 4}}, "Partition 7 of .* has no range"),
        ({"end": {1: 21}}, "Partition 1 of .* ends at offset 20, and its range at 21"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            topic.of_times(session, **wrong)


def test_a_compacted_topic_is_refused(session: SparkSession, broker_lab: Lab, topic: Clicks) -> None:
    Topics(KafkaSettings.of(broker_lab.bootstrap_servers)).change(topic.topic, {"cleanup.policy": "compact,delete"})
    with pytest.raises(ConfigurationError, match="is compacted"):
        topic.of_times(session)


def test_records_that_retention_has_taken_are_missed(session: SparkSession, target: Target, clicks: Clicks) -> None:
    end = clicks.ends()
    committed = target.fail_at_the_last_slice(clicks.of_offsets(session, end), SLICES, key="place")
    clicks.delete_before(10)

    with pytest.raises(EosError, match=r"The Spark stage of .* failed: .*Some data may have been lost"):
        write_interval(clicks.of_offsets(session, end), target.pipeline, DAY, key="place")

    assert sorted(target.values()) == committed
    assert completion(target.pipeline, Run(target.pipeline.name, DAY)) is None
