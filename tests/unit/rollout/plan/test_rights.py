"""What a roll makes of the rights that its target asks for."""

from __future__ import annotations

from dataclasses import replace

from airflow_eos_provider.acls.check import AclReport
from airflow_eos_provider.acls.judge import Source, right
from airflow_eos_provider.acls.rules import Role, Rule
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Resource
from airflow_eos_provider.rollout.plan.preflight import rights

RULE = Rule("User:w", Role.WORKER, Operation.WRITE, Resource.TRANSACTIONAL_ID, "connect-cluster-g")


def report(verdict: Verdict, source: Source = Source.ACLS, *denials: Acl, rule: Rule = RULE) -> AclReport:
    return AclReport(has_authorizer=True, findings=(right(rule, verdict, source, "as seen", denials),))


def test_what_is_missing_refuses_the_roll_and_names_the_line_that_mends_it() -> None:
    check = rights(report(Verdict.FAIL))
    assert check.verdict is Verdict.FAIL
    assert "User:w: Write on TransactionalId connect-cluster-g (worker; as seen)" in check.found
    assert "--allow-principal User:w --operation Write --transactional-id connect-cluster-g" in check.remedy


def test_a_denial_has_no_line_that_mends_it() -> None:
    denial = Acl("User:*", Operation.ALL, Resource.TRANSACTIONAL_ID, "*", is_denial=True)
    check = rights(report(Verdict.FAIL, Source.ACLS, denial))
    assert check.verdict is Verdict.FAIL
    assert "remove the ACLs that deny it" in check.remedy
    assert "kafka-acls" not in check.remedy


def test_what_is_not_known_is_said_and_refuses_nothing() -> None:
    check = rights(report(Verdict.INCONCLUSIVE, Source.NOBODY))
    assert check.verdict is Verdict.PASS
    assert "eos cannot tell whether they exist: as seen" in check.found
    nothing = rights(AclReport(has_authorizer=True, findings=(), notes=("no broker answered",)))
    assert nothing.verdict is Verdict.PASS
    assert "no broker answered" in nothing.found


def test_what_is_there_passes() -> None:
    assert rights(report(Verdict.PASS, Source.ATTEMPT)).found == (
        "this roll needs 1 further right; none is missing (1 tested as the principal, the others checked in the ACLs)"
    )
    assert rights(AclReport(has_authorizer=False, findings=())).verdict is Verdict.PASS
    assert rights(None).verdict is Verdict.PASS


def test_a_right_that_only_leaves_out_a_hint_is_not_counted() -> None:
    optional = right(replace(RULE, name="other", is_required=False), Verdict.FAIL, Source.ACLS, "no ACL")
    needed = right(RULE, Verdict.PASS, Source.ACLS, "an ACL")
    assert rights(AclReport(has_authorizer=True, findings=(needed, optional))).found == (
        "this roll needs 1 further right; none is missing (0 tested as the principal, the others checked in the ACLs)"
    )
