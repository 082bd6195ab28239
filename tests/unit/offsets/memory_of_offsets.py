"""How much memory the offsets of a topic take, measured in a process of its own: ``tracemalloc`` counts every thread.

python -m tests.unit.offsets.memory_of_offsets REPORT FOLDER
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from airflow_eos_provider.connect.topics.source_offsets import OffsetLog
from airflow_eos_provider.kafka.admin.partition_writers import Batch, PartitionWriters
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.read.writers import TopicWriters
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.seen.group_offsets import GroupOffsets, SeenOffset
from airflow_eos_provider.output import print_documents

PARTITIONS = 5


def records(count: int, keys: int) -> Iterator[LogRecord]:
    """Records as a read hands them over: each with objects of its own."""
    for number in range(count):
        raw = b'["many",{"file":"part-%07d"}]' % (number % keys)
        value = b'{"position":%d}' % number
        yield LogRecord("offsets", number % keys % PARTITIONS, number, 1_700_000_000_000 + number, raw, value)


def group_of(count: int, keys: int) -> GroupOffsets:
    log = OffsetLog("offsets")
    log.take(records(count, keys))
    writers = {partition: PartitionWriters() for partition in range(PARTITIONS)}
    for of_partition in writers.values():
        of_partition.take(Batch(0, count, 7, 0, transactional=False))
    ends = dict.fromkeys(writers, count)
    topic = OffsetsTopic("offsets", "id", ends, log.committed(), log.open(), TopicWriters("id", {}, ends, writers))
    return GroupOffsets(topic, {}, {}, {})


def memory(act: Callable[[], object]) -> tuple[int, int]:
    """What an act leaves behind, and the most that it has needed, bytes."""
    tracemalloc.start()
    try:
        kept = act()
        left, most = tracemalloc.get_traced_memory()
        del kept
        return left, most
    finally:
        tracemalloc.stop()


def write_backup(group: GroupOffsets, folder: Path) -> None:
    count, _ = backup.write(backup.take(group, "cluster", "g", 1.0), folder / f"{group.global_topic.ends[0]}.jsonl")
    assert count == group.global_topic.ends[0]


def print_list(group: GroupOffsets, _: Path) -> None:
    assert print_documents(group.of("many"), SeenOffset.to_dict, str, None, as_json=True)


def measured(folder: Path) -> dict[str, list[int]]:
    """What was left and the most that was needed, bytes: with few records or offsets, then with many."""
    group_of(100, 100)  # what is made once for all
    few, many = (memory(partial(group_of, count, 1_000)) for count in (5_000, 20_000))
    found = {"records": [few[1], many[1]]}
    few, many = (memory(partial(group_of, count, count)) for count in (5_000, 20_000))
    found["offsets"] = [few[0], *many]
    for show in (write_backup, print_list):
        show(group_of(10, 10), folder)
        groups = [group_of(count, count) for count in (1_000, 4_000)]
        found[show.__name__] = [memory(partial(show, group, folder))[1] for group in groups]
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measured(Path(sys.argv[2]))), encoding="utf-8")
