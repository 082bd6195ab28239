"""Which rights the parts of a Connect cluster need, by their names alone.

From Kafka's documents (*Exactly-once source connectors*, ACL requirements) and Connect's sources:
``Worker.ExactlyOnceSourceTaskBuilder`` and ``Worker.fenceZombies`` show which of a connector's three clients does what.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.kafka.acl_values import CLUSTER_NAME, Acl, Operation, Pattern, Resource

#: From this version on brokers do not ask for IdempotentWrite (KIP-679).
IDEMPOTENT_BY_WRITE = (2, 8)


class Role(StrEnum):
    """Who needs a right."""

    WORKER = "worker"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin client"
    INTERVAL = "interval run"
    TOOL = "eos"


@dataclass(frozen=True, slots=True)
class Rule:
    """One right that a principal needs.

    :param principal: who, such as ``User:connect``.
    """

    principal: str
    role: Role
    operation: Operation
    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL
    why: str = field(default="", compare=False)
    without: str = field(default="", compare=False)
    connector: str = field(default="", compare=False)
    is_required: bool = True

    @property
    def acl(self) -> Acl:
        """The ACL that gives the right."""
        return Acl(self.principal, self.operation, self.resource, self.name, self.pattern)

    @property
    def part(self) -> str:
        """Whose right it is, in words."""
        return f"{self.role} of {self.connector}" if self.connector else str(self.role)

    def __str__(self) -> str:
        begins = "beginning with " if self.pattern is Pattern.PREFIXED else ""
        return f"{self.principal}: {self.operation} on {self.resource} {begins}{self.name}"


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What decides the rights of a group's workers.

    :param group_id: of the workers (``group.id``).
    :param config_topic: ``config.storage.topic``, and so on.
    :param brokers: version of the brokers; None for one of today.
    """

    group_id: str
    config_topic: str
    offsets_topic: str
    status_topic: str
    mode: Mode = Mode.ENABLED
    principal: str = "User:connect"
    existing: Collection[str] = ()
    brokers: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ConnectorFacts:
    """What decides the rights of a source connector's clients.

    :param offsets_topic: where its offsets go: its own topic, else the workers'.
    :param is_own_topic: whether the offsets topic is its own, and not the workers'.
    :param creates_topics: whether Connect creates its topics (KIP-158).
    :param producer: principal of its producers; and so on. Each may have one of its own (KIP-458).
    :param brokers: version of the brokers; None for one of today.
    """

    group_id: str
    name: str
    tasks: int
    offsets_topic: str
    topics: Collection[str] = ()
    is_own_topic: bool = False
    creates_topics: bool = False
    mode: Mode = Mode.ENABLED
    producer: str = "User:connect"
    consumer: str = "User:connect"
    admin: str = "User:connect"
    existing: Collection[str] = ()
    brokers: tuple[int, int] | None = None

    @property
    def id_prefix(self) -> str:
        """What the transactional ids of its tasks begin with; a number follows."""
        return f"{self.group_id}-{self.name}-"


@dataclass(frozen=True, slots=True)
class IntervalFacts:
    """What decides the rights of a pipeline's interval runs.

    :param group_id: of the pipeline; never that of a Connect cluster.
    :param ledger_topic: its offsets topic.
    :param writes_elsewhere: whether it may write into further topics, which are not known.
    """

    group_id: str
    name: str
    topics: Collection[str] = ()
    ledger_topic: str = ""
    control_topic: str = ""
    principal: str = "User:spark"
    existing: Collection[str] = ()
    writes_elsewhere: bool = False


def worker_rules(facts: WorkerFacts) -> list[Rule]:
    """The rights that each worker of a group needs. Connect uses the worker's own principal for all of this."""
    rule = _Rules(facts.principal, Role.WORKER)
    found = [
        rule(
            Operation.READ,
            Resource.GROUP,
            facts.group_id,
            "joins the group",
            f'the worker does not join: "Not authorized to access group: {facts.group_id}"',
        )
    ]
    for topic, use in (
        (facts.config_topic, "configurations"),
        (facts.offsets_topic, "source offsets"),
        (facts.status_topic, "states"),
    ):
        found += [
            rule(Operation.READ, Resource.TOPIC, topic, f"reads {use}", _no_topic(topic, "the worker does not start")),
            rule(Operation.WRITE, Resource.TOPIC, topic, f"writes {use}", _no_topic(topic, "no worker can write them")),
            *_creation(rule, topic, facts.existing, "the worker does not start"),
            _cleanup_policy(rule, topic),
        ]
    if facts.mode.uses_transactional_leader:
        found += [
            *_transactional(
                rule,
                f"connect-cluster-{facts.group_id}",
                Pattern.LITERAL,
                "as leader, writes the config topic in transactions",
                '"Unable to claim write privileges for config topic after being elected leader during rebalance": no '
                "configuration is written, no task is fenced or started",
            ),
            *_idempotent(rule, facts.brokers, "the leader writes no configuration"),
        ]
    return list(dict.fromkeys(found))


def connector_rules(facts: ConnectorFacts, *, prefixed: bool = False) -> list[Rule]:
    """The rights that the clients of a source connector need.

    :param prefixed: one rule for all transactional ids of its tasks. It reaches further, see :func:`also_reached`.
    """
    found = [*_producer_rules(facts, prefixed), *_consumer_rules(facts), *_admin_rules(facts, prefixed)]
    return list(dict.fromkeys(found))


def interval_rules(facts: IntervalFacts) -> list[Rule]:
    """The rights that the interval runs of a pipeline need, driver and executors alike."""
    rule = _Rules(facts.principal, Role.INTERVAL, facts.name)
    prefix, planner = f"{facts.group_id}-{facts.name}@", f"{facts.group_id}-{facts.name}-planner"
    fails = '"Transactional Id authorization failed": the run ends before it writes'
    found = [
        *_transactional(rule, prefix, Pattern.PREFIXED, "ids of a run's coordinator and tasks", fails),
        *_transactional(rule, planner, Pattern.LITERAL, "admits one plan at a time", fails),
    ]
    ledger = facts.ledger_topic or f"{facts.group_id}-{facts.name}-offsets"
    control = facts.control_topic or f"{facts.group_id}-configs"
    for topic, use in ((control, "the control topic"), (ledger, "the ledger"), *((t, "records") for t in facts.topics)):
        reads = "checks for open transactions there" if use == "records" else f"reads {use}"
        found += [
            rule(Operation.READ, Resource.TOPIC, topic, reads, "the run fails before it writes"),
            rule(Operation.WRITE, Resource.TOPIC, topic, f"writes {use}", "the run fails at its first write"),
            rule(
                Operation.DESCRIBE_CONFIGS,
                Resource.TOPIC,
                topic,
                "checks whether its settings could lose a record",
                "the run is refused",
            ),
        ]
        if topic not in facts.existing:
            found.append(rule(Operation.CREATE, Resource.TOPIC, topic, "creates it", "the run is refused"))
    return list(dict.fromkeys(found))


def also_reached(rules: Iterable[Rule], ids: Iterable[str]) -> dict[Rule, tuple[str, ...]]:
    """What prefixes reach beside what they are for, by one rule of each: that of ``a`` reaches ``a-b``."""
    known, found, seen = sorted(set(ids)), {}, set()
    for rule in rules:
        if rule.pattern is Pattern.PREFIXED and rule.resource is Resource.TRANSACTIONAL_ID:
            beyond = tuple(name for name in known if name.startswith(rule.name) and not _is_meant(rule, name))
            if beyond and (rule.principal, rule.name) not in seen:
                seen.add((rule.principal, rule.name))
                found[rule] = beyond
    return found


def _is_meant(rule: Rule, name: str) -> bool:
    """Whether a prefixed rule is for this id: a task's number follows, it is a run's, or it is ``eos`` that looks."""
    return rule.role in (Role.INTERVAL, Role.TOOL) or name.removeprefix(rule.name).isdigit()


def _producer_rules(facts: ConnectorFacts, prefixed: bool) -> Iterator[Rule]:
    rule = _Rules(facts.producer, Role.PRODUCER, facts.name)
    for topic in facts.topics:
        yield rule(
            Operation.WRITE, Resource.TOPIC, topic, "writes records", _no_topic(topic, "the task fails at its write")
        )
    if facts.mode.runs_exactly_once_tasks:
        for name, pattern in _ids(facts, prefixed):
            yield from _transactional(
                rule,
                name,
                pattern,
                "each task writes records and offsets in transactions",
                'the task fails at its start: "Transactional Id authorization failed."',
            )
        yield from _idempotent(rule, facts.brokers, "the task fails at its start")
    if facts.mode.runs_exactly_once_tasks or facts.is_own_topic:
        yield rule(
            Operation.WRITE,
            Resource.TOPIC,
            facts.offsets_topic,
            "writes source offsets, in the transaction of the records",
            f'the task fails: "Failed to flush offsets and/or records for task {facts.name}-0"',
        )


def _consumer_rules(facts: ConnectorFacts) -> Iterator[Rule]:
    if facts.mode.runs_exactly_once_tasks or facts.is_own_topic:
        rule = _Rules(facts.consumer, Role.CONSUMER, facts.name)
        yield rule(
            Operation.READ,
            Resource.TOPIC,
            facts.offsets_topic,
            "reads the source offsets from which a task resumes",
            _no_topic(facts.offsets_topic, "the task fails at its start"),
        )


def _admin_rules(facts: ConnectorFacts, prefixed: bool) -> Iterator[Rule]:
    rule = _Rules(facts.admin, Role.ADMIN, facts.name)
    if facts.mode.runs_exactly_once_tasks:
        for name, pattern in _ids(facts, prefixed):
            yield from _transactional(
                rule,
                name,
                pattern,
                "fences the tasks of earlier generations; the leader does it, by this client",
                'the task fails at its start: "Failed to perform round of zombie fencing"',
            )
    if facts.mode.runs_exactly_once_tasks or facts.is_own_topic:
        topic = facts.offsets_topic
        yield rule(
            Operation.DESCRIBE,
            Resource.TOPIC,
            topic,
            "reads its end offset",
            f"the task fails at its start: \"Not authorized to get the end offsets for topic '{topic}'\"",
        )
        yield from _creation(rule, topic, facts.existing, "the task fails at its start")
        yield _cleanup_policy(rule, topic)
    if facts.creates_topics:
        yield from _topic_creation(rule, facts)


def _topic_creation(rule: _Rules, facts: ConnectorFacts) -> Iterator[Rule]:
    for topic in facts.topics:
        yield rule(
            Operation.DESCRIBE,
            Resource.TOPIC,
            topic,
            "checks whether the topic exists",
            f"the task fails: \"Not authorized to describe topic(s) '{topic}'\"",
        )
        if topic not in facts.existing:
            yield rule(
                Operation.CREATE,
                Resource.TOPIC,
                topic,
                "creates the topic (topic.creation.…)",
                'the task fails: "Ensure that the task is authorized to create topics or that the topic exists"',
            )


def _ids(facts: ConnectorFacts, prefixed: bool) -> list[tuple[str, Pattern]]:
    if prefixed:
        return [(facts.id_prefix, Pattern.PREFIXED)]
    return [(f"{facts.id_prefix}{number}", Pattern.LITERAL) for number in range(max(1, facts.tasks))]


@dataclass(frozen=True, slots=True)
class _Rules:
    """Makes the rules of one client."""

    principal: str
    role: Role
    connector: str = ""

    def __call__(
        self,
        operation: Operation,
        resource: Resource,
        name: str,
        why: str,
        without: str,
        *,
        pattern: Pattern = Pattern.LITERAL,
        is_required: bool = True,
    ) -> Rule:
        return Rule(
            self.principal, self.role, operation, resource, name, pattern, why, without, self.connector, is_required
        )


def _transactional(rule: _Rules, name: str, pattern: Pattern, why: str, without: str) -> list[Rule]:
    """Write to write with an id, Describe to find its coordinator."""
    return [
        rule(operation, Resource.TRANSACTIONAL_ID, name, why, without, pattern=pattern)
        for operation in (Operation.WRITE, Operation.DESCRIBE)
    ]


def _idempotent(rule: _Rules, brokers: tuple[int, int] | None, without: str) -> list[Rule]:
    if brokers is None or brokers >= IDEMPOTENT_BY_WRITE:
        return []
    why = "brokers before 2.8 ask idempotent producers for it"
    failure = f'{without}: "Cluster authorization failed."'
    return [rule(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME, why, failure)]


def _creation(rule: _Rules, topic: str, existing: Collection[str], without: str) -> list[Rule]:
    if topic in existing:
        return []
    failure = f"{without}: \"Could not look up partition metadata for topic '{topic}'\""
    return [rule(Operation.CREATE, Resource.TOPIC, topic, "creates it if it does not exist", failure)]


def _cleanup_policy(rule: _Rules, topic: str) -> Rule:
    return rule(
        Operation.DESCRIBE_CONFIGS,
        Resource.TOPIC,
        topic,
        "checks whether it is compacted only",
        "a topic that deletes its records is not noticed",
        is_required=False,
    )


def _no_topic(topic: str, fails: str) -> str:
    return f'{fails}: "Not authorized to access topics: [{topic}]"'
