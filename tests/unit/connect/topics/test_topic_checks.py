"""Which checks of internal topics hold, and what is planned where one does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.topics.internal_topics import BROKERS_DEFAULT, Role, WantedTopic
from airflow_eos_provider.connect.topics.topic_checks import (
    FoundTopic,
    TopicFinding,
    TopicPlan,
    TopicsLook,
    findings,
    plan_of,
)
from airflow_eos_provider.stored import from_json, to_json

SAFE = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
CONFIGS = WantedTopic("configs", Role.CONFIGS, (), 1, 3)
OFFSETS = WantedTopic("offsets", Role.OFFSETS, (), 25, 3)
STATUS = WantedTopic("status", Role.STATUS, (), 5, 3)
OWN = WantedTopic("own", Role.OWN, ("a",), 25, 3)


def found(partitions: int, replicas: int = 3, **settings: str) -> FoundTopic:
    """A topic; ``min_insync_replicas`` stands for ``min.insync.replicas``."""
    return FoundTopic("id", partitions, replicas, {**SAFE, **{n.replace("_", "."): v for n, v in settings.items()}})


FOUND = {"configs": found(1), "offsets": found(25), "status": found(5), "own": found(3)}


def look(changed: Mapping[str, FoundTopic | None] | None = None, **more: Any) -> TopicsLook:
    """Four topics that hold every check, but for what is changed."""
    there = {name: topic for name, topic in {**FOUND, **(changed or {})}.items() if topic}
    given = {"wanted": (CONFIGS, OFFSETS, STATUS, OWN), "own": {"a": "own"}, **more}
    return TopicsLook("g", "cluster", given.pop("brokers", 3), given.pop("wanted"), there, **given)


def only(seen: TopicsLook) -> TopicFinding:
    (one,) = findings(seen)
    return one


def test_topics_as_the_workers_create_them_hold_every_check_and_there_is_nothing_to_do() -> None:
    assert findings(look()) == ()
    assert plan_of(look()).changes == ()
    assert look().to_dict()["ok"]


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact", ""])
def test_a_topic_is_compacted_alone(policy: str) -> None:
    one = only(look({"status": found(5, cleanup_policy=policy)}))
    assert f"cleanup.policy={policy}." in one.found
    assert one.mends == {"cleanup.policy": "compact"}


def test_compact_is_read_as_connect_reads_it() -> None:
    assert findings(look({"status": found(5, cleanup_policy=" Compact ")})) == ()


def test_a_config_topic_of_several_partitions_is_not_mended_here() -> None:
    one = only(look({"configs": found(2)}))
    assert ("2 partitions" in one.found, dict(one.mends), one.creates) == (True, {}, False)
    assert plan_of(look({"configs": found(2)})).changes == ()


def test_partitions_of_the_offsets_and_status_topic_are_the_workers_and_an_own_topics_are_its_owners() -> None:
    assert "offset.storage.partitions=7 " in only(look({"offsets": found(7)})).remedy
    assert "status.storage.partitions=6 " in only(look({"status": found(6)})).remedy
    assert findings(look({"own": found(1)})) == ()
    for unknown in (None, BROKERS_DEFAULT):
        assert findings(look({"offsets": found(7)}, wanted=(replace(OFFSETS, partitions=unknown),))) == ()


@pytest.mark.parametrize(
    ("wanted", "brokers", "replicas", "expected"),
    [
        (3, 3, 3, None),
        (3, 3, 4, None),
        (3, 5, 2, "3, as offset.storage.replication.factor of the workers"),
        (1, 1, 1, None),
        (1, 3, 1, "2 or more: one is lost with its broker"),
        (None, 3, 1, "2 or more: one is lost with its broker"),
        (BROKERS_DEFAULT, 3, 2, None),
    ],
)
def test_replicas_are_those_of_the_workers_and_not_one_where_there_are_several_brokers(
    wanted: int | None, brokers: int, replicas: int, expected: str | None
) -> None:
    topic = found(25, replicas, min_insync_replicas=str(min(2, replicas)))
    seen = findings(look({"offsets": topic}, wanted=(replace(OFFSETS, replicas=wanted),), brokers=brokers))
    assert [one.expected for one in seen] == ([expected] if expected else [])
    assert all(not one.mends for one in seen)


@pytest.mark.parametrize(
    ("given", "in_sync", "replicas", "problem", "mends"),
    [
        (None, "1", 3, "may be on its leader alone", "2"),
        (None, "3", 3, None, None),
        (None, "4", 3, "nothing can be written", "2"),
        ("1", "1", 3, None, None),  # the owner has said so
        ("3", "2", 3, "another setting", "3"),
        ("4", "4", 3, "nothing can be written", None),
        ("4", "2", 3, "another setting", None),
    ],
)
def test_so_many_replicas_are_in_sync_that_a_record_outlives_its_leader(
    given: str | None, in_sync: str, replicas: int, problem: str | None, mends: str | None
) -> None:
    settings = {**OFFSETS.settings, **({"min.insync.replicas": given} if given else {})}
    topic = found(25, replicas, min_insync_replicas=in_sync)
    seen = findings(look({"offsets": topic}, wanted=(replace(OFFSETS, settings=settings),)))
    assert [problem in one.found for one in seen if problem] == ([True] if problem else [])
    assert [one.mends.get("min.insync.replicas") for one in seen] == ([mends] if problem else [])


def test_further_settings_of_the_workers_are_settings_of_the_topic() -> None:
    wanted = (replace(OWN, settings={**OWN.settings, "segment.ms": "3600000", "no.such": "1"}),)
    missing, unknown = findings(look({"own": found(3, segment_ms="604800000")}, wanted=wanted))
    assert (missing.found, missing.mends) == (
        "Topic own (own offsets topic of a) has segment.ms=604800000.",
        {"segment.ms": "3600000"},
    )
    assert (unknown.found, unknown.mends) == ("The brokers know no setting no.such of topics.", {})


def test_a_missing_own_topic_is_created_as_the_worker_would() -> None:
    wanted = replace(OWN, settings={**OWN.settings, "segment.ms": "3600000"})
    (change,) = plan_of(look({"own": None}, wanted=(wanted,))).changes
    assert change.diff() == [
        "+++ own (own offsets topic of a)",
        "+partitions=25",
        "+replication.factor=3",
        "+cleanup.policy=compact",
        "+min.insync.replicas=2",
        "+segment.ms=3600000",
    ]
    left_to_brokers = replace(OWN, partitions=BROKERS_DEFAULT, replicas=BROKERS_DEFAULT)
    (change,) = plan_of(look({"own": None}, wanted=(left_to_brokers,))).changes
    assert change.diff()[1:] == [
        "+partitions=the brokers' default",
        "+replication.factor=the brokers' default",
        "+cleanup.policy=compact",
    ]


def test_a_missing_topic_of_the_group_is_created_only_before_a_worker_runs() -> None:
    one = only(look({"configs": None}))
    assert ("compare the name" in one.remedy, one.creates) == (True, False)
    assert only(look({"configs": None}, workers_run=False)).creates


@pytest.mark.parametrize(
    ("wanted", "brokers", "words"),
    [
        (OWN, 2, "There are 2 brokers now, and offset.storage.replication.factor is 3"),
        (replace(OWN, partitions=None, unknown=("offset.storage.partitions",)), 3, "Give --partitions"),
        (replace(OWN, settings={**SAFE, "min.insync.replicas": "4"}), 3, "4 with 3 replicas"),
    ],
)
def test_what_cannot_be_created_says_what_helps(wanted: WantedTopic, brokers: int, words: str) -> None:
    seen = look({"own": None}, wanted=(wanted,), brokers=brokers)
    one = only(seen)
    assert (words in one.remedy, one.creates, plan_of(seen).changes) == (True, False, ())


def test_an_own_topic_belongs_to_one_connector_and_is_none_of_the_groups() -> None:
    shared = look(wanted=(CONFIGS, replace(OWN, connectors=("a", "b"))), own={"a": "own", "b": "own"})
    assert only(shared).found == "Topic own is offsets.storage.topic of a, b."
    is_global = only(look(wanted=(OFFSETS,), own={"a": "offsets"}))
    assert ("offsets topic offsets is also" in is_global.found, "used anyway" in is_global.remedy) == (True, True)
    is_configs = only(look(wanted=(CONFIGS,), own={"a": "configs"}))
    assert ("config topic configs is also" in is_configs.found, "do not belong" in is_configs.remedy) == (True, True)


def test_in_another_kafka_cluster_the_topic_of_the_global_ones_name_is_shared_and_an_own_one_is_not() -> None:
    def shared(topic: str) -> tuple[TopicFinding, ...]:
        own = replace(OWN, name=f"id/{topic}", connectors=("a", "b"))
        seen = look({own.name: found(3)}, wanted=(OFFSETS, own), own=dict.fromkeys("ab", own.name))
        return findings(seen)

    assert shared("offsets") == ()
    (one,) = shared("own")
    assert one.found == "Topic id/own is offsets.storage.topic of a, b."


def test_the_brokers_that_count_are_those_of_the_topics_kafka_cluster() -> None:
    own = replace(OWN, name="id/own")
    missing = look({"own": None}, wanted=(own,), own={"a": "id/own"}, brokers_elsewhere={"id/own": 2})
    assert "There are 2 brokers now" in only(missing).remedy
    assert only(replace(missing, brokers=1, brokers_elsewhere={"id/own": 3})).creates


def test_each_topic_of_the_group_has_a_use_of_its_own_and_is_changed_once() -> None:
    twice = (CONFIGS, replace(STATUS, name="configs", partitions=1))
    one = only(look(wanted=twice))
    assert one.found == "Topic configs is the group's config topic and its status topic."
    (change,) = plan_of(look({"configs": found(1, cleanup_policy="delete")}, wanted=twice)).changes
    assert change.wanted is CONFIGS


def test_other_writers_are_named() -> None:
    ids = tuple(f"connect-cluster-{letter}" for letter in "abcd")
    one = only(look(foreign_ids={"configs": ids}))
    assert "connect-cluster-a, connect-cluster-b, connect-cluster-c and 1 more" in one.found


def test_findings_of_one_topic_are_mended_together_and_each_change_is_shown() -> None:
    seen = look({"own": found(3, cleanup_policy="delete", min_insync_replicas="1")})
    (change,) = plan_of(seen).changes
    assert change.diff() == [
        "--- own (own offsets topic of a)",
        "-cleanup.policy=delete",
        "+cleanup.policy=compact",
        "-min.insync.replicas=1",
        "+min.insync.replicas=2",
    ]
    assert seen.to_dict()["findings"][0]["mendable"]


def test_it_is_another_plan_when_what_it_was_made_from_has_moved() -> None:
    wrong = found(3, cleanup_policy="delete")
    plan = plan_of(look({"own": wrong}))
    again = plan_of(look({"own": wrong}, brokers=5, foreign_ids={"own": ("x",)}, not_checked=("y",)))
    assert again == plan  # what no change rests on
    for moved in (
        look({"own": replace(wrong, id="another")}),
        look({"own": replace(wrong, partitions=4)}),
        look({"own": replace(wrong, settings={**wrong.settings, "min.insync.replicas": "3"})}),
        look({"own": wrong, "status": found(5, cleanup_policy="delete")}),
        look({"own": wrong}, own={"a": "own", "b": "offsets"}),
        replace(look({"own": wrong}), kafka_cluster_id="other"),
    ):
        assert plan_of(moved) != plan


def test_a_plan_is_read_back() -> None:
    there = plan_of(look({"own": None, "status": found(5, cleanup_policy="delete")}))
    read = from_json(TopicPlan, json.loads(json.dumps(to_json(there))))
    assert to_json(read) == to_json(there)
    assert read.diff() == there.diff()
