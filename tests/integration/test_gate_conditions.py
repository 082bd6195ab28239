"""Each of the gate's conditions refused on a real group, by something real, and seen to hold before and after it.

Task states and the group's membership are refused in real rolls (``test_roll.py``, ``test_rollout_verbs.py``); here are
the other nine. Nothing rolls: the lab's worker is restarted once, the gate is asked at each moment of that, and what
only another disturbance can show is asked afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.answer import Check
from airflow_eos_provider.rollout.gate.expectation import Baseline, Expectation
from airflow_eos_provider.rollout.gate.gate import evaluate
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from tests.integration.hanging_transaction import HangingTransaction

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"

#: One for each worker, so that the one which is restarted has a task.
SOURCES = ("first", "second")

#: Long enough that the gate is asked while it runs: it begins when the worker leaves, before its process has ended.
REBALANCE_DELAY_MS = 30_000

#: A worker that is suspended is a member for longer than it is looked at.
SESSION_TIMEOUT = {"session.timeout.ms": "120000"}

Checks = dict[str, Check]


class Gate:
    """The gate, asked about one lab again and again by one observer.

    :ivar expectation: what it holds the lab against.
    """

    def __init__(self, lab: Lab) -> None:
        cluster = lab.cluster()
        self.observer = Observer(replace(cluster, rest=replace(cluster.rest, timeout_seconds=2.0)))
        self.expectation = Expectation(frozenset(), Baseline(), {})

    def look(self) -> Checks:
        return {check.subject: check for check in evaluate(self.expectation, self.observer.observe())}

    def until(self, holds: Callable[[Checks], bool], what: str, seconds: float = 600.0) -> Checks:
        deadline = time.monotonic() + seconds
        while not holds(checks := self.look()):
            shown = "\n".join(map(str, checks.values()))
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}\n{shown}"
            time.sleep(0.2)
        return checks

    def until_passed(self, *names: str) -> Checks:
        return self.until(lambda checks: all(checks[name].passed for name in names), f"{', '.join(names)} hold")

    def until_refused(self, *names: str) -> Checks:
        return self.until(lambda checks: not any(checks[n].passed for n in names), f"{', '.join(names)} are refused")


@dataclass(frozen=True)
class Restart:
    """One worker restarted from preparing into enabled.

    :param worker_id: the worker, which did not lead.
    :param index: its number in the lab.
    :param connector: the source whose task it has.
    :param at_first: what the gate says when it sees the hanging transaction for the first time.
    :param before: what the gate says before anything is done.
    :param announced: with the new mode in its file, and the process from before.
    :param stopped: without the worker.
    :param idle: with its new process, before the source has more to give.
    :param moving: when it has.
    """

    worker_id: str
    index: int
    connector: str
    at_first: Checks
    before: Checks
    announced: Checks
    stopped: Checks
    idle: Checks
    moving: Checks


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers in preparing with a file source for each."""
    lab = lab_factory(
        name="conditions",
        workers=2,
        mode=Mode.PREPARING,
        session_timeout_ms=10_000,  # and a heartbeat that fits
        worker_properties=SESSION_TIMEOUT,
        rebalance_delay_ms=REBALANCE_DELAY_MS,
    )
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        for name in SOURCES:
            lab.create_topic(name, 2)
            source_file(lab, name).write_text("line\n", encoding="utf-8")
            config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name}
            rest.create(name, {**config, "file": str(source_file(lab, name))})
    return lab


@pytest.fixture(scope="module")
def gate(lab: Lab) -> Iterator[Gate]:
    gate = Gate(lab)
    with gate.observer:
        yield gate


@pytest.fixture(scope="module")
def hanging(lab: Lab) -> Iterator[HangingTransaction]:
    """Begun before the first look, since the gate calls it hanging after half a minute of looks."""
    with HangingTransaction.on(lab, SOURCES[0], 1) as transaction:
        yield transaction


@pytest.fixture(scope="module")
def restart(lab: Lab, gate: Gate, hanging: HangingTransaction) -> Restart:
    """The restart, with the gate's answer at each moment of it."""
    first, seen = until_each_worker_has_a_task(gate.observer)
    at_first = {check.subject: check for check in evaluate(gate.expectation, first)}
    assert seen.leader_id is not None
    worker_id = next(worker.worker_id for worker in seen.workers if worker.worker_id != seen.leader_id)
    index = next(i for i, url in enumerate(lab.connect_urls) if url.endswith(worker_id))
    ((connector, _),) = seen.tasks_on(worker_id)
    members = frozenset(worker.worker_id for worker in seen.workers)
    gate.expectation = Expectation(members, Baseline.of(seen), dict.fromkeys(members, Mode.PREPARING))
    for _ in range(20):
        deliver(lab, connector)
        gate.look()
        if gate.observer.logs.memory.movements[connector].steady_at is not None:
            break
    before = gate.until_passed("process", "mode", "REST", "rebalance delay", "placement", "progress")

    facts = seen.worker(worker_id).facts
    host = gate.observer.hosts[worker_id]
    gate.expectation = replace(
        gate.expectation,
        modes={**gate.expectation.modes, worker_id: Mode.ENABLED},
        worker_id=worker_id,
        digest=host.edit({MODE_PROPERTY: Mode.ENABLED.value}, expect=facts.digest),
        restarted_after=time.time(),
        replaces=facts.start_token,
    )
    announced = gate.look()
    lab.stop_worker(index)
    stopped = gate.until_refused("process", "REST", "rebalance delay", "placement")
    lab.start_worker(index)
    others = ("process", "REST", "group", "rebalance delay", "config offset", "placement", "states", "mode")
    idle = gate.until_passed(*others, "fencing record")
    deliver(lab, connector)
    moving = gate.until_passed(*others, "fencing record", "progress")
    return Restart(worker_id, index, connector, at_first, before, announced, stopped, idle, moving)


def source_file(lab: Lab, connector: str) -> Path:
    return lab.data_dir / f"{connector}.txt"


def until_each_worker_has_a_task(observer: Observer) -> tuple[Observation, Observation]:
    """The first look that sees the hanging transaction, and the first one that sees all there is."""
    first: list[Observation] = []
    deadline = time.monotonic() + 600
    while True:
        seen = observer.observe()
        if seen.logs is not None and seen.logs.held:
            first.append(seen)
        tracked = first and seen.logs is not None and set(SOURCES) <= set(seen.logs.movements)
        if tracked and seen.leader_id and all(len(seen.tasks_on(w.worker_id)) == 1 for w in seen.workers):
            return first[0], seen
        assert time.monotonic() < deadline, f"the tasks are not spread: {seen.group}, {seen.statuses_problem}"
        time.sleep(0.2)


def deliver(lab: Lab, connector: str) -> None:
    """Give a source one more line, and wait until it is in the topic."""
    # A reader of committed records would not see past the hanging transaction.
    uncommitted = {"group.id": "test", "isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": lab.bootstrap_servers, **uncommitted})

    def size() -> int:
        return sum(consumer.get_watermark_offsets(TopicPartition(connector, n), timeout=180)[1] for n in range(2))

    try:
        before = size()
        with source_file(lab, connector).open("a", encoding="utf-8") as file:
            file.write("another line\n")
        deadline = time.monotonic() + 600
        while size() == before:
            assert time.monotonic() < deadline, f"{connector} delivers nothing"
            time.sleep(0.1)
    finally:
        consumer.close()


#: Condition, the moment at which it is refused with these words, and one at which it holds.
AT_THE_RESTART = [
    ("process", "announced", "{worker} still runs as the process from before the restart", "idle"),
    ("process", "stopped", "{worker} does not run", "idle"),
    ("mode", "announced", "{worker} runs preparing, expected enabled: ", "idle"),
    ("REST", "stopped", "{worker}: ", "idle"),
    ("rebalance delay", "stopped", "the leader keeps the tasks of a lost worker unassigned until ", "idle"),
    ("placement", "stopped", " is placed 0 times", "idle"),
    ("progress", "idle", "{connector} moved before the restart and has not since", "moving"),
]


@pytest.mark.parametrize(
    ("condition", "refused_at", "words", "holds_at"),
    AT_THE_RESTART,
    ids=[f"{condition} {refused_at}" for condition, refused_at, _, _ in AT_THE_RESTART],
)
def test_a_restart_is_refused_until_it_is_over(
    restart: Restart, condition: str, refused_at: str, words: str, holds_at: str
) -> None:
    assert restart.before[condition].passed
    moment: Checks = getattr(restart, refused_at)
    assert words.format(worker=restart.worker_id, connector=restart.connector) in moment[condition].found
    assert not moment[condition].passed
    assert overall(moment.values()) is not Verdict.PASS
    assert getattr(restart, holds_at)[condition].passed


def test_a_file_that_is_edited_after_the_restart_is_refused(lab: Lab, gate: Gate, restart: Restart) -> None:
    file = lab.workers[restart.index].config
    written = file.read_bytes()
    assert gate.look()["process"].passed
    file.write_bytes(written + b"# another edit\n")
    refused = gate.look()["process"]
    file.write_bytes(written)
    assert refused.found == f"the configuration of {restart.worker_id} was edited after the roll wrote it"
    assert refused.decisive
    assert gate.look()["process"].passed


def test_workers_that_hang_and_a_task_set_that_they_have_not_read_are_refused(
    lab: Lab, gate: Gate, restart: Restart
) -> None:
    """A foreign client repeats a task set, for which the leader has yet to fence, while no worker reads it."""
    names = ("REST", "config offset", "fencing record")
    gate.until_passed(*names, "group", "placement")
    workers = {index: suspended(lab, index) for index in range(2)}
    try:
        offset = repeat_task_set(lab, restart.connector)
        hanging = gate.look()
        workers[1 - restart.index].resume()
        # The leader reads it and calls for a rebalance; the worker with the task, which is still suspended, is enabled.
        unfenced = gate.until(
            lambda checks: "does not follow its task set" in checks["fencing record"].found, "a round is due"
        )
    finally:
        for worker in workers.values():
            worker.resume()
    assert "did not answer GET /" in hanging["REST"].found
    assert f"have not read the record at {offset} yet" in hanging["config offset"].found
    assert unfenced["fencing record"].found == (
        f"{restart.connector} runs on an enabled worker, but its task count record does not follow its task set"
    )
    gate.until_passed(*names)


def test_a_transaction_that_no_coordinator_ends_is_refused(
    gate: Gate, restart: Restart, hanging: HangingTransaction
) -> None:
    assert restart.at_first["transactions"].passed, "it may be a transaction like any other at first"
    refused = gate.until(
        lambda checks: "no coordinator knows" in checks["transactions"].found, "the transaction is called hanging"
    )["transactions"]
    assert refused.found.startswith(f"{hanging.place.topic}-{hanging.place.partition} is held at ")
    assert refused.found.endswith("by a transaction that no coordinator knows")
    hanging.abort()
    gate.until(lambda checks: overall(checks.values()) is Verdict.PASS, "every condition holds")


def suspended(lab: Lab, index: int) -> psutil.Process:
    identity = lab.worker_process(index)
    assert identity is not None
    process = psutil.Process(identity.pid)
    process.suspend()
    return process


def repeat_task_set(lab: Lab, connector: str) -> int:
    """Write the records of a task set once more; the offset of the last."""
    topic = f"{lab.group_id}-configs"
    keys = (f"task-{connector}-0".encode(), f"commit-{connector}".encode())
    newest = {record.key: record.value for record in read_to_end(lab.cluster().kafka, topic).records}
    offsets = []
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for key in keys:
        producer.produce(topic, newest[key], key, on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(180) == 0
    return int(offsets[-1])
