"""One observation of a Connect cluster: plain values, gathered by ``observer.py``, judged by all others.

A layer that could not be read is None and its ``…_problem`` says why; that never counts as "nothing there".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.group import Member, WorkerGroup
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.mode_evidence import WorkerMode
from airflow_eos_provider.connect.rest import ConnectorStatus, Health, WorkerRoot
from airflow_eos_provider.connect.task_failures import Failure, name_failure, transaction_timeout_ms
from airflow_eos_provider.connect.topics.config_topic import ClusterState
from airflow_eos_provider.connect.topics.internal_topics import TOPICS, SharedTopic
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.kafka.admin.transactions import TransactionDescription
from airflow_eos_provider.rollout.hosts.host import HostFacts
from airflow_eos_provider.rollout.observe.topic_progress import LogView
from airflow_eos_provider.rollout.roll_settings import rebalance_delay_ms

#: A process younger than this that does not answer yet is called starting: Connect's port answers 404 for a while.
STARTING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WorkerObservation:
    """One described worker.

    :param root: answer of ``GET /``; None if REST did not answer. Likewise ``health``, of ``GET /health``.
    :param rest_remedy: what to do where REST did not answer, if the answer says it (a certificate, credentials).
    """

    worker: WorkerDescription
    facts: HostFacts
    mode: WorkerMode
    root: WorkerRoot | None = None
    health: Health | None = None
    rest_problem: str | None = None
    rest_remedy: str | None = None

    @property
    def worker_id(self) -> str:
        return self.worker.worker_id

    @property
    def is_running(self) -> bool:
        return self.facts.is_running

    @property
    def started_at(self) -> float | None:
        return self.facts.started_at

    @property
    def is_healthy(self) -> bool:
        """REST answers, and the herder's thread with it; workers before 3.9 have no /health, there REST must do."""
        return self.root is not None and self.health is not None and self.health.status in ("healthy", "absent")

    @property
    def has_ended(self) -> bool:
        """Whether its process is known to be gone; False also where that is not known."""
        return not self.is_running and self.facts.running.alive is False

    @property
    def is_known_dead(self) -> bool:
        """No process of it runs and nothing listens at its address; not merely a process that was not found."""
        return self.facts.running.alive is False and self.root is None

    def is_young(self, now: float) -> bool:
        """Whether its process started a moment ago."""
        return self.started_at is not None and now - self.started_at < STARTING_SECONDS

    @property
    def ailment(self) -> str:
        """Why it is not healthy, as its REST API tells."""
        return self.rest_problem or f"health is {self.health.status if self.health else 'unknown'}"

    @property
    def silence_remedy(self) -> str:
        """What to do where its REST API does not answer, or refuses."""
        its_log = self.facts.read_its_log if self.facts.log or not self.rest_remedy else ""
        return "; ".join(filter(None, [(self.rest_remedy or "").rstrip("."), its_log]))

    @property
    def mode_remedy(self) -> str:
        """What would prove its mode, where that is unknown."""
        if self.facts.mode_remedy:
            return self.facts.mode_remedy
        if self.root is None:
            return f"it has to answer at {self.worker.url}: {self.facts.read_its_log}"
        return (
            f"compare what the evidence says; if its log {self.facts.log} no longer reaches back to its start, a "
            "restart that is logged there proves the mode"
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """The whole cluster at one look.

    The parts of a look are not of one moment. What a condition needs to have held *since* counts from :attr:`at` (by
    then all was seen), what it needs to have held *until* ends at :attr:`begun_at`: nothing is known to be younger.

    :param at: when the look was complete, seconds since the epoch, by this machine's clock.
    :param config: the config topic, replayed.
    :param statuses: connectors and tasks as one worker's REST API reports them, by connector.
    :param transactions: the group's own transactional ids.
    :param neighbours: the other Connect groups of this Kafka cluster; empty too where they could not be listed.
    :param aliases: by advertised worker id, the described worker that is the same port under another name.
    :param described_topics: the internal topics that the cluster description names, by the workers' properties.
    :param took_seconds: from the beginning of its first part to :attr:`at`.
    """

    at: float
    group_id: str
    workers: tuple[WorkerObservation, ...]
    group: WorkerGroup | None = None
    group_problem: str | None = None
    config_topic: str | None = None
    config: ClusterState | None = None
    config_problem: str | None = None
    statuses: Mapping[str, ConnectorStatus] | None = field(default=None, repr=False)
    statuses_problem: str | None = None
    transactions: tuple[TransactionDescription, ...] | None = None
    transactions_problem: str | None = None
    logs: LogView | None = None
    logs_problem: str | None = None
    neighbours: tuple[WorkerGroup, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    described_topics: Mapping[str, str] = field(default_factory=dict)
    took_seconds: float = 0.0

    @property
    def begun_at(self) -> float:
        """When its first part was begun, seconds since the epoch: its oldest part may be as old as this."""
        return self.at - self.took_seconds

    @property
    def topics(self) -> tuple[SharedTopic, ...]:
        """What is known of the internal topics that all workers must have in common."""
        return shared_topics({worker.worker_id: worker.facts for worker in self.workers}, self.described_topics)

    def worker(self, worker_id: str) -> WorkerObservation:
        """What was seen of a described worker."""
        for worker in self.workers:
            if worker.worker_id == worker_id:
                return worker
        raise ConfigurationError(
            f"The cluster description does not have {worker_id}.", remedy="Put it back, or make a new plan."
        )

    @property
    def members(self) -> dict[str, Member]:
        """Members of the group by worker id; empty if the group could not be read.

        While it rebalances the broker reports no addresses. Such a member is left out then: it is not known who it is,
        which does not make it an unknown member.
        """
        if self.group is None:
            return {}
        return {m.worker_id: m for m in self.group.members if m.url or self.group.is_stable}

    @property
    def leader_id(self) -> str | None:
        """Worker id of the leader, if all members agree on one."""
        leader = self.group.leader if self.group else None
        return leader.worker_id if leader else None

    @property
    def unknown_members(self) -> tuple[str, ...]:
        """Members that the cluster description does not have."""
        described = {worker.worker_id for worker in self.workers}
        return tuple(sorted(set(self.members) - described))

    @property
    def stopped(self) -> tuple[WorkerObservation, ...]:
        """Described workers that do not run: no process is found, nothing answers, and they are no members.

        Where the members are not known, only a process that is known to have ended counts. An answer outweighs both:
        the worker may be a member under another name than the one that it is described by.
        """
        members = self.members
        knows_members = self.group is not None and len(members) == len(self.group.members)
        return tuple(
            w
            for w in self.workers
            if not (w.is_running or w.root or w.worker_id in members) and (knows_members or w.is_known_dead)
        )

    @property
    def not_stopped(self) -> tuple[WorkerObservation, ...]:
        stopped = self.stopped
        return tuple(worker for worker in self.workers if worker not in stopped)

    @property
    def nameless(self) -> tuple[WorkerObservation, ...]:
        """Described workers that answer, though no process of them is found and no member has their address."""
        if self.group is None or not self.group.is_stable:
            return ()
        return tuple(
            w
            for w in self.workers
            if w.root
            and not w.is_running
            and w.worker_id not in self.members
            and w.worker_id not in self.aliases.values()
        )

    @property
    def lost(self) -> tuple[WorkerObservation, ...]:
        """Described workers that are dead, while the group still counts them as members."""
        members = self.members
        return tuple(w for w in self.workers if w.is_known_dead and w.worker_id in members)

    @property
    def silent(self) -> frozenset[str]:
        """Described workers whose REST API does not answer: what they have reported is the last that is known."""
        return frozenset(worker.worker_id for worker in self.workers if worker.root is None)

    @property
    def url_only(self) -> tuple[WorkerObservation, ...]:
        """Workers of which nothing but the address is described: no file, no process and no log can be looked at."""
        return tuple(worker for worker in self.workers if worker.worker.is_url_only)

    @property
    def rebalance_delay_ms(self) -> int:
        """How long tasks of a worker that left may stay unassigned: the leader's setting, or the longest if unknown."""
        leader = self.leader_id
        delays = {w.worker_id: rebalance_delay_ms(w.facts.properties) for w in self.workers}
        if leader in delays:
            return delays[leader]
        return max(delays.values(), default=0)

    def tasks_on(self, worker_id: str) -> frozenset[tuple[str, int]]:
        """Tasks placed on this worker; empty if the placement cannot be known."""
        placement = self.group.placement if self.group else None
        if placement is None or worker_id not in placement:
            return frozenset()
        return placement[worker_id].tasks

    def placed_on(self, connector: str, number: int | None = None) -> list[str] | None:
        """Workers that the group has placed this connector, or this task of it, on; None if that cannot be known."""
        placement = self.group.placement if self.group else None
        if placement is None:
            return None
        if number is None:
            return sorted(w for w, placed in placement.items() if connector in placed.connectors)
        return sorted(w for w, placed in placement.items() if (connector, number) in placed.tasks)

    def should_run(self, connector: str, number: int | None = None) -> bool:
        """Whether the config topic has this connector, neither paused nor stopped, and this task in its task set.

        True if it could not be read.
        """
        if self.config is None:
            return True
        state = self.config.connectors.get(connector)
        if state is None or state.target_state != "STARTED":
            return False
        return number is None or number < (state.task_count or 0)

    def failure_of(self, connector: str, number: int) -> Failure:
        """Why this failed task has failed, as far as its trace and its transactional id tell."""
        task = next(task for task in (self.statuses or {})[connector].tasks if task.number == number)
        transactional_id = f"{self.group_id}-{connector}-{number}"
        known = {t.transactional_id: t for t in self.transactions or ()}
        state = self.config.connectors.get(connector) if self.config else None
        worker = next((w for w in self.workers if w.worker_id == task.worker_id), None)
        own_timeout_ms = None
        if state is not None and worker is not None:
            own_timeout_ms = transaction_timeout_ms(state.config, worker.facts.properties)
        return name_failure(task.trace, known.get(transactional_id), own_timeout_ms)

    def mode_of(self, worker_id: str) -> Mode | None:
        return self.worker(worker_id).mode.verdict.mode


def shared_topics(facts: Mapping[str, HostFacts], described: Mapping[str, str]) -> tuple[SharedTopic, ...]:
    """Config, offsets and status topic of a group, by what is known of its workers' properties."""
    known = {worker_id: fact.properties for worker_id, fact in facts.items() if fact.properties}
    return tuple(SharedTopic.of(name, known, described.get(name, "")) for name in TOPICS)
