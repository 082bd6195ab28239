"""Checks a group's internal topics against the settings that its workers need, and plans the fixes: decisions alone.

Rules: ``KafkaConfigBackingStore`` (one partition), ``TopicAdmin.verifyTopicCleanupPolicyOnlyCompact``,
``DistributedConfig`` (defaults, settings of a topic), ``ConnectorOffsetBackingStore`` (own topics, KIP-618).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.connect.topics.internal_topics import BROKERS_DEFAULT, OWN_TOPIC, Role, WantedTopic
from airflow_eos_provider.data_text import LINE_CHARACTERS, first_few, one_line
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.kafka.topics import needed_in_sync, settings_of_new

CLEANUP, IN_SYNC = "cleanup.policy", "min.insync.replicas"
_MENDED_HERE = "'eos topics create' sets it."


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """An internal topic as it is.

    :param replicas: copies of the partition that has fewest of them.
    :param settings: that are in force, the brokers' defaults included.
    """

    id: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicsLook:
    """The internal topics of a group, as they were found.

    :param found: by name, those that exist.
    :param own: by connector its own offsets topic; in another Kafka cluster ``<its id>/<topic>``.
    :param foreign_ids: by topic the transactional ids of others than the group that have written to it lately.
    :param workers_run: whether a worker answers, or is in the group.
    :param brokers_elsewhere: by topic, of those in other Kafka clusters, how many brokers are there now.
    """

    group_id: str
    kafka_cluster_id: str
    brokers: int
    wanted: tuple[WantedTopic, ...]
    found: Mapping[str, FoundTopic]
    own: Mapping[str, str] = field(default_factory=dict)
    foreign_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    workers_run: bool = True
    not_checked: tuple[str, ...] = ()
    brokers_elsewhere: Mapping[str, int] = field(default_factory=dict)

    def brokers_of(self, topic: str) -> int:
        """How many brokers the Kafka cluster of a topic has now."""
        return self.brokers_elsewhere.get(topic, self.brokers)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON, with its findings. Scripts rely on the names."""
        found = findings(self)
        return {
            "group": self.group_id,
            "kafka_cluster_id": self.kafka_cluster_id,
            "brokers": self.brokers,
            "ok": not found,
            "topics": [self._topic(wanted) for wanted in self.wanted],
            "findings": [one.to_dict() for one in found],
            "not_checked": list(self.not_checked),
        }

    def _topic(self, wanted: WantedTopic) -> dict[str, Any]:
        found = self.found.get(wanted.name)
        return {
            "topic": wanted.name,
            "role": str(wanted.role),
            "connectors": list(wanted.connectors),
            "addresses": wanted.addresses,
            "brokers": self.brokers_of(wanted.name),
            "id": found and found.id,
            "partitions": found and found.partitions,
            "replicas": found and found.replicas,
            "settings": found and _looked_at(wanted, found),
            "wanted": {
                "partitions": wanted.partitions,
                "replicas": wanted.replicas,
                "settings": dict(wanted.settings),
            },
        }


def users_of(own: Mapping[str, str]) -> dict[str, list[str]]:
    """By topic the connectors whose own topic it is, by name."""
    users: dict[str, list[str]] = {}
    for connector, topic in sorted(own.items()):
        users.setdefault(topic, []).append(connector)
    return users


@dataclass(frozen=True, slots=True)
class TopicFinding(Finding):
    """A failed check of a topic.

    :param mends: settings of the topic that mend it; none where nothing here does.
    """

    mends: Mapping[str, str] = field(default_factory=dict)
    creates: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {**Finding.to_dict(self), "mendable": self.creates or bool(self.mends)}


def _fails(
    topic: str, found: str, expected: str, remedy: str, *, mends: Mapping[str, str] | None = None, creates: bool = False
) -> TopicFinding:
    return TopicFinding(topic, Verdict.FAIL, found, expected, remedy, mends=mends or {}, creates=creates)


def findings(look: TopicsLook) -> tuple[TopicFinding, ...]:
    """Every check that does not hold, topic by topic, then what concerns several."""
    return tuple(_each(look))


def _each(look: TopicsLook) -> Iterator[TopicFinding]:
    for wanted in look.wanted:
        found = look.found.get(wanted.name)
        if found is None:
            yield _missing(wanted, look)
        else:
            yield from _policy(wanted, found)
            yield from _partitions(wanted, found)
            yield from _replicas(wanted, found, look.brokers_of(wanted.name))
            yield from _in_sync(wanted, found)
            yield from _settings(wanted, found)
    yield from _one_topic_for_two_uses(look)
    yield from _own_topics(look)
    yield from _foreign_writers(look)


def _missing(wanted: WantedTopic, look: TopicsLook) -> TopicFinding:
    obstacle = _obstacle(wanted, look)
    return _fails(
        wanted.name,
        f"There is no topic {wanted}.",
        f"one with {', '.join(_spelled(wanted))}",
        obstacle or f"'eos topics create' creates it. Otherwise {_creator(wanted)} does, if its principal may.",
        creates=obstacle is None,
    )


def _creator(wanted: WantedTopic) -> str:
    return "the worker that starts its connector" if wanted.role is Role.OWN else "the first worker that starts"


def _spelled(wanted: WantedTopic) -> list[str]:
    """The numbers and settings that a new topic gets, as lines of a diff."""
    numbers = {"partitions": wanted.partitions, "replication.factor": wanted.replicas}
    said = {None: "unknown", BROKERS_DEFAULT: "the brokers' default"}
    return [f"{name}={said.get(number, number)}" for name, number in numbers.items()] + [
        f"{name}={value}" for name, value in sorted(new_settings(wanted).items())
    ]


def new_settings(wanted: WantedTopic) -> dict[str, str]:
    """The settings that a topic is created with."""
    return settings_of_new(wanted.settings, wanted.replicas or BROKERS_DEFAULT)


def _obstacle(wanted: WantedTopic, look: TopicsLook) -> str | None:
    """Why a missing topic is not created, with what helps."""
    prefix = wanted.role.prefix
    if look.workers_run and wanted.role is not Role.OWN:
        return (
            "A running worker has created its topics at its start, so compare the name with the one in the workers' "
            "files. If the topic was deleted, restart a worker, which creates it, and restore its records."
        )
    if wanted.unknown:
        return (
            f"Unknown: {', '.join(wanted.unknown)}. Give --partitions and --replication-factor, or let "
            f"{_creator(wanted)} create it."
        )
    replicas = wanted.replicas or BROKERS_DEFAULT
    brokers = look.brokers_of(wanted.name)
    if replicas > brokers:
        return (
            f"There are {brokers} brokers now, and {prefix}replication.factor is {replicas}: a worker cannot "
            "create the topic. Start the other brokers, or lower the setting (here: --replication-factor)."
        )
    in_sync = _number(wanted.settings.get(IN_SYNC))
    if replicas != BROKERS_DEFAULT and in_sync is not None and in_sync > replicas:
        return f"{prefix}{IN_SYNC} is {in_sync} with {replicas} replicas: nothing could be written. Lower it."
    return None


def _policy(wanted: WantedTopic, found: FoundTopic) -> Iterator[TopicFinding]:
    policy = found.settings.get(CLEANUP, "")
    if {part.strip().lower() for part in policy.split(",")} != {"compact"}:
        yield _fails(
            wanted.name,
            f"Topic {wanted} has {CLEANUP}={policy}.",
            f"{CLEANUP}=compact alone: with another one {_stops(wanted)}, and retention removes records that it needs",
            f"{_MENDED_HERE} It brings nothing back that retention has removed."
            + (" Restart its connector then, if it has failed." if wanted.role is Role.OWN else ""),
            mends={CLEANUP: "compact"},
        )


def _stops(wanted: WantedTopic) -> str:
    return "its connector does not start" if wanted.role is Role.OWN else "no worker starts"


def _partitions(wanted: WantedTopic, found: FoundTopic) -> Iterator[TopicFinding]:
    partitions = found.partitions
    if wanted.role is Role.CONFIGS and partitions != 1:
        yield _fails(
            wanted.name,
            f"Topic {wanted} has {partitions} partitions.",
            "1: its records count in one order, and no worker starts with more",
            "Kafka cannot remove a partition. Copy the newest record of each key into a new topic of one partition, "
            "in their order, and name that in config.storage.topic of every worker, all of them stopped.",
        )
    elif wanted.role in (Role.OFFSETS, Role.STATUS) and wanted.partitions not in (None, BROKERS_DEFAULT, partitions):
        yield _fails(
            wanted.name,
            f"Topic {wanted} has {partitions} partitions.",
            f"{wanted.partitions}, as {wanted.role.prefix}partitions of the workers",
            f"Set {wanted.role.prefix}partitions={partitions} in the workers' files. Do not add partitions: keys that "
            "move leave their records in the old ones, where compaction never joins them.",
        )


def _replicas(wanted: WantedTopic, found: FoundTopic, brokers: int) -> Iterator[TopicFinding]:
    setting = f"{wanted.role.prefix}replication.factor"
    needed = max(wanted.replicas or 0, min(2, brokers))
    if found.replicas >= needed:
        return
    from_setting = needed == wanted.replicas
    yield _fails(
        wanted.name,
        f"Topic {wanted} has {found.replicas} replicas on {brokers} brokers.",
        f"{needed}, as {setting} of the workers" if from_setting else "2 or more: one is lost with its broker",
        "'kafka-reassign-partitions.sh' gives a topic more replicas"
        + (f"; or lower {setting} to the intended number." if from_setting else f"; raise {setting} for new ones."),
    )


def _in_sync(wanted: WantedTopic, found: FoundTopic) -> Iterator[TopicFinding]:
    in_sync = _number(found.settings.get(IN_SYNC)) or 1
    given = _number(wanted.settings.get(IN_SYNC))
    needed = needed_in_sync(found.replicas) if given is None else given
    if in_sync > found.replicas:
        problem = "nothing can be written to it"
    elif given is not None and in_sync != given:
        problem = "the workers have another setting"
    elif given is None and in_sync < needed:
        problem = "an acknowledged record may be on its leader alone, and is lost with it"
    else:
        return
    mendable = needed <= found.replicas
    yield _fails(
        wanted.name,
        f"Topic {wanted} has {IN_SYNC}={in_sync} with {found.replicas} replicas: {problem}.",
        f"{IN_SYNC}={needed}" + (f", as {wanted.role.prefix}{IN_SYNC} of the workers" if given is not None else ""),
        _MENDED_HERE if mendable else f"Lower {wanted.role.prefix}{IN_SYNC} of the workers, or add replicas.",
        mends={IN_SYNC: str(needed)} if mendable else {},
    )


def _settings(wanted: WantedTopic, found: FoundTopic) -> Iterator[TopicFinding]:
    for name, value in wanted.settings.items():
        setting, now = f"{wanted.role.prefix}{name}", found.settings.get(name)
        if name in (CLEANUP, IN_SYNC) or now == value:
            continue
        known = now is not None
        yield _fails(
            wanted.name,
            f"Topic {wanted} has {name}={now}." if known else f"The brokers know no setting {name} of topics.",
            f"{name}={value}, as {setting} of the workers" if known else "a setting of topics",
            _MENDED_HERE if known else f"Correct {setting} in the workers' files: no worker creates a topic with it.",
            mends={name: value} if known else {},
        )


def _one_topic_for_two_uses(look: TopicsLook) -> Iterator[TopicFinding]:
    roles: dict[str, list[Role]] = {}
    for wanted in look.wanted:
        roles.setdefault(wanted.name, []).append(wanted.role)
    for name, uses in roles.items():
        if len(uses) > 1:
            yield _fails(
                name,
                f"Topic {name} is the group's {' and its '.join(uses)}.",
                "a topic for each",
                "Name different topics in every worker's file.",
            )


def _own_topics(look: TopicsLook) -> Iterator[TopicFinding]:
    internal = {wanted.name: wanted.role for wanted in look.wanted if wanted.role is not Role.OWN}
    # In another Kafka cluster connectors without an own topic share one of the global topic's name, as they do here.
    shared = {name for name, role in internal.items() if role is Role.OFFSETS}
    for topic, connectors in users_of(look.own).items():
        names = ", ".join(connectors)
        if topic in internal:
            harmless = internal[topic] is Role.OFFSETS
            yield _fails(
                topic,
                f"The group's {internal[topic]} {topic} is also {OWN_TOPIC} of {names}.",
                "a topic that only this connector writes to",
                f"Name another in {OWN_TOPIC}, or none"
                + (": this one is used anyway." if harmless else "; its offsets do not belong there."),
            )
        elif len(connectors) > 1 and topic.rpartition("/")[2] not in shared:
            yield _fails(
                topic,
                f"Topic {topic} is {OWN_TOPIC} of {names}.",
                "a topic for each connector: an open transaction of one keeps the others from reading their offsets",
                f"Name another in {OWN_TOPIC} of all but one; stop each first, and move its offsets.",
            )


def _foreign_writers(look: TopicsLook) -> Iterator[TopicFinding]:
    for topic, ids in look.foreign_ids.items():
        named = first_few(ids)
        yield _fails(
            topic,
            f"Others than the group {look.group_id} have written to {topic} in transactions lately: {named}.",
            "the group's own ids alone: connect-cluster-<group> for the config topic, <group>-<connector>-<task> "
            "for offsets",
            "If this is another Connect group, compare the topics in its workers' files, and give each group its own.",
        )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None


def _looked_at(wanted: WantedTopic, found: FoundTopic) -> dict[str, str | None]:
    return {name: found.settings.get(name) for name in sorted({CLEANUP, IN_SYNC, *wanted.settings})}


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What is done to one topic.

    :param creates: it is created; else it is there, and settings of it change.
    :param before: those that are set, as they are.
    """

    wanted: WantedTopic
    creates: bool
    settings: Mapping[str, str]
    before: Mapping[str, str]

    def diff(self) -> list[str]:
        """What changes, a line each, in the form of a diff."""
        head = f"{'+++' if self.creates else '---'} {self.wanted}"
        if self.creates:
            lines = [head, *(f"+{line}" for line in _spelled(self.wanted))]
        else:
            lines = [head]
            for name, value in sorted(self.settings.items()):
                lines += [f"-{name}={self.before[name]}"] * (name in self.before) + [f"+{name}={value}"]
        return [one_line(line, LINE_CHARACTERS) for line in lines]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What creates and mends a group's internal topics. Nothing is deleted, and no data moves."""

    changes: tuple[TopicChange, ...]
    rests_on: Mapping[str, Any]

    def diff(self) -> list[str]:
        """What changes, a line each, in the form of a diff."""
        return [line for change in self.changes for line in change.diff()]


def plan_of(look: TopicsLook) -> TopicPlan:
    """What creates and mends the topics, from one look at them."""
    found = findings(look)
    return TopicPlan(
        tuple(change for wanted in _first_uses(look.wanted) if (change := _change(wanted, look, found))),
        {
            "group": look.group_id,
            "kafka_cluster_id": look.kafka_cluster_id,
            "own": dict(look.own),
            "topics": {wanted.name: _state(wanted, look.found.get(wanted.name)) for wanted in look.wanted},
        },
    )


def _first_uses(wanted: Iterable[WantedTopic]) -> list[WantedTopic]:
    return list({one.name: one for one in reversed(list(wanted))}.values())[::-1]


def _change(wanted: WantedTopic, look: TopicsLook, found: Iterable[TopicFinding]) -> TopicChange | None:
    mine = [finding for finding in found if finding.subject == wanted.name]
    if any(finding.creates for finding in mine):
        return TopicChange(wanted, True, new_settings(wanted), {})
    settings = {name: value for finding in mine for name, value in finding.mends.items()}
    if not settings:
        return None
    now = look.found[wanted.name].settings
    return TopicChange(wanted, False, settings, {name: now[name] for name in settings if name in now})


def _state(wanted: WantedTopic, found: FoundTopic | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "id": found.id,
        "partitions": found.partitions,
        "replicas": found.replicas,
        "settings": _looked_at(wanted, found),
    }
