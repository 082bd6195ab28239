"""Two controllers that begin at the same instant, again and again: never two acting, and never none."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from airflow_eos_provider.connect.cluster.description import ConnectCluster, RestSettings, WorkerDescription
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.errors import ConfigurationError, FencedError, LeaseHeldError
from airflow_eos_provider.journal import journal as journal_module
from airflow_eos_provider.journal.journal import Journal, ask, read_journal
from airflow_eos_provider.journal.journal_topic import prepare_journal
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.journal.records import (
    Request,
    RequestKind,
    RolloutRecord,
    RolloutState,
    Step,
    StepStatus,
)
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.local_processes import from_pid_file
from airflow_eos_provider.rollout.act.acts import Acts
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.faults.unanswered import leave_commit_unanswered
from tests.http_server import served
from tests.waiting import until

PROGRAM = Path(__file__).with_name("contender.py")

#: Pairs of controllers, each with groups of its own: a controller mostly waits, for a coordinator or for an act.
PAIRS = 3
#: So many times in each pair one has to be fenced by the other. How many rounds that takes is up to the machine.
MEETINGS = 14
MOST_ROUNDS = 330

#: The second begins so many milliseconds after the first, round by round over again: a first one needs about a
#: tenth of a second from its look at the journal to its act.
LATER_MS = (0, 0, 0, 2, 5, 10, 20, 40, 60, 80)


@contextlib.contextmanager
def contenders(kafka: KafkaSettings, acts: Path) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, str(PROGRAM), kafka.bootstrap_servers, str(acts)]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(2)
    ]
    # Whatever hangs ends the test, not the other way round.
    watchdog = threading.Timer(1500, lambda: [child.kill() for child in both])
    watchdog.start()
    try:
        yield both
    finally:
        watchdog.cancel()
        for child in both:
            child.kill()
            child.communicate()


def test_who_fences_a_controller_in_mid_act_waits_until_the_act_is_over(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one looks before the lease of the first appears, and fences it after it was permitted to act."""
    first, second = (Journal(kafka, "overtaken", lease_seconds=30.0, act_seconds=3.0) for _ in range(2))
    step = Step("w1:8083", StepStatus.INTENT, time.time())
    before_the_act = []

    def overtake(*_: object) -> None:  # what comes between the second one's look and its fencing
        monkeypatch.undo()
        first.acquire()
        first.begin(RolloutRecord("r1", {}, {}, RolloutState.RUNNING, time.time()))
        first.record(step)
        before_the_act.append(time.time())  # its time runs from the permission's append, somewhere within the call
        first.confirm("w1:8083: stop")

    prepare_journal(kafka, "overtaken", print)
    monkeypatch.setattr(journal_module, "prepare_journal", overtake)

    content = second.acquire()

    assert time.time() >= before_the_act[0] + 2.9, "it did not wait for the act"
    assert content.steps["r1"]["w1:8083"].status is StepStatus.INTENT
    for write in (lambda: first.confirm("w1:8083: start"), lambda: first.record(step)):
        with pytest.raises(FencedError):
            write()


def test_a_request_fences_nobody_and_is_answered_once(kafka: KafkaSettings) -> None:
    journal = Journal(kafka, "asked", lease_seconds=30.0, act_seconds=3.0)
    rollout = RolloutRecord("r1", {}, {}, RolloutState.RUNNING, time.time())
    journal.acquire()
    journal.begin(rollout)
    assert journal.request() is None
    asked = Request("r1", RequestKind.PAUSE, time.time(), "ann", "lunch")
    ask(kafka, "asked", replace(asked, rollout_id="another"))
    ask(kafka, "asked", asked)
    assert journal.request() == asked
    journal.record(Step("w1:8083", StepStatus.INTENT, time.time()))
    assert journal.request() == asked, "it was forgotten before it was answered"
    journal.end(replace(rollout, state=RolloutState.PAUSED))
    assert "r1" not in read_journal(kafka, "asked").requests


def begun(kafka: KafkaSettings, group: str, *, lease_seconds: float = 30.0, **options: Any) -> Journal:
    """A controller that has begun a rollout of this group."""
    journal = Journal(kafka, group, lease_seconds=lease_seconds, act_seconds=1.0, **options)
    journal.acquire()
    journal.begin(ROLLOUT)
    return journal


ROLLOUT = RolloutRecord("r1", {}, {}, RolloutState.RUNNING, time.time())
INTENT = Step("w1:8083", StepStatus.INTENT, time.time())


# a transaction that fails


def steps_on_record(kafka: KafkaSettings, group: str) -> list[int]:
    """When the broker appended each committed record of a step."""
    records = read_to_end(kafka, journal_topic(group)).records
    return [record.timestamp_ms for record in records if (record.key or b"").startswith(b"step/")]


def test_a_write_that_is_refused_leaves_nothing_open_and_the_roll_can_be_ended(kafka: KafkaSettings) -> None:
    journal = begun(kafka, "refused")
    with pytest.raises(ConfigurationError, match="too large"):
        journal.record(replace(INTENT, evidence=("x" * 2_000_000,)))
    journal.record(INTENT)
    journal.end(replace(ROLLOUT, state=RolloutState.PAUSED))
    content = read_journal(kafka, "refused")
    assert content.lease is not None
    assert content.lease.released
    assert content.rollouts["r1"].state is RolloutState.PAUSED


def test_a_broker_that_is_slow_to_answer_is_waited_for(kafka: KafkaSettings, broker: Broker) -> None:
    journal = begun(kafka, "slow")
    process = from_pid_file(broker.pid_file)
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    goes_on = threading.Timer(2.0, os.kill, (process.pid, signal.SIGCONT))
    goes_on.start()
    try:
        journal.record(INTENT)
    finally:
        os.kill(process.pid, signal.SIGCONT)
        goes_on.cancel()
    assert len(steps_on_record(kafka, "slow")) == 1


def unanswered(journal: Journal, takes_effect: bool, then: Callable[[], object] = lambda: None) -> None:
    """The journal's next commit is answered with an error that says nothing."""
    producer = journal._transactions._producer
    assert producer is not None
    leave_commit_unanswered(producer, takes_effect, then)


@pytest.mark.parametrize("took_effect", [True, False])
def test_of_a_commit_that_is_not_answered_reading_tells_whether_it_took_effect(
    kafka: KafkaSettings, took_effect: bool
) -> None:
    group = f"unanswered-{took_effect}"
    journal = begun(kafka, group)
    unanswered(journal, took_effect)
    appended_at_ms = journal.record(INTENT)
    assert steps_on_record(kafka, group) == [appended_at_ms], "not written, or written twice"
    journal.confirm("w1:8083: stop")
    journal.end(ROLLOUT)


def test_who_was_overtaken_in_an_unanswered_commit_leaves_the_other_one_alone(kafka: KafkaSettings) -> None:
    first, second = begun(kafka, "overtaken-2"), Journal(kafka, "overtaken-2", lease_seconds=30.0, act_seconds=1.0)

    def overtake() -> None:
        second.acquire(take_over=True)
        second.begin(ROLLOUT)

    unanswered(first, True, overtake)  # so that aborting cannot tell what became of it
    with pytest.raises(FencedError, match="taken over"):
        first.record(INTENT)
    with pytest.raises(FencedError):
        first.confirm("w1:8083: stop")
    second.confirm("w1:8083: stop")


def test_a_fenced_controller_gives_its_client_up_at_once(kafka: KafkaSettings) -> None:
    first, second = begun(kafka, "given-up"), Journal(kafka, "given-up", lease_seconds=30.0, act_seconds=1.0)
    producer = first._transactions._producer
    assert producer is not None
    client, thread = weakref.ref(producer), producer._wire._thread
    second.acquire(take_over=True)
    with pytest.raises(FencedError):
        first.confirm("w1:8083: stop")
    del producer
    gc.collect()
    assert client() is None, "its connections are left"
    thread.join(60)
    assert not thread.is_alive()


def test_a_controller_that_cannot_write_says_what_it_leaves_behind(kafka: KafkaSettings) -> None:
    journal = begun(kafka, "left")
    assert "stays running in the journal, and its lease is not renewed" in journal.left_behind()
    journal.end(replace(ROLLOUT, state=RolloutState.PAUSED))
    assert journal.left_behind() == ""


# whose clock


def test_leases_end_by_the_brokers_time_whatever_the_controllers_clocks_say(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_time, offset = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: true_time() + offset)
    offset = -3600.0
    begun(kafka, "held", lease_seconds=600.0)
    begun(kafka, "ends", lease_seconds=4.0)
    offset = 3600.0
    with pytest.raises(LeaseHeldError):
        Journal(kafka, "held", lease_seconds=30.0, act_seconds=1.0).acquire()
    second = Journal(kafka, "ends", lease_seconds=30.0, act_seconds=1.0)

    def acquired() -> bool:
        with contextlib.suppress(LeaseHeldError):
            second.acquire()
            return True
        return False

    until(acquired, "the end of the lease", seconds=60)
    second.begin(ROLLOUT)
    (event,) = [e for e in read_journal(kafka, "ends").events["r1"] if "its lease ended at" in e.note]
    assert event.what == "begun"


def test_a_restart_is_dated_by_the_clock_of_whoever_goes_on(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_time, offset = time.time, 3600.0
    monkeypatch.setattr(time, "time", lambda: true_time() + offset)
    first = begun(kafka, "dated")
    announced = replace(INTENT, restarted_after=time.time())
    announced = announced.appended(first.record(announced))
    first.record(replace(announced, status=StepStatus.RESTARTED))
    offset = 0.0
    second = Journal(kafka, "dated", lease_seconds=30.0, act_seconds=1.0)
    step = second.acquire(take_over=True).steps["r1"]["w1:8083"]
    assert step.restart_id == announced.restart_id, "a gate that is waited for would begin anew"
    assert step.restarted_after > true_time() + 1800, "by the other machine's clock"
    assert abs(second.by_this_clock(step).restarted_after - true_time()) < 1800


def test_a_journal_that_was_not_dated_by_the_broker_is_from_now_on(kafka: KafkaSettings) -> None:
    topic, said = journal_topic("undated"), list[str]()
    admin = AdminClient(kafka.confluent())
    new = NewTopic(topic, num_partitions=1, config={"message.timestamp.type": "CreateTime"})
    admin.create_topics([new])[topic].result()
    journal = begun(kafka, "undated", report=said.append)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result()
    assert described["message.timestamp.type"].value == "LogAppendTime"
    assert len(said) == 1
    assert "message.timestamp.type" in said[0]
    journal.end(ROLLOUT)


# acts that touch no host


@pytest.fixture
def worker() -> Iterator[tuple[str, list[str]]]:
    """The address of a server in a worker's place, and what it was asked to do."""
    posts: list[str] = []

    def answer(_: str, path: str) -> tuple[int, dict[str, str]]:
        posts.append(path)
        return 202, {}

    with served(answer) as port:
        yield f"http://127.0.0.1:{port}", posts


def test_failed_tasks_are_restarted_only_by_who_is_not_fenced(
    kafka: KafkaSettings, worker: tuple[str, list[str]]
) -> None:
    url, posts = worker
    journal = begun(kafka, "restarts")
    described = ConnectCluster(kafka, "restarts", RestSettings(), (WorkerDescription(url),))
    observer: Any = SimpleNamespace(cluster=described, session=ConnectSession(described))
    plan: Any = None
    acts = Acts("r1", plan, observer, journal, RolloutSettings(), lambda line: None)
    seen: Any = SimpleNamespace(workers=[SimpleNamespace(is_healthy=True, worker=SimpleNamespace(url=url))])

    acts.restart_failed_tasks({"mirror": "zombie fencing failed"}, seen)

    assert posts == ["/connectors/mirror/restart?includeTasks=true&onlyFailed=true"]
    assert observer.session.kafka.clients_made == 1, "it was not the session's client"
    lease = read_journal(kafka, "restarts").lease
    assert lease is not None
    assert lease.step == "mirror: restart its failed tasks"
    assert lease.acts_until > 0, "who takes over would not wait for it"
    Journal(kafka, "restarts", lease_seconds=30.0, act_seconds=1.0).acquire(take_over=True)
    with pytest.raises(FencedError):
        acts.restart_failed_tasks({"mirror": "zombie fencing failed"}, seen)
    assert len(posts) == 1


def test_of_two_controllers_never_two_act(kafka: KafkaSettings, tmp_path: Path) -> None:
    with ThreadPoolExecutor(PAIRS) as pairs:
        list(pairs.map(lambda pair: meet(kafka, f"contended-{pair}", tmp_path / f"acts-{pair}"), range(PAIRS)))


def meet(kafka: KafkaSettings, name: str, acts: Path) -> None:
    """Lets one pair of controllers meet often enough."""
    seen: Counter[tuple[str, ...]] = Counter()
    with contenders(kafka, acts) as both:
        for number in range(MOST_ROUNDS):
            if seen[("fenced", "through")] >= MEETINGS:
                break
            group = f"{name}-{number // 10}"  # some rounds find no journal topic yet
            moment = time.time() + 0.02
            order = both if number % 2 else both[::-1]
            for child, later in zip(order, (0, LATER_MS[number % len(LATER_MS)]), strict=True):
                assert child.stdin is not None
                child.stdin.write(f"{group} {moment + later / 1000}\n")
            outcomes = []
            for child in both:
                assert child.stdout is not None
                outcomes.append(child.stdout.readline().strip())
            assert all(outcomes), "a controller ended with an error, or hung"
            seen[tuple(sorted(outcomes))] += 1
            # One whose commit was not answered may be the one that has the lease.
            assert {"through", "late", "unanswered"} & set(outcomes), f"round {number}: neither, but {outcomes}"
    spans = sorted(tuple(map(float, line.split())) for line in acts.read_text(encoding="ascii").splitlines())
    assert len(spans) >= sum(count for outcomes, count in seen.items() if "through" in outcomes)
    assert all(ended <= began for (_, ended), (began, _) in pairwise(spans)), "two were acting at once"
    assert seen[("fenced", "through")] >= MEETINGS, f"they hardly ever met: {seen}"
