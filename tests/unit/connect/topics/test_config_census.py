"""A config topic counted: live and dead records, leftovers, generations, writers."""

from __future__ import annotations

import json
import tracemalloc

from airflow_eos_provider.connect.topics.config_census import CensusTaker
from airflow_eos_provider.kafka.read.reader import LogRecord

A = {"properties": {"connector.class": "X"}}


def log(*entries: tuple[str, object]) -> list[LogRecord]:
    return [
        LogRecord("configs", 0, offset, 0, key.encode(), None if value is None else json.dumps(value).encode())
        for offset, (key, value) in enumerate(entries)
    ]


GENERATION = (("connector-a", A), ("task-a-0", A), ("commit-a", {"tasks": 1}), ("tasks-fencing-a", {"task-count": 1}))


def test_what_a_later_record_of_the_key_supersedes_is_dead() -> None:
    taker = CensusTaker()
    taker.take(log(*GENERATION, *GENERATION, ("session-key", {"key": "s3cret"}), ("session-key", {"key": "s3cret"})))
    census = taker.census(10)
    assert (census.total.live, census.total.dead) == (5, 5)
    assert census.kinds["commit"].live == census.kinds["commit"].dead == 1
    assert census.commits == {"a": 2}
    assert census.total.live_bytes == census.total.dead_bytes
    assert "s3cret" not in json.dumps(census.to_dict())


def test_a_deleted_connector_leaves_what_connect_never_removes() -> None:
    taker = CensusTaker()
    taker.take(log(*GENERATION, ("connector-a", None), ("target-state-a", None)))
    census = taker.census(6)
    assert census.leftovers == {"a": ("commit", "task", "tasks-fencing")}
    assert census.kinds["connector"].live == 0
    assert census.kinds["connector"].dead == 2


def test_unknown_records_and_malformed_ones_are_told_apart() -> None:
    taker = CensusTaker()
    taker.take(log(("mine", {}), ("commit-a", "x"), *GENERATION))
    census = taker.census(6)
    assert (census.state.unknown, census.kinds["unknown"].live) == (("0 mine",), 1)
    assert census.leftovers == {}


def test_a_leaders_record_by_another_transactional_producer_is_foreign_and_a_plain_one_is_not() -> None:
    writers = {0: 7, 1: 7, 2: 9, 3: None}
    taker = CensusTaker(lambda record: writers[record.offset], frozenset({7}))
    taker.take(log(*GENERATION))
    census = taker.census(4)
    assert (census.foreign, census.writers) == (1, {7: 2, 9: 1, None: 1})


def test_records_are_counted_by_the_connector_that_their_key_names() -> None:
    taker = CensusTaker()
    taker.take(log(("task-my-connector-12", A), ("tasks-fencing-a", {"task-count": 1}), ("logger-cluster-org", {})))
    assert taker.census(3).leftovers == {"a": ("tasks-fencing",), "my-connector": ("task",)}
    assert taker.census(3).kinds.keys() == {"task", "tasks-fencing", "logger-cluster"}


def test_a_census_takes_memory_for_the_keys_of_a_topic_and_not_for_its_records() -> None:
    def most_memory(generations: int) -> int:
        tracemalloc.start()
        try:
            taker = CensusTaker()
            for _ in range(generations):  # as a read hands them over: each record with objects of its own
                taker.take(log(*GENERATION))
            assert taker.census(0).total.dead == 4 * (generations - 1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    most_memory(1)  # what is made once for all
    assert most_memory(2_000) < most_memory(500) + 10_000
