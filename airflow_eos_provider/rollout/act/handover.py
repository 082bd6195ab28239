"""Polls of a gate by Airflow's trigger, while the task of the roll is deferred.

A trigger cannot see the files and processes of the workers, so it checks only the group, REST and topics. It decides
and changes nothing: it resumes the task, which observes everything and decides.
"""

from __future__ import annotations

import time
from dataclasses import replace

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.rollout.act.at_gate import AtGate, look_at
from airflow_eos_provider.rollout.act.decision import no_longer_described, why_undescribed
from airflow_eos_provider.rollout.gate.conditions import SEEN_REMOTELY
from airflow_eos_provider.rollout.gate.expectation import Baseline, silent_elsewhere
from airflow_eos_provider.rollout.gate.state import GateState
from airflow_eos_provider.rollout.observe.observer import InternalTopics, Observer
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.stored import from_json

#: A lease is left to a deferred task for its longest wait, and for so many seconds more to find a process again.
COME_BACK_SECONDS = 600.0


class GateLook:
    """Looks at one gate remotely, as often as asked.

    :param task: the deferred task, to which the lease is left.
    :ivar gate: the gate after the last look, for the process that goes on.
    :ivar status_line: what is awaited, in words.
    """

    def __init__(self, cluster: ConnectCluster, gate: GateState, task: str) -> None:
        self._cluster = cluster
        self._task = task
        self._observer = Observer(cluster, remote=InternalTopics(gate.config_topic, gate.offsets_topic))
        self._observer.logs.memory = gate.memory
        self._silent: frozenset[str] = frozenset()  # at the look before: one that fails once says little
        self.gate = gate.taken_up(time.time())
        self.status_line = ""

    def look(self) -> str | None:
        """One look."""
        now = time.time()
        if now >= self.gate.look_at:
            return "the hosts are due for a check"
        try:
            content = read_journal(self._observer.session.kafka, self._cluster.group_id)
            return self._pending_request(content) or self._look(content)
        except ConfigurationError:
            raise
        except EosError as error:  # a broker that is away comes back, or time runs out
            self.status_line = f"the cluster cannot be observed now: {error.found}"
            return "the gate's deadline has passed" if now >= self.gate.deadline else None

    def _pending_request(self, content: JournalContent) -> str | None:
        request = content.requests.get(self.gate.rollout_id)
        if request is not None:
            return str(request)
        lease = content.lease
        if lease is None or not lease.belongs_to(self._task) or self.gate.rollout_id not in content.rollouts:
            return f"the journal's lease was taken over: {lease}"
        return None

    def _look(self, content: JournalContent) -> str | None:
        record = content.rollouts[self.gate.rollout_id]
        plan, baseline = Plan.from_dict(record.plan), from_json(Baseline, record.baseline)
        observation = self._observer.observe()
        missing = no_longer_described(plan, observation.workers)
        if missing:
            return why_undescribed(missing)
        steps = content.steps.get(record.rollout_id, {})
        gate, seen = look_at(self.gate, plan, steps, baseline, observation, SEEN_REMOTELY)
        self.gate = replace(gate, memory=self._observer.logs.memory)
        self.status_line = seen.answer.status_line(gate)
        silent, before = silent_elsewhere(seen.expected, observation), self._silent
        self._silent = silent
        return _reason_to_resume(gate, seen, silent & before)


def _reason_to_resume(gate: GateState, seen: AtGate, silent: frozenset[str]) -> str | None:
    """Why a process of the roll is needed, if it is."""
    if seen.answer.verdict is not None:
        return f"seen remotely, the gate's answer is {seen.answer.verdict}"
    not_looked_at = sorted(silent - set(gate.silent))
    if not_looked_at:
        return f"{', '.join(not_looked_at)} does not answer: its host must be checked"
    if seen.failed:
        return f"failed tasks may be restarted: {', '.join(seen.failed)}"
    return f"a restart of {seen.leader} would end the rebalance delay" if seen.leader else None
