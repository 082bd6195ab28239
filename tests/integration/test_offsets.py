"""``eos offsets`` on a real cluster with exactly-once on: a connector's own offsets topic beside the global one."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from tests.faults.local_runner import plan_files, write_slices
from tests.integration.offsets_cluster import FILE_SOURCE, mirror
from tests.waiting import until

SECONDS = 75.0


@pytest.fixture(scope="module")
def lab(enabled_lab: Lab) -> Lab:
    """One worker, and connectors ``own`` and ``shared``, each of which has read a file of three lines."""
    lab = enabled_lab
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        for name, extra in (("own", {"offsets.storage.topic": "own-offsets"}), ("shared", {})):
            lab.create_topic(name, 1)
            _file(lab, name).write_text("one\ntwo\nthree\n", encoding="utf-8")
            config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": name, "file": str(_file(lab, name))}
            rest.create(name, {**config, **extra})
        for name in ("own", "shared"):
            _wait_for(lambda name=name: [o for o in rest.offsets(name) if o.offset == _end(lab, name)])
    return lab


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


def _file(lab: Lab, name: str) -> Path:
    return lab.data_dir / f"{name}.txt"


def _end(lab: Lab, name: str) -> dict[str, int]:
    """The offset of a connector that has read all of its file."""
    return {"position": _file(lab, name).stat().st_size}


def _key(lab: Lab, name: str) -> bytes:
    return offset_key(name, {"filename": str(_file(lab, name))})


def _wait_for(condition: Callable[[], Any]) -> None:
    until(condition, "it", seconds=SECONDS)


def _write(lab: Lab, topic: str, raw: bytes, value: bytes | None) -> None:
    """A record by another tool's plain producer."""
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "partitioner": "murmur2_random"})
    producer.produce(topic, key=raw, value=value)
    assert producer.flush(180) == 0


def _listed(eos: Any, *arguments: str) -> dict[str, dict[str, Any]]:
    return {one["key"]: one for one in json.loads(eos.run("offsets", "list", *arguments, "--json").stdout)}


def test_offsets_altered_in_the_global_topic_do_not_move_a_connector_with_a_topic_of_its_own(
    lab: Lab, eos: Any
) -> None:
    """What an operator does manually: writes where the tutorials say, and nothing happens."""
    _write(lab, f"{lab.group_id}-offsets", _key(lab, "own"), b'{"position":489}')

    (one,) = _listed(eos, "own").values()
    assert (one["offset"], one["topic"]) == (_end(lab, "own"), "own-offsets")
    assert (one["own"], one["committed"]) == (True, True)
    assert [under["offset"] for under in one["under"]] == [{"position": 489}]
    assert one["producer_id"] is not None
    one = _listed(eos, "shared")[_key(lab, "shared").decode()]
    assert (one["offset"], one["own"], one["topic"]) == (_end(lab, "shared"), False, f"{lab.group_id}-offsets")
    assert "position" in eos.run("offsets", "list", "own", "-o", "wide").stdout


#: KIP-618's example of a connector with an offsets topic of its own: what each topic has of three subreddits.
KIP_GLOBAL = {"apachekafka": 2, "CatsStandingUp": 4}
KIP_OWN = {"CatsStandingUp": 6, "grilledcheese": 8}
SUBREDDITS = ("apachekafka", "CatsStandingUp", "grilledcheese")
POSTS = 12


def test_kip_618s_example_is_shown_as_a_real_worker_reads_it(lab: Lab, eos: Any) -> None:
    """Each subreddit is a topic that a mirror copies: what it copies shows which offset its task has read.

    KIP-618 lets a key that the own topic lacks be read from the global one. Connect 4.3.1 does not:
    docs/connect/offsets.md.
    """
    name, own = "reddit", "reddit-offsets"
    posts = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for subreddit in SUBREDDITS:
        lab.create_topic(subreddit, 1)
        for number in range(POSTS):
            posts.produce(subreddit, str(number))
    assert posts.flush(180) == 0
    keys = {s: offset_key(name, {"cluster": "src", "partition": 0, "topic": s}) for s in SUBREDDITS}
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.create(name, {**mirror(lab, ",".join(SUBREDDITS)), "offsets.storage.topic": own}, "STOPPED")
        _wait_for(lambda: Topics(lab.cluster().kafka).find([own]))
        for topic, offsets in ((f"{lab.group_id}-offsets", KIP_GLOBAL), (own, KIP_OWN)):
            for subreddit, offset in offsets.items():
                _write(lab, topic, keys[subreddit], json.dumps({"offset": offset}).encode())

        def by_worker() -> dict[str, int | None]:
            """By subreddit the offset that the worker reads."""
            return {o.partition["topic"]: o.offset and o.offset["offset"] for o in rest.offsets(name)}

        for url in lab.connect_urls:  # the command asks any of them
            with ConnectRest(url, retry_seconds=180) as each:
                _wait_for(lambda each=each: name in each.statuses())
        assert by_worker() == {"apachekafka": None, **KIP_OWN}
        listed = _listed(eos, name)
        shown = {s: listed[keys[s].decode()] for s in SUBREDDITS}
        assert {s: one["offset"]["offset"] for s, one in shown.items() if one["read"]} == KIP_OWN
        assert (shown["apachekafka"]["offset"], shown["apachekafka"]["topic"]) == (
            {"offset": 2},
            f"{lab.group_id}-offsets",
        )
        assert shown["apachekafka"]["hidden"] == ["in the global topic only, which tasks with an own topic do not read"]
        assert [under["offset"] for under in shown["CatsStandingUp"]["under"]] == [{"offset": 4}]
        differing = json.loads(eos.run("offsets", "diff", "--own", name, "--json", expect=1).stdout)
        assert len(differing) == len(SUBREDDITS)

        rest.resume(name)
        begins = {subreddit: KIP_OWN.get(subreddit, -1) + 1 for subreddit in SUBREDDITS}
        kafka = lab.cluster().kafka
        end = dict.fromkeys(SUBREDDITS, POSTS - 1)
        _wait_for(lambda: by_worker() == end)
        for subreddit, first in begins.items():
            copied = [record.value for record in read_to_end(kafka, f"src.{subreddit}").records]
            assert copied == [str(number).encode() for number in range(first, POSTS)]
        rest.stop(name)
    listed = _listed(eos, name)
    assert {s: listed[keys[s].decode()]["offset"]["offset"] for s in SUBREDDITS} == end
    assert {listed[keys[s].decode()]["topic"] for s in SUBREDDITS} == {own}

    def both() -> dict[str, tuple[Any, Any]]:
        """By subreddit the offset of the own topic and that of the global one."""
        listed = _listed(eos, name)
        found = {s: listed[key.decode()] for s, key in keys.items() if key.decode() in listed}
        assert {one["topic"] for one in found.values()} <= {own}
        return {
            s: (one["offset"]["offset"], [under["offset"]["offset"] for under in one["under"]])
            for s, one in found.items()
        }

    _wait_for(lambda: both() == dict.fromkeys(SUBREDDITS, (11, [11])))  # tasks copy into the global topic
    altered = ("--where", '{"topic": "grilledcheese"}', "--offset", '{"offset": 9}')
    eos.run("offsets", "alter", name, *altered, "--yes")
    assert both() == {"apachekafka": (11, [11]), "CatsStandingUp": (11, [11]), "grilledcheese": (9, [9])}
    eos.run("offsets", "reset", name, "--yes")
    assert _listed(eos, name) == {}
    assert "No offset differs" in eos.run("offsets", "diff", "--own", name).stdout
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.delete(name)


def test_a_real_worker_lists_the_slices_of_an_interval_run_whose_ledger_a_connector_has(lab: Lab, eos: Any) -> None:
    """The connector has the pipeline's name: that is whose offsets a ledger's keys say they are."""
    lab.create_topic("daily", 1)
    run = Run("daily", Interval(datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)))
    pipeline = Pipeline("daily", "runs", KafkaSettings.of(lab.bootstrap_servers), "daily")
    file = _file(lab, "daily-rows")
    file.write_text("".join(f"row {number}\n" for number in range(30)), encoding="utf-8")
    with Coordinator(pipeline, run) as coordinator, ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        stage = coordinator.begin(lambda: plan_files(run, [file], 100), 1)
        assert isinstance(stage, Stage)
        write_slices(pipeline, stage, 0)
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "daily", "file": str(file)}
        rest.create("daily", {**config, "offsets.storage.topic": pipeline.ledger_topic}, "STOPPED")

        def seen() -> dict[str, Any]:
            """By what it is of, each offset of the ledger that the worker lists."""
            return {json.dumps(o.partition, sort_keys=True): o.offset for o in rest.offsets("daily") if o.offset}

        slices = {
            json.dumps({"interval": run.interval.name, "slice": n}, sort_keys=True) for n in range(len(stage.slices))
        }
        _wait_for(lambda: slices <= seen().keys())
        written = {key: offset for key, offset in seen().items() if key in slices}
        assert len(written) >= 2
        assert {offset["done"] for offset in written.values()} == {True}
        assert sum(offset["position"] for offset in written.values()) == 30
        listed = {json.dumps(one["partition"], sort_keys=True): one["offset"] for one in _listed(eos, "daily").values()}
        assert {key: listed[key] for key in slices} == written

        coordinator.finish(stage)
        complete = json.dumps(run.key)
        _wait_for(lambda: complete in seen())
        assert (seen()[complete]["complete"], seen()[complete]["records"]) == (True, 30)
        assert not slices & seen().keys()
        rest.delete("daily")


def test_what_rest_hides_is_there_and_says_why_and_leftovers_are_shown_on_request(lab: Lab, eos: Any) -> None:
    topic = f"{lab.group_id}-offsets"
    hidden = b'["shared",{"z":"1","a":"2"}]'
    _write(lab, topic, hidden, b'{"n":1}')
    _write(lab, topic, b'["shared",null]', b'{"n":2}')
    _write(lab, topic, b'["gone",{"a":"1"}]', b'{"n":3}')
    _write(lab, topic, b"\xff", b"x")
    with ConnectRest(lab.connect_urls[0]) as rest:  # REST: shown without its offset, as if there were none
        assert [o.offset for o in rest.offsets("shared") if "z" in o.partition] == [None]

    listed = _listed(eos, "shared")
    assert listed[hidden.decode()]["offset"] == {"n": 1}
    assert listed[hidden.decode()]["hidden"] == ["key spelt otherwise than Connect writes it"]
    assert listed['["shared",null]']["hidden"] == ["null source partition"]
    assert '["gone",{"a":"1"}]' not in _listed(eos)
    assert {'["gone",{"a":"1"}]', "\\xff"} <= set(_listed(eos, "--all"))
    assert set(_listed(eos, "gone", "--all")) == {'["gone",{"a":"1"}]'}
    assert "eos offsets list gone --all" in eos.run("offsets", "list", "gone", expect=2).stderr


def test_a_backup_has_every_byte_and_a_difference_says_what_has_changed_since(lab: Lab, eos: Any) -> None:
    eos.run("offsets", "backup", "--to", "before.jsonl")
    saved = read(eos.folder / "before.jsonl")
    assert {topic.name: topic.own_of for topic in saved.topics} == {
        f"{lab.group_id}-offsets": (),
        "own-offsets": ("own",),
    }
    assert "No offset differs" in eos.run("offsets", "diff", "before.jsonl").stdout

    before = _end(lab, "own")
    with _file(lab, "own").open("a", encoding="utf-8") as file:
        file.write("four\n")
    _wait_for(lambda: next(iter(_listed(eos, "own").values()))["offset"] == _end(lab, "own"))
    found = json.loads(eos.run("offsets", "diff", "before.jsonl", "--json", expect=1).stdout)
    own = next(one for one in found if one["topic"] == "own-offsets")
    assert (own["before"], own["after"], own["change"]) == (before, _end(lab, "own"), "changed")


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
