"""What can be known of reading a topic without a broker; the rest is in tests/integration/test_seeing.py."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.kafka.admin import client
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.quiet import quiet_kafka_python
from airflow_eos_provider.kafka.read import reader as read
from airflow_eos_provider.kafka.read.reader import LogRecord, TopicRead, read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

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


@pytest.fixture
def seconds_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (read, client):
        monkeypatch.setattr(module, "CONNECT_SECONDS", 3.0)


@pytest.mark.usefixtures("seconds_to_connect")
def test_a_broker_that_is_not_there_is_reported_within_seconds_with_the_reason(
    capfd: pytest.CaptureFixture[str], task_log: list[logging.LogRecord]
) -> None:
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1.*Connection refused"):
        read_to_end(NOBODY, "t")
    assert time.monotonic() - started < 120
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")  # librdkafka's own lines do not spill over the operator's screen
    assert task_log == []  # nor into the log of the task that asked


@pytest.mark.usefixtures("seconds_to_connect")
def test_transactions_of_a_broker_that_is_not_there_are_reported_within_seconds(
    capfd: pytest.CaptureFixture[str], task_log: list[logging.LogRecord]
) -> None:
    started = time.monotonic()
    with TransactionsClient(NOBODY) as client, pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        client.list()
    assert time.monotonic() - started < 120
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")
    assert [record.getMessage() for record in task_log] == []  # kafka-python reports each attempt, as an error even


#: In a process of its own: while any client of this one is open, whichever test it is of, kafka-python is quiet.
_LEVELS = """
import logging
import subprocess
import sys
from airflow_eos_provider.kafka.quiet import quiet_kafka_python

def levels():
    return [logging.getLogger(name).level for name in ("kafka", "kafka.admin.client", "kafka.net.connection")]

def shows(name, level):
    return logging.getLogger(name).isEnabledFor(level)

before = levels()
with quiet_kafka_python(), quiet_kafka_python():
    assert not shows("kafka.cluster", logging.ERROR)
    assert not shows("kafka.net.connection", logging.ERROR)
assert levels() == before
logging.getLogger("airflow_eos_provider").setLevel(logging.DEBUG)
with quiet_kafka_python():
    assert shows("kafka.cluster", logging.ERROR)
    assert not shows("kafka.net.connection", logging.DEBUG)
assert levels() == before
"""


def test_kafka_python_is_left_alone_outside_our_calls_and_speaks_where_it_is_wanted() -> None:
    done = subprocess.run([sys.executable, "-c", _LEVELS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_password_is_logged_at_any_level(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()  # a client that another test has left to the collector keeps kafka-python quiet
    caplog.set_level(logging.DEBUG)
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    settings = KafkaSettings.of("127.0.0.1:1", {**client, "sasl.password": "canary-7f3a"})
    with TransactionsClient(settings, timeout_seconds=1) as client, pytest.raises(UnreachableError) as first:
        client.list()
    with pytest.raises(UnreachableError) as second:
        read_to_end(settings, "t", timeout_seconds=1)
    assert caplog.records  # so there was something to look at
    # Its requests are written in full at DEBUG, and one of them carries the password; only a broker could provoke it.
    with quiet_kafka_python():
        for name in ("kafka.net.connection", "kafka.admin.client", "kafka.protocol.parser"):
            assert not logging.getLogger(name).isEnabledFor(logging.DEBUG)
    assert "canary-7f3a" not in f"{caplog.text} {first.value} {second.value} {settings}"


def test_a_property_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"no\.such\.property"):
        read_to_end(KafkaSettings.of("127.0.0.1:1", {"no.such.property": "canary"}), "t")


def test_an_isolation_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="read_commited"):
        read_to_end(NOBODY, "t", isolation="read_commited")


@pytest.mark.parametrize("timeout_seconds", [0.5, 1.5])
def test_a_shorter_limit_is_kept(timeout_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "CONNECT_SECONDS", 120.0)
    started = time.monotonic()
    with pytest.raises(UnreachableError):
        read_to_end(NOBODY, "t", timeout_seconds=timeout_seconds)
    assert time.monotonic() - started < read.CONNECT_SECONDS
