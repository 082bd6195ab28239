"""Tests rights by trying them as the principal, without an effect: the brokers answer, so any authorizer works.

Nothing is created, written or fenced. The brokers list what the principal may do with a topic or the cluster (KIP-430);
creating a missing topic is only validated; for ids and groups see ``kafka/admin/id_rights.py``.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping

from kafka.errors import AuthorizationError

from airflow_eos_provider.acls.judge import RightFinding, Source, right
from airflow_eos_provider.acls.rules import Rule
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.acl_values import EVERYTHING, Operation, Pattern, Resource
from airflow_eos_provider.kafka.admin.client import Admin
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

_CALL_SECONDS = 15.0


def try_all(
    rules: Iterable[Rule], logins: Mapping[str, KafkaSettings]
) -> tuple[dict[Rule, RightFinding], tuple[str, ...]]:
    """Try the rights of the principals whose login is known.

    :returns: what was found, by rule; and why a principal could not be tried.
    """
    wanted: dict[str, list[Rule]] = {}
    for rule in rules:
        wanted.setdefault(rule.principal, []).append(rule)
    found: dict[Rule, RightFinding] = {}
    problems = []
    for principal, theirs in wanted.items():
        if principal in logins:
            try:
                with Session(logins[principal]) as session:
                    found |= try_rights(session, theirs)
            except EosError as error:
                problems.append(f"{principal} could not be tried: {error.found}")
    return found, tuple(problems)


def try_rights(kafka: Session, rules: Collection[Rule]) -> dict[Rule, RightFinding]:
    """The brokers' answer to each rule, of one principal. Rules that cannot be tried are left out."""
    by_resource = {
        resource: [rule for rule in rules if rule.resource is resource and _can_be_tried(rule)] for resource in Resource
    }
    with kafka.transactions() as client:
        found = _topics(client, by_resource[Resource.TOPIC])
        if by_resource[Resource.CLUSTER]:
            there = client.cluster(_CALL_SECONDS).operations
            found |= {rule: _among(there, rule) for rule in by_resource[Resource.CLUSTER]}
        ids = {rule: _one(rule) for rule in by_resource[Resource.TRANSACTIONAL_ID]}
        for operation, ask in ((Operation.DESCRIBE, client.may_describe), (Operation.WRITE, client.may_write)):
            asked = {rule: name for rule, name in ids.items() if rule.operation is operation}
            allowed = ask(sorted(set(asked.values()))) if asked else frozenset()
            found |= {rule: _finding(rule, allowed=name in allowed) for rule, name in asked.items()}
        groups = by_resource[Resource.GROUP]
        joined = client.may_join(sorted({rule.name for rule in groups})) if groups else frozenset()
        return found | {rule: _finding(rule, allowed=rule.name in joined) for rule in groups}


def _topics(admin: Admin, rules: Collection[Rule]) -> dict[Rule, RightFinding]:
    found: dict[Rule, RightFinding] = {}
    allowed = admin.allowed(sorted({rule.name for rule in rules}), _CALL_SECONDS)
    for rule in rules:
        there = allowed[rule.name]
        if rule.operation is Operation.CREATE and not there:
            found[rule] = _finding(rule, allowed=_may_create(admin, rule.name))
        elif there is not None:
            found[rule] = _among(there, rule)
        elif rule.operation is Operation.DESCRIBE:
            found[rule] = _finding(rule, allowed=True)  # else it would not be known that it is not there
    return found


def _among(there: Collection[Operation], rule: Rule) -> RightFinding:
    return _finding(rule, allowed=any(each.allows(rule.operation) for each in there))


def _can_be_tried(rule: Rule) -> bool:
    """Of prefixes only those of ids: an id need not be there. Everything of a kind cannot be tried."""
    if rule.name == EVERYTHING:
        return False
    if rule.resource is Resource.TRANSACTIONAL_ID:
        return rule.operation in (Operation.DESCRIBE, Operation.WRITE)
    if rule.resource is Resource.GROUP:
        return rule.operation is Operation.READ and rule.pattern is Pattern.LITERAL
    return rule.pattern is Pattern.LITERAL


def _one(rule: Rule) -> str:
    """An id that the rule is about; for a prefix one that nobody has, so that no ACL of a single id covers it."""
    return rule.name if rule.pattern is Pattern.LITERAL else f"{rule.name}{secrets.token_hex(8)}"


def _may_create(admin: Admin, topic: str) -> bool:
    """Whether the brokers would create it; they only look whether they would."""
    refusal = admin.create_topic(topic, 1, -1, {}, _CALL_SECONDS, only_validate=True)
    return not isinstance(refusal, AuthorizationError)


def _finding(rule: Rule, *, allowed: bool) -> RightFinding:
    answer, said = (Verdict.PASS, "allow") if allowed else (Verdict.FAIL, "refuse")
    return right(rule, answer, Source.ATTEMPT, f"the brokers {said} it to {rule.principal}")
