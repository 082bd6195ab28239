from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

SETTINGS = KafkaSettings.of("broker:9092", {"sasl.username": "eos", "sasl.password": "c4nary"})
RUN = Run.parse("flights.daily@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z")


def pipeline(**fields: Any) -> Pipeline:
    return Pipeline(**{"name": "flights.daily", "group_id": "eos", "kafka": SETTINGS, "topic": "flights", **fields})


def test_ids_are_those_of_a_connector_of_the_runs_name() -> None:
    own = pipeline()

    assert own.transactional_id(RUN, 3) == "eos-flights.daily@2013-01-01T05:00:00Z/2013-01-02T05:00:00Z-3"
    assert own.coordinator_id(RUN).endswith("Z-coordinator")
    assert own.planner_id == "eos-flights.daily-planner"
    assert all(i.startswith("eos-flights.daily") for i in (own.transactional_id(RUN, 0), own.planner_id))


def test_topics_are_named_after_group_and_pipeline() -> None:
    assert (pipeline().ledger_topic, pipeline().control_topic) == ("eos-flights.daily-offsets", "eos-configs")
    assert pipeline(ledger_topic="other").ledger_topic == "other"


def test_it_travels_to_executors_as_json_and_as_pickle() -> None:
    own = pipeline(producer={"compression.type": "zstd"}, run_header="eos-run", target_partitions=3)

    assert Pipeline.from_dict(json.loads(json.dumps(own.to_dict()))) == own
    assert pickle.loads(pickle.dumps(own)) == own


def test_a_function_for_tokens_travels_by_its_name_only() -> None:
    def my_tokens(_: str) -> tuple[str, float]:
        raise AssertionError

    with pytest.raises(ConfigurationError, match=r"oauth_cb is a function itself(.|\n)*package\.module\.function"):
        KafkaSettings.of("broker:9092", {"oauth_cb": my_tokens})
    own = pipeline(kafka=KafkaSettings.of("broker:9092", {"oauth_cb": "my.module.tokens"}))
    assert pickle.loads(pickle.dumps(own)).kafka.properties["oauth_cb"] == "my.module.tokens"


def test_its_text_shows_no_secret() -> None:
    own = pipeline(producer={"ssl.key.password": "c4nary", "compression.type": "zstd"})

    assert "c4nary" not in f"{own!r} {own}"
    assert "zstd" in repr(own)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "a@b"}, "cannot be named"),
        ({"group_id": ""}, "cannot be named"),
        ({"topic": ""}, "A topic cannot be named ''"),
        ({"topic": "flights/daily"}, "A topic cannot be named"),
        ({"topic": ".."}, "A topic cannot be named"),
        ({"producer": {"transactional.id": "x"}}, "may not set the producer's transactional.id"),
        ({"producer": {"partitioner": "random"}}, "may not set the producer's partitioner"),
        ({"ledger_topic": "flights"}, "one topic for two things"),
        ({"ledger_topic": "x", "control_topic": "x"}, "one topic for two things"),
        ({"transaction_timeout_ms": 10}, "transaction timeout"),
        ({"ledger_partitions": 0}, "0 partitions"),
        ({"target_partitions": 0}, "0 partitions"),
    ],
)
def test_what_would_break_the_promise_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        pipeline(**fields)
