"""Topics by name and id: what is stored of them, and what counts as another topic."""

from __future__ import annotations

import json

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.control_topic import ControlState, pipeline_record, plan_record
from airflow_eos_provider.interval.topics.ledger import CompleteRecord, LedgerState, complete_record
from airflow_eos_provider.interval.topics.pins import Pinned, Pins, TopicChangedError, TopicPin, changes, require_same
from airflow_eos_provider.interval.topics.preparation import check_in_sync
from airflow_eos_provider.kafka.read.reader import LogRecord

RUN = Run.parse("p@2013-01-01T00:00:00Z/2013-01-02T00:00:00Z")
LEDGER, TARGET = TopicPin("ledger", "L" * 22), TopicPin("target", "T" * 22)
PINS = Pins(LEDGER, TARGET)


@pytest.mark.parametrize("pins", [PINS, Pins(LEDGER), None])
def test_what_is_pinned_comes_back_from_the_plan_and_from_complete(pins: Pins | None) -> None:
    control, ledger = ControlState(), LedgerState("p")
    complete = CompleteRecord(RUN, 1, "1", 1, pins)
    control.apply([LogRecord("c", 0, 0, 0, *plan_record(RunPlan(RUN, [{}]), pins))])
    ledger.apply([LogRecord("l", 0, 0, 0, *complete_record(complete))])

    assert control.pinned(RUN) == [Pinned("the plan on record", pins)]
    assert ledger.completed(RUN) == complete


def test_a_pipelines_record_outlives_its_runs_and_is_about_its_ledger_only() -> None:
    control = ControlState()
    plan = plan_record(RunPlan(RUN, [{}]), PINS)
    records = [plan, pipeline_record("p", LEDGER), plan._replace(value=None)]
    control.apply(LogRecord("c", 0, n, 0, *record) for n, record in enumerate(records))

    assert control.runs == {}
    assert control.pinned(RUN) == [Pinned("the record of the pipeline p", Pins(LEDGER), with_target=False)]
    require_same("r", control.pinned(RUN), Pins(LEDGER, TopicPin("another")))


def test_what_complete_holds_is_what_connect_allows_in_an_offset() -> None:
    (_, value) = complete_record(CompleteRecord(RUN, 1, "1", 1, PINS))

    assert all(isinstance(entry, str | int | bool) for entry in json.loads(value or b"").values())


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (PINS, None),
        (Pins(LEDGER), None),  # a sensor's pipeline, which names no target
        (Pins(LEDGER, TARGET, TopicPin("control", "C")), None),
        (Pins(TopicPin("other", "O"), TARGET), r"its ledger was ledger \(id L+\), now it is other \(id O\)"),
        (Pins(TopicPin("ledger", "O"), TARGET), "deleted and recreated: ledger now has the id O"),
        (Pins(TopicPin("ledger"), TARGET), "its ledger ledger .* is gone"),
        (Pins(LEDGER, TopicPin("other", "O")), r"its target was target \(id T+\), now it is other"),
        (Pins(LEDGER, TopicPin("target", "O")), "target .* was deleted and recreated"),
    ],
)
def test_another_topic_is_named_with_what_to_do(found: Pins, words: str | None) -> None:
    if words is None:
        require_same("r", [Pinned("the plan", PINS)], found)
        return
    with pytest.raises(TopicChangedError, match=words) as raised:
        require_same("r", [Pinned("the plan", PINS)], found)

    assert raised.value.remedy


def test_rows_that_named_their_topics_do_not_get_one_later() -> None:
    assert changes(Pins(LEDGER), PINS) == [f"its rows named their topics, now the target is {TARGET}"]


def test_brokers_without_topic_ids_are_compared_by_name() -> None:
    assert changes(Pins(TopicPin("ledger")), Pins(LEDGER)) == []
    assert changes(Pins(TopicPin("ledger")), Pins(TopicPin("other"))) != []


def test_a_control_topic_made_anew_counts_within_a_run() -> None:
    begun = Pins(LEDGER, TARGET, TopicPin("control", "C"))

    assert "control topic" in changes(begun, Pins(LEDGER, TARGET, TopicPin("control", "D")))[0]


@pytest.mark.parametrize(("in_sync", "replicas"), [(1, 1), (2, 2), (2, 3), (3, 3), (2, 5)])
def test_two_copies_or_the_only_one_are_enough(in_sync: int, replicas: int) -> None:
    check_in_sync("t", in_sync, replicas)


@pytest.mark.parametrize(("replicas", "right"), [(2, 2), (3, 2), (5, 4)])
def test_a_leader_that_acknowledges_alone_is_refused_with_the_command(replicas: int, right: int) -> None:
    with pytest.raises(ConfigurationError, match=r"lost with it") as raised:
        check_in_sync("t", 1, replicas)

    assert f"--add-config min.insync.replicas={right}" in str(raised.value)
    assert "allow_single_in_sync_replica" in str(raised.value)
