"""A secured lab: who is let in, who may do what, and what it shows of its secrets."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.acls.rules import (
    ConnectorFacts,
    IntervalFacts,
    Rule,
    connector_rules,
    interval_rules,
    worker_rules,
)
from airflow_eos_provider.acls.tool_rules import READING, tool_rules
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.demo.oracle import compare, drain, expected_from_values
from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.spark.executors.tasks import SLICE_COLUMN, write_rows
from airflow_eos_provider.kafka import kafka_session as session_module
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.lab_processes import own_processes
from airflow_eos_provider.transactions.readable_ends import ends_of
from tests.lab.security import Principal
from tests.secret_search import Found, search_files, search_topics, secrets_of
from tests.waiting import until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    lab = lab_factory(name="secured", secure=True, workers=1, mode=Mode.ENABLED)
    lab.create_topic("orders", 2)
    lab.allow(rule.acl for rule in connector_rules(_connector(lab)))
    file = lab.data_dir / "lines.txt"
    file.write_text("first\n")
    with ConnectRest(lab.connect_urls[0], ConnectCluster.from_file(lab.cluster_file).rest, retry_seconds=180) as rest:
        rest.create("orders", {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "orders", "file": str(file)})
    with Session(lab.kafka) as session:
        until(lambda: any(_end(session, number) for number in range(2)), "its line", seconds=60.0)
    return lab


def _end(session: Session, partition: int) -> int:
    ends = ends_of(session, [("orders", partition)])["orders", partition]
    assert not isinstance(ends, str)
    return ends.stable


def _connector(lab: Lab) -> ConnectorFacts:
    """What decides the rights of the file source that runs here."""
    return ConnectorFacts(
        lab.group_id,
        "orders",
        1,
        f"{lab.group_id}-offsets",
        ["orders"],
        producer=Principal.PRODUCER.acl_name,
        consumer=Principal.CONSUMER.acl_name,
        admin=Principal.ADMIN.acl_name,
        existing=["orders", f"{lab.group_id}-offsets"],
    )


def client_of(lab: Lab, principal: Principal, **changes: str) -> KafkaSettings:
    assert lab.security is not None
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return KafkaSettings.of(lab.bootstrap_servers, {**lab.security.client(principal), **changed})


def tokens_of(lab: Lab, principal: Principal, **changes: str) -> KafkaSettings:
    """The settings of a principal that logs in by tokens."""
    assert lab.security is not None
    assert lab.issuer is not None
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return KafkaSettings.of(lab.token_servers, lab.security.token_client(principal, lab.issuer.port) | changed)


def test_who_comes_with_a_token_has_the_rights_of_its_principal(lab: Lab) -> None:
    with Session(tokens_of(lab, Principal.READER)) as session:
        assert session.cluster_id() == Session(lab.kafka).cluster_id()
        with session.transactions() as client:  # by the other library
            assert f"connect-cluster-{lab.group_id}" in {one.transactional_id for one in client.list()}
    assert AdminClient(tokens_of(lab, Principal.NOBODY).confluent()).list_topics(timeout=180).topics == {}


def test_a_secret_that_the_issuer_does_not_know_gets_no_token(lab: Lab) -> None:
    wrong = tokens_of(lab, Principal.READER, sasl_oauthbearer_client_secret="not-the-secret")
    with Session(wrong) as session, pytest.raises(ConfigurationError) as caught:
        session.cluster_id()
    assert "not-the-secret" not in str(caught.value)


def changed_file(lab: Lab, folder: Path, change: Callable[[dict[str, object]], object]) -> ConnectCluster:
    """The lab's cluster file with other settings of REST."""
    content = yaml.safe_load(lab.cluster_file.read_text())
    change(content["rest"])
    file = folder / "eos.yaml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content))
    return ConnectCluster.from_file(file)


def test_nobody_sees_no_topic_and_the_lab_sees_all(lab: Lab) -> None:
    assert AdminClient(client_of(lab, Principal.NOBODY).confluent()).list_topics(timeout=180).topics == {}
    assert "orders" in AdminClient(lab.kafka.confluent()).list_topics(timeout=180).topics


def test_a_wrong_password_and_a_client_without_tls_are_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "CONNECT_SECONDS", 15.0)
    with (
        pytest.raises(ConfigurationError, match=r"refused .*Authentication failed"),
        Session(client_of(lab, Principal.OPERATOR, sasl_password="not-the-password")) as session,
    ):
        session.cluster_id()
    monkeypatch.setattr(session_module, "CONNECT_SECONDS", 0.5)  # nothing comes, however long one waits
    with pytest.raises(UnreachableError), Session(KafkaSettings.of(lab.bootstrap_servers)) as session:
        session.cluster_id()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rest: rest.update(password="not-the-password"), r"refused GET /: 401.*\n.*rest\.password"),
        (lambda rest: (rest.pop("username"), rest.pop("password")), "refused GET /: 401"),
        (lambda rest: (rest.pop("client_certificate"), rest.pop("client_key")), r"rest\.client_certificate"),
        (lambda rest: rest.pop("ca"), r"(?s)not trusted.*rest\.ca"),
    ],
    ids=["wrong password", "no login", "no certificate", "unknown authority"],
)
def test_the_rest_api_asks_for_certificate_and_login(
    lab: Lab, tmp_path: Path, change: Callable[[dict[str, object]], object], message: str
) -> None:
    cluster = changed_file(lab, tmp_path, change)
    with ConnectRest(lab.connect_urls[0], cluster.rest) as rest, pytest.raises(EosError, match=message):
        rest.root()


def test_its_secrets_are_in_files_of_their_owner_only_and_in_no_topic_or_command_line(lab: Lab) -> None:
    found = Found(secrets_of(lab))
    for path in lab.root.rglob("*"):
        if path.is_file():
            found.search("files", str(path), path.read_bytes())
    assert lab.workers[0].config.as_posix() in found.places()  # it looked
    for place in found.places():
        assert Path(place).stat().st_mode & 0o077 == 0, place
        assert re.search(r"\.log$", place) is None, place
    records = Found(secrets_of(lab))
    search_topics(records, lab)
    assert records.looked_at["records"] > 0
    assert records.hits == set()
    processes = own_processes(lab.root, None)
    assert len(processes) == 3  # the broker, the worker, the issuer of tokens
    commands = Found(secrets_of(lab))
    for process in processes:
        commands.search("command lines", str(process.pid), "\0".join(psutil.Process(process.pid).cmdline()).encode())
    assert commands.hits == set()


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


def plan(eos: Any, to: Mode) -> str:
    return str(json.loads(eos.run("plan", "--to", to, "--allow-downtime", "--json").stdout)["hash"])


def modes_after_roll(eos: Any, to: Mode) -> list[str]:
    report = json.loads(eos.run("apply", "--plan", plan(eos, to), "--allow-downtime", "--json").stdout)["report"]
    return [worker["mode"] for worker in report["workers"]]


def test_a_roll_to_enabled_is_refused_until_its_rights_are_there_and_needs_no_others(lab: Lab, eos: Any) -> None:
    assert modes_after_roll(eos, Mode.PREPARING) == ["preparing"]
    rights = {
        mode: {
            rule.acl
            for rule in (*worker_rules(lab.worker_facts(mode)), *connector_rules(replace(_connector(lab), mode=mode)))
        }
        for mode in (Mode.PREPARING, Mode.ENABLED)
    }
    more = rights[Mode.ENABLED] - rights[Mode.PREPARING]
    assert more
    with TransactionsClient(lab.kafka) as client:
        client.delete_acls(more)
        refused = eos.run("plan", "--to", "enabled", "--allow-downtime", expect=tuple(range(1, 8)))
        assert Principal.PRODUCER.acl_name in refused.stdout + refused.stderr
        client.create_acls(more)
    assert modes_after_roll(eos, Mode.ENABLED) == ["enabled"]
    with (lab.data_dir / "lines.txt").open("a", encoding="utf-8") as file:
        file.write("second\n")
    until(
        lambda: (
            compare(expected_from_values([b"first", b"second"], "the lines"), drain(lab.kafka, "orders")).exactly_once
        ),
        "each line once",
        seconds=60.0,
    )


def test_an_interval_run_needs_the_rights_of_its_rules_and_no_others(lab: Lab) -> None:
    kafka = client_of(lab, Principal.INTERVAL_RUNS)
    pipeline = Pipeline(name="by-rules", group_id="intervals", kafka=kafka, topic="by-rules")
    lab.create_topic("by-rules", 1)
    run = Run(pipeline.name, Interval.parse("2013-01-01T00:00:00Z/2013-01-02T00:00:00Z"))
    values = [b"a", b"b"]

    def write() -> None:
        with Coordinator(pipeline, run) as coordinator:
            stage = coordinator.begin(lambda: RunPlan(run, [{"part": 0}, {"part": 1}], {"kind": "test"}), 1)
            assert isinstance(stage, Stage)
            rows = {"key": pa.array(values), "value": pa.array(values), SLICE_COLUMN: pa.array([0, 1], pa.int32())}
            list(write_rows(pipeline.to_dict(), stage.to_dict(), 0, [pa.RecordBatch.from_pydict(rows)]))
            coordinator.finish(stage)

    with pytest.raises(EosError, match=Principal.INTERVAL_RUNS.acl_name):
        write()
    facts = IntervalFacts(
        group_id="intervals",
        name=pipeline.name,
        topics=["by-rules"],
        principal=Principal.INTERVAL_RUNS.acl_name,
    )
    lab.allow(rule.acl for rule in interval_rules(facts))
    write()
    assert compare(expected_from_values(values, "the rows"), drain(lab.kafka, "by-rules")).exactly_once


#: The reading verbs with the arguments that they need here, by their names in the table of rights.
ARGUMENTS = {
    "transactions list --hanging": ("transactions", "list", "--hanging", "--exit-code"),
    "plan": ("plan", "--to", "disabled", "--allow-downtime"),
    "preflight --to-version": ("preflight", "--to-version", "3.2.3"),
    "transactions list --watch": ("transactions", "list", "--watch", "1", "--timeout", "0"),
    # The workers' rights are tried by the logins in their files; only of a right on everything the ACLs have to tell.
    "acl check": ("acl", "check", "--verb", "transactions list --hanging"),
}

#: What they end with here; 0 where nothing is said.
CODES = {"preflight --to-version": 1, "acl check": 1}


@pytest.fixture(scope="module")
def held_open(lab: Lab) -> Iterator[None]:
    """A transaction that is open, so that whose it is has to be asked."""
    producer = Producer(lab.kafka.confluent(transactional_id="someone-elses", transaction_timeout_ms=900_000))
    producer.init_transactions(180)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=1)
    assert producer.flush(180) == 0
    yield
    producer.abort_transaction(180)


@contextmanager
def only_for(lab: Lab, verb: str) -> Iterator[tuple[TransactionsClient, list[Rule]]]:
    """The reader may do what one verb takes, and nothing else; for the rights of another may cover one of these."""
    reader = lab.tool_facts(Principal.READER)
    needed = tool_rules(reader, {verb: READING[verb]})
    others = {rule.acl for rule in tool_rules(reader, READING)} - {rule.acl for rule in needed}
    with TransactionsClient(lab.kafka) as client:
        client.delete_acls(others)
        try:
            yield client, needed
        finally:
            client.create_acls(others)


@pytest.mark.parametrize("verb", READING)
@pytest.mark.usefixtures("held_open")
def test_a_verb_runs_with_its_own_rights_and_says_which_one_it_misses(lab: Lab, eos: Any, verb: str) -> None:
    """Without a right that it requires it ends otherwise, or names the principal that may not."""
    arguments = (*ARGUMENTS.get(verb, verb.split()), "--cluster", str(lab.reader_file))
    who = Principal.READER.acl_name
    silent = []
    with only_for(lab, verb) as (client, needed):
        whole = eos.run(*arguments, expect=CODES.get(verb, 0))
        assert verb == "acl check" or who not in whole.stdout + whole.stderr
        for rule in [rule for rule in needed if rule.is_required]:
            assert client.delete_acls([rule.acl]) == (rule.acl,)
            try:
                done = eos.run(*arguments, expect=tuple(range(7)))
            finally:
                client.create_acls([rule.acl])
            if done.returncode == whole.returncode and who not in done.stdout + done.stderr:
                silent.append(str(rule))
    assert silent == []


#: What shows a cluster in each form, what plans, and what fails. ``{folder}`` is the test's own, ``{group}`` the lab's.
SAYING = (
    "status",
    "status -o wide",
    "-v status --json",
    "plan --to disabled --allow-downtime",
    "plan --to preparing --allow-downtime --json",
    "apply 000000000000",
    "rollout list --json",
    "drift --json",
    "offsets list --all -o wide",
    "offsets backup --all --to {folder}/backup.jsonl",
    "offsets reset nobody",
    "fencing list --json",
    "topics check --json",
    "topics list --json",
    "preflight --json",
    "acl check -o wide",
    "acl check --form strimzi",
    "acl check --json",
    "transactions list -o wide",
    "transactions audit --json",
    "preflight --to-version 3.2.3",
    "uninstall",
    "discover -g {group} -b {brokers} --client-file {folder}/client.properties --write {folder}/proposed.yaml",
    "discover -g no-such-group -b {brokers} --client-file {folder}/client.properties",
)


#: Of these, what is also called with a login that the REST API refuses.
REFUSED = {
    "-v status --json",
    "plan --to preparing --allow-downtime --json",
    "offsets reset nobody",
    "fencing list --json",
    "preflight --json",
    "acl check --json",
}


def test_no_verb_says_a_secret(lab: Lab, eos: Any, tmp_path: Path) -> None:
    """Those of the lab, of a worker's environment and start command, and of a connector's configuration."""
    canaries = {name: f"canary-{uuid.uuid4().hex}" for name in ("environment", "start", "connector", "REST")}
    with ConnectRest(lab.connect_urls[0], lab.cluster().rest, retry_seconds=180) as rest:
        config = {"connector.class": FILE_SOURCE, "topic": "orders", "file": "/dev/null"}
        rest.create("canary", {**config, "database.password": canaries["connector"]}, "STOPPED")
    content = yaml.safe_load(lab.cluster_file.read_text())
    content["workers"][0]["env"] = {"CANARY_PASSWORD": canaries["environment"]}
    content["workers"][0]["start"] += [f"-Dcanary.password={canaries['start']}"]
    assert lab.security is not None
    login = "".join(f"{name}={value}\n" for name, value in lab.security.client(Principal.OPERATOR).items())
    files = {tmp_path / "eos.yaml": yaml.safe_dump(content), tmp_path / "client.properties": login}
    content["rest"]["password"] = canaries["REST"]
    files[tmp_path / "refused.yaml"] = yaml.safe_dump(content)
    for file, text in files.items():
        file.touch(mode=0o600)
        file.write_text(text)
    found = Found({**secrets_of(lab), **canaries})
    try:
        for words in SAYING:
            named = words.format(folder=tmp_path, group=lab.group_id, brokers=lab.bootstrap_servers).split()
            for name in ("eos.yaml", *(["refused.yaml"] if words in REFUSED else [])):
                cluster = [] if "discover" in words else ["--cluster", str(tmp_path / name)]
                done = eos.run(*named, *cluster, expect=tuple(range(8)))
                assert done.stdout + done.stderr, words
                found.search("answers", words, (done.stdout + done.stderr).encode())
    finally:
        with ConnectRest(lab.connect_urls[0], lab.cluster().rest, retry_seconds=180) as rest:
            rest.delete("canary")
    search_files(found, [path for path in [tmp_path] if path.is_dir()])
    # The files of the test itself are what the search must find, and nothing else.
    assert found.places() == set(map(str, files))
    assert found.looked_at["answers"] == len(SAYING) + len(REFUSED)
