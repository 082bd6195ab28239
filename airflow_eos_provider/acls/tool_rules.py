"""Which rights the principal of ``eos`` itself needs, by what it is asked to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from airflow_eos_provider.acls.rules import Role, Rule
from airflow_eos_provider.connect.transactional_ids import leader_id
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.kafka.acl_values import CLUSTER_NAME, EVERYTHING, Operation, Pattern, Resource


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What decides the rights of ``eos`` in a group.

    :param topics: the internal topics of the group, and its connectors' own offsets topics.
    :param offsets_topics: those of them that hold source offsets.
    """

    group_id: str
    principal: str
    config_topic: str
    topics: Collection[str]
    offsets_topics: Collection[str]
    id_prefixes: Collection[str]
    own_topics: Collection[str] = ()


class Need(NamedTuple):
    """One right."""

    operation: Operation
    resource: Resource
    name: str
    why: str
    pattern: Pattern = Pattern.LITERAL
    is_required: bool = True


def _look(facts: ToolFacts, *, needs_ids: bool = False) -> Iterator[Need]:
    yield Need(Operation.DESCRIBE, Resource.GROUP, facts.group_id, "sees the members, the leader and the assignments")
    yield Need(Operation.READ, Resource.TOPIC, facts.config_topic, "reads connectors, tasks and task count records")
    yield Need(Operation.READ, Resource.TOPIC, journal_topic(facts.group_id), "reads who changes the group")
    yield from _ids(facts, Operation.DESCRIBE, "sees open transactions", is_required=needs_ids)
    yield from _hints(facts)


def _hints(facts: ToolFacts) -> Iterator[Need]:
    """What makes a look say more."""
    for topic in sorted({*facts.topics} - {facts.config_topic}):
        yield Need(Operation.DESCRIBE, Resource.TOPIC, topic, "sees its end offsets", is_required=False)
    leader, why = leader_id(facts.group_id), "sees in which mode the leader writes"
    yield Need(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, leader, why, is_required=False)


def journal_rights(facts: ToolFacts) -> Iterator[Need]:
    journal = journal_topic(facts.group_id)
    for operation in (Operation.READ, Operation.WRITE, Operation.CREATE):
        yield Need(operation, Resource.TOPIC, journal, "announces what it does before it does it")
    for operation in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS):
        yield Need(operation, Resource.TOPIC, journal, "lets the broker date the journal", is_required=False)
    for operation in (Operation.WRITE, Operation.DESCRIBE):
        yield Need(operation, Resource.TRANSACTIONAL_ID, journal, "fences the previous controller")


def roll_rights(facts: ToolFacts) -> Iterator[Need]:
    for need in _look(facts):
        yield need._replace(is_required=True)  # its gates wait for what a look alone can do without
    yield from journal_rights(facts)


def fencing_rights(facts: ToolFacts) -> Iterator[Need]:
    yield from roll_rights(facts)
    yield from _ids(facts, Operation.WRITE, "fences the tasks' producers")


def _offsets_list(facts: ToolFacts) -> Iterator[Need]:
    for topic in sorted(facts.offsets_topics):
        yield Need(Operation.READ, Resource.TOPIC, topic, "reads source offsets")


def _downgrade_check(facts: ToolFacts) -> Iterator[Need]:
    for need in _look(facts):
        yield need._replace(is_required=need.name == facts.config_topic)
    yield from _offsets_list(facts)


def drop_own_rights(facts: ToolFacts) -> Iterator[Need]:
    yield from journal_rights(facts)
    yield from _offsets_list(facts)
    for topic in sorted(facts.own_topics):
        yield Need(Operation.DELETE, Resource.TOPIC, topic, "deletes it")


def offsets_rights(facts: ToolFacts) -> Iterator[Need]:
    yield from fencing_rights(facts)
    for topic in sorted(facts.offsets_topics):
        for operation, why in (
            (Operation.READ, "reads source offsets"),
            (Operation.WRITE, "writes source offsets in one transaction"),
            (Operation.DESCRIBE_CONFIGS, "sees whether the topic keeps them"),
        ):
            yield Need(operation, Resource.TOPIC, topic, why)


def _preflight(facts: ToolFacts) -> Iterator[Need]:
    why = "sees how long a transaction may be"
    yield Need(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME, why)
    yield Need(Operation.DESCRIBE, Resource.TOPIC, EVERYTHING, "sees into which topics connectors write")
    why = "sees how large a record may be"
    yield Need(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, EVERYTHING, why, is_required=False)
    yield Need(Operation.DESCRIBE, Resource.GROUP, EVERYTHING, "sees who reads these topics")


def _topics_check(facts: ToolFacts) -> Iterator[Need]:
    for topic in sorted(facts.topics):
        for operation, why in (
            (Operation.DESCRIBE_CONFIGS, "compares its settings"),
            (Operation.READ, "sees who writes to it"),
        ):
            yield Need(operation, Resource.TOPIC, topic, why)


def topics_rights(facts: ToolFacts) -> Iterator[Need]:
    yield from _topics_check(facts)
    yield from journal_rights(facts)
    for topic in sorted(facts.topics):
        for operation in (Operation.CREATE, Operation.ALTER_CONFIGS):
            yield Need(operation, Resource.TOPIC, topic, "creates it, or corrects its settings")


def uninstall_rights(facts: ToolFacts) -> Iterator[Need]:
    journal = journal_topic(facts.group_id)
    yield from journal_rights(facts)  # holds the group while it removes
    yield Need(Operation.DELETE, Resource.TOPIC, journal, "deletes it")


def _hanging(facts: ToolFacts) -> Iterator[Need]:
    yield Need(Operation.READ, Resource.TOPIC, EVERYTHING, "asks the partition leaders for open transactions")
    why = "asks the coordinators which transactions they have"
    yield Need(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, EVERYTHING, why)


def _watch(facts: ToolFacts) -> Iterator[Need]:
    yield from _hanging(facts)
    why = "sees other groups, which may have the same ids"
    yield Need(Operation.DESCRIBE, Resource.GROUP, EVERYTHING, why, is_required=False)


def _audit(facts: ToolFacts) -> Iterator[Need]:
    yield from _watch(facts)
    why = "sees when the brokers forget an id that is not used"
    yield Need(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME, why)


def abort_rights(facts: ToolFacts) -> Iterator[Need]:
    yield from _hanging(facts)
    yield Need(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME, "has the leader write the marker of the abort")


def _acl_check(facts: ToolFacts) -> Iterator[Need]:
    yield Need(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME, "reads the ACLs")
    why = "sees which authorizer there is, and whether it has super users"
    yield Need(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME, why, is_required=False)


def acl_rights(facts: ToolFacts) -> Iterator[Need]:
    yield from _acl_check(facts)
    yield Need(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME, "creates and deletes ACLs")


#: What decides the rights of a verb in a group.
Needs = Callable[[ToolFacts], Iterator[Need]]

#: By command that changes nothing, the rights that it needs.
READING: Mapping[str, Needs] = {
    "status": partial(_look, needs_ids=True),
    "plan": _look,
    "drift": _look,
    "preflight": _preflight,
    "preflight --to-version": _downgrade_check,
    "offsets list": _offsets_list,
    "topics check": _topics_check,
    "transactions list --hanging": _hanging,
    "transactions list --watch": _watch,
    "transactions audit": _audit,
    "acl check": _acl_check,
}


def tool_rules(facts: ToolFacts, verbs: Mapping[str, Needs]) -> list[Rule]:
    """The rights that ``eos`` needs for some of its verbs."""
    found: dict[tuple[object, ...], Rule] = {}
    for verb, needs in verbs.items():
        for need in needs(facts):
            rule = Rule(
                facts.principal,
                Role.TOOL,
                need.operation,
                need.resource,
                need.name,
                need.pattern,
                need.why,
                f"'eos {verb}' is refused by the brokers" if need.is_required else f"'eos {verb}' knows less",
                is_required=need.is_required,
            )
            key = (rule.operation, rule.resource, rule.name, rule.pattern)
            if key not in found or (rule.is_required and not found[key].is_required):
                found[key] = rule
    return list(found.values())


def _ids(facts: ToolFacts, operation: Operation, why: str, *, is_required: bool = True) -> Iterator[Need]:
    for prefix in sorted(facts.id_prefixes):
        yield Need(operation, Resource.TRANSACTIONAL_ID, prefix, why, Pattern.PREFIXED, is_required)
