"""What a tired operator must not miss: the contradictions and open ends of one observation, in words."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_eos_provider.connect.failures import Failure
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.rollout.observation import Observation
from airflow_eos_provider.rollout.properties import not_ready_for_enabled, uncommitted_readers


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    :param what: what was seen.
    :param remedy: what to do about it.
    """

    what: str
    remedy: str = ""


def findings(observation: Observation) -> tuple[Finding, ...]:
    """Everything worth a second look, the gravest first."""
    return (
        *_unreadable(observation),
        *_roster(observation),
        *_modes(observation),
        *_group(observation),
        *_connectors(observation),
        *_transactions(observation),
    )


def _unreadable(observation: Observation) -> list[Finding]:
    problems = (
        observation.group_problem,
        observation.config_problem,
        observation.statuses_problem,
        observation.transactions_problem,
    )
    return [
        Finding(problem, "make it readable; what is not seen here is unknown, not fine")
        for problem in problems
        if problem
    ]


def _roster(observation: Observation) -> list[Finding]:
    found = [
        Finding(f"{member} is a member of the group, but not in the cluster file", "'eos discover' proposes its entry")
        for member in observation.unknown_members
    ]
    for worker in observation.workers:
        if worker in observation.stopped:
            declared = worker.facts.declared.mode
            found.append(
                Finding(f"{worker.worker_id} is stopped; by its file it would join as {declared or 'unknown'}")
            )
        elif observation.group and observation.group.is_stable and worker.worker_id not in observation.members:
            found.append(
                Finding(
                    f"{worker.worker_id} runs, but is not a member of group {observation.group_id}",
                    "it may still be joining; else check group.id and bootstrap.servers in its file",
                )
            )
        if worker.facts.problem:
            found.append(Finding(f"{worker.worker_id}: {worker.facts.problem}", "correct the cluster file"))
        if worker.rest_problem and worker not in observation.stopped:
            found.append(Finding(f"{worker.worker_id}: {worker.rest_problem}", f"read its log {worker.worker.log}"))
    return found


def _modes(observation: Observation) -> list[Finding]:
    running = [worker for worker in observation.workers if worker not in observation.stopped]
    found = [Finding(f"{worker.worker_id}: {text}") for worker in running for text in worker.mode.disagreements]
    found += [
        Finding(f"the mode of {worker.worker_id} is unknown: {worker.mode.reason}", "a restart often settles it")
        for worker in running
        if worker.mode.verdict.mode is None
    ]
    modes = {worker.mode.verdict.mode for worker in running} - {None}
    if {Mode.DISABLED, Mode.ENABLED} <= modes:
        found.append(
            Finding(
                "disabled and enabled workers share the group: a disabled leader cannot be fenced, so exactly-once is "
                "not given",
                "'eos plan --to preparing', then '--to enabled'; or back: 'eos plan --to disabled'",
            )
        )
    elif len(modes) > 1:
        names = ", ".join(sorted(str(mode) for mode in modes))
        found.append(Finding(f"the workers run in different modes: {names}", "'eos plan' shows the step that is left"))
    uncommitted = uncommitted_readers(observation)
    if Mode.ENABLED in modes and uncommitted:
        found.append(
            Finding(
                f"beside enabled workers, {', '.join(uncommitted)} would read source offsets uncommitted: a task that "
                "is taken over may skip the records of a transaction that was never committed",
                "a roll to preparing or disabled sets isolation.level=read_committed with the mode",
            )
        )
    elif not_ready_for_enabled(observation):
        found.append(
            Finding(
                f"{', '.join(uncommitted)} would read source offsets uncommitted as soon as one worker is enabled",
                "'eos plan --to preparing' sets isolation.level=read_committed; a roll to enabled is refused before",
            )
        )
    return found


def _group(observation: Observation) -> list[Finding]:
    if observation.group is None:
        return []
    found = []
    if not observation.group.is_stable:
        found.append(Finding(f"the group is in state {observation.group.state}", "a rebalance runs; look again"))
    delays = [m.assignment.delay_ms for m in observation.group.members if m.assignment]
    if max(delays, default=0):
        found.append(
            Finding(
                f"a rebalance delay runs ({max(delays) / 1000:.0f} s at the last rebalance): tasks of a lost worker "
                f"stand still until it ends",
                "wait, or bring that worker back",
            )
        )
    return found


def _connectors(observation: Observation) -> list[Finding]:
    found = []
    for name, status in sorted((observation.statuses or {}).items()):
        if status.state == "FAILED":
            found.append(Finding(f"connector {name} has FAILED", f"GET /connectors/{name}/status has the trace"))
        found += _failed_tasks(name, status, observation)
    if observation.config is not None:
        enabled = any(worker.mode.verdict.mode is Mode.ENABLED for worker in observation.workers)
        for name, state in sorted(observation.config.connectors.items()):
            status_of = (observation.statuses or {}).get(name)
            if enabled and state.pending_fencing and state.config and status_of and status_of.type == "source":
                found.append(
                    Finding(
                        f"a fencing round for {name} is pending", "it is due when a task starts on an enabled worker"
                    )
                )
    return found


def _failed_tasks(name: str, status: ConnectorStatus, observation: Observation) -> list[Finding]:
    """One finding per reason: forty tasks that fail alike are one thing to mend."""
    by_reason: dict[str, tuple[list[str], Failure]] = {}
    for task in status.tasks:
        if task.state == "FAILED":
            failure = observation.failure_of(name, task)
            by_reason.setdefault(failure.kind, ([], failure))[0].append(str(task.number))
    return [
        Finding(
            f"connector {name} has FAILED task{'s' * (len(numbers) > 1)} {', '.join(numbers)}: {failure}",
            failure.remedy,
        )
        for numbers, failure in by_reason.values()
    ]


def _transactions(observation: Observation) -> list[Finding]:
    found = []
    for transaction in observation.transactions or ():
        if transaction.started_at_ms is None or transaction.state != "Ongoing":
            continue
        open_ms = observation.at * 1000 - transaction.started_at_ms
        if open_ms > transaction.timeout_ms:
            found.append(
                Finding(
                    f"the transaction of {transaction.transactional_id} is open for {open_ms / 1000:.0f} s, over "
                    f"its timeout of {transaction.timeout_ms / 1000:.0f} s",
                    "it holds back every reader that reads committed",
                )
            )
    return found
