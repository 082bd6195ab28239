"""What a plan of rights says, and with which login it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.changes.change import Plan, options, read_request
from airflow_eos_provider.changes.rights import asked
from airflow_eos_provider.changes.rights.change import GRANT, REVOKE, Grant
from airflow_eos_provider.changes.rights.rights_plan import AclPlan
from airflow_eos_provider.changes.rights.rights_request import RevokeRequest, RightsRequest
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka import kafka_session as kafka_session
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Pattern, Resource
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.stored import from_json, to_json

WRITER = [
    Acl("User:writer", operation, Resource.TRANSACTIONAL_ID, f"g-orders-{task}")
    for operation in (Operation.DESCRIBE, Operation.WRITE)
    for task in range(40)
]
TOPICS = [Acl("User:connect", Operation.READ, Resource.TOPIC, f"topic-{n}") for n in range(30)]
MADE = AclPlan(True, "cluster", tuple(sorted(WRITER + TOPICS)))
PREFIX = Acl("User:writer", Operation.WRITE, Resource.TRANSACTIONAL_ID, "g-orders-", Pattern.PREFIXED)


class Brokers:
    """Stands in for a session with the brokers.

    :ivar written: what was created or deleted through it.
    """

    def __init__(self, cluster: str = "cluster") -> None:
        self.cluster, self.written = cluster, list[Acl]()

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None: ...

    def cluster_id(self) -> str:
        return self.cluster

    @contextmanager
    def transactions(self) -> Any:
        yield SimpleNamespace(create_acls=self.written.extend, delete_acls=self.written.extend)


Planned = Callable[..., Plan]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """The plan of a change where this is to be created or deleted."""

    def planned(
        made: AclPlan = MADE, notes: Sequence[str] = (), reached: Any = None, *, even_if_needed: bool = False
    ) -> Plan:
        found = SimpleNamespace(
            facts=SimpleNamespace(notes=notes),
            seen=SimpleNamespace(group_id="g"),
            grant=lambda: made,
            revocation=lambda *_, **__: made,
            also_reached=lambda _: reached or {},
        )
        monkeypatch.setattr(asked, "asked_rights", lambda *_: found)
        session: Any = None
        if made.grants:
            return GRANT.plan(session, RightsRequest())
        return REVOKE.plan(session, RevokeRequest(even_if_needed=even_if_needed))

    return planned


def test_a_plan_says_every_acl_and_what_else_is_to_be_known(planned: Planned) -> None:
    plan = planned(MADE, ["User:connect is assumed"], {PREFIX: [f"g-orders-eu-{n}" for n in range(9)]})
    assert plan.question == "Grant 110 ACLs of Kafka Connect group g?"
    assert "+ User:writer Describe, Write on TransactionalId g-orders-0…39" in plan.lines
    assert {f"+ {acl.principal} Read on Topic {acl.name}" for acl in TOPICS} < set(plan.lines)
    shown = "g-orders-eu-0, g-orders-eu-1, g-orders-eu-2, g-orders-eu-3, g-orders-eu-4 and 4 more"
    assert f"! The prefix g-orders- of User:writer also reaches {shown}." in plan.lines
    assert "note: User:connect is assumed" in plan.lines
    assert from_json(tuple[Acl, ...], plan.content["acls"]) == MADE.acls
    odd = replace(PREFIX, host="10.0.0.1", is_denial=True)
    assert from_json(Acl, to_json(odd)) == odd
    assert planned(MADE, ["a note"] * 12).lines[-1] == "and 2 notes more"


def test_a_revocation_says_what_stays_or_that_what_runs_fails(planned: Planned) -> None:
    revoked = replace(MADE, grants=False, kept=tuple(TOPICS))
    lines = planned(revoked).lines
    assert "- User:writer Describe, Write on TransactionalId g-orders-0…39" in lines
    assert "kept, since it is needed: User:connect Read on Topic topic-0" in lines
    assert not [line for line in lines if "they fail without it" in line]
    assert [line for line in planned(revoked, even_if_needed=True).lines if "they fail without it" in line]


def test_another_plan_has_another_hash(planned: Planned) -> None:
    plan = planned()
    others = (
        replace(MADE, kafka_cluster_id="other"),
        replace(MADE, acls=MADE.acls[1:]),
        replace(MADE, everybody=("Topic t has no ACL yet",)),
        replace(MADE, grants=False),
    )
    assert len({plan.hash, *(planned(other).hash for other in others)}) == 5
    assert planned(replace(MADE, grants=False)).hash == planned(replace(MADE, grants=False, kept=(PREFIX,))).hash


def test_it_says_why_there_is_nothing_to_do(planned: Planned) -> None:
    assert planned(replace(MADE, acls=())).nothing == "No needed ACL is missing."
    none = AclPlan(False, "cluster", ())
    assert planned(none).nothing == "None of these ACLs exists."
    assert planned(replace(none, kept=tuple(TOPICS))).nothing.startswith("30 ACLs must stay")


def test_another_login_writes_and_only_in_the_same_kafka_cluster(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, own, admin = planned(), Brokers(), Brokers()
    session: Any = SimpleNamespace(kafka=own)
    GRANT.apply(session, plan, None, print)
    assert own.written == list(MADE.acls)
    own.written.clear()
    monkeypatch.setattr(kafka_session, "Session", lambda settings: admin)
    as_admin = Grant(KafkaSettings.of("b:9092"))
    assert as_admin.apply(session, plan, None, print).to_dict() == {"acls": plan.content["acls"]}
    assert admin.written == list(MADE.acls)
    admin.written.clear()
    admin.cluster = "other"
    with pytest.raises(ConfigurationError, match="leads to Kafka cluster other"):
        as_admin.apply(session, plan, None, print)
    assert (own.written, admin.written) == ([], [])


def test_who_gets_rights_is_no_part_of_a_form_and_only_a_revocation_may_take_what_is_needed() -> None:
    titled = {name for name, (option, _) in options(RightsRequest).items() if option.title}
    assert titled == {"connectors", "mode", "prefixed", "for_tasks_max"}
    with pytest.raises(ConfigurationError, match="even_if_needed"):
        read_request(RightsRequest, {"even_if_needed": True})
    with pytest.raises(ConfigurationError, match="sometimes"):
        read_request(RightsRequest, {"mode": "sometimes"})
    with pytest.raises(ConfigurationError, match="The principal of the worker is 'user:alice'"):
        asked.asked_rights(None, RightsRequest(worker="user:alice"))  # type: ignore[arg-type]


def test_a_group_of_acls_has_each_of_them_once() -> None:
    odd = [replace(WRITER[0], name=name) for name in ("g-orders-07", "g-orders-", "7", "g-x-1", "g-x-3", "g-x-4")]
    prefixed, from_one = replace(PREFIX, principal="User:w", name="g-a-"), replace(WRITER[0], host="10.0.0.1")
    assert sorted(AclPlan(True, "k", (*WRITER, *odd, prefixed, from_one)).lines()) == sorted(
        [
            "+ User:w Write on TransactionalId beginning with g-a-",
            "+ User:writer Describe on TransactionalId 7",
            "+ User:writer Describe on TransactionalId g-orders-",
            "+ User:writer Describe on TransactionalId g-orders-0 from 10.0.0.1",
            "+ User:writer Describe on TransactionalId g-orders-07",
            "+ User:writer Describe on TransactionalId g-x-1,3…4",
            "+ User:writer Describe, Write on TransactionalId g-orders-0…39",
        ]
    )
