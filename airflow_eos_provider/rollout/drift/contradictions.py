"""Problems in one observation: contradictions and unfinished work, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_eos_provider.connect.cluster.managed import managed_workers
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.task_failures import Failure
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState
from airflow_eos_provider.connect.topics.internal_topics import OTHER_GROUP_REMEDY, other_groups
from airflow_eos_provider.data_text import counted, duration
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.rollout.answer import Check, failed, inconclusive
from airflow_eos_provider.rollout.hosts.host import CLOCK_TICK_SECONDS
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observe.reported_states import (
    SLOW_LOOK_SECONDS,
    Doubt,
    doubtful,
    reports,
    restart_command,
)
from airflow_eos_provider.rollout.observe.roster import foreign_reports, last_words, out_of_the_group, stranger
from airflow_eos_provider.rollout.plan.worker_edits import not_ready_for_enabled, uncommitted_readers

#: A connector gets its tasks within seconds; while it does not answer, Connect asks it again and again.
TASKLESS_SECONDS = 120.0


def findings(observation: Observation) -> tuple[Check, ...]:
    """Everything worth a second look, the gravest first."""
    return tuple(found for look in _LOOKS for found in look(observation))


def _unreadable(observation: Observation) -> Iterator[Check]:
    config_is_known = len(observation.url_only) < len(observation.workers)  # else one finding says so of all
    needed = (observation.config, observation.statuses, observation.transactions)
    problems = (
        observation.group_problem,
        observation.config_problem if config_is_known else None,
        observation.statuses_problem,
        observation.transactions_problem,
        observation.logs_problem if None not in needed else None,  # else one of them says it already
    )
    for problem in filter(None, problems):
        yield inconclusive(observation.group_id, problem, "make it readable: until then its state is unknown")
    if observation.logs is not None and observation.logs.unreadable:
        names = ", ".join(sorted(observation.logs.unreadable))
        found = f"open transactions in {names} cannot be read"
        yield inconclusive(names, found, "grant Describe on these topics: 'eos acl check'")


def _one_moment(observation: Observation) -> Iterator[Check]:
    if observation.took_seconds > SLOW_LOOK_SECONDS:
        yield inconclusive(
            observation.group_id,
            f"this observation took {observation.took_seconds:.0f} s: its parts are from different moments",
            "run it again; this list also names a slow worker or broker",
        )


def _url_only(observation: Observation) -> Iterator[Check]:
    """What cannot be known of workers of which only the address is described, as one finding for all of them."""
    workers = observation.url_only
    if not workers:
        return
    names = ", ".join(worker.worker_id for worker in workers)
    lacking = "configuration, process, log and mode"
    if observation.config_topic is None:
        lacking += ", and with them the config topic, pending fencing and the rebalance delay"
    remedy = (
        "'eos discover' finds a worker's host, service, config and log; without them the group can be watched, "
        "but not rolled"
    )
    if managed := managed_workers(worker.worker for worker in workers):
        service = next(iter(managed.values()))
        remedy = f"{', '.join(managed)} of {service.name} can be watched, not rolled: {service.instead}"
    yield inconclusive(names, f"the cluster file has only the URL of {names}, so these are unknown: {lacking}", remedy)


def _other_groups(observation: Observation) -> Iterator[Check]:
    said = {worker.worker_id: worker.facts.properties for worker in observation.workers}
    if problem := other_groups(observation.group_id, said):
        yield failed(observation.group_id, problem, OTHER_GROUP_REMEDY)


def _roster(observation: Observation) -> Iterator[Check]:
    for member in observation.unknown_members:
        yield stranger(observation, member)
    for worker in observation.workers:
        if (state := out_of_the_group(observation, worker)) is not None:
            yield failed(worker.worker_id, *state)
        if worker.facts.problem and worker not in observation.url_only:
            remedy = worker.facts.problem_remedy or "correct the cluster file"
            yield failed(worker.worker_id, f"{worker.worker_id}: {worker.facts.problem}", remedy)
        if worker.rest_problem and worker not in observation.stopped and worker not in observation.lost:
            yield _silent(worker, observation)


def _silent(worker: WorkerObservation, observation: Observation) -> Check:
    worker_id, problem, facts = worker.worker_id, worker.rest_problem, worker.facts
    said = last_words(observation, worker) if worker.root is None else ""
    if worker.root is None and facts.obstacles_to("answer"):
        obstacle = facts.obstacles_to("answer")[0]
        return failed(worker_id, f"{worker_id}: {obstacle.what}, {problem}{said}", obstacle.remedy)
    if worker.is_young(observation.at):
        remedy = f"check again; if it stays so, {facts.read_its_log}"
        return failed(worker_id, f"{worker_id} is starting: {problem}{said}", remedy)
    return failed(worker_id, f"{worker_id}: {problem}{said}", worker.silence_remedy)


def _internal_topics(observation: Observation) -> Iterator[Check]:
    """Internal topics that are not proven to be the same for all workers."""
    for topic in observation.topics:
        if topic.problem:
            answer = inconclusive if topic.unknown and not topic.differing else failed
            yield answer(topic.setting, topic.problem, topic.remedy)


def _modes(observation: Observation) -> Iterator[Check]:
    running = observation.not_stopped
    for worker in running:
        for text in worker.mode.disagreements:
            yield failed(worker.worker_id, f"{worker.worker_id}: {text}")
    for worker in running:
        if worker.mode.verdict.mode is None and worker not in (*observation.lost, *observation.url_only):
            found = f"the mode of {worker.worker_id} is unknown: {worker.mode.reason}"
            yield inconclusive(worker.worker_id, found, worker.mode_remedy)
    modes = {worker.mode.verdict.mode for worker in running} - {None}
    if {Mode.DISABLED, Mode.ENABLED} <= modes:
        yield failed(
            observation.group_id,
            "disabled and enabled workers share the group: a disabled leader cannot be fenced, so there is no "
            "exactly-once",
            "'eos plan --to preparing', then '--to enabled'; or downgrade: 'eos plan --to disabled'",
        )
    elif len(modes) > 1:
        names = ", ".join(sorted(str(mode) for mode in modes))
        found = f"the workers run in different modes: {names}"
        yield failed(observation.group_id, found, "'eos plan' shows the step that is left")
    uncommitted = ", ".join(uncommitted_readers(observation))
    if Mode.ENABLED in modes and uncommitted:
        yield failed(
            uncommitted,
            f"some workers are enabled, but {uncommitted} would read source offsets uncommitted: a task "
            "that one of them takes over may skip the records of a transaction that was never committed",
            "a roll to preparing or disabled sets isolation.level=read_committed with the mode",
        )
    elif not_ready_for_enabled(observation):
        yield failed(
            uncommitted,
            f"{uncommitted} would read source offsets uncommitted as soon as one worker is enabled",
            "'eos plan --to preparing' sets isolation.level=read_committed; a roll to enabled is refused before",
        )


def _edited_files(observation: Observation) -> Iterator[Check]:
    for worker in observation.workers:
        declared, started_at = worker.facts.declared, worker.started_at
        if started_at is None:
            continue
        latest = started_at + CLOCK_TICK_SECONDS
        if (declared.modified_at or 0.0) > latest:
            what = "was changed after the worker's start: the worker runs with the former content"
        elif (declared.changed_at or 0.0) > latest:
            what = (
                "is dated before the worker's start, but was replaced, or given other permissions, after it: the "
                "worker may run with the former content"
            )
        else:
            continue
        remedy = "restart the worker if the change is intended; otherwise restore the former content before a restart"
        yield failed(worker.worker_id, f"the {worker.facts.edit} of {worker.worker_id} {what}", remedy)


def _group(observation: Observation) -> Iterator[Check]:
    group = observation.group
    if group is None:
        return
    if not group.is_stable:
        yield failed(group.group_id, f"the group is in state {group.state}", "a rebalance runs; check again")
    if group.delay_ms:
        yield failed(
            group.group_id,
            f"a rebalance delay runs ({group.delay_ms / 1000:.0f} s at the last rebalance): tasks of a lost worker "
            "are unassigned until it ends",
            "wait, or bring that worker back",
        )


def _connectors(observation: Observation) -> Iterator[Check]:
    for name, status in sorted((observation.statuses or {}).items()):
        if status.state == "FAILED":
            yield failed(name, f"connector {name} has FAILED", f"GET /connectors/{name}/status has the trace")
        yield from _failed_tasks(name, status, observation)
    connectors = observation.config.connectors if observation.config else {}
    for state in connectors.values():
        if (taskless := _without_tasks(state, observation)) is not None:
            yield failed(state.name, *taskless)
    enabled = any(worker.mode.verdict.mode is Mode.ENABLED for worker in observation.workers)
    for name, state in sorted(connectors.items()):
        status_of = (observation.statuses or {}).get(name)
        if enabled and state.pending_fencing and state.config and status_of and status_of.type == "source":
            found = f"a fencing round for {name} is pending"
            yield failed(name, found, "it is due when a task starts on an enabled worker")


def _without_tasks(state: ConnectorConfigState, observation: Observation) -> tuple[str, str] | None:
    """Why a connector that should run still has no task after :data:`TASKLESS_SECONDS`, and what to do."""
    name = state.name
    again = f"restart it: {restart_command(observation, name)}"
    if state.inconsistent:
        return (
            f"the task configurations of connector {name} in the config topic are incomplete: Connect starts none "
            "of its tasks",
            f"{again}; if that writes no new ones, send its configuration again (PUT /connectors/{name}/config)",
        )
    seconds = observation.at - state.changed_at_ms / 1000
    if not observation.should_run(name) or observation.statuses is None or seconds < TASKLESS_SECONDS:
        return None
    since = "since it was last changed" + (f", {duration(seconds)} ago" if state.changed_at_ms else "")
    status = observation.statuses.get(name)
    if status is None:
        return f"connector {name} has reported no state {since}", again
    if status.state != "RUNNING" or status.tasks:
        return None
    if state.commit_offset is None or state.commit_offset < state.config_offset:
        what, remedy = f"Connect has got no task configurations from it {since}", f"Connect keeps asking; {again}"
    elif not state.task_count:
        what, remedy = f"it has requested none {since}", "check that its source has data to read"
    else:
        what, remedy = f"{counted(state.task_count, 'task')} should have started {since}", again
    log = next((w.facts.read_its_log for w in observation.workers if w.worker_id == status.worker_id), "read its log")
    return f"connector {name} is RUNNING and has no task: {what}", f"{log}; {remedy}"


def _failed_tasks(name: str, status: ConnectorStatus, observation: Observation) -> Iterator[Check]:
    """One finding per reason: forty tasks that fail alike are one thing to correct."""
    by_reason: dict[str, tuple[list[str], Failure]] = {}
    for task in status.tasks:
        if task.state == "FAILED":
            failure = observation.failure_of(name, task.number)
            by_reason.setdefault(failure.kind, ([], failure))[0].append(str(task.number))
    for numbers, failure in by_reason.values():
        tasks = f"task{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        yield failed(name, f"connector {name} has FAILED {tasks}: {failure}", failure.remedy)


def _reported_elsewhere(observation: Observation) -> Iterator[Check]:
    for doubt in (Doubt.UNASSIGNED, Doubt.ELSEWHERE):
        for report in doubtful(observation, doubt):
            on = " and ".join(report.placed_on or ()) or "no worker"
            what = f"{report} is placed on {on}, but reported {report.state} by {report.worker_id}"
            if doubt is Doubt.UNASSIGNED:
                what = f"{report} is UNASSIGNED, though the group has placed it on {on}"
            remedy = f"check again; if it stays so, restart it: {restart_command(observation, report.connector)}"
            yield failed(report.connector, what, remedy)
    if observation.group is None or not observation.group.is_stable or observation.group.delay_ms:
        return
    for report in reports(observation):
        if report.state == "UNASSIGNED" and report.placed_on == () and observation.should_run(report.connector):
            what = f"{report} is {report.state} and placed on no worker, and no rebalance delay runs"
            yield failed(report.connector, what, "check again; if it stays so, read the log of the leader")


def _transactions(observation: Observation) -> Iterator[Check]:
    for transaction in observation.transactions or ():
        if transaction.started_at_ms is None or transaction.state is not TransactionState.ONGOING:
            continue
        open_ms = observation.at * 1000 - transaction.started_at_ms
        if open_ms > transaction.timeout_ms:
            yield failed(
                transaction.transactional_id,
                f"the transaction of {transaction.transactional_id} is open for {open_ms / 1000:.0f} s, over "
                f"its timeout of {transaction.timeout_ms / 1000:.0f} s",
                "it blocks every consumer with isolation.level=read_committed",
            )


_LOOKS = (
    _unreadable,
    _one_moment,
    _url_only,
    _other_groups,
    _roster,
    _internal_topics,
    foreign_reports,
    _modes,
    _edited_files,
    _group,
    _connectors,
    _reported_elsewhere,
    _transactions,
)
