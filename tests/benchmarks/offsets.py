"""Source offsets read as a task sees them, beside Connect's own ``GET /connectors/<name>/offsets``; and a backup.

Connect reads the whole offsets topic for each question, and so do we: once for the headers of its batches, which say
who wrote what and whether it is committed, and once for the records. Both clients are kept; trials alternate.

A backup and a list of a million records have no peer: they are set beside a plain read of the same topic. One topic has
a million keys, which is the most that memory has to hold, the other a thousand.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.offsets.offsets_topic import read_offsets_topic
from airflow_eos_provider.offsets.seen.group_offsets import read_group_offsets
from airflow_eos_provider.offsets.stores import OffsetStores
from tests.benchmarks.eos_command import run_eos
from tests.benchmarks.fill import fill
from tests.benchmarks.result import Result, own_lab

SIZES = (1, 100, 10_000)
TRIALS = 5
RECORDS = 1_000_000
KEYS = (RECORDS, 1_000)
PARTITIONS = 25
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"

_PLAIN_READ = """
import sys, time
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.read.reader import scan_to_end
began, count = time.perf_counter(), 0
def add(batch):
    global count
    count += len(batch)
scan_to_end(KafkaSettings.of(sys.argv[1]), sys.argv[2], add, timeout_seconds=300)
print(time.perf_counter() - began, count)
"""


def list_vs_rest(console: Console) -> list[Result]:
    """``eos offsets list`` beside REST, for a connector of 1, 100 and 10,000 source partitions."""
    results = []
    with own_lab("offsets-list", workers=1, mode=Mode.ENABLED) as lab:
        topic, number = f"{lab.group_id}-offsets", 0
        partitions = len(read_offsets_topic(lab.cluster().kafka, topic).ends)
        with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest, ConnectSession(lab.cluster()) as session:
            stores = OffsetStores(session, topic)
            _create_connector(rest)
            for size in SIZES:
                fill(lab, topic, _offsets(range(number, size), partitions))
                number = size

                def ours() -> int:
                    return sum(1 for _ in read_group_offsets(stores, rest.statuses()).of("many"))

                def theirs() -> int:
                    return len(rest.offsets("many"))

                times: dict[str, list[float]] = {"ours": [], "REST": []}
                for _ in range(TRIALS):
                    times["ours"].append(_timed(ours, size))
                    times["REST"].append(_timed(theirs, size))
                mine, rests = statistics.median(times["ours"]), statistics.median(times["REST"])
                console.print(f"{size:,} source partitions: ours {mine * 1000:.0f} ms, REST {rests * 1000:.0f} ms")
                what = f"offsets of {size:,} source partitions, kept clients, median of {TRIALS}"
                name = f"offsets_list_vs_rest_{size}"
                results.append(Result(name, mine * 1000, rests * 1000, "lower", "ms", what))
    return results


def backup_rate(console: Console) -> list[Result]:
    """``eos offsets backup`` and ``list`` of a million records beside a plain read of their topic; their memory."""
    results = []
    with own_lab("offsets-backup", workers=1) as lab:
        folder = lab.options.root
        with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
            _create_connector(rest)
        for keys in KEYS:
            topic = f"offsets-{keys}"
            # Not the workers' own offsets topic, so that the worker does not read it, too.
            lab.create_topic(topic, PARTITIONS, {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"})
            fill(lab, topic, _offsets((number % keys for number in range(RECORDS)), PARTITIONS))
            plain, count = _plain_read(lab, topic)
            assert count == RECORDS
            backup, listed = folder / f"{topic}.jsonl", folder / f"{topic}.json"
            said = folder / "said"
            file = lab.workers[0].config
            file.write_bytes(set_property(file.read_bytes(), "offset.storage.topic", topic))
            saved = run_eos(lab, "offsets", "backup", "--to", str(backup), output=said)
            assert _lines(backup) == keys + 2  # the first one says of what, the last one how many
            shown = run_eos(lab, "offsets", "list", "many", "--json", output=listed)
            assert _lines(listed) == keys + 2  # brackets
            of = f"{RECORDS:,} records of {keys:,} keys"
            console.print(f"{of}: read plainly in {plain:.1f} s")
            for name, ran in (("backup", saved), ("list", shown)):
                console.print(f"  eos offsets {name}: {ran.seconds:.1f} s with at most {ran.mebibytes:,.0f} MiB")
                what = f"{of}, the whole command ({ran.mebibytes:,.0f} MiB) beside a plain read of their topic"
                rate = Result(
                    f"offsets_{name}_rate_{keys}", RECORDS / ran.seconds, RECORDS / plain, "higher", "/s", what
                )
                results.append(rate)
    return results


def _create_connector(rest: ConnectRest) -> None:
    config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "t", "file": "none"}
    rest.create("many", config, "STOPPED")


def _timed(question: Callable[[], int], expected: int) -> float:
    began = time.perf_counter()
    found = question()
    seconds = time.perf_counter() - began
    assert found == expected, f"{found} of {expected}"
    return seconds


def _offsets(numbers: Iterable[int], partitions: int) -> Iterator[tuple[bytes, bytes, int]]:
    for number in numbers:
        key = offset_key("many", {"file": f"part-{number:07}"})
        yield key, b'{"position":%d}' % number, partition_of(key, partitions)


def _plain_read(lab: Lab, topic: str) -> tuple[float, int]:
    command = [sys.executable, "-c", _PLAIN_READ, lab.bootstrap_servers, topic]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    seconds, count = said.stdout.split()
    return float(seconds), int(count)


def _lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)
