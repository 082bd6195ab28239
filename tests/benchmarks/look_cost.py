"""What one look costs with a session's kept clients and followed topics, beside the same look with everything anew.

Measured at the lab's three workers, and at a hundred members of a real group whose REST APIs are simulated, with a
config topic of two million records. Either way a look counts once it has seen the config topic: a first read of
millions takes several. Requests and bytes are those of all TCP connections of a process of its own, as strace counts
them: one request is one write to a connection.

    python -m tests.benchmarks.look_cost CLUSTER_FILE CONFIG_TOPIC kept|anew LOOKS

is that process.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.observe.observer import InternalTopics, Observer
from tests.benchmarks.fill import fill
from tests.benchmarks.order_of_restarts import create_connectors
from tests.benchmarks.result import Result, own_lab
from tests.benchmarks.simulated_group import simulated_group

MEMBERS = 100
CONNECTORS = 100
RECORDS = int(os.environ.get("EOS_LOOK_COST_RECORDS", "2000000"))
KEPT_LOOKS = 20
ANEW_LOOKS = 3
LOOK_SECONDS = 300.0

_BEGIN, _END = "looks begin", "looks end"


def run(console: Console) -> list[Result]:
    with own_lab("look-cost", workers=3, mode=Mode.ENABLED) as lab:
        create_connectors(lab)
        small = _measure("3 workers", lab.cluster_file, f"{lab.group_id}-configs", console)
        for number in range(3):
            lab.stop_worker(number)
        _fill(lab, "simulated-configs")
        lab.create_topic("simulated-offsets", 5)
        with simulated_group(lab.kafka, "simulated", MEMBERS, CONNECTORS, "simulated-offsets") as urls:
            file = lab.options.root / "simulated.yaml"
            workers = [{"url": url} for url in urls]
            described = {"bootstrap_servers": lab.bootstrap_servers, "group_id": "simulated", "workers": workers}
            file.write_text(json.dumps(described), encoding="utf-8")  # JSON is YAML
            what = f"{MEMBERS} members, config topic of {RECORDS:,} records"
            large = _measure(what, file, "simulated-configs", console)
    return [*small, *large]


def _measure(what: str, file: Path, config_topic: str, console: Console) -> list[Result]:
    kept, first = _seconds(file, config_topic, "kept", KEPT_LOOKS)
    anew, _ = _seconds(file, config_topic, "anew", ANEW_LOOKS)
    kept_requests, kept_bytes = _traffic(file, config_topic, "kept", KEPT_LOOKS)
    anew_requests, anew_bytes = _traffic(file, config_topic, "anew", 1)
    console.print(
        f"{what}: {1 / kept:.1f} looks/s, {kept_requests:.0f} requests and {kept_bytes / 1000:.0f} kB a look, "
        f"the first took {first:.2f} s; with everything anew {1 / anew:.2f} looks/s, {anew_requests:.0f} requests "
        f"and {anew_bytes / 1000:.0f} kB"
    )
    name = f"look_cost_{'real' if 'workers' in what else 'large'}"
    return [
        Result(name, 1 / kept, 1 / anew, "higher", "looks/s", f"{what}: looks a second, against everything anew"),
        Result(f"{name}_requests", kept_requests, anew_requests, "lower", "requests", f"{what}: requests a look"),
        Result(f"{name}_bytes", kept_bytes / 1000, anew_bytes / 1000, "lower", "kB", f"{what}: bytes a look"),
    ]


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


def _child(file: Path, config_topic: str, way: str, looks: int) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.look_cost", str(file), config_topic, way, str(looks)]


def _seconds(file: Path, config_topic: str, way: str, looks: int) -> tuple[float, float]:
    """Seconds of a look, the median, and of the first."""
    done = subprocess.run(
        _child(file, config_topic, way, looks), capture_output=True, text=True, timeout=1800, check=True
    )
    first, *others = json.loads(done.stdout)
    return statistics.median(others), first


#: How strace names a connection; the second where it could not look it up in time. Wake-ups of threads are one byte.
_SOCKETS = ("<TCP", "<socket:")
_CALL = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?:\((\d+<[^>]*>+)?| resumed>)(.*)$")


def _traffic(file: Path, config_topic: str, way: str, looks: int) -> tuple[float, float]:
    """Requests and bytes of a look on TCP connections, in both directions."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as trace:
        calls = "trace=sendto,sendmsg,write,writev,recvfrom,recvmsg,read"
        strace = ["strace", "-f", "-yy", "-s", "16", "-e", calls, "-o", trace.name]
        subprocess.run(
            [*strace, *_child(file, config_topic, way, looks)], capture_output=True, timeout=1800, check=True
        )
        requests = count = 0
        counting = False
        begun: dict[str, bool] = {}  # by thread, whether the call that is under way is on a TCP connection
        for line in trace:
            if _BEGIN in line or _END in line:
                counting = _BEGIN in line
            found = _CALL.match(line)
            if found is None:
                continue
            thread, call, on, rest = found.groups()
            is_tcp = begun.pop(thread, False) if " resumed>" in line else any(kind in (on or "") for kind in _SOCKETS)
            if rest.endswith("<unfinished ...>"):
                begun[thread] = is_tcp
                continue
            returned = int(rest.rpartition("= ")[2].split()[0]) if re.search(r"= \d+", rest) else 0
            if counting and is_tcp and returned > 0:
                count += returned
                requests += returned > 1 and call in ("sendto", "sendmsg", "write", "writev")
    assert requests, "no request was counted: strace writes its lines in another form"
    return requests / looks, count / looks


def main(file: str, config_topic: str, way: str, looks: str) -> None:
    """Look, and print the seconds of each look; the first is not counted by strace."""
    cluster = ConnectCluster.from_file(Path(file))
    remote = None if any(worker.config for worker in cluster.workers) else InternalTopics(config_topic, None)

    with Observer(cluster, remote=remote) as kept:

        def look() -> float:
            began = time.monotonic()
            with nullcontext(kept) if way == "kept" else Observer(cluster, remote=remote) as observer:
                _look(observer)
            return time.monotonic() - began

        seconds = [look()]
        os.write(2, _BEGIN.encode())
        seconds += [look() for _ in range(int(looks))]
        os.write(2, _END.encode())
    sys.stdout.write(json.dumps(seconds))


def _look(observer: Observer) -> None:
    """Look until the config topic and the group are seen."""
    deadline = time.monotonic() + LOOK_SECONDS
    while (seen := observer.observe()).config is None or seen.group is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing was seen: {seen.config_problem}; {seen.group_problem}")


if __name__ == "__main__":
    main(*sys.argv[1:])
