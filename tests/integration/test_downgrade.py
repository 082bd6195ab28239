"""What leaving ``enabled`` does to source offsets, seen on real workers; and the downgrade in one step.

The first part shows the trap itself, so that a Kafka release without it is noticed: then docs/connect/downgrade.md and
``rollout/plan/worker_edits.py`` have outlived their reason.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse, set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.config_topic import read_cluster_state
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.integration.offsets_cluster import PATIENT_STOP
from tests.integration.older_worker import BEFORE_KIP_618, replace_by_older
from tests.waiting import answered, status_of, wait_for

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
TESTABLE_SOURCE = "org.apache.kafka.connect.integration.TestableSourceConnector"

#: Exit codes.
REFUSED, PAUSED, UNREACHABLE = 3, 5, 6

#: Lines delivered under enabled, lines written while the worker is down, and where the uncommitted offset points.
DELIVERED, WRITTEN, SKIPPED_TO = 10, 20, 15
LOST = set(range(DELIVERED, SKIPPED_TO))
COMMITTED = {"isolation.level": "read_committed"}

#: A worker's line right before it reads the group's offsets topic, and where its thread is while it reads.
READS_NOW = b"Starting KafkaBasedLog with topic connect-downgrade-offsets"
READING = b"KafkaBasedLog.readToLogEnd"

EosOf = Callable[[Lab, Path], Any]


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    """Two workers in enabled, with the connectors of Connect's own tests."""
    return lab_factory(
        LabOptions(
            name="downgrade",
            workers=2,
            mode=Mode.ENABLED,
            test_connectors=True,
            rebalance_delay_ms=500,
            # No worker is killed here, and one that a busy machine holds up stays a member.
            session_timeout_ms=60_000,
            worker_properties=PATIENT_STOP,
        )
    )


@pytest.fixture(scope="module", autouse=True)
def before(lab: Lab) -> Traces:
    """What was there before any command of this package."""
    return traces(lab)


@dataclass(frozen=True)
class Traces:
    """What this package might leave.

    :param topics: that are not the tests' own.
    :param files: beside the workers' own.
    :param groups: of consumers.
    """

    topics: frozenset[str]
    files: frozenset[str]
    groups: frozenset[str]


def traces(lab: Lab) -> Traces:
    admin = AdminClient(lab.cluster().kafka.confluent())
    names = admin.list_topics(timeout=180).topics
    groups = admin.list_consumer_groups(request_timeout=180).result().valid
    return Traces(
        frozenset(name for name in names if name.startswith(("eos", lab.group_id, "__"))),
        frozenset(path.name for path in lab.root.iterdir() if ".eos-" in path.name),
        frozenset(group.group_id for group in groups),
    )


def text_of(numbers: range) -> str:
    return "".join(f"line {number}\n" for number in numbers)


def lines(lab: Lab, topic: str) -> list[int]:
    """The numbers of the lines that stand in the topic, committed or not (Connect frames each with its schema)."""
    records = read_to_end(lab.cluster().kafka, topic, isolation="read_uncommitted").records
    return sorted(int(re.sub(rb".*line (\d+).*", rb"\1", record.value or b"")) for record in records)


def bring(lab: Lab, *wanted: Mode | None) -> None:
    """Each worker into its mode, with no isolation.level in its file, and None down; one that is so already stays."""
    for index, (worker, mode) in enumerate(zip(lab.workers, wanted, strict=True)):
        if mode is None or worker.mode_in_file() is not mode:
            lab.stop_worker(index)
            if mode is not None:
                rewrite(worker.config, mode)
    for wait in (False, True):  # both at once
        for index, mode in enumerate(wanted):
            if mode is not None:
                lab.start_worker(index, wait=wait)
    running = [mode for mode in wanted if mode is not None]
    wait_for("the group is whole", lambda: modes(lab) == running)


def rewrite(config: Path, mode: Mode, **properties: str) -> None:
    """A worker's file with this mode and these words on how it reads, no others."""
    lines = config.read_bytes().splitlines(keepends=True)
    data = b"".join(line for line in lines if b"isolation.level" not in line)
    for name, value in {MODE_PROPERTY: mode, **properties}.items():
        data = set_property(data, name, value)
    config.write_bytes(data)


def modes(lab: Lab) -> list[Mode | None]:
    """Of the members, in the lab's order."""
    observation = Observer(lab.cluster()).observe()
    ids = [worker.url.removeprefix("http://") for worker in lab.workers]
    return [observation.mode_of(worker_id) for worker_id in ids if worker_id in observation.members]


def states(lab: Lab, connector: str) -> list[str]:
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        status = rest.statuses().get(connector)
    return [task.state for task in status.tasks] if status else []


class Tail:
    """A connector whose offsets topic is made to end in an offset that was never committed."""

    def __init__(self, lab: Lab, name: str, *, own_topic: bool = False, open_transaction: bool = False) -> None:
        self.lab, self.name, self.open_transaction = lab, name, open_transaction
        self.path = lab.data_dir / f"{name}.txt"
        self.offsets_topic = f"{name}-offsets" if own_topic else f"{lab.group_id}-offsets"
        self.path.write_text(text_of(range(DELIVERED)), encoding="utf-8")
        lab.create_topic(name, 1)
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": str(self.path)}
        if own_topic:
            config["offsets.storage.topic"] = self.offsets_topic
        with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
            rest.create(name, config)

    def wait_until_committed(self) -> None:
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

    def leave_behind(self) -> Producer:
        """Lines that nobody has delivered, and an offset behind some of them in a transaction that is not committed."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text_of(range(DELIVERED, WRITTEN)))
        key, partition, _ = self.offsets()[-1]
        producer = Producer(
            {
                "bootstrap.servers": self.lab.bootstrap_servers,
                "transactional.id": f"dead-task-of-{self.name}",
                "transaction.timeout.ms": 600_000,  # longer than any start of a worker
            }
        )
        producer.init_transactions(180)
        producer.begin_transaction()
        value = json.dumps({"position": len(text_of(range(SKIPPED_TO)))}).encode()
        producer.produce(self.offsets_topic, key=key, value=value, partition=partition)
        assert producer.flush(180) == 0
        if not self.open_transaction:
            producer.abort_transaction(180)
        return producer

    def missing(self) -> set[int]:
        wait_for(f"the last line of {self.name}", lambda: WRITTEN - 1 in lines(self.lab, self.name))
        return set(range(WRITTEN)) - set(lines(self.lab, self.name))


@dataclass(frozen=True)
class Start:
    """One way in which a worker starts, and the connectors that go on there.

    :param behind_an_abort: lines that a connector on the group's offsets topic then loses.
    :param behind_an_open_transaction: the same, if the transaction is open while the worker starts; None: not tried.
    :param own_topic: whether a connector with an offsets topic of its own goes on there, too; it loses nothing.
    """

    mode: Mode
    properties: Mapping[str, str]
    behind_an_abort: Set[int]
    behind_an_open_transaction: Set[int] | None = None
    own_topic: bool = False


NOTHING: frozenset[int] = frozenset()
STARTS = {
    # The trap: what was never committed is taken for progress. A topic of its own is safe.
    "preparing-loses": Start(Mode.PREPARING, {}, LOST, behind_an_open_transaction=LOST, own_topic=True),
    "disabled-loses": Start(Mode.DISABLED, {}, LOST, own_topic=True),
    # What is safe.
    "disabled-reading-committed-is-safe": Start(Mode.DISABLED, COMMITTED, NOTHING, behind_an_open_transaction=NOTHING),
    "enabled-is-safe": Start(Mode.ENABLED, {}, NOTHING),
}


@pytest.fixture(scope="module")
def tails(lab: Lab) -> dict[str, list[tuple[Tail, Set[int]]]]:
    """For each start its connectors, all made under enabled and stopped, and the lines that each of them loses."""
    bring(lab, Mode.ENABLED, None)
    tails: dict[str, list[tuple[Tail, Set[int]]]] = {}
    for name, start in STARTS.items():
        tails[name] = [(Tail(lab, name), start.behind_an_abort)]
        if start.own_topic:
            tails[name].append((Tail(lab, f"{name}-own", own_topic=True), NOTHING))
        if start.behind_an_open_transaction is not None:
            tail = Tail(lab, f"{name}-open", open_transaction=True)
            tails[name].append((tail, start.behind_an_open_transaction))
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        names = [tail.name for of_one in tails.values() for tail, _ in of_one]
        for of_one in tails.values():
            for tail, _ in of_one:
                tail.wait_until_committed()
                rest.stop(tail.name)
        wait_for("all are stopped", lambda: not any(states(lab, name) for name in names))
    return tails


@pytest.mark.parametrize("name", STARTS)
def test_where_a_task_goes_on_behind_an_offset_that_was_never_committed(
    lab: Lab, tails: dict[str, list[tuple[Tail, Set[int]]]], name: str
) -> None:
    start, worker = STARTS[name], lab.workers[0]
    for index in range(2):
        lab.stop_worker(index)
    producers = {tail: tail.leave_behind() for tail, _ in tails[name]}  # kept: a producer that goes away aborts
    still_open = [producer for tail, producer in producers.items() if tail.open_transaction]
    try:
        rewrite(worker.config, start.mode, **start.properties)
        log_from = worker.log.stat().st_size
        lab.start_worker(0, wait=False)
        if start.properties == COMMITTED:  # such a worker waits for the end of the transaction, without it for nothing
            if still_open:
                wait_for("it is about to read the offsets", lambda: READS_NOW in worker.log.read_bytes()[log_from:])
                wait_for("it waits for their end", lambda: READING in log_with_threads(lab)[log_from:])
            end(still_open)
        lab.start_worker(0)
        with ConnectRest(worker.url, retry_seconds=180) as rest:
            for tail, _ in tails[name]:
                rest.resume(tail.name)
            missing = {tail.name: tail.missing() for tail, _ in tails[name]}
            assert missing == {tail.name: lost for tail, lost in tails[name]}
            for tail, _ in tails[name]:
                rest.delete(tail.name)
    finally:
        end(still_open)


def log_with_threads(lab: Lab) -> bytes:
    """A worker's log; at this signal its JVM writes there where its threads are."""
    process = lab.worker_process(0)
    assert process is not None
    os.kill(process.pid, signal.SIGQUIT)
    return lab.workers[0].log.read_bytes()


def end(producers: list[Producer]) -> None:
    """Abort what is open, which proves that it was open until now."""
    while producers:
        producers.pop().abort_transaction(180)


# the way back


def test_a_roll_back_in_one_step_loses_nothing_under_load_although_the_offsets_end_in_an_abort(
    lab: Lab, eos_of: EosOf, load_on: Callable[[Lab, str], Any], tmp_path: Path
) -> None:
    """Beside a paused connector whose offsets end in an abort, another one delivers all the while."""
    bring(lab, Mode.ENABLED, Mode.ENABLED)
    tail = Tail(lab, "back")
    tail.wait_until_committed()
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.pause(tail.name)
    wait_for("it pauses", lambda: states(lab, tail.name) == ["PAUSED"])
    tail.leave_behind()
    eos = eos_of(lab, tmp_path)
    with load_on(lab, "load") as load:
        assert "+isolation.level=read_committed" in eos.run("plan", "--to", Mode.DISABLED).stdout
        written = [load.written]
        assert eos.roll(Mode.DISABLED)["to"] == Mode.DISABLED
        written.append(load.written)
        _to_before_kip_618(lab, eos)  # the mode is off, now the older version
        written.append(load.written)
        seen = load.compared()
    assert seen.exactly_once, seen  # the same multiset, in every mode: each worker stopped in good order
    assert all(later > earlier for earlier, later in itertools.pairwise(written)), f"no load: {written}"
    lab.stop_worker(0)
    lab.stop_worker(1)
    bring(lab, Mode.DISABLED, Mode.DISABLED)  # up again, for what comes next; their files stay
    assert modes(lab) == [Mode.DISABLED, Mode.DISABLED]
    for worker in lab.workers:
        properties = parse(worker.config.read_bytes())
        assert (properties[MODE_PROPERTY], properties["isolation.level"]) == ("disabled", "read_committed")
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.resume(tail.name)
        assert tail.missing() == set()
        assert lines(lab, tail.name) == list(range(WRITTEN)), "it was paused all the while: nothing may come twice"
        for name in (tail.name, load.topic):
            rest.delete(name)


def _to_before_kip_618(lab: Lab, eos: Any) -> None:
    """Replace both workers by 3.2.3, one after the other; their files are the ones that the roll has written.

    A task may fail on the way, by a configuration that the newer connector has written; a restart mends it.
    """
    eos.run("preflight", "--to-version", BEFORE_KIP_618)
    for index in range(2):
        replace_by_older(lab, index)
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        assert rest.root().version == BEFORE_KIP_618
        for name in rest.statuses():
            answered(partial(rest.restart, name, include_tasks=True))  # not while the worker waits for a task's end


def test_a_disabled_leader_serves_the_fencing_rounds_of_an_enabled_worker(lab: Lab) -> None:
    """So no task fails while a group rolls from enabled straight to disabled."""
    bring(lab, Mode.DISABLED, Mode.DISABLED)
    ids = [worker.url.removeprefix("http://") for worker in lab.workers]
    leaders: list[str] = []

    def has_leader() -> bool:
        leader_id = Observer(lab.cluster()).observe().leader_id
        leaders.extend([] if leader_id is None else [leader_id])
        return leader_id is not None

    wait_for("the group has a leader", has_leader)
    leader = ids.index(leaders[0])
    mixed = [Mode.ENABLED, Mode.ENABLED]
    mixed[leader] = Mode.DISABLED
    bring(lab, *mixed)  # the follower comes back enabled
    wait_for("the group has a leader still", has_leader)
    assert leaders == [ids[leader]] * 2

    name = "fenced-by-disabled"
    lab.create_topic(name, 3)
    config_of = {"connector.class": TESTABLE_SOURCE, "topic": name, "throughput": "20", "messages.per.poll": "5"}

    def on_record(tasks: int) -> bool:
        state = read_cluster_state(lab.cluster().kafka, f"{lab.group_id}-configs").connectors.get(name)
        return state is not None and (state.task_count_record, state.pending_fencing) == (tasks, False)

    with ConnectRest(lab.connect_urls[leader], retry_seconds=180) as rest:
        rest.create(name, {**config_of, "tasks.max": "3"})
        wait_for("three tasks run", lambda: states(lab, name) == ["RUNNING"] * 3 and on_record(3))
        rest.put_config(name, {**config_of, "tasks.max": "2"})
        wait_for(
            "two tasks run behind a round of fencing", lambda: states(lab, name) == ["RUNNING"] * 2 and on_record(2)
        )
        running_on = {task.worker_id for task in status_of(rest, name).tasks}
        rest.delete(name)
    assert ids[1 - leader] in running_on, "no task ran on the enabled worker, so nothing was shown"


# and nothing is left


def test_what_rolls_have_left_is_removed_and_nothing_else(
    lab: Lab, before: Traces, eos_of: EosOf, tmp_path: Path
) -> None:
    eos = eos_of(lab, tmp_path)
    if not Topics(lab.cluster().kafka).is_there(journal_topic(lab.group_id)):  # no other test has rolled the group
        eos.roll(Mode.DISABLED)
    # The test before has left a rebalance; and a worker that answers late, for a moment, is reason to plan nothing.
    not_yet = (REFUSED, PAUSED, UNREACHABLE)
    wait_for("a plan", lambda: eos.run("plan", "--to", "preparing", expect=(0, *not_yet)).returncode == 0)
    there = traces(lab)
    plan = json.loads(eos.run("uninstall", "--json", expect=REFUSED).stdout)["plan"]
    names = [line.split()[:2] for line in plan["lines"]]
    topics = {name for kind, name in names if kind == "-topic"}
    files = {Path(name).name for kind, name in names if kind == "-file"}
    plans = {path.name for path in (tmp_path / ".eos/plans").iterdir()}
    assert topics == {journal_topic(lab.group_id)}
    assert files == {f"{worker.config.name}.eos-backup" for worker in lab.workers} | plans
    assert plans
    assert traces(lab) == there, "a plan removes nothing"
    (stays,) = [line for line in plan["lines"] if " stays: " in line]
    assert journal_topic(lab.group_id) in stays, "its id, which cannot be deleted"
    eos.run("uninstall", "--yes", expect=REFUSED)
    eos.run("uninstall", "--plan", "0" * 12, expect=3)

    remedy = eos.run("uninstall", expect=REFUSED).stderr.partition("Apply this plan:  eos ")[2]
    eos.run(*shlex.split(remedy.splitlines()[0]))
    assert traces(lab) == before
    assert not list((tmp_path / ".eos/plans").iterdir())
    assert json.loads(eos.run("uninstall", "--json").stdout)["plan"]["nothing"]
    assert traces(lab) == before, "nor does a look make the journal anew"
