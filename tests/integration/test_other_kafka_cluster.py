"""A source connector that writes to another Kafka cluster than its workers', on real workers and two real clusters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException, Producer

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.offsets.seen.group_offsets import read_group_offsets
from airflow_eos_provider.offsets.stores import OffsetStores
from tests.integration.named_listener import NamedListener
from tests.integration.offsets_cluster import END, LINES, SECONDS, Cluster, killed, open_transaction
from tests.system.modes import bring_to
from tests.waiting import until

CLIENTS = ("producer", "consumer", "admin")


class Both:
    """The workers with their Kafka cluster, and another one, to which their connectors write.

    :param named: a listener there that wants a login.
    """

    def __init__(self, here: Lab, there: Lab, named: NamedListener, eos: Any) -> None:
        self.here, self.there, self.named, self.eos = Cluster(here), there, named, eos
        self.kafka = KafkaSettings.of(there.bootstrap_servers)
        self.undescribed = here.cluster_file.read_text(encoding="utf-8")
        with Session(self.kafka) as session:
            self.there_id = session.cluster_id()

    def start(self, name: str, *, login: bool = False) -> None:
        """A connector whose clients are all there; the end of its file is committed.

        :param login: whether they use the listener that wants one.
        """
        self.there.create_topic(name, 1)
        self.here.start(name, **self.overrides(login=login))
        until(lambda: self.here.committed(name) == END, f"the end of {name} to be committed", seconds=SECONDS)
        assert self.read(name) == Counter(LINES)

    def overrides(self, *, login: bool) -> dict[str, str]:
        """By which all clients of a connector are there."""
        properties = {"bootstrap.servers": self.there.bootstrap_servers}
        if login:
            properties = {"bootstrap.servers": self.named.bootstrap_servers, **self.named.java_client}
        return {f"{client}.override.{key}": value for client in CLIENTS for key, value in properties.items()}

    def describe(self, **client: str) -> None:
        """Say in the cluster file how the brokers with a login are reached.

        :param client: properties, with underscores for dots, besides the right ones.
        """
        more = {name.replace("_", "."): value for name, value in client.items()}
        entry = {"bootstrap_servers": self.named.bootstrap_servers, "client": {**self.named.client, **more}}
        described = {**yaml.safe_load(self.undescribed), "other_kafka": [entry]}
        self.here.lab.cluster_file.write_text(yaml.safe_dump(described), encoding="utf-8")

    def read(self, name: str) -> Counter[str]:
        return Counter((record.value or b"").decode() for record in read_to_end(self.kafka, name).records)

    def add(self, name: str, line: str) -> None:
        """Append a line to a connector's file, and wait until it is there."""
        self.here.add(name, line)
        until(lambda: self.read(name)[line], f"{line} of {name}", seconds=SECONDS)

    def zombie(self, topic: str, number: int) -> Producer:
        """A producer there with an open transaction, and the id of a task."""
        id_ = f"{self.here.lab.group_id}-{topic}-{number}"
        return open_transaction(self.there.bootstrap_servers, id_, topic)

    def stores(self, name: str) -> set[tuple[str, bool]]:
        """The names of the stores that have offsets of a connector, and whether its tasks read them."""
        listed = json.loads(self.eos.run("offsets", "list", name, "--json").stdout)
        return {(one["topic"], one["read"]) for one in listed}

    def until_stored(self, name: str, position: int) -> None:
        """Its offset is committed: the connector would go on from there."""
        with ConnectSession(self.here.lab.cluster()) as session:
            stores = OffsetStores(session, f"{self.here.lab.group_id}-offsets")

            def offsets() -> list[Any]:
                seen = read_group_offsets(stores, self.here.rest.statuses(), only=[name]).of(name)
                return [one.offset.record.offset for one in seen if one.offset.is_read and one.written.is_committed]

            until(lambda: offsets() == [{"position": position}], f"{position} of {name}", seconds=SECONDS)


@pytest.fixture(scope="module")
def both(
    lab_factory: Callable[..., Lab], eos_of: Callable[[Lab, Path], Any], tmp_path_factory: pytest.TempPathFactory
) -> Both:
    options = {"rebalance_delay_ms": 200, "session_timeout_ms": 6000}
    here = lab_factory(LabOptions(name="here", workers=2, mode=Mode.PREPARING, **options))
    named = NamedListener("connect", "canary-81d7")
    with named.given():
        there = lab_factory(name="there", workers=0)
    return Both(here, there, named, eos_of(here, tmp_path_factory.mktemp("eos")))


def test_offsets_are_moved_there_before_the_roll_and_all_verbs_work_on_them(both: Both) -> None:
    """If a later version of Connect keeps its offsets without that, docs/connect/offsets.md changes."""
    here, eos = both.here, both.eos
    group = here.lab.group_id
    own, implicit = f"{both.there_id}/{group}-moved-offsets", f"{both.there_id}/{group}-offsets"
    bring_to(here.lab, Mode.PREPARING)
    here.lab.cluster_file.write_text(both.undescribed, encoding="utf-8")
    with here.rest:
        alias = here.lab.bootstrap_servers.replace("127.0.0.1", "localhost")
        here.start("alias", **{"producer.override.bootstrap.servers": alias})
        both.start("anew")
        both.start("moved", login=True)
        both.start("late")

        # Below enabled its offsets are here, and a roll would have it begin anew.
        refused = eos.run("plan", "--to", "enabled", expect=3).stderr
        assert "other clusters: anew: its offsets are in the workers' Kafka cluster" in refused
        assert "eos offsets migrate anew --to own" in refused
        assert both.stores("moved") == {(f"{group}-offsets", True)}
        eos.run("offsets", "backup", "moved", "--to", "before.jsonl")

        # Its brokers want a login, which is nobody's to take from what a connector says.
        nameless = eos.run("offsets", "migrate", "moved", "--to", "own", expect=6).stderr
        assert "If these brokers want a login" in nameless
        both.describe(sasl_password="canary-9e02")
        refused = eos.run("offsets", "migrate", "moved", "--to", "own", expect=3).stderr
        assert "their entry under other_kafka in the cluster description" in refused
        assert "canary" not in refused
        both.describe()
        planned = eos.run("offsets", "migrate", "moved", "--to", "own", expect=3).stdout
        assert f"create the topic {own}" in planned
        killed(here.lab, "write", "carried-out", "offsets", "migrate", "moved", "--to", "own", "--yes")
        eos.run("offsets", "migrate", "moved", "--to", "own", "--yes")
        settings = Topics(both.kafka).settings_of([f"{group}-moved-offsets"])
        assert settings[f"{group}-moved-offsets"]["cleanup.policy"] == "compact"
        both.add("moved", "four")
        both.until_stored("moved", 19)

        # It runs through the roll; the other one is what Connect does by itself.
        both.here.stop("anew")
        both.here.stop("late")
        bring_to(here.lab, Mode.ENABLED)
        eos.run("offsets", "migrate", "late", "--to", "own", "--yes")  # it is stopped, and stays so
        here.rest.resume("late")
        both.add("late", "four")
        assert both.read("late") == Counter([*LINES, "four"])
        here.rest.resume("anew")
        both.add("anew", "four")
        assert both.read("anew") == Counter({**dict.fromkeys(LINES, 2), "four": 1})
        both.add("moved", "five")
        assert both.read("moved") == Counter([*LINES, "four", "five"])
        both.until_stored("moved", 24)
        assert both.stores("moved") == {(own, True)}

        # Its ids are there: one that holds a transaction open is fenced, and its task goes on after the last commit.
        zombie = both.zombie("late", 0)
        assert (
            f"late: in the Kafka cluster {both.there_id}, no round is pending, but id 0"
            in eos.run("fencing", "list", "late").stdout
        )
        eos.run("fencing", "apply", "late", "--yes")
        with pytest.raises(KafkaException):
            zombie.commit_transaction(180)
        both.add("late", "five")
        assert both.read("late") == Counter([*LINES, "four", "five"])

        # A reset shuts out a zombie there, and is undone by a restore; by none of before it was moved.
        both.here.stop("moved")
        early = eos.run("offsets", "restore", "moved", "before.jsonl", "--yes", expect=2).stderr
        assert f"without {own}, where moved has its offsets now" in early
        eos.run("offsets", "backup", "moved", "--to", "moved.jsonl")
        zombie = both.zombie("moved", 1)
        killed(here.lab, "write", "announced", "offsets", "reset", "moved", "--yes")
        assert f"fenced in the Kafka cluster {both.there_id}" in eos.run("offsets", "reset", "moved", "--yes").stderr
        with pytest.raises(KafkaException):
            zombie.commit_transaction(180)
        assert both.stores("moved") == set()
        eos.run("offsets", "restore", "moved", "moved.jsonl", "--yes")
        here.rest.resume("moved")
        both.add("moved", "six")
        both.until_stored("moved", 28)

        # Without a topic of its own it has the one of the global topic's name there.
        eos.run("offsets", "migrate", "moved", "--to", "global", "--yes")
        both.add("moved", "seven")
        both.until_stored("moved", 34)
        assert (implicit, True) in both.stores("moved")
        assert both.read("moved") == Counter([*LINES, "four", "five", "six", "seven"])

        both.until_stored("anew", 19)
        eos.run("offsets", "reset", "anew", "--yes")
        until(lambda: both.read("anew")["four"] == 2, "anew to begin anew", seconds=SECONDS)
        assert both.read("anew") == Counter({**dict.fromkeys(LINES, 3), "four": 2})


def test_where_its_clients_are_not_known_or_in_several_clusters_nothing_is_changed(both: Both) -> None:
    here, eos = both.here, both.eos
    bring_to(here.lab, Mode.ENABLED)
    with here.rest:
        for name, addresses in (("split", both.there.bootstrap_servers), ("nowhere", "127.0.0.1:1")):
            config = {**here.config(name), "offsets.storage.topic": "own"}
            here.rest.create(name, {**config, "producer.override.bootstrap.servers": addresses}, "STOPPED")
            until(lambda one=name: one in here.rest.statuses(), "the connector", seconds=SECONDS)  # type: ignore[misc]
        assert "are in different Kafka clusters" in eos.run("offsets", "reset", "split", expect=3).stderr
        assert "127.0.0.1:1, in which its offsets are" in eos.run("offsets", "reset", "nowhere", expect=6).stderr
        not_among = "nowhere: the offsets that its tasks read are not among these"
        assert not_among in eos.run("offsets", "list", "nowhere").stderr
        assert not_among in eos.run("offsets", "backup", "--to", "all.jsonl", expect=6).stderr
        eos.run("offsets", "backup", "nowhere", "--to", "nowhere.jsonl", expect=6)
        checked = eos.run("topics", "check", expect=3)  # that of split is refused
        assert "Not checked: the offsets topic of nowhere" in checked.stdout
        assert "127.0.0.1:1" in eos.run("topics", "create", "--yes", expect=6).stderr
        assert "its ids may be in another Kafka cluster" in eos.run("fencing", "list", "nowhere").stdout
        for name in ("split", "nowhere"):
            here.rest.delete(name)


def test_an_own_topic_there_is_checked_created_and_mended_there(both: Both) -> None:
    here, eos, topics = both.here, both.eos, Topics(both.kafka)
    topic = "planned-offsets"
    name = f"{both.there_id}/{topic}"
    bring_to(here.lab, Mode.ENABLED)
    both.describe()
    with here.rest:
        overrides = {**both.overrides(login=True), "offsets.storage.topic": topic}
        here.rest.create("planned", {**here.config("planned"), **overrides}, "STOPPED")
        until(lambda: topics.find([topic]), "the topic that the worker makes", seconds=SECONDS)
        by_worker = topics.describe([topic])[topic]
        topics.change(topic, {"cleanup.policy": "delete"})
        topics.await_settings(topic, {"cleanup.policy": "delete"})

        document = json.loads(eos.run("topics", "check", "--json", expect=1).stdout)
        (finding,) = (one for one in document["findings"] if one["subject"] == name)
        assert finding["mends"] == {"cleanup.policy": "compact"}
        planned = f"{name} (own offsets topic of planned, at {both.named.bootstrap_servers})"
        assert f"It changes settings of {planned}" in eos.run("topics", "create", "--yes", expect=3).stderr
        assert topics.settings_of([topic])[topic]["cleanup.policy"] == "delete"
        plan = json.loads(eos.run("topics", "create", "--json", expect=3).stdout)["plan"]
        eos.run("topics", "create", "--plan", plan["hash"])
        assert topics.settings_of([topic])[topic]["cleanup.policy"] == "compact"

        topics.delete(topic)
        assert f"+++ {planned}" in eos.run("topics", "create", "--yes").stdout
        assert replace(topics.describe([topic])[topic], id=by_worker.id) == by_worker
        here.rest.delete("planned")
