"""The topics of a run are the ones it was begun with, and its records can be read when it says ``complete``.

Topics are deleted, made anew and exchanged between attempts, after the end and in the middle of a run, and foreign
transactions hold back the target topic's readers.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import Completed, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol import admission
from airflow_eos_provider.interval.protocol.admission import control_producer
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.protocol.visibility import NotVisibleError
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.ledger import complete_key
from airflow_eos_provider.interval.topics.run_reader import TopicReader
from airflow_eos_provider.interval.verify import completion
from airflow_eos_provider.interval.write.tally import Tally
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.read.reader import LogRecord, read_to_end
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.kafka.write.producer import TransactionalProducer
from airflow_eos_provider.lab.jars.jars import class_path, ensure_jars
from airflow_eos_provider.lab.jars.java import SHORT_LIVED, java_program
from airflow_eos_provider.lab.servers.broker import Broker
from airflow_eos_provider.local_processes import from_pid_file
from tests.faults.line_slices import write_slices
from tests.faults.unanswered import leave_commit_unanswered
from tests.waiting import until

Change = Callable[[Pipeline], Pipeline]


def write_rows(pipeline: Pipeline, run: Run, *rows: pa.RecordBatch) -> Completed:
    """One slice, in this process."""
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: RunPlan(run, [{}]), 1)
        assert isinstance(stage, Stage)
        stage = coordinator.compare_input(stage, lambda done: {0: Tally(pipeline, run).take(rows)})
        if stage.tasks:
            write_slices(pipeline, stage, 0, read=lambda _: iter(rows))
        return coordinator.finish(stage)


# Partitions


def partitions_by_java(pipeline: Pipeline, keys: Sequence[bytes]) -> dict[bytes, int]:
    """By key the partition that Java's producer puts a record into, which it does."""
    program = Path(__file__).parents[1] / "java" / "Partitions.java"
    command = [str(java_program()), *SHORT_LIVED, "-Xmx128m", "-cp", class_path(ensure_jars()), str(program)]
    said = subprocess.run(
        [*command, pipeline.kafka.bootstrap_servers, str(pipeline.topic)],
        input=struct.pack(">i", len(keys)) + b"".join(struct.pack(">i", len(key)) + key for key in keys),
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert said.returncode == 0, said.stderr.decode()
    return dict(zip(keys, struct.unpack(f">{len(keys)}i", said.stdout), strict=True))


def test_a_row_goes_to_the_partition_that_javas_producer_gives_its_key(make_pipeline: Any, days: Any) -> None:
    """Or else a key's records of a Java application and of a run would lie in two partitions, without an order."""
    pipeline = make_pipeline(topic="beside-java", target_partitions=7)
    texts = ["", *(f"{word}{n}" for word in ("key-", "Zürich ", "東京", "\U0001f600") for n in range(60))]
    keys = [*(text.encode() for text in texts), *(bytes([n, 255 - n]) * (n % 5 + 1) for n in range(128, 192))]
    plain = pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "value": [b"plain"] * len(keys)})
    # A row that has more columns than key and value takes another way to the producer.
    full = plain.append_column("partition", pa.nulls(len(keys), pa.int32()))

    write_rows(pipeline, days(1), plain, full)

    records = read_to_end(pipeline.kafka, "beside-java").records
    assert len(records) == 2 * len(keys)
    placed = {(record.key, record.partition) for record in records}
    assert placed == set(partitions_by_java(pipeline, keys).items())
    assert {partition for _, partition in placed} == set(range(7))


# Topics deleted, made anew, exchanged


def topics_of(pipeline: Pipeline) -> set[str]:
    return set(AdminClient(pipeline.kafka.confluent()).list_topics(timeout=180).topics)


def delete(pipeline: Pipeline, topic: str) -> None:
    admin = AdminClient(pipeline.kafka.confluent())
    admin.delete_topics([topic], operation_timeout=180)[topic].result()
    deadline = time.monotonic() + 600
    while topic in topics_of(pipeline):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def create(pipeline: Pipeline, topic: str, partitions: int = 3, **config: str) -> None:
    admin = AdminClient(pipeline.kafka.confluent())
    named = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, config=named)
    admin.create_topics([new])[topic].result()
    deadline = time.monotonic() + 600
    while topic not in topics_of(pipeline):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def create_ledger(pipeline: Pipeline, topic: str) -> None:
    create(pipeline, topic, 2, cleanup_policy="compact", min_compaction_lag_ms="3600000")


def ledger_deleted(pipeline: Pipeline) -> Pipeline:
    delete(pipeline, pipeline.ledger_topic)
    return pipeline


def ledger_made_anew(pipeline: Pipeline) -> Pipeline:
    delete(pipeline, pipeline.ledger_topic)
    create_ledger(pipeline, pipeline.ledger_topic)
    return pipeline


def another_ledger(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, ledger_topic=f"{pipeline.group_id}-another-ledger")


def another_ledger_that_is_there(pipeline: Pipeline) -> Pipeline:
    create_ledger(pipeline, f"{pipeline.group_id}-another-ledger")
    return another_ledger(pipeline)


def target_made_anew(pipeline: Pipeline) -> Pipeline:
    assert pipeline.topic is not None
    delete(pipeline, pipeline.topic)
    create(pipeline, pipeline.topic)
    return pipeline


def another_target(pipeline: Pipeline) -> Pipeline:
    create(pipeline, f"{pipeline.topic}-other")
    return replace(pipeline, topic=f"{pipeline.topic}-other")


def changes(*functions: Change) -> Any:
    """A case for each change."""
    cases = [pytest.param(change, id=change.__name__.replace("_", " ")) for change in functions]
    return pytest.mark.parametrize("change", cases)


def one_slice_then_killed(story: Any) -> None:
    """A first attempt: one of four slices is committed, then its driver and its task die."""
    driver = story.driver(tasks=1)
    task = story.task(story.stage_of(driver), dies=["begin#2"])
    assert task.end() == {"gone": True}
    driver.kill()


def ends_of(pipeline: Pipeline) -> dict[str, dict[int, int]]:
    """Where the topics of the pipeline end that are there."""
    there = topics_of(pipeline) & {pipeline.topic, pipeline.ledger_topic, pipeline.control_topic}
    return {topic: dict(read_to_end(pipeline.kafka, topic).end_offsets) for topic in there}


def require_refused(story: Any, changed: Pipeline) -> Any:
    """The changed pipeline is refused: both topics are named, and nothing is written, made or fenced."""
    story.require_none_open()  # a commit returns before its markers, which count among the ends
    before, was, story.pipeline = ends_of(changed), story.pipeline, changed
    driver = story.driver()
    end = story.drive(driver)

    assert end.get("error") == "TopicChangedError", end
    named = {was.ledger_topic, changed.ledger_topic} if changed.topic == was.topic else {was.topic, changed.topic}
    assert all(topic in end["text"] for topic in named if was != changed), end["text"]
    assert "write generation" not in driver.steps()
    assert ends_of(changed) == before
    story.pipeline = was
    return driver


@changes(ledger_deleted, ledger_made_anew, target_made_anew, another_target)
def test_a_retry_with_other_topics_is_refused(story: Any, change: Change) -> None:
    one_slice_then_killed(story)

    changed = change(story.pipeline)

    driver = require_refused(story, changed)
    assert "init" not in driver.steps(), "the driver that is at work with the right topics is not fenced"
    if changed != story.pipeline:  # what it was begun with is still there, and goes on where it stopped
        story.complete()
        story.require_exactly_once()


@changes(ledger_deleted, another_target)
def test_a_finished_run_with_other_topics_is_refused(story: Any, change: Change) -> None:
    story.complete()

    changed = change(story.pipeline)

    require_refused(story, changed)
    if changed != story.pipeline:
        assert story.complete()["already"]
        story.require_exactly_once()


def test_a_finished_run_is_not_taken_for_readable_in_another_topic(story: Any) -> None:
    story.complete()
    finished = completion(story.pipeline, story.run)
    assert finished is not None
    assert finished.already

    assert completion(replace(story.pipeline, topic=None), story.run) == finished  # a sensor need not know the target
    for change in (another_target, target_made_anew):
        with pytest.raises(RefusedError, match="target"):
            completion(change(story.pipeline), story.run)


def test_the_next_interval_with_another_ledger_is_refused_as_well(story: Any, days: Any) -> None:
    """The ledger is what tells of overlaps, so a pipeline has one, also while none of its runs is under way."""
    story.complete()
    story.run = days(2)

    require_refused(story, another_ledger_that_is_there(story.pipeline))


def test_another_target_may_take_the_next_interval_and_the_next_revision(story: Any, days: Any) -> None:
    story.complete()
    story.pipeline = another_target(story.pipeline)

    second = replace(story.run, revision=2)
    for run in (days(2), second):
        assert story.complete(run=run)["already"] is False

    assert story.drained() == story.expected(days(2), second)


def test_a_run_cannot_be_given_up_by_another_ledgers_word(story: Any) -> None:
    one_slice_then_killed(story)
    was = story.pipeline
    story.pipeline = another_ledger_that_is_there(was)

    assert story.abandoner().end()["error"] == "TopicChangedError"

    story.pipeline = was
    story.complete()
    story.require_exactly_once()


@pytest.mark.parametrize(
    ("step", "change"),
    [(None, ledger_made_anew), ("write complete", target_made_anew)],
    ids=["at the stage's end-ledger", "right before complete-target"],
)
def test_a_topic_made_anew_in_mid_run_is_caught_before_complete(story: Any, change: Change, step: str | None) -> None:
    driver = story.driver(stops=[step] if step else [])
    if step is None:
        story.write(story.stage_of(driver))
    else:
        assert "stopped" in story.drive(driver)

    change(story.pipeline)
    if step is None:
        driver.tell("the stage has ended")
    else:
        driver.go_on()

    end = driver.end()
    assert end.get("error") == "TopicChangedError", end
    assert "deleted and recreated" in end["text"]
    assert story.completes() == []


def test_a_complete_that_names_no_topics_is_refused(story: Any) -> None:
    story.complete()
    (complete,) = story.completes()
    old = {name: complete[name] for name in ("complete", "records", "digest", "slices")}
    newer = {"digest_kind", "ended", "ledger", "ledgerId", "summary", "topic", "topicId"}
    assert set(complete) - set(old) == newer
    producer = TransactionalProducer(story.pipeline.kafka, "by-hand", timeout_ms=60_000)
    producer.init()
    producer.begin()
    producer.produce(story.pipeline.ledger_topic, complete_key(story.run), json.dumps(old).encode())
    producer.commit()

    end = story.driver().end()

    assert end.get("error") == "TopicChangedError", end
    assert "names no topics" in end["text"]


# Answers that come late, or say too little


@pytest.mark.parametrize("decided", [True, False], ids=["decided", "not decided"])
def test_a_plan_whose_commit_is_answered_by_an_unknown_error_is_admitted_all_the_same(
    story: Any, monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    """The broker's answer is a mock, since it gives this one only at moments of its own; all else is real."""
    plan = RunPlan(story.run, [{}])
    first = iter([True])

    def planners_producer(*args: Any) -> TransactionalProducer:
        producer = control_producer(*args)
        if next(first, False):
            leave_commit_unanswered(producer, decided)
        return producer

    monkeypatch.setattr(admission, "control_producer", planners_producer)
    lines: list[str] = []

    with Coordinator(story.pipeline, story.run, report=lines.append) as coordinator:
        stage = coordinator.begin(lambda: plan, 1)

    assert isinstance(stage, Stage)
    assert stage.plan_hash == plan.hash
    assert len(story.plans()) == 1
    assert any("cannot tell whether it is committed" in line for line in lines)


def test_a_late_answer_of_the_brokers_is_waited_for(make_pipeline: Any, broker: Broker) -> None:
    pipeline, process, lines = make_pipeline(), from_pid_file(broker.pid_file), list[str]()
    records = list[LogRecord]()
    assert process is not None

    def report(line: str) -> None:
        lines.append(line)
        os.kill(process.pid, signal.SIGCONT)

    os.kill(process.pid, signal.SIGSTOP)
    try:
        TopicReader(pipeline.kafka, pipeline.topic, report=report).read(records.extend)
    finally:
        os.kill(process.pid, signal.SIGCONT)

    assert records == []
    assert "have not answered" in lines[0]


# Foreign transactions


@pytest.fixture
def foreign(kafka: Any) -> Iterator[Callable[[str], TransactionalProducer]]:
    """Producers of others that have a transaction open in all partitions of a topic."""
    with ExitStack() as stack:

        def open_in(topic: str) -> TransactionalProducer:
            producer = TransactionalProducer(kafka, "somebody-else", timeout_ms=300_000)
            producer.init()
            producer.begin()
            for partition in range(3):
                producer.produce(topic, None, b"foreign", partition=partition)
            producer.flush()
            stack.callback(producer.abort)
            return producer

        yield open_in


def wait_for_markers(pipeline: Pipeline) -> None:
    """An abort returns before its markers are written."""
    with TransactionsClient(pipeline.kafka) as client:
        until(
            lambda: client.describe(["somebody-else"])["somebody-else"].state is TransactionState.COMPLETE_ABORT,
            "the markers of the abort",
            seconds=60,
        )


def test_complete_waits_for_a_foreign_transaction_and_names_it(story: Any, foreign: Any) -> None:
    other = foreign(story.pipeline.topic)
    driver = story.driver()
    story.write(story.stage_of(driver))
    driver.tell("the stage has ended")

    while "until readers of" not in (line := driver.wait_for("line", "completed", "error").get("line", "")):
        assert line, f"{driver.seen[-1]}, while a reader of committed records gets {story.drained(stable_only=True)}"
    assert "somebody-else" in line
    assert " since " in line
    assert " until " in line
    assert story.completes() == []

    other.abort()
    assert "completed" in driver.end()
    assert story.drained(stable_only=True) == story.expected()
    story.require_exactly_once()


def test_complete_waits_for_the_readers_of_topics_that_rows_name(story: Any, foreign: Any) -> None:
    pipeline, named = replace(story.pipeline, topic=None, visibility_timeout_ms=0), f"{story.pipeline.topic}-named"
    create(pipeline, named)
    other = foreign(named)
    rows = pa.RecordBatch.from_pydict({"value": [b"x"] * 10, "topic": [named] * 10})

    with pytest.raises(NotVisibleError, match=f"{named}.*somebody-else"):
        write_rows(pipeline, story.run, rows)
    assert story.completes() == []

    other.abort()
    wait_for_markers(pipeline)
    assert write_rows(pipeline, story.run, rows).records == 10


def test_a_foreign_transaction_that_stays_open_is_an_error_and_the_retry_completes(story: Any, foreign: Any) -> None:
    other = foreign(story.pipeline.topic)
    story.pipeline = replace(story.pipeline, visibility_timeout_ms=0)

    end = story.drive(story.driver())

    assert end.get("error") == "NotVisibleError", end
    assert "somebody-else" in end["text"]
    assert "visibility_timeout_ms" in end["text"]
    assert story.completes() == []
    other.abort()
    wait_for_markers(story.pipeline)
    retry = story.driver()
    assert "completed" in story.drive(retry)
    assert not any(event["stage"]["assignment"] for event in retry.seen if "stage" in event), "it writes nothing again"
    story.require_exactly_once()


def test_a_foreign_transaction_behind_the_runs_records_holds_nothing_up(story: Any, foreign: Any) -> None:
    driver = story.driver(stops=["write complete"])
    assert "stopped" in story.drive(driver)
    foreign(story.pipeline.topic)

    driver.go_on()

    assert "completed" in driver.end()
    assert story.drained(stable_only=True) == story.expected()


# The ledger, the control topic and the group belong together


def another_control_topic(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, control_topic=f"{pipeline.group_id}-another-control")


def another_group(pipeline: Pipeline) -> Pipeline:
    return replace(
        pipeline, group_id=f"{pipeline.group_id}-other", control_topic="", ledger_topic=pipeline.ledger_topic
    )


def another_group_with_the_control_topic(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, group_id=f"{pipeline.group_id}-other")


def control_deleted(pipeline: Pipeline) -> Pipeline:
    delete(pipeline, pipeline.control_topic)
    return pipeline


def control_made_anew(pipeline: Pipeline) -> Pipeline:
    delete(pipeline, pipeline.control_topic)
    create(pipeline, pipeline.control_topic, 1, cleanup_policy="compact", min_compaction_lag_ms="3600000")
    return pipeline


@changes(another_control_topic, another_group_with_the_control_topic)
def test_a_ledger_has_one_group_and_one_control_topic(story: Any, change: Change) -> None:
    one_slice_then_killed(story)

    driver = require_refused(story, change(story.pipeline))

    assert "init" not in driver.steps(), "the driver with the right control topic is not fenced"
    story.complete()
    story.require_exactly_once()


@pytest.mark.parametrize("step", ["write claim", "commit claim"])
def test_of_two_groups_that_claim_a_ledger_at_once_one_gets_it(story: Any, step: str) -> None:
    """The first claim in the log counts, also where the other one is committed before it."""
    ours, other = story.pipeline, another_group(story.pipeline)
    first = story.driver(stops=[step])
    first.wait_until_stopped()
    story.pipeline = other
    second = story.driver()
    while second.wait_for("step")["step"] != "planner read ledger":
        pass
    first.go_on()
    ends = {}
    for driver, pipeline in ((first, ours), (second, other)):
        story.pipeline = pipeline
        ends[pipeline.group_id] = story.drive(driver)

    winner = other if step == "write claim" else ours
    assert "completed" in ends.pop(winner.group_id)
    assert [end.get("error") for end in ends.values()] == ["TopicChangedError"], ends
    story.pipeline = winner
    story.require_exactly_once()


@changes(control_deleted, control_made_anew)
def test_a_run_whose_plan_was_lost_is_neither_continued_nor_overlapped(story: Any, days: Any, change: Change) -> None:
    whole, part = days(1, 2), days(1)
    story.run = whole
    one_slice_then_killed(story)
    change(story.pipeline)
    committed = story.drained()

    for run in (whole, part):
        end = story.drive(story.driver(run=run))
        assert end.get("error") == "TopicChangedError", end
        assert whole.name in end["text"]
    assert story.drained() == committed


def test_a_control_topic_that_is_made_anew_between_runs_takes_the_old_ones_place(story: Any, days: Any) -> None:
    story.complete()
    control_deleted(story.pipeline)

    assert story.complete(run=days(2))["already"] is False
    assert story.complete()["already"]

    story.require_exactly_once(story.run, days(2))


def test_a_task_of_a_generation_in_another_control_topic_writes_nothing(story: Any) -> None:
    """Its generation has the same offset there."""
    old = story.driver(tasks=2)
    queued = story.stage_of(old)
    control_made_anew(story.pipeline)
    new = story.driver(tasks=2)
    stage = story.stage_of(new)
    assert queued["generation"] == stage["generation"], "or else the offset alone would tell them apart"

    late = story.task(queued).end()

    assert late.get("error") == "TopicChangedError", late
    old.tell("the stage has ended")
    assert old.end().get("error") == "TopicChangedError"
    story.write(stage)
    new.tell("the stage has ended")
    assert "completed" in new.end()
    story.require_exactly_once()


def test_whoever_takes_over_from_a_lost_control_topic_fences_all_ids_of_the_pipeline(story: Any) -> None:
    """The task counts are lost with it, and a task between two transactions has none open."""
    late = story.task(story.stage_of(story.driver(tasks=2)), 1, stops=["begin"])
    late.wait_until_stopped()
    control_made_anew(story.pipeline)
    new = story.driver(tasks=1)
    stage = story.stage_of(new)

    late.go_on()

    assert late.end().get("error") == "FencedError"
    story.write(stage)
    new.tell("the stage has ended")
    assert "completed" in new.end()
    story.require_exactly_once()


# Records deleted under the same topic id


def delete_records(pipeline: Pipeline, topic: str) -> None:
    """As retention does where the policy is ``delete`` for a time."""
    ends = read_to_end(pipeline.kafka, topic).end_offsets
    admin, topics = AdminClient(pipeline.kafka.confluent()), Topics(pipeline.kafka)
    topics.change(topic, {"cleanup.policy": "delete"})
    topics.await_settings(topic, {"cleanup.policy": "delete"})
    places = [TopicPartition(topic, partition, end) for partition, end in ends.items() if end]
    for future in admin.delete_records(places).values():
        future.result()
    topics.change(topic, {"cleanup.policy": "compact"})
    topics.await_settings(topic, {"cleanup.policy": "compact"})


@pytest.mark.parametrize("which", ["ledger_topic", "control_topic"])
def test_a_topic_that_has_lost_records_is_refused(story: Any, which: str) -> None:
    driver = story.driver(tasks=1)
    stage = story.stage_of(driver)
    assert story.task(stage, dies=["begin#2"]).end() == {"gone": True}
    topic = getattr(story.pipeline, which)
    story.require_none_open()
    delete_records(story.pipeline, topic)
    committed = story.drained()

    for end in (story.task(stage).end(), story.drive(story.driver())):
        assert end.get("error") == "TopicChangedError", end
        assert topic in end["text"]
        assert "begins at offset" in end["text"]
    assert story.drained() == committed
