"""Grants what is missing, and revokes what was granted: planned, approved by its hash, then carried out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from airflow_eos_provider.acls.judge import Answer, Authorizer, judge
from airflow_eos_provider.acls.rules import ConnectorFacts, Rule
from airflow_eos_provider.data_text import ranges
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.kafka.acl_values import ANYWHERE, Acl, Operation, Pattern, Resource
from airflow_eos_provider.kafka.acls import Acls
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.plan_hash import ShownPlan, hash_of

#: What a plan says that it is.
GRANT, REVOKE = "acl grant", "acl revoke"


@dataclass(frozen=True, slots=True)
class AclPlan(ShownPlan):
    """ACLs that are created, or deleted.

    :param kind: :data:`GRANT` or :data:`REVOKE`.
    :param acls: that are created or deleted.
    :param kept: that would be deleted too, and are needed by what runs; no part of the hash.
    """

    moved: ClassVar[str] = "ACLs, connectors or their tasks have changed, or the options are others"

    kind: str
    kafka_cluster_id: str
    acls: tuple[Acl, ...]
    kept: tuple[Acl, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 over what is changed where."""
        return hash_of(self._content())

    def lines(self) -> list[str]:
        """The plan for a person."""
        sign = "+" if self.kind == GRANT else "-"
        return [f"{sign} {acl}" for acl in self.acls]

    def grouped_lines(self) -> list[str]:
        """The plan for a person in few lines. Each ACL is in one of them: what differs by its operation, or by the
        number at the end of a transactional id, is in the same."""
        verb = "create" if self.kind == GRANT else "delete"
        operations: dict[Acl, list[str]] = {}
        for acl in sorted(self.acls):
            operations.setdefault(replace(acl, operation=Operation.ALL), []).append(str(acl.operation))
        numbers: dict[tuple[Acl, str], list[int | None]] = {}
        for acl, names in operations.items():
            stem, number = _numbered(acl)
            numbers.setdefault((replace(acl, name=stem), ", ".join(names)), []).append(number)
        lines = []
        for (acl, words), found in numbers.items():
            ids = ranges(sorted(each for each in found if each is not None))
            lines.append(f"{verb}: {acl.principal} {words} on {acl.resource} {_begins(acl)}{acl.name}{ids}{_more(acl)}")
        return lines

    def apply(self, kafka: Session) -> None:
        """Create or delete them. May be repeated: what is done already is left as it is.

        :raises ConfigurationError: the principal may not (*Alter* on the cluster).
        :raises UnreachableError: no broker answers.
        """
        with kafka.admin() as admin:
            acls = Acls(admin)
            if self.kind == GRANT:
                acls.create(self.acls)
            else:
                acls.delete(self.acls)

    def to_dict(self) -> dict[str, Any]:
        """As JSON. Scripts rely on the names."""
        return {**self._content(), "kept": list(map(acl_document, self.kept)), "hash": self.hash}

    def _content(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "kafka_cluster_id": self.kafka_cluster_id,
            "acls": [acl_document(acl) for acl in self.acls],
        }


def acl_document(acl: Acl) -> dict[str, str]:
    """An ACL as JSON. Scripts rely on the names."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": str(acl.operation),
        "permission": "Deny" if acl.is_denial else "Allow",
        "resource": str(acl.resource),
        "name": acl.name,
        "pattern": str(acl.pattern),
    }


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
    """What is to be created so that the ACLs give these rights.

    :raises RefusedError: the brokers have no authorizer; or an ACL denies a right, which no other can give then.
    :raises ConfigurationError: the ACLs cannot be read.
    """
    require_acls(authorizer)
    findings = judge(rules, authorizer)
    for finding in findings:
        if finding.denials:
            raise RefusedError(
                f"{finding.rule} cannot be granted: an ACL {finding.because}.",
                remedy="Whoever wrote that denial decides; it wins over every ACL that allows.",
            )
    missing = {finding.rule.acl for finding in findings if finding.answer is not Answer.ALLOWED}
    return AclPlan(GRANT, kafka_cluster_id, tuple(sorted(missing)))


def plan_revoke(
    acls: Collection[Acl], needed: Iterable[Rule], authorizer: Authorizer, kafka_cluster_id: str
) -> AclPlan:
    """What is to be deleted.

    :param acls: that are not wanted any more; those that are not there are left out.
    :param needed: rights of what runs: an ACL that gives one is kept.
    :raises RefusedError: the brokers have no authorizer.
    :raises ConfigurationError: the ACLs cannot be read.
    """
    there = require_acls(authorizer)
    rules = list(needed)
    candidates = sorted(set(acls) & set(there))
    kept = tuple(acl for acl in candidates if any(_gives(acl, rule) for rule in rules))
    return AclPlan(REVOKE, kafka_cluster_id, tuple(acl for acl in candidates if acl not in kept), kept)


def acls_of_connector(facts: ConnectorFacts, there: Sequence[Acl], principals: Collection[str]) -> list[Acl]:
    """The ACLs on transactional ids of a connector, which may not exist any more.

    :param principals: whose; empty for all.
    """
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
    """The ACLs.

    :raises RefusedError: the brokers have no authorizer.
    :raises ConfigurationError: they cannot be read.
    """
    if not authorizer.is_there:
        raise RefusedError(
            "The brokers have no authorizer: everybody may do everything, and there are no ACLs.",
            remedy="Nothing is to be granted; 'authorizer.class.name' of the brokers switches one on.",
        )
    if authorizer.acls is None:
        raise ConfigurationError(
            f"The ACLs are not known: {authorizer.problem}.", remedy="Use a principal with Describe on the cluster."
        )
    return authorizer.acls


def _gives(acl: Acl, rule: Rule) -> bool:
    return (
        acl.is_about(rule.principal)
        and acl.operation.allows(rule.operation)
        and acl.touches(rule.resource, rule.name, rule.pattern)
    )
