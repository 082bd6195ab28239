"""``eos transactions`` on a real cluster: whose they are, which one hangs, and its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.kafka.read import read_to_end
from airflow_eos_provider.lab.lab import Lab
from tests.integration.hanging_transaction import HangingTransaction
from tests.integration.offsets_cluster import killed
from tests.waiting import until

pytestmark = pytest.mark.slow

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONNECTOR, TOPIC = "lines", "lines"
SECONDS = 60.0


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """One enabled worker, and a connector that has delivered a line."""
    lab = lab_factory(name="transactions", mode=Mode.ENABLED, workers=1)
    lab.create_topic(TOPIC, 2)
    file = lab.data_dir / "lines.txt"
    file.write_text("one\n", encoding="utf-8")
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": TOPIC, "file": str(file)}
        rest.create(CONNECTOR, config)
    until(lambda: len(read_to_end(lab.cluster().kafka, TOPIC).records) == 1, "the line", seconds=SECONDS)
    return lab


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


@contextmanager
def opened(lab: Lab, transactional_id: str, partition: int) -> Iterator[None]:
    """A transaction that is alive: its producer has written a record, and aborts it in the end."""
    settings = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 600_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=partition)
    assert producer.flush(30) == 0
    try:
        yield
    finally:
        producer.abort_transaction(30)


def produce(lab: Lab, value: bytes, partition: int) -> None:
    """A record without a transaction."""
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "log_level": 0})
    producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(30) == 0


def at(partition: int) -> tuple[str, ...]:
    """The options that name a partition of the topic."""
    return "--topic", TOPIC, "--partition", str(partition)


def listed(eos: Any, *arguments: str) -> dict[str, Any]:
    return {one["id"]: one for one in json.loads(eos.run("transactions", "list", *arguments, "--json").stdout)}


def test_each_id_is_shown_with_its_owner_and_others_only_on_request(lab: Lab, eos: Any) -> None:
    group, task = lab.group_id, f"{lab.group_id}-{CONNECTOR}-0"
    with opened(lab, f"{group}-gone-0", 0):  # of this group by its name alone
        found = listed(eos)
        assert found[f"connect-cluster-{group}"]["owner"] == "the leader, for the config topic"
        assert (found[task]["owner"], found[task]["connector"]) == (f"{CONNECTOR}, task 0", CONNECTOR)
        assert found[task]["last_started_at_ms"] is not None
        assert f"{group}-gone-0" not in found
        foreign = listed(eos, "--all", "--open")[f"{group}-gone-0"]
        assert (foreign["owner"], foreign["partitions"]) == ("not this group", [{"topic": TOPIC, "partition": 0}])
        assert listed(eos, "--connector", CONNECTOR).keys() == {task}
        assert listed(eos, "--all", "--topic", TOPIC).keys() == {f"{group}-gone-0"}
    assert task in eos.run("transactions", "list", "-o", "name").stdout.split()
    assert f"{CONNECTOR}, task 0" in eos.run("transactions", "list", "-o", "wide").stdout


def test_a_transaction_is_described_with_what_waits_behind_it(lab: Lab, eos: Any) -> None:
    with opened(lab, "a-producer", 1):
        produce(lab, b"behind", 1)
        (found,) = json.loads(eos.run("transactions", "describe", "a-producer", "--json").stdout)
        (partition,) = found["partitions"]
        assert (found["state"], partition["topic"], partition["partition"]) == ("Ongoing", TOPIC, 1)
        assert partition["waiting"] == 2
        assert "2 offsets wait" in eos.run("transactions", "describe", "a-producer").stdout
    ended = eos.run("transactions", "describe", "a-producer", "nobody", expect=2)
    assert "no transaction is open" in ended.stdout
    assert "know no transactional id nobody" in ended.stderr


def test_a_transaction_that_is_alive_is_not_called_hanging_and_not_aborted(lab: Lab, eos: Any) -> None:
    with opened(lab, "alive", 0):
        assert "No transaction hangs" in eos.run("transactions", "hanging").stdout
        refused = eos.run("transactions", "abort", *at(0), expect=3).stderr
        assert f"No transaction hangs in {TOPIC}-0" in refused
    assert "has no partition 7" in eos.run("transactions", "abort", *at(7), expect=2).stderr
    assert "There is no topic" in eos.run("transactions", "hanging", "--topic", "none", expect=2).stderr


def test_a_hanging_transaction_is_found_and_ended_once_and_its_readers_go_on(lab: Lab, eos: Any) -> None:
    def read() -> list[bytes | None]:
        records = read_to_end(lab.cluster().kafka, TOPIC).records
        return [record.value for record in records if record.partition == 1]

    before = read()
    with HangingTransaction.on(lab, TOPIC, 1):
        produce(lab, b"behind it", 1)
        (found,) = json.loads(eos.run("transactions", "hanging", "--json", expect=1).stdout)["hanging"]
        assert (found["topic"], found["partition"], found["transactional_id"]) == (TOPIC, 1, "late")
        assert found["ends"]["waiting"] == 2
        shown = eos.run("transactions", "hanging", "--topic", TOPIC, expect=1).stdout
        assert f"eos transactions abort --topic {TOPIC} --partition 1 --start-offset {found['start_offset']}" in shown

        refused = eos.run("transactions", "abort", *at(1), expect=3).stderr
        assert "with --fence, which shuts it out first" in " ".join(refused.split())
        abort = ("transactions", "abort", *at(1), "--fence")
        assert "late is fenced first" in eos.run(*abort).stdout
        plan = json.loads(eos.run(*abort, "--json").stdout)
        assert "another transaction" in eos.run(*abort, "--hash", "0" * 12, expect=3).stderr
        killed(lab, "marker", "announced", *abort, "--hash", plan["hash"])
        # It is fenced, and its producer can write nothing more: no reason to fence it again.
        plan = json.loads(eos.run("transactions", "abort", *at(1), "--json").stdout)
        done = eos.run("transactions", "abort", *at(1), "--hash", plan["hash"], "--json").stdout
        assert json.loads(done)["after"]["waiting"] == 0
    assert read() == [*before, b"behind it"]
    assert eos.run("transactions", "hanging").stdout.strip() == "No transaction hangs."
    assert "No transaction hangs" in eos.run("transactions", "abort", *at(1), expect=3).stderr


def test_an_abort_that_is_killed_after_its_marker_is_over(lab: Lab, eos: Any) -> None:
    with HangingTransaction.on(lab, TOPIC, 0):
        plan = json.loads(eos.run("transactions", "abort", *at(0), "--fence", "--json").stdout)
        killed(lab, "marker", "carried-out", "transactions", "abort", *at(0), "--fence", "--hash", plan["hash"])
        assert "No transaction hangs" in eos.run("transactions", "abort", *at(0), expect=3).stderr
    assert eos.run("transactions", "hanging").stdout.strip() == "No transaction hangs."
