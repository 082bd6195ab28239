"""Drift: what no rollout has made is found, what a rollout makes is not, and what cannot be seen is never fine."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import ModeVerdict, Observed
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.journal.content import JournalContent, Unreadable
from airflow_eos_provider.journal.records import (
    Lease,
    Owner,
    RolloutRecord,
    RolloutState,
)
from airflow_eos_provider.rollout.drift import watch as drift_watch
from airflow_eos_provider.rollout.drift.drift import (
    Drift,
    DriftKind,
    Expected,
    find_drift,
    newest_rollout,
)
from airflow_eos_provider.rollout.hosts.host import Edit
from airflow_eos_provider.rollout.roll_history import Rollout, whole_history
from tests.unit.rollout.conftest import NOW, W1, W2, W3


def rollout(plan: Any, state: RolloutState = RolloutState.DONE, *, held: bool = False, at: float = NOW) -> Rollout:
    record = RolloutRecord(f"r{at:.0f}", plan.to_dict(), {}, state, at, note="as it was found")
    lease = Lease(Owner.this_process(), record.rollout_id, "ann", "w1: intent", time.time() + 60) if held else None
    (found,) = whole_history(JournalContent(rollouts={record.rollout_id: record}, lease=lease))
    return found


def test_what_a_rollout_of_a_newer_version_has_left_is_a_doubt_and_no_finding(
    cluster_in: Any, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers are enabled; by the last rollout that is understood they should not be."""
    done = rollout(plan).record
    journal = JournalContent(
        rollouts={done.rollout_id: replace(done, plan=cluster_in(Mode.DISABLED).plan(Mode.PREPARING).to_dict())},
        unreadable={"r2": Unreadable("was written by a newer version", appended_at_ms=int(NOW + 9) * 1000)},
    )
    monkeypatch.setattr(drift_watch, "read_journal", lambda *_: journal)
    described: Any = SimpleNamespace(kafka=None, other_kafka=(), group_id="lab", workers=(), rest=None)
    watch = drift_watch.DriftWatch(described)
    watch._observer.observe = cluster_in(Mode.ENABLED).observe  # type: ignore[method-assign]
    drift = watch.look(stable_seconds=0.0)
    assert drift.findings == ()
    assert drift.doubts == ("what rollout r2 has left: it was written by a newer version",)


@pytest.fixture
def plan(cluster_in: Any) -> Any:
    """From preparing to enabled."""
    return cluster_in(Mode.PREPARING).plan(Mode.ENABLED)


@pytest.fixture
def enabled(cluster_in: Any) -> Any:
    """The cluster as that plan leaves it."""
    return cluster_in(Mode.ENABLED)


@pytest.fixture
def expected(plan: Any) -> Expected:
    return Expected.after(rollout(plan))


def only(drift: Drift) -> Any:
    (found,) = drift.findings
    assert drift.verdict is Verdict.FAIL
    assert found.remedy
    assert found.found in drift.describe()
    assert found.remedy in drift.describe()
    return found


def test_a_cluster_as_the_last_rollout_left_it_has_not_drifted(enabled: Any, expected: Expected) -> None:
    drift = find_drift(enabled.observe(), expected)
    assert (drift.verdict, drift.keys) == (Verdict.PASS, ())
    assert "is as expected (rollout r1000000" in drift.describe()


def test_a_worker_in_another_mode_is_named_with_both_modes(enabled: Any, expected: Expected) -> None:
    enabled.prove(W2, ModeVerdict.DISABLED)
    found = only(find_drift(enabled.observe(), expected))
    assert (found.kind, found.subject) == (DriftKind.MODE, W2)
    assert "runs disabled, expected is enabled" in found.found
    assert f"{MODE_PROPERTY}=enabled" in found.remedy


def test_a_worker_that_is_surely_not_enabled_has_drifted_though_its_mode_is_not_proven(
    enabled: Any, expected: Expected
) -> None:
    mode = replace(
        enabled.workers[W2].mode, verdict=ModeVerdict.UNKNOWN, observed=Observed(False, "it answers that it does not")
    )
    drift = find_drift(enabled.worker(W2, mode=mode).observe(), expected)
    assert "runs disabled or preparing" in drift.findings[0].found


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (lambda c: c.prove(W2, ModeVerdict.UNKNOWN), f"the mode of {W2}"),  # it may be right
        (lambda c: c.start(W3, at=NOW - 5).leave(W3), f"{W3} in its group: it started a moment ago"),
        (lambda c: c.facts(W1, digest=None, problem="There is no file."), "There is no file."),
        (lambda c: c.rebalancing(), "which is in state PreparingRebalance"),
        (lambda c: setattr(c, "group_problem", "the broker is away"), "the broker is away"),
        (lambda c: c.says("config.storage.topic", "${file:a:b}", W2), "config_topic: NAME"),
    ],
)
def test_what_cannot_be_seen_is_a_doubt_and_not_a_pass(
    enabled: Any, expected: Expected, change: Any, doubt: str
) -> None:
    change(enabled)
    drift = find_drift(enabled.observe(), expected)
    assert (drift.verdict, drift.keys) == (Verdict.INCONCLUSIVE, ("doubt",))
    assert doubt in drift.describe()


def test_a_worker_under_two_names_is_one_finding_and_none_is_missing(enabled: Any, expected: Expected) -> None:
    enabled.join("127.0.0.1:8083").leave(W2).see(aliases={"127.0.0.1:8083": W2})
    found = only(find_drift(enabled.observe(), expected))
    assert found.found.startswith(
        f"127.0.0.1:8083, a member of the group, and {W2} of the cluster file are the same port"
    )
    assert found.remedy.startswith("write the advertised url in the cluster file: http://127.0.0.1:8083 ")


def test_an_unknown_member_is_told_with_what_it_says_of_itself(enabled: Any, expected: Expected) -> None:
    enabled.join("x:8083")
    found = only(find_drift(enabled.observe(), expected, {"x:8083": False}))
    assert (found.kind, found.subject) == (DriftKind.UNKNOWN_MEMBER, "x:8083")
    assert "not enabled" in found.found
    assert "there is no exactly-once" in found.remedy
    silent = only(find_drift(enabled.observe(), expected))
    assert "enabled" not in silent.found
    assert silent.key == found.key


def test_a_stopped_worker_is_missing_unless_it_was_stopped_at_the_rollout(cluster_in: Any, enabled: Any) -> None:
    before = cluster_in(Mode.PREPARING)
    everybody = Expected.after(rollout(before.plan(Mode.ENABLED)))
    without_w3 = Expected.after(rollout(before.stop(W3).plan(Mode.ENABLED)))
    observation = enabled.stop(W3).observe()
    found = only(find_drift(observation, everybody))
    assert (found.kind, found.subject) == (DriftKind.MISSING_WORKER, W3)
    assert find_drift(observation, without_w3).verdict is Verdict.PASS


def test_a_killed_worker_is_missing_before_its_group_has_noticed(enabled: Any, expected: Expected) -> None:
    observation = enabled.kill(W3).observe()
    assert W3 in observation.members
    assert only(find_drift(observation, expected)).kind is DriftKind.MISSING_WORKER


def test_a_worker_out_of_the_group_is_missing(enabled: Any, expected: Expected) -> None:
    assert "is not a member" in only(find_drift(enabled.leave(W3).observe(), expected)).found
    enabled.facts(W3, edit=Edit(""))
    assert "bootstrap.servers in the file; " in only(find_drift(enabled.observe(), expected)).remedy


def test_a_file_that_is_not_as_the_rollout_left_it_tells_how_the_worker_would_join(
    enabled: Any, expected: Expected
) -> None:
    found = only(find_drift(enabled.edit_file(W1, Mode.DISABLED).observe(), expected))
    assert (found.kind, found.subject) == (DriftKind.EDITED_FILE, W1)
    assert "is not as rollout" in found.found
    assert "was changed after the worker's start" in found.found
    assert "join as disabled" in found.found


def test_another_edit_is_another_drift_and_the_same_one_is_not(enabled: Any, expected: Expected) -> None:
    first = find_drift(enabled.facts(W1, digest="1" * 64).observe(), expected)
    again = find_drift(enabled.observe(at=NOW + 60), expected)
    second = find_drift(enabled.facts(W1, digest="2" * 64).observe(), expected)
    assert first.keys == again.keys != second.keys


def test_a_file_is_accepted_by_its_digest(enabled: Any, expected: Expected) -> None:
    observation = enabled.facts(W1, digest="ab" * 32).observe()
    found = only(find_drift(observation, expected))
    assert "ab" * 32 in found.remedy
    assert find_drift(observation, expected.stated(accept=["AB" * 32])).verdict is Verdict.PASS


def test_new_permissions_of_a_file_whose_content_is_right_are_no_drift(enabled: Any, expected: Expected) -> None:
    declared = replace(enabled.workers[W1].facts.declared, changed_at=NOW)
    observation = enabled.facts(W1, declared=declared).observe()
    assert find_drift(observation, expected).verdict is Verdict.PASS
    assert "after the worker's start" in only(find_drift(observation, Expected())).found


def test_a_file_put_back_after_the_start_leaves_a_worker_to_be_restarted(enabled: Any, expected: Expected) -> None:
    declared = replace(enabled.workers[W1].facts.declared, modified_at=NOW, changed_at=NOW)
    found = only(find_drift(enabled.facts(W1, declared=declared).observe(), expected))
    assert "may still run with the former content" in found.remedy


def test_another_internal_topic_is_drift(enabled: Any, expected: Expected) -> None:
    enabled.says("config.storage.topic", "other", W2)
    found = only(find_drift(enabled.observe(), expected))
    assert (found.kind, found.subject) == (DriftKind.INTERNAL_TOPICS, "config.storage.topic")
    assert "w2:8083: other" in found.found


def test_what_a_rollout_under_way_does_is_no_drift(cluster_in: Any) -> None:
    cluster = cluster_in(Mode.PREPARING)
    expected = Expected.after(rollout(cluster.plan(Mode.ENABLED), RolloutState.RUNNING, held=True))
    cluster.roll(W1, Mode.ENABLED, at=NOW).prove(W1, ModeVerdict.UNKNOWN).stop(W2).edit_file(W3, Mode.ENABLED)
    drift = find_drift(cluster.observe(), expected)
    assert drift.verdict is Verdict.PASS
    assert "is running; no other drift" in drift.describe()


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.join("x:8083"),
        lambda c: c.prove(W3, ModeVerdict.DISABLED),
        lambda c: c.edit_file(W3, Mode.DISABLED),
    ],
)
def test_what_no_rollout_does_is_found_while_one_is_under_way(cluster_in: Any, change: Any) -> None:
    cluster = cluster_in(Mode.PREPARING)
    expected = Expected.after(rollout(cluster.plan(Mode.ENABLED), RolloutState.RUNNING, held=True))
    only(find_drift(change(cluster).observe(), expected))


@pytest.mark.parametrize("state", [RolloutState.RUNNING, RolloutState.FAILED, RolloutState.PAUSED])
def test_a_rollout_that_nobody_carries_on_is_drift(cluster_in: Any, state: RolloutState) -> None:
    cluster = cluster_in(Mode.PREPARING)
    expected = Expected.after(rollout(cluster.plan(Mode.ENABLED), state))
    found = only(find_drift(cluster.roll(W1, Mode.ENABLED, at=NOW).observe(), expected))
    assert found.kind is DriftKind.UNFINISHED_ROLLOUT
    assert "interrupted" in found.found or str(state) in found.found
    assert "eos rollout resume" in found.remedy


def test_an_aborted_rollout_was_somebodys_decision(cluster_in: Any) -> None:
    cluster = cluster_in(Mode.PREPARING)
    expected = Expected.after(rollout(cluster.plan(Mode.ENABLED), RolloutState.ABORTED))
    assert find_drift(cluster.observe(), expected).verdict is Verdict.PASS


def test_a_stated_mode_outweighs_the_last_rollout_but_not_one_under_way(plan: Any, enabled: Any) -> None:
    done = Expected.after(rollout(plan)).stated(Mode.PREPARING)
    assert {f.kind for f in find_drift(enabled.observe(), done).findings} == {DriftKind.MODE}
    rolling = Expected.after(rollout(plan, RolloutState.RUNNING, held=True)).stated(Mode.PREPARING)
    assert find_drift(enabled.observe(), rolling).verdict is Verdict.PASS


def test_a_group_that_was_never_rolled_is_held_to_one_mode_and_files_older_than_their_workers(cluster_in: Any) -> None:
    cluster = cluster_in(Mode.ENABLED)
    assert find_drift(cluster.observe(), Expected.after(None)).verdict is Verdict.PASS
    cluster.prove(W2, ModeVerdict.DISABLED)
    found = only(find_drift(cluster.observe(), Expected.after(None)))
    assert f"{W1} enabled, {W2} disabled, {W3} enabled" in found.found


def test_the_newest_rollout_counts_unless_another_has_replaced_it(plan: Any) -> None:
    old = rollout(plan, at=NOW)
    new = rollout(plan, at=NOW + 10)
    replaced = rollout(plan, RolloutState.SUPERSEDED, at=NOW + 20)
    assert newest_rollout([new, replaced, old]) is new
    assert newest_rollout([replaced]) is None


def test_nothing_of_a_workers_secrets_is_told(enabled: Any, expected: Expected) -> None:
    enabled.edit_file(W1, Mode.DISABLED).prove(W2, ModeVerdict.DISABLED).join("x:8083").kill(W3)
    drift = find_drift(enabled.observe(), expected)
    assert len(drift.findings) == 4
    assert "CANARY" not in drift.describe() + str(drift.to_dict()) + repr(drift)
