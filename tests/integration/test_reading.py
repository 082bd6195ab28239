"""Parts of a topic read to their ends: from a position, some partitions, stable records only, and past compaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from airflow_eos_provider.errors import ConfigurationError, EosError, ReadTimeoutError, UnreachableError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.topics import control_topic, run_reader as topic_reader
from airflow_eos_provider.interval.topics.control_topic import ControlReader, ControlState, generation_records
from airflow_eos_provider.interval.topics.pins import TopicChangedError
from airflow_eos_provider.interval.topics.run_reader import TopicReader
from airflow_eos_provider.kafka.kafka_session import Kafka, Session, WireSession
from airflow_eos_provider.kafka.read import wire_fetcher
from airflow_eos_provider.kafka.read.reader import LogRecord, Reach, read_to_end, scan_to_end
from airflow_eos_provider.kafka.read.topic_ends import DeletedRecordsError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.kafka.write.plain import write_plainly
from airflow_eos_provider.kafka.write.producer import TransactionalProducer
from airflow_eos_provider.lab.lab import Lab
from tests.waiting import answered, until

#: The limit of a read that an open transaction holds up: half of it has to do for each answer of the broker, or the
#: broker is taken for gone.
HELD_UP_SECONDS = 4.0


@pytest.fixture(scope="module")
def settings(broker_lab: Lab) -> KafkaSettings:
    return KafkaSettings.of(broker_lab.bootstrap_servers)


@pytest.fixture(params=[Session, WireSession], ids=["librdkafka", "kafka-python"])
def kafka(request: pytest.FixtureRequest, settings: KafkaSettings) -> Iterator[Session]:
    with request.param(settings) as session:
        yield session


@pytest.fixture
def topic(broker_lab: Lab) -> str:
    """A new topic of three partitions."""
    name = f"r-{uuid.uuid4().hex[:8]}"
    broker_lab.create_topic(name, 3)
    return name


@pytest.fixture
def plain(settings: KafkaSettings) -> Producer:
    return Producer({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})


@pytest.fixture
def transactional(settings: KafkaSettings) -> Iterator[Producer]:
    """A transactional producer; what it left open is aborted at the end."""
    identity = {"bootstrap.servers": settings.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    producer = Producer({**identity, "transaction.timeout.ms": 600_000, "log_level": 2})
    producer.init_transactions(180)
    yield producer
    producer.purge()
    producer.flush(5)


def send(producer: Producer, topic: str, *texts: str, partition: int = 0) -> None:
    for text in texts:
        producer.produce(topic, text, partition=partition)
    assert producer.flush(180) == 0


def values(records: Sequence[LogRecord]) -> list[str]:
    return sorted((record.value or b"").decode() for record in records)


def test_a_read_from_where_the_last_one_ended_has_only_what_came_since(
    kafka: Kafka, topic: str, plain: Producer
) -> None:
    send(plain, topic, "a", "b", partition=0)
    send(plain, topic, "c", partition=1)
    first = read_to_end(kafka, topic)
    assert values(first.records) == ["a", "b", "c"]
    again = read_to_end(kafka, topic, Reach(start=first.end_offsets))
    assert (again.records, again.beginning_offsets, again.end_offsets) == ((), first.end_offsets, first.end_offsets)
    send(plain, topic, "d", partition=1)
    send(plain, topic, "e", partition=2)
    later = read_to_end(kafka, topic, Reach(start=again.end_offsets))
    assert values(later.records) == ["d", "e"]
    assert later.end_offsets == {0: 2, 1: 2, 2: 1}


def test_partitions_that_are_not_asked_for_are_neither_read_nor_waited_for(
    kafka: Kafka, topic: str, plain: Producer, transactional: Producer
) -> None:
    transactional.begin_transaction()
    send(transactional, topic, "open", partition=0)
    send(plain, topic, "a", "b", partition=1)
    found = read_to_end(kafka, topic, Reach(partitions=[1, 2], start={1: 1}))
    assert values(found.records) == ["b"]
    assert found.end_offsets == {1: 2, 2: 0}
    with pytest.raises(ReadTimeoutError):
        answered(lambda: read_to_end(kafka, topic, timeout_seconds=HELD_UP_SECONDS))


def test_stable_records_are_had_without_waiting_for_an_open_transaction(
    kafka: Kafka, topic: str, plain: Producer, transactional: Producer
) -> None:
    send(plain, topic, "before")
    transactional.begin_transaction()
    send(transactional, topic, "open")
    send(plain, topic, "behind")
    found = read_to_end(kafka, topic, Reach(stable_only=True))  # the transaction is open until this test ends
    assert values(found.records) == ["before"]
    assert found.end_offsets[0] == 1
    # A position that an earlier read had reached may stand behind a transaction that is open now.
    assert read_to_end(kafka, topic, Reach(start={0: 3}, stable_only=True)).records == ()
    transactional.commit_transaction(180)
    assert values(read_to_end(kafka, topic, Reach(start=found.end_offsets)).records) == ["behind", "open"]


def test_a_read_that_took_longer_than_compaction_waits_goes_on_to_new_ends(
    kafka: Kafka, topic: str, plain: Producer
) -> None:
    send(plain, topic, "a")
    came: list[LogRecord] = []

    def slow(batch: Sequence[LogRecord]) -> None:
        if not came:  # the reader waits for longer than the lag, and the log moves on
            send(plain, topic, "late")
            send(plain, topic, "late in an empty partition", partition=2)
            time.sleep(1.1)
        came.extend(batch)

    ends = scan_to_end(kafka, topic, slow, Reach(compaction_lag_seconds=1.0))
    assert values(came) == ["a", "late", "late in an empty partition"]
    assert ends == {0: 2, 1: 0, 2: 1}


def test_a_read_that_was_quick_keeps_to_the_ends_it_had(kafka: Kafka, topic: str, plain: Producer) -> None:
    send(plain, topic, "a")
    came: list[LogRecord] = []

    def slow(batch: Sequence[LogRecord]) -> None:
        send(plain, topic, "late")
        came.extend(batch)

    assert scan_to_end(kafka, topic, slow, Reach(compaction_lag_seconds=60.0)) == {0: 1, 1: 0, 2: 0}
    assert values(came) == ["a"]


def test_a_topic_that_ends_before_the_position_is_not_the_one_it_was(kafka: Kafka, topic: str, plain: Producer) -> None:
    send(plain, topic, "a")
    with pytest.raises(EosError, match=r"Partition 0 .* ends at 1, before offset 7"):
        read_to_end(kafka, topic, Reach(start={0: 7}))


def test_records_that_were_deleted_are_noticed(
    kafka: Kafka, settings: KafkaSettings, topic: str, plain: Producer
) -> None:
    send(plain, topic, "a", "b", "c", "d")
    place = TopicPartition(topic, 0, 3)
    admin = AdminClient(settings.confluent())  # its calls end with it
    admin.delete_records([place])[place].result()
    came: list[LogRecord] = []
    with pytest.raises(DeletedRecordsError, match="partition 0 begins at offset 3"):
        scan_to_end(kafka, topic, came.extend, Reach(start={0: 1}, all_records=True))
    assert values(came) == ["d"]
    assert values(read_to_end(kafka, topic).records) == ["d"]


def test_a_partition_that_is_not_there_is_named(kafka: Kafka, topic: str) -> None:
    for reach in (Reach(partitions=[1, 9]), Reach(start={9: 0})):
        with pytest.raises(ConfigurationError, match="no partition 9"):
            read_to_end(kafka, topic, reach)


@pytest.mark.parametrize("once", [True, False])
def test_what_is_written_plainly_is_there_once_in_its_order(settings: KafkaSettings, topic: str, once: bool) -> None:
    """More of a partition than one batch takes, and records without a value."""
    began_ms = int(time.time() * 1000)
    written = [(number % 2, b"%d" % number, None if number % 7 == 0 else b"v" * 2_000) for number in range(1_000)]
    appended_ms = write_plainly(settings, topic, written, "writing", seconds=60, once=once)
    assert began_ms <= appended_ms <= time.time() * 1000
    read = read_to_end(settings, topic).records
    assert [(one.partition, one.key, one.value) for one in read if one.partition == 0] == written[::2]
    assert [(one.partition, one.key, one.value) for one in read if one.partition == 1] == written[1::2]
    with pytest.raises(UnreachableError, match="did not answer"):
        write_plainly(settings, "no-such-topic", [(0, b"k", b"v")], "writing", seconds=1)


def test_headers_are_read_where_they_are_asked_for(kafka: Kafka, topic: str, plain: Producer) -> None:
    plain.produce(topic, "with", partition=0, headers=[("run", b"r1"), ("none", None)])
    plain.produce(topic, "without", partition=0)
    assert plain.flush(180) == 0
    came: list[LogRecord] = []
    scan_to_end(kafka, topic, came.extend, headers=True)
    assert [record.headers for record in came] == [[("run", b"r1"), ("none", None)], None]
    assert [record.headers for record in read_to_end(kafka, topic).records] == [None, None]


def test_a_limit_of_stalls_lets_a_long_read_go_on_and_ends_one_that_is_held_up(
    kafka: Kafka, topic: str, plain: Producer, transactional: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_fetcher, "_PARTITION_BYTES", 1)  # a batch a fetch
    for first in range(0, 3_000, 500):
        send(plain, topic, *map(str, range(first, first + 500)))
    batches: list[int] = []

    def slow(batch: Sequence[LogRecord]) -> None:
        batches.append(len(batch))
        time.sleep(HELD_UP_SECONDS / 5)  # six batches or more: the whole takes longer than the limit

    began = time.monotonic()
    scan_to_end(kafka, topic, slow, timeout_seconds=HELD_UP_SECONDS, stall_only=True)
    assert time.monotonic() - began > HELD_UP_SECONDS
    assert sum(batches) == 3_000
    transactional.begin_transaction()
    send(transactional, topic, "open")
    with pytest.raises(ReadTimeoutError, match=r"nothing more to read for 4 s.* open transaction"):
        answered(
            lambda: scan_to_end(kafka, topic, lambda batch: None, timeout_seconds=HELD_UP_SECONDS, stall_only=True)
        )
    scan_to_end(kafka, topic, lambda batch: {0}, timeout_seconds=HELD_UP_SECONDS)  # no more is needed


@pytest.fixture
def held_up(topic: str, transactional: Producer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic with a record behind which a transaction is open; a reader's first try does not take long."""
    monkeypatch.setattr(topic_reader, "_FIRST_LIMIT_SECONDS", HELD_UP_SECONDS)
    transactional.begin_transaction()
    send(transactional, topic, "before")
    transactional.commit_transaction(180)
    transactional.begin_transaction()
    send(transactional, topic, "open")
    return topic


def test_a_read_that_is_tried_again_goes_on_behind_what_it_has_handed_over(
    kafka: Kafka, held_up: str, transactional: Producer
) -> None:
    came: list[LogRecord] = []
    reported: list[list[str]] = []

    def report(line: str) -> None:
        reported.append(values(came))
        transactional.commit_transaction(180)

    reader = TopicReader(kafka, held_up, report=report)
    reader.read(came.extend)
    assert reported == [["before"]]
    assert values(came) == ["before", "open"]
    assert reader.positions == {0: 4, 1: 0, 2: 0}


def test_a_topic_that_is_made_anew_between_two_tries_is_not_read_on(
    kafka: Kafka, held_up: str, transactional: Producer, plain: Producer, broker_lab: Lab
) -> None:
    came: list[LogRecord] = []

    def report(line: str) -> None:
        transactional.commit_transaction(180)
        assert Topics(kafka).delete(held_up)
        broker_lab.create_topic(held_up, 3)
        send(plain, held_up, "another", "one", "more", "of", "another", "topic")

    with pytest.raises(TopicChangedError, match="another id"):
        TopicReader(kafka, held_up, report=report).read(came.extend)
    assert values(came) == ["before"]


CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("by_broker", ["producer", *CODECS])
def test_both_libraries_read_the_same(settings: KafkaSettings, topic: str, by_broker: str) -> None:
    """Of each codec what librdkafka has compressed, this package's own producer, and the broker."""
    Topics(settings).change(topic, {"compression.type": by_broker})
    Topics(settings).await_settings(topic, {"compression.type": by_broker})
    codecs = ("none", *CODECS) if by_broker == "producer" else ("none",)
    for codec in codecs:
        write_transactions(settings, topic, codec)
    found = 0
    with Session(settings) as one, WireSession(settings) as other:
        for isolation in ("read_uncommitted", "read_committed"):
            reads: list[list[LogRecord]] = []
            for kafka in (one, other):
                reads.append([])
                scan_to_end(kafka, topic, reads[-1].extend, isolation=isolation, headers=True)
                reads[-1].sort(key=lambda record: (record.partition, record.offset))
            assert reads[0] == reads[1]
            most, found = found, len(reads[1])
    assert most > found == len(codecs) * 60, "aborted ones are left out"


def write_transactions(settings: KafkaSettings, topic: str, codec: str) -> None:
    """Two transactions at a time, of a producer of librdkafka's and one of ours: aborted, committed and aborted."""
    properties = {"compression.type": codec}
    identity = {"bootstrap.servers": settings.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    theirs = Producer({**identity, **properties})
    theirs.init_transactions(180)
    ours = TransactionalProducer(settings, uuid.uuid4().hex, timeout_ms=60_000, properties=properties)
    ours.init()
    large = b"0123456789" * 70_000  # two of them are more than kafka-python's connections take by themselves
    for end in ("abort", "commit", "abort"):
        theirs.begin_transaction()
        ours.begin()
        for number in range(20):
            value = f"{codec}-{end}-{number}" * number
            theirs.produce(topic, value, f"k{number}", 0, headers=[("h", b"v"), ("n", None)])
            ours.produce(topic, None, large if number == 0 else b"", partition=number % 2)
            ours.produce(topic, b"key", None, partition=0, headers=[("h", b"v")])
            if number % 7 == 0:
                theirs.flush()
                ours.flush()
        getattr(theirs, f"{end}_transaction")(180)
        getattr(ours, end)()
    ours.close()


@pytest.fixture
def eager_cleaner(settings: KafkaSettings) -> Iterator[None]:
    """The broker looks for something to compact ten times a second, not every 15 s."""
    admin = AdminClient(settings.confluent())
    (broker,) = admin.list_topics(timeout=180).brokers

    def alter(operation: Any) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
        altered = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        admin.incremental_alter_configs([altered])[altered].result()

    alter(AlterConfigOpType.SET)
    yield
    alter(AlterConfigOpType.DELETE)


@pytest.mark.usefixtures("eager_cleaner")
def test_a_compacted_log_of_transactions_is_read_alike(settings: KafkaSettings, plain: Producer) -> None:
    """Compaction rewrites batches, and takes records and markers out of them."""
    topic = f"r-{uuid.uuid4().hex[:8]}"
    quick = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    Topics(settings).create(topic, partitions=1, settings={"cleanup.policy": "compact", **quick})
    producer = TransactionalProducer(settings, topic, timeout_ms=60_000)
    producer.init()
    for key, end in ((b"aborted", producer.abort), (b"committed", producer.commit), (b"last", producer.commit)):
        producer.begin()
        producer.produce(topic, key, b"old", partition=0)
        producer.produce(topic, key, b"new", partition=0)
        producer.flush()
        end()
    producer.close()
    with Session(settings) as one, WireSession(settings) as other:

        def is_compacted() -> bool:
            plain.produce(topic, b"filler", b"filler", 0)
            assert plain.flush(180) == 0
            return "old" not in values(read_to_end(one, topic, isolation="read_uncommitted").records)

        until(is_compacted, "compaction", seconds=60)
        found = [read_to_end(kafka, topic).records for kafka in (one, other)]

    # Fillers are compacted between the two reads.
    reads = [[record for record in records if record.key != b"filler"] for records in found]
    assert reads[0] == reads[1]
    assert [record.key for record in reads[1]] == [b"committed", b"last"]


RUNS = [Run.parse(f"p@2013-01-0{day}T00:00:00Z/2013-01-0{day + 1}T00:00:00Z") for day in (1, 2, 3)]


def send_generation(producer: Producer, topic: str, run: Run) -> None:
    for key, value in generation_records(run, [(0,), (1,)]):
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(180) == 0


def test_each_read_of_the_control_topic_goes_on_where_the_one_before_ended(
    kafka: Kafka, topic: str, plain: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[int] = []
    apply = ControlState.apply

    def counted(state: ControlState, records: Sequence[LogRecord]) -> None:
        applied.append(len(records))
        apply(state, records)

    monkeypatch.setattr(ControlState, "apply", counted)
    first, second, third = RUNS
    reader = ControlReader(kafka, topic)
    send_generation(plain, topic, first)
    early = reader.read_stable().run(first)
    send_generation(plain, topic, second)
    send_generation(plain, topic, first)
    state = reader.read()
    assert [state.run(run).generation for run in RUNS] == [8, 5, None]
    assert (early.generation, early.assignment) == (2, {0: (0,), 1: (1,)})  # as it was read
    assert sum(applied) == 9
    assert reader.read().run(first).generation == 8
    assert sum(applied) == 9

    late = ControlReader(kafka, topic, 5)
    state = late.read()
    assert [state.run(run).generation for run in RUNS] == [8, 5, None]
    plain.produce(topic, None, f"commit-{second.name}", partition=0)
    send_generation(plain, topic, third)
    state = late.read()
    assert [state.run(run).generation for run in RUNS] == [8, None, 12]


def test_who_has_not_read_the_control_topic_for_long_reads_it_from_its_beginning(
    kafka: Kafka, topic: str, plain: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone that came meanwhile may have been removed."""
    applied: list[int] = []
    apply = ControlState.apply

    def counted(state: ControlState, records: Sequence[LogRecord]) -> None:
        applied.extend(record.offset for record in records)
        apply(state, records)

    monkeypatch.setattr(ControlState, "apply", counted)
    reader = ControlReader(kafka, topic)
    send_generation(plain, topic, RUNS[0])
    assert [reader.read().run(RUNS[0]).generation for _ in range(2)] == [2, 2]
    assert applied == [0, 1, 2]

    monkeypatch.setattr(control_topic, "FOLLOWED_SECONDS", -1.0)

    assert reader.read().run(RUNS[0]).generation == 2
    assert applied == [0, 1, 2] * 2


def test_a_control_topic_that_was_made_anew_is_refused(
    kafka: Kafka, broker_lab: Lab, topic: str, plain: Producer
) -> None:
    """Generations are offsets: those of the new topic say nothing of the old one's."""
    first, second, _ = RUNS
    reader, far = ControlReader(kafka, topic), ControlReader(kafka, topic, 2)
    send_generation(plain, topic, first)
    assert [each.read().run(first).generation for each in (reader, far)] == [2, 2]

    assert Topics(kafka).delete(topic)
    broker_lab.create_topic(topic, 3)
    for run in (second, second, second):
        send_generation(plain, topic, run)

    for each in (reader, far, ControlReader(kafka, topic, topic_id=reader.topic_id)):
        with pytest.raises(TopicChangedError, match="another id"):
            each.read()
    assert ControlReader(kafka, topic).read().run(second).generation == 8
