"""What an observer sees of the topics that a real group writes: open transactions and sources that go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.logs import LogView
from airflow_eos_provider.rollout.observer import Observer

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
NAME = "log-watch"


@pytest.fixture(scope="module")
def source(disabled_lab: Lab) -> Path:
    """The file of a source connector that has delivered its first line."""
    file = disabled_lab.data_dir / f"{NAME}.txt"
    file.write_text("line\n", encoding="utf-8")
    disabled_lab.create_topic(NAME, 2)
    with ConnectRest(disabled_lab.connect_urls[0], retry_seconds=20) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": NAME, "file": str(file)}
        rest.create(NAME, config)
        wait_for("its topic is tracked", lambda: rest.topics(NAME) == (NAME,))
    return file


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def look(observer: Observer) -> LogView:
    observation = observer.observe()
    assert observation.logs is not None, observation.logs_problem
    return observation.logs


def test_a_transaction_on_a_topic_that_the_group_writes_is_seen_until_it_ends(disabled_lab: Lab, source: Path) -> None:
    observer = Observer(disabled_lab.cluster())
    wait_for("the topic is watched", lambda: NAME in look(observer).movements)
    producer = Producer({"bootstrap.servers": disabled_lab.bootstrap_servers, "transactional.id": f"{NAME}-stranger"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(NAME, b"x", partition=1)
    producer.flush(20)
    first, second = look(observer), look(observer)
    for view in (first, second):
        assert [transaction.transactional_id for transaction in view.open_transactions] == [f"{NAME}-stranger"]
        assert [(held.topic, held.partition) for held in view.held] == [(NAME, 1)]
    assert first.held == second.held, "it is dated from the first look"
    producer.commit_transaction(20)
    wait_for("it is over", lambda: not look(observer).held and not look(observer).open_transactions)


def test_a_source_that_goes_on_is_seen_to_move_and_one_that_has_run_dry_is_not(disabled_lab: Lab, source: Path) -> None:
    observer = Observer(disabled_lab.cluster())

    def moves_steadily() -> bool:
        with source.open("a", encoding="utf-8") as file:
            file.write("another line\n")
        time.sleep(1.2)  # the file source looks for new lines once a second
        return look(observer).movements[NAME].steady_at is not None

    wait_for("three growing looks in a row", moves_steadily)
    wait_for("it has run dry", lambda: look(observer).movements[NAME].looks == 0)
    standing = look(observer).movements[NAME]
    assert look(observer).movements[NAME] == standing


def test_one_look_stays_cheap(disabled_lab: Lab, source: Path) -> None:
    """About 0.1 s on a quiet machine with three workers; the limit leaves room for a busy one."""
    observer = Observer(disabled_lab.cluster())
    observer.observe()
    began = time.monotonic()
    for _ in range(3):
        observer.observe()
    assert (time.monotonic() - began) / 3 < 1.0
