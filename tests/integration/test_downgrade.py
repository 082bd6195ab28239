"""What leaving ``enabled`` does to source offsets, seen on real workers; and the way back, straight and in two steps.

The first part shows the trap itself, so that a Kafka release without it is noticed: then docs/downgrade.md and
``rollout/properties.py`` have outlived their reason.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.config_log import read_cluster_state
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse, set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.log import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.observer import Observer

pytestmark = pytest.mark.slow

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
TESTABLE_SOURCE = "org.apache.kafka.connect.integration.TestableSourceConnector"

#: Lines delivered under enabled, lines written while the worker is down, and where the uncommitted offset points.
DELIVERED, WRITTEN, SKIPPED_TO = 10, 20, 15
LOST = set(range(DELIVERED, SKIPPED_TO))
COMMITTED = {"isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    """Two workers in enabled, with the connectors of Connect's own tests."""
    return lab_factory(LabOptions(name="downgrade", workers=2, mode=Mode.ENABLED, test_connectors=True))


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def text_of(numbers: range) -> str:
    return "".join(f"line {number}\n" for number in numbers)


def lines(lab: Lab, topic: str) -> list[int]:
    """The numbers of the lines that stand in the topic, committed or not (Connect frames each with its schema)."""
    records = read_to_end(lab.cluster().kafka, topic, isolation="read_uncommitted").records
    return sorted(int(re.sub(rb".*line (\d+).*", rb"\1", record.value or b"")) for record in records)


def without_isolation(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if b"isolation.level" not in line)


def restart_alone(lab: Lab, mode: str, **properties: str) -> None:
    """Worker 0 as the only one, in this mode and with these words on how it reads, no others."""
    for index in (1, 0):
        lab.stop_worker(index)
    data = without_isolation(lab.workers[0].config.read_bytes())
    for name, value in {MODE_PROPERTY: mode, **properties}.items():
        data = set_property(data, name, value)
    lab.workers[0].config.write_bytes(data)
    lab.start_worker(0)


def states(lab: Lab, connector: str) -> list[str]:
    with ConnectRest(lab.connect_urls[0], retry_seconds=20) as rest:
        status = rest.statuses().get(connector)
    return [task.state for task in status.tasks] if status else []


class Tail:
    """A connector whose offsets topic is made to end in an offset that was never committed."""

    def __init__(self, lab: Lab, name: str, offsets_topic: str | None) -> None:
        self.lab, self.name = lab, name
        self.path = lab.data_dir / f"{name}.txt"
        self.offsets_topic = offsets_topic or f"{lab.group_id}-offsets"
        self.path.write_text(text_of(range(DELIVERED)), encoding="utf-8")
        lab.create_topic(name, 1)
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": str(self.path)}
        if offsets_topic:
            config["offsets.storage.topic"] = offsets_topic
        with ConnectRest(lab.connect_urls[0], retry_seconds=20) as rest:
            rest.create(name, config)
        delivered = len(text_of(range(DELIVERED)))
        wait_for("the first lines are delivered and committed", lambda: delivered in [o[2] for o in self.offsets()])

    def offsets(self) -> list[tuple[bytes, int, int]]:
        """Key, partition and position of each committed offset of this connector."""
        try:
            found = read_to_end(self.lab.cluster().kafka, self.offsets_topic).records
        except ConfigurationError:  # the connector has not made a topic of its own yet
            return []
        own = [record for record in found if record.key and json.loads(record.key)[0] == self.name and record.value]
        return [(r.key or b"", r.partition, json.loads(r.value or b"{}")["position"]) for r in own]

    def leave_behind(self, *, open_transaction: bool) -> Producer:
        """Lines that nobody has delivered, and an offset behind some of them in a transaction that is not committed."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text_of(range(DELIVERED, WRITTEN)))
        key, partition, _ = self.offsets()[-1]
        producer = Producer(
            {
                "bootstrap.servers": self.lab.bootstrap_servers,
                "transactional.id": f"dead-task-of-{self.name}",
                "transaction.timeout.ms": 10_000,
            }
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        value = json.dumps({"position": len(text_of(range(SKIPPED_TO)))}).encode()
        producer.produce(self.offsets_topic, key=key, value=value, partition=partition)
        producer.flush(20)
        if not open_transaction:
            producer.abort_transaction(20)
        return producer

    def missing(self) -> set[int]:
        wait_for(f"the last line of {self.name}", lambda: WRITTEN - 1 in lines(self.lab, self.name))
        return set(range(WRITTEN)) - set(lines(self.lab, self.name))


@pytest.mark.parametrize(
    ("mode", "properties", "own_topic", "open_transaction", "lost"),
    [
        # The trap: what was never committed is taken for progress.
        pytest.param("preparing", {}, False, False, LOST, id="preparing-loses-behind-an-abort"),
        pytest.param("disabled", {}, False, False, LOST, id="disabled-loses-behind-an-abort"),
        pytest.param("preparing", {}, False, True, LOST, id="preparing-loses-behind-an-open-transaction"),
        pytest.param(
            "preparing",
            {"consumer.isolation.level": "read_committed"},
            *(False, False, LOST),
            id="the-prefixed-property-does-not-help",
        ),
        # What is safe.
        pytest.param("enabled", {}, False, False, set(), id="enabled-is-safe"),
        pytest.param("preparing", COMMITTED, False, False, set(), id="preparing-reading-committed-is-safe"),
        pytest.param("disabled", COMMITTED, False, False, set(), id="disabled-reading-committed-is-safe"),
        pytest.param("preparing", COMMITTED, False, True, set(), id="reading-committed-waits-for-an-open-transaction"),
        pytest.param("preparing", {}, True, False, set(), id="preparing-with-a-topic-of-its-own-is-safe"),
        pytest.param("disabled", {}, True, False, set(), id="disabled-with-a-topic-of-its-own-is-safe"),
    ],
)
def test_where_a_task_goes_on_behind_an_offset_that_was_never_committed(
    lab: Lab,
    request: pytest.FixtureRequest,
    mode: str,
    properties: dict[str, str],
    own_topic: bool,
    open_transaction: bool,
    lost: set[int],
) -> None:
    restart_alone(lab, "enabled")
    name = request.node.callspec.id
    tail = Tail(lab, name, f"{name}-offsets" if own_topic else None)
    lab.stop_worker(0)
    producer = tail.leave_behind(open_transaction=open_transaction)  # kept: a producer that goes away aborts
    restart_alone(lab, mode, **properties)
    assert tail.missing() == lost
    assert producer is not None
    with ConnectRest(lab.connect_urls[0], retry_seconds=20) as rest:
        rest.delete(name)


# the way back


class Eos:
    """``eos`` as a person runs it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "airflow_eos_provider.cli", *arguments],
            cwd=self.folder,
            env={**os.environ, "COLUMNS": "200", "EOS_CLUSTER": str(self.lab.cluster_file)},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def roll(self, to: Mode) -> None:
        plan = json.loads(self.run("plan", "--to", to, "--json"))["hash"]
        report = json.loads(self.run("apply", plan, "--json"))
        assert report["to"] == to


def modes(lab: Lab) -> dict[str, Mode | None]:
    observation = Observer(lab.cluster()).observe()
    return {worker_id: observation.mode_of(worker_id) for worker_id in observation.members}


def all_in(lab: Lab, mode: Mode) -> None:
    """Both workers afresh in this mode, without a word on how they read."""
    for index, worker in enumerate(lab.workers):
        lab.stop_worker(index)
        worker.config.write_bytes(set_property(without_isolation(worker.config.read_bytes()), MODE_PROPERTY, mode))
    for index in range(2):
        lab.start_worker(index)
    wait_for("the group is whole", lambda: list(modes(lab).values()) == [mode, mode])


@pytest.mark.parametrize("way", [(Mode.DISABLED,), (Mode.PREPARING, Mode.DISABLED)], ids=["straight", "two-steps"])
def test_a_roll_back_loses_nothing_although_the_offsets_end_in_an_abort(
    lab: Lab, tmp_path: Path, way: tuple[Mode, ...]
) -> None:
    all_in(lab, Mode.ENABLED)
    tail = Tail(lab, f"back-{len(way)}", None)
    with ConnectRest(lab.connect_urls[0], retry_seconds=20) as rest:
        rest.pause(tail.name)
    wait_for("it pauses", lambda: states(lab, tail.name) == ["PAUSED"])
    tail.leave_behind(open_transaction=False)
    eos = Eos(lab, tmp_path)
    assert "+isolation.level=read_committed" in eos.run("plan", "--to", way[0])
    for step in way:
        eos.roll(step)
    assert list(modes(lab).values()) == [Mode.DISABLED, Mode.DISABLED]
    for worker in lab.workers:
        properties = parse(worker.config.read_bytes())
        assert (properties[MODE_PROPERTY], properties["isolation.level"]) == ("disabled", "read_committed")
    with ConnectRest(lab.connect_urls[0], retry_seconds=20) as rest:
        rest.resume(tail.name)
        assert tail.missing() == set()
        assert lines(lab, tail.name) == list(range(WRITTEN)), "it was paused all the while: nothing may come twice"
        rest.delete(tail.name)


def test_a_disabled_leader_serves_the_fencing_rounds_of_an_enabled_worker(lab: Lab) -> None:
    """So no task fails while a group rolls from enabled straight to disabled."""
    all_in(lab, Mode.ENABLED)
    ids = [worker.url.removeprefix("http://") for worker in lab.workers]
    leader = Observer(lab.cluster()).observe().leader_id
    follower = next(index for index, worker_id in enumerate(ids) if worker_id != leader)
    # The follower comes back disabled; then the leader leaves and comes back, so that the disabled one leads.
    lab.stop_worker(follower)
    config = lab.workers[follower].config
    config.write_bytes(set_property(config.read_bytes(), MODE_PROPERTY, Mode.DISABLED))
    lab.start_worker(follower)
    lab.stop_worker(1 - follower)
    lab.start_worker(1 - follower)
    wait_for("the disabled worker leads both", lambda: len(modes(lab)) == 2)
    assert Observer(lab.cluster()).observe().leader_id == ids[follower]

    name = "fenced-by-disabled"
    lab.create_topic(name, 3)
    config_of = {"connector.class": TESTABLE_SOURCE, "topic": name, "throughput": "20", "messages.per.poll": "5"}

    def on_record(tasks: int) -> bool:
        state = read_cluster_state(lab.cluster().kafka, f"{lab.group_id}-configs").connectors.get(name)
        return state is not None and (state.task_count_record, state.pending_fencing) == (tasks, False)

    with ConnectRest(lab.connect_urls[follower], retry_seconds=20) as rest:
        rest.create(name, {**config_of, "tasks.max": "3"})
        wait_for("three tasks run", lambda: states(lab, name) == ["RUNNING"] * 3 and on_record(3))
        rest.put_config(name, {**config_of, "tasks.max": "2"})
        wait_for(
            "two tasks run behind a round of fencing", lambda: states(lab, name) == ["RUNNING"] * 2 and on_record(2)
        )
        running_on = {task.worker_id for task in rest.statuses()[name].tasks}
        rest.delete(name)
    assert ids[1 - follower] in running_on, "no task ran on the enabled worker, so nothing was shown"
