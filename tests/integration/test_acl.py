"""``eos acl`` on brokers that deny by default: each right that is withdrawn is found, by an attempt and by the ACLs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from confluent_kafka import Producer

from airflow_eos_provider.acls.attempts import try_rights
from airflow_eos_provider.acls.cluster_facts import Facts, Principals, Seen, facts_of
from airflow_eos_provider.acls.judge import Source, judge
from airflow_eos_provider.acls.read_rights import look, read_authorizer
from airflow_eos_provider.acls.rules import Rule, connector_rules
from airflow_eos_provider.changes import engine
from airflow_eos_provider.changes.change import MOST_LINES
from airflow_eos_provider.changes.rights.change import GRANT, REVOKE
from airflow_eos_provider.changes.rights.rights_request import RevokeRequest, RightsRequest
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.topics.config_topic import read_cluster_state
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.journal.journal import Journal
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Pattern, Resource
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.operators.approval import approvable, approval_body
from airflow_eos_provider.operators.changes import (
    ConnectAclGrantOperator,
    ConnectAclGrantPlanOperator,
    ConnectAclRevokeOperator,
    ConnectAclRevokePlanOperator,
)
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.rights_look import added_rights
from airflow_eos_provider.rollout.plan.obstacles import rights
from tests.integration.named_listener import NamedListener
from tests.unit.rollout.conftest import Cluster as RollCluster
from tests.waiting import until

SECONDS = 30.0
WORKER, PRODUCER, CONSUMER, ADMIN, NOBODY = "connect", "writer", "reader", "fencer", "nobody"
PASSWORDS = {user: f"canary-{user}-7d1" for user in (PRODUCER, CONSUMER, ADMIN, NOBODY)}
#: The prefix of the first one's ids reaches the second one's.
ORDERS, NEIGHBOUR = "orders", "orders-eu"
CONFIGS, OFFSETS, STATUS, OWN, NOT_THERE = "configs", "offsets", "status", "orders-offsets", "orders-eu-offsets"
#: The context that an operator's task gets.
CONTEXT: Any = {"dag_run": SimpleNamespace(dag_id="connect_acl_grant", run_id="manual", triggering_user_name="ada")}


@pytest.fixture(scope="module")
def named() -> NamedListener:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    return NamedListener(WORKER, "canary-connect-7d1", authorizer, PASSWORDS)


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab], named: NamedListener) -> Lab:
    """A broker that denies by default, the worker's file, and a config topic with two connectors. No worker runs."""
    with named.given():
        lab = lab_factory(name="acl", workers=0)
    for topic in (CONFIGS, OFFSETS, STATUS, OWN):
        lab.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "log_level": 0})
    for key, value in [*_connector(ORDERS, 2, OWN, named), *_connector(NEIGHBOUR, 1, NOT_THERE, named)]:
        producer.produce(CONFIGS, json.dumps(value), key)
    assert producer.flush(180) == 0
    file = lab.data_dir / "worker.properties"
    file.write_text("\n".join(f"{name}={value}" for name, value in _worker(lab, named).items()), encoding="utf-8")
    worker = {"url": "http://127.0.0.1:1", "config": str(file)}
    cluster = {"bootstrap_servers": lab.bootstrap_servers, "group_id": lab.group_id, "workers": [worker]}
    lab.cluster_file.write_text(json.dumps(cluster), encoding="utf-8")
    return lab


def _worker(lab: Lab, named: NamedListener) -> dict[str, str]:
    topics = {"config.storage.topic": CONFIGS, "offset.storage.topic": OFFSETS, "status.storage.topic": STATUS}
    own = {"bootstrap.servers": named.bootstrap_servers, "group.id": lab.group_id, **named.java_client}
    producers = {f"producer.{name}": value for name, value in named.java_client_of(PRODUCER).items()}
    consumers = {f"consumer.{name}": value for name, value in named.java_client_of(CONSUMER).items()}
    return {**own, **topics, **producers, **consumers}


def _connector(name: str, tasks: int, own: str, named: NamedListener) -> list[tuple[str, dict[str, Any]]]:
    admin = {f"admin.override.{key}": value for key, value in named.java_client_of(ADMIN).items()}
    config = {"connector.class": "X", "name": name, "tasks.max": str(tasks), "offsets.storage.topic": own, **admin}
    each = [(f"task-{name}-{number}", {"properties": {"task.class": "X"}}) for number in range(tasks)]
    return [(f"connector-{name}", {"properties": config}), *each, (f"commit-{name}", {"tasks": tasks})]


@pytest.fixture(scope="module")
def session(lab: Lab) -> Iterator[ConnectSession]:
    with ConnectSession(ConnectCluster.from_file(lab.cluster_file)) as session:
        yield session


@pytest.fixture(scope="module")
def seen(session: ConnectSession) -> Seen:
    return look(session)


@pytest.fixture(scope="module")
def facts(seen: Seen) -> Facts:
    return facts_of(seen, Mode.ENABLED, Principals())


@pytest.fixture(scope="module")
def sessions(facts: Facts) -> Iterator[dict[str, Session]]:
    """By principal, a session with its login."""
    opened = {principal: Session(settings) for principal, settings in facts.logins.items()}
    yield opened
    for each in opened.values():
        each.close()


@pytest.fixture
def granted(session: ConnectSession, facts: Facts) -> Iterator[list[Rule]]:
    """The rules of the cluster, all of them granted."""
    rules = facts.rules()
    with given(session.kafka, {rule.acl for rule in rules}):
        yield rules


@contextmanager
def given(kafka: Session, acls: set[Acl]) -> Iterator[None]:
    """ACLs that are there within it."""
    change(kafka, create=acls)
    try:
        yield
    finally:
        change(kafka, delete=acls)


@contextmanager
def withdrawn(kafka: Session, acls: set[Acl]) -> Iterator[None]:
    change(kafka, delete=acls)
    try:
        yield
    finally:
        change(kafka, create=acls)


@pytest.fixture
def file_of(lab: Lab, tmp_path: Path) -> Callable[..., Path]:
    """The lab's cluster file with other settings."""

    def file_of(**changes: Any) -> Path:
        file = tmp_path / "other.yaml"
        file.touch(mode=0o600)
        whole = json.loads(lab.cluster_file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**whole, **changes}), encoding="utf-8")
        return file

    return file_of


@pytest.fixture
def nobodys_file(named: NamedListener, file_of: Callable[..., Path]) -> Callable[..., Path]:
    """The same as somebody without rights reaches the brokers."""
    return partial(file_of, bootstrap_servers=named.bootstrap_servers, client=named.client_of(NOBODY))


def change(kafka: Session, create: set[Acl] = frozenset(), delete: set[Acl] = frozenset()) -> None:  # type: ignore[assignment]
    """Create or delete ACLs, and wait until the broker goes by it."""
    with kafka.transactions() as client:
        client.create_acls(create)
        client.delete_acls(delete)
    until(lambda: create <= _acls(kafka) and not delete & _acls(kafka), "the ACLs", seconds=SECONDS)


def test_the_principals_of_all_clients_are_read_from_files_and_overrides(facts: Facts, lab: Lab) -> None:
    assert [worker.principal for worker in facts.workers] == [f"User:{WORKER}"]
    assert [(each.name, each.tasks, each.producer, each.consumer, each.admin) for each in facts.connectors] == [
        (ORDERS, 2, f"User:{PRODUCER}", f"User:{CONSUMER}", f"User:{ADMIN}"),
        (NEIGHBOUR, 1, f"User:{PRODUCER}", f"User:{CONSUMER}", f"User:{ADMIN}"),
    ]
    assert facts.logins.keys() == {f"User:{user}" for user in (WORKER, PRODUCER, CONSUMER, ADMIN)}
    created = {rule.name for rule in facts.rules() if rule.operation is Operation.CREATE}
    assert created == {NOT_THERE}, "the others are there"


def test_each_right_that_is_withdrawn_is_found_by_an_attempt_and_by_the_acls(
    session: ConnectSession, sessions: dict[str, Session], granted: list[Rule]
) -> None:
    assert {each.verdict for each in judge(granted, read_authorizer(session.kafka))} == {Verdict.PASS}
    for principal, own in sessions.items():
        tried_all = try_rights(own, [rule for rule in granted if rule.principal == principal])
        assert {(each.verdict, each.source) for each in tried_all.values()} == {(Verdict.PASS, Source.ATTEMPT)}
    by_attempt, by_acls = 0, 0
    for rule in granted:
        asked = [rule]
        with withdrawn(session.kafka, {rule.acl}):
            # Who may write with an id may describe it: Kafka's own authorizer finds nothing missing then.
            implied = rule.resource is Resource.TRANSACTIONAL_ID and rule.operation is Operation.DESCRIBE
            wanted = Verdict.PASS if implied else Verdict.FAIL
            (found,) = judge(asked, read_authorizer(session.kafka))
            assert found.verdict is wanted, f"by ACLs: {found}"
            by_acls += found.verdict is Verdict.FAIL
            tried = try_rights(sessions[rule.principal], asked).get(rule)
            if tried is not None:
                assert tried.verdict is wanted, f"by an attempt: {tried}"
                by_attempt += tried.verdict is Verdict.FAIL
            else:
                assert rule.name == NOT_THERE, f"{rule} was not tried"
    assert by_acls >= 20
    assert by_attempt >= 18


def test_an_attempt_changes_nothing_of_an_id_that_is_alive(
    lab: Lab, session: ConnectSession, sessions: dict[str, Session], granted: list[Rule]
) -> None:
    """Its producer is not fenced, its open transaction goes on, and no id, topic or member appears."""
    id_ = f"{lab.group_id}-{ORDERS}-0"
    settings = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": id_, "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 600_000})
    producer.init_transactions(180)
    producer.begin_transaction()
    producer.produce(OFFSETS, b"open")
    assert producer.flush(180) == 0
    with TransactionsClient(session.kafka.settings) as client:
        before = client.describe([id_])
        listed = client.list()
        assert before[id_].state is TransactionState.ONGOING
        topics = _topics(session.kafka)
        for principal, own in sessions.items():
            assert try_rights(own, [rule for rule in granted if rule.principal == principal])
        assert client.describe([id_]) == before
        assert client.list() == listed
    assert _topics(session.kafka) == topics
    producer.commit_transaction(180)  # raises if it had been fenced or ended


def test_a_denial_wins_and_a_right_from_one_host_alone_is_not_known(
    session: ConnectSession, sessions: dict[str, Session], granted: list[Rule]
) -> None:
    rule = next(rule for rule in granted if rule.name == OWN and rule.operation is Operation.READ)
    denial = Acl(rule.principal, Operation.READ, Resource.TOPIC, "orders", Pattern.PREFIXED, is_denial=True)
    with given(session.kafka, {denial}):
        (found,) = judge([rule], read_authorizer(session.kafka))
        assert (found.verdict, found.denials) == (Verdict.FAIL, (denial,))
        assert try_rights(sessions[rule.principal], [rule])[rule].verdict is Verdict.FAIL
    (found,) = judge([rule], read_authorizer(session.kafka))
    assert found.verdict is Verdict.PASS


def test_a_prefix_is_tried_with_an_id_that_nobody_has(
    session: ConnectSession, sessions: dict[str, Session], facts: Facts
) -> None:
    (orders, _) = facts.connectors
    prefixed = [rule for rule in connector_rules(orders, prefixed=True) if rule.pattern is Pattern.PREFIXED]
    literal = {rule.acl for rule in connector_rules(orders) if rule.resource is Resource.TRANSACTIONAL_ID}
    with given(session.kafka, literal):
        for rule in prefixed:
            assert try_rights(sessions[rule.principal], [rule])[rule].verdict is Verdict.FAIL
            assert judge([rule], read_authorizer(session.kafka))[0].verdict is Verdict.FAIL
    with given(session.kafka, {rule.acl for rule in prefixed}):
        for rule in prefixed:
            assert try_rights(sessions[rule.principal], [rule])[rule].verdict is Verdict.PASS


def _topics(kafka: Session) -> set[str]:
    with kafka.admin() as admin:
        return set(admin.topics(None, 180))


@pytest.fixture
def eos(lab: Lab, tmp_path: Path, eos_of: Callable[[Lab, Path], Any]) -> Any:
    return eos_of(lab, tmp_path)


def planned(eos: Any, *words: str) -> dict[str, Any]:
    """The plan of a command that is not confirmed."""
    return dict(json.loads(eos.run(*words, "--json", expect=(0, 3)).stdout)["plan"])


def kept(plan: dict[str, Any]) -> list[str]:
    """What a revocation leaves, since it is needed."""
    return [line for line in plan["lines"] if line.startswith("kept, ")]


@pytest.mark.first
def test_grant_then_revoke_leaves_the_acls_as_they_were(session: ConnectSession, eos: Any) -> None:
    before = _acls(session.kafka)
    foreign = Acl("User:other", Operation.READ, Resource.TOPIC, OWN)
    with given(session.kafka, {foreign}):
        made = planned(eos, "acl", "grant")
        assert _acls(session.kafka) == before | {foreign}, "without --plan nothing is changed"
        eos.run("acl", "grant", "--plan", "0" * 12, expect=3)
        granted = json.loads(eos.run("acl", "grant", "--plan", made["hash"], "--json").stdout)
        assert granted["applied"]
        assert granted["report"]["acls"] == made["content"]["acls"]
        until(lambda: len(_acls(session.kafka)) == len(made["content"]["acls"]) + 1, "the ACLs", seconds=SECONDS)
        assert "Nothing to do" in eos.run("acl", "grant").stdout
        checked = json.loads(eos.run("acl", "check", "--json", expect=5).stdout)
        assert (checked["missing"], checked["unknown"]) == (0, 0)
        assert any("into which topics the connectors write" in gap for gap in checked["not_known"]), "no worker runs"
        assert {each["by"] for each in checked["rules"]} == {"an attempt", "the ACLs"}
        some = planned(eos, "acl", "revoke")
        assert some["content"]["acls"]
        assert kept(some)
        assert all(" on Topic " in line or " on Group " in line for line in kept(some)), "disabled now"
        revoked = planned(eos, "acl", "revoke", "--even-if-needed")
        assert not kept(revoked)
        eos.run("acl", "revoke", "--even-if-needed", "--plan", revoked["hash"])
        until(lambda: _acls(session.kafka) == before | {foreign}, "the ACLs", seconds=SECONDS)


def test_a_plan_of_more_lines_than_are_shown_is_granted_and_revoked_in_full(session: ConnectSession, eos: Any) -> None:
    topics = {f"wide-{number:03}" for number in range(500)}
    pipeline, principal, before = f"g/wide:{','.join(sorted(topics))}", "User:wide", _acls(session.kafka)
    asked = {"pipelines": (pipeline,), "interval_principal": principal}
    plan = engine.planned(GRANT, session, RightsRequest(**asked))
    assert {line.partition(" on Topic ")[2] for line in plan.lines} >= topics
    shown = eos.run("acl", "grant", "--pipeline", pipeline, "--interval-principal", principal, expect=3).stdout
    assert f"… and {len(plan.lines) - MOST_LINES} more lines; --json has all." in shown
    assert plan.short_hash in shown
    engine.carry_out(GRANT, session, plan, actor="a test")
    until(lambda: len(_acls(session.kafka)) == len(before) + len(plan.content["acls"]), "the ACLs", seconds=SECONDS)
    assert {acl.name for acl in _acls(session.kafka) if acl.principal == principal} >= topics
    plan = engine.planned(REVOKE, session, RevokeRequest(**asked, even_if_needed=True))
    engine.carry_out(REVOKE, session, plan, actor="a test")
    until(lambda: _acls(session.kafka) == before, "the ACLs", seconds=SECONDS)


def test_a_check_names_what_is_missing_and_the_line_that_mends_it(
    lab: Lab, session: ConnectSession, granted: list[Rule], eos: Any
) -> None:
    leader = next(rule for rule in granted if rule.name == f"connect-cluster-{lab.group_id}")
    with withdrawn(session.kafka, {leader.acl}):
        found = eos.run("acl", "check", expect=1).stdout
    assert f"User:{WORKER}: Write on TransactionalId connect-cluster-{lab.group_id}" in found
    assert f"By an attempt: the brokers refuse it to User:{WORKER}." in found
    assert "Unable to claim write privileges for config topic" in found
    (line,) = [each for each in found.splitlines() if each.startswith("kafka-acls")]
    assert line.endswith(f"--operation Write --transactional-id connect-cluster-{lab.group_id}")


def test_a_prefix_that_reaches_another_connector_is_named(lab: Lab, eos: Any) -> None:
    found = eos.run("acl", "check", "--prefixed", expect=(0, 1, 5)).stdout
    line = f"{lab.group_id}-{ORDERS}- of User:{PRODUCER} also reaches {lab.group_id}-{NEIGHBOUR}-0."
    assert found.count(line) == 1
    assert "also reaches" not in eos.run("acl", "check", expect=(0, 1, 5)).stdout


def test_acls_that_may_not_be_read_are_not_known(nobodys_file: Callable[..., Path], eos: Any) -> None:
    """Exit code 5: no attempt can be made, and the ACLs are not shown."""
    topics = {"config_topic": CONFIGS, "offsets_topic": OFFSETS, "status_topic": STATUS}
    file = nobodys_file(workers=[{"url": "http://127.0.0.1:1"}], **topics)
    found = " ".join(eos.run("acl", "check", "--cluster", str(file), "--worker", "User:w", expect=5).stdout.split())
    assert f"User:{NOBODY} may not read the ACLs" in found
    assert "needs DESCRIBE permission" in found
    assert "Request(" not in found


def test_who_may_not_write_the_journal_reads_which_right_is_missing_and_what_grants_it(
    session: ConnectSession, lab: Lab, nobodys_file: Callable[..., Path]
) -> None:
    journal, user = f"eos-rollout-{lab.group_id}", f"User:{NOBODY}"
    kafka = ConnectCluster.from_file(nobodys_file()).kafka
    with given(session.kafka, {Acl(user, Operation.ALL, Resource.TOPIC, journal)}), pytest.raises(EosError) as refused:
        Journal(kafka, lab.group_id, actor="nobody").acquire()
    assert refused.value.exit_code == 2
    said = str(refused.value)
    assert f"refused {user}" in said
    assert f"Write on TransactionalId {journal}" in said
    command = f"--add --allow-principal {user} --operation Write --operation Describe --transactional-id {journal}"
    assert command in said


def test_where_the_connectors_may_not_be_read_their_rights_are_not_known(
    session: ConnectSession, nobodys_file: Callable[..., Path], eos: Any
) -> None:
    """Exit code 5, though every right that is known is there: those of the connectors are not among them."""
    may_look = {
        Acl(f"User:{NOBODY}", Operation.DESCRIBE, Resource.CLUSTER, "kafka-cluster"),
        Acl(f"User:{NOBODY}", Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, "kafka-cluster"),
        Acl(f"User:{NOBODY}", Operation.DESCRIBE, Resource.TOPIC, "*"),
        Acl(f"User:{WORKER}", Operation.ALL, Resource.TOPIC, "*"),
        Acl(f"User:{WORKER}", Operation.ALL, Resource.GROUP, "*"),
        Acl(f"User:{WORKER}", Operation.ALL, Resource.TRANSACTIONAL_ID, "*"),
    }
    with given(session.kafka, may_look):
        document = json.loads(eos.run("acl", "check", "--cluster", str(nobodys_file()), "--json", expect=5).stdout)
        assert (document["missing"], document["unknown"]) == (0, 0)
        assert any("connectors and their tasks" in gap for gap in document["not_known"])


def test_a_principal_that_sees_nothing_is_not_told_that_there_are_no_pipelines(
    named: NamedListener, lab: Lab, session: ConnectSession, tmp_path: Path, eos: Any
) -> None:
    """The cluster file has no workers: interval runs need none."""
    file = tmp_path / "brokers.yaml"
    file.touch(mode=0o600)
    client = named.client_of(NOBODY)
    file.write_text(json.dumps({"bootstrap_servers": named.bootstrap_servers, "client": client}))
    command = ("intervals", "list", "--cluster", str(file), "--group", "etl")
    refused = eos.run(*command, expect=5).stderr
    assert f"User:{NOBODY} may not see topic etl-" in refused
    assert "may not see topic etl-" in eos.run(*command, "--pipeline", "one", expect=5).stderr
    with given(session.kafka, {Acl(f"User:{NOBODY}", Operation.DESCRIBE, Resource.TOPIC, "etl-", Pattern.PREFIXED)}):
        assert "The group etl has no pipelines" in eos.run(*command).stdout


def test_a_rule_is_explained_in_the_words_of_connect(eos: Any) -> None:
    found = eos.run("acl", "explain", f"User:{ADMIN} {ORDERS}-0").stdout
    assert "Failed to perform round of zombie fencing" in found
    eos.run("acl", "explain", "no-such-thing", expect=2)


def _acls(kafka: Session) -> set[Acl]:
    with kafka.transactions() as client:
        return set(client.acls() or ())


def test_a_roll_is_refused_for_the_right_that_its_target_asks_for(
    lab: Lab, named: NamedListener, session: ConnectSession, granted: list[Rule]
) -> None:
    """The group is disabled. A right that it uses today is not asked for, however the ACLs look."""
    observation = _observation(lab, named, session)
    leader = next(rule for rule in granted if rule.name.startswith("connect-cluster-"))
    fencing = next(rule for rule in granted if rule.principal == f"User:{ADMIN}" and rule.name.endswith(f"{ORDERS}-1"))
    today = next(rule for rule in granted if rule.name == CONFIGS and rule.operation is Operation.READ)
    assert added_rights(session.kafka, observation, Mode.DISABLED) is None
    for target in (Mode.PREPARING, Mode.ENABLED):
        assert rights(added_rights(session.kafka, observation, target)).found.endswith(
            "; none is missing (0 tested as the principal, the others checked in the ACLs)"
        )
    with withdrawn(session.kafka, {leader.acl, fencing.acl, today.acl}):
        preparing = rights(added_rights(session.kafka, observation, Mode.PREPARING))
        enabled = rights(added_rights(session.kafka, observation, Mode.ENABLED))
    assert (preparing.verdict, enabled.verdict) == (Verdict.FAIL, Verdict.FAIL)
    refused = f"(worker; the brokers refuse it to User:{WORKER})"
    assert preparing.found == f"missing: {leader} {refused}"
    assert str(fencing) in enabled.found
    assert f"--operation Write --transactional-id {fencing.name}" in enabled.remedy
    assert str(today) not in enabled.found


def _observation(lab: Lab, named: NamedListener, session: ConnectSession) -> Observation:
    """A disabled group with the worker's file and the config topic of the lab, as a roll sees it."""
    seen = RollCluster(Mode.DISABLED).observe()
    workers = tuple(
        replace(worker, facts=replace(worker.facts, properties=_worker(lab, named))) for worker in seen.workers
    )
    state = read_cluster_state(session.kafka, CONFIGS)
    return replace(seen, group_id=lab.group_id, workers=workers, config=state, statuses={})


def test_the_rights_of_a_connector_that_is_gone_are_revoked(lab: Lab, session: ConnectSession, eos: Any) -> None:
    gone = {
        Acl(f"User:{PRODUCER}", Operation.WRITE, Resource.TRANSACTIONAL_ID, f"{lab.group_id}-gone-{number}")
        for number in range(3)
    }
    other = Acl(f"User:{PRODUCER}", Operation.WRITE, Resource.TRANSACTIONAL_ID, f"{lab.group_id}-gone-too-0")
    with given(session.kafka, {*gone, other}):
        made = planned(eos, "acl", "revoke", "--connector", "gone")
        eos.run("acl", "revoke", "--connector", "gone", "--plan", made["hash"])
        until(lambda: not gone & _acls(session.kafka), "the ACLs", seconds=SECONDS)
        assert other in _acls(session.kafka)


def test_a_login_of_its_own_writes_what_an_approver_has_seen_and_nothing_else(
    lab: Lab, session: ConnectSession, named: NamedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operators of ``acl_grant_dag`` and ``acl_revoke_dag``: the cluster's own login may look, and not write."""
    extra = {
        "cluster_file": str(lab.cluster_file),
        "bootstrap_servers": named.bootstrap_servers,
        "client": named.client_of(NOBODY),
    }
    connections = {
        "kafka_connect_default": {"conn_type": "kafka_connect", "extra": extra},
        "acl_admin": {"conn_type": "kafka", "extra": {"bootstrap.servers": lab.bootstrap_servers}},
    }
    for name, connection in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
    may_look = {
        Acl(f"User:{NOBODY}", Operation.DESCRIBE, Resource.CLUSTER, "kafka-cluster"),
        Acl(f"User:{NOBODY}", Operation.DESCRIBE, Resource.TOPIC, "*"),
        Acl(f"User:{NOBODY}", Operation.READ, Resource.TOPIC, CONFIGS),
    }
    with given(session.kafka, may_look):
        before = _acls(session.kafka)
        plan = ConnectAclGrantPlanOperator(task_id="plan", connectors=ORDERS).execute(CONTEXT)
        body = approval_body(approvable(plan), "a test")
        assert f"User:{PRODUCER} Describe, Write on TransactionalId {lab.group_id}-{ORDERS}-0…1" in body

        approved = {"plan": plan, "approval": {"plan_hash": plan["hash"], "approved_by": "grace"}}
        with pytest.raises(AirflowFailException, match=f"User:{NOBODY}"):
            ConnectAclGrantOperator(task_id="apply", **approved).execute(CONTEXT)
        assert _acls(session.kafka) == before

        as_admin = ConnectAclGrantOperator(task_id="apply", admin_conn_id="acl_admin", **approved)
        in_between = Acl(f"User:{PRODUCER}", Operation.WRITE, Resource.TRANSACTIONAL_ID, f"{lab.group_id}-{ORDERS}-0")
        with given(session.kafka, {in_between}), pytest.raises(AirflowFailException, match="does not fit any more"):
            as_admin.execute(CONTEXT)
        assert _acls(session.kafka) == before

        written = as_admin.execute(CONTEXT)["acls"]
        until(lambda: len(_acls(session.kafka)) == len(before) + len(written), "the ACLs", seconds=SECONDS)
        plan = ConnectAclRevokePlanOperator(task_id="plan", connectors=ORDERS, even_if_needed="True").execute(CONTEXT)
        approved = {"plan": plan, "approval": {"plan_hash": plan["hash"], "approved_by": "grace"}}
        ConnectAclRevokeOperator(task_id="apply", admin_conn_id="acl_admin", **approved).execute(CONTEXT)
        until(lambda: _acls(session.kafka) == before, "the ACLs", seconds=SECONDS)


def test_nothing_is_revoked_where_the_connectors_cannot_be_seen(
    lab: Lab, session: ConnectSession, nobodys_file: Callable[..., Path], eos: Any
) -> None:
    """Without the config topic a connector that runs looks like one that is gone."""
    may_look = [
        Acl(f"User:{NOBODY}", Operation.DESCRIBE, Resource.CLUSTER, "kafka-cluster"),
        Acl(f"User:{NOBODY}", Operation.DESCRIBE, Resource.TOPIC, "*"),
    ]
    alive = Acl(f"User:{PRODUCER}", Operation.WRITE, Resource.TRANSACTIONAL_ID, f"{lab.group_id}-{ORDERS}-0")
    with given(session.kafka, {*may_look, alive}):
        refused = eos.run("acl", "revoke", "--connector", ORDERS, "--cluster", str(nobodys_file()), expect=3)
        assert "cannot tell which connectors there are" in refused.stderr
        assert alive in _acls(session.kafka)


def test_of_a_worker_whose_file_cannot_be_read_the_rights_of_enabled_are_kept(
    lab: Lab, session: ConnectSession, tmp_path: Path, file_of: Callable[..., Path], eos: Any
) -> None:
    other = {"url": "http://127.0.0.1:2", "config": str(tmp_path / "not-there.properties")}
    both = file_of(workers=[*json.loads(lab.cluster_file.read_text(encoding="utf-8"))["workers"], other])
    needed = Acl(f"User:{PRODUCER}", Operation.WRITE, Resource.TRANSACTIONAL_ID, f"{lab.group_id}-{ORDERS}-0")
    with given(session.kafka, {needed}):
        of_one = planned(eos, "acl", "revoke")
        assert needed.name in {each["name"] for each in of_one["content"]["acls"]}, "its file says disabled"
        of_both = planned(eos, "acl", "revoke", "--cluster", str(both))
        assert any(needed.name in line for line in kept(of_both))
