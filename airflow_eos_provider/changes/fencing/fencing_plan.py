"""A planned fencing round: decided from a snapshot, shown, approved, and only then carried out.

The rules are KIP-618's (``DistributedHerder.doFenceZombieSourceTasks``, 4.3.1): a round is pending from new task
configs to the next task count record. It fences the ids of the *last* record, however many tasks there are now; if one
task replaces one task, the start of the new producer fences. If a producer holds a transaction open while no round is
pending, only its id is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.changes.fencing.fencing_facts import ConnectorLook, FenceLook
from airflow_eos_provider.connect.rest import TaskStatus
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState
from airflow_eos_provider.errors import RefusedError
from airflow_eos_provider.stored import unstored

#: Connect's leader has 90 s for a round, and Java's client takes about one a second for each broker.
SLOW_IDS = 60
SLOW_REMEDY = (
    "set admin.override.retry.backoff.ms=10 and admin.override.retry.backoff.max.ms=10 in the connector's "
    "configuration, and Connect fences hundreds of ids in seconds (docs/connect/fencing-and-transactions.md)"
)


@dataclass(frozen=True, slots=True)
class ConnectorRound:
    """What is done for one connector, and what that rests on."""

    connector: str
    why: str = unstored("")  #: in one line; not part of the hash
    fence: tuple[int, ...] = ()  #: numbers of the tasks whose ids are fenced
    restart: tuple[int, ...] = ()  #: numbers of the tasks that Connect is asked to restart afterwards
    running: tuple[int, ...] = ()  #: those of them that run, and fail for being fenced
    awaits_record: bool = False  #: whether Connect is to write a task count record then
    pending: bool = False  #: whether a round of Connect's own is due
    target_state: str = "STARTED"
    config_offset: int = -1  #: position of the connector's configuration in the config topic
    commit_offset: int | None = None  #: position of its newest task configs
    record: int | None = None  #: the last task count record; None if there is none
    record_offset: int | None = None
    #: By number, the producer (id and epoch) that holds a transaction open.
    held: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    cluster_id: str = ""  #: of the Kafka cluster of its ids; empty if that is the workers'

    @property
    def nothing_to_do(self) -> bool:
        return not (self.fence or self.restart or self.awaits_record)

    @property
    def slow_ids(self) -> int:
        """How many ids Connect's leader has to fence, if these are so many that its time may be too short; else 0."""
        ids = self.record or 0
        return ids if self.awaits_record and ids > SLOW_IDS else 0

    def lines(self) -> list[str]:
        """The round for a person."""
        found = [f"{self.connector}: {self.why}"]
        if self.fence:
            found.append(f"  fence {_numbers(self.fence, 'id')}")
        if self.running:
            one = len(self.running) == 1
            cost = "runs and would be fenced: it fails and goes" if one else "run and would be fenced: they fail and go"
            found.append(f"  {_numbers(self.running, 'task')} {cost} back to the last commit")
        if self.restart:
            found.append(f"  restart {_numbers(self.restart, 'task')}")
        if self.awaits_record:
            found.append("  wait for Connect's own round: its task count record")
        if self.slow_ids:
            found.append(f"  Connect may not fence {self.slow_ids} ids within its 90 s: {SLOW_REMEDY}")
        return found


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about every connector of a look."""

    rounds: tuple[ConnectorRound, ...]  #: by connector, also where nothing is to be done
    unused: str = ""  #: why no connector of the group has transactional ids; empty if they do

    @property
    def due(self) -> tuple[ConnectorRound, ...]:
        """Those of connectors for which something is done."""
        return tuple(each for each in self.rounds if not each.nothing_to_do)


def decide(seen: FenceLook, *, named: bool = False, pending_only: bool = False) -> Decision:
    """Decide for each connector that was found what to do.

    :param named: whether it is of connectors that a person has named.
    """
    if set(seen.enabled.values()) == {False}:
        return Decision((), "No worker runs exactly-once source tasks, so there are no transactional ids.")
    require_enabled(seen.enabled)
    chosen = (each for each in seen.connectors if each.state.pending_fencing or not pending_only)
    return Decision(tuple(decide_connector(each, named=named) for each in chosen))


def require_enabled(enabled: Mapping[str, bool | None]) -> None:
    """Go on only if every worker that answers runs exactly-once source tasks."""
    words = {True: "enabled", False: "not enabled", None: "unknown"}
    if set(enabled.values()) != {True}:
        raise RefusedError(
            "Fencing needs workers that are all enabled: "
            + ", ".join(f"{worker}: {words[each]}" for worker, each in enabled.items())
            + ".",
            remedy="See 'eos status'; finish the roll to one mode first.",
        )


def decide_connector(seen: ConnectorLook, *, named: bool) -> ConnectorRound:
    """Decide what to do about one connector."""
    state = seen.state
    if seen.unknown:
        return _round(seen, f"its ids may be in another Kafka cluster, and eos cannot tell which: {seen.unknown}")
    return _pending(seen) if state.pending_fencing else _not_pending(seen, named=named)


def _pending(seen: ConnectorLook) -> ConnectorRound:
    """A round is due: new task configs are newer than the last task count record."""
    state = seen.state
    due = f"a fencing round is pending, the last task count record is {_or_none(state.task_count_record)}"
    tasks = _tasks_to_run(state)
    failed = tuple(task.number for task in seen.tasks if task.state == "FAILED" and task.number < tasks)
    if tasks and not failed:
        return _round(seen, f"{due}, and no task has failed: Connect is doing it", awaits_record=True)
    fence = sorted({*_ids_of_round(state), *(each.number for each in seen.ids if each.held)})
    if not tasks:
        why = "inconsistent task configs" if state.inconsistent else state.target_state.lower()
        after = f"Connect does its own when tasks start ({why})"
        if not fence:
            return _round(seen, f"{due}; there is nothing to fence, and {after}")
        return _round(seen, f"{due}; {after}", fence=tuple(fence))
    why = f"{due}, and {_numbers(failed, 'task')} failed: Connect does not repeat a round by itself"
    return _round(seen, why, fence=tuple(fence), restart=failed, awaits_record=True)


def _not_pending(seen: ConnectorLook, *, named: bool) -> ConnectorRound:
    """No round is due; a transaction that is held open is ended all the same."""
    running = {task.number for task in seen.tasks if task.state == "RUNNING"}
    held = [each.number for each in seen.ids if each.held]
    if not held:
        return _round(seen, "no round is pending and no transaction is held open: nothing to do")
    left_alone = [] if named else [number for number in held if number in running]
    fence = tuple(number for number in held if number not in left_alone)
    if not fence:
        why = f"no round is pending; {_numbers(left_alone, 'task')} holds a transaction open and runs: left alone"
        return _round(seen, f"{why} (name the connector to end it)")
    restart = to_restart(seen.state, seen.tasks, fence)
    return _round(
        seen,
        f"no round is pending, but {_numbers(fence, 'id')} {'has' if len(fence) == 1 else 'have'} a transaction open",
        fence=fence,
        restart=restart,
        running=tuple(number for number in restart if number in running),
    )


def to_restart(state: ConnectorConfigState, tasks: Sequence[TaskStatus], fenced: Iterable[int]) -> tuple[int, ...]:
    """The tasks that have to be restarted once their ids are fenced: each that is there, and not yet to be started."""
    started = {task.number for task in tasks if task.state in ("RUNNING", "PAUSED", "FAILED")}
    return tuple(number for number in fenced if number in started and number < _tasks_to_run(state))


def _tasks_to_run(state: ConnectorConfigState) -> int:
    """How many tasks Connect starts of what is in the config topic."""
    return 0 if state.target_state == "STOPPED" or state.inconsistent else state.task_count or 0


def _ids_of_round(state: ConnectorConfigState) -> range:
    """The ids that a round fences itself."""
    record = state.task_count_record or 0
    return range(0) if (record, state.task_count) == (1, 1) else range(record)


def _round(seen: ConnectorLook, why: str, **what: Any) -> ConnectorRound:
    state = seen.state
    known = {each.number: each.known for each in seen.ids if each.held and each.known}
    return ConnectorRound(
        connector=seen.name,
        why=f"in the Kafka cluster {seen.cluster_id}, {why}" if seen.cluster_id else why,
        pending=state.pending_fencing,
        target_state=state.target_state,
        config_offset=state.config_offset,
        commit_offset=state.commit_offset,
        record=state.task_count_record,
        record_offset=state.task_count_record_offset,
        held={number: (one.producer_id, one.producer_epoch) for number, one in known.items()},
        cluster_id=seen.cluster_id,
        **what,
    )


def _or_none(count: int | None) -> str:
    return "none" if count is None else str(count)


def _numbers(numbers: tuple[int, ...] | list[int], what: str) -> str:
    """``id 3``, ``tasks 0, 1``, ``ids 0 to 299``."""
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 3 and list(numbers) == list(range(first, last + 1)):
        return f"{what}s {first} to {last}"
    return f"{what}s {', '.join(map(str, numbers))}"
