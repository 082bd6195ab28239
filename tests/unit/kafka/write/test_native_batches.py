"""Where rows cannot be handed to librdkafka in batches, the log says so once, and why."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from airflow_eos_provider.kafka.write import native_batches
from airflow_eos_provider.kafka.write.native_batches import NativeBatches, why_not


@pytest.fixture(autouse=True)
def _nothing_said() -> Iterator[None]:
    native_batches._say_once.cache_clear()
    yield
    native_batches._say_once.cache_clear()


def batches() -> NativeBatches | None:
    def refused(error: KafkaError, topic: str) -> None: ...

    return NativeBatches.of(Producer({"bootstrap.servers": "127.0.0.1:1"}), refused, lambda _: None)


def test_an_unknown_version_is_reported_once_with_what_it_costs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The version is a mock: there is none yet that is unknown."""
    monkeypatch.setattr(native_batches.confluent_kafka, "__version__", "99.1.0")

    with caplog.at_level(logging.INFO, native_batches.__name__):
        assert [batches(), batches()] == [None, None]

    (line,) = [record.getMessage() for record in caplog.records if record.name == native_batches.__name__]
    assert "confluent-kafka is 99.1.0; known are 2.16.*" in line
    assert "twice the CPU time" in line


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HAS_NUMPY", False, "numpy is not installed"),
        ("_KNOWN", dict.fromkeys(native_batches._KNOWN, 8), "expected are 8"),
        ("_MACHINES", ("vax",), "known is cpython on vax"),
        ("_library", lambda: None, "librdkafka"),
    ],
)
def test_each_reason_is_named(name: str, value: object, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not() == ""
    monkeypatch.setattr(native_batches, name, value)

    assert words in why_not()


def test_nothing_is_said_where_there_are_batches(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, native_batches.__name__):
        assert batches() is not None

    assert not [record for record in caplog.records if record.name == native_batches.__name__]
