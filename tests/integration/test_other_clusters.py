"""Rolls of unusual clusters: of an older group protocol, without a broker, of one worker, joined by a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient

from airflow_eos_provider.connect.group import WorkerGroup, describe_group
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import parse, set_property
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.name import journal_topic
from airflow_eos_provider.kafka.read.reader import read_to_end
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.lab.waiting import wait_for_group
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.waiting import wait_for

#: A heartbeat of these labs and a second; a look costs half a second.
SETTINGS = RolloutSettings(poll_interval_seconds=0.5, hold_seconds=1.3)

LoadOn = Callable[[Lab, str], Any]
LabFactory = Callable[[LabOptions], Lab]


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
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.create("fenced", {**config, "tasks.max": "4"})
        wait_for("four tasks", lambda: run_on_record(controller, "fenced") == (4, 4))
        rest.put_config("fenced", {**config, "tasks.max": "3"})
        wait_for("three tasks behind a round of fencing", lambda: run_on_record(controller, "fenced") == (3, 3))
    observation = controller.observe_stable()
    workers = {w for w in observation.members if any(task[0] == "fenced" for task in observation.tasks_on(w))}
    assert len(workers) == 2, "no task ran beside the leader, so no request for fencing went to another worker"


def run_on_record(controller: Controller, connector: str) -> tuple[int, int | None]:
    """How many tasks run, and how many the task count record behind their configuration names; None if it is older."""
    observation = controller.observe()
    status = (observation.statuses or {}).get(connector)
    state = observation.config.connectors.get(connector) if observation.config else None
    running = sum(task.state == "RUNNING" for task in status.tasks) if status else 0
    return running, state.task_count_record if state and not state.pending_fencing else None


def assert_placement_is_understood(lab: Lab, tasks: dict[str, int]) -> None:
    """What the members' assignments say, each protocol in a form of its own, is what the connectors' statuses say."""
    kafka = lab.cluster().kafka

    def agrees(group: WorkerGroup) -> bool:
        placement = group.placement or {}
        placed = {task: worker_id for worker_id, on in placement.items() for task in on.tasks}
        with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
            statuses = rest.statuses()
        running = {
            (name, task.number): task.worker_id
            for name, status in statuses.items()
            for task in status.tasks
            if task.state == "RUNNING"
        }
        connectors = {name for on in placement.values() for name in on.connectors}
        every_task = {(name, number) for name, count in tasks.items() for number in range(count)}
        return connectors == set(tasks) and set(placed) == every_task and placed == running

    groups: list[WorkerGroup] = []

    def agree() -> bool:
        groups[:] = [describe_group(kafka, lab.group_id)]
        return agrees(groups[0])

    wait_for("placement and statuses agree", agree)
    (group,) = groups
    assert group.leader is not None
    assert group.leader.url.rstrip("/") in lab.connect_urls
    assert [member.problem for member in group.members] == [None, None]


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> Lab:
    """Two workers on three brokers, for each test to shape as it needs them; they say themselves how they read."""
    properties = {"connect.protocol": "eager", "isolation.level": "read_uncommitted"}
    options = LabOptions(name="two", workers=2, brokers=3, rebalance_delay_ms=500, session_timeout_ms=6000)
    return lab_factory(replace(options, worker_properties=properties, test_connectors=True))


def shape(lab: Lab, *, protocol: str, members: int) -> None:
    """So many workers of this group protocol, with no other property than the lab's own; left alone if they are so."""
    is_so = all(
        parse(worker.config.read_bytes())["connect.protocol"] == protocol
        and (lab.worker_process(index) is not None) == (index < members)
        for index, worker in enumerate(lab.workers)
    )
    if is_so:
        return
    for index, worker in enumerate(lab.workers):
        lab.stop_worker(index)
        data = set_property(worker.config.read_bytes(), "connect.protocol", protocol)
        worker.config.write_bytes(set_property(data, MODE_PROPERTY, Mode.DISABLED))
    for wait in (False, True):  # all at once
        for index in range(members):
            lab.start_worker(index, wait=wait)
    wait_for_group(lab.kafka, lab.group_id, members)


@pytest.fixture
def eager(lab: Lab) -> Lab:
    """Two workers of the oldest group protocol."""
    shape(lab, protocol="eager", members=2)
    return lab


def test_a_group_of_the_eager_protocol_rolls_up_to_enabled_although_a_broker_is_killed_in_the_midst_of_it(
    eager: Lab, load_on: LoadOn
) -> None:
    """The broker that leads the journal; it stays dead, so the next roll begins and ends without it, too.

    Connect asks for no protocol in particular: fencing is a request to the leader, only its signature is missing. And
    each file is in the end what it was but for the mode, whatever it said of isolation.level.
    """
    lab = eager
    killed: list[int] = []

    def kill() -> None:
        admin = AdminClient({"bootstrap.servers": lab.bootstrap_servers})
        journal = admin.list_topics(timeout=180).topics[journal_topic(lab.group_id)]
        killed.append(journal.partitions[0].leader)
        lab.stop_broker(killed[0] - 1, kill=True)

    controller = Controller(lab.cluster(), settings=SETTINGS, report=Moment("gate passed", kill))
    seen = controller.observe()
    assert seen.group is not None
    assert seen.group.protocol == "default"
    (check,) = [check for check in controller.preflight(Mode.PREPARING).checks if check.subject == "protocol"]
    assert check.passed
    assert "connect.protocol=eager" in check.found
    assert "not signed" in check.found
    before = [worker.config.read_bytes() for worker in lab.workers]
    with load_on(lab, "lines") as load:
        controller.apply(controller.plan(Mode.PREPARING))
        for worker in lab.workers:
            assert parse(worker.config.read_bytes())["isolation.level"] == "read_committed"
        controller = Controller(lab.cluster(), settings=SETTINGS)
        plan = controller.plan(Mode.ENABLED)
        assert plan.puts_back
        enabled_at = controller.apply(plan).finished_at_ms
        controller.verify(Mode.ENABLED)
        compared = load.compared(since_ms=enabled_at)
    assert compared.exactly_once, compared
    for worker, data in zip(lab.workers, before, strict=True):
        assert worker.config.read_bytes() == set_property(data, MODE_PROPERTY, "enabled"), "a property was left behind"
        ignored = "'read_uncommitted' for the 'isolation.level' property will be ignored"
        assert ignored in worker.log.read_text(encoding="utf-8"), "Connect no longer forces it"
    go_through_a_round_of_fencing(lab, controller)
    assert_placement_is_understood(lab, {"lines": 1, "fenced": 3})
    assert lab.broker_process(killed[0] - 1) is None
    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        for connector in ("lines", "fenced"):
            rest.delete(connector)


class Lone:
    """One worker, alone in its group: the first one of a lab whose second one is stopped."""

    #: A roll to each mode, one after the other.
    NEXT: ClassVar = {Mode.DISABLED: Mode.PREPARING, Mode.PREPARING: Mode.ENABLED, Mode.ENABLED: Mode.DISABLED}

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.url, self.other = lab.connect_urls

    def controller(self, *, allow_downtime: bool = True, report: Callable[[str], None] = print) -> Controller:
        cluster = self.lab.cluster()
        only = replace(cluster, workers=(cluster.worker(self.url.removeprefix("http://")),))
        return Controller(only, settings=replace(SETTINGS, allow_downtime=allow_downtime), report=report)

    @property
    def target(self) -> Mode:
        """The mode to roll to next, whatever another test has rolled to."""
        mode = self.lab.workers[0].mode_in_file()
        assert mode is not None
        return self.NEXT[mode]

    def running_again(self, task: str, since: float) -> float:
        """When the task itself said first after this moment that it runs, by its record in the status topic."""
        records = read_to_end(self.lab.cluster().kafka, f"{self.lab.group_id}-status").records
        of_task = [record for record in records if record.key == f"status-task-{task}".encode()]
        times = [record.timestamp_ms / 1000 for record in of_task if b'"RUNNING"' in (record.value or b"")]
        return min(time for time in times if time >= since)


@pytest.fixture
def lone(lab: Lab) -> Lone:
    shape(lab, protocol="sessioned", members=1)
    return Lone(lab)


def test_a_lone_worker_is_rolled_only_if_downtime_is_allowed(lone: Lone, load_on: LoadOn) -> None:
    lab, target = lone.lab, lone.target
    with load_on(lab, "alone") as load:
        with pytest.raises(RefusedError, match="its restart stops every connector") as refused:
            lone.controller(allow_downtime=False).plan(target)
        assert "--allow-downtime" in refused.value.remedy

        controller = lone.controller()
        plan = controller.plan(target)
        assert "about 15 s: no other worker runs, so no connector of the group runs" in plan.markdown()
        report = controller.apply(plan)
        compared = load.compared()
        controller.verify(target)
    assert compared.nothing_missing, compared
    # Not before the task ran again by its own word, and not after the gate had passed, which looks at it.
    (step,) = read_journal(lab.cluster().kafka, lab.group_id).steps[report.rollout_id].values()
    running_again = lone.running_again("alone-0", step.restarted_after)
    assert step.restarted_after < running_again <= step.restarted_after + step.task_downtime_seconds < step.at
    assert report.workers[0].task_downtime_seconds == round(step.task_downtime_seconds, 1)
    with ConnectRest(lone.url, retry_seconds=180) as rest:
        rest.delete("alone")
