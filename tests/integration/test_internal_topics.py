"""``eos topics`` on a real cluster: what is wrong with the internal topics is found, planned, mended and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.properties import parse, set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.journal.group_change import group_change
from airflow_eos_provider.journal.journal import Journal, read_journal
from airflow_eos_provider.journal.records import RolloutState
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.offsets.offsets_topic import read_offsets_topic
from tests.integration.offsets_cluster import FILE_SOURCE, killed
from tests.system.modes import close_what_is_open
from tests.waiting import status_of, wait_for

#: A further setting of the offsets topics, as the worker's file has it.
SEGMENT = {"segment.bytes": "2097152"}


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    settings = {f"offset.storage.{name}": value for name, value in SEGMENT.items()}
    return lab_factory(name="topics", mode=Mode.ENABLED, workers=1, worker_properties=settings)


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


@pytest.fixture
def topics(lab: Lab) -> Topics:
    return Topics(lab.cluster().kafka)


def connector(lab: Lab, name: str, own_topic: str, state: str = "STOPPED") -> None:
    """A connector; one that is stopped writes nothing."""
    target, file = f"{name}-target", str(lab.data_dir / name)
    config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": target, "file": file}
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.create(name, {**config, "offsets.storage.topic": own_topic}, state)
        # Its worker has started it then, and with it its store of offsets.
        wait_for(f"the start of {name}", lambda: name in rest.statuses())


def about(document: dict[str, Any], topic: str) -> list[str]:
    return [finding["found"] for finding in document["findings"] if finding["subject"] == topic]


def checked(eos: Any) -> dict[str, Any]:
    """What a check says while one does not hold."""
    return dict(json.loads(eos.run("topics", "check", "--json", expect=1).stdout))


def findings_of(eos: Any) -> dict[str, Any]:
    """What a check says, whether all is well or not: a foreign record in the config topic stays there for good."""
    return dict(json.loads(eos.run("topics", "check", "--json", expect=(0, 1)).stdout))


def test_a_wrong_cleanup_policy_is_found_and_mended_and_a_plan_that_was_not_shown_is_refused(
    lab: Lab, eos: Any, topics: Topics
) -> None:
    topic = f"{lab.group_id}-offsets"
    assert about(findings_of(eos), topic) == []  # what the worker itself has created holds
    before = topics.describe([topic])[topic]
    topics.change(topic, {"cleanup.policy": "compact,delete"})
    topics.await_settings(topic, {"cleanup.policy": "compact,delete"})

    assert about(checked(eos), topic) == [f"Topic {topic} (offsets topic) has cleanup.policy=compact,delete."]
    plan = json.loads(eos.run("topics", "create", "--json", expect=3).stdout)["plan"]
    assert plan["lines"][:3] == [
        f"--- {topic} (offsets topic)",
        "-cleanup.policy=compact,delete",
        "+cleanup.policy=compact",
    ]
    topics.change(topic, {"segment.bytes": "4194304"})
    topics.await_settings(topic, {"segment.bytes": "4194304"})
    refused = eos.run("topics", "create", "--plan", plan["hash"], expect=3).stderr
    assert "does not fit any more" in refused
    assert topics.settings_of([topic])[topic]["cleanup.policy"] == "compact,delete"

    shown = eos.run("topics", "create", expect=3)
    assert plan["hash"][:12] not in shown.stdout
    (plan_hash,) = re.findall(r"[Aa]pply this plan:  eos topics create.* --plan (\w+)", shown.stderr)
    assert "Done." in eos.run("topics", "create", "--plan", plan_hash).stdout
    settings = topics.settings_of([topic])[topic]
    assert {name: settings[name] for name in ("cleanup.policy", "segment.bytes")} == {
        "cleanup.policy": "compact",
        **SEGMENT,
    }
    assert topics.describe([topic])[topic] == before
    assert "Nothing to do." in eos.run("topics", "create", "--yes").stdout


def test_topics_are_changed_under_the_lease_of_the_group_and_a_killed_change_is_taken_up(
    lab: Lab, eos: Any, topics: Topics
) -> None:
    topic, kafka = f"{lab.group_id}-offsets", lab.cluster().kafka
    topics.change(topic, {"cleanup.policy": "compact,delete"})
    topics.await_settings(topic, {"cleanup.policy": "compact,delete"})

    def journal() -> Journal:
        return Journal(kafka, lab.group_id, actor="test")

    def leave(kind: str) -> None:
        with pytest.raises(KeyError), group_change(journal(), kind, "somebody's", {"hash": "another"}):
            raise KeyError

    leave("offsets reset")
    assert "is not finished" in eos.run("topics", "create", "--yes", expect=3).stderr
    assert topics.settings_of([topic])[topic]["cleanup.policy"] == "compact,delete"
    close_what_is_open(lab)

    killed(lab, topic, "announced", "topics", "create", "--yes")
    eos.run("topics", "create", "--yes", "--reason", "too late at night")
    assert topics.settings_of([topic])[topic]["cleanup.policy"] == "compact"
    other, done = list(read_journal(kafka, lab.group_id).changes.values())[-2:]
    assert (other.kind, other.state, other.about) == ("offsets reset", RolloutState.ABORTED, "somebody's")
    assert (done.kind, done.state, done.about) == ("topics create", RolloutState.DONE, topic)
    assert "too late at night" in eos.run("changes", "list", "--json").stdout


def test_a_missing_own_topic_is_created_as_the_worker_had_it_and_the_connector_uses_it(
    lab: Lab, eos: Any, topics: Topics
) -> None:
    topic = "own-offsets"
    connector(lab, "own", topic)
    workers, settings = topics.describe([topic])[topic], topics.settings_of([topic])[topic]
    admin = AdminClient(lab.cluster().kafka.confluent())
    admin.delete_topics([topic])[topic].result()
    wait_for(f"the end of {topic}", lambda: not topics.describe([topic]))
    assert about(checked(eos), topic) == [f"There is no topic {topic} (own offsets topic of own)."]

    create = ("topics", "create", "--yes", "--own-topic", "to-come")
    killed(lab, topic, "announced", *create)
    assert not topics.describe([topic, "to-come"])
    killed(lab, topic, "carried-out", *create)
    assert list(topics.describe([topic, "to-come"])) == [topic]
    done = json.loads(eos.run(*create, "--json").stdout)

    assert done["plan"]["is_unfinished"]
    assert [change["wanted"]["name"] for change in done["report"]["changes"]] == [topic, "to-come"]
    ours = topics.describe([topic, "to-come"])
    assert [replace(each, id=workers.id) for each in ours.values()] == [workers, workers]
    assert topics.settings_of([topic, "to-come"]) == {topic: settings, "to-come": settings}
    assert about(findings_of(eos), topic) == about(findings_of(eos), "to-come") == []
    (lab.data_dir / "to-come").write_text("one\n", encoding="utf-8")
    lab.create_topic("to-come-target", 1)
    connector(lab, "to-come", "to-come")
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.resume("to-come")
    kafka = lab.cluster().kafka
    wait_for("its committed offset", lambda: "to-come" in read_offsets_topic(kafka, "to-come").committed)
    assert topics.describe(["to-come"])["to-come"] == ours["to-come"]


def test_an_own_topic_that_is_not_compacted_fails_its_connector_until_it_is_mended(
    lab: Lab, eos: Any, topics: Topics
) -> None:
    lab.create_topic("not-compacted", 1)
    connector(lab, "kept-out", "not-compacted", "RUNNING")
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        wait_for("its failure", lambda: status_of(rest, "kept-out").state == "FAILED")
        assert "cleanup.policy" in (status_of(rest, "kept-out").trace or "")
        eos.run("topics", "create", "--yes")
        rest.restart("kept-out", include_tasks=True)
        wait_for("its start", lambda: status_of(rest, "kept-out").state == "RUNNING")
        rest.delete("kept-out")
    settings = topics.settings_of(["not-compacted"])["not-compacted"]
    assert {"cleanup.policy": "compact", **SEGMENT}.items() <= settings.items()


def test_topics_that_several_share_are_named_and_left_alone(lab: Lab, eos: Any, topics: Topics) -> None:
    assert json.loads(eos.run("topics", "check", "--json").stdout)["ok"]
    assert f"{lab.group_id}-offsets" in eos.run("topics", "check").stdout
    configs = f"{lab.group_id}-configs"
    for name, own_topic in (("a", "shared"), ("b", "shared"), ("c", f"{lab.group_id}-offsets"), ("d", configs)):
        connector(lab, name, own_topic)
    other = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": "connect-cluster-other"})
    other.init_transactions(180)
    other.begin_transaction()
    other.produce(configs, key="of-no-kind-that-connect-knows", value="{}")
    other.commit_transaction(180)

    found = checked(eos)

    assert "Topic shared is offsets.storage.topic of a, b." in about(found, "shared")
    assert about(found, f"{lab.group_id}-offsets") == [
        f"The group's offsets topic {lab.group_id}-offsets is also offsets.storage.topic of c."
    ]
    assert f"The group's config topic {configs} is also offsets.storage.topic of d." in about(found, configs)
    assert any("connect-cluster-other" in words for words in about(found, configs))
    plan = json.loads(eos.run("topics", "create", "--json", expect=(0, 3)).stdout)["plan"]
    named = {"shared", configs, f"{lab.group_id}-offsets"}
    assert named.isdisjoint(change["wanted"]["name"] for change in plan["content"]["changes"])
    left = [line for line in plan["lines"] if line.startswith("Not fixed here: ")]
    assert all(any(f" {topic} " in line for line in left) for topic in named)
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        for name in "abcd":
            rest.delete(name)


def test_before_its_first_worker_starts_a_group_gets_all_its_topics(lab: Lab, eos: Any, topics: Topics) -> None:
    data = set_property(lab.workers[0].config.read_bytes(), "group.id", "later")
    names = {name: f"later-{name}" for name in ("config", "offset", "status")}
    for prefix, name in names.items():
        data = set_property(data, f"{prefix}.storage.topic", name)
    (eos.folder / "later.properties").write_bytes(data)
    description = {
        "bootstrap_servers": lab.bootstrap_servers,
        "group_id": "later",
        "workers": [{"url": "http://127.0.0.1:1", "config": "later.properties"}],
    }
    (eos.folder / "later.yaml").write_text(yaml.safe_dump(description), encoding="utf-8")

    eos.run("topics", "create", "--cluster", "later.yaml", "--yes")

    found = topics.describe(list(names.values()))
    assert {name: topic.partitions for name, topic in found.items()} == {
        "later-config": 1,
        "later-offset": int(parse(data)["offset.storage.partitions"]),
        "later-status": int(parse(data)["status.storage.partitions"]),
    }
    assert all(each["cleanup.policy"] == "compact" for each in topics.settings_of(list(found)).values())
    checked = eos.run("topics", "check", "--cluster", "later.yaml", "--json", expect=5)  # own topics are not known
    assert json.loads(checked.stdout)["findings"] == []
    assert "no worker answers" in checked.stdout
    assert lab.group_id in checked.stdout  # the other Connect group on these brokers
