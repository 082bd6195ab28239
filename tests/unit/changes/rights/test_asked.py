"""What a revocation keeps, since something needs it that was not asked about, or that could not be seen.

The looks are values here; tests/integration/test_acl.py and test_intervals_command.py have real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.acls.cluster_facts import Principals, Seen, SeenConnector, facts_of
from airflow_eos_provider.acls.judge import Authorizer
from airflow_eos_provider.acls.rules import IntervalFacts, interval_rules
from airflow_eos_provider.acls.tool_rules import tool_rules
from airflow_eos_provider.changes.declared import VERBS
from airflow_eos_provider.changes.rights import asked
from airflow_eos_provider.changes.rights.asked import asked_rights, interval_facts
from airflow_eos_provider.changes.rights.rights_plan import AclPlan
from airflow_eos_provider.changes.rights.rights_request import RightsRequest
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import RefusedError, UnreachableError
from airflow_eos_provider.kafka.acl_values import Acl
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

EOS = KafkaSettings.of("k:9092")
NAMED = ("etl/one:flights,weather",)
ONE = interval_facts(NAMED, "User:spark")
ASKED = RightsRequest(worker="User:w", producer="User:w", consumer="User:w", admin="User:w")
PRINCIPALS = Principals("User:w", "User:w", "User:w", "User:w")

Revoke = Callable[..., AclPlan]


@pytest.fixture
def revoke(monkeypatch: pytest.MonkeyPatch) -> Revoke:
    """Plan a revocation where these ACLs are there."""

    def revoke(
        request: RightsRequest, there: list[Acl], seen: Seen, on_record: Any = lambda settings, group: [], **more: Any
    ) -> AclPlan:
        monkeypatch.setattr(asked, "read_authorizer", lambda kafka: Authorizer(tuple(there)))
        monkeypatch.setattr(asked, "look", lambda session: seen)
        monkeypatch.setattr(asked, "pipelines_on_record", on_record)
        session: Any = SimpleNamespace(kafka=SimpleNamespace(settings=EOS, cluster_id=lambda: "k"))
        return asked_rights(session, request).revocation(**more)

    return revoke


def seen(*connectors: SeenConnector, **more: Any) -> Seen:
    return Seen("g", "configs", "offsets", "status", EOS, [{"bootstrap.servers": "k:9092"}], connectors, **more)


def names(acls: tuple[Acl, ...]) -> set[tuple[str, str]]:
    return {(acl.name, str(acl.operation)) for acl in acls}


def acls_of(*pipelines: IntervalFacts) -> list[Acl]:
    return sorted({rule.acl for each in pipelines for rule in interval_rules(each)})


def test_what_another_pipeline_of_the_group_needs_is_kept(revoke: Revoke) -> None:
    wanted = replace(ASKED, mode=Mode.DISABLED, pipelines=NAMED)
    two = IntervalFacts("etl", "two", ("flights",))
    there = acls_of(*ONE, two)
    alone = revoke(wanted, there, seen(), lambda settings, group: list(ONE))
    own = {"etl-one-offsets", "weather", "etl-one@", "etl-one-planner"}
    assert {name for name, _ in names(alone.acls)} == own | {"etl-configs", "flights"}
    both = revoke(wanted, there, seen(), lambda settings, group: [*ONE, two])
    assert {name for name, _ in names(both.kept)} == {"etl-configs", "flights"}
    assert {name for name, _ in names(both.acls)} == own


def test_a_pipeline_that_may_write_anywhere_keeps_every_topic(revoke: Revoke) -> None:
    wanted = replace(ASKED, mode=Mode.DISABLED, pipelines=NAMED)
    two = IntervalFacts("etl", "two", writes_elsewhere=True)
    plan = revoke(wanted, acls_of(*ONE), seen(), lambda settings, group: [two])
    assert {name for name, _ in names(plan.acls)} == {"etl-one@", "etl-one-planner"}


def test_pipelines_that_cannot_be_seen_are_no_reason_to_revoke(revoke: Revoke) -> None:
    def on_record(settings: KafkaSettings, group: str) -> list[IntervalFacts]:
        raise UnreachableError("no broker answers")

    wanted = replace(ASKED, mode=Mode.DISABLED, pipelines=NAMED)
    with pytest.raises(RefusedError, match="cannot tell which pipelines group etl has: no broker answers"):
        revoke(wanted, acls_of(*ONE), seen(), on_record)
    assert revoke(wanted, acls_of(*ONE), seen(), on_record, even_if_needed=True).acls


def test_what_another_verb_needs_is_kept_if_the_acls_allow_that_verb(revoke: Revoke) -> None:
    orders = seen(SeenConnector("orders", {}, 1, ("orders",)))
    tool = asked._tool(orders, facts_of(orders, Mode.DISABLED, PRINCIPALS), EOS)
    wanted = replace(ASKED, mode=Mode.DISABLED, verbs=("fencing apply",))
    verbs = ("fencing apply", "transactions audit")
    fence, audit = (sorted({rule.acl for rule in tool_rules(tool, {verb: VERBS[verb]})}) for verb in verbs)
    plan = revoke(wanted, fence, orders)
    assert names(plan.acls) == {("g-orders-", "Write")}, "of all else 'apply' has need, which is allowed"
    every = replace(ASKED, mode=Mode.DISABLED, verbs=tuple(VERBS))
    assert set(revoke(every, fence, orders).acls) == set(fence)
    but_audit = replace(ASKED, mode=Mode.DISABLED, verbs=tuple(VERBS.keys() - {"transactions audit"}))
    assert ("*", "Read") in names(revoke(but_audit, audit, orders).kept), "the audit reads all topics"
    half = [acl for acl in audit if acl.operation != "DescribeConfigs"]
    assert revoke(but_audit, half, orders).kept == (), "the audit is not allowed as a whole"


def test_of_a_connector_whose_topics_are_not_known_any_topic_may_be_its(revoke: Revoke) -> None:
    """Its workers do not answer: a pipeline of the same principal writes where the connector may write, too."""
    same = interval_facts(["etl/one:flights"], "User:w")
    wanted = replace(ASKED, mode=Mode.DISABLED, pipelines=("etl/one:flights",), interval_principal="User:w")
    for topics, kept in (((), True), (("orders",), False), (("flights",), True)):
        plan = revoke(wanted, acls_of(*same), seen(SeenConnector("orders", {}, 1, topics)))
        assert (("flights", "Write") in names(plan.kept)) is kept


def test_nothing_is_revoked_where_the_connectors_are_not_known(revoke: Revoke) -> None:
    blind = seen(are_connectors_known=False, problems=("connectors and their tasks: no right",))
    wanted = replace(ASKED, mode=Mode.ENABLED)
    with pytest.raises(RefusedError, match="cannot tell which connectors there are: connectors and their tasks"):
        revoke(wanted, [], blind)
    assert revoke(wanted, [], blind, even_if_needed=True).acls == ()
