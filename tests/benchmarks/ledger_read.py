"""A compacted topic of two million records read to its end, beside Connect's own ``KafkaBasedLog``.

Both read each record and keep the last value of each key. A read in a process that has just started counts, for that is
what a task does; both clients come from fresh processes, the time of their start left out. Trials alternate.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.connect.topics.jackson import encode, hash_map_order
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.lab.lab import Lab, LabOptions
from tests.benchmarks.fill import fill
from tests.benchmarks.java_peer import run_java
from tests.benchmarks.result import Result

RECORDS = 2_000_000
PARTITIONS = 25
KEYS = 1_000
TRIALS = 3
TOPIC = "ledger"

_OURS = """
import sys, time
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.read.reader import Reach, scan_to_end
began, state, count = time.perf_counter(), {}, 0
def keep(batch):
    global count
    count += len(batch)
    for record in batch:
        state[record.key] = record.value
settings = KafkaSettings.of(sys.argv[1])
scan_to_end(settings, sys.argv[2], keep, Reach(compaction_lag_seconds=3600), timeout_seconds=300)
print(time.perf_counter() - began, count, len(state))
"""


def run(console: Console) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.up(LabOptions(name="ledger-read", workers=1, root=Path(folder)))
        try:
            lab.stop_worker(0)
            _fill(lab)
            ours, first, warm = [], [], []
            for trial in range(TRIALS):
                ours.append(_read(lab))
                cold_and_warm = run_java("LogPeer.java", [lab.bootstrap_servers, TOPIC], timeout_seconds=300)
                for _, records, keys in cold_and_warm:
                    assert (records, keys) == (RECORDS, KEYS)
                first.append(cold_and_warm[0][0])
                warm.append(cold_and_warm[1][0])
                console.print(
                    f"trial {trial + 1}: ours {ours[-1]:.2f} s, KafkaBasedLog {first[-1]:.2f} s, "
                    f"again in the warm JVM {warm[-1]:.2f} s"
                )
        finally:
            lab.down()
    what = f"{RECORDS:,} records in {PARTITIONS} partitions read to the end, fresh process, median of {TRIALS}"
    ours_seconds = statistics.median(ours)
    return [
        Result("ledger_read_vs_kafkabasedlog", ours_seconds, statistics.median(first), "lower", "s", what),
        Result(
            "ledger_read_vs_kafkabasedlog_warm",
            ours_seconds,
            statistics.median(warm),
            "lower",
            "s",
            f"{what}, against a JVM that has read it before",
        ),
    ]


def _fill(lab: Lab) -> None:
    lab.create_topic(TOPIC, PARTITIONS, {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"})
    interval = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"
    keys = [encode(["flights.daily", hash_map_order({"slice": n, "interval": interval})]) for n in range(KEYS)]
    partitions = [partition_of(key, PARTITIONS) for key in keys]
    fill(
        lab,
        TOPIC,
        (
            (keys[n % KEYS], b'{"position":%d,"plan":"0123456789abcdef","done":true}' % n, partitions[n % KEYS])
            for n in range(RECORDS)
        ),
    )


def _read(lab: Lab) -> float:
    command = [sys.executable, "-c", _OURS, lab.bootstrap_servers, TOPIC]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    seconds, records, keys = said.stdout.split()
    assert (int(records), int(keys)) == (RECORDS, KEYS)
    return float(seconds)
