"""Rights granted and revoked from Airflow: the approver sees every ACL, and only these are written.

The looks at the brokers are stood in for; tests/integration/test_acl.py has real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import ParamValidationError
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_eos_provider.acls.grant import GRANT, REVOKE, AclPlan
from airflow_eos_provider.dag_factories import rights_dag
from airflow_eos_provider.kafka import session as kafka_session
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Pattern, Resource
from airflow_eos_provider.operators import connect_rights
from airflow_eos_provider.operators.approvable import approvable
from airflow_eos_provider.operators.approval import approval_body
from airflow_eos_provider.operators.connect_rights import ConnectRightsOperator, ConnectRightsPlanOperator
from airflow_eos_provider.operators.shown_plan import MOST_LINES

WRITER = [
    Acl("User:writer", operation, Resource.TRANSACTIONAL_ID, f"g-orders-{task}")
    for operation in (Operation.DESCRIBE, Operation.WRITE)
    for task in range(40)
]
TOPICS = [Acl("User:connect", Operation.READ, Resource.TOPIC, f"topic-{n}") for n in range(30)]
PLAN = AclPlan(GRANT, "cluster", tuple(sorted(WRITER + TOPICS)))


class Written:
    """Stands in for a session with the brokers: which ACLs were written through it."""

    def __init__(self, cluster: str = "cluster") -> None:
        self.cluster, self.acls = cluster, list[Acl]()

    def cluster_id(self) -> str:
        return self.cluster

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Written]:
    """Let both operators find this plan; what is applied is written down."""

    def use(plan: AclPlan, notes: tuple[str, ...] = (), reached: dict[Any, Any] | None = None) -> Written:
        written = Written()
        asked = SimpleNamespace(
            facts=SimpleNamespace(notes=notes),
            seen=SimpleNamespace(group_id="g"),
            session=SimpleNamespace(kafka=written),
            also_reached=lambda made: reached or {},
        )

        def planned(self: Any) -> AbstractContextManager[Any]:
            return nullcontext((asked, plan))

        for operator in (ConnectRightsPlanOperator, ConnectRightsOperator):
            monkeypatch.setattr(operator, "planned", planned)
        monkeypatch.setattr(AclPlan, "apply", lambda self, kafka: kafka.acls.extend(self.acls))
        return written

    return use


def plan_of(context: dict[str, Any], **asked: Any) -> dict[str, Any]:
    operator = ConnectRightsPlanOperator(task_id="plan", **{"action": "grant", **asked})
    return operator.execute(context)  # type: ignore[arg-type]


def change_of(plan: dict[str, Any], **more: Any) -> ConnectRightsOperator:
    approval = {"plan_hash": plan["hash"], "approved_by": "grace"}
    return ConnectRightsOperator(task_id="change", action="grant", plan=plan, approval=approval, **more)


def test_the_approver_sees_every_acl_and_what_else_is_to_be_known(
    use: Callable[..., Written], context: dict[str, Any]
) -> None:
    rule = Acl("User:writer", Operation.WRITE, Resource.TRANSACTIONAL_ID, "g-orders-", Pattern.PREFIXED)
    use(PLAN, ("User:connect is assumed",), {rule: [f"g-orders-eu-{n}" for n in range(9)]})
    shown = approvable(plan_of(context))
    assert "Create 110 ACLs of Kafka Connect group g?" in shown.question
    body = approval_body(shown, "before the roll")
    assert "User:writer Describe, Write on TransactionalId g-orders-0…39" in body
    for acl in TOPICS:
        assert f"{acl.principal} Read on Topic {acl.name}`" in body
    assert "also reaches g-orders-eu-0, g-orders-eu-1, g-orders-eu-2, g-orders-eu-3, g-orders-eu-4 and 4 more" in body
    assert "User:connect is assumed" in body
    assert shown.hash in body


def test_what_runs_and_loses_its_rights_is_said_in_the_plan(
    use: Callable[..., Written], context: dict[str, Any]
) -> None:
    use(replace(PLAN, kind=REVOKE))
    body = approval_body(approvable(plan_of(context, action="revoke", even_if_needed="True")), "")
    assert "they fail without it" in body
    use(replace(PLAN, kind=REVOKE, kept=tuple(TOPICS)))
    body = approval_body(approvable(plan_of(context, action="revoke", even_if_needed="False")), "")
    assert "they fail without it" not in body
    assert "kept, since it is needed: 30 ACLs" in body


def test_what_was_approved_is_what_is_written(use: Callable[..., Written], context: dict[str, Any]) -> None:
    written = use(PLAN)
    plan = plan_of(context)
    assert change_of(plan).execute(context)["acls"] == PLAN.to_dict()["acls"]  # type: ignore[arg-type]
    assert written.acls == list(PLAN.acls)


def test_another_plan_than_the_approved_one_writes_nothing(
    use: Callable[..., Written], context: dict[str, Any]
) -> None:
    use(PLAN)
    plan = plan_of(context)
    moved = use(replace(PLAN, acls=(*PLAN.acls, Acl("User:new", Operation.ALL, Resource.TOPIC, "*"))))
    with pytest.raises(AirflowFailException, match="ACLs, connectors or their tasks have changed"):
        change_of(plan).execute(context)  # type: ignore[arg-type]
    assert moved.acls == []


def test_another_login_writes_and_only_in_the_same_kafka_cluster(
    use: Callable[..., Written], context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = use(PLAN)
    plan = plan_of(context)
    monkeypatch.setattr(connect_rights, "kafka_settings", lambda conn_id: conn_id)
    for cluster in ("cluster", "other"):
        admin = Written(cluster)
        monkeypatch.setattr(kafka_session, "Session", lambda conn_id, admin=admin: admin)
        change = change_of(plan, admin_conn_id="kafka_admin")
        if cluster == "cluster":
            change.execute(context)  # type: ignore[arg-type]
            assert admin.acls == list(PLAN.acls)
        else:
            with pytest.raises(AirflowFailException, match="leads to Kafka cluster other"):
                change.execute(context)  # type: ignore[arg-type]
            assert admin.acls == []
    assert own.acls == [], "the cluster's own login has written"


def test_nothing_to_do_skips_the_rest(use: Callable[..., Written], context: dict[str, Any]) -> None:
    use(replace(PLAN, acls=()))
    with pytest.raises(AirflowSkipException, match="all that is needed is there"):
        plan_of(context)
    use(AclPlan(REVOKE, "cluster", (), tuple(TOPICS)))
    with pytest.raises(AirflowSkipException, match="30 ACLs must stay"):
        plan_of(context, action="revoke")


def test_a_plan_that_an_approver_cannot_be_shown_whole_is_refused(
    use: Callable[..., Written], context: dict[str, Any]
) -> None:
    many = tuple(Acl("User:w", Operation.READ, Resource.TOPIC, f"t-{n}x") for n in range(MOST_LINES + 1))
    use(AclPlan(GRANT, "cluster", many))
    with pytest.raises(AirflowFailException, match="more than an approver can be shown"):
        plan_of(context)


@pytest.mark.parametrize(("field", "value"), [("action", "take"), ("mode", "sometimes")])
def test_an_unknown_word_is_refused_before_anything_is_asked(context: dict[str, Any], field: str, value: str) -> None:
    with pytest.raises(AirflowFailException, match=value):
        plan_of(context, **{field: value})


@pytest.mark.parametrize("switched_on", [True, "True"])
def test_a_grant_takes_no_switch_of_a_revocation(context: dict[str, Any], switched_on: Any) -> None:
    with pytest.raises(AirflowFailException, match="even_if_needed has no meaning for a grant"):
        plan_of(context, even_if_needed=switched_on)


def test_a_principal_that_no_client_can_have_is_refused_before_anything_is_asked(context: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="The principal of the worker is 'user:alice'"):
        plan_of(context, principals={"worker": "user:alice"})


def test_the_form_names_no_principal_and_is_checked() -> None:
    dag = rights_dag(dag_id="rights_7", conn_id="cluster_7", principals={"worker": "User:connect"})
    assert set(dag.params) == {
        *("action", "connectors", "mode", "prefixed", "for_tasks_max", "even_if_needed", "reason")
    }
    for name, bad in {"action": "take", "mode": "on", "prefixed": "perhaps"}.items():
        with pytest.raises(ParamValidationError):
            dag.params.get_param(name).resolve(bad)
    plan: Any = dag.get_task("plan")
    assert plan.render_template(plan.connectors, {"params": {"connectors": None}}) == ""
    assert plan.principals == {"worker": "User:connect"}


def test_a_group_of_acls_has_each_of_them_once() -> None:
    prefixed = Acl("User:w", Operation.WRITE, Resource.TRANSACTIONAL_ID, "g-a-", Pattern.PREFIXED)
    odd = [replace(WRITER[0], name=name) for name in ("g-orders-07", "g-orders-", "7", "g-x-1", "g-x-3", "g-x-4")]
    from_one = replace(WRITER[0], host="10.0.0.1")
    lines = AclPlan(GRANT, "k", (*WRITER, *odd, prefixed, from_one)).grouped_lines()
    assert sorted(lines) == sorted(
        [
            "create: User:w Write on TransactionalId beginning with g-a-",
            "create: User:writer Describe on TransactionalId 7",
            "create: User:writer Describe on TransactionalId g-orders-",
            "create: User:writer Describe on TransactionalId g-orders-0 from 10.0.0.1",
            "create: User:writer Describe on TransactionalId g-orders-07",
            "create: User:writer Describe on TransactionalId g-x-1,3…4",
            "create: User:writer Describe, Write on TransactionalId g-orders-0…39",
        ]
    )
