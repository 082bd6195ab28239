"""The DAG of internal topics: its form, and what an approver sees."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.topics.internal_topics import Role, WantedTopic
from airflow_eos_provider.connect.topics.topic_checks import Change, TopicPlan, TopicsLook
from airflow_eos_provider.dag_factories import topics_dag
from airflow_eos_provider.errors import ConfigurationError, PlanMovedError, UnreachableError
from airflow_eos_provider.journal.records import RolloutState
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.offsets.internal_topics import create as create_topics
from airflow_eos_provider.offsets.internal_topics.look import InternalTopicsClient
from airflow_eos_provider.operators.approvable import approvable
from airflow_eos_provider.operators.approval import approval_body
from airflow_eos_provider.operators.connect_topics import ConnectTopicsOperator, ConnectTopicsPlanOperator

COMPACT = {"cleanup.policy": "compact"}


def created(name: str) -> Change:
    wanted = WantedTopic(name, Role.OWN, ("c",), 25, 3)
    return Change(wanted, True, {**COMPACT, "min.insync.replicas": "2"}, {})


MENDED = Change(WantedTopic("status", Role.STATUS), False, COMPACT, {"cleanup.policy": "delete"})
PLAN = TopicPlan((*(created(f"own-{n}") for n in range(8)), MENDED), {"group": "g", "topics": {}})


@pytest.fixture(scope="module")
def dag() -> DAG:
    return topics_dag(conn_id="cluster_7", dag_id="topics_7", status_topic="my-status")


def test_nothing_is_created_without_plan_and_approval(dag: DAG) -> None:
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "approve", "create"]
    create = dag.get_task("create")
    assert isinstance(create, ConnectTopicsOperator)
    assert (create.conn_id, create.status_topic) == ("cluster_7", "my-status")
    assert create.upstream_task_ids == {"plan", "approve"}
    assert create.approval.operator.task_id == "approve"


def test_the_form_becomes_what_is_said_besides_the_workers_files(dag: DAG) -> None:
    assert set(dag.params) == {"own_topics", "partitions", "replication_factor", "reason", "take_over"}
    plan: Any = dag.get_task("plan")
    empty = {"params": {"own_topics": None, "partitions": None, "replication_factor": None}}
    assert plan.render_template(plan.own_topics, empty) == plan.render_template(plan.partitions, empty) == ""
    operator = ConnectTopicsPlanOperator(task_id="plan", own_topics=" a, b ,", partitions="5", config_topic="configs")
    given = operator.given()
    assert (given.own, given.partitions, given.replicas) == (("a", "b"), 5, None)
    assert given.names == {Role.CONFIGS: "configs"}
    for wrong in ("0", "many", "-1"):
        with pytest.raises(ConfigurationError, match=f"replication_factor is {wrong}"):
            ConnectTopicsPlanOperator(task_id="plan", replication_factor=wrong).given()


def test_a_plan_is_read_back_and_one_that_was_edited_is_refused() -> None:
    assert TopicPlan.from_dict(PLAN.to_dict()) == replace(
        PLAN, changes=tuple(Change.of(change.to_dict()) for change in PLAN.changes)
    )
    assert TopicPlan.from_dict(PLAN.to_dict()).diff() == PLAN.diff()
    with pytest.raises(ConfigurationError, match="does not have its hash"):
        TopicPlan.from_dict({**PLAN.to_dict(), "rests_on": {"group": "other"}})


def test_an_approver_sees_every_line() -> None:
    shown = approvable(PLAN.to_dict())
    assert "Create or mend 9 internal topics of Kafka Connect group g?" in shown.question
    body = approval_body(shown, "new connectors")
    assert PLAN.hash in body
    assert "own-0 (own offsets topic of c)" in body
    assert [line for line in PLAN.diff() if f"- `{line}`" not in body.splitlines()] == []
    assert "-cleanup.policy=delete" in body
    assert "These are all its lines." in body


def test_where_an_own_topic_is_not_known_the_plan_does_not_say_that_there_is_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(InternalTopicsClient, "look", lambda self: TopicsLook("g", "k", 3, (), {}))
    description = {"bootstrap_servers": "b:9092", "group_id": "g", "workers": [{"url": "http://w1:8083"}]}
    client = InternalTopicsClient(ConnectSession(ConnectCluster.from_mapping(description)))
    client.unknown = {"c": UnreachableError("no broker at t:9092 answers")}
    monkeypatch.setattr(ConnectTopicsPlanOperator, "client", lambda self: nullcontext((None, client)))
    with pytest.raises(AirflowException, match="no broker at t:9092 answers"):
        ConnectTopicsPlanOperator(task_id="plan").execute({})
    client.unknown = {}
    with pytest.raises(AirflowSkipException, match="Nothing to do"):
        ConnectTopicsPlanOperator(task_id="plan").execute({})


def test_another_plan_than_the_approved_one_is_not_carried_out() -> None:
    another = replace(PLAN, changes=PLAN.changes[:1])
    operator = ConnectTopicsOperator(task_id="create", plan=another.to_dict(), approval={"plan_hash": PLAN.hash})
    with pytest.raises(AirflowFailException, match="not the one that was approved"):
        operator.execute({})


def test_what_is_left_of_a_plan_that_was_cut_off_needs_no_other_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: dict[str, Any] = {}
    monkeypatch.setattr(create_topics, "read_journal", lambda kafka, group_id: SimpleNamespace(changes=begun))

    def require(now: TopicPlan) -> None:
        create_topics.require_approved_topics(KafkaSettings.of("b:9092"), PLAN, now)

    left = TopicPlan(PLAN.changes[3:], {"group": "g", "topics": {"own-0": {}}})
    require(PLAN)
    with pytest.raises(PlanMovedError):
        require(left)
    for document in ({"hash": PLAN.hash}, {"hash": "of the rest", "approved": PLAN.hash}):
        begun["1"] = SimpleNamespace(kind=create_topics.KIND, plan=document, state=RolloutState.RUNNING)
        require(left)
        require(replace(left, changes=()))
        with pytest.raises(PlanMovedError):
            require(replace(left, changes=(*left.changes, created("another"))))
    begun["1"].state = RolloutState.DONE  # its task was killed before it could say so
    require(replace(left, changes=()))
    with pytest.raises(PlanMovedError):
        require(left)
    begun["1"].state = RolloutState.ABORTED
    with pytest.raises(PlanMovedError):
        require(left)
