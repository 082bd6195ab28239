"""A change of source offsets beside what other people do to the same connector, topic or group at that moment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from airflow_eos_provider.changes.change import Plan
from airflow_eos_provider.changes.offsets.change import MIGRATE, RESET, MigrateRequest, ResetRequest, Whose
from airflow_eos_provider.connect.group import WorkerGroup, describe_group
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.config_topic import read_cluster_state
from airflow_eos_provider.connect.topics.internal_topics import OWN_TOPIC
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import ChangeRecord
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.offsets.verbs import apply as apply_module
from tests.changed import changed
from tests.integration.offsets_cluster import END, LINES, SECONDS, Cluster, killed, suspended
from tests.system.modes import close_what_is_open
from tests.waiting import status_of, until


@pytest.fixture(scope="module")
def cluster(lab_factory: Callable[..., Lab]) -> Iterator[Cluster]:
    found = Cluster(
        lab_factory(
            LabOptions(
                name="offsets-races", workers=2, mode=Mode.ENABLED, rebalance_delay_ms=200, session_timeout_ms=6000
            )
        )
    )
    with found.rest:
        yield found


@pytest.fixture(autouse=True)
def next_test_may_begin(cluster: Cluster) -> Iterator[None]:
    """A test that fails in the midst of a change leaves it to no other."""
    yield
    close_what_is_open(cluster.lab)


@pytest.fixture
def eos(cluster: Cluster, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(cluster.lab, tmp_path)


def last_change(cluster: Cluster) -> ChangeRecord:
    return list(read_journal(cluster.lab.cluster().kafka, cluster.lab.group_id).changes.values())[-1]


def test_while_a_worker_hangs_in_a_transaction_nothing_is_changed_and_it_is_shut_out_by_the_next_task(
    cluster: Cluster, eos: Any
) -> None:
    """What it has read is in no committed transaction, so that it comes once, from the next task."""
    in_transaction = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "600000"}
    cluster.start("hung", **in_transaction)
    transactional_id = f"{cluster.lab.group_id}-hung-0"

    def state() -> TransactionState | None:
        with TransactionsClient(cluster.lab.cluster().kafka) as client:
            described = client.describe([transactional_id]).get(transactional_id)
        return described.state if described else None

    until(lambda: state() is TransactionState.ONGOING, "an open transaction", seconds=SECONDS)
    (task,) = status_of(cluster.rest, "hung").tasks
    (hanging,) = [index for index, url in enumerate(cluster.lab.connect_urls) if url.endswith(task.worker_id)]
    worker = cluster.lab.worker_process(hanging)
    assert worker is not None
    process = psutil.Process(worker.pid)
    process.suspend()
    try:
        refused = eos.run("offsets", "reset", "hung", "--yes", expect=3).stderr
        assert f"source connectors run on {task.worker_id}: " in " ".join(refused.split())
        with ConnectRest(cluster.lab.connect_urls[1 - hanging], retry_seconds=180) as other:
            other.put_config("hung", cluster.config("hung"))
        cluster.until_delivered("hung", LINES)
    finally:
        process.resume()
    group = partial(describe_group, cluster.lab.cluster().kafka, cluster.lab.group_id)
    until(lambda: len(group().members) == len(cluster.lab.connect_urls), "the worker to be back", seconds=SECONDS)
    cluster.deliver("hung", "four", Counter(LINES))


def test_of_two_changes_at_once_one_is_refused_and_its_plan_does_not_fit_later(cluster: Cluster, eos: Any) -> None:
    cluster.source("twice")
    plan = json.loads(eos.run("offsets", "reset", "twice", "--json", expect=3).stdout)["plan"]
    reset = ("offsets", "reset", "twice", "--plan", plan["hash"])
    partition = json.dumps({"filename": str(cluster.file("twice"))})
    alter = ("offsets", "alter", "twice", "--partition", partition, "--offset", '{"position": 4}', "--yes")
    with suspended(cluster.lab, "write", *reset) as first:
        holder = last_change(cluster).change_id
        refused = eos.run(*alter, expect=3).stderr
        assert "is being changed by" in refused
        assert holder in refused
        assert first.end() == 0, first.errors
    cluster.until_read("twice", 2)
    # The connector has the very offset of the plan again.
    assert f"last changed by {holder}" in " ".join(eos.run(*reset, expect=3).stderr.split())
    said = list[str]()
    again = changed(cluster.lab.cluster(), RESET, Plan.from_dict(plan), report=said.append)
    assert [one["written"] for one in again.to_dict()["connectors"]] == [0]
    assert said == [f"Nothing to do: {holder} has carried this plan out."]
    assert cluster.removals("twice") == 1

    plan_hash = json.loads(eos.run("offsets", "reset", "twice", "--json", expect=3).stdout)["plan"]["hash"]
    both = [eos.start("offsets", "reset", "twice", "--plan", plan_hash, "--json") for _ in range(2)]
    ended = [(process.communicate(timeout=400), process.returncode) for process in both]
    codes = {code for _, code in ended}
    assert 0 in codes, ended
    assert codes <= {0, 3, 7}, ended  # 3: refused; 7: the other one came in between and has fenced it
    cluster.until_read("twice", 3)
    assert cluster.removals("twice") == 2


def test_a_reset_goes_on_while_a_worker_leaves_and_joins_again(cluster: Cluster) -> None:
    cluster.source("moved")
    with suspended(cluster.lab, "stop,write", "offsets", "reset", "moved", "--yes") as change:
        cluster.lab.stop_worker(0)  # the one that is asked first
        change.go_on()
        change.await_step()
        cluster.lab.start_worker(0)
        assert change.end() == 0, change.errors
    cluster.until_read("moved", 2)
    assert cluster.removals("moved") == 1


def test_a_connector_that_is_started_or_configured_in_the_midst_keeps_its_offset_and_its_task(
    cluster: Cluster, eos: Any
) -> None:
    cluster.source("touched")
    reset = ("offsets", "reset", "touched", "--yes")
    with suspended(cluster.lab, "fence", *reset) as change:
        cluster.rest.put_config("touched", {**cluster.config("touched"), "tasks.max": "2"})
        assert change.end() == 3
    with suspended(cluster.lab, "write", *reset) as change:
        cluster.rest.resume("touched")
        until(lambda: cluster.state("touched") == "RUNNING", "the connector", seconds=SECONDS)
        assert change.end() == 3
        assert "touched was started or configured" in change.errors
    assert last_change(cluster).state == "paused"
    assert cluster.committed("touched") == END
    cluster.deliver("touched", "four", Counter(LINES))
    with suspended(cluster.lab, "start", *reset) as change:
        cluster.rest.pause("touched")
        assert change.end() == 0, change.errors
    until(lambda: cluster.state("touched") == "PAUSED", "the pause", seconds=SECONDS)
    assert last_change(cluster).state == "done"
    assert cluster.rest.connector_config("touched")["tasks.max"] == "2"
    assert cluster.removals("touched") == 1
    cluster.rest.resume("touched")
    cluster.until_delivered("touched", 2 * (*LINES, "four"))


def test_a_connector_that_is_started_while_it_stops_is_left_alone_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: the wait for its stop would end with another error."""
    cluster.source("revived")

    def resume_first(*arguments: Any) -> WorkerGroup:
        monkeypatch.undo()
        placed = describe_group(*arguments)
        cluster.rest.resume("revived")
        until(lambda: cluster.state("revived") == "RUNNING", "the connector", seconds=SECONDS)
        return placed if placed.placement is None else describe_group(*arguments)

    monkeypatch.setattr(apply_module, "describe_group", resume_first)
    with pytest.raises(RefusedError, match="revived was started or configured"):
        changed(cluster.lab.cluster(), RESET, ResetRequest(connector="revived"))
    cluster.deliver("revived", "four", Counter(LINES))


def test_a_migration_leaves_what_others_configure_at_that_moment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "configured"
    cluster.source(name)
    patch = ConnectRest.patch_config

    def configure_first(rest: ConnectRest, connector: str, changes: dict[str, str | None]) -> None:
        rest.put_config(connector, {**cluster.config(connector), "batch.size": "7"})
        patch(rest, connector, changes)

    monkeypatch.setattr(ConnectRest, "patch_config", configure_first)
    migration = MigrateRequest(connector=name, to=Whose.OWN, topic=f"{name}-offsets")
    changed(cluster.lab.cluster(), MIGRATE, migration)
    config = cluster.rest.connector_config(name)
    assert (config[OWN_TOPIC], config.get("batch.size")) == (f"{name}-offsets", "7")
    assert config["file"] == cluster.config(name)["file"]


def test_a_connector_that_is_started_before_a_migration_configures_it_goes_on_in_its_former_place(
    cluster: Cluster, eos: Any
) -> None:
    cluster.source("early")
    delivered = Counter(LINES)
    for place in ("own", "global"):
        migrate = ("offsets", "migrate", "early", "--to", place, "--yes")
        own_topic = cluster.rest.connector_config("early").get(OWN_TOPIC)
        with suspended(cluster.lab, "configure", *migrate) as change:
            cluster.rest.resume("early")
            cluster.deliver("early", f"{place}, line 1", delivered)  # its offset is in the former place alone
            assert change.end() == 3
            assert "early was started or configured" in change.errors
        assert cluster.rest.connector_config("early").get(OWN_TOPIC) == own_topic
        cluster.deliver("early", f"{place}, line 2", delivered)
        killed(cluster.lab, "configure", "announced", *migrate)
        cluster.rest.resume("early")
        cluster.deliver("early", f"{place}, line 3", delivered)
        eos.run(*migrate)
        assert last_change(cluster).state == "done"
        assert cluster.rest.connector_config("early").get(OWN_TOPIC) != own_topic
        cluster.deliver("early", f"{place}, line 4", delivered)


def test_a_connector_that_is_deleted_or_created_in_the_midst_stays_so_with_its_offset(
    cluster: Cluster, eos: Any
) -> None:
    cluster.source("gone")
    with suspended(cluster.lab, "configure", "offsets", "migrate", "gone", "--to", "own", "--yes") as change:
        cluster.rest.delete("gone")
        assert change.end() == 3
        assert "gone was deleted" in change.errors
    assert "gone" not in read_cluster_state(cluster.lab.cluster().kafka, f"{cluster.lab.group_id}-configs").connectors
    assert last_change(cluster).state == "aborted"
    with suspended(cluster.lab, "write", "offsets", "prune", "gone", "--yes") as change:
        cluster.rest.create("gone", cluster.config("gone"))
        until(lambda: "gone" in cluster.rest.connectors(), "the connector", seconds=SECONDS)
        assert change.end() == 3
        assert "gone was created" in change.errors
    assert last_change(cluster).state == "aborted"
    cluster.deliver("gone", "four", Counter(LINES))
    with suspended(cluster.lab, "write", "offsets", "reset", "gone", "--yes") as change:
        cluster.rest.delete("gone")
        assert change.end() == 3
        assert "gone was deleted" in change.errors
    assert last_change(cluster).state == "aborted"
    assert cluster.removals("gone") == 0


def test_a_topic_that_gets_more_partitions_in_the_midst_takes_no_offset_and_a_new_topic_does(
    cluster: Cluster, eos: Any
) -> None:
    cluster.start("raised", **{"offsets.storage.topic": "raised-offsets"})
    cluster.until_delivered("raised", LINES)  # and its offset, in the same transaction
    with suspended(cluster.lab, "write", "offsets", "reset", "raised", "--yes") as change:
        admin = AdminClient({"bootstrap.servers": cluster.lab.bootstrap_servers})
        admin.create_partitions([NewPartitions("raised-offsets", 26)])["raised-offsets"].result(timeout=180)
        described = Topics(cluster.lab.cluster().kafka).describe
        until(lambda: described(["raised-offsets"])["raised-offsets"].partitions == 26, "partitions", seconds=SECONDS)
        assert change.end() == 3
        assert "raised-offsets is not the planned one" in change.errors
    assert (last_change(cluster).state, cluster.state("raised")) == ("aborted", "RUNNING")
    (offset,) = json.loads(eos.run("offsets", "list", "raised", "--json").stdout)
    assert offset["offset"] == END
    refused = eos.run("offsets", "reset", "raised", "--yes", expect=3).stderr
    assert "1 key of raised is in another partition of raised-offsets" in " ".join(refused.split())
    eos.run("offsets", "migrate", "raised", "--to", "own", "--topic", "raised-anew", "--yes")
    eos.run("offsets", "reset", "raised", "--yes")
    cluster.until_delivered("raised", 2 * LINES)
