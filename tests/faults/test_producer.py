"""The producer over kafka-python's connections: what it is told goes to the brokers once, whatever is lost on the way.

Three brokers, and a proxy of the test's own between them and the producer. Each case writes a source, and compares it
with what a reader of committed records finds, as a multiset.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient, TopicPartition
from kafka.net.connection import KafkaConnection
from kafka.protocol.admin import AlterClientQuotasRequest

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write.producer import Limits, TransactionalProducer, TransactionExpiredError
from airflow_eos_provider.kafka.write.record_batches import EncodedBatch, encode_records
from airflow_eos_provider.kafka.write.sender import Sender
from tests.faults.cutting_proxy import Api, CuttingProxy
from tests.faults.three_brokers import Brokers, brokers as brokers
from tests.waiting import until

#: Batches of each partition.
ROUNDS = 8

Source = list[tuple[int, bytes]]


@pytest.fixture(scope="module")
def settings(brokers: Brokers) -> KafkaSettings:
    return KafkaSettings.of(brokers.lab.bootstrap_servers)


@pytest.fixture(scope="module")
def make_topic(brokers: Brokers) -> Callable[..., str]:
    """A topic of three partitions, each led by another broker."""
    numbers = itertools.count()

    def make(*, partitions: int = 3, replicas: int = 3, **config: str) -> str:
        name = f"t{next(numbers)}"
        at = [[(first + number) % 3 + 1 for number in range(replicas)] for first in range(partitions)]
        new = NewTopic(name, num_partitions=partitions, replica_assignment=at, config=config)
        brokers.admin.create_topics([new])[name].result(60)
        return name

    return make


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[CuttingProxy]:
    """What the producers of a test speak through."""
    proxy, plain = CuttingProxy(), KafkaSettings.kafka_python
    monkeypatch.setattr(KafkaSettings, "kafka_python", lambda self: {**plain(self), "proxy_url": proxy.url})
    yield proxy
    proxy.close()


@pytest.fixture
def opened(settings: KafkaSettings, request: pytest.FixtureRequest) -> Iterator[Callable[..., TransactionalProducer]]:
    """Producers that are closed at the end."""
    made: list[TransactionalProducer] = []

    def make(transactional_id: str = "", *, timeout_ms: int = 60_000, **options: Any) -> TransactionalProducer:
        name = transactional_id or f"id-{request.node.name}-{len(made)}"
        made.append(TransactionalProducer(settings, name, timeout_ms=timeout_ms, **options))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def batches_of(
    topic: str, first: int = 0, *, partitions: int = 3, size: int = 100
) -> tuple[list[EncodedBatch], Source]:
    """A batch for each partition, and what is in them."""
    now = time.time_ns() // 1_000_000
    source = [
        (partition, f"{first}-{partition}-{n}".encode().ljust(size))
        for partition in range(partitions)
        for n in range(5)
    ]
    batches = [
        encode_records(topic, partition, [(b"k", value, None, now) for at, value in source if at == partition])
        for partition in range(partitions)
    ]
    return batches, source


def send(producer: TransactionalProducer, topic: str, first: int = 0, **of: Any) -> Source:
    batches, source = batches_of(topic, first, **of)
    producer.send(batches)
    return source


def committed(settings: KafkaSettings, topic: str) -> Counter[tuple[int, bytes | None]]:
    return Counter((record.partition, record.value) for record in read_to_end(settings, topic).records)


def write(producer: TransactionalProducer, topic: str, **of: Any) -> Source:
    """One transaction, with a record that is no batch's at the end, as a ledger's."""
    producer.begin()
    source = [row for first in range(ROUNDS) for row in send(producer, topic, first, **of)]
    producer.flush()
    producer.produce(topic, b"ledger", b"last", partition=1)
    producer.commit()
    return [*source, (1, b"last")]


CUT = [
    (api, answered, times)
    for api in Api
    for answered in (False, True)
    for times in ((1, 3) if api in (Api.PRODUCE, Api.END_TXN) else (1,))
]


@pytest.mark.parametrize(("api", "answered", "times"), CUT, ids=lambda value: str(getattr(value, "name", value)))
def test_a_connection_that_is_cut_loses_and_doubles_nothing(
    settings: KafkaSettings,
    make_topic: Any,
    opened: Any,
    proxy: CuttingProxy,
    api: Api,
    answered: bool,
    times: int,
) -> None:
    topic, producer = make_topic(), opened()
    proxy.cut(api, answered=answered, times=times)

    producer.init()
    source = write(producer, topic)
    assert proxy.cuts == times
    source += write(producer, topic)

    assert committed(settings, topic) == Counter(source)


def test_batches_in_flight_stay_in_order_when_their_answers_are_lost(
    settings: KafkaSettings, make_topic: Any, opened: Any, proxy: CuttingProxy
) -> None:
    topic, producer = make_topic(partitions=1), opened()
    producer.init()
    producer.begin()
    proxy.cut(Api.PRODUCE, answered=True, times=2)
    source = [row for first in range(40) for row in send(producer, topic, first, partitions=1, size=3_000)]
    producer.commit()

    assert proxy.cuts == 2
    assert [(record.partition, record.value) for record in read_to_end(settings, topic).records] == source


def test_a_leader_that_moves_is_found(settings: KafkaSettings, brokers: Brokers, make_topic: Any, opened: Any) -> None:
    topic, producer = make_topic(partitions=1, replicas=1), opened()
    admin = KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    producer.init()
    producer.begin()
    source = send(producer, topic, 0, partitions=1)
    producer.flush()
    leader = brokers.leader(topic, 0)
    for first, target in enumerate(((leader + 1) % 3, leader), 1):
        admin.alter_partition_reassignments({TopicPartition(topic, 0): [target + 1]})
        while brokers.leader(topic, 0) != target:  # it goes on meanwhile, and hears of it from the old leader
            source += send(producer, topic, first, partitions=1)
        source += send(producer, topic, first, partitions=1)
    producer.commit()
    admin.close()

    assert committed(settings, topic) == Counter(source)


def test_a_broker_that_leads_and_coordinates_is_restarted_in_the_middle_of_a_slice(
    settings: KafkaSettings, brokers: Brokers, make_topic: Any, opened: Any
) -> None:
    topic = make_topic()
    index = brokers.leader(topic, 0)
    name = next(name for number in range(100) if brokers.coordinator(name := f"restarted-{number}") == index)
    producer = opened(name)
    producer.init()
    producer.begin()
    source = send(producer, topic)
    producer.flush()
    brokers.lab.stop_broker(index)
    for first in range(1, ROUNDS):
        source += send(producer, topic, first)
    producer.commit()
    until(lambda: brokers.coordinator(name) != index, "the other brokers to hear of it", seconds=60)
    brokers.lab.start_broker(index)
    source += write(producer, topic)

    assert committed(settings, topic) == Counter(source)


def test_a_quota_slows_a_producer_down_and_nothing_else(
    settings: KafkaSettings, make_topic: Any, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    entry = AlterClientQuotasRequest.EntryData
    name = "throttled"
    quota = entry(
        entity=[entry.EntityData(entity_type="client-id", entity_name=name)],
        ops=[entry.OpData(key="producer_byte_rate", value=11_000.0, remove=False)],
    )
    (answer,) = admin._manager.run(
        admin._manager.send, AlterClientQuotasRequest(entries=[quota], validate_only=False)
    ).entries
    assert answer.error_code == 0
    admin.close()
    throttled: list[str] = []
    pause = KafkaConnection.pause
    monkeypatch.setattr(KafkaConnection, "pause", lambda self, why: (throttled.append(why), pause(self, why))[1])
    topic, producer = make_topic(), opened(properties={"client.id": name})
    producer.init()

    source = write(producer, topic, size=3_000)

    assert "throttle" in throttled
    assert committed(settings, topic) == Counter(source)


def test_who_is_fenced_learns_so_and_nothing_of_its_is_visible(
    settings: KafkaSettings, make_topic: Any, opened: Any
) -> None:
    topic, first, second = make_topic(), opened("fenced"), opened("fenced")
    first.init()
    first.begin()
    send(first, topic)
    first.flush()
    second.init()
    with pytest.raises(FencedError, match="Another producer has taken the transactional id fenced"):
        (send(first, topic, 1), first.flush())
    assert not first.is_open
    assert isinstance(first.unsettled, FencedError)
    with pytest.raises(FencedError):
        first.begin()
    source = write(second, topic)

    assert committed(settings, topic) == Counter(source)


def test_a_batch_that_is_too_large_is_named_and_the_next_transaction_is_none_the_worse(
    settings: KafkaSettings, make_topic: Any, opened: Any
) -> None:
    small, topic, producer = make_topic(**{"max.message.bytes": "600"}), make_topic(), opened()
    producer.init()

    def refused() -> None:
        producer.begin()
        send(producer, topic)
        send(producer, small)
        producer.flush()

    with pytest.raises(ConfigurationError, match=f"A record for topic {small} is too large"):
        refused()
    assert not producer.is_open
    assert producer.unsettled is None
    source = write(producer, topic)

    assert committed(settings, topic) == Counter(source)
    assert not committed(settings, small)


def test_a_transaction_that_is_open_for_too_long_names_its_limit(
    settings: KafkaSettings, make_topic: Any, opened: Any
) -> None:
    topic = make_topic()
    producer = opened("expired", timeout_ms=1_000, properties={"delivery.timeout.ms": "60000"})
    producer.init()

    def write_slowly() -> None:
        producer.begin()
        send(producer, topic)
        producer.flush()  # where brokers take longer than the limit, it is over here
        with TransactionsClient(settings) as client:
            until(
                lambda: client.describe(["expired"])["expired"].state is TransactionState.COMPLETE_ABORT,
                "the broker to give the transaction up",
                seconds=60,
            )
        send(producer, topic, 1)
        producer.commit()

    with pytest.raises(TransactionExpiredError, match="transaction_timeout_ms, 1000 ms"):
        write_slowly()
    again = opened("expired")
    again.init()
    source = write(again, topic)

    assert committed(settings, topic) == Counter(source)


def test_what_is_aborted_is_not_visible_and_what_was_not_sent_leaves_no_gap(
    settings: KafkaSettings, make_topic: Any, opened: Any
) -> None:
    topic, producer = make_topic(), opened()
    producer.init()
    source: Source = []
    for number in range(3):
        producer.begin()
        for first in range(ROUNDS):
            send(producer, topic, first)
        producer.produce(topic, b"k", b"not sent")
        producer.abort()
        assert producer.unsettled is None
        source += write(producer, topic) if number else []
        producer.begin()
        producer.commit()  # empty: no broker has heard of it

    assert committed(settings, topic) == Counter(source)


def test_a_producer_that_is_closed_leaves_its_transaction_open(
    settings: KafkaSettings, make_topic: Any, opened: Any
) -> None:
    topic, producer = make_topic(), opened("left")
    producer.init()
    producer.begin()
    send(producer, topic)
    producer.flush()
    producer.close()

    with TransactionsClient(settings) as client:
        assert client.describe(["left"])["left"].state is TransactionState.ONGOING
    successor = opened("left")
    successor.init()
    source = write(successor, topic)
    assert committed(settings, topic) == Counter(source)


def test_what_waits_for_brokers_is_bounded(
    settings: KafkaSettings, make_topic: Any, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, kept = make_topic(), []
    producer = opened(properties={"queue.buffering.max.kbytes": "20"})
    keep = Sender._keep

    def counted(self: Sender, batch: EncodedBatch) -> None:
        keep(self, batch)
        kept.append(self._bytes)

    monkeypatch.setattr(Sender, "_keep", counted)
    producer.init()
    source = write(producer, topic, size=1_000)

    assert max(kept) <= 20 << 10
    assert committed(settings, topic) == Counter(source)


def test_brokers_that_are_away_are_waited_for_no_longer_than_allowed(
    settings: KafkaSettings, brokers: Brokers, make_topic: Any, opened: Any
) -> None:
    topic = make_topic(partitions=1, replicas=1)
    producer = opened()
    producer.init()
    producer.begin()
    send(producer, topic, partitions=1)
    producer.flush()
    producer._limits = Limits(commit=1, abort=1)
    few = pytest.raises(EosError, match=r"5 records of .* were not taken in 1 s")
    with brokers.paused(brokers.leader(topic, 0)), few:
        (send(producer, topic, 1, partitions=1), producer.flush())
    successor = opened(producer.transactional_id)
    successor.init()
    assert not committed(settings, topic)


def test_a_topic_that_is_not_there_is_named(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_eos_provider.kafka.write.sender._UNKNOWN_TOPIC_SECONDS", 0.1)
    producer = opened()
    producer.init()
    producer.begin()
    with pytest.raises(ConfigurationError, match="There is no topic nowhere"):
        send(producer, "nowhere")


def test_a_partition_that_is_not_there_is_named(make_topic: Any, opened: Any) -> None:
    topic, producer = make_topic(), opened()
    producer.init()
    producer.begin()
    producer.produce(topic, b"k", b"v", partition=3)
    with pytest.raises(ConfigurationError, match=f"There is no topic {topic}, or no such partition in it"):
        producer.flush()


def test_the_last_record_is_told_by_its_offset_and_the_brokers_time(make_topic: Any, opened: Any) -> None:
    topic, producer = make_topic(**{"message.timestamp.type": "LogAppendTime"}), opened()
    producer.init()
    producer.begin()
    before = time.time_ns() // 1_000_000 - 60_000
    for _ in range(3):
        producer.produce(topic, b"k", b"v", partition=0, timestamp_ms=before)
        producer.flush()
    producer.commit()

    assert producer.last_offset == 2
    assert producer.last_timestamp_ms > before
