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
    @pytest.mark.parametrize(
        ("entries", "count", "commit_offset", "topic"),
        [
            pytest.param([task(0), task(1)], None, None, None, id="configs count only from their commit on"),
            pytest.param([task(0, topic="x"), task(1), commit(2)], 2, 3, "x", id="a commit"),
            pytest.param(
                [task(0, topic="old"), commit(1), task(0, topic="new"), task(1)], 1, 2, "old", id="new configs without"
            ),
            pytest.param([task(1), commit(2), task(0), task(1), commit(2)], 2, 5, None, id="complete again"),
            pytest.param([task(1), task(0), commit(1)], 1, 3, None, id="a higher task left over by compaction"),
            pytest.param([task(0), commit(1), commit(0), state("PAUSED", "STOPPED")], 0, 3, None, id="a stop"),
        ],
    )
    def test_a_complete_commit_puts_its_task_configs_in_force(
        self, entries: list[tuple[str, Any]], count: int | None, commit_offset: int | None, topic: str | None
    ) -> None:
        found = only(log(connector(), *entries))
        assert (found.task_count, found.commit_offset, found.inconsistent) == (count, commit_offset, False)
        configs = found.task_set.configs if found.task_set else {}
        assert set(configs) == set(range(count or 0))
        assert topic is None or configs[0]["topic"] == topic

    @pytest.mark.parametrize(
        ("entries", "count", "commit_offset"),
        [
            pytest.param([task(0), commit(1), task(1), commit(2)], 1, 4, id="the last complete set is kept"),
            pytest.param([task(1), commit(2), task(0), commit(2)], None, 4, id="configs do not serve the next commit"),
        ],
    )
    def test_a_commit_that_lacks_a_task_makes_the_connector_inconsistent(
        self, entries: list[tuple[str, Any]], count: int | None, commit_offset: int
    ) -> None:
        found = only(log(connector(), *entries))
        assert (found.task_count, found.commit_offset, found.inconsistent) == (count, commit_offset, True)

    def test_a_commit_without_a_connector_is_ignored_with_its_tasks(self) -> None:
        cluster = log(task(0), commit(1))
        assert (cluster.connectors, cluster.last_rebalance_offset) == ({}, -1)
        compacted = only(log(task(0), commit(1), connector()))
        assert (compacted.task_count, compacted.inconsistent, compacted.pending_fencing) == (None, False, False)
        assert only(log(task(0), connector(), commit(1))).task_count == 1, "task configs wait for their connector"

    @pytest.mark.parametrize("name", ["a-b", "a-0", "a-", "-", "täsk", "commit-a"])
    def test_the_number_of_a_task_follows_its_last_dash(self, name: str) -> None:
        found = only(log(connector(name), task(0, name), task(1, name), commit(2, name)))
        assert (found.name, found.task_count) == (name, 2)

    @pytest.mark.parametrize("key", ["task-a", "task-a-x", "task-a-", "task-"])
    def test_a_task_key_without_a_number_is_malformed(self, key: str) -> None:
        assert log((key, {"properties": {}})).malformed == (f"0 {key}",)


class TestFencing:
    @pytest.mark.parametrize(
        ("entries", "pending", "record"),
        [
            pytest.param([], False, None, id="no commit"),
            pytest.param([task(0), commit(1)], True, None, id="a commit without any task count record"),
            pytest.param([fencing(2), commit(2)], True, (2, 1), id="an incomplete commit"),
            pytest.param([task(0), commit(1), fencing(1)], False, (1, 3), id="a record after the commit"),
            pytest.param([task(0), commit(1), fencing(1), task(0), commit(1)], True, (1, 3), id="a commit after it"),
            pytest.param([task(0), commit(1), deleted(), connector()], True, None, id="outlives a deletion"),
            pytest.param([task(0), commit(1), fencing(1), deleted(), connector()], False, (1, 3), id="of its namesake"),
        ],
    )
    def test_a_fencing_round_is_pending_from_a_commit_to_the_task_count_record(
        self, entries: list[tuple[str, Any]], pending: bool, record: tuple[int, int] | None
    ) -> None:
        found = only(log(connector(), *entries))
        assert found.pending_fencing is pending
        assert found.fencing == (record and TaskCountRecord(*record))

    def test_a_task_count_record_outlives_its_connector(self) -> None:
        cluster = log(connector(), task(0), commit(1), fencing(1), deleted(), ("target-state-a", None))
        assert cluster.connectors == {}
        assert cluster.task_count_records == {"a": TaskCountRecord(1, 3)}

    def test_a_null_task_count_record_is_malformed_and_changes_nothing(self) -> None:
        cluster = log(connector(), fencing(1), task(0), commit(1), ("tasks-fencing-a", None))
        assert cluster.malformed == ("4 tasks-fencing-a",)
        assert only(cluster).pending_fencing


class TestTargetStates:
    @pytest.mark.parametrize(
        ("entries", "target_state"),
        [
            pytest.param([connector()], "STARTED", id="no record"),
            pytest.param([connector(), state("PAUSED", "STOPPED")], "STOPPED", id="the newer field counts"),
            pytest.param([connector(), state("PAUSED")], "PAUSED", id="an older worker writes only the older field"),
            pytest.param([state("PAUSED", "STOPPED"), connector()], "STOPPED", id="an initial state"),
            pytest.param([connector(), state("PAUSED"), ("target-state-a", None)], "STARTED", id="deleted"),
            pytest.param([connector(), state("PAUSED"), deleted(), connector()], "PAUSED", id="of its namesake"),
            pytest.param([connector(), state("PAUSED", name="connector-a")], "STARTED", id="of another"),
        ],
    )
    def test_the_newest_target_state_counts(self, entries: list[tuple[str, Any]], target_state: str) -> None:
        assert only(log(*entries)).target_state == target_state

    @pytest.mark.parametrize("value", [{"state": "DREAMING"}, {"state": 1}, {}, [], "STARTED"])
    def test_an_unknown_target_state_is_malformed_and_changes_nothing(self, value: Any) -> None:
        cluster = log(connector(), state("PAUSED"), ("target-state-a", value))
        assert cluster.malformed == ("2 target-state-a",)
        assert only(cluster).target_state == "PAUSED"


class TestRebalances:
    @pytest.mark.parametrize(
        ("entries", "offset"),
        [
            pytest.param([session_key(), connector()], 1, id="a new connector"),
            pytest.param([state("PAUSED", "STOPPED"), connector()], 1, id="one with an initial state"),
            pytest.param([connector(), task(0), commit(1), fencing(1)], 2, id="a commit"),
            pytest.param([connector(), task(0), commit(1), deleted()], 3, id="a deletion"),
            pytest.param([connector(), task(0), commit(1), deleted(), connector()], 4, id="created again"),
            pytest.param([connector(), connector(topic="x")], 0, id="not a change"),
            pytest.param([task(0), commit(1), connector(topic="x")], -1, id="not one whose beginning was compacted"),
        ],
    )
    def test_the_last_record_that_rebalances_is_known(self, entries: list[tuple[str, Any]], offset: int) -> None:
        assert log(*entries).last_rebalance_offset == offset

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

    @pytest.mark.parametrize(
        ("entries", "end", "gaps"),
        [
            pytest.param({0: session_key(), 2: session_key(), 4: connector()}, 6, (3, 5), id="after a repeated key"),
            pytest.param({3: connector(), 9: session_key(), 10: session_key()}, 11, (), id="before it"),
            pytest.param({0: session_key(), 2: connector()}, 4, (), id="no repeated key"),
            pytest.param({0: session_key(), 1: session_key(), 2: connector()}, 3, (), id="no gaps"),
        ],
    )
    def test_gaps_are_markers_only_after_a_repeated_key(
        self, entries: dict[int, tuple[str, Any]], end: int, gaps: tuple[int, ...]
    ) -> None:
        assert replay([record(offset, *entry) for offset, entry in entries.items()], end).marker_gaps == gaps


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
