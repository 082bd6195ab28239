"""Observes a cluster and plans its roll: whether it may be rolled, what changes, whether a plan still fits.

Nothing here changes the cluster or the journal; :mod:`~airflow_eos_provider.rollout.controller` carries a plan out.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Self

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import ConfigurationError, PlanMovedError
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.journal.records import RolloutRecord, RolloutState
from airflow_eos_provider.preflight.collect_facts import Scope, look
from airflow_eos_provider.preflight.preflight_report import Report
from airflow_eos_provider.rollout.hosts.choose import HostFactory, host_of
from airflow_eos_provider.rollout.observe.client_clusters import client_clusters
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.rollout.observe.rights_look import added_rights
from airflow_eos_provider.rollout.plan import obstacles
from airflow_eos_provider.rollout.plan.earlier_rolls import left_down, temporary_isolation
from airflow_eos_provider.rollout.plan.obstacles import Preflight, begins_exactly_once, stops_no_task
from airflow_eos_provider.rollout.plan.roll_plan import ConnectorNotes, Plan, make_plan, next_target
from airflow_eos_provider.rollout.plan.worker_edits import properties_to_set
from airflow_eos_provider.rollout.roll_settings import RolloutSettings

#: How long planning waits for a rebalance that happens to be under way.
STABLE_SECONDS = 20.0

#: All questions to the workers about connectors take no longer, seconds: whoever makes a plan waits for it.
CONNECTORS_SECONDS = 20.0


class Planner:
    """Plans the rolls of one cluster; a context manager."""

    def __init__(
        self,
        cluster: ConnectCluster,
        *,
        settings: RolloutSettings = RolloutSettings(),  # noqa: B008 (frozen)
        hosts: HostFactory = host_of,
    ) -> None:
        self.cluster = cluster
        self.observer = Observer(cluster, hosts=hosts)
        self.settings = settings
        self._searched: Observation | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.observer.session.close()

    def read_journal(self) -> JournalContent:
        return read_journal(self.observer.session.kafka, self.cluster.group_id)

    def observe(self) -> Observation:
        """A look at the cluster whose parts fit together, as far as that comes within some seconds."""
        return self.observer.observe_settled()

    def observe_stable(self) -> Observation:
        """One look at a moment without a rebalance, if there is one within :data:`STABLE_SECONDS`."""
        deadline = time.monotonic() + STABLE_SECONDS
        observation = self.observe()
        while not (observation.group and observation.group.is_stable) and time.monotonic() < deadline:
            if observation.group is None or not observation.group.members:
                break
            time.sleep(self.settings.poll_interval_seconds)
            observation = self.observe()
        return observation

    def preflight(self, target: Mode) -> Preflight:
        """Every preflight check of a roll to ``target``, answered. A rebalance under way is waited for.

        Where workers belong to a managed service, that is the only answer: its brokers need not even be asked.
        """
        own = obstacles.own_workers(self.cluster.workers)
        if not own.passed:
            return Preflight(target, (own,))
        content, observation = self.read_journal(), self.observe_stable()
        result = self._check(observation, target, content)
        report = self._connectors(observation, target) if result.passed else None
        return result if report is None else replace(result, checks=(*result.checks, stops_no_task(report)))

    def plan(self, target: Mode | None = None) -> Plan:
        """What a roll would change."""
        Preflight(target or Mode.PREPARING, (obstacles.own_workers(self.cluster.workers),)).require()
        observation = self.observe_stable()
        wanted = target or next_target(observation)
        content = self.read_journal()
        result = self._check(observation, wanted, content)
        result.require()
        plan = self._plan_from(observation, wanted, content)
        report = self._connectors(observation, wanted)
        if report is None:
            return plan
        replace(result, checks=(stops_no_task(report),)).require()
        return replace(plan, connectors=ConnectorNotes.of(report))

    def find_plan(self, hash_prefix: str) -> Plan:
        """The plan with this hash: one that the journal has as unfinished, or one that fits what is seen now.

        One look serves the plans of all modes, and whatever is asked next: see :meth:`look_of_search`.
        """
        content = self.read_journal()
        own = [r for r in content.rollouts.values() if str(r.plan.get("hash", "")).startswith(hash_prefix)]
        newest_first = sorted(own, key=lambda r: r.started_at, reverse=True)
        for record in newest_first:
            if content.unfinished(record.plan["hash"]):
                content.require_understood(record)
                return Plan.from_dict(record.plan)
        observation = self._searched = self.observe_stable()
        unplannable: ConfigurationError | None = None
        for target in Mode:
            try:
                plan = self._plan_from(observation, target, content)
            except ConfigurationError as error:  # a configuration that already has one mode, and cannot get another
                unplannable = unplannable or error
                continue
            if plan.hash.startswith(hash_prefix):
                return plan
        for record in newest_first:  # done already: apply reports that, if it still holds
            plan = Plan.from_dict(record.plan)
            if self.still_done(plan, content, observation) is not None:
                return plan
        if unplannable is not None:
            raise unplannable
        raise PlanMovedError(
            f"Plan {hash_prefix} no longer fits the cluster: "
            "configurations, modes, versions or the roster have changed since it was made.",
            remedy="Make a new plan with 'eos plan' and review it.",
        )

    def replan(self, target: Mode) -> Plan:
        """A plan from what is seen now, whether it may be applied or not; to compare an older one with."""
        return self._plan_from(self.look_of_search(), target, self.read_journal())

    def verify(self, target: Mode) -> Preflight:
        """Prove that every running member is in ``target``, and that no roll has left a worker down."""
        content, observation = self.read_journal(), self.observe_stable()
        result = obstacles.verify(observation, target, left_down(content, observation))
        result.require()
        return result

    def look_of_search(self) -> Observation:
        """The look of :meth:`find_plan`, if that was just now, otherwise a new one; for answers without a lease.

        What counts for a roll is seen once more under the lease, and right before each act.
        """
        searched, self._searched = self._searched, None
        if searched is not None and time.time() - searched.at < STABLE_SECONDS:
            return searched
        return self.observe_stable()

    def require_unmoved(self, plan: Plan, observation: Observation, content: JournalContent) -> None:
        """Go on only if the cluster is as planned, and may still be rolled."""
        plan.require_unmoved(self._plan_from(observation, plan.target, content))
        self._check(observation, plan.target, content).require()

    def still_done(self, plan: Plan, content: JournalContent, observation: Observation) -> RolloutRecord | None:
        """The last rollout of this plan, if it is done and still holds."""
        record = content.last_of(plan.hash)
        if record is None or record.state is not RolloutState.DONE:
            return None
        if not self._plan_from(observation, plan.target, content).nothing_to_do:
            return None  # the cluster was changed since: the plan is refused for what has moved
        return record

    def _check(self, observation: Observation, target: Mode, content: JournalContent) -> Preflight:
        session, clients = self.observer.session, None
        if begins_exactly_once(observation, target):
            clients = client_clusters(session.kafka, session.other_kafka, observation)
        acls = added_rights(session.kafka, observation, target)
        return obstacles.check(observation, target, self.settings, left_down(content, observation), clients, acls)

    def _connectors(self, observation: Observation, target: Mode) -> Report | None:
        """What the mode does to the connectors; None where this roll is not the one that begins exactly-once."""
        if not begins_exactly_once(observation, target):
            return None
        return Report.of(look(self.observer.session, target, Scope(seconds=CONNECTORS_SECONDS, readers=False)))

    def _plan_from(self, observation: Observation, target: Mode, content: JournalContent) -> Plan:
        digests = {}
        # What a roll has set for the way, and this one may put back.
        temporary = temporary_isolation(content, observation) if target.runs_exactly_once_tasks else {}
        for worker in observation.workers:
            facts = worker.facts
            properties = properties_to_set(facts, target, temporary.get(worker.worker_id))
            if facts.problem:
                digests[worker.worker_id] = ""
            elif not properties:
                digests[worker.worker_id] = facts.digest or ""
            else:
                digests[worker.worker_id] = self.observer.hosts[worker.worker_id].digest_with(properties)
        return make_plan(observation, target, digests, temporary, left_down(content, observation))
