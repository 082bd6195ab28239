"""What a fencing round waits for once the tasks are restarted. On real parts: ``integration/test_fence.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.changes.fencing import round as fence_round
from airflow_eos_provider.changes.fencing.fencing_plan import SLOW_IDS, SLOW_REMEDY, ConnectorRound
from airflow_eos_provider.changes.fencing.round import Round
from airflow_eos_provider.connect.rest import TaskStatus
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState, TaskCountRecord, TaskSet
from airflow_eos_provider.errors import EosError, ReadTimeoutError, RefusedError
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.offsets.stores import WorkersKafka

TRACE = "org.apache.kafka.connect.errors.ConnectException: Failed to perform round of zombie fencing"
ROUND = ConnectorRound(
    "c", "", fence=(0,), restart=(0,), awaits_record=True, pending=True, config_offset=1, commit_offset=20
)


def round_of(planned: ConnectorRound = ROUND, *, seconds: float = 30) -> Round:
    """Of a group whose workers are not asked: that a round of Connect's fails anew cannot be had at will."""
    session: Any = SimpleNamespace(cluster=SimpleNamespace(group_id="g", kafka=KafkaSettings.of("b:1")))
    return Round(session, "configs", planned, seconds)


def state(record_offset: int = 10, *, commit_offset: int = 20, pending: bool = True) -> ConnectorConfigState:
    return ConnectorConfigState(
        "c",
        {},
        1,
        "STARTED",
        TaskSet(2, commit_offset, {}),
        commit_offset,
        TaskCountRecord(2, record_offset),
        pending_fencing=pending,
    )


Wait = Callable[..., None]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Wait while the task's status goes through these words; with the last one the config topic is as said."""
    monkeypatch.setattr(fence_round, "PAUSE_SECONDS", 0.001)

    def wait(words: list[str], last: ConnectorConfigState, round_: Round | None = None) -> None:
        left, awaited = list(words), round_ or round_of()

        def tasks() -> tuple[TaskStatus, ...]:
            return (TaskStatus(0, left.pop(0) if len(left) > 1 else left[0], "w:1", TRACE),)

        monkeypatch.setattr(awaited, "_tasks", tasks)
        monkeypatch.setattr(awaited, "_state", lambda: last if len(left) == 1 else state())
        monkeypatch.setattr(awaited, "_described", lambda state, ids: {})
        monkeypatch.setattr(awaited, "_restarted", (0,))
        change: Any = SimpleNamespace(renew=lambda: None)
        awaited._await(change)

    return wait


def test_the_record_ends_the_wait(wait: Wait) -> None:
    wait(["FAILED", "RESTARTING", "RUNNING"], state(21, pending=False))


def test_a_task_that_fails_anew_ends_the_wait_with_its_reason(wait: Wait) -> None:
    with pytest.raises(EosError, match="Task 0 of c has failed: zombie fencing failed") as failed:
        wait(["FAILED", "FAILED", "RESTARTING", "FAILED"], state())
    assert "transaction.max.timeout.ms" in (failed.value.remedy or "")


def test_of_many_ids_their_number_is_the_first_thing_to_mend(wait: Wait) -> None:
    with pytest.raises(EosError) as failed:
        wait(["RESTARTING", "FAILED"], state(), round_of(replace(ROUND, record=SLOW_IDS + 1)))
    assert (failed.value.remedy or "").startswith(SLOW_REMEDY)


def test_a_task_that_never_leaves_failed_has_failed_anew(wait: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_round, "RESTARTED_SECONDS", 0.01)
    with pytest.raises(EosError, match="Task 0 of c has failed"):
        wait(["FAILED"], state())


def test_what_does_not_come_in_time_is_named(wait: Wait) -> None:
    with pytest.raises(ReadTimeoutError, match="waiting for its task count record of c"):
        wait(["RESTARTING"], state(), round_of(seconds=0.01))


def test_new_task_configs_while_waiting_are_refused(wait: Wait) -> None:
    with pytest.raises(RefusedError, match="during the round"):
        wait(["RESTARTING", "RUNNING"], state(commit_offset=30))


def test_ids_are_fenced_in_the_planned_kafka_cluster_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka: Any = object()
    monkeypatch.setattr(WorkersKafka, "of_producers", lambda self, config: (kafka, "kafka-2"))
    assert round_of(replace(ROUND, cluster_id="kafka-2"))._kafka(state()) is kafka
    with pytest.raises(RefusedError, match=r"finds the producers of .* in the Kafka cluster kafka-2"):
        round_of()._kafka(state())
