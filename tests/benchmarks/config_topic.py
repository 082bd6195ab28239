"""``eos topics list`` on a topic of two million records, beside Connect's own read of it by ``KafkaBasedLog``.

A worker reads the whole topic before it joins its group: that is the peer's figure, from a JVM that has just started.
The command reads it three times, takes each record apart and counts it. Its own read alone, which it reports as the
time that a read takes from here, is the second figure. Trials alternate.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.lab.lab import Lab, LabOptions
from tests.benchmarks.eos_command import run_eos
from tests.benchmarks.fill import fill
from tests.benchmarks.java_peer import run_java
from tests.benchmarks.result import Result

CONNECTORS = 1_000
GENERATIONS = 500
RECORDS = 4 * CONNECTORS * GENERATIONS
TRIALS = 3
TOPIC = "large-configs"


def run(console: Console) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.up(LabOptions(name="config-topic", workers=1, root=Path(folder)))
        try:
            lab.stop_worker(0)
            lab.create_topic(TOPIC, 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"})
            fill(lab, TOPIC, _records())
            file = lab.workers[0].config
            file.write_bytes(set_property(file.read_bytes(), "config.storage.topic", TOPIC))
            ours, ours_alone, peer = [], [], []
            for trial in range(TRIALS):
                file = Path(folder) / "found.json"
                ran = run_eos(lab, "topics", "list", "--json", output=file)
                found = json.loads(file.read_text(encoding="utf-8"))["config_topic"]
                assert (found["records"], found["live"]) == (RECORDS, 4 * CONNECTORS)
                (seconds, records, keys), _ = run_java(
                    "LogPeer.java", [lab.bootstrap_servers, TOPIC], timeout_seconds=300
                )
                assert (records, keys) == (RECORDS, 4 * CONNECTORS)
                ours.append(ran.seconds)
                ours_alone.append(found["read_seconds"])
                peer.append(seconds)
                console.print(
                    f"trial {trial + 1}: eos topics list {ran.seconds:.1f} s with {ran.mebibytes:,.0f} MiB, its read "
                    f"alone {ours_alone[-1]:.2f} s, KafkaBasedLog {seconds:.2f} s"
                )
        finally:
            lab.down()
    of = f"{RECORDS:,} records of {CONNECTORS:,} connectors, median of {TRIALS}"
    theirs = statistics.median(peer)
    return [
        Result(
            "config_topic_vs_kafkabasedlog", statistics.median(ours), theirs, "lower", "s", f"the whole command, {of}"
        ),
        Result(
            "config_topic_read_vs_kafkabasedlog", statistics.median(ours_alone), theirs, "lower", "s", f"its read, {of}"
        ),
    ]


def _records() -> Iterator[tuple[bytes, bytes, int]]:
    """Generations of task configurations as a leader writes them: connector, two tasks, commit."""
    for generation in range(GENERATIONS):
        config = json.dumps(
            {"properties": {"connector.class": "FileStreamSource", "file": "/data/in.txt", "topic": f"t{generation}"}}
        ).encode()
        for number in range(CONNECTORS):
            yield b"connector-c%04d" % number, config, 0
            yield b"task-c%04d-0" % number, config, 0
            yield b"task-c%04d-1" % number, config, 0
            yield b"commit-c%04d" % number, b'{"tasks":2}', 0
