"""Which ACLs are created or deleted: decisions alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_eos_provider.acls.judge import Authorizer, judge
from airflow_eos_provider.acls.rules import ConnectorFacts, Rule
from airflow_eos_provider.data_text import ranges
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.acl_values import ANYWHERE, Acl, Operation, Pattern, Resource
from airflow_eos_provider.stored import to_json


@dataclass(frozen=True, slots=True)
class AclPlan:
    """ACLs that are created, or deleted."""

    grants: bool  #: whether they are created
    kafka_cluster_id: str
    acls: tuple[Acl, ...]
    kept: tuple[Acl, ...] = ()  #: that would be deleted too, and are needed by what runs; no part of the hash
    #: Whose access changes besides: a sentence for each resource that gets its first ACL, or loses its last, where
    #: ``allow.everyone.if.no.acl.found`` is set or not known.
    everybody: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The plan for a person in few lines. Each ACL is in one of them."""
        return [*_grouped(self.acls, "+ " if self.grants else "- "), *(f"! {line}" for line in self.everybody)]

    def kept_lines(self) -> list[str]:
        """What is not deleted, likewise."""
        return list(_grouped(self.kept, "kept, since it is needed: "))

    def content(self) -> dict[str, Any]:
        """What is changed where, as JSON. Scripts rely on the names."""
        return {
            "kafka_cluster_id": self.kafka_cluster_id,
            "acls": to_json(self.acls),
            "everybody": list(self.everybody),
        }


def _grouped(acls: Iterable[Acl], before: str) -> Iterator[str]:
    """ACLs in few lines: those that differ by operation, or by the number at the end of an id, are in one."""
    operations: dict[Acl, list[str]] = {}
    for acl in sorted(acls):
        operations.setdefault(replace(acl, operation=Operation.ALL), []).append(str(acl.operation))
    alike: dict[str, list[Acl]] = {}
    for acl, names in operations.items():
        alike.setdefault(", ".join(names), []).append(acl)
    for words, theirs in alike.items():
        for acl, place in _places(theirs):
            yield f"{before}{acl.principal} {words} on {place}{_more(acl)}"


def _places(acls: Iterable[Acl]) -> Iterator[tuple[Acl, str]]:
    """Resources in words, each with an ACL on it: those that differ by the number at the end of an id are one."""
    numbers: dict[Acl, list[int | None]] = {}
    for acl in acls:
        stem, number = _numbered(acl)
        numbers.setdefault(replace(acl, name=stem), []).append(number)
    for acl, found in numbers.items():
        ids = ranges(sorted(each for each in found if each is not None))
        yield acl, f"{acl.resource} {_begins(acl)}{acl.name}{ids}"


def _numbered(acl: Acl) -> tuple[str, int | None]:
    """A name and the number at its end, where that is one of a task's transactional id."""
    if acl.resource is not Resource.TRANSACTIONAL_ID or acl.pattern is not Pattern.LITERAL:
        return acl.name, None
    stem, dash, digits = acl.name.rpartition("-")
    if not (digits.isdecimal() and digits.isascii() and str(int(digits)) == digits):
        return acl.name, None
    return f"{stem}{dash}", int(digits)


def _begins(acl: Acl) -> str:
    return "beginning with " if acl.pattern is Pattern.PREFIXED else ""


def _more(acl: Acl) -> str:
    return ("" if acl.host == ANYWHERE else f" from {acl.host}") + (" (denial)" if acl.is_denial else "")


def plan_grant(rules: Iterable[Rule], authorizer: Authorizer, kafka_cluster_id: str) -> AclPlan:
    """What is to be created so that the ACLs give these rights."""
    there = require_acls(authorizer)
    findings = judge(rules, authorizer)
    for finding in findings:
        if finding.denials:
            raise RefusedError(
                f"{finding.rule} cannot be granted: an ACL {finding.found}.",
                remedy="Ask the owner of that denial: it overrides every ACL that allows.",
            )
    missing = sorted({finding.rule.acl for finding in findings if finding.verdict is not Verdict.PASS})
    first = _everybody(
        missing, there, authorizer, "{} has no ACL yet: all other users of it are refused from then on, {}"
    )
    return AclPlan(True, kafka_cluster_id, tuple(missing), everybody=first)


def plan_revoke(
    acls: Collection[Acl], needed: Iterable[Rule], authorizer: Authorizer, kafka_cluster_id: str
) -> AclPlan:
    """What is to be deleted."""
    there = require_acls(authorizer)
    rules = list(needed)
    candidates = sorted(set(acls) & set(there))
    needed_acls = set[Acl]()
    for rule in rules:  # by its own ACL, else by each that gives it
        giving = {acl for acl in candidates if _gives(acl, rule)}
        needed_acls |= giving & {rule.acl} or giving
    kept = tuple(acl for acl in candidates if acl in needed_acls)
    deleted = tuple(acl for acl in candidates if acl not in kept)
    last = _everybody(
        deleted, set(there) - set(deleted), authorizer, "{} then has no ACL left: everybody may use it, {}"
    )
    return AclPlan(False, kafka_cluster_id, deleted, kept, last)


def acls_of_connector(facts: ConnectorFacts, there: Sequence[Acl], principals: Collection[str]) -> list[Acl]:
    """The ACLs on transactional ids of a connector, which may not exist any more."""
    return [
        acl
        for acl in there
        if acl.resource is Resource.TRANSACTIONAL_ID
        and not acl.is_denial
        and (not principals or acl.principal in principals)
        and (
            acl.name == facts.id_prefix
            if acl.pattern is Pattern.PREFIXED
            else acl.name.startswith(facts.id_prefix) and acl.name.removeprefix(facts.id_prefix).isdigit()
        )
    ]


def require_acls(authorizer: Authorizer) -> tuple[Acl, ...]:
    """The ACLs."""
    if not authorizer.is_there:
        raise RefusedError(
            "The brokers have no authorizer: everybody may do everything, and there are no ACLs.",
            remedy="There is nothing to grant; the brokers' 'authorizer.class.name' switches an authorizer on.",
        )
    if authorizer.acls is None:
        raise ConfigurationError(
            f"The ACLs cannot be read: {authorizer.problem}.", remedy="Use a principal with Describe on the cluster."
        )
    return authorizer.acls


def _everybody(
    changed: Iterable[Acl], others: Collection[Acl], authorizer: Authorizer, sentence: str
) -> tuple[str, ...]:
    """What a change does to everybody's access: a resource without any ACL is everybody's where brokers are set so."""
    if authorizer.allows_without_acl is False:
        return ()
    setting = "allow.everyone.if.no.acl.found is true"
    reason = f"since {setting}" if authorizer.allows_without_acl else f"if {setting}, which the brokers do not say"
    alone = {
        Acl("", Operation.ALL, acl.resource, acl.name, acl.pattern)
        for acl in changed
        if not any(other.covers(acl.resource, acl.name, acl.pattern) for other in others)
    }
    return tuple(sentence.format(place, reason) for _, place in _places(sorted(alone)))


def _gives(acl: Acl, rule: Rule) -> bool:
    return (
        acl.is_about(rule.principal)
        and acl.operation.allows(rule.operation)
        and acl.touches(rule.resource, rule.name, rule.pattern)
    )
