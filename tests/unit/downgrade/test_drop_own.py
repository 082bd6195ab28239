"""The plan that takes a connector off an own topic that is left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_eos_provider.connect.topics.source_offsets import OffsetLog, offset_key
from airflow_eos_provider.downgrade.drop_own import DropPlan, connectors_in
from airflow_eos_provider.errors import ConfigurationError, PlanMovedError
from airflow_eos_provider.kafka.admin.partition_writers import Outcome
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.kafka.read.writers import TopicWriters
from airflow_eos_provider.offsets.topic import OffsetsTopic

OUTCOMES = (Outcome.COMMITTED, Outcome.COMMITTED, Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN)
PLAN = DropPlan("g", "cluster", "orders", "orders-offsets", "id-1", offsets=2, left=1)


def test_a_plan_deletes_the_topic_unless_another_connector_names_it() -> None:
    assert PLAN.deletes
    assert "-topic orders-offsets (id id-1, 2 offsets of it)" in PLAN.lines()
    shared = replace(PLAN, also_of=("b",))
    assert not shared.deletes
    assert " topic orders-offsets stays: it is also of b" in shared.lines()
    assert not replace(PLAN, topic_id="").deletes


def test_whose_offsets_are_in_a_topic() -> None:
    """It may be the own topic of a connector of another Connect cluster, of which this one knows nothing."""
    log = OffsetLog("own", lambda record: OUTCOMES[record.offset])
    for position, (connector, value) in enumerate(
        (("orders", b"1"), ("of another", b"2"), ("removed", None), ("gone", b"3"), ("about to", b"4"))
    ):
        log.take([LogRecord("own", 0, position, 1, offset_key(connector, {"p": 1}), value)])
    topic = OffsetsTopic(
        "own", "id", {0: 5}, log.committed(), log.open(), TopicWriters(None, {}, {}, {}), log.aborted()
    )
    assert connectors_in(topic) == {"orders", "of another", "about to"}


def test_the_hash_is_of_what_is_done_and_not_of_the_global_topic_that_goes_on() -> None:
    assert replace(PLAN, left=5).hash == PLAN.hash
    for other in (replace(PLAN, topic_id="id-2"), replace(PLAN, also_of=("b",)), replace(PLAN, offsets=3)):
        assert other.hash != PLAN.hash
        with pytest.raises(PlanMovedError):
            other.require(PLAN.short_hash)
    PLAN.require(PLAN.short_hash)


def test_a_plan_comes_back_from_the_journal_as_it_was() -> None:
    assert DropPlan.from_dict(PLAN.to_dict()) == PLAN
    with pytest.raises(ConfigurationError):
        DropPlan.from_dict({**PLAN.to_dict(), "schema": 99})
