"""Sensor, trigger, audit and notifier: who looks, who fails, and who is notified how often."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from airflow_eos_provider.dag_factories import audit_dag
from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.notifications.drift import ConnectDriftNotifier
from airflow_eos_provider.operators.audit import (
    DRIFT_KEYS,
    ConnectDriftAuditOperator,
    ConnectDriftError,
    ConnectUnseenError,
)
from airflow_eos_provider.rollout.drift.drift import Drift, DriftKind, Expected
from airflow_eos_provider.sensors.connect_drift import ConnectDriftSensor
from airflow_eos_provider.triggers.connect_drift import ConnectDriftTrigger
from tests.unit.airflow.conftest import Answers, Channel, event_of

pytestmark = pytest.mark.usefixtures("connect_connection")

DAGS = Path(__file__).parents[3] / "dags"


def found(*subjects: str, doubts: tuple[str, ...] = ()) -> Drift:
    kind = DriftKind.MODE
    findings = tuple(Finding(s, Verdict.FAIL, f"{s} runs disabled", remedy=f"restart {s}", kind=kind) for s in subjects)
    return Drift(1.0, "connect", findings, doubts, Expected("rollout r1"))


#: A channel's text.
DRIFT = "{{ drift_message }}"

FINE = found()
DOUBT = found(doubts=("the group is away",))


class Watch:
    """Stands in for the watch of a cluster, which needs one: answers look by look, or raises."""

    members = ("connect-1",)

    def __init__(self, *answers: Drift | Exception) -> None:
        self.answers = Answers(*answers)
        self.looks = 0

    def __call__(self, cluster: Any, **kwargs: Any) -> Watch:
        self.asked = kwargs
        return self

    def look(self, **kwargs: Any) -> Drift:
        self.looks += 1
        found: Drift = self.answers.next()
        return found


def use(monkeypatch: pytest.MonkeyPatch, *answers: Drift | Exception) -> Watch:
    watch = Watch(*answers)
    monkeypatch.setattr("airflow_eos_provider.rollout.drift.watch.DriftWatch", watch)
    return watch


def audit(context: dict[str, Any]) -> Any:
    return ConnectDriftAuditOperator(task_id="look_for_drift").execute(context)


# The audit


def test_an_audit_of_a_cluster_that_has_not_drifted_succeeds(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    use(monkeypatch, FINE)
    assert audit(audit_context)["verdict"] == "pass"


def test_an_audit_fails_for_good_with_each_finding_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    use(monkeypatch, found("w1", "w2"))
    with pytest.raises(AirflowFailException) as failed:
        audit(audit_context)
    for words in ("2 findings", "w1 runs disabled", "restart w1", "w2 runs disabled", "restart w2"):
        assert words in str(failed.value)


def test_an_audit_that_could_not_see_fails_too_but_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    for answer in (DOUBT, UnreachableError("no broker")):
        use(monkeypatch, answer)
        with pytest.raises(ConnectUnseenError) as failed:
            audit(audit_context)
        assert isinstance(failed.value, AirflowException)
        assert not isinstance(failed.value, AirflowFailException)


def test_a_wrong_connection_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]) -> None:
    use(monkeypatch, ConfigurationError("no such group"))
    with pytest.raises(ConnectDriftError, match="no such group"):
        audit(audit_context)


def test_the_same_drift_is_news_once_and_more_drift_is_news_again(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    use(monkeypatch, found("w1"), found("w1"), found("w1", "w2"), found("w2"), FINE, found("w2"))
    news = []
    for _ in range(6):
        try:
            audit(audit_context)
        except ConnectDriftError as error:
            news.append(error.is_news)
    assert news == [True, False, True, False, True]
    assert audit_context["ti"].values == {DRIFT_KEYS: ["mode w2"]}


# The notifier


def failed_audit(context: dict[str, Any], *, is_news: bool = True) -> dict[str, Any]:
    error = ConnectDriftError(found("w1").describe())
    error.is_news = is_news
    return {**context, "exception": error}


def test_the_message_says_what_has_drifted_what_to_do_and_where_to_read_more(
    audit_context: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    channel = Channel(DRIFT)
    ConnectDriftNotifier(notifiers=[channel])(failed_audit(audit_context))
    (reported,) = channel.sent
    for words in ("has drifted", "w1 runs disabled", "What to do: restart w1", "connect_audit", "http://log", "eos"):
        assert words in reported
    assert "w1 runs disabled" in capsys.readouterr().out, "it is not in the log"


def test_what_was_reported_is_not_reported_again_unless_asked_for(audit_context: dict[str, Any]) -> None:
    channel = Channel(DRIFT)
    old = failed_audit(audit_context, is_news=False)
    ConnectDriftNotifier(notifiers=[channel])(old)
    assert channel.sent == []
    notifier = ConnectDriftNotifier(notifiers=[channel], repeat=True)
    notifier(old)
    notifier({**old, "exception": ConnectDriftError("something else")})
    assert len(channel.sent) == 2
    assert "something else" in channel.sent[1]


def test_a_channel_that_is_down_does_not_keep_the_message_from_the_next_one(audit_context: dict[str, Any]) -> None:
    down, up = Channel(DRIFT, OSError("no network")), Channel(DRIFT)
    with pytest.raises(RuntimeError, match="Channel: no network"):
        ConnectDriftNotifier(notifiers=[down, up])(failed_audit(audit_context))
    assert len(up.sent) == 1


def test_an_audit_that_failed_by_another_cause_is_reported(audit_context: dict[str, Any]) -> None:
    channel = Channel(DRIFT)
    ConnectDriftNotifier(notifiers=[channel])(audit_context)
    assert "has failed" in channel.sent[0]


# The DAG


def test_the_audit_dag_runs_every_quarter_of_an_hour_and_catches_nothing_up() -> None:
    dag = DagBag(DAGS).dags["connect_audit"]
    assert dag.schedule == timedelta(minutes=15)
    assert dag.start_date is not None
    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    assert [task.task_id for task in dag.tasks] == ["look_for_drift", "look_at_transactions"]
    assert all(isinstance(task.on_failure_callback[0], ConnectDriftNotifier) for task in dag.tasks)


def test_the_audit_dag_hands_cluster_expectation_and_channels_on() -> None:
    channel = Channel(DRIFT)
    dag = audit_dag(conn_id="c7", dag_id="audit_7", mode="enabled", accept=["ab"], notifiers=[channel], repeat=True)
    drift, transactions = dag.tasks
    assert (drift.conn_id, drift.mode, drift.accept) == ("c7", "enabled", ["ab"])
    assert transactions.conn_id == "c7"
    for task in dag.tasks:
        notifier = task.on_failure_callback[0]
        assert (notifier.notifiers, notifier.repeat) == ((channel,), True)


def test_an_audit_dag_may_leave_the_transactions_alone() -> None:
    assert audit_dag(dag_id="audit_8", transactions=False).task_ids == ["look_for_drift"]


# The sensor


def sensor(**kwargs: Any) -> ConnectDriftSensor:
    return ConnectDriftSensor(**{"task_id": "drift", "poke_interval": 0.01, **kwargs})


def test_the_sensor_pokes_until_something_has_drifted_and_returns_it(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    watch = use(monkeypatch, FINE, DOUBT, UnreachableError("away"), found("w1"))
    assert sensor(deferrable=False, connect_mode="enabled").execute(audit_context) == found("w1").to_dict()
    assert watch.looks == 4
    assert watch.asked["mode"] == "enabled"


def test_the_mode_of_every_sensor_is_not_the_mode_of_the_workers(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    watch = use(monkeypatch, found("w1"))
    waiting = sensor(deferrable=False, mode="reschedule")
    assert waiting.reschedule
    assert waiting.poke(audit_context).is_done
    assert watch.asked["mode"] is None


def test_the_deferred_sensor_stores_no_secrets_and_keeps_one_deadline(
    monkeypatch: pytest.MonkeyPatch, audit_context: dict[str, Any]
) -> None:
    use(monkeypatch, FINE, FINE, found("w1"))
    waiting = sensor(deferrable=True, timeout=600)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(audit_context)
    _, stored = deferred.value.trigger.serialize()
    deadline = audit_context["ti"].start_date.timestamp() + 600
    assert stored["deadline"] == deadline
    assert stored["members"] == ["connect-1"]
    assert "s3cret-pw" not in json.dumps(stored)
    event = {"status": "look", "reason": "it is time", "deadline": deadline}
    with pytest.raises(TaskDeferred) as again:
        sensor(deferrable=True, timeout=600).resume(audit_context, event)
    assert again.value.trigger.serialize()[1]["deadline"] == deadline
    assert waiting.resume(audit_context, event) == found("w1").to_dict()


# The trigger


def trigger(**kwargs: Any) -> ConnectDriftTrigger:
    now = time.time()
    arguments = {"conn_id": "kafka_connect_default", "members": ["a", "b"], "poke_interval": 0.01}
    return ConnectDriftTrigger(**{**arguments, "look_at": now + 5, "deadline": now + 10, **kwargs})


def use_group(monkeypatch: pytest.MonkeyPatch, *answers: list[str] | Exception) -> None:
    left = Answers(*answers)

    def describe(settings: Any, group_id: str) -> Any:
        return SimpleNamespace(members=[SimpleNamespace(member_id=m) for m in left.next()])

    monkeypatch.setattr("airflow_eos_provider.connect.group.describe_group", describe)


def test_a_member_that_is_new_calls_for_a_look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    use_group(monkeypatch, ["a", "b"], UnreachableError("away"), ["a", "b"], ["a", "b2"])
    waiting = trigger(look_at=time.time() + 3600, deadline=time.time() + 3600)
    event = event_of(waiting)
    assert (event["status"], event["deadline"]) == ("look", waiting.deadline)
    assert "other members" in event["reason"]


def test_an_unchanged_group_is_looked_at_when_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    use_group(monkeypatch, ["a", "b"])
    assert "it is time" in event_of(trigger(look_at=time.time() + 0.1))["reason"]
