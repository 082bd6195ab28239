"""What the workers' files say about the internal topics, by the rules of Connect's ``DistributedConfig``."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.topics.internal_topics import (
    BROKERS_DEFAULT,
    Role,
    WantedTopic,
    WorkerFiles,
    read_worker_files,
)
from airflow_eos_provider.errors import ConfigurationError

COMPACT = {"cleanup.policy": "compact"}


def files(*properties: dict[str, str]) -> WorkerFiles:
    return WorkerFiles({f"w{number}:8083": each for number, each in enumerate(properties, 1)}, {})


@pytest.mark.parametrize(
    ("role", "partitions"), [(Role.CONFIGS, 1), (Role.OFFSETS, 25), (Role.STATUS, 5), (Role.OWN, 25)]
)
def test_what_the_files_leave_out_is_connects_default(role: Role, partitions: int) -> None:
    assert files({}).wanted(role, "t") == WantedTopic("t", role, (), partitions, 3, COMPACT)


def test_an_own_topic_is_created_with_the_offsets_topics_numbers_and_settings() -> None:
    worker = {
        "offset.storage.topic": "offsets",
        "offset.storage.partitions": "7",
        "offset.storage.replication.factor": "2",
        "offset.storage.segment.bytes": "1048576",
        "offset.storage.cleanup.policy": "delete",  # Connect ignores it
        "config.storage.segment.bytes": "1",
    }
    wanted = files(worker, worker).wanted(Role.OWN, "own", ("a", "b"))
    assert wanted == WantedTopic("own", Role.OWN, ("a", "b"), 7, 2, {**COMPACT, "segment.bytes": "1048576"})
    assert str(wanted) == "own (own offsets topic of a, b)"


def test_the_config_topic_has_one_partition_whatever_is_said() -> None:
    assert files({"config.storage.partitions": "3"}).wanted(Role.CONFIGS, "c", partitions=9).partitions == 1


def test_minus_one_is_the_brokers_default() -> None:
    said = {"status.storage.partitions": "-1", "status.storage.replication.factor": "-1"}
    wanted = files(said).wanted(Role.STATUS, "s")
    assert (wanted.partitions, wanted.replicas) == (BROKERS_DEFAULT, BROKERS_DEFAULT)


def test_what_a_config_provider_supplies_is_not_known_unless_it_is_given() -> None:
    said = {"offset.storage.partitions": "${env:PARTITIONS}", "offset.storage.segment.ms": "${env:SEGMENT}"}
    wanted = files(said).wanted(Role.OFFSETS, "o")
    assert (wanted.partitions, wanted.replicas, wanted.settings) == (None, 3, COMPACT)
    assert wanted.unknown == ("offset.storage.segment.ms", "offset.storage.partitions")
    given = files(said).wanted(Role.OFFSETS, "o", partitions=4, replicas=1)
    assert (given.partitions, given.replicas, given.unknown) == (4, 1, ("offset.storage.segment.ms",))


def test_without_a_readable_file_only_what_is_given_is_known() -> None:
    nothing = WorkerFiles({}, {"w1:8083": "its description names no file"})
    assert nothing.wanted(Role.OWN, "own").unknown == (
        "offset.storage.partitions",
        "offset.storage.replication.factor",
    )
    assert nothing.wanted(Role.OWN, "own", partitions=2, replicas=1).unknown == ()


def test_files_that_differ_and_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"differ in offset\.storage\.partitions: w1:8083: 7, w2:8083: 25"):
        files({"offset.storage.partitions": "7"}, {}).wanted(Role.OFFSETS, "o")
    with pytest.raises(ConfigurationError, match=r"differ in offset\.storage\.segment\.ms"):
        files({"offset.storage.segment.ms": "7"}, {}).wanted(Role.OFFSETS, "o")
    with pytest.raises(ConfigurationError, match="partitions=many"):
        files({"status.storage.partitions": "many"}).wanted(Role.STATUS, "s")


CONFIG_TOPIC = "config.storage.topic"


@pytest.mark.parametrize(
    ("said", "described", "name", "words"),
    [
        (["c", "c"], "", "c", ""),
        (["c", None], "", "", "the workers differ in config.storage.topic: w1:8083: c, w2:8083: none"),
        (["c", "C"], "", "", "w1:8083: c, w2:8083: C"),
        (["c", "${env:T}"], "", "c", "a config provider supplies config.storage.topic (${env:T} in the configuration"),
        (["c", "${env:T}"], "c", "c", ""),
        (["c", "${env:T}"], "d", "", "the cluster description: d, w1:8083: c"),
        (["${env:T}", "${env:T}"], "", "", "a config provider supplies"),
        (["${env:T}", "${env:T}"], "d", "d", ""),
        ([], "d", "d", ""),
        ([], "", "", ""),
    ],
)
def test_a_shared_topic_is_what_all_workers_say(said: list[str | None], described: str, name: str, words: str) -> None:
    of = files(*({CONFIG_TOPIC: text} if text else {} for text in said))
    topic = WorkerFiles(of.properties, described={CONFIG_TOPIC: described} if described else {}).shared(CONFIG_TOPIC)
    assert topic.name == name
    assert words in topic.problem
    assert bool(topic.problem) == bool(words)
    assert ("correct config_topic in the cluster description" in topic.remedy) == ("cluster description: d" in words)


def test_a_topic_that_is_not_known_is_an_error_with_what_to_write() -> None:
    for broken, words in [
        (files({CONFIG_TOPIC: "c"}, {}), "differ.*What to do: Stop the workers"),
        (files({}), "no worker's file has it"),
        (files({CONFIG_TOPIC: "${env:TOPIC}"}), r"\$\{env:TOPIC\}.*config_topic: NAME"),
        (WorkerFiles({}, {"w1:8083": "gone"}), "w1:8083: gone"),
    ]:
        with pytest.raises(ConfigurationError, match=f"(?s){words}"):
            broken.common(CONFIG_TOPIC)


def described(folder: Path, *said: str) -> ConnectCluster:
    """A group ``g`` of workers whose files have these lines; a worker without a line has no file."""
    workers = []
    for number, text in enumerate(said, 1):
        file = folder / f"w{number}.properties"
        if text:
            file.write_text(f"{text}\nconfig.storage.topic=c\n")
        workers.append({"url": f"http://w{number}:8083", "config": str(file)})
    return ConnectCluster.from_mapping({"bootstrap_servers": "b:9092", "group_id": "g", "workers": workers})


@pytest.mark.parametrize("first", ["group.id=g", " group.id : g ", "group.id=${file:/etc/group:id}", ""])
def test_a_file_of_another_group_than_the_described_one_is_refused(tmp_path: Path, first: str) -> None:
    assert read_worker_files(described(tmp_path, first)).shared(CONFIG_TOPIC).name == ("c" if first else "")
    with pytest.raises(ConfigurationError) as refused:
        read_worker_files(described(tmp_path, first, "group.id=typo"))
    assert refused.value.found == "The workers' files name another group than g: w2:8083: typo."
    assert refused.value.expected == "group.id=g, as in the cluster description"
    assert "group_id" in str(refused.value.remedy)


def test_a_topic_that_an_option_names_wins_over_the_files() -> None:
    for of in (files({CONFIG_TOPIC: "c"}), files({CONFIG_TOPIC: "c"}, {}), WorkerFiles({}, {"w1:8083": "gone"})):
        assert of.common(CONFIG_TOPIC, "given") == "given"
