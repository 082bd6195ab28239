"""Gathers an :class:`Observation`: hosts, REST, group, config topic and transactions, side by side.

Nothing here decides or changes anything. A part that cannot be read becomes a problem in words, never an exception,
so that one dead worker does not hide the others; only what makes the whole description wrong is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from airflow_eos_provider.connect import modes
from airflow_eos_provider.connect.cluster import ConnectCluster, WorkerDescription
from airflow_eos_provider.connect.config_log import ClusterState, read_cluster_state
from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.rest import ConnectorStatus, ConnectRest, Health, WorkerRoot
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.kafka.transactions import TransactionDescription, TransactionsClient
from airflow_eos_provider.rollout.hosts.process import HostFacts, ProcessHost
from airflow_eos_provider.rollout.log_watch import LogWatch
from airflow_eos_provider.rollout.logs import LogView
from airflow_eos_provider.rollout.observation import Observation, WorkerObservation

T = TypeVar("T")

#: States of a transaction that holds back readers.
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")

#: A part of one observation that takes longer than this is given up and named.
PART_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class InternalTopics:
    """Where the group keeps its configuration and its offsets, as the workers' files say; None where they do not."""

    config: str | None
    offsets: str | None


class Observer:
    """Looks at one cluster, as often as asked.

    :param cluster: the description of the cluster.
    :param afar: look from where the workers' hosts cannot be seen: at group, REST and these topics only. Files and
        processes are not looked for, and no mode is told.
    :ivar logs: what it remembers of the topics that the group writes.
    """

    def __init__(self, cluster: ConnectCluster, *, afar: InternalTopics | None = None) -> None:
        self.cluster = cluster
        self._afar = afar
        self.logs = LogWatch(cluster, timeout_seconds=PART_TIMEOUT_SECONDS)
        self.hosts = {worker.worker_id: ProcessHost(worker) for worker in cluster.workers}

    def observe(self) -> Observation:
        """One look at everything.

        :raises ConfigurationError: the description is wrong as a whole: no such group, not a Connect group.
        """
        facts = {worker_id: self._look_at_host(host) for worker_id, host in self.hosts.items()}
        topics = self._afar or internal_topics(facts)
        config_topic = topics.config
        with ThreadPoolExecutor(max_workers=len(self.cluster.workers) + 4) as pool:
            rest = {w.worker_id: pool.submit(self._ask_worker, w) for w in self.cluster.workers}
            group = pool.submit(_attempt, lambda: describe_group(self.cluster.kafka, self.cluster.group_id))
            config = pool.submit(_attempt, lambda: self._read_config(config_topic))
            transactions = pool.submit(_attempt, self._read_transactions)
            statuses = pool.submit(self._read_statuses)
            group_value, group_problem = group.result()
            config_value, config_problem = config.result()
            transactions_value, transactions_problem = transactions.result()
            statuses_value, statuses_problem = statuses.result()
            internal = (config_topic, topics.offsets)
            logs = pool.submit(
                _attempt, lambda: self._look_at_logs(internal, config_value, statuses_value, transactions_value)
            )
            answers = {worker_id: future.result() for worker_id, future in rest.items()}
        # The broker's memory of a transactional leader proves the present only if it is younger than every member.
        starts = [fact.running.started_at for fact in facts.values() if fact.running.started_at is not None]
        last_start = max(starts) if starts else None
        leader = group_value.leader.worker_id if group_value and group_value.leader else None
        if leader in answers and config_topic and self._afar is None:
            evidence = self._leader_evidence(config_topic, last_start)
            answers[leader].observed = modes.with_leader_evidence(answers[leader].observed, evidence)
        logs_value, logs_problem = logs.result()
        everybodys, own = transactions_value or (), None
        if transactions_value is not None:
            own = tuple(t for t in everybodys if is_of_group(t.transactional_id, self.cluster.group_id))
        workers = tuple(
            self._worker(worker, facts[worker.worker_id], answers[worker.worker_id]) for worker in self.cluster.workers
        )
        return Observation(
            at=time.time(),
            group_id=self.cluster.group_id,
            workers=workers,
            group=group_value,
            group_problem=group_problem,
            config_topic=config_topic,
            config=config_value,
            config_problem=config_problem,
            statuses=statuses_value,
            statuses_problem=statuses_problem,
            transactions=own,
            transactions_problem=transactions_problem,
            logs=logs_value,
            logs_problem=logs_problem,
        )

    def _look_at_host(self, host: ProcessHost) -> HostFacts:
        return host.observe() if self._afar is None else host.unseen()

    def _worker(self, worker: WorkerDescription, facts: HostFacts, answer: _WorkerAnswer) -> WorkerObservation:
        return WorkerObservation(
            worker=worker,
            facts=facts,
            mode=modes.judge(worker.worker_id, facts.declared, facts.running, answer.observed),
            root=answer.root,
            health=answer.health,
            rest_problem=answer.problem,
        )

    def _ask_worker(self, worker: WorkerDescription) -> _WorkerAnswer:
        answer = _WorkerAnswer()
        try:
            with ConnectRest(worker.url, self.cluster.rest, retry_seconds=0.0) as rest:
                answer.root = rest.root()
                health = rest.health()
                if health.status == "absent":
                    rest.connectors()  # before 3.9: this asks the herder's thread, too, and waits for it
                answer.health = health
                if self._afar is None:
                    answer.observed = modes.probe(rest)
        except EosError as error:  # "not Connect" among them: while a worker starts, its port answers 404 to everything
            answer.problem = error.found
        return answer

    def _read_config(self, config_topic: str | None) -> ClusterState:
        if config_topic is None:
            raise ConfigurationError(
                "The config topic is not known: the workers' properties files are not readable here or disagree.",
                remedy="Give 'config' for each worker, or 'eos status --config-topic'.",
            )
        return read_cluster_state(self.cluster.kafka, config_topic, timeout_seconds=PART_TIMEOUT_SECONDS)

    def _read_transactions(self) -> tuple[TransactionDescription, ...]:
        with TransactionsClient(self.cluster.kafka, timeout_seconds=PART_TIMEOUT_SECONDS) as client:
            wanted = [
                listed.transactional_id
                for listed in client.list()
                if listed.state in _OPEN or is_of_group(listed.transactional_id, self.cluster.group_id)
            ]
            return tuple(sorted(client.describe(wanted).values()))

    def _look_at_logs(
        self,
        internal: tuple[str | None, ...],
        config: ClusterState | None,
        statuses: dict[str, ConnectorStatus] | None,
        transactions: tuple[TransactionDescription, ...] | None,
    ) -> LogView:
        if config is None or statuses is None or transactions is None:
            raise EosError("config topic, statuses or transactions are not readable")
        open_ones = [transaction for transaction in transactions if transaction.started_at_ms is not None]
        return self.logs.look([topic for topic in internal if topic], config, statuses, open_ones)

    def _leader_evidence(self, config_topic: str, last_start: float | None) -> modes.LeaderEvidence:
        try:
            with TransactionsClient(self.cluster.kafka, timeout_seconds=PART_TIMEOUT_SECONDS) as client:
                return modes.leader_evidence(client, self.cluster.group_id, config_topic, last_start)
        except EosError as error:
            return modes.LeaderEvidence(None, f"could not be read: {error.found}")

    def _read_statuses(self) -> tuple[dict[str, ConnectorStatus] | None, str | None]:
        """From the first worker that answers: any worker knows them all."""
        problems = []
        for worker in self.cluster.workers:
            try:
                with ConnectRest(worker.url, self.cluster.rest, retry_seconds=0.0) as rest:
                    return rest.statuses(), None
            except EosError as error:
                problems.append(error.found)
        return None, "; ".join(problems)


class _WorkerAnswer:
    """What one worker's REST API said."""

    def __init__(self) -> None:
        self.root: WorkerRoot | None = None
        self.health: Health | None = None
        self.problem: str | None = None
        self.observed = modes.Observed(runs_exactly_once=None, detail="REST did not answer", leader_evidence=None)


def is_of_group(transactional_id: str, group_id: str) -> bool:
    """Whether Connect's naming gives this id to this group: its leader's, or a task's ``<group>-<connector>-<n>``."""
    if transactional_id == f"connect-cluster-{group_id}":
        return True
    return transactional_id.startswith(f"{group_id}-") and transactional_id.rpartition("-")[2].isdigit()


def _attempt(read: Callable[[], T]) -> tuple[T | None, str | None]:
    try:
        return read(), None
    except ConfigurationError:
        raise
    except EosError as error:
        return None, error.found


def internal_topics(facts: Mapping[str, HostFacts]) -> InternalTopics:
    """The topics that the workers' files agree on."""
    return InternalTopics(
        _common_property(facts, "config.storage.topic"), _common_property(facts, "offset.storage.topic")
    )


def _common_property(facts: Mapping[str, HostFacts], name: str) -> str | None:
    values = {fact.properties[name] for fact in facts.values() if name in fact.properties}
    return values.pop() if len(values) == 1 else None
