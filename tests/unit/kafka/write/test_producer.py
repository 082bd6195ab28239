"""What the producer tells the brokers after answers that no broker gives when asked to.

Lost answers, moved leaders and fenced producers of real brokers are in tests/faults/test_producer.py.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import kafka.errors
import pytest
from kafka.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    KafkaConnectionError,
    KafkaStorageError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionAbortableError,
)

from airflow_eos_provider.errors import ConfigurationError, EosError, FencedError, UnreachableError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.wire import NotSentError
from airflow_eos_provider.kafka.write import producer as producer_module
from airflow_eos_provider.kafka.write.producer import Limits, Options, TransactionalProducer, UndecidedError
from airflow_eos_provider.kafka.write.record_batches import EncodedBatch, encode_records
from tests.unit.kafka.scripted_wire import PRODUCER, ScriptedWire

UNKNOWN = -1
QUICK = Limits(init=1, commit=1, abort=1)


def told(answer: Any) -> Any:
    """The code of a broker's error that is given by its class; an error itself is a connection's."""
    return answer.errno if isinstance(answer, type) else answer


Make = Callable[..., tuple[TransactionalProducer, ScriptedWire]]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A producer with an open transaction, and the brokers."""
    wires: list[ScriptedWire] = []

    def make(begun: bool = True, limits: Limits = QUICK, **answers: Any) -> Any:
        wire = ScriptedWire(**{name: [told(each) for each in of] for name, of in answers.items()})
        wires.append(wire)
        monkeypatch.setattr(producer_module, "Wire", lambda *_, **__: wire)
        made = TransactionalProducer(KafkaSettings.of("127.0.0.1:1"), "id", timeout_ms=60_000, limits=limits)
        if begun:
            made.init()
            made.begin()
        return made, wire

    yield make
    for wire in wires:
        wire.close()


def batch(value: bytes, partition: int = 0, topic: str = "t") -> EncodedBatch:
    return encode_records(topic, partition, [(b"k", value, None, 1_000)] * 2)


def header(data: bytes) -> tuple[int, int, int]:
    """Producer id, epoch and first sequence."""
    return struct.unpack_from(">qhi", data, 43)  # type: ignore[return-value]


def sequences(wire: ScriptedWire, partition: int = 0) -> list[int]:
    return [header(data)[2] for at, data in wire.batches if at == partition]


def test_a_transaction_in_the_order_that_brokers_need(make: Make) -> None:
    producer, wire = make()
    producer.send([batch(b"1"), batch(b"2", 1)])
    producer.produce("t", b"k", b"3", partition=2)
    producer.commit()

    assert [name for name in wire.story if name != "Metadata"] == [
        "FindCoordinator",
        "InitProducerId",
        "AddPartitionsToTxn",
        "Produce",
        "AddPartitionsToTxn",
        "Produce",
        "EndTxn",
    ]
    assert {header(data) for _, data in wire.batches} == {(*PRODUCER, 0)}


def test_a_transaction_without_a_record_is_none_for_the_brokers(make: Make) -> None:
    producer, wire = make()
    producer.commit()
    producer.begin()
    producer.abort()
    assert "EndTxn" not in wire.story


def test_sequences_go_on_after_a_commit_and_begin_anew_after_an_abort(make: Make) -> None:
    producer, wire = make()
    for _ in range(2):
        producer.send([batch(b"v")])
        producer.commit()
        producer.begin()
    producer.abort()
    producer.begin()
    producer.send([batch(b"v")])
    producer.commit()

    assert [header(data) for _, data in wire.batches] == [(7, 3, 0), (7, 3, 2), (7, 4, 0)]


def test_a_sequence_begins_anew_after_the_largest_number(make: Make) -> None:
    producer, wire = make()
    producer.send([batch(b"v")])
    producer.flush()
    producer._sender._partitions["t", 0].sequence = 0x7FFFFFFF - 1
    producer.send([batch(b"v")])
    producer.send([batch(b"v")])
    producer.flush()
    assert sequences(wire) == [0, 0x7FFFFFFF - 1, 0]


def test_a_partition_that_does_not_know_the_producer_gets_one_batch_at_first(make: Make) -> None:
    producer, wire = make()
    wire.held = True
    for number in range(3):
        producer.send([batch(b"%d" % number)])
    wire.settle()
    assert sequences(wire) == [0]
    wire.answer_all()
    assert sequences(wire) == [0, 2, 4]


def test_at_most_five_batches_of_a_partition_are_on_their_way(make: Make) -> None:
    producer, wire = make()
    producer.send([batch(b"v")])
    producer.flush()
    wire.held = True
    for _ in range(9):
        producer.send([batch(b"v")])
    wire.settle()
    assert sequences(wire) == [0, 2, 4, 6, 8, 10]
    wire.answer_all()
    assert sequences(wire)[6:] == [12, 14, 16, 18]


@pytest.mark.parametrize(
    "answer",
    [
        KafkaConnectionError("lost"),
        RequestTimedOutError("no answer"),
        RequestTimedOutError,
        OSError("reset"),
        NotLeaderForPartitionError,
        LeaderNotAvailableError,
        KafkaStorageError,
        NotEnoughReplicasError,
    ],
    ids=str,
)
def test_what_may_be_lost_is_sent_again_the_same_bytes_one_at_a_time(make: Make, answer: Any) -> None:
    producer, wire = make()
    producer.send([batch(b"v")])
    producer.flush()
    early = OutOfOrderSequenceNumberError.errno  # what the broker says to those behind the one that is missing
    wire.answers = {"Produce": [told(answer), early, early]}
    wire.held = True
    for number in range(4):
        producer.send([batch(b"%d" % number)])
        if number == 2:
            wire.settle()
    sent_first = wire.batches[1:4]
    wire.answer_all()  # also of the fourth, whose success can only be a duplicate's

    for repeated in range(3):
        assert wire.batches[5 + repeated :] == [sent_first[repeated]], "one at a time"
        wire.answer_all()
    producer.commit()
    assert "Metadata" in wire.story


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (InvalidProducerEpochError, FencedError, "Another producer has taken"),
        (ProducerFencedError, FencedError, "Another producer has taken"),
        (OutOfOrderSequenceNumberError, EosError, "OutOfOrderSequenceNumberError"),
        (TransactionAbortableError, EosError, "TransactionAbortableError"),
        (InvalidTxnStateError, EosError, "InvalidTxnStateError"),
        (MessageSizeTooLargeError, ConfigurationError, "A record for topic t is too large"),
        (InvalidRecordError, ConfigurationError, "The brokers rejected a record for topic t"),
        (kafka.errors.TopicAuthorizationFailedError, ConfigurationError, "refused User:ANONYMOUS .*: Write on Topic t"),
        (UNKNOWN, EosError, "answered with an error"),
    ],
    ids=str,
)
def test_what_ends_a_transaction_is_not_repeated(make: Make, answer: Any, kind: type[EosError], words: str) -> None:
    producer, wire = make(Produce=[answer])
    with pytest.raises(kind, match=words):
        (producer.send([batch(b"v")]), producer.flush())
    assert len(wire.batches) == 1
    assert wire.story[-1] == "EndTxn"
    assert not producer.is_open
    assert producer.unsettled is None


def test_what_is_appended_already_is_acknowledged(make: Make) -> None:
    producer, wire = make(Produce=[DuplicateSequenceNumberError])
    producer.send([batch(b"v")])
    producer.commit()
    assert len(wire.batches) == 1


@pytest.mark.parametrize("name", ["InitProducerId", "AddPartitionsToTxn", "EndTxn"])
@pytest.mark.parametrize(
    ("answer", "looks"),
    [
        (ConcurrentTransactionsError, 1),
        (NotCoordinatorError, 2),
        (CoordinatorLoadInProgressError, 2),
        (KafkaConnectionError("lost"), 2),
    ],
    ids=str,
)
def test_a_coordinator_is_asked_again_and_looked_up_if_it_moved(make: Make, name: str, answer: Any, looks: int) -> None:
    producer, wire = make(**{name: [answer]})
    producer.send([batch(b"v")])
    producer.commit()
    assert wire.story.count(name) == 2
    assert wire.story.count("FindCoordinator") == looks


@pytest.mark.parametrize("name", ["InitProducerId", "AddPartitionsToTxn", "EndTxn"])
def test_who_is_fenced_at_the_coordinator_stops(make: Make, name: str) -> None:
    producer, wire = make(begun=False, **{name: [ProducerFencedError]})

    def write() -> None:
        producer.init()
        producer.begin()
        producer.send([batch(b"v")])
        producer.commit()

    with pytest.raises(FencedError):
        write()
    assert wire.story.count(name) == 1 + (name == "EndTxn")  # the abort


def test_a_commit_without_a_name_for_its_error_is_undecided(make: Make) -> None:
    producer, _ = make(EndTxn=[UNKNOWN])
    producer.send([batch(b"v")])
    with pytest.raises(UndecidedError, match="cannot tell whether it is committed"):
        producer.commit()
    assert producer.unsettled is None  # the abort says that it was not


def test_a_commit_that_may_have_taken_effect_cannot_be_aborted(make: Make) -> None:
    producer, _ = make(EndTxn=[UNKNOWN, InvalidTxnStateError])
    producer.send([batch(b"v")])
    with pytest.raises(UndecidedError):
        producer.commit()
    assert producer.unsettled is not None


def test_a_coordinator_that_never_answers_is_waited_for_no_longer_than_allowed(make: Make) -> None:
    producer, _ = make(begun=False, limits=Limits(0.2, 0.2, 0.2), InitProducerId=[ConcurrentTransactionsError] * 99)
    with pytest.raises(UnreachableError, match="taking the id, transactional id id"):
        producer.init()


@pytest.mark.parametrize(
    ("name", "error", "right"),
    [
        ("FindCoordinator", kafka.errors.TransactionalIdAuthorizationFailedError, "Write on TransactionalId"),
        ("InitProducerId", kafka.errors.ClusterAuthorizationFailedError, "IdempotentWrite on Cluster"),
        ("Connect", kafka.errors.SaslAuthenticationFailedError, "credentials"),
    ],
)
def test_a_refusal_is_named_at_once(make: Make, name: str, error: Any, right: str) -> None:
    producer, wire = make(begun=False, **{name: [error]})
    with pytest.raises(ConfigurationError, match=right):
        producer.init()
    assert wire.story.count(name) == (name != "Connect")


def test_a_request_that_was_not_sent_is_sent_later(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a broker throttles."""
    producer, wire = make()
    send, throttled = wire.send, [1, 2]

    def paused(request: Any, node_id: int) -> Any:
        if type(request).__name__ == "ProduceRequest" and throttled:
            throttled.pop()
            raise NotSentError(kafka.errors.NodeNotReadyError("throttled"))
        return send(request, node_id)

    monkeypatch.setattr(wire, "send", paused)
    producer.send([batch(b"v")])
    producer.commit()
    assert len(wire.batches) == 1


def test_a_partition_without_a_leader_is_waited_for(make: Make) -> None:
    producer, wire = make(limits=Limits(1, 0.3, 1))
    wire.leaders["t", 0] = None
    producer.send([batch(b"v")])
    with pytest.raises(EosError, match=r"2 records of id were not taken in 0 s"):
        producer.flush()
    assert not wire.batches


def test_a_topic_that_no_broker_was_asked_for_in_time_is_not_called_missing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_eos_provider.kafka.write.sender._UNKNOWN_TOPIC_SECONDS", 0.0)
    producer, wire = make(limits=Limits(1, 0.2, 1), Metadata=[RequestTimedOutError] * 99)
    wire.partitions = None
    with pytest.raises(UnreachableError, match="did not answer"):
        producer.partitions("t")
    wire.answers.clear()
    producer.begin()
    with pytest.raises(ConfigurationError, match="There is no topic t"):
        producer.partitions("t")


def test_a_wait_that_a_signal_has_ended_adds_nothing_to_the_next_transaction(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, wire = make()
    sender = producer._sender
    monkeypatch.setattr(sender, "_most_bytes", 1)
    wire.held = True
    producer.send([batch(b"first")])
    wire.start(sender.take, [batch(b"late")], 5.0)  # waits for room; whoever began it is gone
    wire.settle()
    wire.held = False
    wire.answer_all()
    producer.abort()
    producer.begin()
    producer.send([batch(b"next")])
    producer.commit()

    epochs = [header(data)[1] for _, data in wire.batches if b"late" in data]
    assert epochs in ([], [PRODUCER[1]])


def test_a_commit_that_a_signal_has_ended_commits_nothing_of_the_next_transaction(make: Make) -> None:
    producer, wire = make(EndTxn=[ConcurrentTransactionsError])
    producer.send([batch(b"first")])
    producer.flush()
    wire.start(producer._sender.commit, time.monotonic() + 5.0)  # is to be asked again; whoever began it is gone
    producer.abort()
    producer.begin()
    producer.send([batch(b"next")])
    producer.flush()
    wire.settle()

    assert wire.story.count("EndTxn") == 2  # the first attempt, and the abort


def test_a_producer_that_is_closed_says_so() -> None:
    producer = TransactionalProducer(KafkaSettings.of("127.0.0.1:1"), "t", timeout_ms=9_000)
    producer.close()
    with pytest.raises(UnreachableError, match="the connections are closed"):
        producer.init()


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"compression.type": "brotli"}, "compression.type is 'brotli'"),
        ({"retries": "0"}, r"property retries is '0'[\s\S]*kafka connection"),
        ({"max.in.flight": "6"}, "max.in.flight is '6'"),
        ({"batch.size": "many"}, "batch.size is 'many'"),
        ({"delivery.timeout.ms": "-1"}, "delivery.timeout.ms is '-1'"),
    ],
)
def test_a_property_that_cannot_be_kept_is_named(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Options.of(properties, 60_000)


def test_properties_keep_librdkafkas_names() -> None:
    found = Options.of(
        {
            "compression.codec": "zstd",
            "compression.level": "3",
            "batch.size": "5000000",
            "message.max.bytes": "2000000",
            "message.timeout.ms": "5000",
            "queue.buffering.max.kbytes": "10",
            "request.timeout.ms": "700",
            "max.in.flight": "2",
        },
        60_000,
    )
    assert found == Options("zstd", 3, 2_000_000, 2_000_000, 10 << 10, 5.0, 700, 2)


@pytest.mark.parametrize("name", ["acks", "request.required.acks", "enable.idempotence", "partitioner"])
def test_shared_settings_do_not_decide_what_a_transaction_rests_on(name: str) -> None:
    settings = KafkaSettings.of("127.0.0.1:1", {name: {"partitioner": "random"}.get(name, "0")})
    producer = TransactionalProducer(settings, "t", timeout_ms=9_000)
    assert not producer.is_open
    producer.close()


def test_a_producer_that_nobody_refers_to_ends_its_thread() -> None:
    producer = TransactionalProducer(KafkaSettings.of("127.0.0.1:1"), "t", timeout_ms=9_000)
    thread = producer._wire._thread
    assert thread.is_alive()
    del producer
    thread.join(180)
    assert not thread.is_alive()
