"""The conditions of the gate (requirement A4): each one function from an observation to a :class:`Check`.

Nothing is decided here; ``gate.py`` asks them all and draws the conclusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import TaskStatus
from airflow_eos_provider.rollout.check import Check, failed, inconclusive, passed
from airflow_eos_provider.rollout.gate.ended import ended_elsewhere
from airflow_eos_provider.rollout.gate.expectation import Expectation
from airflow_eos_provider.rollout.gate.topic_conditions import progress, transactions
from airflow_eos_provider.rollout.observe.observation import Observation

#: A process younger than this that does not answer yet is called starting: Connect's port answers 404 for a while.
STARTING_SECONDS = 60.0

#: Name of the condition that the restarted worker's process runs.
PROCESS = "process"


def process(expectation: Expectation, observation: Observation) -> Check:
    """The worker runs as a new process, which is its own alone and listens on its port, configured as planned."""
    name = PROCESS
    if expectation.worker_id is None:
        return passed(name, "no worker has been restarted yet")
    worker = observation.worker(expectation.worker_id)
    if not worker.is_running and worker.facts.running.alive is None:
        return inconclusive(name, f"{worker.worker_id}: {worker.facts.running.detail}", worker.facts.mode_remedy)
    if not worker.is_running:
        return failed(name, f"{worker.worker_id} does not run", worker.facts.read_its_log, decisive=True)
    if worker.facts.start_token == expectation.replaces:
        return failed(name, f"{worker.worker_id} still runs as the process from before the restart")
    obstacles = [obstacle for obstacle in worker.facts.obstacles_to("restart") if not obstacle.of_next_start]
    if obstacles:
        return failed(name, f"{worker.worker_id}: {obstacles[0].what}", obstacles[0].remedy, decisive=True)
    if expectation.digest is not None and worker.facts.digest != expectation.digest:
        return failed(
            name,
            f"the configuration of {worker.worker_id} was edited after the roll wrote it",
            "find out who edits it, then plan again",
            decisive=True,
        )
    return passed(name, f"{worker.worker_id} runs as {worker.facts.runs_as}, a new process")


def rest(expectation: Expectation, observation: Observation) -> Check:
    """Every expected member's REST API answers, and the herder behind it is healthy."""
    name = "REST"
    for worker_id in sorted(expectation.members):
        worker = observation.worker(worker_id)
        if worker_id in ended_elsewhere(expectation, observation):
            return inconclusive(name, f"{worker_id} has ended, and not by this roll", worker.facts.how_to_start)
        if not worker.is_healthy:
            found = worker.rest_problem or f"health is {worker.health.status if worker.health else 'unknown'}"
            if worker.started_at is not None and observation.at - worker.started_at < STARTING_SECONDS:
                found = f"still starting ({found.partition(', which')[0]})"
            # What another worker does is not the restarted one's fault: pause, do not restore its configuration.
            answer = failed if worker_id == expectation.worker_id else inconclusive
            return answer(name, f"{worker_id}: {found}", worker.facts.read_its_log)
    return passed(name, f"{len(expectation.members)} of {len(expectation.members)} workers healthy")


def group(expectation: Expectation, observation: Observation) -> Check:
    """The group is stable, has exactly the expected members, and they follow one leader without an error."""
    name = "group"
    if observation.group is None:
        return inconclusive(name, observation.group_problem or "not readable", "make the broker answer")
    unknown = set(observation.members) - set(expectation.members)
    if unknown:
        return inconclusive(
            name,
            f"unexpected member {', '.join(sorted(unknown))}",
            "stop it, or add it to the cluster file and plan again",
            decisive=True,
        )
    if not observation.group.is_stable:
        return failed(name, f"state {observation.group.state}, {len(observation.group.members)} members")
    missing = set(expectation.members) - set(observation.members)
    if missing:
        answer = failed if expectation.worker_id in missing else inconclusive
        return answer(name, f"missing {', '.join(sorted(missing))}", "read the log of the missing worker")
    if observation.leader_id is None:
        return failed(name, "the members do not agree on a leader")
    errors = {m.assignment.error for m in observation.group.members if m.assignment} - {0}
    if errors:
        return failed(name, f"assignment error {errors.pop()} (1 means the leader lags behind in the config topic)")
    return passed(name, f"stable, {len(observation.members)} members, led by {observation.leader_id}")


def config_offsets(expectation: Expectation, observation: Observation) -> Check:
    """All members work on one config offset, not behind the last record that causes a rebalance."""
    name = "config offset"
    if observation.group is None or observation.config is None:
        problem = observation.group_problem or observation.config_problem or "not readable"
        return inconclusive(name, problem, "make the config topic readable")
    assignments = [member.assignment for member in observation.group.members]
    if not assignments or any(assignment is None for assignment in assignments):
        return failed(name, "not every member has an assignment")
    offsets = {assignment.config_offset for assignment in assignments if assignment}
    if len(offsets) > 1:
        return failed(name, f"the members are at different offsets: {sorted(offsets)}")
    (offset,) = offsets
    # A member's offset is the one after the last record it has read (KafkaConfigBackingStore).
    # One that has read nothing, since nothing is there, says -1; then no record can be to come either.
    if 0 <= observation.config.last_rebalance_offset >= offset:
        return failed(
            name,
            f"the members are at {offset} and "
            f"have not read the record at {observation.config.last_rebalance_offset} yet",
        )
    return passed(name, f"all at {offset}")


def rebalance_delay(expectation: Expectation, observation: Observation) -> Check:
    """No scheduled rebalance delay runs and nothing waits to be taken back."""
    name = "rebalance delay"
    if observation.group is None:
        return inconclusive(name, observation.group_problem or "not readable")
    assignments = [member.assignment for member in observation.group.members if member.assignment]
    delay_ms = max((assignment.delay_ms for assignment in assignments), default=0)
    if delay_ms:
        return failed(
            name,
            "the leader keeps the tasks of a lost worker unassigned until "
            f"{delay_ms / 1000:.0f} s after its last rebalance",
        )
    if any(assignment.revoked_connectors or assignment.revoked_tasks for assignment in assignments):
        return failed(name, "tasks are being revoked: another rebalance follows")
    return passed(name, "none runs, nothing revoked")


def placement(expectation: Expectation, observation: Observation) -> Check:
    """Every connector and every task of the config topic is placed exactly once, on a member of the group."""
    name = "placement"
    if observation.config is None:
        return inconclusive(name, observation.config_problem or "config topic not readable")
    where = observation.group.placement if observation.group else None
    if where is None:
        return inconclusive(name, observation.group_problem or "not reported while the group is not stable")
    connectors = [c for placed in where.values() for c in placed.connectors]
    tasks = [t for placed in where.values() for t in placed.tasks]
    wanted_tasks = set()
    for connector in observation.config.connectors.values():
        if connectors.count(connector.name) != 1:
            return failed(name, f"connector {connector.name} is placed {connectors.count(connector.name)} times")
        if connector.inconsistent:
            return inconclusive(name, f"the task configs of {connector.name} are not complete in the config topic")
        wanted_tasks |= {(connector.name, number) for number in range(connector.task_count or 0)}
    for task in sorted(wanted_tasks):
        if tasks.count(task) != 1:
            return failed(name, f"task {task[0]}-{task[1]} is placed {tasks.count(task)} times")
    surplus = {f"connector {name}" for name in connectors if name not in observation.config.connectors}
    surplus |= {f"task {connector}-{number}" for connector, number in set(tasks) - wanted_tasks}
    if surplus:
        return failed(name, f"placed, but no longer in the config topic: {', '.join(sorted(surplus)[:5])}")
    return passed(name, f"{len(connectors)} connectors and {len(tasks)} tasks, each once")


def states(expectation: Expectation, observation: Observation) -> Check:
    """What ran before the roll runs now, where the group has placed it; what was broken before is only named.

    Trouble of what was not there before the roll, or was given another configuration since, may be the roll's or its
    owner's doing: that pauses.
    """
    name = "states"
    if observation.statuses is None:
        return inconclusive(name, observation.statuses_problem or "not readable")
    troubles = [
        trouble
        for connector in sorted(observation.statuses)
        for trouble in _troubles(connector, expectation, observation)
    ]
    troubles += [
        _Trouble(task.rpartition("/")[0], f"task {task} ran before the roll and has no status now", ran_before=True)
        for task, state in expectation.baseline.tasks.items()
        if _is_lost(task, state, observation)
    ]
    reconfigured = {t.connector for t in troubles if expectation.baseline.was_reconfigured(t.connector, observation)}
    worse = [trouble for trouble in troubles if trouble.ran_before and trouble.connector not in reconfigured]
    if worse:
        return failed(name, worse[0].what)
    if troubles:
        first = troubles[0]
        why = "; its configuration was changed after the roll began" if first.connector in reconfigured else ""
        return inconclusive(name, f"{first.what}{why}", "repair, pause or delete it, or wait until it runs")
    tasks = [task for status in observation.statuses.values() for task in status.tasks]
    running = sum(task.state == "RUNNING" for task in tasks)
    broken = sum(task.state == "FAILED" for task in tasks)
    also = f"; {broken} were FAILED before the roll and still are" if broken else ""
    return passed(name, f"{running} tasks run{also}")


def mode(expectation: Expectation, observation: Observation) -> Check:
    """Every worker is proven to run in the mode that it should have by now."""
    name = "mode"
    # The restarted worker comes first: what is wrong with it outweighs what is not known of others.
    for worker_id, wanted in sorted(
        expectation.modes.items(), key=lambda item: (item[0] != expectation.worker_id, item)
    ):
        seen = observation.worker(worker_id).mode
        if seen.verdict.mode is None:
            return inconclusive(name, f"{worker_id}: {seen.reason}", "the layers of evidence are shown by 'eos status'")
        if seen.verdict.mode is not wanted:
            # Another worker's mode was not changed by this restart: pause, do not restore this one's.
            answer = failed if worker_id == expectation.worker_id else inconclusive
            return answer(
                name,
                f"{worker_id} runs {seen.verdict}, expected {wanted}: {seen.reason}",
                "see whether something else sets the property: environment, start command, a config provider",
                decisive=observation.worker(worker_id).is_healthy,
            )
    return passed(name, ", ".join(f"{w} {m}" for w, m in sorted(expectation.modes.items())))


def fencing_record(expectation: Expectation, observation: Observation) -> Check:
    """Each source connector with a task on an enabled worker has a task count record after its last task set.

    Before such a task starts, the leader fences the tasks of the last record and writes a new one (KIP-618).
    """
    name = "fencing record"
    enabled = {w.worker_id for w in observation.workers if w.mode.verdict.mode is Mode.ENABLED}
    if not enabled:
        return passed(name, "not due: no worker is enabled")
    if observation.config is None or observation.statuses is None:
        return inconclusive(name, observation.config_problem or observation.statuses_problem or "not readable")
    due = sorted(
        connector
        for connector, status in observation.statuses.items()
        if status.type == "source"
        and any(task.worker_id in enabled and task.state == "RUNNING" for task in status.tasks)
    )
    for connector in due:
        state = observation.config.connectors.get(connector)
        if state is None or state.task_count_record is None or state.pending_fencing:
            reconfigured = expectation.baseline.was_reconfigured(connector, observation)
            answer = inconclusive if reconfigured else failed
            return answer(
                name,
                f"{connector} runs on an enabled worker, but its task count record does not follow its task set",
                "look for a failed zombie fencing in the leader's log; usually an ACL is missing",
            )
    return passed(name, f"present for {', '.join(due)}" if due else "not due: no source task runs on an enabled worker")


Condition = Callable[[Expectation, Observation], Check]

CONDITIONS: tuple[Condition, ...] = (
    process,
    rest,
    group,
    rebalance_delay,
    config_offsets,
    placement,
    states,
    mode,
    fencing_record,
    transactions,
    progress,
)

#: What asks a worker's host: its process, its configuration, and through them its mode.
ASKS_THE_HOSTS: tuple[Condition, ...] = (process, mode, fencing_record)

#: What group, REST and topics show, from wherever they can be reached.
SEEN_REMOTELY: tuple[Condition, ...] = tuple(c for c in CONDITIONS if c not in ASKS_THE_HOSTS)


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Something that does not run as it should.

    :param ran_before: it was there before the roll, so the roll has made it worse.
    """

    connector: str
    what: str
    ran_before: bool


def _troubles(connector: str, expectation: Expectation, observation: Observation) -> Iterator[_Trouble]:
    """What is wrong with this connector and its tasks."""
    status = (observation.statuses or {})[connector]
    if not observation.should_run(connector):  # deleted, paused or stopped on purpose
        return
    before = expectation.baseline.connectors.get(connector)
    if before == "RUNNING" and status.state != "RUNNING":
        yield _Trouble(
            connector, f"connector {connector} is {status.state}, it was RUNNING before the roll", ran_before=True
        )
    elif status.state == "RUNNING":
        placed_on = observation.placed_on(connector)
        if placed_on is not None and placed_on != [status.worker_id]:
            what = _reports_from_elsewhere(f"connector {connector}", status.worker_id, placed_on)
            yield _Trouble(connector, what, ran_before=before is not None)
    for task in status.tasks:
        yield from _task_troubles(connector, task, expectation, observation)


def _task_troubles(
    connector: str, task: TaskStatus, expectation: Expectation, observation: Observation
) -> Iterator[_Trouble]:
    before = expectation.baseline.tasks.get(f"{connector}/{task.number}")
    if task.state == "RUNNING":
        placed_on = observation.placed_on(connector, task.number)
        if placed_on is not None and placed_on != [task.worker_id]:
            what = _reports_from_elsewhere(f"task {connector}-{task.number}", task.worker_id, placed_on)
            yield _Trouble(connector, what, ran_before=before is not None)
    elif before != "FAILED" or task.state != "FAILED":
        what = f"task {connector}-{task.number} is {task.state}, it was {before or 'not there'} before the roll"
        if task.state == "FAILED":
            what += f": {observation.failure_of(connector, task)}"
        yield _Trouble(connector, what, ran_before=before is not None)


def _reports_from_elsewhere(what: str, worker_id: str, placed_on: list[str]) -> str:
    """A status outlives its worker: RUNNING counts only from the one member that the group has placed it on."""
    return f"{what} reports from {worker_id}, but is placed on {' and '.join(placed_on) or 'no member'}"


def _is_lost(task: str, state: str, observation: Observation) -> bool:
    """A task that ran before, still belongs to its connector's task set, and has no status at all."""
    connector, _, number = task.rpartition("/")
    if state != "RUNNING" or observation.config is None or not observation.task_should_run(connector, int(number)):
        return False
    status = (observation.statuses or {}).get(connector)
    return status is None or int(number) not in {t.number for t in status.tasks}
