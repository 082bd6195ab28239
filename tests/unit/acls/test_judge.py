"""What ACLs say of a rule: as Kafka's own authorizer reads them, and what they cannot say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.acls.judge import Authorizer, RightFinding, Source, judge
from airflow_eos_provider.acls.rules import Role, Rule
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.acl_values import CLUSTER_NAME, Acl, Operation, Pattern, Resource

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
W = "User:w"
READING = Rule(W, Role.WORKER, Operation.READ, Resource.TOPIC, "orders")
DESCRIBING = replace(READING, operation=Operation.DESCRIBE)
SEEING = replace(READING, operation=Operation.DESCRIBE_CONFIGS)
CREATING = replace(READING, operation=Operation.CREATE)
PREFIX = replace(READING, name="g-a-", pattern=Pattern.PREFIXED)
LONELY = replace(READING, name="lonely")
NOBODY = replace(READING, principal="User:nobody")

ALLOWED = Acl(W, Operation.READ, Resource.TOPIC, "orders")
DENIED = replace(ALLOWED, is_denial=True)
WRITE, CREATE = (replace(ALLOWED, operation=each) for each in (Operation.WRITE, Operation.CREATE))
HERE = replace(ALLOWED, host="10.0.0.1")
EVERY = Acl(W, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
#: So that the principal is one that ACLs name, and the topic one that has an ACL.
SOME = (Acl(W, Operation.WRITE, Resource.GROUP, "g"), Acl("User:x", Operation.READ, Resource.TOPIC, "orders"))


def prefixed(acl: Acl, name: str) -> Acl:
    return replace(acl, name=name, pattern=Pattern.PREFIXED)


def found(rule: Rule, *acls: Acl, **authorizer: Any) -> RightFinding:
    (one,) = judge([rule], Authorizer((*SOME, *acls), **authorizer))
    return one


@pytest.mark.parametrize(
    ("rule", "acls", "verdict"),
    [
        # an ACL allows what it covers
        (READING, [], FAIL),
        (READING, [ALLOWED], PASS),
        (READING, [replace(ALLOWED, principal="User:*")], PASS),
        (READING, [replace(ALLOWED, name="*")], PASS),
        (READING, [prefixed(ALLOWED, "ord")], PASS),
        (READING, [replace(ALLOWED, operation=Operation.ALL)], PASS),
        (READING, [replace(ALLOWED, principal="User:other")], FAIL),
        (READING, [replace(ALLOWED, name="order")], FAIL),
        (READING, [prefixed(ALLOWED, "orders-2")], FAIL),
        (READING, [WRITE], FAIL),
        (READING, [replace(ALLOWED, resource=Resource.GROUP)], FAIL),
        (READING, [replace(ALLOWED, name="or*")], FAIL),
        # who may do something with a topic may describe it, and who may alter settings may see them
        (DESCRIBING, [ALLOWED], PASS),
        (DESCRIBING, [WRITE], PASS),
        (DESCRIBING, [replace(ALLOWED, operation=Operation.DELETE)], PASS),
        (DESCRIBING, [replace(ALLOWED, operation=Operation.ALTER)], PASS),
        (DESCRIBING, [CREATE], FAIL),
        (SEEING, [replace(ALLOWED, operation=Operation.ALTER_CONFIGS)], PASS),
        (SEEING, [replace(ALLOWED, operation=Operation.ALTER)], FAIL),
        # a denial wins, and implies nothing
        (READING, [ALLOWED, DENIED], FAIL),
        (READING, [ALLOWED, replace(DENIED, operation=Operation.ALL, principal="User:*")], FAIL),
        (READING, [ALLOWED, prefixed(DENIED, "o")], FAIL),
        (DESCRIBING, [WRITE, DENIED], PASS),
        # of one host alone
        (READING, [HERE], UNKNOWN),
        (READING, [HERE, ALLOWED], PASS),
        (READING, [ALLOWED, replace(HERE, is_denial=True)], UNKNOWN),
        # a prefix is there if all below it is
        (PREFIX, [replace(ALLOWED, name="g-a-0")], FAIL),
        (PREFIX, [replace(ALLOWED, name="g-a-")], FAIL),
        (PREFIX, [prefixed(ALLOWED, "g-")], PASS),
        (PREFIX, [replace(ALLOWED, name="*")], PASS),
        (PREFIX, [replace(ALLOWED, name="*"), replace(DENIED, name="g-a-0")], FAIL),
        # who may create topics may create each: brokers ask for the topic's own right only where that is not there
        (CREATING, [EVERY], PASS),
        (CREATING, [replace(EVERY, operation=Operation.ALTER)], FAIL),
        (CREATING, [EVERY, replace(CREATE, is_denial=True)], PASS),
        (CREATING, [EVERY, replace(EVERY, is_denial=True), CREATE], PASS),
        (CREATING, [EVERY, replace(EVERY, is_denial=True)], FAIL),
        (CREATING, [EVERY, replace(EVERY, is_denial=True, host="10.0.0.1")], UNKNOWN),
    ],
)
def test_what_acls_say_of_a_right(rule: Rule, acls: list[Acl], verdict: Verdict) -> None:
    assert found(rule, *acls).verdict is verdict


def test_the_denial_that_wins_is_named() -> None:
    assert found(READING, ALLOWED, DENIED).denials == (DENIED,)
    assert found(CREATING, EVERY, replace(EVERY, is_denial=True)).denials == ()  # one of all leaves the topic's own


@pytest.mark.parametrize(
    ("rule", "authorizer", "verdict"),
    [
        # a super user needs no ACL, and one that no ACL names may be one
        (READING, {"super_users": {W}}, PASS),
        (NOBODY, {}, UNKNOWN),
        (NOBODY, {"super_users": frozenset()}, FAIL),
        # a topic without any ACL may be everybody's
        (LONELY, {"allows_without_acl": True}, PASS),
        (LONELY, {"allows_without_acl": False}, FAIL),
        (LONELY, {}, UNKNOWN),
        (READING, {"allows_without_acl": True}, FAIL),  # another's ACL is about that topic
    ],
)
def test_where_no_acl_allows_it_the_brokers_settings_decide(
    rule: Rule, authorizer: dict[str, Any], verdict: Verdict
) -> None:
    assert found(rule, **authorizer).verdict is verdict


def test_only_kafkas_own_authorizer_goes_by_acls_alone() -> None:
    confluents = "io.confluent.kafka.security.authorizer.ConfluentServerAuthorizer"
    assert found(READING, ALLOWED, kind=confluents).verdict is UNKNOWN
    assert found(READING, ALLOWED, kind="org.apache.kafka.metadata.authorizer.StandardAuthorizer").verdict is PASS
    (none,) = judge([READING], Authorizer(is_there=False))
    assert none.verdict is PASS
    (hidden,) = judge([READING], Authorizer(problem="refused"))
    assert (hidden.verdict, hidden.source, hidden.found) == (UNKNOWN, Source.NOBODY, "refused")


def test_what_is_not_required_is_not_lacking() -> None:
    assert found(READING).is_lacking
    assert not found(replace(READING, is_required=False)).is_lacking
