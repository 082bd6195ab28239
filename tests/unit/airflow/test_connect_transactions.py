"""The audit of transactions, and the sensor with its trigger: who looks, who waits, who fails."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferred
from airflow.sdk.module_loading import import_string

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.operators.audit import (
    TRANSACTIONS_KEYS,
    ConnectTransactionsAuditOperator,
    ConnectTransactionsError,
)
from airflow_eos_provider.sensors.connect_transactions import ConnectTransactionsSensor
from airflow_eos_provider.transactions.audit import FindingKind, Limits, TransactionAudit
from airflow_eos_provider.triggers.connect_transactions import ConnectTransactionsTrigger
from tests.unit.airflow.conftest import Answers, event_of

pytestmark = pytest.mark.usefixtures("connect_connection")


def found(*subjects: str, doubts: tuple[str, ...] = ()) -> TransactionAudit:
    kind = FindingKind.HANGING
    findings = tuple(Finding(s, Verdict.FAIL, f"{s} is held open", remedy=f"abort {s}", kind=kind) for s in subjects)
    return TransactionAudit(1.0, "connect", findings, doubts=doubts)


FINE = found()
DOUBT = found(doubts=("a partition",))


class Looks:
    """Stands in for looks at a cluster, which need one: answers one by one, or raises."""

    def __init__(self, *answers: TransactionAudit | Exception) -> None:
        self.answers = Answers(*answers)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, cluster: Any, **asked: Any) -> Any:
        self.asked.append(asked)
        return self.answers.next()


class Auditing(Looks):
    """The same as the auditor is called."""

    def __call__(self, cluster: Any, **asked: Any) -> Any:
        self.asked.append(asked)
        return self

    def __enter__(self) -> Auditing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def look(self) -> Any:
        return Looks.__call__(self, None)


def use(monkeypatch: pytest.MonkeyPatch, *answers: TransactionAudit | Exception) -> Looks:
    looks = Looks(*answers)
    monkeypatch.setattr("airflow_eos_provider.transactions.auditor.look_at_open", looks)
    return looks


def use_auditor(monkeypatch: pytest.MonkeyPatch, *answers: TransactionAudit | Exception) -> Auditing:
    auditing = Auditing(*answers)
    monkeypatch.setattr("airflow_eos_provider.transactions.auditor.Auditor", auditing)
    return auditing


def audit(context: dict[str, Any], **options: Any) -> Any:
    return ConnectTransactionsAuditOperator(task_id="look_for_drift", **options).execute(context)


# The audit


def test_an_audit_in_which_all_is_well_succeeds_and_its_limits_are_handed_on(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    auditing = use_auditor(monkeypatch, FINE)
    options = {"longer_than": 60.0, "idle_part": 0.5, "days_before": 1.0}
    assert audit(audit_context, config_topic="configs", topics=["t"], **options)["verdict"] == "pass"
    assert auditing.asked[0] == {"config_topic": "configs", "topics": ["t"], "limits": Limits(60.0, 0.5, 1.0)}


def test_an_audit_fails_with_each_finding_and_keeps_its_key(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    """What is news is in test_drift.py."""
    use_auditor(monkeypatch, found("a-0"))
    with pytest.raises(ConnectTransactionsError, match=r"a-0 is held open(.|\n)*What to do: abort a-0"):
        audit(audit_context)
    assert audit_context["ti"].values == {TRANSACTIONS_KEYS: ["hanging a-0"]}


# The sensor


def sensor(**options: Any) -> ConnectTransactionsSensor:
    return ConnectTransactionsSensor(**{"task_id": "clear", "poke_interval": 0.01, **options})


def test_the_sensor_waits_while_something_is_open_or_not_seen_and_returns_the_look(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    looks = use(monkeypatch, found("a-0"), DOUBT, UnreachableError("away"), FINE)
    waiting = sensor(deferrable=False, topics=["a"], connectors=["c"], longer_than=5.0)
    assert waiting.execute(audit_context) == FINE.to_dict()
    assert looks.asked == [{"topics": ["a"], "connectors": ["c"], "open_seconds": 5.0}] * 4


def test_the_deferred_sensor_stores_no_secrets_keeps_one_deadline_and_looks_itself_when_it_is_resumed(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    use(monkeypatch, found("a-0"), found("a-0"), FINE)
    waiting = sensor(deferrable=True, timeout=600)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(audit_context)
    _, stored = deferred.value.trigger.serialize()
    deadline = audit_context["ti"].start_date.timestamp() + 600
    assert stored["deadline"] == deadline
    assert "s3cret-pw" not in json.dumps(stored)
    event = {"status": "look", "deadline": deadline}
    with pytest.raises(TaskDeferred) as again:
        waiting.resume(audit_context, event)
    assert again.value.trigger.serialize()[1]["deadline"] == deadline
    assert waiting.resume(audit_context, event) == FINE.to_dict()


def test_timeout_and_error_of_the_trigger_end_the_sensor_with_what_was_last_seen(audit_context: dict[str, Any]) -> None:
    with pytest.raises(AirflowSensorTimeout, match="a-0 is held open"):
        sensor().resume(audit_context, {"status": "timeout", "reason": "a-0 is held open"})
    with pytest.raises(AirflowFailException, match="no such topic"):
        sensor().resume(audit_context, {"status": "error", "reason": "no such topic"})


@pytest.mark.parametrize("given", ["topics", "connectors"])
def test_a_text_is_not_taken_for_the_names_that_its_characters_are(audit_context: dict[str, Any], given: str) -> None:
    with pytest.raises(AirflowFailException, match="given as one text, 'orders'"):
        sensor(deferrable=False, **{given: "orders"}).execute(audit_context)


def test_a_sensor_does_not_wait_for_what_only_a_person_can_mend(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    use(monkeypatch, ConfigurationError("no such topic"))
    with pytest.raises(AirflowFailException, match="no such topic"):
        sensor(deferrable=False).execute(audit_context)


# The trigger


def trigger(**options: Any) -> ConnectTransactionsTrigger:
    arguments = {"conn_id": "kafka_connect_default", "topics": ["a"], "connectors": [], "longer_than": 5.0}
    return ConnectTransactionsTrigger(**{**arguments, "poke_interval": 0.01, "deadline": time.time() + 600, **options})


def test_the_trigger_resumes_the_task_when_nothing_holds_readers_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = use(monkeypatch, found("a-0"), DOUBT, UnreachableError("away"), FINE)
    waiting = trigger()
    assert event_of(waiting) == {"status": "look", "deadline": waiting.deadline}
    assert len(looks.asked) == 4
    assert looks.asked[0] == {"topics": ["a"], "connectors": [], "open_seconds": 5.0}


def test_the_trigger_from_its_deferral_to_the_end_of_its_task(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    """As Airflow does it: what is stored goes through JSON, and the trigger is made anew from its path."""
    looks = use(monkeypatch, found("a-0"), found("a-0"), FINE)
    waiting = sensor(deferrable=True, topics=["a"], connectors=["c"], longer_than=5.0, timeout=600)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(audit_context)
    path, stored = json.loads(json.dumps(deferred.value.trigger.serialize()))
    event = event_of(import_string(path)(**stored))
    resumed = getattr(waiting, deferred.value.method_name)(audit_context, event=json.loads(json.dumps(event)))
    assert resumed == FINE.to_dict()
    assert looks.asked == [{"topics": ["a"], "connectors": ["c"], "open_seconds": 5.0}] * 4


def test_a_look_of_the_trigger_does_not_hold_up_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(cluster: Any, **asked: Any) -> TransactionAudit:
        begun.set()
        assert may_end.wait(120), "the event loop was held up: it did not get to allow the end"
        return FINE

    monkeypatch.setattr("airflow_eos_provider.transactions.auditor.look_at_open", slow)

    async def beside() -> Any:
        event = asyncio.ensure_future(anext(trigger(deadline=time.time() + 600).run()))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        may_end.set()  # what else the loop has to do, it does while the look goes on
        return (await event).payload

    assert asyncio.run(beside())["status"] == "look"


def test_a_trigger_that_is_cancelled_ends_and_leaves_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = use(monkeypatch, found("a-0"))

    async def cancelled() -> None:
        event = asyncio.ensure_future(anext(trigger(deadline=time.time() + 600).run()))
        while not looks.asked:
            await asyncio.sleep(0.01)
        event.cancel()
        await event

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_the_deadline_ends_the_trigger_with_what_was_last_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, found("a-0"))
    event = event_of(trigger(deadline=time.time() + 0.2))
    assert event["status"] == "timeout"
    assert "a-0 is held open" in event["reason"]


def test_the_trigger_ends_at_what_only_a_person_can_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ConfigurationError("no such topic"))
    assert event_of(trigger()) == {"status": "error", "reason": "no such topic"}
