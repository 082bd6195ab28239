"""What an older Kafka Connect makes of a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_eos_provider.connect.rest import ConnectorStatus, TaskStatus
from airflow_eos_provider.downgrade.older import (
    DowngradeLook,
    Effect,
    SeenWorker,
    findings,
)
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.offsets.seen.copies import Copies
from airflow_eos_provider.rollout.observe.reported_states import restart_request

COMMITTED = {"isolation.level": "read_committed"}
NEW = SeenWorker("w1:8083", "4.3.1", False, COMMITTED)
ENABLED = replace(NEW, exactly_once=True)
OLD = SeenWorker("w2:8083", "3.2.3", False, COMMITTED)
NO_ENDPOINT = (
    "org.apache.kafka.connect.runtime.rest.errors.ConnectRestException: HTTP 404 Not Found\n\tat "
    "org.apache.kafka.connect.runtime.distributed.DistributedHerder.lambda$fenceZombieSourceTasks$1(DistributedHerder)"
)


def connector(name: str = "orders", state: str = "RUNNING", *, trace: str = "", **config: str) -> ConnectorStatus:
    task = TaskStatus(0, "FAILED" if trace else "RUNNING", "w1:8083", trace or None)
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return ConnectorStatus(name, "source", state, "w1:8083", config=settings, tasks=(task,))


def copy(**numbers: float) -> Copies:
    """Copies that are as far, but for these numbers."""
    as_far = Copies("orders", "orders-offsets", 1, 1, 0, None, 0, 0, 0, 0, 1.0, 1.0)
    return replace(as_far, **numbers)  # type: ignore[arg-type]


def look(
    *workers: SeenWorker,
    connectors: tuple[ConnectorStatus, ...] = (),
    copies: tuple[Copies, ...] = (),
    to: str = "3.2.3",
    records: dict[str, int] | None = None,
) -> DowngradeLook:
    return DowngradeLook(
        "g", to, "http://w1:8083", workers or (NEW,), {c.name: c for c in connectors}, copies, {}, records or {}
    )


def only(found: list[Finding]) -> Finding:
    (one,) = found
    return one


def test_nothing_is_found_in_a_disabled_group_that_reads_committed() -> None:
    assert findings(look(NEW, connectors=(connector(),))) == []


@pytest.mark.parametrize("properties", [{}, {"isolation.level": "read_uncommitted"}])
def test_a_worker_that_reads_uncommitted_would_lose_records(properties: dict[str, str]) -> None:
    one = only(findings(look(replace(NEW, properties=properties))))
    assert (one.kind, one.subject) == (Effect.LOSES, "w1:8083")
    assert "eos plan --to disabled" in one.remedy


def test_a_file_that_is_not_readable_is_not_taken_for_a_good_one() -> None:
    assert only(findings(look(replace(NEW, properties=None)))).kind is Effect.UNKNOWN


def test_enabled_workers_name_the_tasks_that_may_fail_in_one_step() -> None:
    sink = replace(connector("to-s3"), type="sink")
    one = only(findings(look(ENABLED, connectors=(connector(), sink))))
    assert one.kind is Effect.FAILS
    assert "Tasks that may: orders-0" in one.found
    assert "to-s3" not in one.found


@pytest.mark.parametrize("version", [None, "4.3.1"])
def test_a_worker_that_does_not_say_its_mode_is_not_taken_for_one_that_is_not_enabled(version: str | None) -> None:
    silent = replace(NEW, worker_id="w3:8083", version=version, exactly_once=None)
    one = only(findings(look(NEW, silent)))
    assert (one.kind, one.subject) == (Effect.UNKNOWN, "w3:8083")
    failed = findings(look(OLD, replace(silent, version=None), connectors=(connector(trace=NO_ENDPOINT),)))
    assert failed[0].remedy.startswith("When every worker is older: curl")


def test_how_far_the_copies_are_behind_is_said_in_figures() -> None:
    one = only(findings(look(copies=(copy(read_own=3, same=0, behind=3, seconds_behind=6.54, missing=1),))))
    assert one.kind is Effect.REPEATS
    assert "of 3 offsets in its own topic orders-offsets 3 are ahead of the copy, by up to 6.5 s" in one.found
    assert "1 of them missing, so it starts from the beginning there" in one.found
    assert "eos offsets migrate orders --to global" in one.remedy


def test_a_copy_that_is_as_far_still_leaves_the_own_topic_behind() -> None:
    one = only(findings(look(copies=(copy(),))))
    assert one.kind is Effect.REPEATS
    assert "up to date with its own topic" in one.found


def test_a_copy_that_is_further_on_loses() -> None:
    assert only(findings(look(copies=(copy(same=0, behind=1, further=1),)))).kind is Effect.LOSES


@pytest.mark.parametrize("others", [{}, {"behind": 1}, {"left": 1}], ids=str)
def test_a_copy_of_a_transaction_that_is_not_committed_loses(others: dict[str, int]) -> None:
    one = only(findings(look(copies=(copy(same=0, ahead=1, **others),))))
    assert one.kind is Effect.LOSES
    assert "to a transaction that is not committed" in one.found


def test_an_own_topic_that_is_left_behind_is_not_said_to_be_as_far() -> None:
    one = only(findings(look(OLD, copies=(copy(same=0, left=2),))))
    assert one.kind is Effect.REPEATS
    assert "which is newer than its own topic orders-offsets in 2 source partitions" in one.found
    assert "eos offsets drop-own orders" in one.remedy


def test_failed_tasks_are_named_with_the_command_once_an_older_worker_is_there() -> None:
    failed = connector(trace=NO_ENDPOINT)
    assert findings(look(NEW, connectors=(failed,))) == [], "a matter of 'eos status'"
    one = only(findings(look(NEW, OLD, connectors=(failed,))))
    assert one.kind is Effect.FAILS
    assert "task 0 has FAILED because the fencing endpoint does not exist" in one.found
    assert one.remedy.startswith("When every worker is older: curl -X POST ")
    one = only(findings(look(OLD, connectors=(failed,))))
    assert one.remedy == restart_request("http://w1:8083", "orders")
    assert (
        "restart of the connector writes them again"
        in only(findings(look(OLD, connectors=(connector(trace="x"),)))).found
    )


def test_what_a_version_does_not_know_is_by_its_number() -> None:
    required = connector(exactly_once_support="required", transaction_boundary="poll")
    stopped = connector("ended", "STOPPED")
    one = (ENABLED,)

    def about(to: str) -> set[tuple[Effect, str]]:
        found = findings(look(*one, connectors=(required, stopped), copies=(copy(),), to=to, records={"orders": 1}))
        return {(each.kind, each.subject) for each in found}

    assert about("3.2.3") == {
        (Effect.FAILS, "w1:8083"),
        (Effect.REPEATS, "orders"),
        (Effect.CHANGES, "orders"),
        (Effect.CHANGES, "ended"),
        (Effect.CHANGES, "config topic"),
    }
    assert about("3.4.1") == {(Effect.CHANGES, "ended")}
    assert about("3.9.2") == set()
    assert about("7.2.0-ccs") == about("3.2.3"), "Confluent's number of Apache's 3.2"


def test_a_version_that_knows_the_mode_reads_by_it() -> None:
    assert findings(look(replace(ENABLED, properties={}), to="3.9.2")) == []


def test_a_connector_that_requires_exactly_once_is_to_be_changed_while_the_workers_are_enabled() -> None:
    required = connector(exactly_once_support="REQUIRED")
    (one,) = findings(look(NEW, connectors=(required,)))
    assert "while they are enabled" in one.remedy
    assert only(findings(look(OLD, connectors=(required,)))).remedy == ""
    assert only(findings(look(NEW, connectors=(connector(exactly_once_support="requested"),)))).remedy == ""


def test_an_own_topic_without_offsets_is_left_behind_all_the_same() -> None:
    one = only(findings(look(copies=(copy(read_own=0, same=0),))))
    assert (one.kind, "has no offset in its own topic" in one.found) == (Effect.REPEATS, True)


def test_the_worst_comes_first() -> None:
    found = findings(
        look(replace(ENABLED, properties={}), connectors=(connector("e", "STOPPED"),), copies=(copy(behind=1),))
    )
    assert [one.kind for one in found] == [Effect.LOSES, Effect.REPEATS, Effect.FAILS, Effect.CHANGES]
    assert [effect for effect in Effect if effect.verdict is Verdict.PASS] == [Effect.CHANGES]


def test_a_name_is_quoted_in_the_command() -> None:
    assert "/connectors/a%2Fb%20c/restart" in restart_request("http://w1:8083/", "a/b c")
