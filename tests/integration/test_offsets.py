"""``eos offsets`` on a real cluster with exactly-once on: a connector's own offsets topic beside the global one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.offsets.seen.backup import read
from tests.faults.line_slices import plan_files, write_slices
from tests.integration.offsets_cluster import END, Cluster, mirror
from tests.waiting import wait_for

ALL = {"position": 19}  # of a file of four lines


@pytest.fixture(scope="module")
def cluster(enabled_lab: Lab) -> Iterator[Cluster]:
    """One worker, and connectors ``own`` and ``shared``, each of which has read a file of three lines."""
    cluster = Cluster(enabled_lab)
    with cluster.rest:
        cluster.start("own", **{"offsets.storage.topic": "own-offsets"})
        cluster.source("shared")
        cluster.until_read("own", 1)
        yield cluster


@pytest.fixture
def eos(cluster: Cluster, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(cluster.lab, tmp_path)


def listed(eos: Any, *arguments: str) -> dict[str, dict[str, Any]]:
    return {one["key"]: one for one in json.loads(eos.run("offsets", "list", *arguments, "--json").stdout)}


def test_offsets_altered_in_the_global_topic_do_not_move_a_connector_with_a_topic_of_its_own(
    cluster: Cluster, eos: Any
) -> None:
    """What an operator does manually: writes where the tutorials say, and nothing happens."""
    cluster.put(cluster.key("own"), b'{"position":489}')

    (one,) = listed(eos, "own").values()
    assert (one["offset"], one["topic"]) == (END, "own-offsets")
    assert (one["own"], one["committed"]) == (True, True)
    assert [under["offset"] for under in one["under"]] == [{"position": 489}]
    assert one["producer_id"] is not None
    one = listed(eos, "shared")[cluster.key("shared").decode()]
    assert (one["offset"], one["own"], one["topic"]) == (END, False, cluster.global_topic)
    assert "position" in eos.run("offsets", "list", "own", "-o", "wide").stdout


#: KIP-618's example of a connector with an offsets topic of its own: what each topic has of three subreddits.
KIP_GLOBAL = {"apachekafka": 2, "CatsStandingUp": 4}
KIP_OWN = {"CatsStandingUp": 6, "grilledcheese": 8}
SUBREDDITS = ("apachekafka", "CatsStandingUp", "grilledcheese")
POSTS = 12


def test_kip_618s_example_is_shown_as_a_real_worker_reads_it(cluster: Cluster, eos: Any) -> None:
    """Each subreddit is a topic that a mirror copies: what it copies shows which offset its task has read.

    KIP-618 lets a key that the own topic lacks be read from the global one. Connect 4.3.1 does not:
    docs/connect/offsets.md.
    """
    name, own, lab, rest = "reddit", "reddit-offsets", cluster.lab, cluster.rest
    posts = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for subreddit in SUBREDDITS:
        lab.create_topic(subreddit, 1)
        for number in range(POSTS):
            posts.produce(subreddit, str(number))
    assert posts.flush(180) == 0
    keys = {s: offset_key(name, {"cluster": "src", "partition": 0, "topic": s}) for s in SUBREDDITS}
    rest.create(name, {**mirror(lab, ",".join(SUBREDDITS)), "offsets.storage.topic": own}, "STOPPED")
    wait_for("its own topic", lambda: Topics(lab.cluster().kafka).find([own]))
    for topic, offsets in ((cluster.global_topic, KIP_GLOBAL), (own, KIP_OWN)):
        for subreddit, offset in offsets.items():
            cluster.put(keys[subreddit], json.dumps({"offset": offset}).encode(), topic)

    def by_worker() -> dict[str, int | None]:
        """By subreddit the offset that the worker reads."""
        return {o.partition["topic"]: o.offset and o.offset["offset"] for o in rest.offsets(name)}

    for url in lab.connect_urls:  # the command asks any of them
        with ConnectRest(url, retry_seconds=180) as each:
            wait_for("its configuration", lambda each=each: name in each.infos())  # type: ignore[misc]
    assert by_worker() == {"apachekafka": None, **KIP_OWN}
    found = listed(eos, name)
    shown = {s: found[keys[s].decode()] for s in SUBREDDITS}
    assert {s: one["offset"]["offset"] for s, one in shown.items() if one["read"]} == KIP_OWN
    assert (shown["apachekafka"]["offset"], shown["apachekafka"]["topic"]) == ({"offset": 2}, cluster.global_topic)
    assert shown["apachekafka"]["hidden"] == ["in the global topic only, which tasks with an own topic do not read"]
    assert [under["offset"] for under in shown["CatsStandingUp"]["under"]] == [{"offset": 4}]
    differing = json.loads(eos.run("offsets", "diff", "--own", name, "--json", expect=1).stdout)
    assert len(differing) == len(SUBREDDITS)

    rest.resume(name)
    end = dict.fromkeys(SUBREDDITS, POSTS - 1)
    wait_for("all of it", lambda: by_worker() == end)
    for subreddit in SUBREDDITS:
        copied = [record.value for record in read_to_end(lab.cluster().kafka, f"src.{subreddit}").records]
        assert copied == [str(number).encode() for number in range(KIP_OWN.get(subreddit, -1) + 1, POSTS)]
    rest.stop(name)

    def both() -> dict[str, tuple[Any, Any]]:
        """By subreddit the offset of the own topic and that of the global one."""
        found = listed(eos, name)
        of_keys = {s: found[key.decode()] for s, key in keys.items() if key.decode() in found}
        assert {one["topic"] for one in of_keys.values()} <= {own}
        return {
            s: (one["offset"]["offset"], [under["offset"]["offset"] for under in one["under"]])
            for s, one in of_keys.items()
        }

    wait_for("copies in the global topic", lambda: both() == dict.fromkeys(SUBREDDITS, (11, [11])))
    altered = ("--where", '{"topic": "grilledcheese"}', "--offset", '{"offset": 9}')
    eos.run("offsets", "alter", name, *altered, "--yes")
    assert both() == {"apachekafka": (11, [11]), "CatsStandingUp": (11, [11]), "grilledcheese": (9, [9])}
    eos.run("offsets", "reset", name, "--yes")
    assert listed(eos, name) == {}
    assert "No offset differs" in eos.run("offsets", "diff", "--own", name).stdout
    rest.delete(name)


def test_a_real_worker_lists_the_slices_of_an_interval_run_whose_ledger_a_connector_has(
    cluster: Cluster, eos: Any
) -> None:
    """The connector has the pipeline's name: that is whose offsets a ledger's keys say they are."""
    lab, rest = cluster.lab, cluster.rest
    lab.create_topic("daily", 1)
    run = Run("daily", Interval(datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)))
    pipeline = Pipeline("daily", "runs", KafkaSettings.of(lab.bootstrap_servers), "daily")
    file = cluster.file("daily")
    file.write_text("".join(f"row {number}\n" for number in range(30)), encoding="utf-8")
    with Coordinator(pipeline, run) as coordinator:
        stage = coordinator.begin(lambda: plan_files(run, [file], 100), 1)
        assert isinstance(stage, Stage)
        write_slices(pipeline, stage, 0)
        rest.create("daily", {**cluster.config("daily"), "offsets.storage.topic": pipeline.ledger_topic}, "STOPPED")

        def seen() -> dict[str, Any]:
            """By what it is of, each offset of the ledger that the worker lists."""
            return {json.dumps(o.partition, sort_keys=True): o.offset for o in rest.offsets("daily") if o.offset}

        slices = {
            json.dumps({"interval": run.interval.name, "slice": n}, sort_keys=True) for n in range(len(stage.slices))
        }
        wait_for("the slices", lambda: slices <= seen().keys())
        written = {key: offset for key, offset in seen().items() if key in slices}
        assert len(written) >= 2
        assert {offset["done"] for offset in written.values()} == {True}
        assert sum(offset["position"] for offset in written.values()) == 30
        found = {json.dumps(one["partition"], sort_keys=True): one["offset"] for one in listed(eos, "daily").values()}
        assert {key: found[key] for key in slices} == written

        coordinator.finish(stage)
        complete = json.dumps(run.key)
        wait_for("its completion", lambda: complete in seen())
        assert (seen()[complete]["complete"], seen()[complete]["records"]) == (True, 30)
        assert not slices & seen().keys()
        rest.delete("daily")


def test_what_rest_hides_is_there_and_says_why_and_leftovers_are_shown_on_request(cluster: Cluster, eos: Any) -> None:
    hidden = b'["shared",{"z":"1","a":"2"}]'
    cluster.put(hidden, b'{"n":1}')
    cluster.put(b'["shared",null]', b'{"n":2}')
    cluster.put(b'["gone",{"a":"1"}]', b'{"n":3}')
    cluster.put(b"\xff", b"x")
    # REST: shown without its offset, as if there were none
    assert [o.offset for o in cluster.rest.offsets("shared") if "z" in o.partition] == [None]

    found = listed(eos, "shared")
    assert found[hidden.decode()]["offset"] == {"n": 1}
    assert found[hidden.decode()]["hidden"] == ["key spelt otherwise than Connect writes it"]
    assert found['["shared",null]']["hidden"] == ["null source partition"]
    assert '["gone",{"a":"1"}]' not in listed(eos)
    assert {'["gone",{"a":"1"}]', "\\xff"} <= set(listed(eos, "--all"))
    assert set(listed(eos, "gone", "--all")) == {'["gone",{"a":"1"}]'}
    assert "eos offsets list gone --all" in eos.run("offsets", "list", "gone", expect=2).stderr


def test_a_backup_has_every_byte_and_a_difference_says_what_has_changed_since(cluster: Cluster, eos: Any) -> None:
    eos.run("offsets", "backup", "--to", "before.jsonl")
    saved = read(eos.folder / "before.jsonl")
    assert {topic.name: topic.own_of for topic in saved.topics} == {cluster.global_topic: (), "own-offsets": ("own",)}
    assert "No offset differs" in eos.run("offsets", "diff", "before.jsonl").stdout

    cluster.add("own", "four")
    wait_for("its offset", lambda: [one["offset"] for one in listed(eos, "own").values()] == [ALL])
    found = json.loads(eos.run("offsets", "diff", "before.jsonl", "--json", expect=1).stdout)
    own = next(one for one in found if one["topic"] == "own-offsets")
    assert (own["before"], own["after"], own["change"]) == (END, ALL, "changed")


def test_a_connector_that_is_not_there_is_named_with_those_that_are(eos: Any) -> None:
    assert "one of own, shared" in eos.run("offsets", "list", "owm", expect=2).stderr


def test_the_config_topic_is_counted_by_kind_and_its_leader_is_its_only_transactional_writer(eos: Any) -> None:
    found = json.loads(eos.run("topics", "list", "--json").stdout)["config_topic"]
    assert {name: one["generations"] for name, one in found["connectors"].items()} == {"own": 1, "shared": 1}
    assert {name: one["task_count_record"] for name, one in found["connectors"].items()} == {"own": 1, "shared": 1}
    assert (found["foreign"], found["unknown"], found["malformed"]) == (0, [], [])
    assert found["kinds"]["connector"]["live"] == 2
    assert sum(writer["records"] for writer in found["writers"]) == found["records"]
    assert "tasks-fencing" in eos.run("topics", "list").stdout
