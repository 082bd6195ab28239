"""``eos preflight`` on a real cluster: each finding provoked once, and what it predicts seen to happen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers.broker import Broker
from tests.waiting import status_of, until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
TESTABLE = "org.apache.kafka.connect.integration.TestableSourceConnector"
TOPIC, SMALL, FLOW = "lines", "small", "flow"
SECONDS = 90.0

#: The broker allows more than a task's 60 s and less than the 90 s of a fencing.
MAX_TIMEOUT_MS = 80_000

#: What may be overridden; a consumer's fetch.min.bytes may not.
ALLOWED = "transaction.timeout.ms,acks,transactional.id,isolation.level,group.id"

#: Worker settings that enabled ignores, and a policy of its own.
WORKER = {
    "connector.client.config.override.policy": "Allowlist",
    "connector.client.config.override.allowlist": ALLOWED,
    "offset.flush.timeout.ms": "7000",
    "producer.enable.idempotence": "false",
}


def sample(**more: str) -> dict[str, str]:
    return {"connector.class": TESTABLE, "topic": TOPIC, "tasks.max": "1", **_dotted(more)}


def file_source(**more: str) -> dict[str, str]:
    return {"connector.class": FILE_SOURCE, "file": "/dev/null", "topic": TOPIC, "tasks.max": "1", **_dotted(more)}


def _dotted(names: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in names.items()}


#: Stopped connectors by name, that a worker below enabled accepts.
STOPPED: dict[str, dict[str, str]] = {
    "unsupported": sample(custom_exactly_once_support="unsupported"),
    "silent": sample(custom_exactly_once_support="null"),
    "throws": sample(custom_exactly_once_support="fail"),
    "mirror": {
        "connector.class": MIRROR,
        "source.cluster.alias": "a",
        "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": "127.0.0.1:1",
        "target.cluster.bootstrap.servers": "127.0.0.1:1",
    },
    "interval": file_source(transaction_boundary="interval", transaction_boundary_interval_ms="120000"),
    "many": sample(tasks_max="91"),
    "several": sample(tasks_max="3"),
    "ignored": file_source(producer_override_transactional_id="mine", consumer_override_isolation_level="x"),
    "record": file_source(topic=SMALL),
}

#: Those that such a worker does not accept: their plugin, or the mode of the workers, was another when they were made.
WRITTEN: dict[str, dict[str, str]] = {
    "required": sample(custom_exactly_once_support="unsupported", exactly_once_support="required"),
    "nothing-said": sample(custom_exactly_once_support="null", exactly_once_support="required"),
    "gone": {"connector.class": "no.such.Connector", "tasks.max": "1"},
    "refused": file_source(errors_tolerance="perhaps"),
}

#: Settings of a source that always has something to deliver.
STEADY = {"topic": FLOW, "throughput": "20", "messages_per_poll": "2"}

#: Words of a task whose transaction its coordinator has aborted.
EXPIRED = "before its producer transaction expired"

#: Those that run now, and whose tasks fail in the mode enabled: name -> configuration, words of the failure.
BREAKING: dict[str, tuple[dict[str, str], str]] = {
    "overrides": (file_source(consumer_override_fetch_min_bytes="1"), "Client Config Overrides not allowed"),
    "timeout": (file_source(producer_override_transaction_timeout_ms="85000"), "transaction timeout is larger"),
    "acks": (file_source(producer_override_acks="1"), "Must set acks to all"),
    "over-time": (
        sample(
            **STEADY,
            transaction_boundary="interval",
            transaction_boundary_interval_ms="14000",
            producer_override_transaction_timeout_ms="3000",
        ),
        EXPIRED,
    ),
    "no-boundary": (
        sample(**STEADY, transaction_boundary="connector", producer_override_transaction_timeout_ms="3000"),
        EXPIRED,
    ),
}

#: That of them which a worker does not accept.
REFUSED = "no-boundary"


@contextmanager
def brokers_with(more: Mapping[str, str]) -> Iterator[None]:
    """Brokers that start meanwhile have these properties."""
    plain = Broker.properties
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Broker, "properties", lambda broker: {**plain(broker), **more})
        yield


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Iterator[Lab]:
    """One worker in preparing, with a connector for each finding."""
    soon = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with brokers_with({"transaction.max.timeout.ms": str(MAX_TIMEOUT_MS), **soon}):
        lab = lab_factory(
            name="preflight", mode=Mode.PREPARING, workers=1, test_connectors=True, worker_properties=WORKER
        )
        lab.create_topic(TOPIC, 2)
        lab.create_topic(FLOW, 1)
        lab.create_topic(SMALL, 1, {"max.message.bytes": "1000"})
        lines = lab.data_dir / "lines.txt"
        lines.write_text("one\ntwo\n", encoding="utf-8")
        with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
            rest.create("fine", file_source(file=str(lines)))
            for name, (config, _) in BREAKING.items():
                if name != REFUSED:
                    rest.create(name, config)
            for name, config in STOPPED.items():
                rest.create(name, config, initial_state="STOPPED")
            sink = {"connector.class": FILE_SINK, "topics": TOPIC, "file": "/dev/null", "tasks.max": "1"}
            rest.create("sink", sink, initial_state="STOPPED")
            rest.create("careful", {**sink, "consumer.override.isolation.level": "read_committed"}, "STOPPED")
            write(lab, {**WRITTEN, REFUSED: BREAKING[REFUSED][0]})
            until(lambda: len(rest.connectors()) == known(), "the written connectors", seconds=SECONDS)
            rest.resume(REFUSED)
            until(lambda: all(run(rest, name) for name in BREAKING), "their tasks run", seconds=SECONDS)
        kafka = lab.cluster().kafka
        until(lambda: len(read_to_end(kafka, TOPIC).records) == 2, "the lines", seconds=SECONDS)
        yield lab


def run(rest: ConnectRest, name: str) -> bool:
    tasks = status_of(rest, name).tasks
    return bool(tasks) and all(task.state == "RUNNING" for task in tasks)


def known() -> int:
    return 3 + len(BREAKING) + len(STOPPED) + len(WRITTEN)


def write(lab: Lab, connectors: Mapping[str, Mapping[str, str]]) -> None:
    """Write stopped connectors into the config topic, as a leader would."""
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "log_level": 0})
    for name, config in connectors.items():
        stopped = {"state": "PAUSED", "state.v2": "STOPPED"}
        producer.produce(f"{lab.group_id}-configs", json.dumps(stopped), f"target-state-{name}")
        record = {"properties": {**config, "name": name}}
        producer.produce(f"{lab.group_id}-configs", json.dumps(record), f"connector-{name}")
    assert producer.flush(180) == 0


@contextmanager
def consumer_group(lab: Lab, name: str, client_id: str) -> Iterator[None]:
    """A group with a committed offset in the topic."""
    consumer = Consumer({"bootstrap.servers": lab.bootstrap_servers, "group.id": name, "client.id": client_id})
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        yield
    finally:
        consumer.close()


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


@pytest.fixture(scope="module")
def document(lab: Lab, tmp_path_factory: pytest.TempPathFactory, eos_of: Callable[[Lab, Path], Any]) -> dict[str, Any]:
    """What the command finds before the mode is switched on."""
    with ExitStack() as stack:
        for name, client in (("billing", "billing-1"), ("hudi-ingest", "hudi-1")):
            stack.enter_context(consumer_group(lab, name, client))
        done = eos_of(lab, tmp_path_factory.mktemp("eos")).run("preflight", "--json", expect=1)
    return dict(json.loads(done.stdout))


def findings(document: Mapping[str, Any], connector: str, kind: str) -> list[dict[str, Any]]:
    return [one for one in document["findings"] if (one["subject"], one["kind"]) == (connector, kind)]


#: Connector, kind, its answer and weight, and words of what was found.
PROVOKED = [
    ("refused", "validation", "fail", "warns", "errors.tolerance"),
    ("gone", "plugin", "fail", "warns", "no class no.such.Connector"),
    ("overrides", "overrides", "fail", "blocks", "consumer.override.fetch.min.bytes"),
    ("unsupported", "support", "fail", "warns", "UNSUPPORTED"),
    ("silent", "support", "inconclusive", "warns", "does not answer"),
    ("throws", "support", "inconclusive", "warns", "its answer is an error"),
    ("required", "support", "fail", "blocks", "UNSUPPORTED (exactly.once.support=required)"),
    ("nothing-said", "support", "fail", "blocks", "does not answer"),
    ("mirror", "mirror", "fail", "warns", "UNSUPPORTED"),
    ("interval", "interval", "fail", "blocks", "transaction.boundary.interval.ms=120000"),
    ("over-time", "interval", "fail", "blocks", "transaction.boundary.interval.ms=14000"),
    ("no-boundary", "boundary", "fail", "blocks", "does not support connector-defined transaction boundaries"),
    ("timeout", "timeout", "fail", "blocks", "producer.override.transaction.timeout.ms=85000"),
    ("several", "fencing", "fail", "blocks", f"transaction.max.timeout.ms={MAX_TIMEOUT_MS}"),
    ("fine", "fencing", "fail", "warns", "one task that follows one needs no fencing"),
    ("many", "many-tasks", "fail", "warns", "91 tasks"),
    ("acks", "producer", "fail", "blocks", "producer.override.acks=1"),
    ("ignored", "ignored", "fail", "informs", "producer.override.transactional.id is ignored"),
    ("", "ignored", "fail", "informs", "offset.flush.timeout.ms"),
    ("", "ignored", "fail", "informs", "producer.enable.idempotence"),
    ("record", "record-size", "fail", "warns", "max.message.bytes=1000"),
    ("fine", "transaction-size", "inconclusive", "informs", "one batch"),
    ("interval", "transaction-size", "pass", "informs", "records in all tasks' transactions"),
    ("gone", "topics", "inconclusive", "informs", "it has written to no topic yet"),
    ("fine", "readers", "fail", "warns", "sink connector sink (group connect-sink) reads lines uncommitted"),
    ("fine", "readers", "pass", "informs", "sink connector careful reads lines committed"),
    ("fine", "readers", "inconclusive", "warns", "group billing reads lines"),
    ("fine", "markers", "inconclusive", "warns", "group hudi-ingest looks like"),
    ("sink", "sink", "pass", "informs", "a sink connector"),
]


@pytest.mark.parametrize(
    ("connector", "kind", "verdict", "severity", "words"), PROVOKED, ids=[f"{one[0]} {one[1]}" for one in PROVOKED]
)
def test_each_finding_is_provoked(
    document: dict[str, Any], connector: str, kind: str, verdict: str, severity: str, words: str
) -> None:
    found = findings(document, connector, kind)
    assert [
        one for one in found if (one["verdict"], one["severity"]) == (verdict, severity) and words in one["found"]
    ], found


def test_what_is_fine_passes(document: dict[str, Any]) -> None:
    for kind in ("validation", "plugin", "overrides", "support", "boundary", "timeout", "many-tasks", "producer"):
        (found,) = findings(document, "fine", kind)
        assert found["verdict"] == "pass", found
    assert document["verdict"] == "fail"
    assert document["sinks"] == ["careful", "sink"]


def test_one_connector_is_looked_at_alone_and_the_exit_code_says_what_was_found(lab: Lab, eos: Any) -> None:
    shown = eos.run("preflight", "fine").stdout
    assert "Nothing blocks." in shown
    assert "overrides" not in shown
    eos.run("preflight", "acks", expect=1)
    assert "accepted" in eos.run("preflight", "acks", "--accept", "acks/producer").stdout
    assert "There is no connector none" in eos.run("preflight", "none", expect=2).stderr
    assert "exactly.once.support=required" in eos.run("preflight", "required", "--mode", "disabled").stdout


def test_a_roll_that_would_stop_tasks_is_refused_until_they_are_corrected_and_its_plan_shows_the_rest(
    lab: Lab, eos: Any
) -> None:
    refused = eos.run("plan", "--to", "enabled", "--allow-downtime", expect=3).stderr
    for name in BREAKING:
        assert f"{name}: " in refused
    assert "required: " not in refused  # its tasks would run on
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        for name in BREAKING:
            rest.stop(name)
        until(lambda: all(not status_of(rest, name).tasks for name in BREAKING), "their tasks end", seconds=SECONDS)
        shown = eos.run("plan", "--to", "enabled", "--allow-downtime").stdout
        made = json.loads(eos.run("plan", "--to", "enabled", "--allow-downtime", "--json").stdout)
        for name in BREAKING:
            rest.resume(name)
    assert "Connectors ('eos preflight' shows more): " in shown
    assert any(line.startswith("required: blocks: support: ") for line in made["connectors"]["lines"])
    assert made["hash"][:12] in shown


def test_what_stops_tasks_does(lab: Lab) -> None:
    config = lab.workers[0].config
    lab.stop_worker(0)
    config.write_bytes(set_property(config.read_bytes(), MODE_PROPERTY, Mode.ENABLED))
    lab.start_worker(0)
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        for name, (_, words) in BREAKING.items():
            until(lambda name=name, words=words: died(lab, name, words), f"{name} fails", seconds=SECONDS)
        until(lambda: run(rest, "fine"), "fine runs", seconds=SECONDS)
        # Its first task set needs no round, the next one does.
        rest.resume("several")
        until(lambda: run(rest, "several"), "the first task set", seconds=SECONDS)
        rest.patch_config("several", {"messages.per.poll": "3"})
        until(lambda: died(lab, "several", "zombie fencing"), "the next task set fails", seconds=SECONDS)


def died(lab: Lab, name: str, words: str) -> bool:
    """Whether the worker says of a task that it dies of this; its status follows when its producer is closed."""
    log = lab.workers[0].log.read_text(encoding="utf-8")
    deaths = ("Failed to start task", "will not recover until manually restarted")
    blocks = re.split(r"^(?=\[20)", log, flags=re.MULTILINE)  # a line of the log with its trace
    its = [block for block in blocks if f"[{name}|task-" in block and words in block]
    return any(death in block for block in its for death in deaths)
