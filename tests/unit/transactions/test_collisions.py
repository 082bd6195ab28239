"""What two groups of a Kafka cluster share without meaning to."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.topics.config_topic import ClusterState, ConnectorConfigState
from airflow_eos_provider.connect.transactional_ids import KnownGroup
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionListing
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.transactions import colliding_users
from airflow_eos_provider.transactions.colliding_users import look_at_groups, pipelines_of
from airflow_eos_provider.transactions.collisions import (
    CONTROL,
    PLANNER,
    Collision,
    CollisionKind,
    KafkaGroups,
    PipelineSeen,
    find_collisions,
    not_known,
)
from airflow_eos_provider.transactions.known_ids import owner_of, with_leaders


def group(name: str, *connectors: str, topics: tuple[str, ...] = ()) -> KnownGroup:
    return KnownGroup(name, frozenset(connectors), frozenset(topics))


def harm(*groups: KnownGroup, **more: object) -> list[Collision]:
    found = find_collisions(KafkaGroups(groups, **more))  # type: ignore[arg-type]
    return [each for each in found if each.is_harmful]


def test_a_with_b_c_and_a_b_with_c_have_the_same_ids() -> None:
    (found,) = harm(group("a", "b-c", "x"), group("a-b", "c", "y"))
    assert (found.kind, found.subject) == (CollisionKind.IDS, "a-b-c-<task>")
    assert "connector b-c of group a and connector c of group a-b" in found.what


def test_a_prefix_that_reaches_into_another_group_does_no_harm_yet() -> None:
    (found,) = find_collisions(KafkaGroups((group("connect", "s3"), group("connect-orders", "jdbc"))))
    assert (found.kind, found.is_harmful) == (CollisionKind.PREFIX, False)
    assert "name no connector of connect orders-…" in found.remedy


def test_groups_whose_names_only_begin_alike_have_nothing_to_do_with_each_other() -> None:
    assert find_collisions(KafkaGroups((group("connect", "s3"), group("connect2", "s3")))) == ()


def test_a_task_with_the_id_of_another_groups_leader_or_journal_is_found() -> None:
    (leader,) = harm(group("connect", "cluster-orders"), group("orders-0"))
    assert "task 0 of connector cluster-orders" in leader.what
    assert leader.subject == "connect-cluster-orders-0"
    (journal,) = harm(group("eos", "rollout-g"), group("g-7"))
    assert journal.subject == "eos-rollout-g-7"


def test_two_groups_on_one_topic_are_found_by_their_files_and_by_who_writes() -> None:
    (by_files,) = harm(group("g", topics=("offsets",)), group("h", topics=("offsets",)))
    assert (by_files.kind, by_files.subject) == (CollisionKind.TOPIC, "offsets")
    (by_leaders,) = harm(group("g"), group("h"), writers={"configs": ["connect-cluster-g", "connect-cluster-h"]})
    assert "the Connect groups g and h use the topic configs" in by_leaders.what
    (by_tasks,) = harm(group("g", "x", topics=("offsets",)), group("h", "y"), writers={"offsets": ["g-x-0", "h-y-0"]})
    assert by_tasks.subject == "offsets"


def test_tasks_that_write_to_one_data_topic_share_nothing_internal() -> None:
    assert harm(group("g", "x"), group("h", "y"), writers={"data": ["g-x-0", "h-y-0"]}) == []


def test_an_id_that_two_groups_claim_does_not_tell_who_writes() -> None:
    both = group("a", "b-c", topics=("offsets",)), group("a-b", "c")
    assert [each.kind for each in harm(*both, writers={"offsets": ["a-b-c-0"]})] == [CollisionKind.IDS]


@pytest.mark.parametrize(("kind", "harmful"), [("consumer", True), ("connect", False), ("", False)])
def test_a_group_id_that_an_ordinary_consumer_holds_keeps_the_workers_out(kind: str, harmful: bool) -> None:
    assert bool(harm(group("g"), types={"g": kind})) is harmful


def test_a_sink_connector_whose_group_is_a_connect_cluster_is_found() -> None:
    def state(config: dict[str, str]) -> dict[str, ClusterState]:
        return {"connect": ClusterState({"orders": ConnectorConfigState("orders", config, 1, "STARTED")}, 9)}

    (found,) = harm(group("connect-orders"), states=state({"topics": "t"}))
    assert (found.kind, found.subject) == (CollisionKind.GROUP, "connect-orders")
    assert "sink connector orders of group connect" in found.what
    assert harm(group("connect-orders"), group("connect", "orders"), states=state({"topic": "t"})) == []
    assert harm(group("connect-orders"), group("connect", "orders")) == []  # whether it is a sink is not known
    said = find_collisions(KafkaGroups((group("connect-orders"), group("connect", "orders"))))
    assert "if connector orders of group connect is a sink connector" in said[0].what


def test_tasks_of_the_group_that_kafka_ships_are_not_taken_for_leaders_of_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two connectors of ``connect-cluster`` write to one topic: their ids begin as those of leaders do."""
    ids = ("connect-cluster-connect-cluster", "connect-cluster-a-0", "connect-cluster-b-0")
    client = SimpleNamespace(
        list=lambda: [TransactionListing(name, TransactionState.EMPTY, number) for number, name in enumerate(ids)],
        writing=lambda places: SimpleNamespace(producers={("data", 0): frozenset({1, 2})}, unknown={}),
    )
    kafka: Any = SimpleNamespace(admin=lambda: nullcontext(), transactions=lambda: nullcontext(client))
    own = group("connect-cluster", "a", "b")
    monkeypatch.setattr(colliding_users, "listed_groups", lambda _: ())
    monkeypatch.setattr(colliding_users, "hidden_groups", lambda _: "")
    found = look_at_groups(kafka, {"data": 1}, [own], {})
    assert (found.connect, find_collisions(found)) == ((own,), ())
    assert with_leaders([], own, ids) == []
    theirs = owner_of("connect-cluster-a-0", "connect-cluster", {"a"}, with_leaders([], own, ids))
    assert theirs.text == "a, task 0"


def test_a_pipeline_in_a_connect_group_shares_its_group_and_its_config_topic() -> None:
    found = harm(group("g", topics=("g-configs",)), pipelines=(PipelineSeen("g", "daily"),))
    assert [(each.kind, each.subject) for each in found] == [
        (CollisionKind.TOPIC, "g-configs"),
        (CollisionKind.GROUP, "g"),
    ]


def test_pipelines_of_two_groups_may_have_the_same_ids_too() -> None:
    (found,) = harm(pipelines=(PipelineSeen("a", "b-c"), PipelineSeen("a-b", "c")))
    assert found.subject == "a-b-c@…"
    perhaps = (PipelineSeen("a", "b-c", is_certain=False), PipelineSeen("a-b", "c", is_certain=False))
    assert harm(pipelines=perhaps) == []
    (said,) = find_collisions(KafkaGroups(pipelines=perhaps))
    assert "perhaps the interval pipeline b-c of group a and perhaps the interval pipeline c of group a-b" in said.what
    (at_sign,) = harm(group("a-b", "c@x"), pipelines=(PipelineSeen("a", "b-c"),))
    assert "without '@'" in at_sign.remedy


def test_a_planners_id_is_split_where_the_control_topic_says() -> None:
    topics = {"a-configs", "x-y-configs"}
    assert pipelines_of(["a-b-c-planner", "a-b-c-0", "x-y-z-planner", "m-n-planner"], topics) == (
        PipelineSeen("a", "b-c"),
        PipelineSeen("x-y", "z"),
    )
    of_connect = pipelines_of(["a-b-c-planner"], {"a-configs", "a-b-configs"}, {"a-configs"})
    assert of_connect == (PipelineSeen("a-b", "c"),)
    both = pipelines_of(["a-b-c-planner"], {"a-configs", "a-b-configs"})
    assert both == (PipelineSeen("a", "b-c", is_certain=False), PipelineSeen("a-b", "c", is_certain=False))


def test_names_of_pipelines_are_those_that_pipelines_have() -> None:
    pipeline = Pipeline("daily", "g", KafkaSettings.of("broker:9092"))
    assert (pipeline.planner_id, pipeline.control_topic) == (f"g-daily{PLANNER}", f"g{CONTROL}")
    assert PipelineSeen("g", "daily").prefix == "g-daily"


def test_whether_ids_coincide_is_not_known_where_connectors_are_not() -> None:
    known, unknown = group("a", "x"), KnownGroup("a")
    assert not_known(KafkaGroups((known, KnownGroup("a-b")))) == ()  # no connector of a begins with b-
    assert "the connectors of a-b are unknown" in not_known(KafkaGroups((group("a", "b-c"), KnownGroup("a-b"))))[0]
    assert "the connectors of a are unknown" in not_known(KafkaGroups((unknown, group("a-b"))))[0]
    assert not_known(KafkaGroups(unknown=("who writes to t-0: it has no leader",))) == (
        "who writes to t-0: it has no leader",
    )
