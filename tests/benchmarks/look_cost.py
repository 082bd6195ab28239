"""What one look costs with a session's kept clients and followed topics, beside the same look with everything anew.

Measured at a hundred members of a real group whose REST APIs are simulated, with a config topic of two million records.
Either way a look counts once it has seen the config topic: a first read of millions takes several.

    python -m tests.benchmarks.look_cost CLUSTER_FILE CONFIG_TOPIC kept|anew LOOKS

is the process that looks.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.observe.observer import InternalTopics, Observer
from tests.benchmarks.fill import fill
from tests.benchmarks.result import Result, own_lab
from tests.benchmarks.simulated_group import simulated_group

MEMBERS = 100
CONNECTORS = 100
RECORDS = int(os.environ.get("EOS_LOOK_COST_RECORDS", "2000000"))
KEPT_LOOKS = 20
ANEW_LOOKS = 3
LOOK_SECONDS = 300.0


def run(console: Console) -> list[Result]:
    with own_lab("look-cost") as lab:
        _fill(lab, "simulated-configs")
        lab.create_topic("simulated-offsets", 5)
        with simulated_group(lab.kafka, "simulated", MEMBERS, CONNECTORS, "simulated-offsets") as urls:
            file = lab.options.root / "simulated.yaml"
            workers = [{"url": url} for url in urls]
            described = {"bootstrap_servers": lab.bootstrap_servers, "group_id": "simulated", "workers": workers}
            file.write_text(json.dumps(described), encoding="utf-8")  # JSON is YAML
            kept, first = _seconds(file, "simulated-configs", "kept", KEPT_LOOKS)
            anew, _ = _seconds(file, "simulated-configs", "anew", ANEW_LOOKS)
    console.print(f"{1 / kept:.1f} looks/s, the first took {first:.2f} s; with everything anew {1 / anew:.2f} looks/s")
    what = f"{MEMBERS} members, config topic of {RECORDS:,} records: looks a second, against everything anew"
    return [Result("look_cost", 1 / kept, 1 / anew, "higher", "looks/s", what)]


def _fill(lab: Lab, topic: str) -> None:
    """Connectors, their tasks, and the pauses and resumptions of years."""
    lab.create_topic(topic, 1, {"cleanup.policy": "compact"})
    fill(lab, topic, _records())


def _records() -> Iterator[tuple[bytes, bytes, int]]:
    for n in range(CONNECTORS):
        yield b"connector-c%d" % n, b'{"properties":{"name":"c%d","connector.class":"x","tasks.max":"1"}}' % n, 0
        yield b"task-c%d-0" % n, b'{"properties":{"task.class":"x"}}', 0
        yield b"commit-c%d" % n, b'{"tasks":1}', 0
        yield b"tasks-fencing-c%d" % n, b'{"task-count":1}', 0
    for number in range(RECORDS - 4 * CONNECTORS):
        state = (b"PAUSED", b"STARTED")[number // CONNECTORS % 2]
        yield b"target-state-c%d" % (number % CONNECTORS), b'{"state":"%s","state.v2":"%s"}' % (state, state), 0


def _seconds(file: Path, config_topic: str, way: str, looks: int) -> tuple[float, float]:
    """Seconds of a look, the median, and of the first."""
    command = [sys.executable, "-m", "tests.benchmarks.look_cost", str(file), config_topic, way, str(looks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True)
    first, *others = json.loads(done.stdout)
    return statistics.median(others), first


def main(file: str, config_topic: str, way: str, looks: str) -> None:
    """Look, and print the seconds of each look."""
    cluster = ConnectCluster.from_file(Path(file))
    remote = None if any(worker.config for worker in cluster.workers) else InternalTopics(config_topic, None)

    with Observer(cluster, remote=remote) as kept:

        def look() -> float:
            began = time.monotonic()
            with nullcontext(kept) if way == "kept" else Observer(cluster, remote=remote) as observer:
                _look(observer)
            return time.monotonic() - began

        seconds = [look() for _ in range(1 + int(looks))]
    sys.stdout.write(json.dumps(seconds))


def _look(observer: Observer) -> None:
    """Look until the config topic and the group are seen."""
    deadline = time.monotonic() + LOOK_SECONDS
    while (seen := observer.observe()).config is None or seen.group is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing was seen: {seen.config_problem}; {seen.group_problem}")


if __name__ == "__main__":
    main(*sys.argv[1:])
