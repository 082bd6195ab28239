"""What `eos status` does not let an operator miss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.modes import ModeVerdict
from airflow_eos_provider.kafka.transactions import TransactionDescription
from airflow_eos_provider.rollout.findings import findings

W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
NOW = 1_000_000.0


def told(cluster: Any) -> list[str]:
    return [finding.what for finding in findings(cluster.observe())]


@pytest.mark.parametrize("mode", list(Mode))
def test_of_a_healthy_cluster_there_is_nothing_to_tell(cluster_in: Any, mode: Mode) -> None:
    assert told(cluster_in(mode)) == []


def transaction(state: str, age_seconds: float, timeout_seconds: float = 60.0) -> TransactionDescription:
    started = None if state == "Empty" else int((NOW - age_seconds) * 1000)
    return TransactionDescription("lab-mirror-0", state, 1, 0, int(timeout_seconds * 1000), started, ())


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda c: c.join("w9:8083"), "w9:8083 is a member of the group, but not in the cluster file"),
        (lambda c: c.stop(W2), "w2:8083 is stopped; by its file it would join as disabled"),
        (lambda c: c.leave(W2), "w2:8083 runs, but is not a member of group lab"),
        (lambda c: c.facts(W2, problem="it has no 'start'"), "w2:8083: it has no 'start'"),
        (lambda c: c.worker(W2, rest_problem="refused"), "w2:8083: refused"),
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN, "no log"), "the mode of w2:8083 is unknown: no log"),
        (lambda c: c.rebalancing(), "the group is in state PreparingRebalance"),
        (lambda c: c.assign(W2, delay_ms=293_987), "a rebalance delay runs (294 s at the last rebalance)"),
        (lambda c: c.task("mirror", 1, state="FAILED"), "connector mirror has FAILED task 1: unknown (no trace)"),
        (lambda c: c.status("sink", state="FAILED"), "connector sink has FAILED"),
        (lambda c: c.see(config=None, config_problem="held back"), "held back"),
        (lambda c: c.see(statuses=None, statuses_problem="no REST"), "no REST"),
        (lambda c: c.see(transactions=None, transactions_problem="not authorised"), "not authorised"),
        (
            lambda c: c.see(transactions=(transaction("Ongoing", 90.0),)),
            "the transaction of lab-mirror-0 is open for 90 s, over its timeout of 60 s",
        ),
    ],
)
def test_one_thing_that_is_not_as_it_should_be_is_told_once(cluster: Any, broken: Any, words: str) -> None:
    broken(cluster)
    found = told(cluster)
    assert len(found) == 1
    assert found[0].startswith(words)


def test_an_unreadable_group_is_told_and_nobody_is_called_missing(cluster: Any) -> None:
    cluster.group_problem = "no broker answers"
    assert told(cluster) == ["no broker answers"]


@pytest.mark.parametrize(
    ("state", "age_seconds"), [("Ongoing", 30.0), ("Ongoing", 60.0), ("Empty", 90.0), ("CompleteCommit", 90.0)]
)
def test_a_transaction_that_is_within_its_time_or_ended_is_not_told(
    cluster: Any, state: str, age_seconds: float
) -> None:
    assert told(cluster.see(transactions=(transaction(state, age_seconds),))) == []


def test_a_transaction_that_begins_this_moment_is_not_told(cluster: Any) -> None:
    beginning = transaction("Ongoing", 90.0)._replace(started_at_ms=None)
    assert told(cluster.see(transactions=(beginning,))) == []


def test_two_neighbouring_modes_are_a_roll_under_way(cluster: Any) -> None:
    assert told(cluster.roll(W2, Mode.PREPARING, at=1.0)) == ["the workers run in different modes: disabled, preparing"]


def test_disabled_beside_enabled_is_told_for_what_it_is(cluster: Any) -> None:
    modes, reading = told(cluster.roll(W2, Mode.ENABLED, at=1.0))
    assert "exactly-once is not given" in modes
    assert reading.startswith("beside enabled workers, w1:8083, w3:8083 would read source offsets uncommitted")


def test_workers_that_read_offsets_committed_are_fine_beside_enabled_ones(cluster_in: Any) -> None:
    cluster = cluster_in(Mode.PREPARING).roll(W2, Mode.ENABLED, at=1.0)
    for worker_id in (W1, W3):
        properties = {**cluster.workers[worker_id].facts.properties, "isolation.level": "read_committed"}
        cluster.facts(worker_id, properties=properties)
    assert told(cluster) == ["the workers run in different modes: enabled, preparing"]


def test_a_group_that_was_prepared_by_hand_is_told_before_it_matters(cluster_in: Any) -> None:
    cluster = cluster_in(Mode.PREPARING)
    facts = cluster.workers[W2].facts
    cluster.facts(W2, properties={**facts.properties, "isolation.level": "read_uncommitted"})
    assert told(cluster) == ["w2:8083 would read source offsets uncommitted as soon as one worker is enabled"]


def test_a_stopped_worker_does_not_make_the_modes_differ(cluster_in: Any) -> None:
    found = told(cluster_in(Mode.ENABLED).edit_file(W3, Mode.DISABLED).stop(W3))
    assert found == ["w3:8083 is stopped; by its file it would join as disabled"]


def test_a_layer_that_disagrees_is_told_in_its_own_words(cluster: Any) -> None:
    mode = replace(cluster.workers[W2].mode, disagreements=("the file says enabled since 02:13",))
    assert told(cluster.worker(W2, mode=mode)) == ["w2:8083: the file says enabled since 02:13"]


def test_a_pending_fencing_round_is_told_where_one_is_due(cluster_in: Any) -> None:
    for mode, due in ((Mode.PREPARING, False), (Mode.ENABLED, True)):
        found = told(cluster_in(mode).connector("mirror", pending_fencing=True).connector("sink", pending_fencing=True))
        assert found == (["a fencing round for mirror is pending"] if due else [])


def test_a_pending_fencing_round_is_told_as_soon_as_one_worker_is_enabled(cluster_in: Any) -> None:
    found = told(cluster_in(Mode.PREPARING).roll(W2, Mode.ENABLED, at=1.0).connector("mirror", pending_fencing=True))
    assert found[1:] == ["a fencing round for mirror is pending"]
