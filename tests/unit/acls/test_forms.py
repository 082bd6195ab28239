"""ACLs as lines of a shell, as a KafkaUser, as Terraform; and what a plan grants and revokes."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest
import yaml

from airflow_eos_provider.acls.forms import Form, kafka_acls_lines, written
from airflow_eos_provider.acls.judge import Authorizer
from airflow_eos_provider.acls.rules import ConnectorFacts, Role, Rule
from airflow_eos_provider.acls.tool_rules import READING, ToolFacts, drop_own_rights, tool_rules
from airflow_eos_provider.changes.declared import VERBS
from airflow_eos_provider.changes.rights.rights_plan import acls_of_connector, plan_grant, plan_revoke
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.acl_values import CLUSTER_NAME, Acl, Operation, Pattern, Resource
from tests.reference import commands

W = "User:w"
TOPIC = Acl(W, Operation.READ, Resource.TOPIC, "orders")
PREFIX = Acl(W, Operation.WRITE, Resource.TRANSACTIONAL_ID, "g-a-", Pattern.PREFIXED)
CLUSTER = Acl(W, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
RULE = Rule(W, Role.WORKER, Operation.READ, Resource.TOPIC, "orders")
SOME = Acl(W, Operation.READ, Resource.GROUP, "g")
NO_SUPER = {"super_users": frozenset[str](), "allows_without_acl": False}


def test_a_line_for_each_resource() -> None:
    lines = kafka_acls_lines([TOPIC, replace(TOPIC, operation=Operation.WRITE), PREFIX, CLUSTER], "k:9092")
    begin = "kafka-acls --bootstrap-server k:9092 --add --allow-principal User:w"
    assert sorted(lines) == [
        f"{begin} --operation Alter --cluster",
        f"{begin} --operation Read --operation Write --topic orders",
        f"{begin} --operation Write --transactional-id g-a- --resource-pattern-type prefixed",
    ]


def test_a_name_is_one_word_of_the_shell() -> None:
    (line,) = kafka_acls_lines([replace(TOPIC, principal="User:CN=a b; rm -rf $HOME")])
    assert "User:CN=a b; rm -rf $HOME" in shlex.split(line)


def test_a_kafka_user_for_each_principal() -> None:
    found = list(
        yaml.safe_load_all(written([TOPIC, PREFIX, CLUSTER, replace(TOPIC, principal="User:CN=x")], Form.STRIMZI))
    )
    assert [each["metadata"]["name"] for each in found] == ["x", "w"]
    assert found[1]["spec"]["authorization"]["acls"] == [
        {"resource": {"type": "cluster"}, "operations": ["Alter"]},
        {"resource": {"type": "topic", "name": "orders", "patternType": "literal"}, "operations": ["Read"]},
        {"resource": {"type": "transactionalId", "name": "g-a-", "patternType": "prefix"}, "operations": ["Write"]},
    ]
    with pytest.raises(ConfigurationError, match="no KafkaUser for Group:x"):
        written([replace(TOPIC, principal="Group:x")], Form.STRIMZI)


def test_a_resource_of_terraform_for_each_acl() -> None:
    found = written([TOPIC, PREFIX, replace(TOPIC, name="a.b"), replace(TOPIC, name="a_b")], Form.TERRAFORM)
    names = re.findall(r'^resource "kafka_acl" "([A-Za-z_][\w-]*)" \{$', found, re.MULTILINE)
    assert len(set(names)) == 4
    assert 'resource_type                = "TransactionalID"' in found
    assert 'resource_pattern_type_filter = "Prefixed"' in found


def test_what_is_granted_is_what_is_missing() -> None:
    assert plan_grant([RULE], Authorizer((SOME,), **NO_SUPER), "k").acls == (TOPIC,)  # type: ignore[arg-type]
    assert plan_grant([RULE], Authorizer((SOME, TOPIC), **NO_SUPER), "k").acls == ()  # type: ignore[arg-type]


def test_a_denial_cannot_be_granted_away() -> None:
    with pytest.raises(RefusedError, match="cannot be granted"):
        plan_grant([RULE], Authorizer((SOME, replace(TOPIC, is_denial=True))), "k")


def test_nothing_is_granted_without_an_authorizer_or_without_seeing_the_acls() -> None:
    with pytest.raises(RefusedError, match="no authorizer"):
        plan_grant([RULE], Authorizer(is_there=False), "k")
    with pytest.raises(ConfigurationError, match="cannot be read: refused"):
        plan_grant([RULE], Authorizer(problem="refused"), "k")


def test_only_what_is_there_is_revoked_and_not_what_is_needed() -> None:
    there = Authorizer((SOME, TOPIC, PREFIX))
    assert plan_revoke([TOPIC, PREFIX, CLUSTER], [], there, "k").acls == (TOPIC, PREFIX)
    kept = plan_revoke([TOPIC, PREFIX, CLUSTER], [RULE], there, "k")
    assert (kept.acls, kept.kept) == ((PREFIX,), (TOPIC,))
    one_task = replace(RULE, operation=Operation.DESCRIBE, resource=Resource.TRANSACTIONAL_ID, name="g-a-3")
    assert plan_revoke([PREFIX], [one_task], there, "k").kept == (PREFIX,), "it gives what a task needs"


SET, UNSET, UNKNOWN = ({"allows_without_acl": value} for value in (True, False, None))
ALONE = Acl("User:other", Operation.READ, Resource.TOPIC, "orders")
IDS = [replace(PREFIX, name=f"g-a-{number}", pattern=Pattern.LITERAL) for number in range(3)]


@pytest.mark.parametrize(("setting", "words"), [(SET, "since "), (UNKNOWN, "if "), (UNSET, "")])
def test_a_plan_says_whose_access_changes_besides(setting: dict[str, bool | None], words: str) -> None:
    """Where a resource without any ACL is everybody's, its first ACL shuts all others out, and its last let them in."""
    revoked = plan_revoke([TOPIC, *IDS], [], Authorizer((SOME, TOPIC, *IDS), **setting), "k")  # type: ignore[arg-type]
    if not words:
        assert revoked.everybody == ()
        return
    assert revoked.everybody == tuple(
        f"{place} then has no ACL left: everybody may use it, {words}allow.everyone.if.no.acl.found is true"
        f"{', which the brokers do not say' if words == 'if ' else ''}"
        for place in ("Topic orders", "TransactionalId g-a-0…2")
    )
    assert revoked.content()["everybody"] == list(revoked.everybody)
    assert set(revoked.lines()) > {f"! {line}" for line in revoked.everybody}


def test_the_first_acl_of_a_resource_shuts_everybody_else_out_and_the_plan_says_so() -> None:
    alone = Authorizer((SOME,), super_users=frozenset())
    granted = plan_grant([RULE], alone, "k")
    assert granted.acls == (TOPIC,)
    assert granted.everybody == (
        "Topic orders has no ACL yet: all other users of it are refused from then on, "
        "if allow.everyone.if.no.acl.found is true, which the brokers do not say",
    )
    others = Authorizer((SOME, ALONE), super_users=frozenset())
    assert plan_grant([RULE], others, "k").everybody == ()


@pytest.mark.parametrize(
    ("other", "is_last"),
    [
        (ALONE, False),
        (replace(ALONE, name="*"), False),
        (replace(ALONE, name="or", pattern=Pattern.PREFIXED), False),
        (replace(ALONE, is_denial=True), False),
        (replace(ALONE, name="orders2"), True),
        (replace(ALONE, name="orders2", pattern=Pattern.PREFIXED), True),
        (replace(ALONE, resource=Resource.GROUP), True),
    ],
)
def test_an_acl_is_the_last_where_no_other_is_about_its_resource(other: Acl, is_last: bool) -> None:
    assert bool(plan_revoke([TOPIC], [], Authorizer((TOPIC, other)), "k").everybody) is is_last


def test_a_prefix_may_be_the_last_of_something_that_begins_so() -> None:
    within = replace(PREFIX, name="g-a-0", pattern=Pattern.LITERAL)
    assert plan_revoke([PREFIX], [], Authorizer((PREFIX, within)), "k").everybody
    wider = replace(PREFIX, name="g-")
    assert not plan_revoke([PREFIX], [], Authorizer((PREFIX, wider)), "k").everybody


def test_the_ids_of_a_connector_that_is_gone() -> None:
    ids = ["g-a-0", "g-a-12", "g-a-b-0", "g-a", "g-ab-0"]
    there = [replace(PREFIX, name=name, pattern=Pattern.LITERAL) for name in ids]
    denied = replace(there[0], is_denial=True)
    gone = ConnectorFacts("g", "a", 0, "o")
    found = acls_of_connector(gone, [*there, PREFIX, denied, replace(PREFIX, name="g-")], ())
    assert [acl.name for acl in found] == ["g-a-0", "g-a-12", "g-a-"]
    assert acls_of_connector(gone, there, {"User:other"}) == []


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_of_eos_has_its_rights(verb: str) -> None:
    facts = ToolFacts("g", "User:eos", "c", {"c", "o", "s"}, {"o"}, {"g-a-"})
    rules = tool_rules(facts, {verb: VERBS[verb]})
    assert rules
    assert {rule.principal for rule in rules} == {"User:eos"}
    assert len({rule.acl for rule in rules}) == len(rules)
    writes = {rule.name for rule in rules if rule.operation is Operation.WRITE}
    changes = (Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS)
    assert bool(writes) is not (verb in READING or verb in ("transactions abort", "acl grant", "acl revoke"))
    assert any(rule.operation in changes for rule in rules) is (verb not in READING)


def test_the_table_has_verbs_that_there_are() -> None:
    assert {verb.partition(" --")[0] for verb in VERBS} <= {path.removeprefix("eos ") for path in commands()}


def test_only_own_topics_of_connectors_are_ever_deleted() -> None:
    facts = ToolFacts("g", "User:eos", "c", {"c", "o", "own"}, {"o", "own"}, {"g-a-"}, {"own"})
    rules = tool_rules(facts, {"drop": drop_own_rights})
    assert [rule.name for rule in rules if rule.operation is Operation.DELETE] == ["own"]


def test_a_right_that_one_verb_requires_is_required_whichever_verb_comes_first() -> None:
    facts = ToolFacts("g", "User:eos", "c", {"c", "o"}, {"o"}, {"g-a-"})
    for verbs in (["plan", "status"], ["status", "plan"]):
        (rule,) = (each for each in tool_rules(facts, {verb: VERBS[verb] for verb in verbs}) if each.name == "g-a-")
        assert (rule.is_required, rule.without) == (True, "'eos status' is refused by the brokers")
