"""``eos transactions`` on a real cluster: whose they are, which one hangs, and its end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.properties import set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.acl_values import CLUSTER_NAME, Acl, Operation, Resource
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription, TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.transactions.auditor import look_at_open
from airflow_eos_provider.transactions.hanging import STATE_TOPIC
from airflow_eos_provider.transactions.last_use import last_used
from tests.integration.hanging_transaction import HangingTransaction
from tests.integration.named_listener import NamedListener, denied
from tests.integration.offsets_cluster import killed
from tests.waiting import until, until_ended

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONNECTOR, TOPIC = "lines", "lines"
SECONDS = 60.0


#: Who may not see everything; the workers and the tests have no name.
OPERATOR, PASSWORD = "operator", "canary-71d0"


@pytest.fixture(scope="module")
def named() -> NamedListener:
    """The listener of those who say who they are, of a broker with an authorizer that soon forgets idle ids."""
    more = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "transactional.id.expiration.ms": "600000",
    }
    return NamedListener(OPERATOR, PASSWORD, more)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab], named: NamedListener) -> Lab:
    """One enabled worker, and a connector that has delivered a line."""
    with named.given():
        lab = lab_factory(name="transactions", mode=Mode.ENABLED, workers=1)
    lab.create_topic(TOPIC, 2)
    file = lab.data_dir / "lines.txt"
    file.write_text("one\n", encoding="utf-8")
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": TOPIC, "file": str(file)}
        rest.create(CONNECTOR, config)
    until(lambda: len(read_to_end(lab.cluster().kafka, TOPIC).records) == 1, "the line", seconds=SECONDS)
    return lab


@pytest.fixture
def operators_file(lab: Lab, named: NamedListener, tmp_path: Path) -> str:
    """The lab's cluster as the operator reaches it."""
    cluster = yaml.safe_load(lab.cluster_file.read_text(encoding="utf-8"))
    file = tmp_path / "operator.yaml"
    file.touch(mode=0o600)
    described = {**cluster, "bootstrap_servers": named.bootstrap_servers, "client": named.client}
    file.write_text(yaml.safe_dump(described), encoding="utf-8")
    return str(file)


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


@contextmanager
def opened(lab: Lab, transactional_id: str, partition: int) -> Iterator[None]:
    """A transaction that is alive: its producer has written a record, and aborts it in the end."""
    settings = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 600_000})
    producer.init_transactions(180)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=partition)
    assert producer.flush(180) == 0
    try:
        yield
    finally:
        producer.abort_transaction(180)


def produce(lab: Lab, value: bytes, partition: int) -> None:
    """A record without a transaction."""
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "log_level": 0})
    producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(180) == 0


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


def test_a_look_describes_what_is_open_and_the_tasks_that_exist_however_many_ids_there_are(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: set[str] = set()
    describe = TransactionsClient.describe

    def counted(client: TransactionsClient, ids: Iterable[str]) -> dict[str, TransactionDescription]:
        asked = set(ids)
        described.update(asked)
        return describe(client, asked)

    monkeypatch.setattr(TransactionsClient, "describe", counted)
    group = lab.group_id
    gone = [f"{group}-gone-{number}" for number in range(100)]
    with TransactionsClient(lab.cluster().kafka) as client:
        client.fence(gone)
    with opened(lab, gone[7], 0), opened(lab, "a-producer", 1), Observer(lab.cluster()) as observer:
        seen = observer.observe()
        assert seen.transactions is not None
        own = {f"connect-cluster-{group}", f"{group}-{CONNECTOR}-0", gone[7]}
        assert {one.transactional_id for one in seen.transactions} == own
        assert described == {*own, "a-producer"}
        assert seen.transactions_problem is None


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


def test_who_waits_behind_a_transaction_is_named_with_how_far_it_is(lab: Lab, eos: Any) -> None:
    with opened(lab, "held-up", 1):
        produce(lab, b"behind", 1)
        (found,) = json.loads(eos.run("transactions", "describe", "held-up", "--json").stdout)
        stable = found["partitions"][0]["stable"]
        for name, offset in (("waits", stable), ("connect-a-sink", stable), ("before", 0), ("past", stable + 1)):
            commit(lab, name, 1, offset)
        commit(lab, "elsewhere", 0, 0)

        (found,) = json.loads(eos.run("transactions", "describe", "held-up", "--json").stdout)
        readers = {one["group_id"]: one for one in found["partitions"][0]["readers"]}
        assert {name: one["standing"] for name, one in readers.items()} == {
            "waits": "waits",
            "connect-a-sink": "waits",
            "before": "before",
            "past": "past",
        }
        assert readers["connect-a-sink"]["connector"] == "a-sink, by its name"
        assert (readers["waits"]["lag_to_stable"], readers["waits"]["lag_to_end"]) == (0, 2)
        assert readers["before"]["lag_to_stable"] == stable
        assert found["readers_unknown"] == []
        shown = eos.run("transactions", "describe", "held-up").stdout
        assert f"group waits: waits at {stable}, 2 to the end" in shown
        assert "elsewhere" not in shown


def commit(lab: Lab, group_id: str, partition: int, offset: int) -> None:
    """Have a consumer group stand at an offset."""
    consumer = Consumer({"bootstrap.servers": lab.bootstrap_servers, "group.id": group_id, "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
    finally:
        consumer.close()


def test_a_transaction_that_is_alive_is_not_called_hanging_and_not_aborted(lab: Lab, eos: Any) -> None:
    with opened(lab, "alive", 0):
        assert "No transaction hangs" in eos.run("transactions", "list", "--hanging", "--exit-code").stdout
        refused = eos.run("transactions", "abort", *at(0), expect=3).stderr
        assert f"No transaction hangs in {TOPIC}-0" in refused
    assert "has no partition 7" in eos.run("transactions", "abort", *at(7), expect=2).stderr
    assert "There is no topic" in eos.run("transactions", "list", "--hanging", "--topic", "none", expect=2).stderr


@pytest.mark.first
def test_a_hanging_transaction_is_found_and_ended_once_and_its_readers_go_on(
    lab: Lab, eos: Any, operators_file: str
) -> None:
    def read() -> list[bytes | None]:
        records = read_to_end(lab.cluster().kafka, TOPIC).records
        return [record.value for record in records if record.partition == 1]

    before = read()
    with HangingTransaction.on(lab, TOPIC, 1):
        produce(lab, b"behind it", 1)
        (found,) = json.loads(eos.run("transactions", "list", "--hanging", "--exit-code", "--json", expect=1).stdout)[
            "hanging"
        ]
        assert (found["topic"], found["partition"], found["transactional_id"]) == (TOPIC, 1, "late")
        assert found["ends"]["waiting"] == 2
        shown = eos.run("transactions", "list", "--hanging", "--exit-code", "--topic", TOPIC, expect=1).stdout
        (command,) = re.findall(r"'eos (transactions abort .*)' ends it", shown)
        assert command == f"transactions abort {' '.join(at(1))} --start-offset {found['start_offset']} --fence"
        assert "Nothing changed" in eos.run(*command.split(), expect=3).stderr  # what it prints can be planned
        of_status = json.loads(eos.run("status", "--json", "--exit-code", expect=1).stdout)["findings"]
        assert [command in finding["remedy"] for finding in of_status if f"{TOPIC}-1 holds" in finding["found"]] == [
            True
        ]

        refused = eos.run("transactions", "abort", *at(1), expect=3).stderr
        assert "with --fence, which shuts it out first" in " ".join(refused.split())
        abort = ("transactions", "abort", *at(1), "--fence")
        shown = eos.run(*abort, "--yes", expect=3)  # records are given up: no --yes is enough
        assert "late is fenced first" in shown.stdout
        assert "Pass --plan HASH: records that were written are given up" in " ".join(shown.stderr.split())
        as_operator = (*abort, "--cluster", operators_file)
        for kind, name, operation, words in (
            (Resource.CLUSTER, CLUSTER_NAME, Operation.ALL, "Alter (or ClusterAction) on the cluster"),
            (Resource.TRANSACTIONAL_ID, "late", Operation.WRITE, "Write on TransactionalId late"),
        ):
            with without(lab, kind, name, operation):  # it is said before a plan is shown, and so before an approval
                until(lambda: eos.run(*as_operator, expect=(2, 3)).returncode == 2, "the rule holds", seconds=SECONDS)
                refused = eos.run(*as_operator, expect=2)
                assert words in " ".join(refused.stderr.split())
                assert refused.stdout == ""
        plan = json.loads(eos.run(*abort, "--json", expect=3).stdout)["plan"]
        assert "does not fit any more" in eos.run(*abort, "--plan", "0" * 12, expect=3).stderr
        killed(lab, "marker", "announced", *abort, "--plan", plan["hash"])
        # It is fenced, and its producer can write nothing more: no reason to fence it again.
        plan = json.loads(eos.run("transactions", "abort", *at(1), "--json", expect=3).stdout)["plan"]
        done = eos.run("transactions", "abort", *at(1), "--plan", plan["hash"], "--json").stdout
        assert json.loads(done)["report"]["after"]["waiting"] == 0
    assert read() == [*before, b"behind it"]
    assert eos.run("transactions", "list", "--hanging", "--exit-code").stdout.strip() == "No transaction hangs."
    assert "No transaction hangs" in eos.run("transactions", "abort", *at(1), expect=3).stderr


def test_an_abort_that_is_killed_after_its_marker_is_over(lab: Lab, eos: Any) -> None:
    with HangingTransaction.on(lab, TOPIC, 0):
        plan = json.loads(eos.run("transactions", "abort", *at(0), "--fence", "--json", expect=3).stdout)["plan"]
        killed(lab, "marker", "carried-out", "transactions", "abort", *at(0), "--fence", "--plan", plan["hash"])
        assert "No transaction hangs" in eos.run("transactions", "abort", *at(0), expect=3).stderr
    assert eos.run("transactions", "list", "--hanging", "--exit-code").stdout.strip() == "No transaction hangs."


def test_a_watch_says_each_change_once_and_ends_when_it_is_interrupted(lab: Lab, eos: Any) -> None:
    watch = eos.start("transactions", "list", "--watch", "1", "--all", "--longer-than", "1", "--json")
    try:
        with opened(lab, "watched", 0):
            assert next_change(watch)["change"] == "open long"
        ended = next_change(watch)
        assert (ended["change"], ended["subject"]) == ("ended", "watched")
        with late_write(lab, 0):
            hangs = next_change(watch)
            assert (hangs["change"], hangs["subject"]) == ("hanging", f"{TOPIC}-0")
            watch.send_signal(signal.SIGINT)
            output, problem = watch.communicate(timeout=10 * SECONDS)
            assert (watch.returncode, output) == (1, ""), problem
    finally:
        watch.kill()
        watch.communicate()
    until(
        lambda: eos.run("transactions", "list", "--watch", "1", "--timeout", "0", expect=(0, 1)).returncode == 0,
        "its end",
        seconds=30,
    )
    assert "There is no topic" in eos.run("transactions", "list", "--watch", "1", "--topic", "none", expect=2).stderr


@contextmanager
def late_write(lab: Lab, partition: int) -> Iterator[None]:
    """A transaction that hangs meanwhile."""
    with HangingTransaction.on(lab, TOPIC, partition) as late, TransactionsClient(lab.cluster().kafka) as client:
        try:
            yield
        finally:
            for held in client.held_open([(TOPIC, partition)]).held:
                if held.producer_id == late.producer_id:
                    client.abort(held)


def next_change(watch: subprocess.Popen[str]) -> dict[str, Any]:
    assert watch.stdout is not None
    line = watch.stdout.readline()  # the watch ends by itself only with an error, and then there is no line
    assert line, watch.communicate()
    change: dict[str, Any] = json.loads(line)
    return change


def test_an_audit_passes_and_names_a_late_write_and_an_id_that_is_near_its_expiration(lab: Lab, eos: Any) -> None:
    fine = json.loads(eos.run("transactions", "audit", "--json").stdout)
    assert (fine["verdict"], fine["findings"], fine["doubts"]) == ("pass", [], [])

    def findings(*options: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(
            eos.run("transactions", "audit", "--json", *options, expect=(0, 1)).stdout
        )["findings"]
        return found

    task = f"{lab.group_id}-{CONNECTOR}-0"
    early = ("--idle-part", "0.01")  # of ten minutes
    until(
        lambda: [(one["kind"], one["subject"]) for one in findings(*early)] == [("idle id", task)],
        "it is idle",
        seconds=SECONDS,
    )
    assert "fails at its next write then (KAFKA-18019)" in " ".join(
        eos.run("transactions", "audit", *early, expect=1).stdout.split()
    )
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.restart_task(CONNECTOR, 0)  # takes the id anew: of its last transaction its coordinator tells nothing then
    with Session(lab.cluster().kafka) as kafka, kafka.transactions() as client:
        until(lambda: client.describe([task])[task].last_started_at_ms is None, "it is taken anew", seconds=SECONDS)
        taken, coordinators = time.time(), Topics(kafka).partitions()[STATE_TOPIC]
        assert last_used(kafka, [task, "nobodys"], coordinators, taken - 600)[task] == pytest.approx(taken, abs=SECONDS)
        assert last_used(kafka, ["nobodys"], coordinators, taken - 600) == {}
        assert last_used(kafka, [task], coordinators, taken + 7_200) == {}
    until(
        lambda: [one["found"].startswith(f"the last use of {task}") for one in findings(*early)] == [True],
        "it is idle again, by its coordinator's log",
        seconds=SECONDS,
    )
    with late_write(lab, 0), opened(lab, "long", 1):
        found = findings("--longer-than", "0")
        assert {(one["kind"], one["subject"]) for one in found} == {
            ("hanging", f"{TOPIC}-0"),
            ("open too long", "long"),
        }


def test_what_a_sensor_waits_for_is_limited_to_the_topics_and_connectors_that_are_named(lab: Lab) -> None:
    group = lab.group_id
    with late_write(lab, 0), opened(lab, f"{group}-one-0", 1), opened(lab, f"{group}-other-0", 1):

        def subjects(**options: Any) -> set[str]:
            found = look_at_open(lab.cluster(), open_seconds=0.0, **options)
            assert found.doubts == ()
            return {one.subject for one in found.findings}

        assert subjects() == {f"{TOPIC}-0", f"{group}-one-0", f"{group}-other-0"}
        assert subjects(connectors=["one"]) == {f"{TOPIC}-0", f"{group}-one-0"}
        assert subjects(connectors=["none"], topics=[f"{group}-configs"]) == set()
    assert look_at_open(lab.cluster()).verdict == "pass"
    with pytest.raises(ConfigurationError, match="There is no topic none"):
        look_at_open(lab.cluster(), topics=["none"])


def test_a_principal_that_may_not_see_all_is_never_told_that_something_hangs_or_that_all_is_well(
    lab: Lab, eos: Any, operators_file: str
) -> None:
    as_operator = ("--cluster", operators_file)
    commit(lab, "a-reader", 0, 0)
    assert eos.run("transactions", "list", "--hanging", "--exit-code", *as_operator).returncode == 0
    with (
        opened(lab, "hidden", 0),
        without(lab, Resource.TRANSACTIONAL_ID, "*", Operation.DESCRIBE),
        without(lab, Resource.GROUP, "a-reader", Operation.DESCRIBE),
    ):

        def hanging() -> subprocess.CompletedProcess[str]:
            done: subprocess.CompletedProcess[str] = eos.run(
                "transactions", "list", "--hanging", "--exit-code", "--json", *as_operator, expect=(0, 5)
            )
            return done

        until(lambda: hanging().returncode == 5, "the rules hold", seconds=SECONDS)
        found = json.loads(hanging().stdout)
        assert found["hanging"] == []
        assert [(one["topic"], one["partition"]) for one in found["unseen"]] == [(TOPIC, 0)]
        refused = eos.run("transactions", "abort", *at(0), *as_operator, expect=3).stderr
        assert "not all could be asked: it may be alive" in " ".join(refused.split())
        audit = json.loads(eos.run("transactions", "audit", "--json", *as_operator, expect=5).stdout)
        assert any("not every coordinator could be asked" in doubt for doubt in audit["doubts"])
        assert any("ids that the principal may not describe" in doubt for doubt in audit["doubts"])
        as_seen = look_at_open(ConnectCluster.from_file(Path(operators_file)), topics=[f"{lab.group_id}-configs"])
        assert as_seen.verdict == "inconclusive"  # nothing hangs there, and of the group's own ids it sees none
        assert "the principal may not describe it" in as_seen.doubts[0]
        assert eos.run("transactions", "list", "--watch", "1", "--timeout", "0", *as_operator, expect=5).returncode == 5
    with (
        without(lab, Resource.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
        without(lab, Resource.GROUP, "*", Operation.DESCRIBE),
    ):
        until(
            lambda: any(
                "there may be groups that" in doubt
                for doubt in json.loads(eos.run("transactions", "audit", "--json", *as_operator, expect=(0, 5)).stdout)[
                    "doubts"
                ]
            ),
            "the rules hold",
            seconds=SECONDS,
        )
    with opened(lab, "seen", 0), without(lab, Resource.GROUP, "a-reader", Operation.DESCRIBE):

        def unknown() -> list[str]:
            described = eos.run("transactions", "describe", "seen", "--json", *as_operator).stdout
            said: list[str] = json.loads(described)[0]["readers_unknown"]
            return said

        until(
            lambda: unknown() == ["group a-reader: the principal may not describe it"],
            "the rule holds",
            seconds=SECONDS,
        )


def test_a_preflight_of_a_principal_that_may_not_see_all_passes_nothing_that_it_has_not_seen(
    lab: Lab, eos: Any, operators_file: str
) -> None:
    def found() -> dict[str, tuple[str, str, str]]:
        done = eos.run("preflight", CONNECTOR, "--json", "--cluster", operators_file, expect=(0, 5))
        findings = json.loads(done.stdout)["findings"]
        return {one["kind"]: (one["verdict"], one["severity"], one["found"]) for one in findings}

    kinds = ("timeout", "fencing", "record-size", "readers")
    group = "reader-of-preflight"
    seen = found()
    assert [seen[kind][0] for kind in kinds[:3]] == ["pass"] * 3
    commit(lab, group, 0, 0)
    with (
        without(lab, Resource.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE_CONFIGS),
        without(lab, Resource.TOPIC, TOPIC, Operation.DESCRIBE_CONFIGS),
    ):
        until(lambda: all(found()[kind][0] == "inconclusive" for kind in kinds[:3]), "the rules", seconds=SECONDS)
        assert found()["timeout"][1] == "blocks"
    with (
        without(lab, Resource.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
        without(lab, Resource.GROUP, "*", Operation.DESCRIBE),
    ):
        hidden = "there may be groups that"

        def said() -> list[str]:
            done = eos.run("preflight", CONNECTOR, "--json", "--cluster", operators_file, expect=(0, 5))
            of_readers = [one for one in json.loads(done.stdout)["findings"] if one["kind"] == "readers"]
            assert {one["verdict"] for one in of_readers} == {"inconclusive"}
            return [one["found"] for one in of_readers]

        until(lambda: any(hidden in words for words in said()), "the rule", seconds=SECONDS)
    with without(lab, Resource.TOPIC, TOPIC, Operation.DESCRIBE):
        until(lambda: f"may not see {TOPIC}" in found()["readers"][2], "the rule", seconds=SECONDS)
        assert {found()[kind][0] for kind in ("record-size", "readers")} == {"inconclusive"}


def without(lab: Lab, resource: Resource, name: str, operation: Operation) -> AbstractContextManager[None]:
    """What the operator may not do meanwhile; everybody else may."""
    return denied(lab, Acl(f"User:{OPERATOR}", operation, resource, name))


def test_groups_that_collide_are_found_and_an_id_of_both_is_said_to_be_of_both(lab: Lab, eos: Any) -> None:
    """Two groups without workers: their config topics, their leaders' ids and their tasks' are as Connect has them."""
    one = f"u{time.monotonic_ns()}"
    other = f"{one}-b"
    write_as_leader(lab, one, f"{one}-configs", "b-c")
    write_as_leader(lab, other, f"{other}-configs", "c")
    for transactional_id in (f"{other}-c-0", f"{one}-daily-planner"):
        producer_of(lab, transactional_id)
    found = json.loads(eos.run("transactions", "audit", "--json", expect=1).stdout)
    assert {(each["kind"], each["subject"]) for each in found["findings"]} == {
        ("collision", f"{other}-c-<task>"),
        ("collision", one),  # an interval pipeline in a Connect group
        ("collision", f"{one}-configs"),
    }
    assert any(f"a prefixed ACL for {one}- covers both" in note for note in found["notes"])
    assert found["doubts"] == []

    write_as_leader(lab, f"{one}-third", f"{other}-configs", "c")
    shared = json.loads(eos.run("transactions", "audit", "--json", expect=1).stdout)
    assert f"{other}-configs" in {each["subject"] for each in shared["findings"]}

    cluster = yaml.safe_load(lab.cluster_file.read_text(encoding="utf-8"))

    def described(name: str, worker_file: bytes) -> str:
        """The file of a cluster of the group ``one``."""
        file, config = (lab.data_dir / f"{name}.{kind}" for kind in ("yaml", "properties"))
        config.write_bytes(worker_file)
        workers = [{**worker, "config": str(config)} for worker in cluster["workers"]]
        file.write_text(yaml.safe_dump({**cluster, "group_id": one, "workers": workers}), encoding="utf-8")
        file.chmod(0o600)
        return str(file)

    same_topics = set_property(lab.workers[0].config.read_bytes(), "group.id", one)
    own_config_topic = set_property(same_topics, "config.storage.topic", f"{one}-configs")
    of_one = ("--cluster", described(one, own_config_topic))
    of_both = listed(eos, *of_one)
    assert of_both.keys() == {f"connect-cluster-{one}", f"{other}-c-0"}
    assert of_both[f"{other}-c-0"]["owner"] == f"b-c, task 0; or group {other}: perhaps c, task 0"
    files = eos.run(
        "transactions", "audit", "--json", "--beside", described(f"{one}-same", same_topics), expect=1
    ).stdout
    subjects = {each["subject"] for each in json.loads(files)["findings"]}
    assert {f"{lab.group_id}-configs", f"{lab.group_id}-offsets", f"{lab.group_id}-status"} <= subjects


def producer_of(lab: Lab, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(180)
    return producer


def write_as_leader(lab: Lab, group_id: str, topic: str, connector: str) -> None:
    """A connector's record as the leader of a group writes it."""
    if topic not in AdminClient({"bootstrap.servers": lab.bootstrap_servers}).list_topics(timeout=180).topics:
        lab.create_topic(topic, 1, {"cleanup.policy": "compact"})
    producer = producer_of(lab, f"connect-cluster-{group_id}")
    producer.begin_transaction()
    value = json.dumps({"properties": {"name": connector, "connector.class": FILE_SOURCE}})
    producer.produce(topic, value.encode(), f"connector-{connector}".encode())
    producer.commit_transaction(180)
    until_ended(lab.cluster().kafka, f"connect-cluster-{group_id}")
