"""A gate that is waited for outside of the process that rolls: what a trigger is given, and the looks that it takes.

Where a trigger runs neither files nor processes of the workers can be seen, so it asks only what group, REST and topics
tell, and it changes nothing. Its word is no verdict: it says when a process of the roll is needed again, which looks at
everything and decides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_eos_provider.connect.cluster import ConnectCluster
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.rollout.conditions import SEEN_FROM_AFAR
from airflow_eos_provider.rollout.decision import expectation, leader_to_restart
from airflow_eos_provider.rollout.expectation import Baseline
from airflow_eos_provider.rollout.gate import GateWatch, connectors_to_heal
from airflow_eos_provider.rollout.journal import read_journal
from airflow_eos_provider.rollout.logs import Memory
from airflow_eos_provider.rollout.observer import InternalTopics, Observer
from airflow_eos_provider.rollout.plan import Plan
from airflow_eos_provider.rollout.records import JournalContent

#: Schema of a stored wait. Changing it, or a field's name, makes gates that are being waited for begin anew.
SCHEMA = 1

#: So often, in seconds, a process of the roll looks at the hosts in any case: only they show a worker that has ended.
HOST_LOOK_SECONDS = 60.0

#: A process that comes back when the gate's time is over, or nearly, has this many seconds for its own look.
LAST_LOOK_SECONDS = 30.0

#: A lease is left to a deferred task for its longest wait, and for so many seconds more to find a process again.
COME_BACK_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class GateWait:
    """A gate that has to be waited for, as plain values: stored, sent to a trigger, and brought back.

    :param worker_id: whose gate; None where the group is waited for before a restart.
    :param restarted_after: the restart that it follows, seconds since the epoch; 0 before the first one.
    :param watch: see :meth:`GateWatch.to_dict`; it has the deadline, which does not move with a deferral.
    :param memory: what is remembered of the topics, see :meth:`Memory.to_dict`.
    :param config_topic: as the workers' files say, which a trigger cannot read.
    :param offsets_topic: likewise.
    :param look_at: when a process looks at the hosts in any case, seconds since the epoch.
    :param healed: whether failed tasks were restarted at this gate; that is done once.
    :param delay_ended_for: workers on whose behalf the leader was restarted once more; that is done once each.
    """

    rollout_id: str
    worker_id: str | None
    restarted_after: float
    watch: Mapping[str, Any]
    memory: Mapping[str, Any] = field(default_factory=dict)
    config_topic: str | None = None
    offsets_topic: str | None = None
    look_at: float = 0.0
    healed: bool = False
    delay_ended_for: tuple[str, ...] = ()

    @property
    def latest_deadline(self) -> float:
        """The gate is given up by then, seconds since the epoch."""
        return float(self.watch["latest_deadline"])

    def is_for(self, worker_id: str | None, restarted_after: float) -> bool:
        return (self.worker_id, self.restarted_after) == (worker_id, restarted_after)

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "delay_ended_for": list(self.delay_ended_for)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> GateWait:
        """What :meth:`to_dict` gave.

        :raises ConfigurationError: another version of this package wrote it.
        """
        values = dict(document)
        schema = values.pop("schema", None)
        try:
            if schema != SCHEMA:
                raise ValueError(f"its schema is {schema}")
            wait = cls(**{**values, "delay_ended_for": tuple(values["delay_ended_for"])})
            GateWatch.from_dict(wait.watch)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"A gate that is waited for was stored by another version of this package: {error}.",
                expected=f"schema {SCHEMA}",
            ) from error
        return wait

    def __str__(self) -> str:
        return f"waiting for the gate of {self.worker_id}" if self.worker_id else "waiting for a calm group"


class GateLook:
    """Looks for one gate from afar, as often as asked.

    :param task: the deferred task, to which the lease is left.
    """

    def __init__(self, cluster: ConnectCluster, wait: GateWait, task: str) -> None:
        self._cluster = cluster
        self._wait = wait
        self._task = task
        self._watch = GateWatch.from_dict(wait.watch, SEEN_FROM_AFAR)
        self._observer = Observer(cluster, afar=InternalTopics(wait.config_topic, wait.offsets_topic))
        self._observer.logs.memory = Memory.from_dict(wait.memory)
        self.status_line = ""

    def look(self) -> str | None:
        """One look.

        :returns: why a process is needed; None while the gate has to be waited for.
        :raises ConfigurationError: the description of the cluster is wrong as a whole, seen from here.
        """
        now = time.time()
        if now >= self._wait.look_at:
            return "it is time to look at the hosts"
        try:
            return self._look()
        except ConfigurationError:
            raise
        except EosError as error:  # a broker that is away comes back, or time runs out
            self.status_line = f"the cluster cannot be looked at now: {error.found}"
            return "the gate's time is over" if now >= self._watch.deadline else None

    def result(self) -> GateWait:
        """The gate as it stands after these looks, for the process that goes on."""
        seen = {"watch": self._watch.to_dict(), "memory": self._observer.logs.memory.to_dict()}
        return GateWait.from_dict({**self._wait.to_dict(), **seen})

    def _look(self) -> str | None:
        content = read_journal(self._cluster.kafka, self._cluster.group_id)
        reason = self._somebody_calls(content)
        if reason:
            return reason
        record = content.rollouts[self._wait.rollout_id]
        plan, baseline = Plan.from_dict(record.plan), Baseline.from_dict(record.baseline)
        steps = content.steps.get(record.rollout_id, {})
        worker_id = self._wait.worker_id
        observation = self._observer.observe()
        expected = expectation(plan, steps, observation, baseline, worker_id)
        answer = self._watch.poll(expected, observation)
        self.status_line = self._watch.status_line()
        if answer is not None:
            return f"seen from afar, the gate's answer is {answer}"
        failed = connectors_to_heal(expected, observation)
        if failed and not self._wait.healed:
            return f"failed tasks may be healed: {', '.join(failed)}"
        if worker_id is None or worker_id in self._wait.delay_ended_for:
            return None
        leader = leader_to_restart(plan, steps, observation, expected, self._watch.delay_remaining(observation.at))
        return f"a restart of {leader} would end the rebalance delay" if leader else None

    def _somebody_calls(self, content: JournalContent) -> str | None:
        request = content.requests.get(self._wait.rollout_id)
        if request is not None:
            return str(request)
        lease = content.lease
        if lease is None or not lease.belongs_to(self._task) or self._wait.rollout_id not in content.rollouts:
            return f"the journal's lease was taken over: {lease}"
        return None
