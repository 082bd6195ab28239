"""What creating and mending internal topics decides: what is left of a plan, and which plan needs its hash."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.changes.change import Done, Plan
from airflow_eos_provider.changes.topics.change import CREATE_TOPICS, TopicsRequest
from airflow_eos_provider.changes.topics.topics_repair import InternalTopicsClient
from airflow_eos_provider.connect.topics.internal_topics import Role, WantedTopic
from airflow_eos_provider.connect.topics.topic_checks import FoundTopic, TopicChange, TopicsLook
from airflow_eos_provider.errors import EosError, UnreachableError

COMPACT = {"cleanup.policy": "compact"}
NAMES = ("a", "b", "c")
SESSION: Any = None


def topic(**settings: str) -> FoundTopic:
    return FoundTopic("id", 25, 3, {"cleanup.policy": "compact", "min.insync.replicas": "2", **settings})


class Group:
    """A group without brokers, whose connectors' own topics are there or not.

    :ivar found: by name the topics that exist.
    :ivar unknown: by connector why its own topic is not known.
    :ivar done: the changes that were carried out.
    """

    def __init__(self) -> None:
        self.found: dict[str, FoundTopic] = {}
        self.unknown: dict[str, EosError] = {}
        self.done: list[str] = []
        self.addresses = ""

    def look(self, client: InternalTopicsClient) -> TopicsLook:
        client.unknown = self.unknown
        wanted = tuple(WantedTopic(n, Role.OWN, (n,), 25, 3, addresses=self.addresses) for n in NAMES)
        return TopicsLook("g", "k", 3, wanted, self.found, not_checked=("who writes",))

    def carry_out(self, client: InternalTopicsClient, changes: tuple[TopicChange, ...], act: Any) -> None:
        for change in changes:
            self.done.append(change.wanted.name)
            self.found[change.wanted.name] = topic()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    group = Group()
    monkeypatch.setattr(InternalTopicsClient, "look", lambda self: group.look(self))
    monkeypatch.setattr(InternalTopicsClient, "carry_out", lambda self, *given: group.carry_out(self, *given))
    return group


def planned() -> Plan:
    return CREATE_TOPICS.plan(SESSION, TopicsRequest())


def applied(plan: Plan) -> Done:
    return CREATE_TOPICS.apply(SESSION, plan, SimpleNamespace(), print)  # type: ignore[arg-type]


def test_a_plan_that_is_taken_up_does_only_what_is_left_of_it(group: Group) -> None:
    plan = Plan.from_dict(planned().to_dict())
    assert plan.about == "a, b, c"
    assert "Create or fix 3 internal topics of Kafka Connect group g?" in plan.question
    assert "Not checked: who writes." in plan.lines
    group.found["a"] = topic()
    group.found["b"] = topic(**{"cleanup.policy": "delete"})  # somebody else's: mending it was not approved
    report = applied(plan)
    assert group.done == ["c"]
    assert [one["subject"] for one in report.document["findings"]] == ["b"]
    assert [change["wanted"]["name"] for change in report.document["changes"]] == ["a", "b", "c"]
    assert any(line.startswith("Not fixed here: Topic b") for line in report.lines())


def test_a_plan_that_was_carried_out_is_not_due_again_unless_a_part_of_it_is(group: Group) -> None:
    plan = planned()
    assert CREATE_TOPICS.done_before(SESSION, plan) is None
    applied(plan)
    before = CREATE_TOPICS.done_before(SESSION, plan)
    assert before is not None
    assert before.problem is None
    del group.found["b"]
    assert CREATE_TOPICS.done_before(SESSION, plan) is None


def test_an_own_topic_that_is_not_known_is_the_end_of_the_change(group: Group) -> None:
    group.unknown = {"other": UnreachableError("no broker at t:9092 answers")}
    report = applied(planned())
    assert group.done == list(NAMES)
    assert report.problem is group.unknown["other"]
    with pytest.raises(UnreachableError, match="t:9092"):
        planned()  # "nothing to do" would not be known
    group.unknown = {}
    assert planned().nothing
    group.found.clear()
    plan = planned()
    group.unknown = {"a": UnreachableError("no broker at t:9092 answers")}
    with pytest.raises(UnreachableError, match="t:9092"):
        applied(plan)  # one of the plan's own


def test_settings_of_a_topic_in_another_kafka_cluster_need_the_hash(group: Group) -> None:
    group.addresses = "t:9092"
    assert not planned().needs_hash  # a new topic takes nothing away from anybody
    group.found = {name: topic() for name in NAMES}
    group.found["b"] = topic(**{"cleanup.policy": "delete"})
    assert "settings of b" in planned().needs_hash
    group.addresses = ""
    assert not planned().needs_hash


def test_each_topic_is_a_step_that_is_confirmed_before_the_brokers_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    client: Any = object.__new__(InternalTopicsClient)
    monkeypatch.setattr(InternalTopicsClient, "_carry_out", lambda self, change: asked.append(change.wanted.name))

    class Act:
        def step(self, name: str) -> Any:
            asked.append(f"announce {name}")
            return nullcontext()

        def confirm(self, name: str) -> None:
            asked.append(f"confirm {name}")

    client.carry_out([TopicChange(WantedTopic(n, Role.OWN), True, COMPACT, {}) for n in "ab"], Act())
    assert asked == ["announce a", "confirm a", "a", "announce b", "confirm b", "b"]
