"""Carries fencing rounds out: fences ids in bulk, has Connect restart the tasks, and waits for its record.

Every step is safe to repeat. After the fencing, the config topic is read again, as Connect's leader does. New task
configs stop the round, because Connect then does its own. If Connect's own record has appeared by then, its new tasks
may have been fenced, so they are restarted, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_eos_provider.changes.fencing.fencing_plan import SLOW_REMEDY, ConnectorRound, to_restart
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.rest import ConnectRest, TaskStatus
from airflow_eos_provider.connect.task_failures import name_failure
from airflow_eos_provider.connect.topics.config_topic import ConnectorConfigState, read_cluster_state
from airflow_eos_provider.errors import ConfigurationError, EosError, ReadTimeoutError, RefusedError
from airflow_eos_provider.journal.group_change import PAUSE_SECONDS, GroupChange
from airflow_eos_provider.kafka.admin.transactions import Fenced, TransactionDescription
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.offsets.stores import WorkersKafka

#: All ids of one connector are fenced within so many seconds.
FENCE_SECONDS = 60.0

#: A restart takes FAILED out of a task's status at once, before its round. One that still shows it so many seconds
#: after the request, or shows it again, has failed anew.
RESTARTED_SECONDS = 15.0

#: Producer id and epoch; None for an id that no broker knows.
Producer = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What was done for one connector."""

    connector: str
    #: By id: who had it, what the coordinator gave it, which shuts earlier epochs out, and who has it in the end.
    #: Another one than the second is a new task, or a round of Connect's own.
    ids: Mapping[str, tuple[Producer, Producer, Producer]] = field(default_factory=dict)
    restarted: tuple[int, ...] = ()
    record: int | None = None
    problem: EosError | None = None

    def lines(self) -> list[str]:
        """The same for a person."""
        done = "done" if self.problem is None else "not done"
        record = "none" if self.record is None else str(self.record)
        head = f"{len(self.ids):,} ids fenced, {len(self.restarted):,} tasks restarted, task count record {record}"
        ids = (f"  {id_} {' → '.join(map(_words, producers))}" for id_, producers in self.ids.items())
        return [f"{self.connector}: {done}; {head}", *ids]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON. Scripts rely on the names."""
        return {
            "connector": self.connector,
            "ids": [
                {"id": id_, "before": before, "fenced": fenced, "after": after}
                for id_, (before, fenced, after) in self.ids.items()
            ],
            "restarted": list(self.restarted),
            "task_count_record": self.record,
            "problem": self.problem.found if self.problem else None,
        }


def _words(producer: Producer) -> str:
    return "none" if producer is None else f"{producer[0]}/{producer[1]}"


class Round:
    """Carries out the planned round of one connector."""

    def __init__(
        self,
        session: ConnectSession,
        config_topic: str,
        planned: ConnectorRound,
        wait_seconds: float,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._session, self._config_topic = session, config_topic
        self._planned, self._connector = planned, planned.connector
        self._wait_seconds, self._say = wait_seconds, report
        self._workers_kafka = WorkersKafka(session)
        self._before: Mapping[str, TransactionDescription] = {}
        self._fenced: Mapping[str, Fenced] = {}
        self._restarted: tuple[int, ...] = ()

    def carry_out(self, change: GroupChange) -> RoundReport:
        """Do what was not done before. Another connector does not wait for a round that does not come to its end."""
        problem = None
        try:
            self._fence(change)
            self._restart(change)
            self._await(change)
        except (ConfigurationError, RefusedError, _NotUpError, _NotInTimeError) as error:
            problem = error  # an operator has to act first
            self._say(f"{self._connector}: {error.found}")
        return self.report(problem)

    def report(self, problem: EosError | None = None) -> RoundReport:
        """What was done, and what the connector has now."""
        config = read_cluster_state(self._session.kafka, self._config_topic).connectors.get(self._connector)
        after = self._described(config, self._fenced) if config and self._fenced else {}
        fenced = sorted(self._fenced.items(), key=lambda one: int(one[0].rpartition("-")[2]))
        return RoundReport(
            connector=self._connector,
            ids={
                id_: (_producer(self._before.get(id_)), (one.producer_id, one.epoch), _producer(after.get(id_)))
                for id_, one in fenced
            },
            restarted=self._restarted,
            record=config.task_count_record if config else self._planned.record,
            problem=problem,
        )

    @property
    def has_failed_tasks(self) -> bool:
        return any(task.state == "FAILED" for task in self._tasks())

    def _fence(self, change: GroupChange) -> None:
        step = f"{self._connector}: fence"
        if not self._planned.fence or change.is_done(step):
            return
        state = self._require_same_configs()
        if self._planned.restart or self._planned.awaits_record:  # a fenced task does not run again without a restart
            self._session.ask(lambda rest: rest.connector_config(self._connector))
        ids = {self._id(number): number for number in self._planned.fence}
        with change.step(step), self._kafka(state).transactions() as client:
            change.confirm(step)
            self._before = client.describe(ids)
            if not self._planned.pending:  # a task that started meanwhile has ended the transaction, and is no zombie
                held = self._planned.held
                ids = {id_: n for id_, n in ids.items() if _producer(self._before.get(id_)) == held[n]}
            self._fenced = client.fence(ids, timeout_seconds=FENCE_SECONDS)
        self._say(f"{self._connector}: {len(ids):,} transactional ids are fenced.")
        self._require_same_configs()

    def _restart(self, change: GroupChange) -> None:
        step = f"{self._connector}: restart"
        if change.is_done(step):
            return
        state = self._require_same_configs()
        restart = self._planned.restart
        if not state.pending_fencing:  # or Connect's record has come while ids were fenced: of its new tasks, perhaps
            fenced = [n for n in self._planned.fence if change.taken_up or self._id(n) in self._fenced]
            restart = to_restart(state, self._tasks(), fenced)
        if not restart:
            return
        with change.step(step):
            change.confirm(step)
            if state.pending_fencing:
                self._session.ask(lambda rest: rest.restart(self._connector, include_tasks=True, only_failed=True))
            else:
                self._session.ask(lambda rest: _restart_tasks(rest, self._connector, restart))
            self._restarted = restart
        self._say(f"{self._connector}: Connect is asked to restart {len(restart):,} tasks.")

    def _await(self, change: GroupChange) -> None:
        """Wait for what Connect owes: its record, and new producers of the tasks that were restarted."""
        up: set[int] = set()
        restarted = set(self._restarted)
        # A running task that was fenced may be reported RUNNING a while longer, then FAILED, before its successor runs.
        have_failed = restarted - set(self._planned.running)
        begun = time.monotonic()
        while True:
            missing = self._missing(self._require_same_configs())
            if not missing:
                return
            tasks = self._tasks()
            fail_now = {task.number for task in tasks if task.state == "FAILED"}
            up |= have_failed - fail_now
            have_failed |= fail_now
            if time.monotonic() >= begun + RESTARTED_SECONDS:
                up |= restarted
            failed = [task for task in tasks if task.state == "FAILED" and task.number not in restarted - up]
            if failed and (self._planned.awaits_record or {task.number for task in failed} & restarted):
                raise _not_up(self._planned, failed[0])
            if time.monotonic() >= begun + self._wait_seconds:
                raise _not_in_time(self._planned, missing, self._wait_seconds, tasks)
            change.renew()
            time.sleep(PAUSE_SECONDS)

    def _missing(self, state: ConnectorConfigState) -> str:
        """What Connect still owes, in words; empty if nothing."""
        if self._planned.awaits_record and state.pending_fencing:
            return "its task count record"
        if self._planned.target_state != "STARTED":  # a paused task takes its id when it is resumed
            return ""
        ids = {number: self._id(number) for number in self._restarted if self._id(number) in self._fenced}
        known = self._described(state, ids.values())
        left = [number for number, id_ in ids.items() if _producer(known.get(id_)) == tuple(self._fenced[id_])]
        return f"the start of {len(left)} tasks ({', '.join(map(str, left[:5]))})" if left else ""

    def _require_same_configs(self) -> ConnectorConfigState:
        """Go on only if the round is still one of the same task configs."""
        state = self._state()
        if (state.config_offset, state.commit_offset) != (self._planned.config_offset, self._planned.commit_offset):
            raise RefusedError(
                f"{self._connector} got a new configuration or new task configs during the round.",
                expected="the configurations that the plan was made from",
                remedy="Connect fences by itself before their tasks start. See 'eos fencing list', and apply it "
                "again if the round stays pending.",
            )
        return state

    def _described(self, state: ConnectorConfigState, ids: Iterable[str]) -> Mapping[str, TransactionDescription]:
        with self._kafka(state).transactions() as client:
            return client.describe(ids)

    def _kafka(self, state: ConnectorConfigState) -> Session:
        """The Kafka cluster of the connector's ids, as planned."""
        (kafka, cluster_id), planned = self._workers_kafka.of_producers(state.config), self._planned.cluster_id
        if cluster_id != planned:
            raise RefusedError(
                f"eos finds the producers of {self._connector} in the Kafka cluster {cluster_id or 'of the workers'}.",
                expected=f"{planned or 'that of the workers'}, as planned",
                remedy="Run 'eos fencing list' where the workers' files can be read.",
            )
        return kafka

    def _state(self) -> ConnectorConfigState:
        found = read_cluster_state(self._session.kafka, self._config_topic).connectors.get(self._connector)
        if found is None:
            raise RefusedError(f"The connector {self._connector} was deleted during the round.")
        return found

    def _tasks(self) -> tuple[TaskStatus, ...]:
        status = self._session.ask(lambda rest: rest.statuses()).get(self._connector)
        return status.tasks if status else ()

    def _id(self, number: int) -> str:
        return f"{self._session.cluster.group_id}-{self._connector}-{number}"


class _NotUpError(EosError):
    """A task has failed while its start was awaited."""


class _NotInTimeError(ReadTimeoutError):
    """Connect did not do its part in time."""


def _restart_tasks(rest: ConnectRest, connector: str, numbers: Iterable[int]) -> None:
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
