"""What ACLs say of a rule: as Kafka's own authorizer reads them, and what they cannot say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_eos_provider.acls.judge import Authorizer, RightFinding, Source, judge
from airflow_eos_provider.acls.rules import Role, Rule
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.acl_values import CLUSTER_NAME, Acl, Operation, Pattern, Resource

W = "User:w"
RULE = Rule(W, Role.WORKER, Operation.READ, Resource.TOPIC, "orders")
ALLOWING = Acl(W, Operation.READ, Resource.TOPIC, "orders")
#: So that the principal is one that ACLs name, and the topic one that has an ACL.
SOME = (Acl(W, Operation.WRITE, Resource.GROUP, "g"), Acl("User:x", Operation.READ, Resource.TOPIC, "orders"))


def found(*acls: Acl, rule: Rule = RULE, **authorizer: object) -> RightFinding:
    (one,) = judge([rule], Authorizer((*SOME, *acls), **authorizer))  # type: ignore[arg-type]
    return one


@pytest.mark.parametrize(
    "acl",
    [
        ALLOWING,
        replace(ALLOWING, principal="User:*"),
        replace(ALLOWING, name="*"),
        replace(ALLOWING, name="ord", pattern=Pattern.PREFIXED),
        replace(ALLOWING, operation=Operation.ALL),
    ],
)
def test_an_acl_allows_what_it_covers(acl: Acl) -> None:
    assert found().verdict is Verdict.FAIL
    assert found(acl).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "acl",
    [
        replace(ALLOWING, principal="User:other"),
        replace(ALLOWING, name="order"),
        replace(ALLOWING, name="orders-2", pattern=Pattern.PREFIXED),
        replace(ALLOWING, operation=Operation.WRITE),
        replace(ALLOWING, resource=Resource.GROUP),
        replace(ALLOWING, name="or*"),
    ],
)
def test_an_acl_does_not_allow_what_it_does_not_cover(acl: Acl) -> None:
    assert found(acl).verdict is Verdict.FAIL


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_who_may_do_something_with_a_topic_may_describe_it(operation: Operation) -> None:
    describing = replace(RULE, operation=Operation.DESCRIBE)
    assert found(replace(ALLOWING, operation=operation), rule=describing).verdict is Verdict.PASS
    assert found(replace(ALLOWING, operation=Operation.CREATE), rule=describing).verdict is Verdict.FAIL


def test_who_may_alter_settings_may_see_them() -> None:
    seeing = replace(RULE, operation=Operation.DESCRIBE_CONFIGS)
    assert found(replace(ALLOWING, operation=Operation.ALTER_CONFIGS), rule=seeing).verdict is Verdict.PASS
    assert found(replace(ALLOWING, operation=Operation.ALTER), rule=seeing).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "denial",
    [
        replace(ALLOWING, is_denial=True),
        replace(ALLOWING, is_denial=True, operation=Operation.ALL, principal="User:*"),
        replace(ALLOWING, is_denial=True, name="o", pattern=Pattern.PREFIXED),
    ],
)
def test_a_denial_wins(denial: Acl) -> None:
    one = found(ALLOWING, denial)
    assert (one.verdict, one.denials) == (Verdict.FAIL, (denial,))


def test_a_denial_of_reading_is_none_of_describing() -> None:
    describing = replace(RULE, operation=Operation.DESCRIBE)
    denial = replace(ALLOWING, is_denial=True)
    assert found(replace(ALLOWING, operation=Operation.WRITE), denial, rule=describing).verdict is Verdict.PASS


def test_a_right_from_one_host_and_a_denial_from_one_are_not_known() -> None:
    here = replace(ALLOWING, host="10.0.0.1")
    assert found(here).verdict is Verdict.INCONCLUSIVE
    assert found(here, ALLOWING).verdict is Verdict.PASS
    assert found(ALLOWING, replace(here, is_denial=True)).verdict is Verdict.INCONCLUSIVE


def test_a_prefix_is_there_if_all_below_it_is() -> None:
    rule = replace(RULE, name="g-a-", pattern=Pattern.PREFIXED)
    for alone in ("g-a-0", "g-a-"):
        assert found(replace(ALLOWING, name=alone), rule=rule).verdict is Verdict.FAIL
    assert found(replace(ALLOWING, name="g-", pattern=Pattern.PREFIXED), rule=rule).verdict is Verdict.PASS
    assert found(replace(ALLOWING, name="*"), rule=rule).verdict is Verdict.PASS
    denied = replace(ALLOWING, name="g-a-0", is_denial=True)
    assert found(replace(ALLOWING, name="*"), denied, rule=rule).verdict is Verdict.FAIL


def test_who_may_create_topics_may_create_each() -> None:
    creating = replace(RULE, operation=Operation.CREATE)
    every = Acl(W, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
    assert found(every, rule=creating).verdict is Verdict.PASS
    assert found(replace(every, operation=Operation.ALTER), rule=creating).verdict is Verdict.FAIL


def test_a_denial_of_one_topic_does_not_count_for_who_may_create_all_and_one_of_all_leaves_the_topics_own() -> None:
    """Brokers ask for the right on the cluster first, and for that on the topic only if it is not there."""
    creating = replace(RULE, operation=Operation.CREATE)
    every = Acl(W, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
    own = replace(ALLOWING, operation=Operation.CREATE)
    assert found(every, replace(own, is_denial=True), rule=creating).verdict is Verdict.PASS
    none = replace(every, is_denial=True)
    assert found(every, none, own, rule=creating).verdict is Verdict.PASS
    denied = found(every, none, rule=creating)
    assert (denied.verdict, denied.denials) == (Verdict.FAIL, ())
    assert found(every, replace(none, host="10.0.0.1"), rule=creating).verdict is Verdict.INCONCLUSIVE


def test_without_an_authorizer_everything_is_allowed() -> None:
    (one,) = judge([RULE], Authorizer(is_there=False))
    assert one.verdict is Verdict.PASS


def test_acls_that_cannot_be_read_say_nothing() -> None:
    (one,) = judge([RULE], Authorizer(problem="refused"))
    assert (one.verdict, one.source, one.found) == (Verdict.INCONCLUSIVE, Source.NOBODY, "refused")


def test_of_another_authorizer_the_acls_say_nothing() -> None:
    assert found(ALLOWING, kind="io.confluent.kafka.security.authorizer.ConfluentServerAuthorizer").verdict is (
        Verdict.INCONCLUSIVE
    )
    assert found(ALLOWING, kind="org.apache.kafka.metadata.authorizer.StandardAuthorizer").verdict is Verdict.PASS


def test_a_super_user_needs_no_acl_and_one_that_no_acl_names_may_be_one() -> None:
    assert found(super_users={W}).verdict is Verdict.PASS
    nobody = replace(RULE, principal="User:nobody")
    assert found(rule=nobody).verdict is Verdict.INCONCLUSIVE
    assert found(rule=nobody, super_users=frozenset()).verdict is Verdict.FAIL


def test_a_topic_without_any_acl_may_be_everybodys() -> None:
    rule = replace(RULE, name="lonely")
    assert found(rule=rule, allows_without_acl=True).verdict is Verdict.PASS
    assert found(rule=rule, allows_without_acl=False).verdict is Verdict.FAIL
    assert found(rule=rule).verdict is Verdict.INCONCLUSIVE
    assert found(allows_without_acl=True).verdict is Verdict.FAIL, "another's ACL is about that topic"


def test_what_is_not_required_is_not_lacking() -> None:
    assert found().is_lacking
    assert not found(rule=replace(RULE, is_required=False)).is_lacking
