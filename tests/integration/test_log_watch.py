"""What an observer sees of the topics that a real group writes: open transactions and sources that go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.rollout.observe.topic_progress import LogView
from tests.waiting import wait_for

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
NAME = "log-watch"


@pytest.fixture(scope="module")
def source(disabled_lab: Lab) -> Path:
    """The file of a source connector that has delivered its first line."""
    file = disabled_lab.data_dir / f"{NAME}.txt"
    file.write_text("line\n", encoding="utf-8")
    disabled_lab.create_topic(NAME, 2)
    with ConnectRest(disabled_lab.connect_urls[0], retry_seconds=180) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": NAME, "file": str(file)}
        rest.create(NAME, config)
    wait_for("every worker tracks its topic", lambda: all(map(tracks, disabled_lab.connect_urls)))
    return file


def tracks(url: str) -> bool:
    """Whether a worker knows the topic that the connector writes; each reads that for itself."""
    with ConnectRest(url, retry_seconds=180) as rest:
        return rest.topics(NAME) == (NAME,)


def look(observer: Observer) -> LogView:
    observation = observer.observe()
    assert observation.logs is not None, observation.logs_problem
    return observation.logs


def test_a_transaction_on_a_topic_that_the_group_writes_is_seen_until_it_ends(disabled_lab: Lab, source: Path) -> None:
    observer = Observer(disabled_lab.cluster())
    wait_for("the topic is watched", lambda: NAME in look(observer).movements)
    identity = {"bootstrap.servers": disabled_lab.bootstrap_servers, "transactional.id": f"{NAME}-another"}
    producer = Producer({**identity, "transaction.timeout.ms": 600_000})
    producer.init_transactions(180)
    producer.begin_transaction()
    producer.produce(NAME, b"x", partition=1)
    producer.flush(180)
    first, second = look(observer), look(observer)
    for view in (first, second):
        assert [transaction.transactional_id for transaction in view.open_transactions] == [f"{NAME}-another"]
        assert [(held.topic, held.partition) for held in view.held] == [(NAME, 1)]
    assert first.held == second.held, "it is dated from the first look"
    producer.commit_transaction(180)
    wait_for("it is over", lambda: not look(observer).held and not look(observer).open_transactions)


def test_a_source_that_goes_on_is_seen_to_move_and_one_that_has_run_dry_is_not(disabled_lab: Lab, source: Path) -> None:
    cluster = disabled_lab.cluster()
    observer = Observer(cluster)

    def delivered() -> int:
        return len(read_to_end(cluster.kafka, NAME).records)

    def moves_steadily() -> bool:
        before = delivered()
        with source.open("a", encoding="utf-8") as file:
            file.write("another line\n")
        wait_for("the line is delivered", lambda: delivered() > before)
        return look(observer).movements[NAME].steady_at is not None

    wait_for("three growing looks in a row", moves_steadily)
    wait_for("it has run dry", lambda: look(observer).movements[NAME].looks == 0)
    standing = look(observer).movements[NAME]
    assert look(observer).movements[NAME] == standing


def test_looks_share_their_clients(disabled_lab: Lab, source: Path) -> None:
    """At most as many of a kind as one look uses at once: for each worker two, and a few of the broker's."""
    with Observer(disabled_lab.cluster()) as observer:
        for _ in range(10):
            look(observer)
        admins, transactions, consumers = 4, 2, 1
        workers = 2 * len(disabled_lab.cluster().workers)
        assert 0 < observer.session.kafka.clients_made <= workers + admins + transactions + consumers
