"""Rows into Kafka: Arrow batches of one slice become one transaction, the ledger record last.

The ledger record stands in the transaction of the slice's own records, so both are visible or neither is. It is
produced last, because from then until the commit it holds up every reader of its ledger partition.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.ledger import DIGEST_MODULUS, SliceRecord, slice_record
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.producer import Headers, TransactionalProducer
from airflow_eos_provider.interval.stage import OnStep, SliceResult, Stage, silent
from airflow_eos_provider.interval.topics import TargetTopics
from airflow_eos_provider.kafka.partitioner import partition_of

#: The columns that a row may have; ``value`` it must have.
COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")

#: A queue of librdkafka's that keeps the network busy while rows are turned into records.
_PRODUCER = {"linger.ms": "20", "batch.size": "1000000", "queue.buffering.max.messages": "500000"}

#: Rows after which the answers of the brokers are looked at.
_ROWS_BETWEEN_POLLS = 5_000

_LENGTH_BYTES = 4
_NO_BYTES = b"\xff\xff\xff\xff"


class Digest:
    """An order-free digest of records: the sum of their hashes modulo 2^128, so that parts add up to the whole."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> None:
        """Count one record in. A missing key or value is unlike an empty one."""
        parts = [_prefixed(topic.encode()), _prefixed(key), _prefixed(value)]
        for name, content in headers or ():
            parts += (_prefixed(name.encode()), _prefixed(_as_bytes(content)))
        self.total += int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=16).digest(), "big")

    def add_all(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Headers | None = None,
    ) -> None:
        """As :meth:`add` for each record, in less time: its loop is what most rows go through."""
        head = _prefixed(topic.encode())
        tail = b"".join(_prefixed(name.encode()) + _prefixed(_as_bytes(content)) for name, content in headers or ())
        prefix, hashed, number = _Prefixes(), hashlib.blake2b, int.from_bytes
        total = 0
        for key, value in zip(keys, values, strict=True):
            if key is None or value is None:
                self.add(topic, key, value, headers)
                continue
            record = b"".join((head, prefix[len(key)], key, prefix[len(value)], value, tail))
            total += number(hashed(record, digest_size=16).digest(), "big")
        self.total += total

    @property
    def text(self) -> str:
        """32 hexadecimal digits."""
        return f"{self.total % DIGEST_MODULUS:032x}"


class _Prefixes(dict[int, bytes]):
    """By length its bytes; few lengths are met, so each is written once."""

    def __missing__(self, length: int) -> bytes:
        self[length] = made = length.to_bytes(_LENGTH_BYTES, "big")
        return made


def _as_bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _prefixed(content: bytes | None) -> bytes:
    return _NO_BYTES if content is None else len(content).to_bytes(_LENGTH_BYTES, "big") + content


class Row(NamedTuple):
    """One record to be written; a tuple, for millions are made."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    partition: int
    timestamp_ms: int


class SliceWriter:
    """Writes slices of one run under one transactional id.

    :param pipeline: where to.
    :param stage: the generation whose slices are written.
    :param producer: the id's holder, initialised.
    :param on_step: told of each step before it is taken.
    """

    def __init__(
        self, pipeline: Pipeline, stage: Stage, producer: TransactionalProducer, on_step: OnStep = silent
    ) -> None:
        self._pipeline = pipeline
        self._stage = stage
        self._producer = producer
        self._step = on_step
        self._topics = TargetTopics(pipeline.kafka)
        self._run_header: Headers | None = (
            None if pipeline.run_header is None else [(pipeline.run_header, stage.run.name.encode())]
        )

    def write(self, number: int, batches: Iterable[pa.RecordBatch]) -> SliceResult:
        """Write one slice: begin, produce, flush, ledger record last, commit.

        :param number: the slice.
        :param batches: its rows; see :data:`COLUMNS`. May be empty: then its ledger record alone is written.
        :raises ConfigurationError: a column or topic is wrong, named in the message. The transaction is aborted.
        :raises FencedError: a later attempt has taken the id.
        """
        began = time.monotonic()
        self._step("begin")
        self._producer.begin()
        try:
            self._step("produce")
            records, size, digest = self._produce(batches)
            self._step("flush")
            self._producer.flush()
            self._step("ledger record")
            self._produce_ledger_record(number, SliceRecord(self._stage.plan_hash, records, digest))
            self._step("commit")
            self._producer.commit()
        except BaseException:
            self._producer.abort()
            raise
        return SliceResult(number, records, size, digest, time.monotonic() - began)

    def _produce(self, batches: Iterable[pa.RecordBatch]) -> tuple[int, int, str]:
        digest = Digest()
        records = size = 0
        for batch in batches:
            if self._pipeline.topic is not None and set(batch.schema.names) <= {"key", "value"}:
                records += batch.num_rows
                size += self._produce_plain(batch, self._pipeline.topic, digest)
                continue
            for row in rows_of(batch, self._pipeline.topic, self._run_header):
                self._topics.require(row.topic)
                self._producer.produce(
                    row.topic,
                    row.key,
                    row.value,
                    partition=row.partition,
                    headers=row.headers,
                    timestamp_ms=row.timestamp_ms,
                )
                digest.add(row.topic, row.key, row.value, row.headers)
                size += len(row.key or b"") + len(row.value or b"")
                records += 1
                if records % _ROWS_BETWEEN_POLLS == 0:
                    self._producer.poll()
        return records, size, digest.text

    def _produce_plain(self, batch: pa.RecordBatch, topic: str, digest: Digest) -> int:
        """Keys and values for one topic: no row is made of them, which saves more than a third of the time.

        :returns: their bytes.
        """
        check_columns(batch.schema)
        self._topics.require(topic)
        keys, values = _values(batch, "key"), _values(batch, "value")
        self._producer.produce_all(topic, keys, values, self._run_header)
        self._producer.poll()
        digest.add_all(topic, keys, values, self._run_header)
        return sum(len(content) for content in (*keys, *values) if content)

    def _produce_ledger_record(self, number: int, record: SliceRecord) -> None:
        key, value = slice_record(self._stage.run, number, record)
        partition = partition_of(key, len(self._stage.ledger_positions))
        self._producer.produce(self._pipeline.ledger_topic, key, value, partition=partition)
        self._producer.flush()


def open_producer(pipeline: Pipeline, transactional_id: str) -> TransactionalProducer:
    """A producer for records of this pipeline; not initialised."""
    return TransactionalProducer(
        pipeline.kafka,
        transactional_id,
        timeout_ms=pipeline.transaction_timeout_ms,
        known_topic=pipeline.ledger_topic,
        properties={**_PRODUCER, **pipeline.producer},
    )


def rows_of(batch: pa.RecordBatch, topic: str | None, more_headers: Headers | None = None) -> Iterable[Row]:
    """The rows of a batch as records.

    :param topic: for rows that name none.
    :param more_headers: appended to each row's own.
    :raises ConfigurationError: a column is missing, unknown or of the wrong type; a row has no topic.
    """
    check_columns(batch.schema)
    columns = {name: _values(batch, name) for name in COLUMNS}
    for key, value, headers, own_topic, partition, timestamp in zip(*(columns[name] for name in COLUMNS), strict=True):
        target = own_topic or topic
        if target is None:
            raise ConfigurationError(
                "A row names no topic, and the pipeline has none.",
                remedy="Fill the column topic, or give the pipeline a topic.",
            )
        if partition is not None and partition < 0:
            raise ConfigurationError(f"Column partition has the value {partition}.", expected="0 or more, or null")
        yield Row(
            topic=target,
            key=key,
            value=value,
            headers=_headers(headers, more_headers),
            partition=-1 if partition is None else partition,
            timestamp_ms=_timestamp(timestamp),
        )


def check_columns(schema: pa.Schema) -> None:
    """
    :raises ConfigurationError: a column is missing, unknown or of the wrong type; it is named.
    """
    unknown = [name for name in schema.names if name not in COLUMNS]
    if unknown:
        raise ConfigurationError(
            f"Column {unknown[0]} has no place in a Kafka record.", expected=f"columns among {', '.join(COLUMNS)}"
        )
    if "value" not in schema.names:
        raise ConfigurationError("Column value is missing.", expected="a column value, of binary or string")
    for name, (fits, expected) in _TYPES.items():
        if name in schema.names and not fits(schema.field(name).type):
            raise ConfigurationError(f"Column {name} is of type {schema.field(name).type}.", expected=expected)


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_null,
    )
    return any(test(kind) for test in tests)


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    names = [kind.value_type.field(i).name for i in range(kind.value_type.num_fields)]
    return bool(sorted(names) == ["key", "value"])


_TYPES: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "key": (_is_text_or_bytes, "binary or string"),
    "value": (_is_text_or_bytes, "binary or string"),
    "headers": (_is_headers, "array<struct<key: string, value: binary>>"),
    "topic": (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "string"),
    "partition": (pa.types.is_integer, "int"),
    "timestamp": (lambda kind: pa.types.is_timestamp(kind) or pa.types.is_integer(kind), "timestamp, or milliseconds"),
}


def _values(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if name in ("key", "value") and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _headers(headers: Sequence[dict[str, Any]] | None, more: Headers | None) -> Headers | None:
    if not headers:
        return more
    found: Headers = []
    for header in headers:
        if header is None or header["key"] is None:
            raise ConfigurationError("A header in column headers has no key.", expected="a name for every header")
        found.append((header["key"], header["value"]))
    return found + (more or [])


def _timestamp(timestamp_ms: int | None) -> int:
    if timestamp_ms is None:
        return 0
    if timestamp_ms <= 0:
        raise ConfigurationError(
            f"Column timestamp has the value {timestamp_ms} ms.", expected="a moment after 1970, or null for now"
        )
    return timestamp_ms
