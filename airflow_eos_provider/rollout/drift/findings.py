"""Problems in one observation: contradictions and unfinished work, each with its remedy."""

from __future__ import annotations

from airflow_eos_provider.connect.cluster.managed import managed_workers
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.task_failures import Failure
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState
from airflow_eos_provider.connect.topics.internal_topics import OTHER_GROUP_REMEDY, other_groups
from airflow_eos_provider.data_text import counted, duration
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.rollout.check import Check, failed, inconclusive
from airflow_eos_provider.rollout.gate.conditions import STARTING_SECONDS
from airflow_eos_provider.rollout.hosts.host import CLOCK_TICK_SECONDS
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observe.reported_states import (
    SLOW_LOOK_SECONDS,
    Doubt,
    Report,
    doubtful,
    neighbour_of,
    reports,
    restart_command,
    twins,
)
from airflow_eos_provider.rollout.plan.worker_edits import not_ready_for_enabled, uncommitted_readers
from airflow_eos_provider.rollout.settings import session_timeout_seconds

#: A connector gets its tasks within seconds; while it does not answer, Connect asks it again and again.
TASKLESS_SECONDS = 120.0


def findings(observation: Observation) -> tuple[Check, ...]:
    """Everything worth a second look, the gravest first."""
    return (
        *_unreadable(observation),
        *_one_moment(observation),
        *_url_only(observation),
        *_other_groups(observation),
        *_roster(observation),
        *_internal_topics(observation),
        *_neighbours(observation),
        *_modes(observation),
        *_edited_files(observation),
        *_group(observation),
        *_connectors(observation),
        *_reported_elsewhere(observation),
        *_transactions(observation),
    )


def _unreadable(observation: Observation) -> list[Check]:
    config_is_known = len(observation.url_only) < len(observation.workers)  # else one finding says so of all
    needed = (observation.config, observation.statuses, observation.transactions)
    problems = (
        observation.group_problem,
        observation.config_problem if config_is_known else None,
        observation.statuses_problem,
        observation.transactions_problem,
        observation.logs_problem if None not in needed else None,  # else one of them says it already
    )
    found = [
        inconclusive(observation.group_id, problem, "make it readable: until then its state is unknown")
        for problem in problems
        if problem
    ]
    if observation.logs is not None and observation.logs.unreadable:
        names = ", ".join(sorted(observation.logs.unreadable))
        found.append(
            inconclusive(
                names, f"open transactions in {names} cannot be read", "grant Describe on these topics: 'eos acl check'"
            )
        )
    return found


def _one_moment(observation: Observation) -> list[Check]:
    if observation.took_seconds <= SLOW_LOOK_SECONDS:
        return []
    return [
        inconclusive(
            observation.group_id,
            f"this observation took {observation.took_seconds:.0f} s: its parts are from different moments",
            "run it again; this list also names a slow worker or broker",
        )
    ]


def _url_only(observation: Observation) -> list[Check]:
    """What cannot be known of workers of which only the address is described, as one finding for all of them."""
    workers = observation.url_only
    if not workers:
        return []
    names = ", ".join(worker.worker_id for worker in workers)
    lacking = "configuration, process, log and mode"
    if observation.config_topic is None:
        lacking += ", and with them the config topic, pending fencing and the rebalance delay"
    managed = managed_workers(worker.worker for worker in workers)
    if managed:
        service = next(iter(managed.values()))
        remedy = f"{', '.join(managed)} of {service.name} can be watched, not rolled: {service.instead}"
    else:
        remedy = (
            "'eos discover' finds a worker's host, service, config and log; without them the group can be watched, "
            "but not rolled"
        )
    return [
        inconclusive(names, f"the cluster file has only the URL of {names}, so these are unknown: {lacking}", remedy)
    ]


def _other_groups(observation: Observation) -> list[Check]:
    said = {worker.worker_id: worker.facts.properties for worker in observation.workers}
    problem = other_groups(observation.group_id, said)
    return [failed(observation.group_id, problem, OTHER_GROUP_REMEDY)] if problem else []


def _roster(observation: Observation) -> list[Check]:
    found = [_unknown_member(member, observation) for member in observation.unknown_members]
    for worker in observation.workers:
        if worker in observation.stopped and worker in observation.url_only:
            found.append(_absent(worker, observation))
        elif worker in observation.stopped:
            declared = worker.facts.declared.mode
            found.append(
                failed(
                    worker.worker_id,
                    f"{worker.worker_id} is stopped; by its configuration it would join as {declared or 'unknown'}"
                    + _last_words(worker, observation),
                )
            )
        elif worker in observation.lost:
            found.append(_dead(worker, observation))
        elif worker in observation.nameless:
            found.append(_nameless(worker, observation))
        elif (
            observation.group
            and observation.group.is_stable
            and worker.is_running
            and worker.worker_id not in observation.members
            and worker.worker_id not in observation.aliases.values()
        ):
            found.append(
                failed(
                    worker.worker_id,
                    f"{worker.worker_id} runs, but is not a member of group {observation.group_id}",
                    "it may still be joining; if not, check group.id and bootstrap.servers in its configuration",
                )
            )
        if worker.facts.problem and worker not in observation.url_only:
            remedy = worker.facts.problem_remedy or "correct the cluster file"
            found.append(failed(worker.worker_id, f"{worker.worker_id}: {worker.facts.problem}", remedy))
        if worker.rest_problem and worker not in observation.stopped and worker not in observation.lost:
            found.append(_silent(worker, observation))
    return found


def _absent(worker: WorkerObservation, observation: Observation) -> Check:
    """A worker whose process cannot be looked at, and which the group does not have."""
    no_member = f"{worker.worker_id} is not a member of group {observation.group_id}"
    return failed(worker.worker_id, f"{no_member}, and does not answer: {worker.rest_problem}", worker.silence_remedy)


def _nameless(worker: WorkerObservation, observation: Observation) -> Check:
    """A worker that answers at an address that no member has."""
    others = ", ".join(observation.members[member].url.rstrip("/") for member in observation.unknown_members)
    process = (
        f"no process of it is found ({worker.facts.running.detail}), and " if not worker.worker.is_url_only else ""
    )
    return failed(
        worker.worker_id,
        f"{worker.worker_id} answers at {worker.worker.url}, but {process}no member of group {observation.group_id} "
        "has that address",
        f"if it is behind a proxy or has another host name, write the advertised url in the cluster file: {others}"
        if others
        else "it may still be joining; if not, check its url, and group_id in the cluster file",
    )


def _unknown_member(member: str, observation: Observation) -> Check:
    described = observation.aliases.get(member)
    if described is None:
        known = " or ".join(worker.worker_id for worker in observation.nameless)
        return failed(
            member,
            f"{member} is a member of the group, but not in the cluster file",
            (f"if it is {known} by another address, correct its url; otherwise " if known else "")
            + "'eos discover' proposes its entry",
        )
    return failed(
        member,
        f"{member}, a member of the group, and {described} of the cluster file are the same port under two names",
        f"write the advertised url in the cluster file: {observation.members[member].url.rstrip('/')} "
        "(its rest.advertised.host.name)",
    )


def _dead(worker: WorkerObservation, observation: Observation) -> Check:
    timeout = session_timeout_seconds(worker.facts.properties)
    delay = observation.rebalance_delay_ms / 1000
    return failed(
        worker.worker_id,
        f"{worker.worker_id} is dead: no process of it runs, though the group still counts it as a member"
        + _last_words(worker, observation),
        f"start it; or wait: after its session timeout ({timeout:.0f} s) the group drops it, and its tasks are "
        f"unassigned for the rebalance delay (up to {delay:.0f} s)",
    )


def _silent(worker: WorkerObservation, observation: Observation) -> Check:
    problem, facts = worker.rest_problem, worker.facts
    last_words = _last_words(worker, observation) if worker.root is None else ""
    if worker.root is None and facts.obstacles_to("answer"):
        obstacle = facts.obstacles_to("answer")[0]
        return failed(worker.worker_id, f"{worker.worker_id}: {obstacle.what}, {problem}{last_words}", obstacle.remedy)
    if worker.started_at is not None and observation.at - worker.started_at < STARTING_SECONDS:
        return failed(
            worker.worker_id,
            f"{worker.worker_id} is starting: {problem}{last_words}",
            f"check again; if it stays so, {facts.read_its_log}",
        )
    return failed(worker.worker_id, f"{worker.worker_id}: {problem}{last_words}", worker.silence_remedy)


def _last_words(worker: WorkerObservation, observation: Observation) -> str:
    said = [r for r in doubtful(observation, Doubt.LAST_WORD) if r.worker_id == worker.worker_id]
    return f"; last reported before it stopped answering: {_listed(said)}" if said else ""


def _internal_topics(observation: Observation) -> list[Check]:
    """Internal topics that are not proven to be the same for all workers."""
    return [
        (inconclusive if topic.unknown and not topic.differing else failed)(topic.setting, topic.problem, topic.remedy)
        for topic in observation.topics
        if topic.problem
    ]


def _neighbours(observation: Observation) -> list[Check]:
    """Two groups on the same internal topics: each runs every connector, and each writes over the other's states."""
    found = []
    strange = doubtful(observation, Doubt.UNKNOWN_WORKER)
    for worker_id in sorted({report.worker_id for report in strange}):
        theirs = [report for report in strange if report.worker_id == worker_id]
        neighbour = neighbour_of(observation, worker_id)
        again = "; ".join(restart_command(observation, name) for name in sorted({r.connector for r in theirs}))
        if neighbour is None:
            what = f"{worker_id} reports, but is no member of the group: {_listed(theirs)}"
            remedy = f"if that worker is gone for good, restart what it reports: {again}"
        else:
            what = (
                f"two Connect groups use the same internal topics: {worker_id}, a member of group {neighbour}, "
                f"reports {_listed(theirs)}; both groups run these connectors"
            )
            remedy = (
                f"stop the workers of {neighbour}, or give them config, offset and status topics of their own "
                f"(config.storage.topic and so on); then restart these connectors: {again}"
            )
        found.append(failed(worker_id, what, remedy))
    named = {neighbour_of(observation, report.worker_id) for report in strange}
    return found + [
        failed(
            group,
            f"group {group} runs connectors of the same names at the same config offset: {', '.join(names)}",
            "compare the workers' config.storage.topic: two groups on one topic run each connector twice",
        )
        for group, names in sorted(twins(observation).items())
        if group not in named
    ]


def _edited_files(observation: Observation) -> list[Check]:
    found = []
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
        found.append(failed(worker.worker_id, f"the {worker.facts.edit} of {worker.worker_id} {what}", remedy))
    return found


def _reported_elsewhere(observation: Observation) -> list[Check]:
    found = []
    for report in doubtful(observation, Doubt.UNASSIGNED, Doubt.ELSEWHERE):
        on = " and ".join(report.placed_on or ()) or "no worker"
        if report.doubt is Doubt.UNASSIGNED:
            what = f"{report} is UNASSIGNED, though the group has placed it on {on}"
        else:
            what = f"{report} is placed on {on}, but reported {report.state} by {report.worker_id}"
        remedy = f"check again; if it stays so, restart it: {restart_command(observation, report.connector)}"
        found.append(failed(report.connector, what, remedy))
    if observation.group is None or not observation.group.is_stable or observation.group.delay_ms:
        return found
    return found + [
        failed(
            report.connector,
            f"{report} is {report.state} and placed on no worker, and no rebalance delay runs",
            "check again; if it stays so, read the log of the leader",
        )
        for report in reports(observation)
        if report.state == "UNASSIGNED" and report.placed_on == () and observation.should_run(report.connector)
    ]


def _listed(found: list[Report], limit: int = 6) -> str:
    shown = [f"{report} {report.state}" for report in found[:limit]]
    return ", ".join(shown) + (f" and {len(found) - limit} more" if len(found) > limit else "")


def _modes(observation: Observation) -> list[Check]:
    running = [worker for worker in observation.workers if worker not in observation.stopped]
    found = [
        failed(worker.worker_id, f"{worker.worker_id}: {text}")
        for worker in running
        for text in worker.mode.disagreements
    ]
    found += [
        inconclusive(
            worker.worker_id, f"the mode of {worker.worker_id} is unknown: {worker.mode.reason}", worker.mode_remedy
        )
        for worker in running
        if worker.mode.verdict.mode is None and worker not in (*observation.lost, *observation.url_only)
    ]
    modes = {worker.mode.verdict.mode for worker in running} - {None}
    if {Mode.DISABLED, Mode.ENABLED} <= modes:
        found.append(
            failed(
                observation.group_id,
                "disabled and enabled workers share the group: a disabled leader cannot be fenced, so there is no "
                "exactly-once",
                "'eos plan --to preparing', then '--to enabled'; or downgrade: 'eos plan --to disabled'",
            )
        )
    elif len(modes) > 1:
        names = ", ".join(sorted(str(mode) for mode in modes))
        found.append(
            failed(
                observation.group_id,
                f"the workers run in different modes: {names}",
                "'eos plan' shows the step that is left",
            )
        )
    uncommitted = uncommitted_readers(observation)
    if Mode.ENABLED in modes and uncommitted:
        found.append(
            failed(
                ", ".join(uncommitted),
                f"some workers are enabled, but {', '.join(uncommitted)} would read source offsets uncommitted: a task "
                "that one of them takes over may skip the records of a transaction that was never committed",
                "a roll to preparing or disabled sets isolation.level=read_committed with the mode",
            )
        )
    elif not_ready_for_enabled(observation):
        found.append(
            failed(
                ", ".join(uncommitted),
                f"{', '.join(uncommitted)} would read source offsets uncommitted as soon as one worker is enabled",
                "'eos plan --to preparing' sets isolation.level=read_committed; a roll to enabled is refused before",
            )
        )
    return found


def _group(observation: Observation) -> list[Check]:
    if observation.group is None:
        return []
    found = []
    if not observation.group.is_stable:
        found.append(
            failed(
                observation.group_id,
                f"the group is in state {observation.group.state}",
                "a rebalance runs; check again",
            )
        )
    delays = [m.assignment.delay_ms for m in observation.group.members if m.assignment]
    if max(delays, default=0):
        found.append(
            failed(
                observation.group_id,
                f"a rebalance delay runs ({max(delays) / 1000:.0f} s at the last rebalance): tasks of a lost worker "
                "are unassigned until it ends",
                "wait, or bring that worker back",
            )
        )
    return found


def _connectors(observation: Observation) -> list[Check]:
    found = []
    for name, status in sorted((observation.statuses or {}).items()):
        if status.state == "FAILED":
            found.append(failed(name, f"connector {name} has FAILED", f"GET /connectors/{name}/status has the trace"))
        found += _failed_tasks(name, status, observation)
    if observation.config is not None:
        for state in observation.config.connectors.values():
            found += _without_tasks(state, observation)
        enabled = any(worker.mode.verdict.mode is Mode.ENABLED for worker in observation.workers)
        for name, state in sorted(observation.config.connectors.items()):
            status_of = (observation.statuses or {}).get(name)
            if enabled and state.pending_fencing and state.config and status_of and status_of.type == "source":
                found.append(
                    failed(
                        name,
                        f"a fencing round for {name} is pending",
                        "it is due when a task starts on an enabled worker",
                    )
                )
    return found


def _without_tasks(state: ConnectorConfigState, observation: Observation) -> list[Check]:
    """A connector that should run and still has no task after :data:`TASKLESS_SECONDS`."""
    name = state.name
    again = f"restart it: {restart_command(observation, name)}"
    if state.inconsistent:
        return [
            failed(
                name,
                f"the task configurations of connector {name} in the config topic are incomplete: Connect starts none "
                "of its tasks",
                f"{again}; if that writes no new ones, send its configuration again (PUT /connectors/{name}/config)",
            )
        ]
    seconds = observation.at - state.changed_at_ms / 1000
    if not observation.should_run(name) or observation.statuses is None or seconds < TASKLESS_SECONDS:
        return []
    since = "since it was last changed" + (f", {duration(seconds)} ago" if state.changed_at_ms else "")
    status = observation.statuses.get(name)
    if status is None:
        return [failed(name, f"connector {name} has reported no state {since}", again)]
    if status.state != "RUNNING" or status.tasks:
        return []
    if state.commit_offset is None or state.commit_offset < state.config_offset:
        what, remedy = (
            f"Connect has got no task configurations from it {since}",
            f"Connect keeps asking; {again}",
        )
    elif not state.task_count:
        what, remedy = f"it has requested none {since}", "check that its source has data to read"
    else:
        what, remedy = f"{counted(state.task_count, 'task')} should have started {since}", again
    log = next((w.facts.read_its_log for w in observation.workers if w.worker_id == status.worker_id), "read its log")
    return [failed(name, f"connector {name} is RUNNING and has no task: {what}", f"{log}; {remedy}")]


def _failed_tasks(name: str, status: ConnectorStatus, observation: Observation) -> list[Check]:
    """One finding per reason: forty tasks that fail alike are one thing to correct."""
    by_reason: dict[str, tuple[list[str], Failure]] = {}
    for task in status.tasks:
        if task.state == "FAILED":
            failure = observation.failure_of(name, task)
            by_reason.setdefault(failure.kind, ([], failure))[0].append(str(task.number))
    return [
        failed(
            name,
            f"connector {name} has FAILED task{'s' * (len(numbers) > 1)} {', '.join(numbers)}: {failure}",
            failure.remedy,
        )
        for numbers, failure in by_reason.values()
    ]


def _transactions(observation: Observation) -> list[Check]:
    found = []
    for transaction in observation.transactions or ():
        if transaction.started_at_ms is None or transaction.state is not TransactionState.ONGOING:
            continue
        open_ms = observation.at * 1000 - transaction.started_at_ms
        if open_ms > transaction.timeout_ms:
            found.append(
                failed(
                    transaction.transactional_id,
                    f"the transaction of {transaction.transactional_id} is open for {open_ms / 1000:.0f} s, over "
                    f"its timeout of {transaction.timeout_ms / 1000:.0f} s",
                    "it blocks every consumer with isolation.level=read_committed",
                )
            )
    return found
