"""What the controller refuses before it looks at a cluster, and how often it looks before it acts.

The journal's content is given.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, FencedError, PlanMovedError, StopRequestedError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.records import (
    Lease,
    Owner,
    RolloutRecord,
    RolloutState,
    Step,
)
from airflow_eos_provider.rollout import controller as module, planner
from airflow_eos_provider.rollout.act.checkpoint import CHECKPOINT_KEY, GATE_KEY, TaskMemory
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.observe.topic_progress import Memory
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.roll_settings import RolloutSettings


class Remembered:
    """A caller's note of the rollout that it carries."""

    def __init__(self, rollout_id: str) -> None:
        self.rollout_id = rollout_id

    def get(self, key: str) -> dict[str, Any]:
        assert key == CHECKPOINT_KEY
        return {"rollout_id": self.rollout_id}

    def set(self, key: str, value: dict[str, Any]) -> None:
        raise AssertionError("a rollout was begun")


@pytest.fixture
def described(tmp_path: Path) -> ConnectCluster:
    file = tmp_path / "eos.yaml"
    file.write_text(
        "bootstrap_servers: 127.0.0.1:1\ngroup_id: lab\nworkers:\n  - {url: 'http://127.0.0.1:2'}\n",
        encoding="utf-8",
    )
    return ConnectCluster.from_file(file)


TASK = "upgrade/manual/roll"


def waited() -> GateState:
    return GateState(
        rollout_id="r1", worker_id=None, restart_id=0.0, polls=1, hold_seconds=0.0, deadline=1.0, latest_deadline=1.0
    )


def journal_says(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, state: RolloutState, owner: Owner | None = None, note: str = ""
) -> None:
    """The journal has rollout r1 of this plan, held by this owner."""
    lease = Lease(owner, "r1", "bob", "w1: intent", time.time() + 60.0) if owner is not None else None
    record = RolloutRecord("r1", plan.to_dict(), {}, state, 1.0, note=note)
    monkeypatch.setattr(planner, "read_journal", lambda *_: JournalContent(lease, {"r1": record}))


def test_a_retry_of_an_aborted_rollout_begins_nothing(
    described: ConnectCluster, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan may still fit, since nothing was touched: all the same an operator has aborted it."""
    plan = cluster.plan(Mode.PREPARING)
    journal_says(monkeypatch, plan, RolloutState.ABORTED, note="ann asked for abort: wrong one")
    with pytest.raises(StopRequestedError, match="ann asked for abort: wrong one"):
        Controller(described, checkpoint=Remembered("r1")).apply(plan)


@pytest.mark.parametrize(
    ("owner", "target", "error", "words"),
    [
        (Owner.deferred_task("upgrade/another/roll"), Mode.PREPARING, FencedError, "while this task was deferred"),
        (Owner.this_process(), Mode.PREPARING, FencedError, "while this task was deferred"),
        (Owner.deferred_task(TASK), Mode.ENABLED, PlanMovedError, "Rollout r1 carries out plan"),
    ],
)
def test_a_task_that_was_taken_over_or_whose_plan_was_changed_while_it_was_deferred_touches_nothing(
    described: ConnectCluster,
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
    owner: Owner,
    target: Mode,
    error: type[Exception],
    words: str,
) -> None:
    journal_says(monkeypatch, cluster.plan(Mode.PREPARING), RolloutState.RUNNING, owner)
    with pytest.raises(error, match=words):
        Controller(described, task=TASK).go_on(cluster.plan(target), waited())


def test_gates_are_handed_over_only_where_a_task_can_come_back(described: ConnectCluster, cluster: Any) -> None:
    with pytest.raises(ConfigurationError, match="no task was named"):
        Controller(described).advance(cluster.plan(Mode.PREPARING))


class Stored(Remembered):
    """A caller's note of the gate at which its last process was deferred."""

    def __init__(self, document: dict[str, Any] | None) -> None:
        self.document = document

    def get(self, key: str) -> Any:
        assert key == GATE_KEY
        return self.document


@pytest.mark.parametrize(
    ("document", "state", "remembered"),
    [
        (waited().to_dict(), RolloutState.RUNNING, True),
        (waited().to_dict(), RolloutState.PAUSED, False),  # that gate has answered, so the next one begins anew
        ({**waited().to_dict(), "rollout_id": "r0"}, RolloutState.RUNNING, False),
        ({"schema": 99}, RolloutState.RUNNING, False),
        (None, RolloutState.RUNNING, False),
    ],
)
def test_the_gate_at_which_a_killed_process_was_deferred_is_remembered(
    document: dict[str, Any] | None, state: RolloutState, remembered: bool
) -> None:
    found = TaskMemory(Stored(document)).gate_of(RolloutRecord("r1", {}, {}, state, 1.0))
    assert found == (waited() if remembered else None)
    assert TaskMemory(None).gate_of(RolloutRecord("r1", {}, {}, state, 1.0)) is None


class FirstActError(Exception):
    """Raised by the first act of a roll."""


class Unchanged:
    """A host whose file is about to be changed."""

    def __init__(self, worker_id: str, cluster: Any) -> None:
        self.worker_id, self.cluster = worker_id, cluster

    def digest_with(self, properties: dict[str, str]) -> str:
        return f"{self.worker_id} with {sorted(properties.items())}"

    def observe(self) -> Any:
        return self.cluster.workers[self.worker_id].facts

    def edit(self, *_: object, **__: object) -> None:
        raise FirstActError


class Looks:
    """Stands for an observer, and counts its looks."""

    def __init__(self, cluster: Any) -> None:
        self.session = type("Session", (), {"kafka": None})
        self.hosts = {worker_id: Unchanged(worker_id, cluster) for worker_id in cluster.workers}
        self.logs = type("Logs", (), {"memory": Memory()})
        self.cluster = cluster
        self.count = 0

    def observe(self) -> Any:
        self.count += 1
        return self.cluster.observe(at=time.time())

    observe_settled = observe


class OpenJournal:
    """A journal with one writer."""

    def __init__(self, *_: object, **__: object) -> None:
        self.written: list[str] = []

    def acquire(self, *, take_over: bool) -> JournalContent:
        return JournalContent()

    def record(self, step: Step) -> int:
        return int(time.time() * 1000)

    def nothing(self, *_: object, **__: object) -> None:
        return None

    begin = request = renew = confirm = end = close = nothing


@pytest.fixture
def looks(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.setattr(planner, "read_journal", lambda *_: JournalContent())
    monkeypatch.setattr(module, "Journal", OpenJournal)
    monkeypatch.setattr(planner, "added_rights", lambda *_: None)  # nobody listens at the brokers' port
    return Looks(cluster)


QUICK = RolloutSettings(polls=3, hold_seconds=0.0, poll_interval_seconds=0.0)


@pytest.fixture
def controller(described: ConnectCluster, looks: Looks) -> Controller:
    """A controller whose looks are counted."""
    controller = Controller(described, settings=QUICK)
    controller.observer = looks  # type: ignore[assignment]
    return controller


def found(controller: Controller, looks: Looks) -> Plan:
    """The plan of a roll to ``preparing``, just found by its hash, as by ``eos apply``."""
    shown = controller.plan(Mode.PREPARING).hash
    looks.count = 0
    return controller.find_plan(shown)


def test_a_roll_looks_five_times_before_its_first_act(controller: Controller, looks: Looks) -> None:
    """To find the plan; under the lease, which is the gate's first look; twice more for the gate; right before the act.
    The figure is in docs/explanation/how-a-roll-works.md."""
    plan = found(controller, looks)
    assert looks.count == 1
    with pytest.raises(FirstActError):
        controller.apply(plan)
    assert looks.count == 5


@pytest.mark.parametrize("target", Mode)
def test_one_look_serves_whichever_plan_is_meant(controller: Controller, looks: Looks, target: Mode) -> None:
    shown = controller.replan(target)
    looks.count = 0
    assert controller.find_plan(shown.short_hash) == shown
    assert looks.count == 1


def test_a_plan_is_found_although_that_of_another_mode_cannot_be_made(
    controller: Controller, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = controller.replan(Mode.ENABLED)
    plan_from = planner.Planner._plan_from

    def only_enabled(self: Any, observation: Any, target: Mode, *content: Any) -> Any:
        if target is not Mode.ENABLED:
            raise ConfigurationError("a config provider supplies the mode")
        return plan_from(self, observation, target, *content)

    monkeypatch.setattr(planner.Planner, "_plan_from", only_enabled)
    assert controller.find_plan(shown.hash) == shown
    with pytest.raises(ConfigurationError, match="a config provider"):
        controller.find_plan("0" * 64)


def test_the_look_that_no_plan_fits_says_what_has_moved(controller: Controller, cluster: Any, looks: Looks) -> None:
    shown = controller.replan(Mode.PREPARING)
    cluster.edit_file("w1:8083", Mode.ENABLED)
    looks.count = 0
    with pytest.raises(PlanMovedError, match="no longer fits the cluster"):
        controller.find_plan(shown.hash)
    with pytest.raises(PlanMovedError, match="of w1:8083 was edited"):
        shown.require_unmoved(controller.replan(shown.target))
    assert looks.count == 1


def test_a_plan_that_is_done_is_found_and_reported_on_one_look(
    controller: Controller, cluster: Any, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = controller.replan(Mode.PREPARING)
    journal_says(monkeypatch, plan, RolloutState.DONE)
    for worker_id in cluster.workers:
        cluster.roll(worker_id, Mode.PREPARING, at=time.time())
    looks.count = 0
    assert controller.apply(controller.find_plan(plan.hash)).rollout_id == "r1"
    assert looks.count == 1


def test_a_plan_that_was_found_long_ago_is_compared_with_a_look_of_now(
    controller: Controller, cluster: Any, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = found(controller, looks)
    monkeypatch.setattr(planner, "STABLE_SECONDS", -1.0)
    cluster.edit_file("w1:8083", Mode.ENABLED)
    monkeypatch.setattr(OpenJournal, "acquire", OpenJournal.nothing)  # not even asked for
    with pytest.raises(PlanMovedError):
        controller.apply(plan)
    assert looks.count == 2


def test_what_moved_before_the_lease_was_taken_is_seen_under_it(
    controller: Controller, cluster: Any, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acquire(journal: OpenJournal, *, take_over: bool) -> JournalContent:
        cluster.edit_file("w1:8083", Mode.ENABLED)
        return JournalContent()

    monkeypatch.setattr(OpenJournal, "acquire", acquire)
    plan = found(controller, looks)
    with pytest.raises(PlanMovedError):
        controller.apply(plan)
