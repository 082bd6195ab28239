"""Messages of a roll that has stopped and of an interval that is late, and how they are passed on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_eos_provider.errors import GateFailedError, RolloutPausedError, StopRequestedError
from airflow_eos_provider.notifications.interval_late import IntervalLateNotifier
from airflow_eos_provider.notifications.roll import ConnectRollNotifier
from airflow_eos_provider.operators.failures import no_retry_where_pointless
from airflow_eos_provider.sensors.interval_complete import IntervalCompleteSensor
from tests.unit.airflow.conftest import Channel

DAY = "2013-01-01T05:00:00Z/2013-01-02T05:00:00Z"


def context_of(error: BaseException | None, task: Any = None) -> dict[str, Any]:
    ti = SimpleNamespace(dag_id="upgrade", task_id="roll_enabled", run_id="manual", log_url="https://airflow/log")
    return {"exception": error, "task": task or SimpleNamespace(conn_id="cluster_7"), "ti": ti}


def raised(error: Exception) -> BaseException:
    """The error as Airflow gives it to a callback."""
    with pytest.raises((AirflowFailException, RolloutPausedError)) as caught, no_retry_where_pointless():
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GateFailedError("w1 has left the group.", remedy="See its log."), "did not pass its gate"),
        (RolloutPausedError("w1 is not seen.", remedy="See the host."), "has paused"),
        (StopRequestedError("ann asked for pause."), "has stopped as requested"),
    ],
)
def test_a_roll_that_stopped_says_what_is_as_it_was(error: Exception, words: str) -> None:
    message = ConnectRollNotifier().message(context_of(raised(error)))
    assert words in message.splitlines()[0]
    assert str(error) in message
    assert "/clusters/cluster_7/history" in message
    assert "Log: https://airflow/log" in message
    assert "eos rollout show" in message


def test_another_failure_is_told_as_it_is() -> None:
    assert "has failed" in ConnectRollNotifier().message(context_of(ValueError("boom")))
    assert "has failed" in ConnectRollNotifier().message({})


def test_a_message_goes_through_every_channel_though_one_is_down() -> None:
    down, up = Channel("{{ eos_message }}", OSError("no route")), Channel("all: {{ eos_message }}")
    notifier = ConnectRollNotifier(notifiers=[down, up])
    for _ in range(2):  # a channel renders its own templates anew each time
        with pytest.raises(RuntimeError, match="Channel: no route"):
            notifier.notify(context_of(GateFailedError("w1 has left.")))  # type: ignore[arg-type]
    assert len(up.sent) == 2
    assert up.sent[0].startswith("all: A worker did not pass its gate")


def test_a_late_interval_is_named_with_what_shows_it() -> None:
    sensor = IntervalCompleteSensor(task_id="wait", pipeline="orders", group_id="etl", interval=DAY, timeout=3600)
    channel = Channel("{{ eos_message }}")
    context = {**context_of(TimeoutError("not complete within 3600 s"), sensor)}
    IntervalLateNotifier(notifiers=[channel]).notify(context)  # type: ignore[arg-type]
    (message,) = channel.sent
    assert message.startswith(f"orders@{DAY} of group etl is not complete.")
    assert f'eos intervals show "orders@{DAY}" --group etl' in message
    assert "/intervals/kafka_default/etl/orders/" in message
    assert "not complete within 3600 s" in message


def test_a_task_without_an_interval_is_reported_all_the_same() -> None:
    assert "An interval is late" in IntervalLateNotifier().message(context_of(None))
