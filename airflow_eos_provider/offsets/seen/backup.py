"""A backup of source offsets: a file of JSON lines that a person can read and that has every byte.

The first line describes the backup. The last one has the number of records and a digest of all lines before it, so
that a file that was cut off or edited is refused. In between is a line for each key of a topic: key, value and headers
as base64, with their meaning, for readers only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.topics.source_offsets import OffsetKey, OffsetRecord
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic
from airflow_eos_provider.offsets.seen.group_offsets import GroupOffsets
from airflow_eos_provider.stored import from_json, to_json

KIND, SCHEMA = "connect-source-offsets", 1


@dataclass(frozen=True, slots=True)
class BackedUpTopic:
    """A topic in a backup."""

    name: str
    id: str | None  #: its topic id; None if the brokers did not tell
    ends: Mapping[int, int]  #: by partition the offset up to which it was read
    own_of: tuple[str, ...] = ()  #: the connectors whose own topic it is; empty for the global one


@dataclass(frozen=True, slots=True)
class Backup:
    """Source offsets of one moment."""

    cluster_id: str
    group_id: str
    taken_at: float  #: seconds since 1970
    connectors: tuple[str, ...] | None  #: those that were backed up, None for the whole of each topic
    topics: tuple[BackedUpTopic, ...]
    #: The newest committed record of each key and partition, removals left out. Those of a backup that is :func:`taken
    #: <take>` are made while they are iterated, since there may be more than memory has room for.
    records: Iterable[OffsetRecord] = field(repr=False)
    #: The connectors whose own topic could not be read, so that what their tasks read is not in it.
    without: tuple[str, ...] = ()
    #: Of one that was read from a file: SHA-256 of all before its last line.
    digest: str = field(default="", compare=False)

    def header(self) -> dict[str, Any]:
        """What the file's first line says."""
        return {
            "kind": KIND,
            "schema": SCHEMA,
            "cluster_id": self.cluster_id,
            "group_id": self.group_id,
            "taken_at": datetime.fromtimestamp(self.taken_at, UTC).isoformat(),
            "connectors": None if self.connectors is None else list(self.connectors),
            "topics": to_json(self.topics),
            **({"without": list(self.without)} if self.without else {}),
        }

    def connectors_with_offsets(self) -> list[str]:
        """Those of which it has an offset."""
        return sorted({record.key.connector for record in self.records if record.key.connector is not None})

    def require_read(self, connector: str) -> None:
        """Go on only if it has what the tasks of a connector read."""
        if connector in self.without:
            raise ConfigurationError(
                f"The backup is without the own offsets topic of {connector}: it could not be read when it was taken.",
                remedy="Take the offsets from another backup.",
            )


def take(
    offsets: GroupOffsets, cluster_id: str, group_id: str, taken_at: float, connector: str | None = None
) -> Backup:
    """What a group's topics hold, as a backup."""
    topics: list[tuple[OffsetsTopic, tuple[str, ...]]] = [(offsets.global_topic, ())]
    for name, topic in offsets.own_topics.items():
        topics.append((topic, tuple(sorted(c for c, own in offsets.own_topic_of.items() if own == name))))
    return Backup(
        cluster_id=cluster_id,
        group_id=group_id,
        taken_at=taken_at,
        connectors=None if connector is None else (connector,),
        topics=tuple(BackedUpTopic(topic.name, topic.id, topic.ends, own_of) for topic, own_of in topics),
        records=_Standing(tuple(topic for topic, _ in topics), connector),
        without=tuple(sorted(offsets.not_read)),
    )


@dataclass(frozen=True, slots=True)
class _Standing:
    """What is in some topics, of one connector or of all, without removals."""

    topics: tuple[OffsetsTopic, ...]
    connector: str | None

    def __iter__(self) -> Iterator[OffsetRecord]:
        for topic in self.topics:
            all_of_it, name = topic.committed, self.connector
            for records in all_of_it.values() if name is None else [all_of_it.get(name, ())]:
                yield from (record for record in records if not record.is_removed)


def require_new(file: Path) -> None:
    """Go on only if there is no such file."""
    if file.exists():
        raise ConfigurationError(f"{file} exists.", remedy="Name another file, or remove it.")


def write(backup: Backup, file: Path) -> tuple[int, str]:
    """Write a backup record by record; the file is there whole or not at all."""
    require_new(file)
    try:
        with tempfile.NamedTemporaryFile("wb", dir=file.parent, prefix=f".{file.name}.", delete=False) as out:
            digest, lines = hashlib.sha256(), 0
            for document in chain([backup.header()], map(_document, backup.records)):
                line = _line(document)
                digest.update(line)
                out.write(line)
                lines += 1
            records = lines - 1  # without the header
            out.write(_line({"records": records, "sha256": digest.hexdigest()}))
            out.flush()
            os.fsync(out.fileno())
        Path(out.name).replace(file)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}.") from error
    return records, digest.hexdigest()


def read(file: Path) -> Backup:
    """Read a backup."""
    try:
        with file.open("rb") as lines:
            return _read(lines, file)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_backup(file, "its first line or a record has another form") from error


def _read(lines: Iterable[bytes], file: Path) -> Backup:
    digest, records, previous = hashlib.sha256(), list[OffsetRecord](), b""
    header: dict[str, Any] = {}
    for line in lines:
        if previous:
            digest.update(previous)
            if not header:
                header = json.loads(previous)
            else:
                records.append(_record(json.loads(previous)))
        previous = line
    if header.get("kind") != KIND or header.get("schema") != SCHEMA:
        raise _no_backup(file, f"it says kind {header.get('kind')}, schema {header.get('schema')}")
    end = json.loads(previous)
    if end.get("records") != len(records) or end.get("sha256") != digest.hexdigest():
        raise _no_backup(file, "it was cut off or changed: its records do not have the digest of its last line")
    return Backup(
        cluster_id=header["cluster_id"],
        group_id=header["group_id"],
        taken_at=datetime.fromisoformat(header["taken_at"]).timestamp(),
        connectors=None if header["connectors"] is None else tuple(header["connectors"]),
        topics=from_json(tuple[BackedUpTopic, ...], header["topics"]),
        records=tuple(records),
        without=tuple(header.get("without", ())),
        digest=digest.hexdigest(),
    )


def _no_backup(file: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{file} is no backup of source offsets: {why}.", expected="a file that 'eos offsets backup' has written"
    )


def _line(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def _document(record: OffsetRecord) -> dict[str, Any]:
    return {
        "connector": record.key.connector,
        "partition": record.key.partition,
        "offset": record.offset,
        "topic": record.topic,
        "kafka_partition": record.kafka_partition,
        "position": record.position,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key.raw),
        "value": None if record.value is None else _text(record.value),
        "headers": [[name, None if content is None else _text(content)] for name, content in record.headers],
    }


def _record(document: Mapping[str, Any]) -> OffsetRecord:
    value = document["value"]
    return OffsetRecord(
        key=OffsetKey(_bytes(document["key"])),
        topic=document["topic"],
        kafka_partition=document["kafka_partition"],
        position=document["position"],
        timestamp_ms=document["timestamp_ms"],
        value=None if value is None else _bytes(value),
        headers=tuple((name, None if content is None else _bytes(content)) for name, content in document["headers"]),
    )


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
