"""Whose a transactional id may be: the names of groups and connectors may both contain hyphens."""

from __future__ import annotations

import pytest

from airflow_eos_provider.connect.transactional_ids import (
    KnownGroup,
    TaskId,
    claims,
    is_of_group,
    leader_id,
    leaders,
    task_number,
    task_of,
)

ORDERS = KnownGroup("connect-orders", frozenset({"jdbc"}))


@pytest.mark.parametrize(
    ("transactional_id", "found"),
    [
        ("a-b-c-0", TaskId("a", "b-c", 0)),
        ("a-b-12", TaskId("a", "b", 12)),
        ("a-0", None),  # no connector's name is left
        ("a--0", None),
        ("a-b-c", None),
        ("a-b-٣", None),  # a digit, but not one that Java writes
        ("ab-c-0", None),
    ],
)
def test_an_id_is_read_as_that_of_a_groups_task(transactional_id: str, found: TaskId | None) -> None:
    assert task_of(transactional_id, "a") == found


def test_the_number_of_a_task_has_ascii_digits_only() -> None:
    assert (task_number("g-c-7", "g-c-"), task_number("g-c-x-7", "g-c-"), task_number("g-c-²", "g-c-")) == (
        7,
        None,
        None,
    )


def test_the_leader_of_a_group_is_known_by_its_id() -> None:
    assert leaders(["connect-orders-jdbc-0", leader_id("connect-orders")], []) == {
        "connect-orders": leader_id("connect-orders")
    }


@pytest.mark.parametrize("group_id", ["connect-cluster", "connect-cluster-a"])
@pytest.mark.parametrize("connectors", [frozenset({"jdbc"}), None])
def test_tasks_of_a_group_whose_name_begins_as_leaders_ids_do_are_no_leaders(
    group_id: str, connectors: frozenset[str] | None
) -> None:
    """``connect-cluster`` is the ``group.id`` of the file that Kafka ships."""
    own, task = KnownGroup(group_id, connectors), f"{group_id}-jdbc-0"
    assert leaders([leader_id(group_id), task], [own]) == {group_id: leader_id(group_id)}
    assert leaders([leader_id(group_id), task], []).keys() == {group_id}, "its leader's id names the group"
    other = KnownGroup(task.removeprefix("connect-cluster-"))
    assert leaders([task], [own, other]) == {other.group_id: task}, "a group that is there has a leader"


@pytest.mark.parametrize("transactional_id", ["connect-orders-jdbc-0", leader_id("connect-orders")])
def test_what_connect_orders_has_never_counts_as_one_of_connect(transactional_id: str) -> None:
    assert not is_of_group(transactional_id, "connect", [ORDERS])
    assert is_of_group(transactional_id, "connect-orders", [KnownGroup("connect", frozenset({"orders"}))])


def test_a_leaders_id_that_looks_like_a_tasks_is_the_leaders() -> None:
    others = [KnownGroup("orders-1")]
    assert is_of_group("connect-cluster-orders-1", "connect")  # nobody knows of the other group
    assert not is_of_group("connect-cluster-orders-1", "connect", others)


def test_an_id_of_a_connector_that_the_other_group_does_not_have_is_not_its() -> None:
    assert is_of_group("connect-orders-xml-0", "connect", [ORDERS])


def test_one_that_both_have_counts_for_both() -> None:
    assert is_of_group("connect-orders-jdbc-0", "connect", [ORDERS], connectors={"orders-jdbc"})
    both = [KnownGroup("connect", frozenset({"orders-jdbc"})), ORDERS]
    assert claims("connect-orders-jdbc-0", both) == tuple(both)


def test_a_group_whose_connectors_are_not_known_claims_what_its_name_allows() -> None:
    assert claims("connect-orders-jdbc-0", [KnownGroup("connect-orders"), KnownGroup("other")]) == (
        KnownGroup("connect-orders"),
    )
