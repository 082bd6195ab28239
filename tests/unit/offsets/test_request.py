"""What a request writes, where that is not one decision of ``changes``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.topics.source_offsets import OffsetLog, offset_key
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.read.writers import TopicWriters
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.offsets.topic import OffsetsTopic
from airflow_eos_provider.offsets.verbs.changes import Write
from airflow_eos_provider.offsets.verbs.request import OffsetsRequest, Verb
from airflow_eos_provider.stored import from_json, to_json

KEY = offset_key("gone", {"file": "a"})


def reader(*, exists: bool) -> Any:
    """It has the global topic alone; where else a deleted connector may have offsets is not asked."""
    ends = dict.fromkeys(range(5), 1)
    log = OffsetLog("global")
    log.take([LogRecord("global", partition_of(KEY, 5), 0, 0, KEY, b"1")])
    topic = OffsetsTopic("global", "id", ends, log.committed(), {}, TopicWriters(None, {}, ends, {}))
    return SimpleNamespace(exists=lambda connector: exists, global_topic=lambda: topic)


def test_only_the_global_topic_is_pruned_and_of_deleted_connectors_only() -> None:
    prune = OffsetsRequest(Verb.PRUNE, "gone")
    written = Write("global", partition_of(KEY, 5), KEY, b"1", None)
    assert prune.writes(reader(exists=False), "kafka-1", "g") == [written]
    with pytest.raises(RefusedError, match="its offsets are not leftovers"):
        prune.writes(reader(exists=True), "kafka-1", "g")


def test_a_copy_to_the_same_name_needs_a_backup() -> None:
    with pytest.raises(ConfigurationError, match="must be copied from another connector"):
        OffsetsRequest(Verb.COPY, "c", source="c")
    with pytest.raises(ConfigurationError, match="must be copied from another connector"):
        OffsetsRequest(Verb.COPY, "c", file="b.jsonl")
    copy = OffsetsRequest(Verb.COPY, "c", source="c", file="b.jsonl")
    assert from_json(OffsetsRequest, to_json(copy)) == copy
    assert not copy.carries, "its values are those of the file, and count"
