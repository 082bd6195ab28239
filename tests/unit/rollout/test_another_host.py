"""A host that is no process of this machine: whatever is above the hosts rolls it as it rolls any other.

The workers belong to a supervisor of this test's own. It has one template of settings for all of them and knows each by
the number of its run; there is no path and no pid. Cluster and journal are plain values here: what is proved is that
the roll asks for nothing else. (``tests/integration/test_local_worker.py`` rolls real ones.)
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.errors import (
    ConfigurationError,
    EosError,
    GateFailedError,
    PlanMovedError,
    RolloutPausedError,
    UnreachableError,
)
from airflow_eos_provider.journal.records import RolloutState, Step, StepStatus
from airflow_eos_provider.rollout.act.roll import Roll
from airflow_eos_provider.rollout.gate.expectation import Baseline
from airflow_eos_provider.rollout.hosts.host import (
    Edit,
    Host,
    HostFacts,
    Moment,
    NotRestartedError,
    Obstacle,
    RestartEvent,
    RestartPendingError,
    RestartRequest,
    StartToken,
    WorkerStartError,
)
from airflow_eos_provider.rollout.hosts.launch import Launch
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.unit.rollout.conftest import DISABLED, PREPARING, W1, W2, W3

TEMPLATE = Edit("template connect", kind="settings")


class Supervisor:
    """Owns the workers of a cluster of plain values.

    :ivar done: what it was asked to do, in order.
    :ivar broken: workers that do not start in preparing.
    :ivar refused: why the restart of a worker is not known to have begun, or be done.
    :ivar full: modes whose settings cannot be written.
    :ivar rendered: the mode that each start writes into the settings; None where a start leaves them alone.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster.share(W1, W2, W3, edit=TEMPLATE)
        self.done: list[str] = []
        self.broken: set[str] = set()
        self.refused: dict[str, EosError] = {}
        self.full: set[Mode] = set()
        self.rendered: Mode | None = None
        self.runs = dict.fromkeys((W1, W2, W3), 1)
        self.former: Mode | None = None

    @property
    def mode(self) -> Mode:
        """What the template says."""
        mode = self.cluster.workers[W1].facts.declared.mode
        assert isinstance(mode, Mode)
        return mode

    def digest(self, mode: Mode) -> str:
        return str(self.cluster.digest(W1, mode))

    def write(self, mode: Mode, *, expect: str) -> str:
        if self.digest(self.mode) != expect:
            raise PlanMovedError("The template was edited.")
        if mode in self.full:
            raise ConfigurationError("The settings cannot be replaced: no space left.")
        self.former = self.mode
        self.done.append(f"write {mode}")
        self.cluster.edit_file(W1, mode)
        return self.digest(mode)

    def run(self, worker_id: str) -> None:
        assert self.cluster.state == "Stable"
        self.done.append(f"restart {worker_id}")
        self.runs[worker_id] += 1
        if self.rendered is not None:
            self.cluster.edit_file(W1, self.rendered)
        if worker_id in self.broken and self.mode is PREPARING:
            self.cluster.kill(worker_id)
            raise WorkerStartError(f"run {self.runs[worker_id]} of {worker_id} ended at once")
        self.cluster.start(worker_id, at=time.time())


@dataclass
class SupervisedHost:
    """One worker of the supervisor."""

    supervisor: Supervisor
    worker_id: str

    def observe(self) -> HostFacts:
        facts: HostFacts = self.supervisor.cluster.workers[self.worker_id].facts
        run = f"run {self.supervisor.runs[self.worker_id]} of {self.worker_id}"
        return replace(
            facts,
            start_token=StartToken(run if facts.is_running else ""),
            runs_as=run if facts.is_running else "",
            launch=Launch(("supervisor", "restart", self.worker_id)),
            how_to_start=f"let the supervisor start {self.worker_id}",
            log=f"the supervisor's log of {self.worker_id}",
        )

    def unseen(self, why: str) -> HostFacts:
        return replace(self.observe(), digest=None, is_running=False, problem=why)

    def digest_with(self, properties: Mapping[str, str | None]) -> str:
        return self.supervisor.digest(Mode(properties[MODE_PROPERTY] or DISABLED))

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        return self.supervisor.write(Mode(properties[MODE_PROPERTY] or DISABLED), expect=expect)

    def restore(self, *, expect: str, original: str) -> None:
        if self.supervisor.digest(self.supervisor.mode) == original:
            return
        assert self.supervisor.former is not None
        assert self.supervisor.write(self.supervisor.former, expect=expect) == original

    def restart(self, request: RestartRequest = RestartRequest()) -> None:  # noqa: B008 (frozen)
        assert request.replaces in ("", self.observe().start_token), "the roll gives back the token that this host gave"
        if self.worker_id in self.supervisor.refused:
            raise self.supervisor.refused[self.worker_id]
        ran = self.observe().runs_as
        request.permit("stop" if ran else "start")
        if ran:
            request.on_event(RestartEvent(f"{ran} has ended", Moment.STOPPED, time.time()))
        self.supervisor.run(self.worker_id)
        request.on_event(RestartEvent(f"{self.observe().runs_as} was started", Moment.STARTED, time.time()))


class World:
    """What a roll observes: the cluster, with each worker's facts as its host tells them."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.hosts: dict[str, Host] = {w: SupervisedHost(supervisor, w) for w in (W1, W2, W3)}
        self.rebalances_for = 0  # looks
        self.misseen: list[dict[str, Any]] = []  # what the looks that follow see wrongly of the worker restarted last
        workers = [{"url": f"http://{worker_id}"} for worker_id in self.hosts]
        described = {"bootstrap_servers": "127.0.0.1:1", "group_id": "connect", "workers": workers}
        self.session = ConnectSession(ConnectCluster.from_mapping(described))

    def observe(self) -> Observation:
        self.supervisor.cluster.state = "PreparingRebalance" if self.rebalances_for else "Stable"
        self.rebalances_for = max(0, self.rebalances_for - 1)
        seen: Observation = self.supervisor.cluster.observe(at=time.time())
        workers = tuple(replace(w, facts=self.hosts[w.worker_id].observe()) for w in seen.workers)
        if self.supervisor.done and self.misseen:
            wrong, last = self.misseen.pop(0), self.supervisor.done[-1].removeprefix("restart ")
            workers = tuple(replace(w, facts=replace(w.facts, **wrong if w.worker_id == last else {})) for w in workers)
        return replace(seen, workers=workers)

    def plan(self) -> Plan:
        return self.supervisor.cluster.plan(PREPARING)  # type: ignore[no-any-return]


@dataclass
class Journal:
    """Keeps the steps, and permits everything."""

    steps: list[Step] = field(default_factory=list)
    permitted: list[str] = field(default_factory=list)
    withdrawn: list[tuple[str, Step | None]] = field(default_factory=list)

    def request(self) -> None:
        return None

    def renew(self) -> None:
        return None

    def confirm(self, act: str) -> None:
        self.permitted.append(act)

    def record(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps)

    def withdraw(self, worker_id: str, before: Step | None) -> None:
        self.withdrawn.append((worker_id, before))


@pytest.fixture
def supervisor(cluster: Any) -> Supervisor:
    return Supervisor(cluster)


def roll_of(world: World, plan: Plan, steps: dict[str, Step] | None = None) -> tuple[Roll, Journal]:
    journal = Journal()
    roll = Roll(
        rollout_id="r1",
        plan=plan,
        baseline=Baseline.of(world.observe()),
        steps=steps or {},
        observer=world,  # type: ignore[arg-type]
        journal=journal,  # type: ignore[arg-type]
        settings=RolloutSettings(
            polls=1, hold_seconds=0.0, poll_interval_seconds=0.001, gate_timeout_seconds=120.0, startup_seconds=5.0
        ),
        report=lambda line: None,
    )
    return roll, journal


def running_modes(world: World) -> dict[str, Mode | None]:
    return {w.worker_id: w.mode.verdict.mode for w in world.observe().workers}


def test_a_host_without_paths_and_pids_is_rolled_with_one_write_and_single_restarts(supervisor: Supervisor) -> None:
    world = World(supervisor)
    plan = world.plan()
    assert plan.diff()[0] == f"--- template connect  ({W1}, {W2}, {W3})"
    roll, journal = roll_of(world, plan)
    assert roll.run() is None
    assert supervisor.done == ["write preparing", f"restart {W1}", f"restart {W3}", f"restart {W2}"]
    assert set(running_modes(world).values()) == {PREPARING}
    passed = [step for step in journal.steps if step.status is StepStatus.PASSED]
    assert [step.worker_id for step in passed] == [W1, W3, W2]
    assert f"runs as run 2 of {W2}, a new process" in " ".join(passed[-1].evidence)
    assert [act for act in journal.permitted if act.endswith("change")] == [f"{W1}: change"]


def test_a_worker_that_fails_has_the_settings_of_all_put_back_and_the_error_says_who_is_left(
    supervisor: Supervisor,
) -> None:
    supervisor.broken = {W3}
    world = World(supervisor)
    plan = world.plan()
    roll, _ = roll_of(world, plan)
    with pytest.raises(GateFailedError) as failed:
        roll.run()
    assert f"run 2 of {W3} ended at once" in str(failed.value)
    assert "template connect serves 3 workers and was restored for all of them" in str(failed.value)
    assert f"{W1} runs preparing, {W2} runs disabled" in str(failed.value)
    assert supervisor.mode is DISABLED
    assert running_modes(world) == {W1: PREPARING, W2: DISABLED, W3: DISABLED}

    supervisor.broken.clear()
    supervisor.done.clear()
    again, _ = roll_of(world, plan, roll.steps)
    assert again.run() is None
    assert supervisor.done == ["write preparing", f"restart {W3}", f"restart {W2}"], "w1 was done"
    assert set(running_modes(world).values()) == {PREPARING}


def test_a_restore_that_fails_says_how_the_worker_and_its_settings_are_and_which_command_goes_on(
    supervisor: Supervisor,
) -> None:
    supervisor.broken, supervisor.full = {W1}, {DISABLED}
    world = World(supervisor)
    plan = world.plan()
    roll, _ = roll_of(world, plan)
    for _ in range(2):  # taken up again while the cause is still there
        with pytest.raises(GateFailedError) as failed:
            roll.run()
        assert f"Now {W1} does not run: this roll stopped it" in str(failed.value)
        assert "the settings template connect still has the roll's content (preparing)" in str(failed.value)
        assert "no space left" in str(failed.value)
        assert (
            failed.value.remedy
            == f"Remove the cause, then use 'eos rollout resume r1': it restores {W1} and starts it."
        )
        assert roll.failed_state is RolloutState.FAILED
        assert not world.observe().worker(W1).is_running
        roll, _ = roll_of(world, plan, roll.steps)
    supervisor.full.clear()
    with pytest.raises(GateFailedError, match="its former configuration is back, and it runs with it"):
        roll.run()
    assert running_modes(world)[W1] is DISABLED


def test_settings_that_are_edited_pause_a_roll_that_has_changed_something_and_refuse_one_that_has_not(
    supervisor: Supervisor,
) -> None:
    """Exit code 3 says that nothing was changed."""
    world = World(supervisor)
    plan = world.plan()
    supervisor.rendered = Mode.ENABLED  # neither as they were nor as planned
    roll, _ = roll_of(world, plan)
    with pytest.raises(
        RolloutPausedError, match="differs from the plan and from this roll's own changes: it was edited"
    ):
        roll.run()
    assert supervisor.done == ["write preparing", f"restart {W1}"]
    with pytest.raises(PlanMovedError, match="it was edited"):
        roll_of(world, plan)[0].run()


def test_an_announcement_is_withdrawn_if_the_settings_could_not_be_written_and_nothing_was_touched(
    supervisor: Supervisor,
) -> None:
    supervisor.full = {PREPARING}
    world = World(supervisor)
    plan = world.plan()
    roll, journal = roll_of(world, plan)
    with pytest.raises(RolloutPausedError, match=r"so the worker was not restarted: .*no space left"):
        roll.run()
    assert [step.status for step in journal.steps] == [StepStatus.INTENT]
    assert (journal.withdrawn, roll.steps, supervisor.done) == ([(W1, None)], {}, [])

    former = Step(W1, StepStatus.RESTORED, time.time())
    again, journal = roll_of(world, plan, {W1: former})
    with pytest.raises(RolloutPausedError):
        again.run()
    assert (journal.withdrawn, again.steps) == ([(W1, former)], {W1: former})
    supervisor.full.clear()
    assert roll_of(world, plan, again.steps)[0].run() is None
    assert set(running_modes(world).values()) == {PREPARING}


def test_a_journal_that_may_not_be_written_hides_no_other_reason_and_names_its_own(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigurationError("refused Write on the journal.", remedy="grant it: kafka-acls …")

    world = World(supervisor)
    monkeypatch.setattr(Journal, "withdraw", refuse)
    supervisor.full = {PREPARING}
    with pytest.raises(RolloutPausedError, match="no space left"):
        roll_of(world, world.plan())[0].run()

    monkeypatch.setattr(Journal, "confirm", refuse)
    with pytest.raises(RolloutPausedError, match="refused Write on the journal") as paused:
        roll_of(world, world.plan())[0].run()
    assert (paused.value.remedy or "").startswith("grant it: kafka-acls")


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (UnreachableError("it is silent", remedy="Start it."), "cannot tell whether it was restarted: it is silent"),
        (NotRestartedError("not allowed", remedy="Allow it."), "not allowed.*Allow it. Then apply the same plan again"),
        (RestartPendingError("the supervisor goes on with it", remedy="Wait."), "the supervisor goes on with it"),
    ],
)
def test_a_restart_that_is_not_known_to_be_done_pauses_the_roll_and_its_worker_is_not_restored(
    supervisor: Supervisor, trouble: EosError, words: str
) -> None:
    world = World(supervisor)
    plan = world.plan()
    supervisor.refused = {W3: trouble}
    roll, journal = roll_of(world, plan)
    with pytest.raises(RolloutPausedError) as paused:
        roll.run()
    assert re.search(words, str(paused.value), re.DOTALL)
    assert roll.failed_state is RolloutState.PAUSED
    assert supervisor.done == ["write preparing", f"restart {W1}"]
    assert journal.steps[-1].status is StepStatus.INTENT
    supervisor.refused.clear()
    again, _ = roll_of(world, plan, roll.steps)
    assert again.run() is None
    assert supervisor.done[2:] == [f"restart {W3}", f"restart {W2}"]


UNSEEN = {"digest": None, "problem": "its host could not be checked within 8 s"}


RUNS_TWICE = {"obstacles": (Obstacle("restart", "it runs twice", "end one of them"),)}


@pytest.mark.parametrize("misseen", [[UNSEEN] * 3, [RUNS_TWICE]])
def test_what_some_looks_do_not_see_or_one_alone_sees_fails_no_worker(
    supervisor: Supervisor, misseen: list[dict[str, Any]]
) -> None:
    """The first look at a restarted worker is the one that leads to its gate, and the gate's own."""
    world = World(supervisor)
    world.misseen = list(misseen)
    roll, _ = roll_of(world, world.plan())
    assert roll.run() is None
    assert not world.misseen
    assert supervisor.done == ["write preparing", f"restart {W1}", f"restart {W3}", f"restart {W2}"]


def test_a_host_that_no_look_sees_pauses_the_roll(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_eos_provider.rollout.act.roll.UNSEEN_SECONDS", 0.05)
    world = World(supervisor)
    plan = world.plan()
    world.misseen = [UNSEEN] * 100_000
    roll, _ = roll_of(world, plan)
    with pytest.raises(RolloutPausedError, match=f"of {W1} .* cannot be read: its host could not be checked"):
        roll.run()
    assert supervisor.done == ["write preparing", f"restart {W1}"]


def test_a_restart_that_was_only_announced_waits_for_a_stable_group_though_its_settings_are_written(
    supervisor: Supervisor,
) -> None:
    """They were written for w1. Of w3 that says nothing: with settings of its own, it would be half done."""
    world = World(supervisor)
    plan = world.plan()
    before = {w: host.observe().start_token for w, host in world.hosts.items()}
    supervisor.write(PREPARING, expect=plan.change(W1).config_before)
    supervisor.run(W1)
    now = time.time()
    announced = {
        W1: Step(W1, StepStatus.PASSED, now, restarted_after=now - 1, replaces=before[W1]),
        W3: Step(W3, StepStatus.INTENT, now, restarted_after=now, replaces=before[W3]),
    }
    supervisor.done.clear()
    world.rebalances_for = 5
    roll, _ = roll_of(world, plan, announced)
    assert roll.run() is None
    assert supervisor.done == [f"restart {W3}", f"restart {W2}"]


def test_what_two_looks_in_a_row_see_fails_the_worker(supervisor: Supervisor) -> None:
    world = World(supervisor)
    world.misseen = [RUNS_TWICE, RUNS_TWICE]
    roll, _ = roll_of(world, world.plan())
    with pytest.raises(GateFailedError, match="it runs twice"):
        roll.run()
    assert supervisor.done == ["write preparing", f"restart {W1}", "write disabled", f"restart {W1}"]
