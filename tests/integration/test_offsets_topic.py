"""An offsets topic on a real broker, with plain, committed, aborted and open records, compressed or not."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.kafka.admin.partition_writers import Outcome
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.offsets.offsets_topic import read_offsets_topic
from tests.waiting import until_ended

MakeProducer = Callable[..., Producer]


@pytest.fixture
def topic(broker_lab: Lab) -> str:
    name = f"o-{uuid.uuid4().hex[:8]}"
    broker_lab.create_topic(name, 3)
    return name


@pytest.fixture
def producer(broker_lab: Lab) -> Iterator[MakeProducer]:
    """Makes producers; what one left open is aborted at the end."""
    made = []

    def make(**settings: object) -> Producer:
        common = {"bootstrap.servers": broker_lab.bootstrap_servers, "partitioner": "murmur2_random", "log_level": 2}
        producer = Producer({**common, **settings})
        if "transactional.id" in settings:
            producer.init_transactions(180)
        made.append(producer)
        return producer

    yield make
    for each in made:
        each.purge()
        each.flush(5)


def key(number: int) -> bytes:
    return b'["c",{"file":"%d"}]' % number


def put(producer: Producer, topic: str, number: int, position: int | None) -> None:
    producer.produce(topic, key=key(number), value=None if position is None else b'{"position":%d}' % position)
    assert producer.flush(180) == 0


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_each_offset_says_who_wrote_it_and_an_open_transaction_holds_nobody_up(
    broker_lab: Lab, topic: str, producer: MakeProducer, codec: str
) -> None:
    plain = producer(**{"compression.type": codec, "enable.idempotence": False})
    first, second = (producer(**{"transactional.id": f"{topic}-{n}", "compression.type": codec}) for n in range(2))
    put(plain, topic, 1, 10)
    first.begin_transaction()
    put(first, topic, 1, 11)
    put(first, topic, 2, 20)
    first.commit_transaction()
    first.begin_transaction()
    put(first, topic, 2, 21)
    first.abort_transaction()
    until_ended(KafkaSettings.of(broker_lab.bootstrap_servers), f"{topic}-0")
    second.begin_transaction()
    put(second, topic, 1, 12)
    put(plain, topic, 3, 30)
    put(plain, topic, 3, None)

    read = read_offsets_topic(KafkaSettings.of(broker_lab.bootstrap_servers), topic)

    newest = {record.key.raw: (record.offset, read.written(record).outcome) for record in read.committed["c"]}
    assert newest == {
        key(1): ({"position": 11}, Outcome.COMMITTED),
        key(2): ({"position": 20}, Outcome.COMMITTED),
        key(3): (None, Outcome.PLAIN),
    }
    (open_one,) = read.waiting["c"]
    assert (open_one.offset, read.written(open_one).outcome) == ({"position": 12}, Outcome.OPEN)
    one, two, three = (read.written(record) for record in read.committed["c"])
    assert one.producer_id == two.producer_id not in (None, read.written(open_one).producer_id)
    assert three.producer_id is None


def test_progress_goes_from_nothing_to_all_and_an_empty_topic_has_no_offsets(
    broker_lab: Lab, topic: str, producer: MakeProducer
) -> None:
    settings, seen = KafkaSettings.of(broker_lab.bootstrap_servers), list[tuple[int, int]]()
    assert read_offsets_topic(settings, topic).committed == {}
    plain = producer()
    for number in range(50):
        plain.produce(topic, key=key(number), value=b"{}")
    assert plain.flush(180) == 0
    read = read_offsets_topic(settings, topic, progress=lambda passed, total: seen.append((passed, total)))
    assert len(list(read.committed["c"])) == 50
    assert seen == sorted(seen)
    assert seen[-1] == (100, 100)
