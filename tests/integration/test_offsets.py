"""``eos offsets`` on a real cluster with exactly-once on: a connector's own offsets topic beside the global one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.offsets.seen.backup import read

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
DEADLINE_SECONDS = 300.0


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """One worker, and connectors ``own`` and ``shared``, each of which has read a file of three lines."""
    lab = lab_factory(name="offsets", mode=Mode.ENABLED, workers=1)
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
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
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _write(lab: Lab, topic: str, raw: bytes, value: bytes | None) -> None:
    """A record by another tool's plain producer."""
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "partitioner": "murmur2_random"})
    producer.produce(topic, key=raw, value=value)
    assert producer.flush(30) == 0


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


#: What a source of three subreddits has read, each a source partition of its own.
SUBREDDITS = {"apachekafka": 4761, "CatsStandingUp": 2169, "grilledcheese": 489}


def test_of_three_offsets_in_both_topics_the_own_ones_count_and_both_verbs_change_both(lab: Lab, eos: Any) -> None:
    name, topic = "reddit", "reddit-offsets"
    config = {
        "connector.class": FILE_SOURCE,
        "tasks.max": "1",
        "topic": name,
        "file": "r",
        "offsets.storage.topic": topic,
    }
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
        rest.create(name, {**config, "offsets.storage.topic": topic}, "STOPPED")
        _wait_for(lambda: Topics(lab.cluster().kafka).find([topic]))
    keys = {subreddit: offset_key(name, {"filename": subreddit}) for subreddit in SUBREDDITS}
    for subreddit, position in SUBREDDITS.items():
        _write(lab, topic, keys[subreddit], json.dumps({"position": position}).encode())
        _write(lab, f"{lab.group_id}-offsets", keys[subreddit], b'{"position":1}')

    def both() -> dict[str, tuple[Any, Any]]:
        """By subreddit the offset of the own topic, which the tasks read, and that of the global one."""
        listed = _listed(eos, name)
        assert {one["topic"] for one in listed.values()} <= {topic}
        found = {subreddit: listed[key.decode()] for subreddit, key in keys.items() if key.decode() in listed}
        return {
            subreddit: (one["offset"]["position"], [under["offset"]["position"] for under in one["under"]])
            for subreddit, one in found.items()
        }

    assert both() == {subreddit: (position, [1]) for subreddit, position in SUBREDDITS.items()}
    assert len(json.loads(eos.run("offsets", "diff", "--own", name, "--json", expect=1).stdout)) == len(SUBREDDITS)
    altered = ("--where", '{"filename": "grilledcheese"}', "--offset", '{"position": 490}')
    eos.run("offsets", "alter", name, *altered, "--yes")
    assert both() == {"apachekafka": (4761, [1]), "CatsStandingUp": (2169, [1]), "grilledcheese": (490, [490])}
    eos.run("offsets", "reset", name, "--yes")
    assert _listed(eos, name) == {}
    assert "No offset differs" in eos.run("offsets", "diff", "--own", name).stdout
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
        rest.delete(name)


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
    found = json.loads(eos.run("config-topic", "--json").stdout)
    assert {name: one["generations"] for name, one in found["connectors"].items()} == {"own": 1, "shared": 1}
    assert {name: one["task_count_record"] for name, one in found["connectors"].items()} == {"own": 1, "shared": 1}
    assert (found["foreign"], found["unknown"], found["malformed"]) == (0, [], [])
    assert found["kinds"]["connector"]["live"] == 2
    assert sum(writer["records"] for writer in found["writers"]) == found["records"]
    assert "tasks-fencing" in eos.run("config-topic").stdout
