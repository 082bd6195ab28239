"""What the tests of the Airflow layer share: a state store in memory, a plan."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from airflow.triggers.base import BaseTrigger

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.rollout.answer import passed
from airflow_eos_provider.rollout.plan.obstacles import Preflight
from airflow_eos_provider.rollout.plan.order import TaskDowntime
from airflow_eos_provider.rollout.plan.roll_plan import ChangeKind, Plan, WorkerChange


class MemoryStore:
    """Stands in for the task state store, which only a running task has; it keeps what Airflow would keep."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.retentions: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self.values[key] = value
        self.retentions[key] = retention

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def context(store: MemoryStore) -> dict[str, Any]:
    task_instance = SimpleNamespace(id="018f0000-0000-7000-8000-000000000001", try_number=1)
    return {
        "task_state_store": store,
        "task_instance": task_instance,
        "ti": task_instance,
        "dag_run": SimpleNamespace(
            clear_number=0, dag_id="upgrade", run_id="manual", triggering_user_name="ada", run_type="manual", conf={}
        ),
    }


class XComs:
    """A task instance that keeps the XComs of earlier runs."""

    def __init__(self) -> None:
        self.dag_id, self.task_id, self.run_id, self.log_url = "connect_audit", "look_for_drift", "r7", "http://log"
        self.start_date = datetime.now(UTC)
        self.values: dict[str, Any] = {}

    def xcom_pull(self, *, task_ids: str, key: str, map_indexes: int, include_prior_dates: bool) -> Any:
        assert (task_ids, map_indexes, include_prior_dates) == (self.task_id, -1, True)
        return self.values.get(key)

    def xcom_push(self, key: str, value: Any) -> None:
        self.values[key] = value


@pytest.fixture
def audit_context() -> dict[str, Any]:
    return {"ti": XComs(), "dag": None}


@pytest.fixture
def connect_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {
        "bootstrap_servers": "broker:9092",
        "group_id": "connect",
        "client": {"sasl.password": "s3cret-pw"},
        "workers": [{"url": "http://w1:8083"}],
    }
    document = json.dumps({"conn_type": "kafka_connect", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", document)


def plan_for(target: Mode = Mode.PREPARING, *, group_id: str = "connect", mode: str = "disabled") -> Plan:
    kind = ChangeKind.NONE if mode == target else ChangeKind.ROLL
    change = WorkerChange(
        worker_id="w1:8083",
        kind=kind,
        mode=mode,
        declared=mode,
        config="/etc/w1.properties",
        config_before="a" * 64,
        config_after=("a" if kind is ChangeKind.NONE else "b") * 64,
        version="4.3.1",
    )
    return Plan(group_id, "cluster", target, (change,), (TaskDowntime("w1:8083", 2, 15.0, 15.0, "it leads the group"),))


@pytest.fixture
def plan() -> Plan:
    return plan_for()


@pytest.fixture
def make_plan() -> Any:
    return plan_for


@pytest.fixture
def datagrams(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """What arrives at a StatsD server's UDP socket; metrics are set up as Airflow's task runner does it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)  # on loopback a datagram has arrived when it is sent
        host, port = server.getsockname()
        for name, value in {"STATSD_ON": "True", "STATSD_HOST": host, "STATSD_PORT": str(port)}.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)

        def arrived() -> list[str]:
            found = []
            while True:
                try:
                    found.append(server.recv(65_536).decode())
                except BlockingIOError:
                    return found

        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
        try:
            yield arrived
        finally:
            stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


class FakeController:
    """Stands in for the controller, which needs a cluster; the system tests drive the real one.

    :ivar made_with: the keyword arguments of the last controller.
    :ivar calls: how a roll was carried out: method and argument.
    :ivar outcomes: what a roll comes to, one after the other; then a report.
    """

    def __init__(self) -> None:
        self.made_with: dict[str, Any] = {}
        self.next_plan: Any = None
        self.preflight_result = Preflight(Mode.PREPARING, (passed("group", "stable"),))
        self.planned_for: list[Mode | None] = []
        self.applied: list[Plan] = []
        self.calls: list[tuple[str, Any]] = []
        self.outcomes: list[Any] = []
        self.during_apply: Any = lambda: None
        self.reported: dict[str, Any] = {}

    def __call__(self, cluster: Any, **kwargs: Any) -> FakeController:
        self.made_with = kwargs
        return self

    def observe(self) -> Any:
        return SimpleNamespace(workers=(), not_stopped=())

    def preflight(self, target: Mode) -> Preflight:
        return self.preflight_result

    verify = preflight

    def plan(self, target: Mode | None = None) -> Plan:
        self.planned_for.append(target)
        return self.next_plan

    def apply(self, plan: Plan, *, take_over: bool) -> Any:
        return self._outcome(plan, "apply", take_over)

    def advance(self, plan: Plan, *, take_over: bool) -> Any:
        return self._outcome(plan, "advance", take_over)

    def go_on(self, plan: Plan, gate: Any, *, hands_over: bool) -> Any:
        return self._outcome(plan, "go_on", (gate, hands_over))

    def _outcome(self, plan: Plan, name: str, argument: Any) -> Any:
        self.calls.append((name, argument))
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        self.applied.append(plan)
        self.made_with["report"]("w1:8083: gate passed")
        self.during_apply()
        report = {"rollout_id": "r1", "to": str(plan.target), **self.reported}
        return outcome or SimpleNamespace(to_dict=lambda: report)


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> FakeController:
    fake = FakeController()
    monkeypatch.setattr("airflow_eos_provider.rollout.controller.Controller", fake)
    monkeypatch.setattr(KafkaConnectHook, "get_cluster", lambda self: "a cluster")
    return fake


def event_of(trigger: BaseTrigger) -> dict[str, Any]:
    """What a trigger reports."""

    async def first() -> dict[str, Any]:
        return dict((await asyncio.wait_for(anext(aiter(trigger.run())), 120)).payload)

    return asyncio.run(first())


class Answers:
    """What a stand-in for a cluster says, look by look; the last for ever. Errors are raised."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def next(self) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Channel(BaseNotifier):
    """A notifier as other providers have them."""

    template_fields = ("text",)

    def __init__(self, text: str, error: Exception | None = None) -> None:
        super().__init__()
        self.text = text
        self.error = error
        self.sent: list[str] = []

    def notify(self, context: Any) -> None:
        if self.error:
            raise self.error
        self.sent.append(self.text)
