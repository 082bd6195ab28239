"""What can be told of reading a topic without a broker; the rest is in tests/integration/test_seeing.py."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.kafka.config import KafkaSettings
from airflow_eos_provider.kafka.log import LogRecord, TopicRead, read_to_end
from airflow_eos_provider.kafka.transactions import TransactionsClient

#: Nothing listens on port 1 of this machine.
NOBODY = KafkaSettings.of("127.0.0.1:1")


@pytest.fixture
def task_log() -> Iterator[list[logging.LogRecord]]:
    """What the root logger is given. caplog would not do: it also listens to loggers that do not propagate."""
    records: list[logging.LogRecord] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    listener = Listener()
    logging.getLogger().addHandler(listener)
    yield records
    logging.getLogger().removeHandler(listener)


def test_the_text_of_a_record_and_of_a_read_leaves_values_out() -> None:
    record = LogRecord("t", 0, 7, 0, b"key", b"canary")
    assert "b'key'" in repr(record)
    assert "canary" not in repr(record)
    assert "canary" not in repr(TopicRead("t", (record,), {0: 0}, {0: 8}))


def test_a_broker_that_is_not_there_is_reported_within_seconds_with_the_reason(
    capfd: pytest.CaptureFixture[str], task_log: list[logging.LogRecord]
) -> None:
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1.*Connection refused"):
        read_to_end(NOBODY, "t")
    assert time.monotonic() - started < 8
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")  # librdkafka's own lines do not spill over the operator's screen
    assert task_log == []  # nor into the log of the task that asked


def test_transactions_of_a_broker_that_is_not_there_are_reported_within_seconds(
    capfd: pytest.CaptureFixture[str],
) -> None:
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"), TransactionsClient(NOBODY):
        pass
    assert time.monotonic() - started < 8
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_no_password_is_logged_at_any_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    settings = KafkaSettings.of("127.0.0.1:1", {**client, "sasl.password": "canary-7f3a"})
    with pytest.raises(UnreachableError) as first, TransactionsClient(settings, timeout_seconds=1):
        pass
    with pytest.raises(UnreachableError) as second:
        read_to_end(settings, "t", timeout_seconds=1)
    assert caplog.records  # so there was something to look at
    # Its requests are written in full at DEBUG, and one of them carries the password; only a broker could provoke it.
    assert not logging.getLogger("kafka.net.connection").isEnabledFor(logging.DEBUG)
    assert "canary-7f3a" not in f"{caplog.text} {first.value} {second.value} {settings}"


def test_a_property_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"no\.such\.property"):
        read_to_end(KafkaSettings.of("127.0.0.1:1", {"no.such.property": "canary"}), "t")


def test_an_isolation_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="read_commited"):
        read_to_end(NOBODY, "t", isolation="read_commited")


@pytest.mark.parametrize("timeout_seconds", [0.5, 2.0])
def test_a_shorter_limit_is_kept(timeout_seconds: float) -> None:
    started = time.monotonic()
    with pytest.raises(UnreachableError):
        read_to_end(NOBODY, "t", timeout_seconds=timeout_seconds)
    assert time.monotonic() - started < timeout_seconds + 2
