"""Topics, transactions, REST, config topic and group, seen of a real broker and real workers."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.group import WorkerGroup, describe_group, other_groups
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.config_topic import ClusterState, read_cluster_state
from airflow_eos_provider.errors import (
    ConfigurationError,
    ConnectRestError,
    ReadTimeoutError,
    UnreachableError,
)
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription, TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.read.reader import LogRecord, read_to_end, scan_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.part import write_properties
from airflow_eos_provider.local_processes import identify, spawn
from airflow_eos_provider.rollout.drift.contradictions import findings
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.rollout.observe.reported_states import Doubt, doubtful
from airflow_eos_provider.rollout.plan import obstacles
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.integration.offsets_cluster import FILE_SOURCE, mirror
from tests.seen import pid_of
from tests.waiting import answered, until, until_ended

SETTINGS = RolloutSettings()


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    """Two workers in mode enabled.

    The group keeps one that is dead or suspended for long enough to be looked at, also on a busy machine; and the tasks
    of one that has left wait for it as long.
    """
    return lab_factory(
        name="seeing",
        workers=2,
        mode=Mode.ENABLED,
        session_timeout_ms=12_000,  # and a heartbeat that fits
        worker_properties={"session.timeout.ms": "30000"},
        rebalance_delay_ms=10_000,
    )


@pytest.fixture(scope="module")
def settings(lab: Lab) -> KafkaSettings:
    return KafkaSettings.of(lab.bootstrap_servers)


@pytest.fixture
def topic(lab: Lab) -> str:
    """A new topic of one partition."""
    return new_topic(lab)


@pytest.fixture
def producer(lab: Lab) -> Iterator[Producer]:
    """A transactional producer; what it left open is aborted at the end."""
    producer = Producer(
        {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": f"x-{uuid.uuid4().hex}", "log_level": 2}
    )
    producer.init_transactions(180)
    yield producer
    producer.purge()
    producer.flush(5)


@pytest.fixture
def rest(lab: Lab) -> Iterator[ConnectRest]:
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as client:
        yield client


def new_topic(lab: Lab, partitions: int = 1) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    lab.create_topic(name, partitions)
    return name


def wait_for(what: str, holds: Callable[[], Any]) -> Any:
    """What holds at last."""
    found: list[Any] = []

    def look() -> Any:
        found[:] = [holds()]
        return found[0]

    until(look, what, seconds=180, pause=0.2)
    return found[0]


def values(records: Sequence[LogRecord]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


def send(producer: Producer, topic: str, *texts: str) -> None:
    for text in texts:
        producer.produce(topic, text)
    assert producer.flush(180) == 0


class TestReadingToTheEnd:
    def test_an_aborted_tail_is_passed_and_left_out(
        self, settings: KafkaSettings, topic: str, producer: Producer
    ) -> None:
        producer.begin_transaction()
        send(producer, topic, "a", "b")
        producer.commit_transaction(180)
        producer.begin_transaction()
        send(producer, topic, "x", "y", "z")
        producer.abort_transaction(180)
        until_ended(settings, "x-")
        found = read_to_end(settings, topic)
        assert values(found.records) == ["a", "b"]
        # two records, a marker, three aborted records, a marker
        assert (found.beginning_offsets, found.end_offsets) == ({0: 0}, {0: 7})
        everything = read_to_end(settings, topic, isolation="read_uncommitted")
        assert values(everything.records) == ["a", "b", "x", "y", "z"]

    def test_an_open_transaction_makes_the_read_fail_rather_than_end_early(
        self, settings: KafkaSettings, topic: str, producer: Producer, lab: Lab
    ) -> None:
        send(Producer({"bootstrap.servers": lab.bootstrap_servers}), topic, "before")
        producer.begin_transaction()
        send(producer, topic, "open")
        send(Producer({"bootstrap.servers": lab.bootstrap_servers}), topic, "behind")
        with pytest.raises(ReadTimeoutError, match=r"partition 0 at position 1 of 3.*open transaction"):
            answered(lambda: read_to_end(settings, topic, timeout_seconds=4))
        assert values(read_to_end(settings, topic, isolation="read_uncommitted").records) == [
            "before",
            "open",
            "behind",
        ]
        producer.commit_transaction(180)
        assert values(read_to_end(settings, topic).records) == ["before", "open", "behind"]

    def test_a_read_that_waits_goes_on_when_the_transaction_ends(
        self, settings: KafkaSettings, topic: str, producer: Producer
    ) -> None:
        at_the_stable_end = threading.Event()

        def progress(passed: int, of: int) -> None:
            if (passed, of) == (0, 1):
                at_the_stable_end.set()

        producer.begin_transaction()
        send(producer, topic, "a")
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read_to_end, settings, topic, timeout_seconds=180, progress=progress)
            # The broker has told it that nothing committed follows: taken for the end, that would be no record.
            assert at_the_stable_end.wait(180)
            producer.commit_transaction(180)
            assert values(reading.result(timeout=180).records) == ["a"]

    def test_records_that_come_during_the_read_are_left_out(
        self, settings: KafkaSettings, topic: str, lab: Lab
    ) -> None:
        plain = Producer({"bootstrap.servers": lab.bootstrap_servers})
        send(plain, topic, *(str(n) for n in range(9000)))
        batches: list[int] = []

        def count(batch: Sequence[LogRecord]) -> None:
            if not batches:
                send(plain, topic, "late", "later")
            batches.append(len(batch))

        steps: list[tuple[int, int]] = []
        ends = scan_to_end(settings, topic, count, progress=lambda done, of: steps.append((done, of)))
        assert ends == {0: 9000}
        assert sum(batches) == 9000
        assert len(batches) > 1
        assert steps[-1] == (9000, 9000)
        assert steps == sorted(steps)

    def test_all_partitions_are_read_also_empty_ones(self, settings: KafkaSettings, lab: Lab) -> None:
        topic = new_topic(lab, 3)
        plain = Producer({"bootstrap.servers": lab.bootstrap_servers})
        for number in range(10):
            plain.produce(topic, str(number), partition=number % 2)
        assert plain.flush(180) == 0
        found = read_to_end(settings, topic)
        assert sorted(values(found.records)) == sorted(str(n) for n in range(10))
        assert found.end_offsets == {0: 5, 1: 5, 2: 0}

    def test_an_empty_topic_has_nothing(self, settings: KafkaSettings, topic: str) -> None:
        assert read_to_end(settings, topic).records == ()

    def test_a_topic_whose_beginning_was_deleted_begins_later(
        self, settings: KafkaSettings, topic: str, lab: Lab
    ) -> None:
        send(Producer({"bootstrap.servers": lab.bootstrap_servers}), topic, "a", "b", "c")
        admin = AdminClient({"bootstrap.servers": lab.bootstrap_servers})
        for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
            future.result(timeout=180)
        found = read_to_end(settings, topic)
        assert values(found.records) == ["c"]
        assert (found.beginning_offsets, found.end_offsets) == ({0: 2}, {0: 3})

    def test_an_unknown_topic_is_named_and_not_created(self, settings: KafkaSettings) -> None:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="There is no topic nowhere"):
                read_to_end(settings, "nowhere")

    def test_no_group_is_left_behind(self, settings: KafkaSettings, topic: str, lab: Lab) -> None:
        send(Producer({"bootstrap.servers": lab.bootstrap_servers}), topic, "a")
        read_to_end(settings, topic)
        groups = AdminClient({"bootstrap.servers": lab.bootstrap_servers}).list_groups(timeout=180)
        assert "airflow-eos-provider" not in {group.id for group in groups}
        assert lab.group_id in {group.id for group in groups}  # so there was something to look at


class TestTransactions:
    def test_an_open_transaction_is_listed_described_and_seen_in_its_partition(
        self, settings: KafkaSettings, topic: str, producer: Producer, lab: Lab
    ) -> None:
        began_ms = int(time.time() * 1000)
        producer.begin_transaction()
        send(producer, topic, "open")
        sent_ms = time.time() * 1000
        with TransactionsClient(settings) as transactions:
            (listed,) = [t for t in transactions.list("x-") if t.state == "Ongoing"]
            unlike = transactions.list("-")
            described = transactions.describe([listed.transactional_id, "nobody"])
            (active,) = transactions.active_producers(topic)
            producer.commit_transaction(180)  # returns when the decision is written, before the markers are
            after = wait_for("the end", lambda: completed(transactions.describe([listed.transactional_id])))
            (finished,) = transactions.active_producers(topic)
        found = described[listed.transactional_id]
        assert set(described) == {listed.transactional_id}
        assert (found.state, found.partitions, found.timeout_ms) == ("Ongoing", ((topic, 0),), 60_000)
        assert found.started_at_ms is not None
        assert began_ms <= found.started_at_ms <= sent_ms
        assert (active.producer_id, active.transaction_start_offset) == (found.producer_id, 0)
        assert (after.state, after.started_at_ms, after.partitions) == ("CompleteCommit", None, ())
        assert finished.transaction_start_offset is None
        assert unlike == ()  # a prefix, not a part

    def test_the_list_without_a_prefix_has_the_leader(self, settings: KafkaSettings, lab: Lab) -> None:
        with TransactionsClient(settings) as transactions:
            assert f"connect-cluster-{lab.group_id}" in {t.transactional_id for t in transactions.list()}

    @pytest.mark.parametrize("prefix", [".*", "connect.", "connect-("])
    def test_a_pattern_in_a_prefix_is_only_text(self, settings: KafkaSettings, prefix: str) -> None:
        with TransactionsClient(settings) as transactions:
            assert transactions.list("connect-")  # so there was something to match
            assert transactions.list(prefix) == ()

    def test_a_broker_that_takes_no_pattern_gives_the_same_list(
        self, settings: KafkaSettings, producer: Producer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The producer's id begins otherwise."""
        with TransactionsClient(settings) as transactions:
            expected = transactions.list("connect-")
            # Brokers before 4.1 are not in the lab.
            monkeypatch.setattr("airflow_eos_provider.kafka.admin.transactions._LIST_WITH_PATTERN", 99)
            assert transactions.list("connect-") == expected
            assert expected != transactions.list()

    def test_nothing_to_describe_is_nothing(self, settings: KafkaSettings) -> None:
        with TransactionsClient(settings) as transactions:
            assert transactions.describe([]) == {}

    @pytest.mark.parametrize("partition", [0, 7])
    def test_an_unknown_partition_is_named(self, settings: KafkaSettings, topic: str, partition: int) -> None:
        name = topic if partition else "nowhere"
        with (
            TransactionsClient(settings) as transactions,
            pytest.raises(ConfigurationError, match=f"producers of {name}-{partition}"),
        ):
            transactions.active_producers(name, [partition])


class TestRest:
    def test_a_real_worker_answers(self, rest: ConnectRest) -> None:
        root = rest.root()
        assert root.version == "4.3.1"
        assert root.kafka_cluster_id
        assert rest.health().status == "healthy"
        assert FILE_SOURCE in rest.plugins()

    def test_validation_shows_what_this_worker_can_do(self, rest: ConnectRest, tmp_path: Path) -> None:
        config = {"name": "v", "topic": "t", "file": str(tmp_path / "f"), "tasks.max": "1"}
        assert rest.validate(FILE_SOURCE, {**config, "exactly.once.support": "required"}).errors == {}
        wrong = rest.validate(FILE_SOURCE, {**config, "tasks.max": "many"})
        assert "tasks.max" in wrong.errors

    def test_an_unknown_plugin_and_an_unknown_connector_are_connects_errors(self, rest: ConnectRest) -> None:
        with pytest.raises(ConnectRestError, match="NoSuchPlugin"):
            rest.validate("NoSuchPlugin", {})
        with pytest.raises(ConnectRestError, match="nobody") as caught:
            rest.connector_config("nobody")
        assert caught.value.status == 404

    def test_a_name_with_spaces_and_signs_comes_through(self, rest: ConnectRest, topic: str, tmp_path: Path) -> None:
        # No semicolon: a worker that hands a request on writes it bare, and the leader cuts the name there.
        name = "täsk & co, #1 + a=b?"
        config = {"connector.class": FILE_SOURCE, "file": str(tmp_path / "f"), "topic": topic}
        rest.create(name, config, "STOPPED")
        try:
            wait_for("status", lambda: name in rest.statuses())  # until the worker that is asked has read of it
            assert rest.connector_config(name)["topic"] == topic
        finally:
            rest.delete(name)

    @pytest.mark.parametrize("name", ["a/b", "100%"])
    def test_a_name_that_connect_cannot_address_is_explained(self, rest: ConnectRest, name: str) -> None:
        with pytest.raises(ConnectRestError, match="takes no address with them"):
            rest.connector_config(name)

    def test_the_brokers_port_is_not_taken_for_a_worker(self, lab: Lab) -> None:
        with ConnectRest(f"http://{lab.bootstrap_servers}") as rest, pytest.raises(UnreachableError, match="REST port"):
            rest.root()


class TestClusterState:
    """One connector's life, in the config topic and in the group."""

    def state(self, lab: Lab, settings: KafkaSettings) -> ClusterState:
        return read_cluster_state(settings, f"{lab.group_id}-configs")

    def test_a_connector_from_creation_to_deletion(self, lab: Lab, settings: KafkaSettings, rest: ConnectRest) -> None:
        name = f"mirror-{uuid.uuid4().hex[:6]}"
        source = new_topic(lab, 3)
        config = mirror(lab, source)

        rest.create(name, config, "STOPPED")
        state = wait_for("the record", lambda: s if name in (s := self.state(lab, settings)).connectors else None)
        created = state.connectors[name]
        assert (created.target_state, created.task_count, created.pending_fencing) == ("STOPPED", None, False)
        assert state.last_rebalance_offset == created.config_offset
        assert created.config["topics"] == source

        wait_for("the worker that is asked has read of it", lambda: name in rest.connectors())
        rest.resume(name)
        fenced = wait_for("three tasks", lambda: self.fenced(lab, settings, name, 3))
        assert fenced.target_state == "STARTED"
        assert not fenced.inconsistent
        assert fenced.task_set is not None
        assert len(fenced.task_set.configs) == 3
        wait_for("running tasks", lambda: running(rest, name, 3))
        wait_for("the end of every rebalance", lambda: all_caught_up(lab))

        before = self.state(lab, settings)
        rest.pause(name)
        after = wait_for("the pause", lambda: self.with_state(lab, settings, name, "PAUSED"))
        assert after.end_offset > before.end_offset
        assert after.last_rebalance_offset == before.last_rebalance_offset
        assert max(describe_group(settings, lab.group_id).config_offsets.values()) > after.last_rebalance_offset
        assert max(describe_group(settings, lab.group_id).config_offsets.values()) < after.end_offset

        rest.resume(name)
        rest.put_config(name, {**config, "tasks.max": "2"})
        refenced = wait_for("two tasks", lambda: self.fenced(lab, settings, name, 2))
        assert refenced.commit_offset > fenced.commit_offset

        rest.stop(name)
        stopped = wait_for("the stop", lambda: self.with_state(lab, settings, name, "STOPPED")).connectors[name]
        assert stopped.task_count == 0
        # As below: a task that asks after the stop may have a record of no tasks by now.
        assert stopped.pending_fencing is (stopped.task_count_record == 2)

        rest.delete(name)
        gone = wait_for("the deletion", lambda: s if name not in (s := self.state(lab, settings)).connectors else None)
        # Each task asks the leader for a round as it starts. One that asks after the stop gets a record of no tasks
        # (``DistributedHerder.doFenceZombieSourceTasks`` writes the count that is configured then).
        assert gone.task_count_records[name].count in (0, 2)
        assert gone.unknown == gone.malformed == ()
        assert gone.last_rebalance_offset > before.last_rebalance_offset

    def test_a_transactional_leader_leaves_gaps_that_prove_it(
        self, lab: Lab, settings: KafkaSettings, rest: ConnectRest, tmp_path: Path
    ) -> None:
        config = {"connector.class": FILE_SOURCE, "file": str(tmp_path / "f"), "topic": new_topic(lab)}
        rest.put_config("gaps", config)
        rest.put_config("gaps", {**config, "batch.size": "7"})  # the second record of one key: no compaction so far
        state = wait_for(
            "a commit after it", lambda: self.fenced(lab, settings, "gaps", 1) and self.state(lab, settings)
        )
        rest.delete("gaps")
        assert state.marker_gaps
        raw = read_to_end(settings, f"{lab.group_id}-configs", isolation="read_uncommitted")
        assert not set(state.marker_gaps) & {record.offset for record in raw.records}

    def test_a_topic_that_is_followed_gives_the_state_that_a_replay_gives(
        self, lab: Lab, settings: KafkaSettings, rest: ConnectRest, tmp_path: Path
    ) -> None:
        session = Session(settings)

        def follow() -> ClusterState:
            return read_cluster_state(session, f"{lab.group_id}-configs")

        before = follow()
        config = {"connector.class": FILE_SOURCE, "file": str(tmp_path / "f"), "topic": new_topic(lab)}
        rest.put_config("followed", config)
        wait_for("its fencing", lambda: self.fenced(lab, settings, "followed", 1))
        grown = follow()
        rest.delete("followed")
        wait_for("its end", lambda: "followed" not in follow().connectors)
        after, whole = follow(), self.state(lab, settings)
        session.close()
        assert ["followed" in seen.connectors for seen in (before, grown, after)] == [False, True, False]
        # Which gaps are certainly markers depends on where a read began.
        assert replace(after, marker_gaps=()) == replace(whole, marker_gaps=())

    def test_a_topic_that_was_made_anew_under_its_name_is_read_from_its_beginning(
        self, lab: Lab, settings: KafkaSettings
    ) -> None:
        topic = new_topic(lab)
        plain = Producer({"bootstrap.servers": lab.bootstrap_servers})
        for name in ("old", "older"):
            plain.produce(topic, '{"properties":{}}', key=f"connector-{name}")
        assert plain.flush(180) == 0
        session = Session(settings)
        assert set(read_cluster_state(session, topic).connectors) == {"old", "older"}
        admin = AdminClient({"bootstrap.servers": lab.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(timeout=180)
        wait_for("the topic is gone", lambda: topic not in admin.list_topics(timeout=180).topics)
        lab.create_topic(topic, 1)
        again = Producer({"bootstrap.servers": lab.bootstrap_servers})
        for name in ("a", "b", "c"):
            again.produce(topic, '{"properties":{}}', key=f"connector-{name}")
        assert again.flush(180) == 0
        assert set(read_cluster_state(session, topic).connectors) == {"a", "b", "c"}
        session.close()

    def test_the_session_key_is_nowhere(self, lab: Lab, settings: KafkaSettings) -> None:
        secrets = session_keys(lab)
        assert secrets  # so there was something to find
        shown = repr(self.state(lab, settings))
        assert not [secret for secret in secrets if secret in shown or secret[:10] in shown]

    def test_another_topic_is_no_config_topic(self, lab: Lab, settings: KafkaSettings) -> None:
        with pytest.raises(ConfigurationError, match="5 partitions"):
            read_cluster_state(settings, f"{lab.group_id}-offsets")

    def test_an_open_transaction_of_the_leader_is_told(
        self, lab: Lab, settings: KafkaSettings, producer: Producer
    ) -> None:
        topic = new_topic(lab)
        producer.begin_transaction()
        send(producer, topic, "open")
        with pytest.raises(ReadTimeoutError, match="open transaction"):
            answered(lambda: read_cluster_state(settings, topic, timeout_seconds=4))
        producer.abort_transaction(180)

    def fenced(self, lab: Lab, settings: KafkaSettings, name: str, count: int) -> Any:
        found = self.state(lab, settings).connectors.get(name)
        if found and found.task_count == count == found.task_count_record and not found.pending_fencing:
            return found
        return None

    def with_state(self, lab: Lab, settings: KafkaSettings, name: str, target: str) -> ClusterState | None:
        state = self.state(lab, settings)
        return state if state.connectors[name].target_state == target else None


class TestGroup:
    def test_placement_is_where_the_statuses_say_through_every_rebalance(
        self, lab: Lab, settings: KafkaSettings, rest: ConnectRest
    ) -> None:
        first, second = (worker_id(url) for url in lab.connect_urls)
        rest.put_config("group-a", mirror(lab, new_topic(lab, 3)))
        rest.put_config("group-b", mirror(lab, new_topic(lab, 3)))
        wait_for("six tasks", lambda: running(rest, "group-a", 3) and running(rest, "group-b", 3))
        group = self.settled(lab, settings, rest)
        assert (group.protocol, group.protocol_type) == ("sessioned", "connect")
        assert {member.worker_id for member in group.members} == {first, second}
        assert [member.problem for member in group.members] == [None, None]
        assert all(placed.tasks for placed in (group.placement or {}).values())

        index = 1 if group.leader and group.leader.worker_id == first else 0
        other = worker_id(lab.connect_urls[1 - index])
        with ConnectRest(lab.connect_urls[1 - index]) as rest_of_other:
            with ThreadPoolExecutor(1) as pool:  # not the leader: its tasks wait for the delay while it still ends
                stopping = pool.submit(lab.stop_worker, index)
                waiting = wait_for("the delay", lambda: (g := describe_group(settings, lab.group_id)).delay_ms and g)
                stopping.result()
            assert waiting.placement is not None
            assert set(waiting.placement) == {other}
            assert len(waiting.placement[other].tasks) < 6
            wait_for(
                "all on one", lambda: running(rest_of_other, "group-a", 3) and running(rest_of_other, "group-b", 3)
            )
            alone = self.settled(lab, settings, rest_of_other)
            assert alone.placement is not None
            assert len(alone.placement[other].tasks) == 6

        lab.start_worker(index)
        wait_for("both again", lambda: self.shared(lab, settings))
        again = self.settled(lab, settings, rest)
        assert again.delay_ms == 0
        for name in ("group-a", "group-b"):
            rest.delete(name)

    def settled(self, lab: Lab, settings: KafkaSettings, rest: ConnectRest) -> WorkerGroup:
        """The group, as soon as placement and statuses agree for all connectors."""

        def look() -> WorkerGroup | None:
            group = describe_group(settings, lab.group_id)
            placements = {
                (name, task.number): task.worker_id
                for name, status in rest.statuses().items()
                for task in status.tasks
                if task.state == "RUNNING"
            }
            placed = {task: w for w, placement in (group.placement or {}).items() for task in placement.tasks}
            return group if placed and placed == placements else None

        found: WorkerGroup = wait_for("agreement of placement and statuses", look)
        return found

    def shared(self, lab: Lab, settings: KafkaSettings) -> bool:
        placement = describe_group(settings, lab.group_id).placement or {}
        return len(placement) == 2 and all(placed.tasks for placed in placement.values())

    def test_a_group_that_does_not_exist_is_answered_with_those_that_do(
        self, lab: Lab, settings: KafkaSettings
    ) -> None:
        with pytest.raises(ConfigurationError, match=f"no group nobody.*{lab.group_id}"):
            describe_group(settings, "nobody")
        assert lab.group_id in {group.group_id for group in other_groups(settings, "")}

    def test_a_consumer_group_is_refused_with_the_reason(self, lab: Lab, settings: KafkaSettings, topic: str) -> None:
        name = f"consumers-{uuid.uuid4().hex[:6]}"
        consumer = Consumer({"bootstrap.servers": lab.bootstrap_servers, "group.id": name})
        try:
            consumer.subscribe([topic])
            wait_for("the consumer in its group", lambda: consumer.poll(0.2) or consumer.assignment())
            with pytest.raises(ConfigurationError, match="protocol type is 'consumer'"):
                describe_group(settings, name)
            assert name not in {group.group_id for group in other_groups(settings, "")}
        finally:
            consumer.close()


class TestTrouble:
    """What `eos status` and `eos plan` say of a cluster that is not well; each test leaves it well."""

    @pytest.fixture
    def source(self, lab: Lab, rest: ConnectRest, tmp_path: Path) -> Iterator[str]:
        """A connector with a running task."""
        name = f"source-{uuid.uuid4().hex[:6]}"
        file = tmp_path / "lines"
        file.write_text("a line\n", encoding="utf-8")
        rest.put_config(name, {"connector.class": FILE_SOURCE, "file": str(file), "topic": new_topic(lab)})
        wait_for("its task", lambda: running(rest, name, 1))
        # A worker that reads of the task late asks for one more rebalance while the task runs already.
        wait_for("the end of every rebalance", lambda: all_caught_up(lab))
        yield name
        with ConnectRest(lab.connect_urls[0], retry_refused=True, retry_seconds=180) as again:
            again.delete(name)
        wait_for("the end of every rebalance", lambda: all_caught_up(lab))

    def task_worker(self, lab: Lab, source: str) -> int:
        """Index of the worker that has the connector's task."""
        observation = Observer(lab.cluster()).observe_settled()
        assert observation.statuses is not None
        return [worker_id(url) for url in lab.connect_urls].index(observation.statuses[source].tasks[0].worker_id)

    def test_a_property_that_kafka_python_does_not_have_is_refused_by_its_name(self, lab: Lab) -> None:
        kafka = KafkaSettings.of(lab.bootstrap_servers, {"builtin.features": "gzip,snappy,lz4,zstd"})
        with pytest.raises(ConfigurationError, match=r"'builtin\.features' cannot be kept"):
            describe_group(kafka, lab.group_id)

    def test_a_dead_workers_last_word_is_told_as_such(
        self, lab: Lab, source: str, eos_of: Callable[[Lab, Path], Any], tmp_path: Path
    ) -> None:
        index = self.task_worker(lab, source)
        name = worker_id(lab.connect_urls[index])
        lab.stop_worker(index, kill=True)
        try:
            observation = Observer(lab.cluster()).observe_settled()  # before its session ends
            assert name in observation.members
            (dead,) = [f for f in findings(observation) if f.found.startswith(f"{name} is dead: no process of it runs")]
            assert f"last reported before it stopped answering: task {source}-0 RUNNING" in dead.found.replace(
                f"connector {source} RUNNING, ", ""
            )
            checks = obstacles.check(observation, Mode.ENABLED, SETTINGS).checks
            (roster,) = [check for check in checks if check.subject == "roster"]
            assert f"{name} is dead" in roster.found
            assert "pid_file" not in roster.remedy
            shown = json.loads(eos_of(lab, tmp_path).run("status", "--json", "--exit-code", expect=1).stdout)
            (task,) = next(c for c in shown["connectors"] if c["connector"] == source)["tasks"]
            assert task["last_word"] is (task["reported_by"] == name)
        finally:
            lab.start_worker(index)

    def test_a_worker_that_is_suspended_is_named_and_holds_nothing_up(self, lab: Lab, source: str) -> None:
        index = self.task_worker(lab, source)
        name = worker_id(lab.connect_urls[index])
        identity = lab.worker_process(index)
        assert identity is not None
        cluster = lab.cluster()
        cluster = replace(cluster, rest=replace(cluster.rest, timeout_seconds=2.0))
        process = psutil.Process(identity.pid)
        process.suspend()
        try:
            observation = Observer(cluster).observe_settled()
        finally:
            process.resume()
        words = f"{name}: its process {identity.pid} is suspended (SIGSTOP), "
        (finding,) = [f for f in findings(observation) if f.found.startswith(words)]
        assert "did not answer GET / within 2 s" in finding.found
        assert f"task {source}-0 RUNNING" in finding.found
        assert finding.remedy == f"continue it: kill -CONT {identity.pid}"
        assert observation.statuses is not None
        other = Observer(lab.cluster())
        wait_for("the group is whole again", lambda: not findings(other.observe_settled()))

    def test_a_file_that_the_process_has_not_read_is_a_finding(
        self, lab: Lab, eos_of: Callable[[Lab, Path], Any], tmp_path: Path
    ) -> None:
        """The description names a copy of the file: nothing can set back when the lab's own was last changed."""
        eos, config = eos_of(lab, tmp_path), lab.workers[1].config
        edited, described = tmp_path / "edited.properties", tmp_path / "edited.yaml"
        edited.write_bytes(config.read_bytes() + b"# an edit that no process has read\n")
        described.write_text(lab.cluster_file.read_text().replace(str(config), str(edited)))
        words = f"the file {edited} of {worker_id(lab.connect_urls[1])} "
        dates = config.stat()
        for date_is_kept, what in ((False, "was changed after"), (True, "is dated before")):
            if date_is_kept:
                os.utime(edited, ns=(dates.st_atime_ns, dates.st_mtime_ns))
            found = eos.run("status", "--cluster", str(described), "--json", "--exit-code", expect=1).stdout
            shown = [each["found"] for each in json.loads(found)["findings"]]
            assert [each for each in shown if each.startswith(f"{words}{what} the worker's start")]
        eos.run("status", "--cluster", str(described))  # ends with 0: a person reads it
        eos.run("status", "--exit-code")

    def test_of_workers_that_are_described_by_their_urls_what_can_be_seen_is_shown(
        self, lab: Lab, source: str, eos_of: Callable[[Lab, Path], Any], tmp_path: Path
    ) -> None:
        """As 'eos discover' proposes workers of other machines."""
        urls_only = tmp_path / "urls.yaml"
        urls_only.write_text(
            json.dumps(
                {
                    "bootstrap_servers": lab.bootstrap_servers,
                    "group_id": lab.group_id,
                    "workers": [{"url": url} for url in lab.connect_urls],
                }
            )
        )
        eos = eos_of(lab, tmp_path)

        shown = json.loads(eos.run("status", "--cluster", str(urls_only), "--json").stdout)

        names = ", ".join(map(worker_id, lab.connect_urls))
        assert [finding["found"] for finding in shown["findings"]] == [
            f"the cluster file has only the URL of {names}, so these are unknown: configuration, process, log and "
            "mode, and with them the config topic, pending fencing and the rebalance delay"
        ]
        assert shown["state"] == "Stable"
        assert shown["leader"] in map(worker_id, lab.connect_urls)
        assert source in [connector["connector"] for connector in shown["connectors"]]
        assert [worker["health"] for worker in shown["workers"]] == ["healthy"] * len(lab.connect_urls)
        assert "for an unknown time when a worker leaves" in eos.run("status", "--cluster", str(urls_only)).stdout

    def test_a_worker_described_by_another_name_of_its_address_is_recognised(self, lab: Lab) -> None:
        cluster = lab.cluster()
        first, *others = cluster.workers
        described = replace(first, url=first.url.replace("127.0.0.1", "localhost"))
        observation = Observer(replace(cluster, workers=(described, *others))).observe_settled()
        same = f"{first.worker_id}, a member of the group, and {described.worker_id} of the cluster"
        assert [f.remedy.partition(" (")[0] for f in findings(observation) if f.found.startswith(same)] == [
            f"write the advertised url in the cluster file: {first.url}"
        ]
        (roster,) = [c for c in obstacles.check(observation, Mode.ENABLED, SETTINGS).checks if c.subject == "roster"]
        assert roster.found.startswith(same)

    def test_a_second_group_on_the_same_topics_is_found_refused_and_mended(
        self,
        lab: Lab,
        settings: KafkaSettings,
        rest: ConnectRest,
        source: str,
        eos_of: Callable[[Lab, Path], Any],
        tmp_path: Path,
    ) -> None:
        """Its worker is started by a plain script of its owner, with a secret in its environment."""
        worker = replace(lab.workers[0], folder=tmp_path, number=9, port=free_ports(1)[0])
        properties = worker.properties(
            bootstrap_servers=lab.bootstrap_servers, group_id=lab.group_id, mode=Mode.ENABLED, rebalance_delay_ms=3000
        )
        write_properties(worker.config, {**properties, "group.id": "foreign"})
        shutil.copy(lab.root / "log4j2.xml", tmp_path)
        script, log = tmp_path / "start-worker.sh", tmp_path / "connect.log"
        command = shlex.join(worker.start_command)
        script.write_text(f"{command} >> {log} 2>&1 &\necho $! > worker.pid\nwait\n", encoding="utf-8")
        process = spawn(
            ["/bin/sh", str(script)], log=tmp_path / "out", cwd=tmp_path, env={"KAFKA_OPTS": "-Dpassword=CANARY"}
        )
        java = None
        try:
            with ConnectRest(worker.url, retry_refused=True, retry_seconds=180) as foreign:
                wait_for("health", lambda: foreign.health().status == "healthy")
            java = int((tmp_path / "worker.pid").read_text())
            foreign_id = worker_id(worker.url)

            eos_of(lab, tmp_path).run(
                "discover", "-g", "foreign", "-b", lab.bootstrap_servers, "--write", str(tmp_path / "eos.yaml")
            )
            text = (tmp_path / "eos.yaml").read_text(encoding="utf-8")
            assert (tmp_path / "eos.yaml").stat().st_mode & 0o777 == 0o600
            assert "CANARY" not in text
            assert "KAFKA_OPTS" in text  # so there was something to leave out
            described = ConnectCluster.from_file(tmp_path / "eos.yaml").workers[0]
            assert described.start == ("/bin/sh", str(script))
            assert (described.config, described.log, described.cwd) == (worker.config, log, tmp_path)
            assert described.pid_file == tmp_path / "worker.pid"
            facts = Observer(ConnectCluster.from_file(tmp_path / "eos.yaml")).observe().workers[0].facts
            assert (facts.problem, pid_of(facts), facts.running.mode) == (
                None,
                java,
                Mode.ENABLED,
            )

            def reported_by_the_other() -> Observation | None:
                observation = Observer(lab.cluster()).observe()
                doubts = doubtful(observation, Doubt.UNKNOWN_WORKER)
                return observation if any(report.connector == source for report in doubts) else None

            seen = wait_for("the foreign worker reports", reported_by_the_other)
            words = f"two Connect groups use the same internal topics: {foreign_id}, a member of group foreign"
            assert [f.found for f in findings(seen) if f.found.startswith(words)]
            result = obstacles.check(seen, Mode.ENABLED, SETTINGS)
            (refused,) = [check for check in result.findings if check.subject == "connectors"]
            assert refused.verdict is Verdict.FAIL
            assert "a member of group foreign" in refused.found
        finally:
            for pid in filter(None, (java, process.pid)):
                identity = identify(pid)
                if identity is not None:
                    identity.stop()

        def left_behind() -> str | None:
            found = findings(Observer(lab.cluster()).observe_settled())
            return next(
                (f.remedy for f in found if f.found.startswith(f"{foreign_id} reports, but is no member")), None
            )

        remedy = wait_for("what it left behind is reported", left_behind)
        assert f"/connectors/{source}/restart?includeTasks=true&onlyFailed=false" in remedy
        rest.restart(source, include_tasks=True)
        wait_for("the group reports itself again", lambda: not findings(Observer(lab.cluster()).observe_settled()))


def test_a_broker_that_hangs_is_given_up_in_time(lab: Lab, settings: KafkaSettings, topic: str) -> None:
    send(Producer({"bootstrap.servers": lab.bootstrap_servers}), topic, "a")
    identity = lab.broker_process()
    assert identity is not None
    broker = psutil.Process(identity.pid)

    def transactions() -> Any:
        with TransactionsClient(settings, timeout_seconds=2) as client:
            return client.list()

    questions: list[Callable[[], Any]] = [
        lambda: read_to_end(settings, topic, timeout_seconds=2),
        transactions,
        lambda: describe_group(settings, lab.group_id, timeout_seconds=2),
        lambda: read_cluster_state(settings, topic, timeout_seconds=2),
    ]
    broker.send_signal(signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(len(questions)) as pool:
            answers = [pool.submit(question) for question in questions]
            errors = [answer.exception(timeout=180) for answer in answers]
    finally:
        broker.send_signal(signal.SIGCONT)
    assert [type(error) for error in errors] == [UnreachableError] * len(questions), errors


def all_caught_up(lab: Lab) -> bool:
    """Whether every member works on what the last record for a rebalance has brought."""
    kafka = lab.cluster().kafka
    group, state = describe_group(kafka, lab.group_id), read_cluster_state(kafka, f"{lab.group_id}-configs")
    return group.is_stable and min(group.config_offsets.values()) > state.last_rebalance_offset


def running(rest: ConnectRest, name: str, tasks: int) -> bool:
    status = rest.statuses().get(name)
    return status is not None and [task.state for task in status.tasks] == ["RUNNING"] * tasks


def completed(described: dict[str, TransactionDescription]) -> TransactionDescription | None:
    (only,) = described.values()
    return only if only.state == "CompleteCommit" else None


def worker_id(url: str) -> str:
    return url.removeprefix("http://")


def session_keys(lab: Lab) -> list[str]:
    """The session keys themselves, read without the code under test, to look for them."""
    consumer = Consumer({"bootstrap.servers": lab.bootstrap_servers, "group.id": "test", "enable.partition.eof": True})
    secrets = []
    try:
        consumer.assign([TopicPartition(f"{lab.group_id}-configs", 0, 0)])
        while not (message := wait_for("the topic's end", lambda: consumer.poll(1.0))).error():
            if message.key() == b"session-key":
                secrets.append(message.value().decode().split('"')[3])
    finally:
        consumer.close()
    return secrets
