"""Who waits behind an open transaction, by what the groups have committed."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from airflow_eos_provider.connect.topics.config_topic import ClusterState, ConnectorConfigState
from airflow_eos_provider.kafka.admin import groups
from airflow_eos_provider.kafka.admin.groups import GroupSeen
from airflow_eos_provider.transactions.readable_ends import PartitionEnds
from airflow_eos_provider.transactions.readers import ReadersLook, Standing, decide, sink_groups

PLACE = ("orders", 3)
ENDS = {PLACE: PartitionEnds(100, 150)}


@pytest.mark.parametrize(
    ("committed", "standing", "words"),
    [
        (100, Standing.WAITS, "waits at 100, 50 to the end"),
        (90, Standing.BEFORE, "at 90, 10 before the transaction, 60 to the end"),
        (101, Standing.PAST, "it reads uncommitted records"),
    ],
)
def test_where_a_group_stands(committed: int, standing: Standing, words: str) -> None:
    (reader,) = decide([GroupSeen("app", {PLACE: committed}, frozenset({PLACE}))], ENDS, {})
    assert reader.standing is standing
    assert reader.words.startswith("group app: ")
    assert words in reader.words
    assert (reader.to_dict()["lag_to_stable"], reader.to_dict()["lag_to_end"]) == (100 - committed, 150 - committed)


def test_a_member_without_a_position_is_not_said_to_wait() -> None:
    (reader,) = decide([GroupSeen("app", {}, frozenset({PLACE}))], ENDS, {})
    assert (reader.standing, reader.to_end) == (Standing.UNKNOWN, None)
    assert "no position" in reader.words


def test_a_group_that_has_nothing_there_is_no_reader_nor_is_one_of_a_partition_whose_ends_are_not_known() -> None:
    assert decide([GroupSeen("app", {("other", 0): 5})], ENDS, {}) == ()
    assert decide([GroupSeen("app", {PLACE: 5})], {PLACE: "it has no leader"}, {}) == ()


def test_a_group_without_members_says_so() -> None:
    (reader,) = decide([GroupSeen("app", {PLACE: 100})], ENDS, {})
    assert reader.words.endswith("no member has the partition now")


def test_what_a_coordinator_keeps_back_is_named_and_nothing_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = ("kept back", 0)
    refused = GroupAuthorizationFailedError("secret")
    assigned = [ConsumerProtocolAssignment.TopicPartition(topic=t, partitions=[p]) for t, p in (PLACE, hidden)]
    assignment = ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=b"", version=0).encode()
    app = groups.Group("app", "Stable", "range", "consumer", (groups.Member("m", "c", "/h", b"", bytes(assignment)),))
    committed = groups.Committed({PLACE: 100}, {hidden: TopicAuthorizationFailedError("kept back")})
    monkeypatch.setattr(groups, "consumer_groups", lambda _: (["app", "secret", "third"], []))
    monkeypatch.setattr(groups, "committed_offsets", lambda *_: {"app": committed, "secret": refused})
    monkeypatch.setattr(groups, "describe_groups", lambda *_: {"app": app, "secret": refused})
    admin: Any = None
    assert groups.groups_seen(admin, most=2) == (
        [GroupSeen("app", {PLACE: 100}, frozenset({PLACE}), ("c",), ("h",))],
        [
            "there are 3 consumer groups, 2 were checked",
            "group app: the principal may not describe a topic that it reads",
            "group secret: the principal may not describe it",
        ],
    )


def test_sink_connectors_are_named_as_such_also_by_the_group_that_they_override() -> None:
    def state(name: str, **config: str) -> ConnectorConfigState:
        return ConnectorConfigState(name, {key.replace("_", "."): value for key, value in config.items()}, 1, "STARTED")

    found = sink_groups(
        ClusterState(
            {
                "s3": state("s3", topics="orders"),
                "hdfs": state("hdfs", topics_regex="o.*", consumer_override_group_id="mine"),
                "jdbc": state("jdbc", topic="orders"),
            },
            9,
        )
    )
    assert found == {"connect-s3": "s3", "mine": "hdfs"}
    seen = [GroupSeen(name, {PLACE: 100}) for name in ("connect-s3", "mine", "connect-x", "app")]
    assert {r.group_id: r.connector for r in decide(seen, ENDS, found)} == {
        "connect-s3": "s3",
        "mine": "hdfs",
        "connect-x": "x, by its name",
        "app": None,
    }


def test_those_who_wait_come_first_the_one_with_most_left_before_others() -> None:
    positions = {"past": 120, "far": 10, "waits": 100, "near": 99}
    readers = decide([GroupSeen(name, {PLACE: at}) for name, at in positions.items()], ENDS, {})
    assert [reader.group_id for reader in ReadersLook(readers).at(PLACE)] == ["waits", "far", "near", "past"]
