"""How far a connector's own topic and the global one are apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.kafka.admin.partition_writers import Outcome
from airflow_eos_provider.kafka.read.reader import LogRecord
from airflow_eos_provider.offsets.offsets_topic import OffsetsTopic
from airflow_eos_provider.offsets.seen.copies import Copies, all_copies, copies
from airflow_eos_provider.offsets.seen.group_offsets import GroupOffsets
from tests.unit.offsets.topics import topic_of

#: (source partition, offset or None for a removal, time in milliseconds)
Entry = tuple[str, dict[str, Any] | None, int]


def topic(name: str, entries: tuple[Entry, ...], outcomes: tuple[Outcome, ...] = ()) -> OffsetsTopic:
    """:param outcomes: of the transactions of the entries; committed by default."""
    records = [
        LogRecord(name, 0, position, at, offset_key("c", {"p": partition}), offset and json.dumps(offset).encode())
        for position, (partition, offset, at) in enumerate(entries)
    ]
    if not outcomes:
        return topic_of(name, records)
    return topic_of(name, records, outcome=lambda record: outcomes[record.offset])


def beside(own: tuple[Entry, ...] | None, global_: tuple[Entry, ...], outcomes: tuple[Outcome, ...] = ()) -> Copies:
    """:param own: None: the topic does not exist."""
    return of_group({} if own is None else {"own": topic("own", own, outcomes)}, topic("global", global_))


def of_group(own_topics: dict[str, OffsetsTopic], global_topic: OffsetsTopic) -> Copies:
    connectors = {"c": ConnectorStatus("c", "source", "RUNNING", "w")}
    found = copies(GroupOffsets(global_topic, own_topics, connectors, {"c": "own"}), "c")
    assert found is not None
    return found


def test_copies_that_are_as_far() -> None:
    found = beside((("a", {"n": 2}, 1_000), ("b", None, 1_000)), (("a", {"n": 2}, 1_010), ("b", None, 900)))
    assert (found.read_own, found.same, found.behind, found.left, found.further) == (1, 1, 0, 0, 0)
    assert (found.newest_own, found.newest_global) == (1.0, 1.01)


def test_an_older_copy_is_behind_by_the_time_between_them() -> None:
    found = beside(
        (("a", {"n": 9}, 8_000), ("b", {"n": 9}, 9_000)),
        (("a", {"n": 2}, 1_500), ("b", {"n": 8}, 8_900)),
    )
    assert (found.behind, found.seconds_behind, found.missing, found.further) == (2, 6.5, 0, 0)


@pytest.mark.parametrize("copy", [(), (("a", None, 500),)], ids=["none", "removed before"])
def test_a_copy_that_is_missing(copy: tuple[Entry, ...]) -> None:
    found = beside((("a", {"n": 9}, 1_000),), copy)
    assert (found.behind, found.missing, found.seconds_behind) == (1, 1, None)
    assert not found.is_left_behind


def test_an_older_copy_that_is_further_on_would_skip() -> None:
    assert beside((("a", {"n": 3}, 2_000),), (("a", {"n": 9}, 1_000),)).further == 1
    assert beside((("a", None, 2_000),), (("a", {"n": 9}, 1_000),)).further == 1, "removed since: it is to begin anew"
    assert beside((("a", {"s": "x"}, 2_000),), (("a", {"s": "y"}, 1_000),)).further == 0, "no number, no order"
    assert beside((("a", {"n": False}, 2_000),), (("a", {"n": True}, 1_000),)).further == 0


def test_a_newer_offset_in_the_global_topic_leaves_the_own_one_behind() -> None:
    found = beside((("a", {"n": 2}, 1_000),), (("a", {"n": 9}, 5_000),))
    assert (found.left, found.behind) == (1, 0)
    assert found.is_left_behind


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.OPEN])
def test_a_copy_of_a_transaction_that_is_not_committed_is_no_progress(outcome: Outcome) -> None:
    of_before, lost = ("a", {"n": 2}, 1_000), ("a", {"n": 9}, 2_000)
    found = beside((of_before, lost), (("a", {"n": 9}, 2_010),), (Outcome.COMMITTED, outcome))
    assert (found.ahead, found.left, found.behind) == (1, 0, 0)
    assert not found.is_left_behind, "dropped by that, its own topic would take with it what nobody has delivered"
    assert beside((lost,), (("a", {"n": 9}, 2_010),), (outcome,)).ahead == 1, "its first transaction"
    again = (of_before, lost, ("a", {"n": 9}, 3_000))
    assert beside(again, (("a", {"n": 9}, 3_010),), (Outcome.COMMITTED, outcome, Outcome.COMMITTED)).ahead == 0
    went_on = beside((of_before, lost), (("a", {"n": 30}, 9_000),), (Outcome.COMMITTED, outcome))
    assert (went_on.ahead, went_on.left) == (0, 1), "another worker's, since"


def test_a_source_partition_that_the_own_topic_never_had_counts_only_if_it_came_since() -> None:
    own = (("a", {"n": 2}, 1_000),)
    same = ("a", {"n": 2}, 1_001)
    assert beside(own, (same, ("of before", {"n": 9}, 900))).left == 0
    assert beside(own, (same, ("of since", {"n": 9}, 1_100))).left == 1


def test_an_own_topic_that_is_not_there_is_left_behind_by_what_the_global_one_has() -> None:
    assert beside(None, (("a", {"n": 9}, 900),)).is_left_behind
    assert not beside(None, (("a", None, 900),)).is_left_behind
    assert not beside(None, ()).is_left_behind


def test_of_several_records_of_a_key_the_newest_counts() -> None:
    key = offset_key("c", {"p": "a"})
    records = [LogRecord("global", 0, 7, 100, key, b'{"n": 1}'), LogRecord("global", 1, 1, 2_000, key, b'{"n": 5}')]
    own = topic("own", (("a", {"n": 5}, 1_900),))
    assert of_group({"own": own}, topic_of("global", records, 2)).same == 1


def test_only_connectors_with_an_own_topic_that_is_known_have_copies() -> None:
    names = ("c", "plain", "elsewhere")
    connectors = {name: ConnectorStatus(name, "source", "RUNNING", "w") for name in names}
    offsets = GroupOffsets(
        topic("global", ()), {}, connectors, {"c": "own", "elsewhere": "?"}, not_read=frozenset({"elsewhere"})
    )
    assert [one.connector for one in all_copies(offsets)] == ["c"]
