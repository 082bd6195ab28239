"""Gathers an :class:`Observation`: hosts, REST, group, config topic and transactions, all at once.

Nothing here decides or changes anything. A part that cannot be read becomes a problem in words, never an exception,
so that one dead worker does not hide the others; an exception is raised only if the cluster description is wrong. An
observation has a time limit: a part that hangs is given up then, however many workers there are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, Self, TypeVar

from airflow_eos_provider.connect import mode_evidence
from airflow_eos_provider.connect.cluster.description import ConnectCluster, WorkerDescription
from airflow_eos_provider.connect.connect_session import ANSWER_SECONDS, ConnectSession
from airflow_eos_provider.connect.group import WorkerGroup, describe_group, known_group, other_groups
from airflow_eos_provider.connect.rest import ConnectorStatus, Health, WorkerRoot
from airflow_eos_provider.connect.topics.config_topic import ClusterState, config_follower, read_cluster_state
from airflow_eos_provider.connect.transactional_ids import is_of_group, leader_id
from airflow_eos_provider.data_text import first_few
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.rollout.hosts.address import is_same_port
from airflow_eos_provider.rollout.hosts.choose import HostFactory, host_of
from airflow_eos_provider.rollout.hosts.host import HostFacts
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation, shared_topics
from airflow_eos_provider.rollout.observe.reported_states import unsettled
from airflow_eos_provider.rollout.observe.topic_progress import LogView
from airflow_eos_provider.rollout.observe.topic_watch import LogWatch

T = TypeVar("T")

#: One look takes at most so many seconds; what has not come by then is given up and named.
LOOK_SECONDS = 20.0

#: The hosts, which are looked at side by side, get so many seconds of them: a machine that is far or busy takes several
#: to let a command begin. What is read after them, for they name it, has the rest.
HOSTS_SECONDS = 12.0

#: A look whose parts do not fit together is repeated for so many seconds.
SETTLE_SECONDS = 10.0

#: It is repeated so often at least, however slow it was: what a look has found out about a machine (its programs, what
#: sudo allows) the next one need not ask for, so on a busy machine each comes further than the one before.
LEAST_LOOKS = 3
_PAUSE_SECONDS = 1.0

#: The first read of a large config topic is gone on with for so many seconds, look by look.
FIRST_READ_SECONDS = 300.0

#: The other groups of the Kafka cluster are as old as this at most, seconds.
NEIGHBOURS_SECONDS = 30.0

#: What is asked last needs so many seconds of them.
LAST_PART_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class InternalTopics:
    """Where the group keeps its configuration and its offsets, as the workers say; None where they do not."""

    config: str | None
    offsets: str | None


class Observer:
    """Looks at one cluster, as often as asked; a context manager.

    :param remote: look from where the workers' hosts cannot be seen: at group, REST and these topics only. Files and
        processes are not looked for, and no mode is determined.
    """

    def __init__(
        self, cluster: ConnectCluster, *, remote: InternalTopics | None = None, hosts: HostFactory = host_of
    ) -> None:
        self.cluster = cluster
        self.session = ConnectSession(cluster, answer_seconds=ANSWER_SECONDS)
        self._remote = remote
        self.logs = LogWatch(self.session, timeout_seconds=ANSWER_SECONDS)
        self.hosts = {worker.worker_id: hosts(worker) for worker in cluster.workers}
        self._looking = {worker_id: threading.Lock() for worker_id in self.hosts}
        self._config_topic: str | None = None
        self._neighbours: tuple[WorkerGroup, ...] = ()
        self._neighbours_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def observe(self) -> Observation:
        """One look at everything, within :data:`LOOK_SECONDS`."""
        # One thread a worker for its host, one for its REST API: they wait, they do not work.
        pool = ThreadPoolExecutor(max_workers=2 * len(self.cluster.workers) + 8, thread_name_prefix="look")
        try:
            return _Look(self, pool).gather()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # what hangs ends at its own limit, unseen

    def observe_settled(self, *, seconds: float = SETTLE_SECONDS) -> Observation:
        """A look whose parts fit together; if they do not within ``seconds``, the last one: then that is a finding.

        A task that starts, a rebalance between two parts, a worker that was held up: a moment later that is over.
        """
        begun = time.monotonic()
        settled_by: float | None = None
        looks = 0
        while True:
            read_before = self._config_position()
            observation = self.observe()
            now = time.monotonic()
            is_reading_on = observation.config is None and self._config_position() > read_before
            if is_reading_on and now - begun < FIRST_READ_SECONDS:
                continue  # a config topic of millions: each look reads on
            looks += 1
            settled_by = settled_by or now + seconds
            if not unsettled(observation) or (now >= settled_by and looks >= LEAST_LOOKS):
                return observation
            time.sleep(_PAUSE_SECONDS)

    def _config_position(self) -> int:
        topic = self._config_topic
        return self.session.kafka.follower(config_follower, topic).position if topic is not None else 0

    def neighbours(self) -> tuple[WorkerGroup, ...]:
        """The other Connect groups of the Kafka cluster; they are asked for twice a minute, for each is described."""
        if time.monotonic() - self._neighbours_at > NEIGHBOURS_SECONDS:
            others = other_groups(self.session.kafka, self.cluster.group_id, ANSWER_SECONDS)
            self._neighbours = tuple(each for each in others if each.is_described)
            self._neighbours_at = time.monotonic()
        return self._neighbours

    def look_at_host(self, worker_id: str) -> HostFacts:
        """What one worker's host reports.

        An earlier look that was given up and goes on is waited for: a busy machine would have to answer both.
        """
        host = self.hosts[worker_id]
        if self._remote is not None:
            return host.unseen("its host is not checked from here")
        looking = self._looking[worker_id]
        if not looking.acquire(timeout=HOSTS_SECONDS):
            return host.unseen(f"an earlier check of its host has not ended within {HOSTS_SECONDS:g} s")
        try:
            return host.observe()
        finally:
            looking.release()

    def topics(self, facts: Mapping[str, HostFacts]) -> InternalTopics:
        """The group's internal topics."""
        return self._remote or internal_topics(facts, self.cluster.topics)

    @property
    def sees_hosts(self) -> bool:
        return self._remote is None

    def read_config(self, config_topic: str | None, timeout_seconds: float) -> ClusterState:
        """The config topic; only what has come since the last look is read."""
        if config_topic is None:
            raise EosError(
                "The config topic cannot be determined: the workers' configurations are not readable here, or disagree."
            )
        self._config_topic = config_topic
        return read_cluster_state(self.session.kafka, config_topic, timeout_seconds)


@dataclass(frozen=True, slots=True)
class _Part(Generic[T]):
    """One part of a look; without a value, the problem says why."""

    value: T | None
    problem: str | None = None


class _Look:
    """One look: all parts are begun at once, or as soon as what they need is there."""

    def __init__(self, observer: Observer, pool: ThreadPoolExecutor) -> None:
        self._observer = observer
        self._cluster = observer.cluster
        self._pool = pool
        self._begun = time.monotonic()
        self._ends = self._begun + LOOK_SECONDS
        #: Workers in the order in which they answer; None for each that does not.
        self._answering: SimpleQueue[WorkerDescription | None] = SimpleQueue()
        self._healthy: list[WorkerDescription] = []
        self._answers = {worker.worker_id: _WorkerAnswer() for worker in self._cluster.workers}

    def gather(self) -> Observation:
        """All parts, put together."""
        cluster, observer = self._cluster, self._observer
        looking = {w.worker_id: self._pool.submit(observer.look_at_host, w.worker_id) for w in cluster.workers}
        answering = {w.worker_id: self._pool.submit(self._ask_worker, w) for w in cluster.workers}
        group_asked = self._pool.submit(describe_group, observer.session.kafka, cluster.group_id, ANSWER_SECONDS)
        open_asked = self._pool.submit(self._open_transactions)
        statuses_asked = self._pool.submit(self._read_statuses)
        neighbours_asked = self._pool.submit(observer.neighbours) if observer.sees_hosts else None
        facts = {worker_id: self._facts(worker_id, future) for worker_id, future in looking.items()}
        topics = observer.topics(facts)
        config_asked = self._pool.submit(observer.read_config, topics.config, self._seconds_left() - LAST_PART_SECONDS)
        group = self._take(group_asked, "the group")
        evidence = self._begin_leader_evidence(group.value, topics.config, facts)
        config = self._take(config_asked, "the config topic")
        statuses = self._take(statuses_asked, "the statuses of the connectors")
        known = self._known_ids(config.value, statuses.value)
        # They go by another client library and other ACLs than all else, so a refusal here says nothing of the rest.
        seen = self._take(
            self._pool.submit(self._read_transactions, open_asked, known), "the transactions", is_refused_alone=True
        )
        transactions = seen.value and seen.value.described
        internal = (topics.config, topics.offsets)
        logs_asked = self._pool.submit(self._look_at_logs, internal, config.value, statuses.value, transactions)
        answers = {worker_id: self._answer(worker_id, future) for worker_id, future in answering.items()}
        if evidence is not None:
            leader_id, future = evidence
            part = self._take(future, "the leader's transactions", is_refused_alone=True)
            reported = part.value or mode_evidence.LeaderEvidence(None, f"could not be read: {part.problem}")
            answers[leader_id].observed = replace(answers[leader_id].observed, leader_evidence=reported)
        logs = self._take(logs_asked, "the topics that the group writes")
        # A principal that may not describe them sees none: then only what they report gives them away.
        neighbours = self._take(neighbours_asked, "the other groups").value if neighbours_asked else None
        own = None
        if transactions is not None:
            others = [known_group(each) for each in neighbours or ()]
            names = {*config.value.connectors, *config.value.task_count_records} if config.value else ()
            own = tuple(t for t in transactions if is_of_group(t.transactional_id, cluster.group_id, others, names))
        return Observation(
            at=time.time(),
            group_id=cluster.group_id,
            workers=tuple(self._worker(w, facts[w.worker_id], answers[w.worker_id]) for w in cluster.workers),
            group=group.value,
            group_problem=group.problem,
            config_topic=topics.config,
            config=config.value,
            config_problem=config.problem,
            statuses=statuses.value,
            statuses_problem=statuses.problem,
            transactions=own,
            transactions_problem=seen.problem or self._hidden(seen.value, config.value),
            logs=logs.value,
            logs_problem=logs.problem,
            neighbours=neighbours or (),
            aliases=self._aliases(group.value),
            described_topics=cluster.topics,
            took_seconds=time.monotonic() - self._begun,
        )

    def _seconds_left(self) -> float:
        return max(0.0, self._ends - time.monotonic())

    def _take(self, future: Future[T], what: str, *, is_refused_alone: bool = False) -> _Part[T]:
        """A part's value, or in words why there is none."""
        try:
            return _Part(future.result(timeout=self._seconds_left()))
        except EosError as error:
            if isinstance(error, ConfigurationError) and not is_refused_alone:
                raise
            return _Part(None, error.found)
        except TimeoutError:
            return _Part(None, f"{what} could not be read within {LOOK_SECONDS:g} s")

    def _facts(self, worker_id: str, future: Future[HostFacts]) -> HostFacts:
        try:
            return future.result(timeout=max(0.0, self._begun + HOSTS_SECONDS - time.monotonic()))
        except TimeoutError:  # a file system that hangs, for one
            why = f"its host could not be checked within {HOSTS_SECONDS:g} s"
            return self._observer.hosts[worker_id].unseen(why)

    def _answer(self, worker_id: str, future: Future[None]) -> _WorkerAnswer:
        try:
            future.result(timeout=self._seconds_left())
            return self._answers[worker_id]
        except TimeoutError:
            so_far = copy(self._answers[worker_id])  # its thread goes on with the other one
            so_far.problem = f"{worker_id} did not answer everything within {LOOK_SECONDS:g} s"
            so_far.remedy = None
            return so_far

    def _worker(self, worker: WorkerDescription, facts: HostFacts, answer: _WorkerAnswer) -> WorkerObservation:
        return WorkerObservation(
            worker=worker,
            facts=facts,
            mode=mode_evidence.judge(worker.worker_id, facts.declared, facts.running, answer.observed),
            root=answer.root,
            health=answer.health,
            rest_problem=answer.problem,
            rest_remedy=answer.remedy,
        )

    def _aliases(self, group: WorkerGroup | None) -> dict[str, str]:
        """Members that the description has under another name of the same address."""
        members = {member.worker_id: member.url for member in group.members if member.url} if group else {}
        described = {worker.worker_id: worker.url for worker in self._cluster.workers}
        return {
            member: worker
            for member, member_url in members.items()
            for worker, worker_url in described.items()
            if member not in described and worker not in members and is_same_port(member_url, worker_url)
        }

    def _ask_worker(self, worker: WorkerDescription) -> None:
        answer = self._answers[worker.worker_id]
        healthy: WorkerDescription | None = None
        try:
            with self._observer.session.rest(worker.url, give_up_at=self._ends) as rest:
                answer.root = rest.root()
                answer.observed = replace(answer.observed, detail="REST answers", has_answered=True)
                health = rest.health()
                if health.status == "absent":
                    rest.connectors()  # before 3.9: this asks the herder's thread, too, and waits for it
                answer.health = health
                if health.status in ("healthy", "absent"):
                    healthy = worker
                    self._healthy.append(worker)
                    self._answering.put(worker)
                if self._observer.sees_hosts:
                    answer.observed = replace(mode_evidence.probe(rest), has_answered=True)
        except EosError as error:  # "not Connect" among them: while a worker starts, its port answers 404 to everything
            answer.problem, answer.remedy = error.found, error.remedy
        finally:
            if healthy is None:
                self._answering.put(None)

    def _read_statuses(self) -> dict[str, ConnectorStatus]:
        """From the first worker that answers: any worker knows them all, and one that hangs holds no other up."""
        problems = []
        for worker in (*self._as_they_answer(), *self._unwell()):
            try:
                with self._observer.session.rest(worker.url, give_up_at=self._ends) as rest:
                    return rest.statuses()
            except EosError as error:
                problems.append(error.found)
        raise EosError("; ".join(problems[:3]) or "No worker answers, so connectors and tasks are unknown.")

    def _as_they_answer(self) -> Iterator[WorkerDescription]:
        for _ in self._cluster.workers:
            try:
                worker = self._answering.get(timeout=self._seconds_left())
            except Empty:
                return
            if worker is not None:
                yield worker

    def _unwell(self) -> Iterator[WorkerDescription]:
        """Workers that answer, though their herder does not: what they have read is better than nothing."""
        for worker in self._cluster.workers:
            if worker not in self._healthy and self._answers[worker.worker_id].root is not None:
                yield worker

    def _open_transactions(self) -> tuple[str, ...]:
        """The ids of all open transactions of the Kafka cluster."""
        with self._observer.session.kafka.transactions() as client:
            return tuple(listed.transactional_id for listed in client.list(open_only=True))

    def _known_ids(self, config: ClusterState | None, statuses: Mapping[str, ConnectorStatus] | None) -> frozenset[str]:
        """The ids of the leader and of the tasks that exist: a cluster may have any number of others."""
        tasks = {(name, task.number) for name, status in (statuses or {}).items() for task in status.tasks}
        for name, state in (config.connectors if config else {}).items():
            tasks |= {(name, n) for n in range(max(state.task_count or 0, state.task_count_record or 0))}
        group_id = self._cluster.group_id
        return frozenset({leader_id(group_id), *(f"{group_id}-{name}-{number}" for name, number in tasks)})

    def _read_transactions(self, open_asked: Future[tuple[str, ...]], known: frozenset[str]) -> _Transactions:
        """What the coordinators know of the open transactions and of these ids; no others are described."""
        opened = open_asked.result()
        with self._observer.session.kafka.transactions() as client:
            visible = client.may_describe(sorted(known))
            return _Transactions(tuple(sorted(client.describe({*opened, *visible}).values())), known - visible)

    def _hidden(self, seen: _Transactions | None, config: ClusterState | None) -> str | None:
        """Which of the tasks' ids the principal may not see; None if there are none.

        Only those count that a fencing round has made known to the brokers; in a group that was never enabled none is.
        """
        if seen is None or config is None:
            return None
        counts = {name: state.task_count_record or 0 for name, state in config.connectors.items()}
        fenced = {f"{self._cluster.group_id}-{name}-{n}" for name, count in counts.items() for n in range(count)}
        hidden = sorted(fenced & seen.hidden)
        if not hidden:
            return None
        who = self._observer.session.kafka.settings.who
        return f"{who} may not see the transactions of {first_few(hidden)} (Describe on TransactionalId)"

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
        topics = [topic for topic in internal if topic]
        return self._observer.logs.look(topics, config, statuses, open_ones, answering=tuple(self._healthy))

    def _begin_leader_evidence(
        self, group: WorkerGroup | None, config_topic: str | None, facts: Mapping[str, HostFacts]
    ) -> tuple[str, Future[mode_evidence.LeaderEvidence]] | None:
        leader = group.leader.worker_id if group and group.leader else None
        if leader not in self._answers or config_topic is None or not self._observer.sees_hosts:
            return None
        # The broker's memory of a transactional leader proves the present only if it is younger than every member.
        starts = [fact.running.started_at for fact in facts.values() if fact.running.started_at is not None]
        last_start = max(starts) if starts else None
        return leader, self._pool.submit(self._leader_evidence, config_topic, last_start)

    def _leader_evidence(self, config_topic: str, last_start: float | None) -> mode_evidence.LeaderEvidence:
        with self._observer.session.kafka.transactions() as client:
            return mode_evidence.leader_evidence(client, self._cluster.group_id, config_topic, last_start)


class _Transactions(NamedTuple):
    """What is known of transactions, and the ids that the principal may not describe, whether they exist or not."""

    described: tuple[TransactionDescription, ...]
    hidden: frozenset[str]


@dataclass(slots=True)
class _WorkerAnswer:
    """What one worker's REST API said."""

    root: WorkerRoot | None = None
    health: Health | None = None
    problem: str | None = None
    remedy: str | None = None
    observed: mode_evidence.Observed = mode_evidence.Observed(None, "REST did not answer", None)  # noqa: RUF009 (frozen)


def internal_topics(facts: Mapping[str, HostFacts], described: Mapping[str, str]) -> InternalTopics:
    """The topics that the workers' configurations and the cluster description agree on."""
    config, offsets, _ = shared_topics(facts, described)
    return InternalTopics(config.name or None, offsets.name or None)
