"""Rolls of unusual clusters: of an older group protocol, of one worker, without a broker, joined by a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse, set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import RefusedError, RolloutPausedError
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.journal import RolloutState, journal_topic, read_journal
from airflow_eos_provider.rollout.settings import RolloutSettings

pytestmark = pytest.mark.slow

#: A heartbeat of these labs and a second; a look costs half a second.
SETTINGS = RolloutSettings(poll_interval_seconds=0.5, hold_seconds=3.0)

LoadOn = Callable[[Lab, str], Any]
LabFactory = Callable[[LabOptions], Lab]


def options(name: str, **others: Any) -> LabOptions:
    return LabOptions(name=name, **{"workers": 2, "session_timeout_ms": 6000, **others})


class Moment:
    """Does one thing when the roll first says these words; the roll waits for it meanwhile."""

    def __init__(self, words: str, act: Callable[[], object]) -> None:
        self.words, self.act, self.said = words, act, False

    def __call__(self, line: str) -> None:
        if self.words in line and not self.said:
            self.said = True
            self.act()


def go_through_a_round_of_fencing(lab: Lab, controller: Controller) -> None:
    """Four tasks become three: these start only when the leader, asked by each worker, has fenced all four."""
    lab.create_topic("fenced", 3)
    config = {
        "connector.class": "org.apache.kafka.connect.integration.TestableSourceConnector",
        "topic": "fenced",
        "throughput": "20",
        "messages.per.poll": "5",
    }
    with ConnectRest(lab.connect_urls[0], retry_seconds=20) as rest:
        rest.create("fenced", {**config, "tasks.max": "4"})
        wait_for("four tasks", lambda: run_on_record(controller, "fenced") == (4, 4))
        rest.put_config("fenced", {**config, "tasks.max": "3"})
        wait_for("three tasks behind a round of fencing", lambda: run_on_record(controller, "fenced") == (3, 3))
    observation = controller.observe()
    workers = {w for w in observation.members if any(task[0] == "fenced" for task in observation.tasks_on(w))}
    assert len(workers) == 2, "no task ran beside the leader, so no request for fencing went to another worker"


def run_on_record(controller: Controller, connector: str) -> tuple[int, int | None]:
    """How many tasks run, and how many the task count record behind their configuration names; None if it is older."""
    observation = controller.observe()
    status = (observation.statuses or {}).get(connector)
    state = observation.config.connectors.get(connector) if observation.config else None
    running = sum(task.state == "RUNNING" for task in status.tasks) if status else 0
    return running, state.task_count_record if state and not state.pending_fencing else None


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("protocol", "on_the_wire", "isolation"),
    [("eager", "default", {}), ("compatible", "compatible", {"isolation.level": "read_uncommitted"})],
)
def test_a_group_of_an_older_protocol_rolls_up_to_enabled(
    lab_factory: LabFactory, load_on: LoadOn, protocol: str, on_the_wire: str, isolation: dict[str, str]
) -> None:
    """Connect asks for no protocol in particular: fencing is a request to the leader, only its signature is missing.

    And each file is in the end what it was but for the mode, whatever it said of isolation.level.
    """
    properties = {"connect.protocol": protocol, **isolation}
    lab = lab_factory(options(protocol, worker_properties=properties, test_connectors=True))
    controller = Controller(lab.cluster(), settings=SETTINGS)
    seen = controller.observe()
    assert seen.group is not None
    assert seen.group.protocol == on_the_wire
    told = next(check for check in controller.preflight(Mode.PREPARING).checks if check.name == "protocol")
    assert told.passed
    assert f"connect.protocol={protocol}" in told.evidence
    assert "not signed" in told.evidence
    before = [worker.config.read_bytes() for worker in lab.workers]
    with load_on(lab, "lines") as load:
        controller.apply(controller.plan(Mode.PREPARING))
        for worker in lab.workers:
            assert parse(worker.config.read_bytes())["isolation.level"] == "read_committed"
        plan = controller.plan(Mode.ENABLED)
        assert plan.puts_back
        enabled_at = controller.apply(plan).finished_at_ms
        controller.verify(Mode.ENABLED)
        compared = load.compared(since_ms=enabled_at)
    assert compared.exactly_once, compared
    for worker, data in zip(lab.workers, before, strict=True):
        assert worker.config.read_bytes() == set_property(data, MODE_PROPERTY, "enabled"), "a property was left behind"
        ignored = "'read_uncommitted' for the 'isolation.level' property will be ignored"
        assert (ignored in worker.log.read_text(encoding="utf-8")) == bool(isolation), "Connect no longer forces it"
    go_through_a_round_of_fencing(lab, controller)
    lab.down()


def test_a_roll_goes_on_without_the_broker_that_is_killed_in_the_midst_of_it(
    lab_factory: LabFactory, load_on: LoadOn
) -> None:
    """The one that leads the journal; it stays dead, so the next roll begins and ends without it, too."""
    lab = lab_factory(options("lost-broker", brokers=3))
    killed = []

    def kill() -> None:
        admin = AdminClient({"bootstrap.servers": lab.bootstrap_servers})
        journal = admin.list_topics(timeout=20).topics[journal_topic(lab.group_id)]
        killed.append(journal.partitions[0].leader)
        lab.stop_broker(killed[0] - 1, kill=True)

    with load_on(lab, "lines") as load:
        rolling = Controller(lab.cluster(), settings=SETTINGS, report=Moment("gate passed", kill))
        rolling.apply(rolling.plan(Mode.PREPARING))
        assert killed
        assert lab.broker_process(killed[0] - 1) is None
        controller = Controller(lab.cluster(), settings=SETTINGS)
        enabled_at = controller.apply(controller.plan(Mode.ENABLED)).finished_at_ms
        controller.verify(Mode.ENABLED)
        compared = load.compared(since_ms=enabled_at)
    assert compared.exactly_once, compared
    lab.down()


@pytest.fixture(scope="module")
def lone(lab_factory: LabFactory) -> Lab:
    """One worker only, in disabled."""
    return lab_factory(options("lone", workers=1))


def test_a_lone_worker_is_rolled_only_if_downtime_is_allowed(lone: Lab, load_on: LoadOn) -> None:
    with load_on(lone, "lines") as load:
        with pytest.raises(RefusedError, match="its restart stops every connector") as refused:
            Controller(lone.cluster(), settings=SETTINGS).plan(Mode.PREPARING)
        assert "--allow-downtime" in refused.value.remedy

        controller = Controller(lone.cluster(), settings=replace(SETTINGS, allow_downtime=True))
        plan = controller.plan(Mode.PREPARING)
        assert "about 15 s: no other worker runs, so every connector of the group stands still" in plan.markdown()
        report = controller.apply(plan)
        compared = load.compared()
        controller.verify(Mode.PREPARING)
    assert compared.nothing_missing, compared
    assert 0 < report.workers[0].tasks_stood_seconds < 120


def test_a_worker_that_joins_in_mid_roll_stops_it_until_it_is_gone(lone: Lab) -> None:
    stranger = []
    joins = Moment("it holds", lambda: stranger.append(lone.add_worker(listed=False)))
    allowed = replace(SETTINGS, allow_downtime=True)
    rolling = Controller(lone.cluster(), settings=allowed, report=joins)
    plan = rolling.plan(Mode.ENABLED)
    with pytest.raises(RolloutPausedError) as paused:
        rolling.apply(plan)
    joined = lone.connect_urls[stranger[0]].removeprefix("http://")
    assert joined in str(paused.value)
    assert "stop it, or" in str(paused.value)
    rollout = read_journal(lone.cluster().kafka, lone.group_id).unfinished(plan.hash)
    assert rollout is not None
    assert rollout.state is RolloutState.PAUSED

    again = Controller(lone.cluster(), settings=allowed)
    with pytest.raises(RolloutPausedError, match=joined):
        again.apply(plan)

    lone.stop_worker(stranger[0])
    wait_for("the stranger leaves the group", lambda: len(again.observe().members) == 1)
    assert again.apply(plan).resumed
    again.verify(Mode.ENABLED)
