"""Decides from the brokers' ACLs whether a rule's right exists, as ``StandardAuthorizer`` would."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from airflow_eos_provider.acls.rules import Rule
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.kafka.acl_values import ANYWHERE, CLUSTER_NAME, Acl, Operation, Resource

#: Authorizers whose ACLs are all that they ask. Others, as Confluent's or Ranger's, have rules beside them.
KAFKAS_OWN = frozenset(
    {
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
        "kafka.security.auth.SimpleAclAuthorizer",
    }
)


class Source(StrEnum):
    """Who said so."""

    ATTEMPT = "an attempt"
    ACLS = "the ACLs"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Authorizer:
    """What the brokers say of their authorizer.

    :param acls: all that there are; None if they cannot be read.
    :param kind: its class; None if the brokers do not say.
    :param super_users: who needs no ACL; None if the brokers do not say.
    :param allows_without_acl: whether a resource without any ACL is everybody's; None if the brokers do not say.
    """

    acls: tuple[Acl, ...] | None = None
    problem: str = ""
    is_there: bool = True
    kind: str | None = None
    super_users: Collection[str] | None = None
    allows_without_acl: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RightFinding(Finding):
    """Whether a right exists. The finding names the ACL, or the brokers' answer."""

    rule: Rule
    source: Source
    denials: tuple[Acl, ...] = ()

    @property
    def is_lacking(self) -> bool:
        """Whether something fails for this."""
        return self.verdict is Verdict.FAIL and self.rule.is_required

    def to_dict(self) -> dict[str, object]:
        """As JSON. Scripts rely on the names."""
        rule = self.rule
        return {
            "principal": rule.principal,
            "role": str(rule.role),
            "connector": rule.connector or None,
            "operation": str(rule.operation),
            "resource": str(rule.resource),
            "name": rule.name,
            "pattern": str(rule.pattern),
            "required": rule.is_required,
            "verdict": str(self.verdict),
            "by": str(self.source),
            "found": self.found,
            "why": rule.why,
            "without": rule.without,
        }


def right(rule: Rule, verdict: Verdict, source: Source, found: str, denials: tuple[Acl, ...] = ()) -> RightFinding:
    return RightFinding(str(rule), verdict, found, rule=rule, source=source, denials=denials)


def judge(rules: Iterable[Rule], authorizer: Authorizer) -> list[RightFinding]:
    """By the ACLs, whether these rights are there."""
    return [_judged(rule, authorizer) for rule in rules]


def _judged(rule: Rule, authorizer: Authorizer) -> RightFinding:
    if not authorizer.is_there:
        return right(rule, Verdict.PASS, Source.ACLS, "the brokers have no authorizer")
    if authorizer.acls is None:
        return right(rule, Verdict.INCONCLUSIVE, Source.NOBODY, authorizer.problem or "the ACLs cannot be read")
    if authorizer.kind is not None and authorizer.kind not in KAFKAS_OWN:
        return right(rule, Verdict.INCONCLUSIVE, Source.NOBODY, f"{authorizer.kind} may have rules other than ACLs")
    if rule.principal in (authorizer.super_users or ()):
        return right(rule, Verdict.PASS, Source.ACLS, "a super user of the brokers")
    return _by_acls(rule, authorizer.acls, authorizer)


def _by_acls(rule: Rule, acls: Collection[Acl], authorizer: Authorizer) -> RightFinding:
    about = [acl for acl in acls if acl.is_about(rule.principal)]
    own = _said(rule, rule.acl, about)
    found = [_said(rule, each, about) for each in _instead(rule)]
    for verdict in (Verdict.PASS, Verdict.INCONCLUSIVE):
        for each in (*found, own):
            if each is not None and each.verdict is verdict:
                return each
    return own or _without_acl(rule, acls, about, authorizer)


def _said(rule: Rule, asked: Acl, about: Collection[Acl]) -> RightFinding | None:
    """What ACLs say of one right by which the rule's may be had; None if they say nothing."""
    if denials := _denials(asked, about):
        verdict = Verdict.FAIL if denials[0].host == ANYWHERE else Verdict.INCONCLUSIVE
        return right(rule, verdict, Source.ACLS, str(denials[0]), tuple(denials))
    allowing = sorted((acl for acl in about if _allows(acl, asked)), key=lambda acl: acl.host != ANYWHERE)
    if not allowing:
        return None
    if allowing[0].host == ANYWHERE:
        return right(rule, Verdict.PASS, Source.ACLS, str(allowing[0]))
    return right(rule, Verdict.INCONCLUSIVE, Source.ACLS, f"{allowing[0]} alone")


def _without_acl(rule: Rule, acls: Iterable[Acl], about: Collection[Acl], authorizer: Authorizer) -> RightFinding:
    """No ACL allows it. That may be right: of a super user, and of a resource that has no ACL at all."""
    has_acls = any(acl.touches(rule.resource, rule.name, rule.pattern) for acl in acls)
    if not has_acls and authorizer.allows_without_acl:
        found = f"{rule.resource} {rule.name} has no ACL, so everybody may use it"
        return right(rule, Verdict.PASS, Source.ACLS, found)
    if not has_acls and authorizer.allows_without_acl is None:
        found = f"{rule.resource} {rule.name} has no ACL; the brokers do not say whether everybody may use it then"
        return right(rule, Verdict.INCONCLUSIVE, Source.ACLS, found)
    if authorizer.super_users is None and not any(acl.principal == rule.principal for acl in about):
        found = f"no ACL names {rule.principal}; the brokers do not say whether it is a super user"
        return right(rule, Verdict.INCONCLUSIVE, Source.ACLS, found)
    return right(rule, Verdict.FAIL, Source.ACLS, "no ACL allows it")


def _instead(rule: Rule) -> list[Acl]:
    """Rights that do as well, and are asked for first: who may create topics on the cluster may create each, also one
    that is denied."""
    if (rule.operation, rule.resource) != (Operation.CREATE, Resource.TOPIC):
        return []
    return [Acl(rule.principal, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)]


def _allows(acl: Acl, asked: Acl) -> bool:
    return (
        not acl.is_denial
        and acl.operation.allows(asked.operation)
        and acl.covers(asked.resource, asked.name, asked.pattern)
    )


def _denials(asked: Acl, about: Iterable[Acl]) -> list[Acl]:
    """Those everywhere first."""
    found = [
        acl
        for acl in about
        if acl.is_denial
        and acl.operation.denies(asked.operation)
        and acl.touches(asked.resource, asked.name, asked.pattern)
    ]
    return sorted(found, key=lambda acl: acl.host != ANYWHERE)
