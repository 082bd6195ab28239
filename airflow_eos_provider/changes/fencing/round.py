"""Carries fencing rounds out: fences ids in bulk, has Connect restart the tasks, and waits for its record.

Every step is safe to repeat. After the fencing, the config topic is read again, as Connect's leader does. New task
configs stop the round, because Connect then does its own. If Connect's own record has appeared by then, its new tasks
may have been fenced, so they are restarted, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.changes.change import Done
from airflow_eos_provider.changes.fencing.look import FenceLook, look
from airflow_eos_provider.changes.fencing.plan import (
    SLOW_REMEDY,
    ConnectorRound,
    Decision,
    FencePlan,
    decide,
    to_restart,
)
from airflow_eos_provider.connect.rest import ConnectRest, TaskStatus
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.connect.task_failures import name_failure
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState, read_cluster_state
from airflow_eos_provider.errors import ConfigurationError, EosError, ReadTimeoutError, RefusedError
from airflow_eos_provider.journal.change import PAUSE_SECONDS, GroupChange
from airflow_eos_provider.kafka.admin.transactions import Fenced, TransactionDescription
from airflow_eos_provider.kafka.session import Session
from airflow_eos_provider.offsets.stores import Producers

#: Connect's leader has 90 s for a round; before it come a rebalance, and the restart of the tasks.
WAIT_SECONDS = 180.0

#: All ids of one connector are fenced within so many seconds.
FENCE_SECONDS = 60.0

#: A restart takes FAILED out of a task's status at once, before its round. One that still shows it so many seconds
#: after the request, or shows it again, has failed anew.
RESTARTED_SECONDS = 15.0

#: Producer id and epoch; None for an id that no broker knows.
Producer = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class FencedId:
    """What became of one id."""

    transactional_id: str
    before: Producer  #: who had it
    fenced: Producer  #: what the coordinator gave it: earlier epochs are shut out
    after: Producer  #: who has it in the end; another one than ``fenced`` is a new task, or a round of Connect's own

    def __str__(self) -> str:
        return f"{self.transactional_id} {' → '.join(_words(one) for one in (self.before, self.fenced, self.after))}"


def _words(producer: Producer) -> str:
    return "none" if producer is None else f"{producer[0]}/{producer[1]}"


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What was done for one connector."""

    connector: str
    ids: tuple[FencedId, ...] = ()
    restarted: tuple[int, ...] = ()
    record: int | None = None
    problem: EosError | None = None

    def lines(self) -> list[str]:
        """The same for a person."""
        done = "done" if self.problem is None else "not done"
        record = "none" if self.record is None else str(self.record)
        head = f"{len(self.ids):,} ids fenced, {len(self.restarted):,} tasks restarted, task count record {record}"
        return [f"{self.connector}: {done}; {head}", *(f"  {one}" for one in self.ids)]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {
            "connector": self.connector,
            "ids": [
                {"id": one.transactional_id, "before": one.before, "fenced": one.fenced, "after": one.after}
                for one in self.ids
            ],
            "restarted": list(self.restarted),
            "task_count_record": self.record,
            "problem": self.problem.found if self.problem else None,
        }


@dataclass(slots=True)
class _Progress:
    """How far the round of one connector is."""

    before: Mapping[str, TransactionDescription] = field(default_factory=dict)
    fenced: dict[str, Fenced] = field(default_factory=dict)
    restarted: tuple[int, ...] = ()


class Fencer:
    """Looks at the fencing of a group's connectors, and carries rounds out."""

    def __init__(
        self,
        session: ConnectSession,
        config_topic: str,
        *,
        report: Callable[[str], None] = lambda line: None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.session = session
        self._config_topic = config_topic
        self._report = report
        self._wait_seconds = wait_seconds
        self._producers = Producers(session)
        self.group_id = session.cluster.group_id

    def look(self, names: Collection[str] = (), *, pending_only: bool = False) -> tuple[FenceLook, Decision]:
        """What there is, and what would be done about it. Changes nothing."""
        seen = look(self.session, self._config_topic, names)
        return seen, decide(seen, names, pending_only=pending_only)

    def carry_out(self, plan: FencePlan, change: GroupChange) -> Done:
        """Carry the rounds out that were not done before.

        A connector whose round does not come to its end holds up no other; its report says why.

        :raises FencedError: another controller has taken over.
        :raises UnreachableError: brokers or workers do not answer any more.
        """
        return Done.of_connectors([self._carry_out(change, round_) for round_ in plan.rounds])

    def done_before(self, plan: FencePlan) -> Done | None:
        """The report of a plan that was carried out, unless something is due again."""
        _, decision = self.look(plan.names, pending_only=plan.pending_only)
        tasks = (task for round_ in plan.rounds for task in self._tasks(round_.connector))
        if decision.plan.rounds or any(task.state == "FAILED" for task in tasks):
            return None
        return Done.of_connectors([self._reported(round_, _Progress(), None) for round_ in plan.rounds])

    def _carry_out(self, change: GroupChange, round_: ConnectorRound) -> RoundReport:
        progress, problem = _Progress(), None
        try:
            self._fence(change, round_, progress)
            self._restart(change, round_, progress)
            self._await(change, round_, progress)
        except (ConfigurationError, RefusedError, _NotUpError, _NotInTimeError) as error:
            problem = error  # an operator has to act first, and the other connectors do not wait for that
            self._report(f"{round_.connector}: {error.found}")
        return self._reported(round_, progress, problem)

    def _fence(self, change: GroupChange, round_: ConnectorRound, progress: _Progress) -> None:
        step = f"{round_.connector}: fence"
        if not round_.fence or change.is_done(step):
            return
        state = self._require_same_configs(round_)
        if round_.restart or round_.awaits_record:  # a fenced task does not run again without a restart
            self.session.ask(lambda rest: rest.connector_config(round_.connector))
        ids = {self._id(round_, number): number for number in round_.fence}
        with change.step(step), self._kafka(round_, state).transactions() as client:
            change.confirm(step)
            progress.before = client.describe(ids)
            if not round_.pending:  # a task that has started meanwhile has ended the transaction, and is no zombie
                ids = {id_: n for id_, n in ids.items() if _producer(progress.before.get(id_)) == round_.held[n]}
            progress.fenced = client.fence(ids, timeout_seconds=FENCE_SECONDS)
        self._report(f"{round_.connector}: {len(ids):,} transactional ids are fenced.")
        self._require_same_configs(round_)

    def _restart(self, change: GroupChange, round_: ConnectorRound, progress: _Progress) -> None:
        step = f"{round_.connector}: restart"
        if change.is_done(step):
            return
        state = self._require_same_configs(round_)
        restart = round_.restart
        if not state.pending_fencing:  # or Connect's record has come while ids were fenced: of its new tasks, perhaps
            fenced = [n for n in round_.fence if change.taken_up or self._id(round_, n) in progress.fenced]
            restart = to_restart(state, self._tasks(round_.connector), fenced)
        if not restart:
            return
        with change.step(step):
            change.confirm(step)
            if state.pending_fencing:
                self.session.ask(lambda rest: rest.restart(round_.connector, include_tasks=True, only_failed=True))
            else:
                self.session.ask(lambda rest: _restart_tasks(rest, round_.connector, restart))
            progress.restarted = restart
        self._report(f"{round_.connector}: Connect is asked to restart {len(restart):,} tasks.")

    def _await(self, change: GroupChange, round_: ConnectorRound, progress: _Progress) -> None:
        """Wait for what Connect owes: its record, and new producers of the tasks that were restarted."""
        up: set[int] = set()
        restarted = set(progress.restarted)
        # A running task that was fenced may be reported RUNNING a while longer, then FAILED, before its successor runs.
        have_failed = restarted - set(round_.running)
        begun = time.monotonic()
        while True:
            missing = self._missing(round_, self._require_same_configs(round_), progress)
            if not missing:
                return
            tasks = self._tasks(round_.connector)
            fail_now = {task.number for task in tasks if task.state == "FAILED"}
            up |= have_failed - fail_now
            have_failed |= fail_now
            if time.monotonic() >= begun + RESTARTED_SECONDS:
                up |= restarted
            failed = [task for task in tasks if task.state == "FAILED" and task.number not in restarted - up]
            if failed and (round_.awaits_record or {task.number for task in failed} & restarted):
                raise _not_up(round_, failed[0])
            if time.monotonic() >= begun + self._wait_seconds:
                raise _not_in_time(round_, missing, self._wait_seconds, tasks)
            change.renew()
            time.sleep(PAUSE_SECONDS)

    def _missing(self, round_: ConnectorRound, state: ConnectorConfigState, progress: _Progress) -> str:
        """What Connect still owes, in words; empty if nothing."""
        if round_.awaits_record and state.pending_fencing:
            return "its task count record"
        if round_.target_state != "STARTED":  # a paused task takes its id when it is resumed
            return ""
        ids = {number: self._id(round_, number) for number in progress.restarted}
        ids = {number: id_ for number, id_ in ids.items() if id_ in progress.fenced}
        known = self._described(round_, state, ids.values())
        left = [number for number, id_ in ids.items() if _producer(known.get(id_)) == tuple(progress.fenced[id_])]
        return f"the start of {len(left)} tasks ({', '.join(map(str, left[:5]))})" if left else ""

    def _require_same_configs(self, round_: ConnectorRound) -> ConnectorConfigState:
        """Go on only if the round is still one of the same task configs."""
        state = self._state(round_)
        if (state.config_offset, state.commit_offset) != (round_.config_offset, round_.commit_offset):
            raise RefusedError(
                f"{round_.connector} got a new configuration or new task configs during the round.",
                expected="the configurations that the plan was made from",
                remedy="Connect fences by itself before their tasks start. See 'eos fencing list', and apply it "
                "again if the round stays pending.",
            )
        return state

    def _reported(self, round_: ConnectorRound, progress: _Progress, problem: EosError | None) -> RoundReport:
        config = read_cluster_state(self.session.kafka, self._config_topic).connectors.get(round_.connector)
        after = self._described(round_, config, progress.fenced) if config and progress.fenced else {}
        return RoundReport(
            connector=round_.connector,
            ids=tuple(
                FencedId(
                    id_,
                    _producer(progress.before.get(id_)),
                    (fenced.producer_id, fenced.epoch),
                    _producer(after.get(id_)),
                )
                for id_, fenced in sorted(progress.fenced.items(), key=lambda one: int(one[0].rpartition("-")[2]))
            ),
            restarted=progress.restarted,
            record=config.task_count_record if config else round_.record,
            problem=problem,
        )

    def _described(
        self, round_: ConnectorRound, state: ConnectorConfigState, ids: Iterable[str]
    ) -> Mapping[str, TransactionDescription]:
        with self._kafka(round_, state).transactions() as client:
            return client.describe(ids)

    def _kafka(self, round_: ConnectorRound, state: ConnectorConfigState) -> Session:
        """The Kafka cluster of a connector's ids., as planned."""
        found = self._producers.of(state.config)
        if found.cluster_id != round_.cluster_id:
            raise RefusedError(
                f"eos finds the producers of {round_.connector} in the Kafka cluster "
                f"{found.cluster_id or 'of the workers'}.",
                expected=f"{round_.cluster_id or 'that of the workers'}, as planned",
                remedy="Run 'eos fencing list' where the workers' files can be read.",
            )
        return found.kafka

    def _state(self, round_: ConnectorRound) -> ConnectorConfigState:
        config = read_cluster_state(self.session.kafka, self._config_topic)
        found = config.connectors.get(round_.connector)
        if found is None:
            raise RefusedError(f"The connector {round_.connector} was deleted during the round.")
        return found

    def _tasks(self, connector: str) -> tuple[TaskStatus, ...]:
        status = self.session.ask(lambda rest: rest.statuses()).get(connector)
        return status.tasks if status else ()

    def _id(self, round_: ConnectorRound, number: int) -> str:
        return f"{self.group_id}-{round_.connector}-{number}"


class _NotUpError(EosError):
    """A task has failed while its start was awaited."""


class _NotInTimeError(ReadTimeoutError):
    """Connect did not do its part in time."""


def _restart_tasks(rest: ConnectRest, connector: str, numbers: Collection[int]) -> None:
    for number in numbers:
        rest.restart_task(connector, number)


def _producer(known: TransactionDescription | None) -> Producer:
    return (known.producer_id, known.producer_epoch) if known else None


def _not_up(round_: ConnectorRound, task: TaskStatus) -> _NotUpError:
    failure = name_failure(task.trace)
    return _NotUpError(
        f"Task {task.number} of {round_.connector} has failed: {failure}.", remedy=_remedy(round_, failure.remedy)
    )


def _not_in_time(round_: ConnectorRound, missing: str, seconds: float, tasks: Iterable[TaskStatus]) -> _NotInTimeError:
    found = f"Timed out after {seconds:g} s waiting for {missing} of {round_.connector}."
    remedy = "See 'eos status' for where its tasks are, and the leader's log for its round."
    if failed := next((task for task in tasks if task.state == "FAILED"), None):
        failure = name_failure(failed.trace)
        found, remedy = f"{found} Task {failed.number} has failed: {failure}.", failure.remedy
    return _NotInTimeError(found, remedy=_remedy(round_, remedy))


def _remedy(round_: ConnectorRound, remedy: str) -> str:
    """With so many ids their number is the likeliest cause."""
    return f"{SLOW_REMEDY}; or {remedy}" if round_.slow_ids else remedy
