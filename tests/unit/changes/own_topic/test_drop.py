"""Taking a connector off an own topic that is left behind: what goes, and what stays for others."""

from __future__ import annotations

from dataclasses import replace

from airflow_eos_provider.changes.own_topic.drop import OwnTopic, connectors_in
from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.kafka.admin.partition_writers import Outcome
from airflow_eos_provider.kafka.read.reader import LogRecord
from tests.unit.offsets.topics import topic_of

OUTCOMES = (Outcome.COMMITTED, Outcome.COMMITTED, Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN)
OWN = OwnTopic("cluster", "orders", "orders-offsets", "id-1", offsets=2)


def test_a_plan_deletes_the_topic_unless_another_connector_names_it() -> None:
    assert OWN.is_deleted
    assert "-topic orders-offsets (id id-1, 2 offsets of it)" in OWN.lines(1)
    shared = replace(OWN, also_of=("b",))
    assert not shared.is_deleted
    assert " topic orders-offsets stays: it is also of b" in shared.lines(1)
    assert not replace(OWN, topic_id="").is_deleted


def test_whose_offsets_are_in_a_topic() -> None:
    """It may be the own topic of a connector of another Connect cluster, of which this one knows nothing."""
    contents = (("orders", b"1"), ("of another", b"2"), ("removed", None), ("gone", b"3"), ("about to", b"4"))
    records = [
        LogRecord("own", 0, position, 1, offset_key(connector, {"p": 1}), value)
        for position, (connector, value) in enumerate(contents)
    ]
    topic = topic_of("own", records, outcome=lambda record: OUTCOMES[record.offset])
    assert connectors_in(topic) == {"orders", "of another", "about to"}
