"""What can go wrong in a slice is reported by name; the transaction is aborted, and nothing is half-visible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.protocol.task import Task
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics import preparation as protocol_topics
from airflow_eos_provider.interval.topics.pins import TopicChangedError
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.questions import TopicDescription
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.kafka.write.producer import TransactionalProducer, TransactionExpiredError
from tests.waiting import until

Days = Callable[..., Run]


#: A moment of January 2013, milliseconds.
EXPIRED_MS = 1_357_000_000_000


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"x"] * 10, **columns})


def write(pipeline: Pipeline, run: Run, batches: Any) -> None:
    """One slice, in this process."""
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: RunPlan(run, [{}]), 1)
        assert isinstance(stage, Stage)
        with Task(pipeline, stage, 0) as task:
            task.start()
            task.write_slice(0, batches)
        coordinator.finish(stage)


def committed(pipeline: Pipeline) -> int:
    assert pipeline.topic is not None
    return len(read_to_end(pipeline.kafka, pipeline.topic).records)


def create_topic(pipeline: Pipeline, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient(pipeline.kafka.confluent())
    named = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=named)
    admin.create_topics([new])[name].result()


def require_none_open(pipeline: Pipeline) -> None:
    with TransactionsClient(pipeline.kafka) as client:
        # EndTxn is answered once the abort is on record; its markers follow (PrepareAbort, then CompleteAbort).
        deadline = time.monotonic() + 600
        while left := client.open_transactions(f"{pipeline.group_id}-"):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


def require_nothing_half_done(pipeline: Pipeline, run: Run) -> None:
    """The broker knows of nothing open, a reader sees nothing, and the retry is the whole."""
    require_none_open(pipeline)
    assert committed(pipeline) == 0
    write(pipeline, run, [batch()])
    assert committed(pipeline) == 10


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        pytest.param({"vlaue": ["x"] * 10}, "Column vlaue has no place", id="unknown column"),
        pytest.param({"key": list(range(10))}, "Column key is of type int64", id="column of a wrong type"),
        pytest.param({"topic": ["no-such-topic"] * 10}, "There is no topic no-such-topic", id="unknown topic"),
        pytest.param({"partition": [99] * 10}, "partition 99 of topic target-.*, which has", id="unknown partition"),
        pytest.param(
            {"timestamp": [EXPIRED_MS] * 10}, "2013-.* topic target-.* keeps records for 60.* ms", id="too old"
        ),
        pytest.param({"value": [b"x" * 2_000_000] * 10}, "A record for topic target-.* is too large", id="too large"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_of_its_slice_is_visible(
    make_pipeline: Any, days: Days, columns: dict[str, Any], words: str
) -> None:
    pipeline = make_pipeline()

    with pytest.raises(ConfigurationError, match=words):
        write(pipeline, days(1), [batch(), batch(**columns)])

    require_nothing_half_done(pipeline, days(1))


def test_rows_that_the_target_would_soon_delete_are_refused_before_anything_is_planned(
    make_pipeline: Any, days: Days
) -> None:
    pipeline = make_pipeline()

    with (
        pytest.raises(ConfigurationError, match="The end of the interval 2013"),
        Coordinator(pipeline, days(1)) as coordinator,
    ):
        coordinator.begin(lambda: RunPlan(days(1), [{}]), 1, rows_have_times=True)
    assert read_to_end(pipeline.kafka, pipeline.control_topic).records == ()

    write(replace(pipeline, allow_expired_records=True), days(1), [batch(timestamp=[EXPIRED_MS] * 10)])
    assert pipeline.topic is not None
    Topics(pipeline.kafka).change(pipeline.topic, {"retention.ms": "-1"})
    Topics(pipeline.kafka).await_settings(pipeline.topic, {"retention.ms": "-1"})
    write(pipeline, days(2), [batch(timestamp=[EXPIRED_MS] * 10)])


def test_a_target_that_is_deleted_while_a_slice_is_written_is_named(make_pipeline: Any, days: Days) -> None:
    pipeline = make_pipeline(producer={"message.timeout.ms": "2000"})
    topics = Topics(pipeline.kafka)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch()
        assert topics.delete(pipeline.topic)
        yield batch()

    with pytest.raises(TopicChangedError, match=f"{pipeline.topic} was deleted while records were written"):
        write(pipeline, days(1), batches())


def test_a_row_that_names_an_internal_topic_is_refused_and_the_group_stays_readable(
    make_pipeline: Any, days: Days
) -> None:
    """Rows that were copied from another cluster may name its topics; one such record ends every reader of ours."""
    pipeline = make_pipeline()
    neighbour = replace(pipeline, name="neighbour", ledger_topic=f"{pipeline.group_id}-of-the-neighbour")
    write(neighbour, replace(days(1), pipeline="neighbour"), [batch()])
    journal = journal_topic("some-group")
    create_topic(pipeline, journal)
    reserved = {
        pipeline.control_topic: "control topic of the group",
        pipeline.ledger_topic: "ledger of the pipeline p",
        neighbour.ledger_topic: "ledger of the pipeline neighbour",
        journal: "journal",
        "__consumer_offsets": "brokers' own",
        "connect-offsets": "a Connect cluster",
    }

    for topic, words in reserved.items():
        row = batch(key=[b"key"] * 10, topic=[None] * 9 + [topic])  # a compacted topic takes a record with a key
        with pytest.raises(ConfigurationError, match=f"topic {topic}, which is .*{words}"):
            write(pipeline, days(1), [batch(), row])

    require_none_open(pipeline)
    assert committed(pipeline) == 10  # the neighbour's
    for topic in (pipeline.ledger_topic, neighbour.ledger_topic, journal):
        assert b"x" not in {record.value for record in read_to_end(pipeline.kafka, topic).records}
    write(pipeline, days(1), [batch()])
    assert committed(pipeline) == 20


def test_a_target_that_is_an_internal_topic_is_refused_before_anything_is_planned(
    make_pipeline: Any, days: Days
) -> None:
    pipeline = make_pipeline(name="neighbour")
    write(pipeline, replace(days(1), pipeline="neighbour"), [batch()])
    planned = len(read_to_end(pipeline.kafka, pipeline.control_topic).records)

    for topic in (pipeline.ledger_topic, "__transaction_state"):
        with pytest.raises(ConfigurationError, match=f"topic {topic}, which is"):
            write(replace(pipeline, name="p", topic=topic, ledger_topic=""), days(1), [batch()])

    assert len(read_to_end(pipeline.kafka, pipeline.control_topic).records) == planned


def test_a_record_that_the_topic_does_not_take_is_named(make_pipeline: Any, days: Days) -> None:
    pipeline = make_pipeline()
    create_topic(pipeline, f"{pipeline.group_id}-narrow", max_message_bytes="1000")
    rows = batch(topic=[f"{pipeline.group_id}-narrow"] * 10, value=[bytes(5000)] * 10)

    with pytest.raises(ConfigurationError, match=r"A record for topic g\d+-narrow is too large"):
        write(pipeline, days(1), [rows])

    require_nothing_half_done(pipeline, days(1))


def test_a_transaction_that_expires_names_its_limit(make_pipeline: Any, days: Days) -> None:
    at_once = {"batch.size": "1", "delivery.timeout.ms": "60000"}  # each row is sent, however long the broker takes
    pipeline = make_pipeline(transaction_timeout_ms=5_000, producer=at_once)

    def slowly() -> Iterator[pa.RecordBatch]:
        yield batch()
        task_id = pipeline.transactional_id(days(1), 0)
        with TransactionsClient(pipeline.kafka) as client:
            until(
                lambda: client.describe([task_id])[task_id].state is TransactionState.COMPLETE_ABORT,
                "the broker to give the transaction up",
                seconds=120,
            )
        yield batch()

    with pytest.raises(TransactionExpiredError, match="transaction_timeout_ms, 5000 ms"):
        write(pipeline, days(1), slowly())

    require_nothing_half_done(replace(pipeline, transaction_timeout_ms=300_000), days(1))


def test_whoever_loses_its_id_between_two_records_learns_so_from_the_next_one(make_pipeline: Any) -> None:
    pipeline = make_pipeline()

    def open_producer() -> TransactionalProducer:
        producer = TransactionalProducer(pipeline.kafka, "between-two-records", timeout_ms=60_000)
        producer.init()
        return producer

    first = open_producer()
    first.begin()
    open_producer()

    def is_refused() -> bool:
        try:
            first.produce(pipeline.topic or "", b"key", b"value")
            first.flush()
        except FencedError:
            return True
        return False

    until(is_refused, "the refusal of a record", seconds=60)
    assert first.unsettled is not None  # the id is another's: nothing can be aborted any more
    assert committed(pipeline) == 0


def test_a_transaction_timeout_that_the_broker_does_not_allow_is_told(make_pipeline: Any, days: Days) -> None:
    pipeline = make_pipeline(transaction_timeout_ms=900_000)
    producer = TransactionalProducer(pipeline.kafka, f"{pipeline.group_id}-long", timeout_ms=900_001)

    with pytest.raises(ConfigurationError, match=r"transaction\.max\.timeout\.ms"):
        producer.init()


@pytest.fixture
def deny(kafka: Any) -> Iterator[Callable[[ResourceType, str, ResourcePatternType], None]]:
    """Take the right to write away from everybody."""
    admin = AdminClient(kafka.confluent())

    def deny(kind: ResourceType, name: str, pattern: ResourcePatternType) -> None:
        everybody = "User:*", "*", AclOperation.WRITE, AclPermissionType.DENY
        for future in admin.create_acls([AclBinding(kind, name, pattern, *everybody)]).values():
            future.result(180)
        here = AclBindingFilter(kind, name, pattern, *everybody)
        until(lambda: admin.describe_acls(here).result(180), "the broker to hear of it", seconds=60)

    yield deny
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in admin.delete_acls([every]).values():
        future.result(180)


def test_a_missing_right_to_the_topic_names_it(make_pipeline: Any, days: Days, deny: Any) -> None:
    pipeline = make_pipeline()
    deny(ResourceType.TOPIC, pipeline.topic, ResourcePatternType.LITERAL)

    with pytest.raises(ConfigurationError, match=r"(?i)target-.*authori[sz]ation|ACLs") as raised:
        write(pipeline, days(1), [batch()])

    assert pipeline.topic in str(raised.value)


def test_a_missing_right_to_an_id_names_it(make_pipeline: Any, days: Days, deny: Any) -> None:
    pipeline = make_pipeline()
    deny(ResourceType.TRANSACTIONAL_ID, f"{pipeline.group_id}-p@", ResourcePatternType.PREFIXED)

    with pytest.raises(ConfigurationError, match="ACLs") as raised:
        write(pipeline, days(1), [batch()])

    assert pipeline.coordinator_id(days(1)) in str(raised.value)


def test_a_missing_target_topic_is_told_before_anything_is_planned(make_pipeline: Any, days: Days) -> None:
    pipeline = make_pipeline(topic="not-there")

    with pytest.raises(ConfigurationError, match="There is no topic not-there"):
        write(pipeline, days(1), [batch()])

    assert pipeline.ledger_topic not in AdminClient(pipeline.kafka.confluent()).list_topics(timeout=180).topics


def test_a_target_topic_is_made_when_asked_for(make_pipeline: Any, days: Days) -> None:
    pipeline = make_pipeline(topic="made-on-request", target_partitions=7)

    write(pipeline, days(1), [batch()])

    assert len(read_to_end(pipeline.kafka, "made-on-request").end_offsets) == 7


LOSING = pytest.mark.parametrize(
    ("which", "partitions", "config", "words"),
    [
        ("ledger_topic", 3, {"cleanup_policy": "delete"}, "cleanup.policy=delete"),
        ("ledger_topic", 3, {"cleanup_policy": "compact"}, "min.compaction.lag.ms=0"),
        ("control_topic", 1, {"cleanup_policy": "compact,delete"}, "cleanup.policy=compact,delete"),
        ("control_topic", 2, {"cleanup_policy": "compact"}, "has 2 partitions"),
    ],
)


@LOSING
def test_a_topic_that_could_lose_records_is_refused(
    make_pipeline: Any, days: Days, which: str, partitions: int, config: dict[str, str], words: str
) -> None:
    pipeline = make_pipeline()
    create_topic(pipeline, getattr(pipeline, which), partitions, **config)

    with pytest.raises(ConfigurationError, match=words):
        write(pipeline, days(1), [batch()])


@LOSING
def test_a_topic_that_could_lose_records_is_refused_by_a_broker_that_hears_of_it_late(
    make_pipeline: Any,
    days: Days,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    partitions: int,
    config: dict[str, str],
    words: str,
) -> None:
    """So it is created, and is there already. The first answer is a mock: a real one lacks it in a rare moment only."""
    pipeline = make_pipeline()
    create_topic(pipeline, late := getattr(pipeline, which), partitions, **config)
    lacking = iter([late])

    class Topics(protocol_topics.Topics):
        def describe(self, names: Sequence[str]) -> dict[str, TopicDescription]:
            lacks = next(lacking, None)
            return {name: found for name, found in super().describe(names).items() if name != lacks}

    monkeypatch.setattr(protocol_topics, "Topics", Topics)
    with pytest.raises(ConfigurationError, match=words):
        write(pipeline, days(1), [batch()])

    assert next(lacking, None) is None
    assert committed(pipeline) == 0


def test_the_config_topic_of_a_connect_cluster_is_refused(make_pipeline: Any, days: Days) -> None:
    pipeline = make_pipeline()
    lag = {"cleanup_policy": "compact", "min_compaction_lag_ms": "3600000"}
    create_topic(pipeline, pipeline.control_topic, 1, **lag)
    connect = TransactionalProducer(pipeline.kafka, "connect", timeout_ms=60_000)
    connect.init()
    connect.begin()
    connect.produce(pipeline.control_topic, b"session-key", b'{"key":"c4nary"}')
    connect.commit()

    with pytest.raises(ConfigurationError, match="config topic of a Connect cluster") as raised:
        write(pipeline, days(1), [batch()])

    assert "c4nary" not in str(raised.value)
    assert len(read_to_end(pipeline.kafka, pipeline.control_topic).records) == 1


def test_a_run_says_for_whom_it_waits_and_until_when(make_pipeline: Any, days: Days) -> None:
    pipeline = make_pipeline(ledger_partitions=1)
    write(pipeline, days(1), [batch()])
    foreign = TransactionalProducer(pipeline.kafka, f"{pipeline.group_id}-foreign", timeout_ms=300_000)
    foreign.init()
    foreign.begin()
    foreign.produce(pipeline.ledger_topic, b"foreign", b"{}")
    foreign.flush()
    lines: list[str] = []
    held = f"{pipeline.group_id}-foreign has a transaction open"  # on a busy machine other waits are reported, too

    def report(line: str) -> None:
        lines.append(line)
        if held in line:
            foreign.abort()

    with Coordinator(pipeline, days(2), report=report) as coordinator:
        coordinator.begin(lambda: RunPlan(days(2), [{}]), 1)

    (waiting, *_) = [line for line in lines if held in line]
    assert waiting.startswith("Has waited")
    assert " until " in waiting


def test_a_row_of_a_slice_that_is_another_tasks_is_refused(make_pipeline: Any, days: Days) -> None:
    pipeline, run = make_pipeline(), days(1)
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: RunPlan(run, [{}, {}]), 2)
        assert isinstance(stage, Stage)
        with Task(pipeline, stage, 0) as task:
            assert task.start() == {0}
            with pytest.raises(EosError, match=r"Slice 1 .* is not task 0's"):
                task.write_slice(1, [batch()])
            task.write_slice(0, [batch()])
            with pytest.raises(EosError, match="is done"):
                task.write_slice(0, [batch()])


def test_leaving_a_task_by_an_error_aborts_what_it_has_begun(make_pipeline: Any, days: Days) -> None:
    pipeline = make_pipeline()

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(pipeline, days(1), broken())

    require_nothing_half_done(pipeline, days(1))
