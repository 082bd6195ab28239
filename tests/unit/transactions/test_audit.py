"""What an audit of transactions finds, decided from what was seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.topics.config_topic import (
    ClusterState,
    ConnectorConfigState,
    TaskCountRecord,
    TaskSet,
)
from airflow_eos_provider.kafka.admin.open_transactions import HeldOpen
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.transactions.audit import (
    DEFAULT_LIMITS,
    Audit,
    FindingKind,
    Limits,
    Seen,
    audit,
    expected_ids,
    live_ids,
)
from airflow_eos_provider.transactions.collisions import Collision, CollisionKind
from airflow_eos_provider.transactions.hanging import Hanging, HangingLook
from airflow_eos_provider.transactions.known_ids import KnownId, Owner
from airflow_eos_provider.transactions.readable_ends import PartitionEnds

DAY = 86_400.0
NOW = 1_000 * DAY
HELD = HeldOpen("orders", 3, 7, 1, 0, 100, 5)


def known(
    *, began_ago: float | None = None, state: TransactionState = TransactionState.COMPLETE_COMMIT, id_: str = "g-c-0"
) -> KnownId:
    began = None if began_ago is None else int((NOW - began_ago) * 1000)
    described = TransactionDescription(
        id_, state, 7, 1, 60_000, began if state.is_open else None, (("orders", 3),) if state.is_open else (), began
    )
    return KnownId(described, Owner("c, task 0", "g", "c"))


def audited(*ids: KnownId, limits: Limits = DEFAULT_LIMITS, **seen: Any) -> Audit:
    given = {"live": {"g-c-0": "c"}, "expiration_seconds": 7 * DAY, "hanging": HangingLook((), (), {}), **seen}
    return audit(NOW, "g", Seen(ids=ids, **given), limits)


def test_nothing_found_and_all_seen_passes() -> None:
    fine = audited(known(began_ago=DAY))
    assert (fine.verdict, fine.keys, fine.to_dict()["findings"]) == ("pass", (), [])
    assert "none hangs or is open too long" in fine.describe()


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        (TransactionState.COMPLETE_COMMIT, FindingKind.LOST_MARKER, "deliver them again"),
        (TransactionState.COMPLETE_ABORT, FindingKind.HANGING, "ends it"),
        (TransactionState.EMPTY, FindingKind.HANGING, "ends it"),
        (None, FindingKind.HANGING, "ends it"),
    ],
)
def test_what_hangs_after_a_commit_has_lost_its_marker(
    state: TransactionState | None, kind: FindingKind, words: str
) -> None:
    hanging = Hanging(HELD, None if state is None else "g-c-0", state, 2)
    found = audited(hanging=HangingLook((hanging,), (), {}), ends={HELD.place: PartitionEnds(100, 150)})
    (finding,) = found.findings
    assert (finding.kind, finding.subject, found.verdict) == (kind, "orders-3", "fail")
    assert "50 offsets wait" in finding.found
    assert words in finding.remedy
    assert "eos transactions abort --topic orders --partition 3 --start-offset 100" in finding.remedy


def test_another_transaction_that_hangs_in_the_same_partition_is_news() -> None:
    def keys(start: int) -> tuple[str, ...]:
        return audited(hanging=HangingLook((Hanging(HELD._replace(start_offset=start)),), (), {})).keys

    assert keys(100) == keys(100) != keys(101)


@pytest.mark.parametrize(("seconds", "limit", "found"), [(69, None, 0), (71, None, 1), (31, 30.0, 1), (29, 30.0, 0)])
def test_a_transaction_is_open_too_long_past_its_timeout_or_past_the_limit_given(
    seconds: float, limit: float | None, found: int
) -> None:
    one = known(began_ago=seconds, state=TransactionState.ONGOING)
    findings = audited(one, limits=Limits(open_seconds=limit)).findings
    assert len(findings) == found
    assert all(each.kind is FindingKind.OPEN and "orders-3" in each.found for each in findings)
    assert [("should have ended it" in each.found) for each in findings] == [seconds > 70] * found


@pytest.mark.parametrize(
    ("limits", "expiration_days", "warned_after"),
    [
        (Limits(), 7, 5.0),  # two days before
        (Limits(days_before=1), 7, 5.25),  # three quarters
        (Limits(idle_part=0.9, days_before=1), 7, 6.0),
        (Limits(), 1, 0.5),  # two days before one day is over: not in its first half
    ],
)
def test_an_idle_id_is_named_days_before_the_brokers_forget_it(
    limits: Limits, expiration_days: float, warned_after: float
) -> None:
    def findings(days: float) -> int:
        one = known(began_ago=days * DAY)
        return len(audited(one, limits=limits, expiration_seconds=expiration_days * DAY).findings)

    assert (findings(warned_after - 0.01), findings(warned_after + 0.01)) == (0, 1)


def test_an_idle_id_says_when_it_is_forgotten_and_what_to_do() -> None:
    (finding,) = audited(known(began_ago=5.5 * DAY)).findings
    assert (finding.kind, finding.subject) == (FindingKind.IDLE, "g-c-0")
    assert "forget the id in 36.0 h" in finding.found
    assert "KAFKA-18019" in finding.found
    (late,) = audited(known(began_ago=8 * DAY)).findings
    assert "any moment" in late.found


@pytest.mark.parametrize(
    "one",
    [
        known(began_ago=6 * DAY, id_="g-gone-0"),  # no task of a connector that exists
        known(),  # nobody knows when it was last used
    ],
)
def test_an_id_that_no_task_has_or_whose_use_is_not_known_is_not_named(one: KnownId) -> None:
    assert audited(one).findings == ()


def test_the_tasks_that_exist_are_those_of_the_last_set_of_connectors_that_are_not_stopped() -> None:
    def connector(name: str, tasks: int, target: str = "STARTED") -> ConnectorConfigState:
        return ConnectorConfigState(name, {}, 1, target, TaskSet(tasks, 2, {}))

    states = [connector("c", 2), connector("paused", 1, "PAUSED"), connector("stopped", 1, "STOPPED")]
    state = ClusterState(
        {each.name: each for each in states} | {"new": ConnectorConfigState("new", {}, 1, "STARTED")}, 9
    )
    assert live_ids("g", state) == {"g-c-0": "c", "g-c-1": "c", "g-paused-0": "paused"}


def test_an_id_without_a_transaction_since_its_task_took_it_is_idle_for_an_unknown_time() -> None:
    """A restarted task clears the time of its last transaction, and the brokers forget its id all the same."""
    unknown = audited(known())
    assert (unknown.verdict, unknown.findings) == ("inconclusive", ())
    assert "for how long 1 id of tasks is idle" in unknown.doubts[0]
    assert "g-c-0" in unknown.doubts[0]
    assert audited(known(id_="g-gone-0")).verdict == "pass"
    assert audited(replace(known(), used_at=NOW - DAY)).verdict == "pass"
    (finding,) = audited(replace(known(), used_at=NOW - 6 * DAY)).findings
    assert "the last use of g-c-0 (c, task 0) was 6.0 d ago" in finding.found


def test_an_id_of_a_task_that_the_brokers_do_not_name_may_be_forgotten() -> None:
    leader = known(began_ago=60, id_="connect-cluster-g")
    task = known(began_ago=60)
    expected = frozenset({"g-c-0", "g-c-1"})
    found = audited(leader, task, expected=expected)
    assert found.verdict == "inconclusive"
    assert "1 id of tasks that exist (g-c-1)" in found.doubts[0]
    assert audited(leader, task, expected=frozenset({"g-c-0"})).verdict == "pass"
    assert audited(task, expected=expected).verdict == "pass"  # no leader's id: the group runs without transactions


def test_the_ids_that_brokers_have_to_know_are_those_of_fenced_tasks_of_started_connectors() -> None:
    def connector(name: str, **more: Any) -> ConnectorConfigState:
        fenced = {"fencing": TaskCountRecord(2, 3), "config": {}, "target_state": "STARTED", **more}
        return ConnectorConfigState(name, config_offset=1, task_set=TaskSet(2, 2, {}), **fenced)

    states = [
        connector("c"),
        connector("sink", fencing=None),
        connector("paused", target_state="PAUSED"),
        connector("pending", pending_fencing=True),
        connector("broken", inconsistent=True),
        connector("elsewhere", config={"producer.override.bootstrap.servers": "other:9092"}),
    ]
    assert expected_ids("g", ClusterState({each.name: each for each in states}, 9)) == {"g-c-0", "g-c-1"}


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_a_decided_transaction_whose_markers_do_not_get_through_is_open_too_long(state: TransactionState) -> None:
    assert audited(known(began_ago=69, state=state)).verdict == "pass"
    (finding,) = audited(known(began_ago=71, state=state)).findings
    assert (finding.kind, finding.subject) == (FindingKind.OPEN, "g-c-0")
    assert "ends when each has its marker" in finding.remedy
    assert "eos fencing" not in finding.remedy  # it cannot end that


def test_a_harmful_collision_is_a_finding_another_is_a_note() -> None:
    harmful = Collision(CollisionKind.IDS, "a-b-c-<task>", "they fence each other", "rename one")
    noted = Collision(CollisionKind.PREFIX, "a-", "a reaches into a-b", "name none so", is_harmful=False)
    found = audited(collisions=(harmful, noted))
    assert [each.subject for each in found.findings] == ["a-b-c-<task>"]
    assert found.notes == ("a reaches into a-b; name none so",)
    assert audited(collisions=(noted,)).verdict == "pass"
    assert "Note: a reaches into a-b" in audited(collisions=(noted,)).describe()


def test_what_cannot_be_seen_is_a_doubt_and_a_finding_outweighs_it() -> None:
    look = HangingLook((), (HELD,), {("t", number): "it has no leader" for number in range(5)})
    unseen = audited(hanging=look)
    assert (unseen.verdict, unseen.keys, len(unseen.doubts)) == ("inconclusive", ("doubt",), 2)
    assert "5 partitions" in unseen.describe()
    hidden = audited(hanging=HangingLook((), (), {}, "topics that User:a may not see"))
    assert (hidden.verdict, hidden.doubts) == ("inconclusive", ("what hangs in topics that User:a may not see",))
    assert audited(hanging=replace(look, hanging=(Hanging(HELD),))).verdict == "fail"
    assert audited(doubts=("the transactional ids: refused",)).verdict == "inconclusive"
    no_expiration = audited(known(began_ago=6 * DAY), expiration_seconds=None)
    assert "DescribeConfigs" in no_expiration.doubts[0]
    assert audited(expiration_seconds=None).verdict == "pass"  # no id that could expire
