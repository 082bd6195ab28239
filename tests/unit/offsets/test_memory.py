"""How much memory the offsets of a topic take: so much for each key, nothing for further records, nothing to show."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_eos_provider.cli.common import print_documents
from airflow_eos_provider.connect.offsets import OffsetLog
from airflow_eos_provider.kafka.read import LogRecord
from airflow_eos_provider.kafka.writers import Batch, PartitionWriters, TopicWriters
from airflow_eos_provider.offsets import backup
from airflow_eos_provider.offsets.group import GroupOffsets, SeenOffset
from airflow_eos_provider.offsets.topic import OffsetsTopic

PARTITIONS = 5

#: What one of these offsets may take: two objects of Python, and their places in a dictionary and a list. Some 185 are
#: needed; with one object more, of whatever kind, it is beyond.
BYTES_OF_AN_OFFSET = 240


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


def test_memory_grows_with_the_keys_of_a_topic_and_not_with_its_records() -> None:
    group_of(100, 100)  # what is made once for all
    _, few = memory(lambda: group_of(5_000, 1_000))
    _, many = memory(lambda: group_of(20_000, 1_000))
    assert many < 1.1 * few


def test_an_offset_takes_little_more_than_its_own_bytes() -> None:
    few, _ = memory(lambda: group_of(5_000, 5_000))
    many, most = memory(lambda: group_of(20_000, 20_000))
    assert (many - few) / 15_000 < BYTES_OF_AN_OFFSET
    assert most < 1.3 * many


def write_backup(group: GroupOffsets, folder: Path) -> None:
    count, _ = backup.write(backup.take(group, "cluster", "g", 1.0), folder / f"{group.global_topic.ends[0]}.jsonl")
    assert count == group.global_topic.ends[0]


def print_list(group: GroupOffsets, _: Path) -> None:
    assert print_documents(group.of("many"), SeenOffset.to_dict, str, None, as_json=True)


@pytest.mark.parametrize("show", [write_backup, print_list])
def test_a_backup_and_a_list_hold_one_offset_at_a_time(
    show: Callable[[GroupOffsets, Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    small, large = group_of(1_000, 1_000), group_of(4_000, 4_000)
    show(group_of(10, 10), tmp_path)  # what is made once for all
    _, few = memory(lambda: show(small, tmp_path))
    _, many = memory(lambda: show(large, tmp_path))
    assert many < few + 50_000, "it grows with the offsets"
    capfd.readouterr()
