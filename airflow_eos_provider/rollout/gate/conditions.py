"""The conditions of the gate (requirement A4): each one function from an observation to a :class:`Check`.

Nothing is decided here; ``gate.py`` asks them all and draws the conclusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import first_few
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.rollout.answer import Check, fails, holds, named, unknown
from airflow_eos_provider.rollout.gate.expectation import Expectation, ended_elsewhere
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.reported_states import reports

#: Name of the condition that the restarted worker's process runs.
PROCESS = "process"

#: A broker looks for transactions to abort every ten seconds (``transaction.abort.timed.out.transaction.cleanup
#: .interval.ms``), and its clock may be off by some more.
ABORT_GRACE_SECONDS = 15.0

#: A partition held back for so long by a transaction that no coordinator knows is called hanging.
HANGING_SECONDS = 30.0

#: A source that moved steadily until so long before a restart has to move again after it.
STEADY_SECONDS = 30.0


@named(PROCESS)
def process(expectation: Expectation, observation: Observation) -> Check:
    """The worker runs as a new process, which is its own alone and listens on its port, configured as planned."""
    if expectation.worker_id is None:
        return holds("no worker has been restarted yet")
    worker = observation.worker(expectation.worker_id)
    if not worker.is_running and worker.facts.running.alive is None:
        return unknown(f"{worker.worker_id}: {worker.facts.running.detail}", worker.facts.mode_remedy)
    if not worker.is_running:
        return fails(f"{worker.worker_id} does not run", worker.facts.read_its_log, decisive=True)
    if worker.facts.start_token == expectation.replaces:
        return fails(f"{worker.worker_id} still runs as the process from before the restart")
    obstacles = [obstacle for obstacle in worker.facts.obstacles_to("restart") if not obstacle.of_next_start]
    if obstacles:
        return fails(f"{worker.worker_id}: {obstacles[0].what}", obstacles[0].remedy, decisive=True)
    if expectation.digest is not None and worker.facts.digest != expectation.digest:
        return fails(
            f"the configuration of {worker.worker_id} was edited after the roll wrote it",
            "find out who edits it, then plan again",
            decisive=True,
        )
    return holds(f"{worker.worker_id} runs as {worker.facts.runs_as}, a new process")


@named("REST")
def rest(expectation: Expectation, observation: Observation) -> Check:
    """Every expected member's REST API answers, and the herder behind it is healthy."""
    for worker_id in sorted(expectation.members):
        worker = observation.worker(worker_id)
        if worker_id in ended_elsewhere(expectation, observation):
            return unknown(f"{worker_id} has ended, and not by this roll", worker.facts.how_to_start)
        if not worker.is_healthy:
            found = worker.ailment
            if worker.is_young(observation.at):
                found = f"still starting ({found.partition(', which')[0]})"
            # What another worker does is not the restarted one's fault: pause, do not restore its configuration.
            answer = fails if worker_id == expectation.worker_id else unknown
            return answer(f"{worker_id}: {found}", worker.facts.read_its_log)
    return holds(f"{len(expectation.members)} of {len(expectation.members)} workers healthy")


@named("group")
def group(expectation: Expectation, observation: Observation) -> Check:
    """The group is stable, has exactly the expected members, and they follow one leader without an error."""
    if observation.group is None:
        return unknown(observation.group_problem or "not readable", "make the broker answer")
    strangers = set(observation.members) - set(expectation.members)
    if strangers:
        return unknown(
            f"unexpected member {', '.join(sorted(strangers))}",
            "stop it, or add it to the cluster file and plan again",
            decisive=True,
        )
    if not observation.group.is_stable:
        return fails(f"state {observation.group.state}, {len(observation.group.members)} members")
    missing = set(expectation.members) - set(observation.members)
    if missing:
        answer = fails if expectation.worker_id in missing else unknown
        return answer(f"missing {', '.join(sorted(missing))}", "read the log of the missing worker")
    if observation.leader_id is None:
        return fails("the members do not agree on a leader")
    errors = {m.assignment.error for m in observation.group.members if m.assignment} - {0}
    if errors:
        return fails(f"assignment error {errors.pop()} (1 means the leader lags behind in the config topic)")
    return holds(f"stable, {len(observation.members)} members, led by {observation.leader_id}")


@named("config offset")
def config_offsets(expectation: Expectation, observation: Observation) -> Check:
    """All members work on one config offset, not behind the last record that causes a rebalance."""
    if observation.group is None or observation.config is None:
        problem = observation.group_problem or observation.config_problem or "not readable"
        return unknown(problem, "make the config topic readable")
    assignments = [member.assignment for member in observation.group.members]
    if not assignments or any(assignment is None for assignment in assignments):
        return fails("not every member has an assignment")
    offsets = {assignment.config_offset for assignment in assignments if assignment}
    if len(offsets) > 1:
        return fails(f"the members are at different offsets: {sorted(offsets)}")
    (offset,) = offsets
    # A member's offset is the one after the last record it has read (KafkaConfigBackingStore).
    # One that has read nothing, since nothing is there, says -1; then no record can be to come either.
    if 0 <= observation.config.last_rebalance_offset >= offset:
        return fails(
            f"the members are at {offset} and "
            f"have not read the record at {observation.config.last_rebalance_offset} yet"
        )
    return holds(f"all at {offset}")


@named("rebalance delay")
def rebalance_delay(expectation: Expectation, observation: Observation) -> Check:
    """No scheduled rebalance delay runs and nothing waits to be taken back."""
    if observation.group is None:
        return unknown(observation.group_problem or "not readable")
    if delay_ms := observation.group.delay_ms:
        return fails(
            "the leader keeps the tasks of a lost worker unassigned until "
            f"{delay_ms / 1000:.0f} s after its last rebalance"
        )
    assignments = [member.assignment for member in observation.group.members if member.assignment]
    if any(assignment.revoked_connectors or assignment.revoked_tasks for assignment in assignments):
        return fails("tasks are being revoked: another rebalance follows")
    return holds("none runs, nothing revoked")


@named("placement")
def placement(expectation: Expectation, observation: Observation) -> Check:
    """Every connector and every task of the config topic is placed exactly once, on a member of the group."""
    if observation.config is None:
        return unknown(observation.config_problem or "config topic not readable")
    where = observation.group.placement if observation.group else None
    if where is None:
        return unknown(observation.group_problem or "not reported while the group is not stable")
    connectors = [c for placed in where.values() for c in placed.connectors]
    tasks = [t for placed in where.values() for t in placed.tasks]
    wanted_tasks = set()
    for connector in observation.config.connectors.values():
        if connectors.count(connector.name) != 1:
            return fails(f"connector {connector.name} is placed {connectors.count(connector.name)} times")
        if connector.inconsistent:
            return unknown(f"the task configs of {connector.name} are not complete in the config topic")
        wanted_tasks |= {(connector.name, number) for number in range(connector.task_count or 0)}
    for task in sorted(wanted_tasks):
        if tasks.count(task) != 1:
            return fails(f"task {task[0]}-{task[1]} is placed {tasks.count(task)} times")
    surplus = {f"connector {name}" for name in connectors if name not in observation.config.connectors}
    surplus |= {f"task {connector}-{number}" for connector, number in set(tasks) - wanted_tasks}
    if surplus:
        return fails(f"placed, but no longer in the config topic: {first_few(sorted(surplus), 5)}")
    return holds(f"{len(connectors)} connectors and {len(tasks)} tasks, each once")


@named("states")
def states(expectation: Expectation, observation: Observation) -> Check:
    """What ran before the roll runs now, where the group has placed it; what was broken before is only named.

    Trouble of what was not there before the roll, or was given another configuration since, may be the roll's or its
    owner's doing: that pauses.
    """
    if observation.statuses is None:
        return unknown(observation.statuses_problem or "not readable")
    troubles = list(_troubles(expectation, observation))
    troubles += [
        _Trouble(task.rpartition("/")[0], f"task {task} ran before the roll and has no status now", ran_before=True)
        for task, state in expectation.baseline.tasks.items()
        if _is_lost(task, state, observation)
    ]
    reconfigured = {t.connector for t in troubles if expectation.baseline.was_reconfigured(t.connector, observation)}
    worse = [trouble for trouble in troubles if trouble.ran_before and trouble.connector not in reconfigured]
    if worse:
        return fails(worse[0].what)
    if troubles:
        first = troubles[0]
        why = "; its configuration was changed after the roll began" if first.connector in reconfigured else ""
        return unknown(f"{first.what}{why}", "repair, pause or delete it, or wait until it runs")
    tasks = [task for status in observation.statuses.values() for task in status.tasks]
    running = sum(task.state == "RUNNING" for task in tasks)
    broken = sum(task.state == "FAILED" for task in tasks)
    also = f"; {broken} were FAILED before the roll and still are" if broken else ""
    return holds(f"{running} tasks run{also}")


@named("mode")
def mode(expectation: Expectation, observation: Observation) -> Check:
    """Every worker is proven to run in the mode that it should have by now."""
    # The restarted worker comes first: what is wrong with it outweighs what is not known of others.
    for worker_id, wanted in sorted(
        expectation.modes.items(), key=lambda item: (item[0] != expectation.worker_id, item)
    ):
        seen = observation.worker(worker_id).mode
        if seen.verdict.mode is None:
            return unknown(f"{worker_id}: {seen.reason}", "the layers of evidence are shown by 'eos status'")
        if seen.verdict.mode is not wanted:
            # Another worker's mode was not changed by this restart: pause, do not restore this one's.
            answer = fails if worker_id == expectation.worker_id else unknown
            return answer(
                f"{worker_id} runs {seen.verdict}, expected {wanted}: {seen.reason}",
                "see whether something else sets the property: environment, start command, a config provider",
                decisive=observation.worker(worker_id).is_healthy,
            )
    return holds(", ".join(f"{w} {m}" for w, m in sorted(expectation.modes.items())))


@named("fencing record")
def fencing_record(expectation: Expectation, observation: Observation) -> Check:
    """Each source connector with a task on an enabled worker has a task count record after its last task set.

    Before such a task starts, the leader fences the tasks of the last record and writes a new one (KIP-618).
    """
    enabled = {w.worker_id for w in observation.workers if w.mode.verdict.mode is Mode.ENABLED}
    if not enabled:
        return holds("not due: no worker is enabled")
    if observation.config is None or observation.statuses is None:
        return unknown(observation.config_problem or observation.statuses_problem or "not readable")
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
            answer = unknown if reconfigured else fails
            return answer(
                f"{connector} runs on an enabled worker, but its task count record does not follow its task set",
                "look for a failed zombie fencing in the leader's log; usually an ACL is missing",
            )
    return holds(f"present for {', '.join(due)}" if due else "not due: no source task runs on an enabled worker")


@named("transactions")
def transactions(expectation: Expectation, observation: Observation) -> Check:
    """No transaction on the topics that the group writes is open past its timeout, and none is hanging.

    Neither is the restarted worker's doing (its transactions end by their coordinator), so this never restores.
    """
    logs = observation.logs
    if logs is None:
        return unknown(observation.logs_problem or "not readable", "make the topics and transactions readable")
    overdue = [t for t in logs.open_transactions if overdue_seconds(t, observation.at) > ABORT_GRACE_SECONDS]
    if overdue:
        remedy = "its coordinator does not abort it: read the brokers' logs"
        if overdue[0].state is not TransactionState.ONGOING:
            remedy = "its end is decided, but a partition does not take its marker: see that all brokers run"
        return unknown(
            f"the transaction of {overdue[0].transactional_id} is open ({overdue[0].state}) "
            f"{overdue_seconds(overdue[0], observation.at):.0f} s past its timeout",
            remedy,
        )
    listed = {place for transaction in logs.open_transactions for place in transaction.partitions}
    for held in logs.held:
        if observation.at - held.since > HANGING_SECONDS and (held.topic, held.partition) not in listed:
            return unknown(
                f"{held.topic}-{held.partition} is held at {held.stable} for {observation.at - held.since:.0f} s "
                "by a transaction that no coordinator knows",
                "a hanging transaction: 'eos transactions list --hanging' finds it, and says how to end it",
            )
    if logs.unreadable:
        return unknown(f"{first_few(sorted(logs.unreadable))} cannot be read", "grant Describe on these topics")
    open_ones = f"{len(logs.open_transactions)} open within their timeouts" if logs.open_transactions else "none open"
    return holds(f"{open_ones} on {logs.partition_count} partitions")


@named("progress")
def progress(expectation: Expectation, observation: Observation) -> Check:
    """A source that moved steadily before the restart has moved since. One that was idle before owes nothing.

    A source that has run dry looks like one that is stuck. So this is inconclusive, and what moved is
    remembered by the observer alone: a roll that is taken up begins to watch progress again.
    """
    if expectation.worker_id is None:
        return holds("no worker has been restarted yet")
    if observation.logs is None:
        return unknown(observation.logs_problem or "not readable", "make the topics readable")
    restarted = expectation.restarted_after
    owing = {
        connector: movement
        for connector, movement in observation.logs.movements.items()
        if movement.steady_at is not None
        and movement.steady_at >= restarted - STEADY_SECONDS
        and observation.should_run(connector)
    }
    standing = sorted(c for c, movement in owing.items() if movement.moved_since < restarted)
    if standing:
        return unknown(
            f"{', '.join(standing)} moved before the restart and {'has' if len(standing) == 1 else 'have'} not since",
            "see whether the source still has something to give; if it has not, apply the same plan again",
        )
    return holds(f"{', '.join(sorted(owing))} moved on" if owing else "no source moved steadily before")


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


def _troubles(expectation: Expectation, observation: Observation) -> Iterator[_Trouble]:
    """What is wrong with connectors and tasks by the states that are reported of them."""
    for report in reports(observation):
        connector = report.connector
        if not observation.should_run(connector):  # deleted, paused or stopped on purpose
            continue
        before = expectation.baseline.state(connector, report.task)
        if report.state == "RUNNING":
            # A status outlives its worker: RUNNING counts only from the one member that the group has placed it on.
            if report.placed_on not in (None, (report.worker_id,)):
                on = " and ".join(report.placed_on or ()) or "no member"
                what = f"{report} reports from {report.worker_id}, but is placed on {on}"
                yield _Trouble(connector, what, ran_before=before is not None)
        elif before == "RUNNING" or (report.task is not None and (before, report.state) != ("FAILED", "FAILED")):
            what = f"{report} is {report.state}, it was {before or 'not there'} before the roll"
            if report.task is not None and report.state == "FAILED":
                what += f": {observation.failure_of(connector, report.task)}"
            yield _Trouble(connector, what, ran_before=before is not None)


def _is_lost(task: str, state: str, observation: Observation) -> bool:
    """A task that ran before, still belongs to its connector's task set, and has no status at all."""
    connector, _, number = task.rpartition("/")
    if state != "RUNNING" or observation.config is None or not observation.should_run(connector, int(number)):
        return False
    status = (observation.statuses or {}).get(connector)
    return status is None or int(number) not in {t.number for t in status.tasks}


def overdue_seconds(transaction: TransactionDescription, now: float) -> float:
    """How long a transaction is open past its timeout; negative while it is within, or if none is open.

    One whose end is decided (PrepareCommit, PrepareAbort) is open until its markers are in every partition; those take
    milliseconds, so one that is still there after its timeout waits for a broker that does not answer.
    """
    if transaction.started_at_ms is None:
        return float("-inf")
    return now - (transaction.started_at_ms + transaction.timeout_ms) / 1000
