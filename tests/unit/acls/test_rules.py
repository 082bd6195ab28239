"""Which rights the parts of a cluster need, by their names alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_eos_provider.acls.rules import (
    ConnectorFacts,
    IntervalFacts,
    Role,
    Rule,
    WorkerFacts,
    also_reached,
    connector_rules,
    interval_rules,
    worker_rules,
)
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.kafka.acl_values import Operation, Pattern, Resource

WORKER = WorkerFacts("g", "configs", "offsets", "status", principal="User:w")
CONNECTOR = ConnectorFacts(
    "g", "a", 2, "own", ["t"], is_own_topic=True, producer="User:p", consumer="User:c", admin="User:a"
)


def said(rules: list[Rule]) -> set[tuple[str, str, str, str]]:
    return {(rule.principal, str(rule.operation), str(rule.resource), rule.name) for rule in rules}


def test_the_rights_of_a_worker() -> None:
    topics = {
        ("User:w", operation, "Topic", topic)
        for topic in ("configs", "offsets", "status")
        for operation in ("Read", "Write", "Create", "DescribeConfigs")
    }
    ids = {("User:w", operation, "TransactionalId", "connect-cluster-g") for operation in ("Write", "Describe")}
    assert said(worker_rules(WORKER)) == topics | ids | {("User:w", "Read", "Group", "g")}
    assert said(worker_rules(replace(WORKER, mode=Mode.PREPARING))) == said(worker_rules(WORKER))
    assert said(worker_rules(WORKER)) - said(worker_rules(replace(WORKER, mode=Mode.DISABLED))) == ids


def test_only_a_topic_that_is_not_there_is_created() -> None:
    missing = said(worker_rules(WORKER)) - said(worker_rules(replace(WORKER, existing={"configs", "status"})))
    assert missing == {("User:w", "Create", "Topic", "configs"), ("User:w", "Create", "Topic", "status")}


@pytest.mark.parametrize(("brokers", "asks"), [(None, False), ((2, 8), False), ((2, 7), True)])
def test_only_brokers_before_2_8_ask_for_idempotent_writes(brokers: tuple[int, int] | None, asks: bool) -> None:
    for rules in (
        worker_rules(replace(WORKER, brokers=brokers)),
        connector_rules(replace(CONNECTOR, brokers=brokers)),
    ):
        assert (Operation.IDEMPOTENT_WRITE in {rule.operation for rule in rules}) is asks


def test_each_client_of_a_connector_has_its_own() -> None:
    ids = [f"g-a-{number}" for number in range(2)]
    both = [(operation, "TransactionalId", id_) for operation in ("Write", "Describe") for id_ in ids]
    assert said(connector_rules(CONNECTOR)) == {
        ("User:p", "Write", "Topic", "t"),
        ("User:p", "Write", "Topic", "own"),
        *(("User:p", *each) for each in both),
        ("User:c", "Read", "Topic", "own"),
        *(("User:a", *each) for each in both),
        *(("User:a", operation, "Topic", "own") for operation in ("Describe", "Create", "DescribeConfigs")),
    }


def test_it_is_the_admin_client_that_fences() -> None:
    fencing = [rule for rule in connector_rules(CONNECTOR) if "fences" in rule.why]
    assert {(rule.principal, rule.role) for rule in fencing} == {("User:a", Role.ADMIN)}
    assert all("Failed to perform round of zombie fencing" in rule.without for rule in fencing)


def test_below_enabled_a_connector_has_no_ids() -> None:
    preparing = connector_rules(replace(CONNECTOR, mode=Mode.PREPARING))
    assert Resource.TRANSACTIONAL_ID not in {rule.resource for rule in preparing}
    assert ("User:p", "Write", "Topic", "own") in said(preparing), "its own topic is used in every mode"
    global_one = replace(CONNECTOR, mode=Mode.PREPARING, is_own_topic=False)
    assert said(connector_rules(global_one)) == {("User:p", "Write", "Topic", "t")}, "the worker writes the offsets"


def test_the_admin_client_creates_topics_only_where_connect_does() -> None:
    more = said(connector_rules(replace(CONNECTOR, creates_topics=True))) - said(connector_rules(CONNECTOR))
    assert more == {("User:a", "Describe", "Topic", "t"), ("User:a", "Create", "Topic", "t")}
    there = replace(CONNECTOR, creates_topics=True, existing={"t"})
    assert ("User:a", "Create", "Topic", "t") not in said(connector_rules(there))


def test_a_prefix_reaches_other_connectors_and_other_groups() -> None:
    rules = connector_rules(CONNECTOR, prefixed=True)
    (prefix,) = {rule.name for rule in rules if rule.pattern is Pattern.PREFIXED}
    assert prefix == "g-a-"
    known = ["g-a-0", "g-a-17", "g-a-b-0", "g-a2-0", "g-b-0", "connect-cluster-g"]
    reached = also_reached(rules, known)
    assert set(reached.values()) == {("g-a-b-0",)}
    assert {rule.principal for rule in reached} == {"User:p", "User:a"}
    assert not also_reached(connector_rules(CONNECTOR), known), "literal rules reach what they name"


def test_the_rights_of_interval_runs() -> None:
    rules = interval_rules(IntervalFacts("i", "daily", ["out"], principal="User:s", existing={"out"}))
    ids = {(rule.name, rule.pattern) for rule in rules if rule.resource is Resource.TRANSACTIONAL_ID}
    assert ids == {("i-daily@", Pattern.PREFIXED), ("i-daily-planner", Pattern.LITERAL)}
    topics = {rule.name for rule in rules if rule.resource is Resource.TOPIC}
    assert topics == {"i-configs", "i-daily-offsets", "out"}
    assert ("User:s", "Create", "Topic", "i-configs") in said(rules)
    assert ("User:s", "Create", "Topic", "out") not in said(rules)


def test_each_rule_says_what_it_is_for_and_what_fails_without_it() -> None:
    rules = [
        *worker_rules(replace(WORKER, brokers=(2, 7))),
        *connector_rules(replace(CONNECTOR, brokers=(2, 7), creates_topics=True)),
        *interval_rules(IntervalFacts("i", "daily", ["out"])),
    ]
    assert rules
    assert all(rule.why and rule.without for rule in rules)
    assert all(rule.acl.principal == rule.principal and not rule.acl.is_denial for rule in rules)
