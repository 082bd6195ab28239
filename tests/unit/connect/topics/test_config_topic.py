"""The config topic replayed, against the rules of Connect's KafkaConfigBackingStore."""

from __future__ import annotations

import base64
import json
import traceback
from typing import Any

import pytest

from airflow_eos_provider.connect.topics import config_topic as config_log
from airflow_eos_provider.connect.topics.config_topic import (
    ClusterState,
    ConfigReplay,
    ConnectorConfigState,
    TaskCountRecord,
)
from airflow_eos_provider.kafka.read.reader import LogRecord

CANARY = base64.b64encode(b"canary-canary-canary-canary-1234").decode()


def record(offset: int, key: str | None, value: Any) -> LogRecord:
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return LogRecord("configs", 0, offset, 1_700_000_000_000 + offset, None if key is None else key.encode(), data)


def replay(records: list[LogRecord], end_offset: int) -> ClusterState:
    replayed = ConfigReplay()
    replayed.take(records)
    replayed.stop(end_offset)
    return replayed.content(end_offset)


def log(*entries: tuple[str | None, Any]) -> ClusterState:
    """A log without gaps, replayed."""
    return replay([record(n, key, value) for n, (key, value) in enumerate(entries)], len(entries))


def connector(name: str = "a", **config: str) -> tuple[str, Any]:
    return f"connector-{name}", {"properties": {"name": name, **config}}


def deleted(name: str = "a") -> tuple[str, Any]:
    return f"connector-{name}", None


def task(number: int, name: str = "a", **config: str) -> tuple[str, Any]:
    return f"task-{name}-{number}", {"properties": {"task.class": "T", **config}}


def commit(count: int, name: str = "a") -> tuple[str, Any]:
    return f"commit-{name}", {"tasks": count}


def fencing(count: int, name: str = "a") -> tuple[str, Any]:
    return f"tasks-fencing-{name}", {"task-count": count}


def state(v1: str, v2: str | None = None, name: str = "a") -> tuple[str, Any]:
    return f"target-state-{name}", {"state": v1, **({"state.v2": v2} if v2 else {})}


def session_key(secret: str = CANARY) -> tuple[str, Any]:
    return "session-key", {"key": secret, "algorithm": "HmacSHA256", "creation-timestamp": 1795219106302}


def only(cluster: ClusterState) -> ConnectorConfigState:
    (found,) = cluster.connectors.values()
    return found


def test_configurations_are_as_connect_reads_them() -> None:
    found = only(log(connector(topic=" lines\n"), task(0, topic=" lines"), commit(1)))
    assert found.config["topic"] == "lines"
    assert found.task_set is not None
    assert found.task_set.configs[0]["topic"] == "lines"


class TestTaskSets:
    def test_task_configs_count_only_from_their_commit_on(self) -> None:
        before = only(log(connector(), task(0), task(1)))
        after = only(log(connector(), task(0, topic="x"), task(1), commit(2)))
        assert (before.task_count, before.commit_offset) == (None, None)
        assert (after.task_count, after.commit_offset) == (2, 3)
        assert after.task_set is not None
        assert after.task_set.configs[0]["topic"] == "x"

    def test_a_new_task_config_without_a_commit_leaves_the_old_set_in_force(self) -> None:
        found = only(log(connector(), task(0, topic="old"), commit(1), task(0, topic="new"), task(1)))
        assert found.task_count == 1
        assert found.task_set is not None
        assert found.task_set.configs[0]["topic"] == "old"

    def test_a_commit_that_lacks_a_task_makes_the_connector_inconsistent_and_keeps_the_last_complete_set(self) -> None:
        found = only(log(connector(), task(0), commit(1), task(1), commit(2)))
        assert found.inconsistent
        assert (found.task_count, found.commit_offset) == (1, 4)

    def test_the_next_complete_commit_makes_it_consistent_again(self) -> None:
        found = only(log(connector(), task(1), commit(2), task(0), task(1), commit(2)))
        assert not found.inconsistent
        assert (found.task_count, found.commit_offset) == (2, 5)

    def test_task_configs_of_an_incomplete_commit_do_not_serve_the_next_one(self) -> None:
        found = only(log(connector(), task(1), commit(2), task(0), commit(2)))
        assert found.inconsistent

    def test_a_higher_task_left_over_by_compaction_does_not_disturb(self) -> None:
        found = only(log(connector(), task(1), task(0), commit(1)))
        assert not found.inconsistent
        assert found.task_set is not None
        assert set(found.task_set.configs) == {0}

    def test_a_stop_commits_no_tasks(self) -> None:
        found = only(log(connector(), task(0), commit(1), commit(0), state("PAUSED", "STOPPED")))
        assert (found.task_count, found.inconsistent, found.target_state) == (0, False, "STOPPED")

    def test_a_commit_without_a_connector_is_ignored(self) -> None:
        cluster = log(task(0), commit(1))
        assert cluster.connectors == {}
        assert cluster.last_rebalance_offset == -1

    def test_a_commit_before_its_compacted_connector_is_ignored_with_its_tasks(self) -> None:
        found = only(log(task(0), commit(1), connector()))
        assert (found.task_count, found.inconsistent, found.pending_fencing) == (None, False, False)

    def test_task_configs_without_a_connector_wait_for_it(self) -> None:
        found = only(log(task(0), connector(), commit(1)))
        assert found.task_count == 1

    @pytest.mark.parametrize("name", ["a-b", "a-0", "a-", "-", "täsk", "commit-a"])
    def test_the_number_of_a_task_follows_its_last_dash(self, name: str) -> None:
        found = only(log(connector(name), task(0, name), task(1, name), commit(2, name)))
        assert (found.name, found.task_count) == (name, 2)

    @pytest.mark.parametrize("key", ["task-a", "task-a-x", "task-a-", "task-"])
    def test_a_task_key_without_a_number_is_malformed(self, key: str) -> None:
        assert log((key, {"properties": {}})).malformed == (f"0 {key}",)


class TestFencing:
    def test_a_commit_after_the_task_count_record_is_pending(self) -> None:
        found = only(log(connector(), task(0), commit(1), fencing(1), task(0), commit(1)))
        assert found.pending_fencing
        assert (found.task_count_record, found.task_count_record_offset) == (1, 3)

    def test_a_task_count_record_after_the_commit_ends_it(self) -> None:
        found = only(log(connector(), task(0), commit(1), fencing(1)))
        assert not found.pending_fencing

    def test_a_commit_without_any_task_count_record_is_pending(self) -> None:
        assert only(log(connector(), task(0), commit(1))).pending_fencing

    def test_an_incomplete_commit_is_pending_too(self) -> None:
        assert only(log(connector(), fencing(2), commit(2))).pending_fencing

    def test_without_a_commit_nothing_is_pending(self) -> None:
        assert not only(log(connector())).pending_fencing

    def test_a_task_count_record_outlives_its_connector(self) -> None:
        cluster = log(connector(), task(0), commit(1), fencing(1), deleted(), ("target-state-a", None))
        assert cluster.connectors == {}
        assert cluster.task_count_records == {"a": TaskCountRecord(1, 3)}

    def test_a_connector_created_again_has_the_task_count_record_of_its_namesake(self) -> None:
        found = only(log(connector(), task(0), commit(1), fencing(1), deleted(), connector()))
        assert (found.task_count, found.task_count_record, found.pending_fencing) == (None, 1, False)

    def test_pending_fencing_outlives_a_deletion(self) -> None:
        assert only(log(connector(), task(0), commit(1), deleted(), connector())).pending_fencing

    def test_a_null_task_count_record_is_malformed_and_changes_nothing(self) -> None:
        cluster = log(connector(), fencing(1), task(0), commit(1), ("tasks-fencing-a", None))
        assert cluster.malformed == ("4 tasks-fencing-a",)
        assert only(cluster).pending_fencing


class TestTargetStates:
    def test_without_a_record_a_connector_is_started(self) -> None:
        assert only(log(connector())).target_state == "STARTED"

    def test_the_newer_field_counts(self) -> None:
        assert only(log(connector(), state("PAUSED", "STOPPED"))).target_state == "STOPPED"

    def test_an_older_worker_writes_only_the_older_field(self) -> None:
        assert only(log(connector(), state("PAUSED"))).target_state == "PAUSED"

    def test_an_initial_state_stands_before_its_connector(self) -> None:
        assert only(log(state("PAUSED", "STOPPED"), connector())).target_state == "STOPPED"

    def test_a_deleted_target_state_leaves_an_existing_connector_started(self) -> None:
        assert only(log(connector(), state("PAUSED"), ("target-state-a", None))).target_state == "STARTED"

    def test_the_target_state_of_a_deleted_connector_holds_for_its_namesake_unless_it_was_deleted_too(self) -> None:
        assert only(log(connector(), state("PAUSED"), deleted(), connector())).target_state == "PAUSED"

    @pytest.mark.parametrize("value", [{"state": "DREAMING"}, {"state": 1}, {}, [], "STARTED"])
    def test_an_unknown_target_state_is_malformed_and_changes_nothing(self, value: Any) -> None:
        cluster = log(connector(), state("PAUSED"), ("target-state-a", value))
        assert cluster.malformed == ("2 target-state-a",)
        assert only(cluster).target_state == "PAUSED"

    def test_a_target_state_key_is_not_taken_for_another(self) -> None:
        assert log(connector("x"), state("PAUSED", name="connector-x")).connectors["x"].target_state == "STARTED"


class TestRebalances:
    def test_a_new_connector_rebalances(self) -> None:
        assert log(session_key(), connector()).last_rebalance_offset == 1

    def test_a_new_connector_with_an_initial_state_rebalances(self) -> None:
        assert log(state("PAUSED", "STOPPED"), connector()).last_rebalance_offset == 1

    def test_a_commit_rebalances(self) -> None:
        assert log(connector(), task(0), commit(1), fencing(1)).last_rebalance_offset == 2

    def test_a_deletion_rebalances(self) -> None:
        assert log(connector(), task(0), commit(1), deleted()).last_rebalance_offset == 3

    def test_a_connector_created_again_rebalances(self) -> None:
        assert log(connector(), task(0), commit(1), deleted(), connector()).last_rebalance_offset == 4

    def test_a_changed_connector_does_not(self) -> None:
        assert log(connector(), connector(topic="x")).last_rebalance_offset == 0

    def test_a_connector_whose_beginning_was_compacted_away_does_not(self) -> None:
        assert log(task(0), commit(1), connector(topic="changed")).last_rebalance_offset == -1

    @pytest.mark.parametrize(
        "entry",
        [
            state("PAUSED"),
            session_key(),
            ("logger-cluster-org.apache", {"level": "DEBUG"}),
            ("restart-connector-a", {"include-tasks": True, "only-failed": False}),
            fencing(1),
            task(0),
            ("something-else", {}),
        ],
        ids=lambda entry: entry[0],
    )
    def test_nothing_else_does(self, entry: tuple[str, Any]) -> None:
        assert log(connector(), entry).last_rebalance_offset == 0


class TestMarkerGaps:
    """Gaps prove transactions only where compaction has not been."""

    def test_gaps_after_a_repeated_key_are_markers(self) -> None:
        records = [record(0, *session_key()), record(2, *session_key()), record(4, *connector())]
        assert replay(records, 6).marker_gaps == (3, 5)

    def test_gaps_before_a_repeated_key_may_be_compaction(self) -> None:
        records = [record(3, *connector()), record(9, *session_key()), record(10, *session_key())]
        assert replay(records, 11).marker_gaps == ()

    def test_without_a_repeated_key_nothing_is_proven(self) -> None:
        records = [record(0, *session_key()), record(2, *connector())]
        assert replay(records, 4).marker_gaps == ()

    def test_a_log_without_gaps_proves_nothing(self) -> None:
        assert log(session_key(), session_key(), connector()).marker_gaps == ()


class TestOddRecords:
    def test_an_unknown_key_is_named(self) -> None:
        assert log(("fence-a", {})).unknown == ("0 fence-a",)

    def test_a_record_without_a_key_is_named(self) -> None:
        assert log((None, {})).unknown == ("0 (no key)",)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("connector-a", b"{not json"),
            ("connector-a", b"\xff\xfe"),
            ("connector-a", b"[" * 100_000),
            ("connector-a", []),
            ("connector-a", {"properties": []}),
            ("connector-a", {}),
            ("task-a-0", None),
            ("task-a-0", {"properties": None}),
            ("commit-a", {"tasks": 1.0}),
            ("commit-a", {"tasks": True}),
            ("commit-a", {}),
            ("commit-a", None),
            ("tasks-fencing-a", {"task-count": "1"}),
        ],
    )
    def test_a_malformed_value_is_named_by_key_and_changes_nothing(self, key: str, value: Any) -> None:
        before = log(connector(), task(0), commit(1))
        after = log(connector(), task(0), commit(1), (key, value))
        assert after.malformed == (f"3 {key}",)
        assert after.connectors == before.connectors

    def test_an_empty_topic_is_an_empty_state(self) -> None:
        assert log() == ClusterState(connectors={}, end_offset=0)


class TestSecrets:
    def test_the_session_key_cannot_be_reached(self) -> None:
        records = [record(0, *session_key()), record(1, *connector(password=CANARY)), record(2, "session-key", b"}")]
        cluster = replay(records, 3)
        shown = [repr(cluster), str(cluster), repr(only(cluster)), repr(records)]
        assert cluster.connectors["a"].config["password"] == CANARY  # so there was something to find
        assert not [text for text in shown if CANARY in text or CANARY[:8] in text]
        assert cluster.malformed == cluster.unknown == ()  # the value of a session key is not even parsed

    def test_the_session_key_is_dropped_where_the_topic_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kept: list[LogRecord] = []
        taken = ConfigReplay.take_one

        def keep(self: ConfigReplay, entry: LogRecord) -> None:
            kept.append(entry)
            taken(self, entry)

        monkeypatch.setattr(ConfigReplay, "take_one", keep)
        replay([record(0, *session_key()), record(1, *connector())], 2)
        assert [(entry.key, entry.value is None) for entry in kept] == [(b"session-key", True), (b"connector-a", False)]

    def test_a_malformed_value_is_in_no_error(self) -> None:
        try:
            cluster = log(("connector-a", f'{{"properties": "{CANARY}"'.encode()))
        except Exception:  # pragma: no cover
            assert CANARY not in traceback.format_exc()
            raise
        assert cluster.malformed == ("0 connector-a",)
        assert CANARY not in repr(cluster)


class TestFollowing:
    def test_a_state_that_was_given_stays_as_it_was_and_the_next_one_is_that_of_all_records(self) -> None:
        records = [record(n, *entry) for n, entry in enumerate([connector("a"), task(0), commit(1), fencing(1)])]
        later = [record(4, *state("PAUSED", "STOPPED")), record(5, *commit(0)), record(6, *connector("b"))]
        follower = config_log.config_follower("configs")._replay
        follower.take(records)
        follower.stop(4)
        first = follower.content(4)
        follower.take(later)
        follower.stop(7)
        assert only(first).target_state == "STARTED"
        assert follower.content(7) == replay([*records, *later], 7)

    def test_a_gap_between_two_reads_proves_no_marker(self) -> None:
        """What an earlier read has seen twice may be compacted by now, and a gap with it."""
        entries = [connector("a"), task(0), commit(1), commit(1)]
        follower = config_log.config_follower("configs")._replay
        follower.take([record(n, *entry) for n, entry in enumerate(entries)])
        follower.stop(5)
        follower.take([record(8, *commit(1))])
        follower.stop(10)
        assert follower.content(10).marker_gaps == (4,)


def test_a_connector_changed_last_when_its_newest_record_was_written() -> None:
    """A session key, which the leader writes every hour, is no change."""
    one = only(log(connector(), task(0), commit(1), session_key()))
    assert one.changed_at_ms == 1_700_000_000_000 + (one.commit_offset or 0)
    stopped = only(log(connector(), commit(0), state("PAUSED", "STOPPED"), session_key()))
    assert stopped.changed_at_ms == 1_700_000_000_000 + 2
