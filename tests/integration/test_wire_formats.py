"""A real Connect worker reads what we write to an offsets topic, and writes the same bytes for the same values."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.jackson import encode, hash_map_order
from airflow_eos_provider.errors import ConnectRestError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.topics.ledger import CompleteRecord, SliceRecord, complete_record, slice_record
from airflow_eos_provider.interval.topics.pins import Pins, TopicPin
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.lab.lab import Lab
from tests.waiting import until_ended

PIPELINE = "flights.daily"
LEDGER = "connect-wire-flights.daily-offsets"
PARTITIONS = 5

Offsets = dict[bytes, bytes]


def ledger_records() -> Offsets:
    """Two intervals: one with slices, revisions of it that are complete, without and with its topics."""
    interval = Interval.parse("2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")
    records = [
        slice_record(
            Run(PIPELINE, interval), number, SliceRecord(f"{number:016x}", 1000 + number, "0f" * 16, ("a", "b.c"))
        )
        for number in range(40)
    ]
    pins = Pins(TopicPin(LEDGER, "vTlTtGGQQfuDPzZQIYVxVg"), TopicPin("flights.daily", "LEJH0CUCSdK6l0ugzmKZeQ"))
    for revision, pinned in ((2, None), (3, pins)):
        run = Run(PIPELINE, interval, revision=revision)
        records.append(complete_record(CompleteRecord(run, 27_004, "ab" * 16, 40, pinned)))
    return {record.key: record.value for record in records if record.value is not None}


def awkward_records() -> Offsets:
    """Partitions and offsets that other connectors might have: many names, odd characters, every kind of value."""
    partitions: list[dict[str, Any]] = [
        {"z": "1", "a": "2"},
        {f"name {number}": number for number in range(30)},
        {"path": "/data/ä/\U0001f600/\u2028", "control": "\x00\x1f\x7f\n", "quote": '"\\'},
        {"Aa": 1, "BB": 2},
        {"whole": 2**62, "negative": -(2**63), "yes": True, "no": False, "none": None},
    ]
    offset = {"position": 2**53 + 1, "half": 0.5, "large": 1e10, "small": 1e-5, "text": "\U0001f600", "none": None}
    return {encode([PIPELINE, hash_map_order(p)]): encode(hash_map_order(offset)) for p in partitions}


WRITTEN: Offsets = {**ledger_records(), **awkward_records()}


@pytest.fixture(scope="module")
def lab(enabled_lab: Lab) -> Lab:
    return enabled_lab


@pytest.fixture
def rest(lab: Lab) -> Iterator[ConnectRest]:
    with ConnectRest(lab.connect_urls[0]) as client:
        yield client
        client.delete(PIPELINE)


@pytest.fixture
def connector_on(lab: Lab, rest: ConnectRest) -> Callable[[str], None]:
    """Make the pipeline's connector, stopped, with this topic for its offsets."""

    def create(topic: str) -> None:
        lab.create_topic(topic, PARTITIONS, {"cleanup.policy": "compact"})
        config = {
            "connector.class": "org.apache.kafka.connect.integration.MonitorableSourceConnector",
            "tasks.max": "1",
            "topic": "nothing",
            "offsets.storage.topic": topic,
        }
        rest.create(PIPELINE, config, initial_state="STOPPED")

    return create


def comparable(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def shown(rest: ConnectRest) -> dict[str, Mapping[str, Any] | None]:
    return {comparable(found.partition): found.offset for found in rest.offsets(PIPELINE)}


def until_answered(call: Callable[[], Any]) -> Any:
    """The answer, once the connector's rebalance is over."""
    deadline = time.monotonic() + 600
    while True:
        try:
            return call()
        except (ConnectRestError, httpx.HTTPStatusError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def stored(lab: Lab, topic: str) -> dict[bytes, tuple[int, bytes | None]]:
    records = read_to_end(KafkaSettings.of(lab.bootstrap_servers), topic).records
    return {record.key: (record.partition, record.value) for record in records if record.key is not None}


def test_connect_shows_every_offset_that_we_wrote_and_none_as_null(
    lab: Lab, rest: ConnectRest, connector_on: Callable[[str], None]
) -> None:
    connector_on(LEDGER)
    ours = Producer(
        {
            "bootstrap.servers": lab.bootstrap_servers,
            "transactional.id": "wire",
            "partitioner": "murmur2_random",
            "log_level": 2,
        }
    )
    ours.init_transactions(180)
    ours.begin_transaction()
    for key, value in WRITTEN.items():
        ours.produce(LEDGER, value, key)
    # The same partition with its names in another order than Java's: what a careless writer does.
    ours.produce(LEDGER, b'{"position":1}', b'["flights.daily",{"interval":"careless","slice":0}]')
    ours.commit_transaction(180)
    until_ended(KafkaSettings.of(lab.bootstrap_servers), "wire")

    found = until_answered(lambda: shown(rest))

    assert found.pop(comparable({"interval": "careless", "slice": 0})) is None  # so null is what a fault looks like
    assert found == {comparable(json.loads(key)[1]): json.loads(value) for key, value in WRITTEN.items()}


def test_connect_writes_the_same_bytes_to_the_same_partitions(
    lab: Lab, rest: ConnectRest, connector_on: Callable[[str], None]
) -> None:
    topic = f"{LEDGER}-by-connect"
    connector_on(topic)
    asked = [{"partition": json.loads(key)[1], "offset": json.loads(value)} for key, value in WRITTEN.items()]

    def patch() -> None:
        url = f"{lab.connect_urls[0]}/connectors/{PIPELINE}/offsets"
        httpx.patch(url, json={"offsets": asked}, timeout=180).raise_for_status()

    until_answered(patch)

    theirs = stored(lab, topic)
    assert theirs == {key: (partition_of(key, PARTITIONS), value) for key, value in WRITTEN.items()}
    assert len({partition for partition, _ in theirs.values()}) == PARTITIONS
