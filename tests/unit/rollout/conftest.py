"""A Connect cluster as plain values: healthy as built, then one thing broken at a time; tests read as sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.group import Assignment, Member, WorkerGroup
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.mode_evidence import Declared, ModeVerdict, Observed, Running, WorkerMode
from airflow_eos_provider.connect.rest import ConnectorStatus, Health, TaskStatus, WorkerRoot
from airflow_eos_provider.connect.topics.config_topic import (
    ClusterState,
    ConnectorConfigState,
    TaskCountRecord,
    TaskSet,
)
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.journal.journal import Step, StepStatus
from airflow_eos_provider.rollout.act.decision import expectation
from airflow_eos_provider.rollout.answer import Check
from airflow_eos_provider.rollout.gate.expectation import Baseline, Expectation
from airflow_eos_provider.rollout.gate.gate import evaluate
from airflow_eos_provider.rollout.hosts.host import NOT_RUNNING, Edit, HostFacts, StartToken
from airflow_eos_provider.rollout.hosts.launch import how_to_start, launch_of
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observe.topic_progress import LogView
from airflow_eos_provider.rollout.plan.roll_plan import Plan, make_plan

GROUP = "lab"
W1, W2, W3 = "w1:8083", "w2:8083", "w3:8083"
FOREIGN = "w9:8083"  # a worker that no cluster description has
DISABLED, PREPARING, ENABLED = Mode.DISABLED, Mode.PREPARING, Mode.ENABLED

#: The moment of every observation unless a test says otherwise, and when the processes of a fresh cluster started.
NOW = 1_000_000.0
LONG_AGO = NOW - 3_600.0

CONFIG_TOPIC = "connect-configs"
TASK_SET_AT = 20  # offset of each commit-… record; the task count records follow it
MEMBERS_AT = 40  # the offset that all members work on


def file_digest(worker_id: str, mode: Mode) -> str:
    """What stands for the SHA-256 of a worker's file while it declares this mode."""
    return f"{worker_id} with {mode}"


def token(worker_id: str, started_at: float = LONG_AGO) -> StartToken:
    """What stands for the start token of a worker's process."""
    return StartToken(f"{worker_id} started at {started_at}")


class Cluster:
    """Three workers in one mode, w1 leading. ``mirror`` (source) has a task on each, ``file`` (source) one on w1 and
    ``sink`` one on w2. Methods change one thing and return the cluster."""

    def __init__(self, mode: Mode = Mode.DISABLED) -> None:
        self.at = NOW
        self.leader = W1
        self.state = "Stable"
        self.protocol = "sessioned"
        self.group_problem: str | None = None
        self.workers: dict[str, WorkerObservation] = {w: self._worker(w, mode) for w in (W1, W2, W3)}
        self.member_ids = {w: f"connect-{w}-1" for w in self.workers}
        self.placed: dict[str, tuple[set[str], set[tuple[str, int]]]] = {
            W1: ({"file"}, {("mirror", 0), ("file", 0)}),
            W2: ({"sink"}, {("mirror", 1), ("sink", 0)}),
            W3: ({"mirror"}, {("mirror", 2)}),
        }
        self.assignments: dict[str, dict[str, Any]] = {}
        self.configs: dict[str, ConnectorConfigState] = {
            name: self._config(name, count) for name, count in (("mirror", 3), ("file", 1), ("sink", 1))
        }
        self.last_rebalance_offset = TASK_SET_AT
        self.statuses: dict[str, ConnectorStatus] | None = {}
        self._report_placement(("mirror", "source"), ("file", "source"), ("sink", "sink"))
        self.logs = LogView(partition_count=9)
        self.extra: dict[str, Any] = {}

    def share(self, *worker_ids: str, edit: Edit = Edit("/etc/connect/shared.properties")) -> Cluster:  # noqa: B008
        """One edit serves these workers."""
        for worker_id in worker_ids:
            mode = self.workers[worker_id].facts.declared.mode or Mode.DISABLED
            self.facts(worker_id, edit=edit, digest=file_digest(edit.name, mode))
        return self

    def sharing(self, worker_id: str) -> list[str]:
        """The workers that this worker's edit serves."""
        edit = self.workers[worker_id].facts.edit
        return [w for w, worker in self.workers.items() if worker.facts.edit == edit]

    def digest(self, worker_id: str, mode: Mode) -> str:
        """What the worker's edit has for a digest in this mode."""
        shared = self.sharing(worker_id)
        return file_digest(self.workers[worker_id].facts.edit.name if len(shared) > 1 else worker_id, mode)

    # what is looked at

    def observe(self, *, at: float | None = None) -> Observation:
        group = None
        if self.group_problem is None:
            members = tuple(self._member(w) for w in sorted(self.placed))
            group = WorkerGroup(GROUP, self.state, self.protocol, members=members)
        values: dict[str, Any] = {
            "group": group,
            "group_problem": self.group_problem,
            "config_topic": CONFIG_TOPIC,
            "config": ClusterState(dict(self.configs), end_offset=50, last_rebalance_offset=self.last_rebalance_offset),
            "statuses": dict(self.statuses) if self.statuses is not None else None,
            "transactions": (),
            "logs": self.logs,
        }
        return Observation(
            at=self.at if at is None else at,
            group_id=GROUP,
            workers=tuple(self.workers.values()),
            **{**values, **self.extra},
        )

    def plan(self, target: Mode = Mode.PREPARING) -> Plan:
        """A plan from what is seen now."""
        return make_plan(self.observe(), target, {w: self.digest(w, target) for w in self.workers})

    # what is broken

    def stop(self, worker_id: str) -> Cluster:
        """Gone as the group has noticed it: no process, no member; its tasks went to the first worker that is left."""
        self.kill(worker_id)
        return self._hand_over(worker_id)

    def kill(self, worker_id: str) -> Cluster:
        """Its process is gone, and the group has not noticed yet."""
        worker = self.workers[worker_id]
        running = replace(worker.mode.running, alive=False, mode=None, started_at=None)
        self.workers[worker_id] = replace(
            worker,
            facts=replace(
                worker.facts, is_running=False, runs_as="", started_at=None, running=running, start_token=NOT_RUNNING
            ),
            mode=replace(worker.mode, verdict=ModeVerdict.UNKNOWN, running=running, reason="stopped"),
            root=None,
            health=None,
            rest_problem=f"http://{worker_id} refused the connection",
        )
        return self

    def start(self, worker_id: str, *, at: float, mode: Mode | None = None) -> Cluster:
        """A new process of this worker, in the mode that its file says unless given another."""
        declared = self.workers[worker_id].facts.declared.mode
        mode = mode or declared or Mode.DISABLED
        facts = self.workers[worker_id].facts
        self.workers[worker_id] = self._worker(worker_id, mode, started_at=at)
        self.facts(worker_id, edit=facts.edit, digest=facts.digest)
        self.placed.setdefault(worker_id, (set(), set()))
        number = int(self.member_ids[worker_id].rpartition("-")[2]) + 1
        self.member_ids[worker_id] = f"connect-{worker_id}-{number}"
        return self

    def edit_file(self, worker_id: str, mode: Mode) -> Cluster:
        """The file declares another mode, for each worker that it serves; the processes run on as they were."""
        declared = Declared(mode, f"{MODE_PROPERTY}={mode}", NOW)
        digest = self.digest(worker_id, mode)
        for each in self.sharing(worker_id):
            properties = {**self.workers[each].facts.properties, MODE_PROPERTY: str(mode)}
            self.facts(each, declared=declared, digest=digest, properties=properties)
        return self

    def roll(self, worker_id: str, mode: Mode, *, at: float) -> Cluster:
        """What a roll does to one worker, come to its good end."""
        return self.edit_file(worker_id, mode).start(worker_id, at=at)

    def facts(self, worker_id: str, **changes: Any) -> Cluster:
        worker = self.workers[worker_id]
        self.workers[worker_id] = replace(worker, facts=replace(worker.facts, **changes))
        return self

    def says(self, name: str, value: str | None, *worker_ids: str) -> Cluster:
        """The files of these workers, or of all, say something else of this property; None takes it away."""
        for worker_id in worker_ids or self.workers:
            properties = {**self.workers[worker_id].facts.properties, name: value}
            self.facts(worker_id, properties={key: each for key, each in properties.items() if each is not None})
        return self

    def silent(self, worker_id: str, problem: str = "no answer", remedy: str | None = None) -> Cluster:
        """Its REST API does not answer."""
        return self.worker(worker_id, root=None, health=None, rest_problem=problem, rest_remedy=remedy)

    def worker(self, worker_id: str, **changes: Any) -> Cluster:
        self.workers[worker_id] = replace(self.workers[worker_id], **changes)
        return self

    def prove(self, worker_id: str, verdict: ModeVerdict, reason: str = "as its log says") -> Cluster:
        """The evidence on one worker's mode says this."""
        mode = replace(self.workers[worker_id].mode, verdict=verdict, reason=reason)
        return self.worker(worker_id, mode=mode)

    def unhealthy(self, worker_id: str) -> Cluster:
        return self.worker(worker_id, health=Health("starting", "the herder has not joined"))

    def join(self, worker_id: str) -> Cluster:
        """A member that nobody has described."""
        self.placed[worker_id] = (set(), set())
        self.member_ids[worker_id] = f"connect-{worker_id}-1"
        return self

    def leave(self, worker_id: str) -> Cluster:
        """Out of the group, its tasks taken over; its process runs on."""
        return self._hand_over(worker_id)

    def rebalancing(self) -> Cluster:
        """A rebalance runs: the broker knows the members' ids, and tells none of their bytes."""
        self.state = "PreparingRebalance"
        return self

    def assign(self, worker_id: str, **changes: Any) -> Cluster:
        """Something else stands in this member's assignment."""
        self.assignments.setdefault(worker_id, {}).update(changes)
        return self

    def place(self, task: tuple[str, int], *on: str) -> Cluster:
        """The group has placed this task on these workers, and on no others."""
        for worker_id, (_, tasks) in self.placed.items():
            tasks.discard(task)
            if worker_id in on:
                tasks.add(task)
        return self

    def connector(self, name: str, **changes: Any) -> Cluster:
        """The config topic says something else of this connector."""
        self.configs[name] = replace(self.configs[name], **changes)
        return self

    def status(self, name: str, **changes: Any) -> Cluster:
        """REST says something else of this connector."""
        assert self.statuses is not None
        self.statuses[name] = replace(self.statuses[name], **changes)
        return self

    def task(self, name: str, number: int, **changes: Any) -> Cluster:
        """REST says something else of this task."""
        assert self.statuses is not None
        tasks = tuple(replace(t, **changes) if t.number == number else t for t in self.statuses[name].tasks)
        return self.status(name, tasks=tasks)

    def add_connector(self, name: str, *, on: str = W1, kind: str = "source", state: str = "RUNNING") -> Cluster:
        """A new connector with one task, as the group runs it."""
        assert self.statuses is not None
        self.configs[name] = self._config(name, 1)
        self.placed[on][0].add(name)
        self.placed[on][1].add((name, 0))
        self.statuses[name] = ConnectorStatus(name, kind, "RUNNING", on, tasks=(TaskStatus(0, state, on),))
        return self

    def delete_connector(self, name: str) -> Cluster:
        """Deleted, with every trace gone."""
        assert self.statuses is not None
        del self.configs[name], self.statuses[name]
        for connectors, tasks in self.placed.values():
            connectors.discard(name)
            tasks -= {task for task in tasks if task[0] == name}
        return self

    def log(self, **changes: Any) -> Cluster:
        """The topics that the group writes show something else."""
        self.logs = replace(self.logs, **changes)
        return self

    def see(self, **values: Any) -> Cluster:
        """One field of the observation is something else."""
        self.extra.update(values)
        return self

    # how it is built

    def _worker(self, worker_id: str, mode: Mode, *, started_at: float = LONG_AGO) -> WorkerObservation:
        config = Path(f"/etc/connect/{worker_id.partition(':')[0]}.properties")
        declared = Declared(mode, f"{MODE_PROPERTY}={mode}", LONG_AGO - 60, LONG_AGO - 60)
        running = Running(mode, f"its log says {mode}", started_at, alive=True, reads_file=True)
        observed = Observed(mode.runs_exactly_once_tasks, "as probed")
        verdict = ModeVerdict(mode.value)
        properties = {"group.id": GROUP, "config.storage.topic": CONFIG_TOPIC, "sasl.jaas.config": "password=CANARY"}
        if mode is Mode.PREPARING:
            properties["isolation.level"] = "read_committed"  # as a roll to preparing leaves it
        log = Path(f"/var/log/{worker_id}.log")
        described = WorkerDescription(f"http://{worker_id}", config=config, log=log, start=("connect", str(config)))
        return WorkerObservation(
            worker=described,
            facts=HostFacts(
                worker_id=worker_id,
                edit=Edit(str(config)),
                digest=file_digest(worker_id, mode),
                properties={**properties, MODE_PROPERTY: str(mode)},
                declared=declared,
                running=running,
                is_running=True,
                started_at=started_at,
                start_token=token(worker_id, started_at),
                runs_as=f"pid {int(started_at)}",
                launch=launch_of(described),
                how_to_start=how_to_start(described),
                log=str(log),
            ),
            mode=WorkerMode(worker_id, verdict, declared, running, observed, (), "as its log says"),
            root=WorkerRoot("4.3.1", "abc", "kafka-1"),
            health=Health("healthy"),
        )

    def _config(self, name: str, tasks: int) -> ConnectorConfigState:
        return ConnectorConfigState(
            name,
            {"name": name},
            config_offset=10,
            target_state="STARTED",
            task_set=TaskSet(tasks, TASK_SET_AT, {number: {} for number in range(tasks)}),
            commit_offset=TASK_SET_AT,
            fencing=TaskCountRecord(tasks, TASK_SET_AT + 1),
        )

    def _member(self, worker_id: str) -> Member:
        if self.state != "Stable":
            # describe_group gives such a member its member id for a name, since the broker tells no address
            return Member(
                self.member_ids[worker_id], "connect", "/127.0.0.1", url="", worker_id=self.member_ids[worker_id]
            )
        connectors, tasks = self.placed[worker_id]
        assignment = Assignment(
            error=0,
            leader=self.member_ids[self.leader],
            leader_url=f"http://{self.leader}/",
            config_offset=MEMBERS_AT,
            connectors=frozenset(connectors),
            tasks=frozenset(tasks),
        )
        return Member(
            self.member_ids[worker_id],
            "connect",
            "/127.0.0.1",
            url=f"http://{worker_id}/",
            worker_id=worker_id,
            config_offset=MEMBERS_AT,
            assignment=replace(assignment, **self.assignments.get(worker_id, {})),
        )

    def _report_placement(self, *connectors: tuple[str, str]) -> None:
        assert self.statuses is not None
        for name, kind in connectors:
            count = self.configs[name].task_count or 0
            tasks = tuple(TaskStatus(n, "RUNNING", self._where((name, n))) for n in range(count))
            on = next(w for w, (placed, _) in self.placed.items() if name in placed)
            self.statuses[name] = ConnectorStatus(name, kind, "RUNNING", on, tasks=tasks)

    def _hand_over(self, worker_id: str) -> Cluster:
        connectors, tasks = self.placed.pop(worker_id)
        if not self.placed:  # the last one has left
            return self
        heir = min(self.placed)
        self.placed[heir] = (self.placed[heir][0] | connectors, self.placed[heir][1] | tasks)
        if self.leader == worker_id:
            self.leader = heir
        assert self.statuses is not None
        self._report_placement(*((name, status.type) for name, status in self.statuses.items()))
        return self

    def _where(self, task: tuple[str, int]) -> str:
        return next(w for w, (_, tasks) in self.placed.items() if task in tasks)


def other_group(*connectors: str, config_offset: int = MEMBERS_AT) -> WorkerGroup:
    """Another Connect group of the Kafka cluster, with the foreign worker."""
    url = f"http://{FOREIGN}/"
    assignment = Assignment(0, "m", url, config_offset, frozenset(connectors), frozenset())
    member = Member("m", "connect", "/127.0.0.1", url, FOREIGN, config_offset, assignment=assignment)
    return WorkerGroup("other", "Stable", "sessioned", members=(member,))


@pytest.fixture
def cluster() -> Cluster:
    """A healthy cluster in ``disabled``."""
    return Cluster()


@pytest.fixture
def cluster_in() -> type[Cluster]:
    """Builds a healthy cluster in another mode."""
    return Cluster


class Gate:
    """w2's gate in a roll from disabled to preparing: w1 is done, w2 was just restarted, w3 is still to come."""

    RESTARTED_AFTER = NOW - 30.0

    def __init__(self, target: Mode = Mode.PREPARING, current: Mode = Mode.DISABLED) -> None:
        self.cluster = Cluster(current)
        self.plan = self.cluster.plan(target)
        self.baseline = Baseline.of(self.cluster.observe())
        self.cluster.roll(W1, target, at=NOW - 120.0).roll(W2, target, at=NOW - 20.0)
        self.cluster.leader = W3
        self.steps = {
            W1: Step(W1, StepStatus.PASSED, NOW - 60.0, restarted_after=NOW - 130.0, replaces=token(W1)),
            W2: Step(W2, StepStatus.RESTARTED, NOW - 20.0, restarted_after=self.RESTARTED_AFTER, replaces=token(W2)),
        }

    def expected(self) -> Expectation:
        return expectation(self.plan, self.steps, self.cluster.observe(), self.baseline, W2)

    def answers(self) -> dict[str, Check]:
        """What each condition says now."""
        return {check.subject: check for check in evaluate(self.expected(), self.cluster.observe())}

    def not_passed(self) -> dict[str, Verdict]:
        return {name: check.verdict for name, check in self.answers().items() if not check.passed}


@pytest.fixture
def gate() -> Gate:
    """See :class:`Gate`."""
    return Gate()


@pytest.fixture
def gate_of() -> type[Gate]:
    """Builds the same gate for a roll between other modes."""
    return Gate
