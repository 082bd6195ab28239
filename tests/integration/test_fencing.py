"""Ids fenced in bulk by a real coordinator: who is shut out, and what an answer promises."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import kafka.errors
import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from airflow_eos_provider.errors import EosError, ReadTimeoutError, UnreachableError
from airflow_eos_provider.kafka.admin import bulk_fencing
from airflow_eos_provider.kafka.admin.bulk_fencing import Fenced, Round
from airflow_eos_provider.kafka.admin.client import Admin
from airflow_eos_provider.kafka.admin.transactions import FENCE_TIMEOUT_MS, TransactionsClient
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab

#: So many that the markers of a commit take the broker some milliseconds.
PARTITIONS = 40

#: So many commits, until one is seen ahead of its markers.
MOST_TRIED = 60


@pytest.fixture(scope="module")
def settings(broker_lab: Lab) -> KafkaSettings:
    return KafkaSettings.of(broker_lab.bootstrap_servers)


@pytest.fixture
def client(settings: KafkaSettings) -> Iterator[TransactionsClient]:
    with TransactionsClient(settings) as transactions:
        yield transactions


@pytest.fixture(scope="module")
def wide_topic(broker_lab: Lab) -> str:
    name = f"wide-{uuid.uuid4().hex[:8]}"
    broker_lab.create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def prefix() -> str:
    return f"f-{uuid.uuid4().hex[:8]}-"


def begun(settings: KafkaSettings, transactional_id: str, topic: str) -> Producer:
    """A producer with a transaction open in all partitions of the topic."""
    identity = {"bootstrap.servers": settings.bootstrap_servers, "transactional.id": transactional_id}
    producer = Producer({**identity, "transaction.timeout.ms": 600_000, "log_level": 2})
    producer.init_transactions(180)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(180) == 0
    return producer


def open_partitions(admin: AdminClient, topic: str) -> int:
    """How many partitions have something at their end that no committed reader may see yet."""

    def ends(isolation: IsolationLevel) -> list[int]:
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=180)
        return [future.result().offset for future in futures.values()]

    # The stable ends first: asked the other way round, a marker written in between would look open for ever.
    stable = ends(IsolationLevel.READ_COMMITTED)
    return sum(s < e for s, e in zip(stable, ends(IsolationLevel.READ_UNCOMMITTED), strict=True))


def is_fenced(error: KafkaException) -> bool:
    return error.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def test_a_fenced_producer_can_neither_write_nor_commit_and_what_it_wrote_is_aborted(
    client: TransactionsClient, settings: KafkaSettings, wide_topic: str, prefix: str
) -> None:
    zombie = begun(settings, f"{prefix}0", wide_topic)
    other = begun(settings, f"{prefix}1", wide_topic)
    assert client.open_transactions(prefix) == (f"{prefix}0", f"{prefix}1")
    before = client.describe([f"{prefix}0"])[f"{prefix}0"]

    (fenced,) = client.fence([f"{prefix}0"]).values()

    assert (fenced.producer_id, fenced.epoch) > (before.producer_id, before.producer_epoch)
    assert client.open_transactions(prefix) == (f"{prefix}1",)
    assert client.describe([f"{prefix}0"])[f"{prefix}0"].timeout_ms == FENCE_TIMEOUT_MS
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(180)
    assert is_fenced(refused.value)
    other.commit_transaction(180)  # an id that was not named goes on


@pytest.mark.parametrize("end", ["committed", "left open"])
def test_an_answer_means_that_every_marker_is_written(
    client: TransactionsClient, settings: KafkaSettings, wide_topic: str, prefix: str, end: str
) -> None:
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})
    ahead_of_markers = 0
    for number in range(MOST_TRIED):
        if number >= 12 and ahead_of_markers:
            break
        producer = begun(settings, f"{prefix}{number}", wide_topic)
        if end == "committed":
            producer.commit_transaction(180)
        # Without fencing first: so there is something to wait for. How often a look is quick enough is chance.
        if number < 6 or not ahead_of_markers:
            ahead_of_markers += open_partitions(admin, wide_topic) > 0
        client.fence([f"{prefix}{number}"])
        assert open_partitions(admin, wide_topic) == 0
        assert client.open_transactions(f"{prefix}{number}") == ()
    assert ahead_of_markers > 0, "commit was never ahead of its markers, so nothing was tested"


def test_thousands_of_ids_are_fenced_once_each(client: TransactionsClient, prefix: str) -> None:
    ids = [f"{prefix}{number}" for number in range(3000)]
    first = client.fence(ids, timeout_seconds=180)  # one after the other, with a back-off, it takes an hour
    second = client.fence(reversed(ids), timeout_seconds=180)
    assert set(first) == set(second) == set(ids)
    assert {fenced.epoch for fenced in first.values()} == {0}
    assert {fenced.epoch for fenced in second.values()} == {1}
    assert len({fenced.producer_id for fenced in first.values()}) == len(ids)


def test_two_that_fence_the_same_ids_at_once_both_get_their_answers(settings: KafkaSettings, prefix: str) -> None:
    ids = [f"{prefix}{number}" for number in range(300)]

    def fence() -> dict[str, Fenced]:
        with TransactionsClient(settings) as transactions:
            return transactions.fence(ids)

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(fence), pool.submit(fence)
        answers = one.result(180), other.result(180)
    for transactional_id in ids:
        assert {answer[transactional_id].epoch for answer in answers} == {0, 1}


def test_nothing_to_fence_is_nothing(client: TransactionsClient) -> None:
    assert client.fence([]) == {}
    assert client.open_transactions("no-such-id") == ()


def test_ids_that_the_coordinator_puts_off_are_asked_for_again_and_no_others(
    client: TransactionsClient, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A coordinator refuses only while a marker is on its way; how often is not ours to choose.
    asked: list[list[str]] = []
    real = bulk_fencing.fence_round

    async def reluctant(admin: Admin, ids: list[str], timeout_ms: int, deadline: float) -> Round:
        asked.append(list(ids))
        answered, put_off = list(ids)[::2], list(ids)[1::2]
        done = await real(admin, answered, timeout_ms, deadline)
        return {**done, **{name: kafka.errors.ConcurrentTransactionsError() for name in put_off}}

    monkeypatch.setattr("airflow_eos_provider.kafka.admin.transactions.fence_round", reluctant)
    ids = [f"{prefix}{number}" for number in range(4)]
    assert {fenced.epoch for fenced in client.fence(ids).values()} == {0}
    assert [len(names) for names in asked] == [4, 2, 1]


@pytest.mark.parametrize(
    ("reason", "expected", "words"),
    [
        (kafka.errors.ConcurrentTransactionsError, ReadTimeoutError, "not ended in every partition"),
        (kafka.errors.NotCoordinatorError, UnreachableError, "NotCoordinatorError"),
    ],
)
def test_ids_that_are_left_when_time_is_up_are_named(
    client: TransactionsClient,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    reason: type[kafka.errors.KafkaError],
    expected: type[EosError],
    words: str,
) -> None:
    # One broker is all the lab has, so no marker can be made to wait for another.
    async def never(admin: Admin, ids: list[str], timeout_ms: int, deadline: float) -> Round:
        return {name: reason() for name in ids}

    monkeypatch.setattr("airflow_eos_provider.kafka.admin.transactions.fence_round", never)
    with pytest.raises(expected, match=words) as reported:
        client.fence([f"{prefix}{number}" for number in range(5)], timeout_seconds=0.5)
    assert f"{prefix}0" in reported.value.found
    assert "2 more" in reported.value.found


def test_an_answer_that_is_final_is_told_with_the_id(client: TransactionsClient, prefix: str) -> None:
    with pytest.raises(EosError, match=f"{prefix}0"):
        client.fence([f"{prefix}0"], timeout_ms=2**31 - 1)  # beyond the broker's transaction.max.timeout.ms


def test_fencing_goes_on_after_the_broker_was_away(broker_lab: Lab, settings: KafkaSettings, prefix: str) -> None:
    ids = [f"{prefix}{number}" for number in range(2000)]
    with TransactionsClient(settings, timeout_seconds=240) as transactions:
        assert len(transactions.fence(ids[:10])) == 10
        broker_lab.stop_broker(kill=True)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(transactions.fence, ids)
            broker_lab.start_broker()
            assert set(answer.result(timeout=300)) == set(ids)
