"""The state of a Connect cluster as JSON, and its problems: ``eos status`` and the page print the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_eos_provider.connect.connect_session import ANSWER_SECONDS
from airflow_eos_provider.connect.group import known_group
from airflow_eos_provider.connect.transactional_ids import KnownGroup
from airflow_eos_provider.data_text import duration
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.finding import Finding
from airflow_eos_provider.journal.journal import read_journal
from airflow_eos_provider.kafka.kafka_session import Kafka, session_of
from airflow_eos_provider.kafka.topics import Topics
from airflow_eos_provider.rollout.answer import failed, inconclusive
from airflow_eos_provider.rollout.drift.contradictions import findings
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.plan.earlier_rolls import left_down
from airflow_eos_provider.transactions.audit import collision_finding, hanging_finding
from airflow_eos_provider.transactions.collisions import KafkaGroups, find_collisions
from airflow_eos_provider.transactions.hanging import STATE_TOPIC, find_hanging


def all_findings(observation: Observation, kafka: Kafka) -> tuple[Finding, ...]:
    """All problems of the cluster, then what it shares with other Connect groups."""
    return (
        *findings(observation),
        *_hanging(observation, kafka),
        *_unfinished(observation, kafka),
        *collisions(observation),
    )


def _hanging(observation: Observation, kafka: Kafka) -> Iterator[Finding]:
    """Transactions in the group's topics that no coordinator will end.

    The brokers are asked only about transactions that the observation did not find at their coordinator.
    """
    logs = observation.logs
    listed = {place for transaction in logs.open_transactions for place in transaction.partitions} if logs else set()
    places = sorted({(held.topic, held.partition) for held in logs.held} - listed) if logs else []
    if not places:
        return
    try:
        with session_of(kafka) as session:
            look = find_hanging(session, places, Topics(session).partitions().get(STATE_TOPIC, 0))
    except EosError as error:
        topics = ", ".join(sorted({topic for topic, _ in places}))
        found = f"eos cannot tell whether the open transactions in {topics} are alive: {error.found}"
        yield inconclusive(topics, found, "run 'eos transactions list --hanging' to check again")
        return
    yield from (hanging_finding(one, None) for one in look.hanging)
    unseen = dict.fromkeys((held.place for held in look.unseen), "not every coordinator could be asked")
    for (topic, partition), why in {**look.unknown, **unseen}.items():
        yield inconclusive(
            f"{topic}-{partition}",
            f"{topic}-{partition} has an open transaction, and eos cannot tell whether it is alive: {why}",
            "'eos acl check' names missing rights; run 'eos transactions list --hanging' to check again",
        )


def _unfinished(observation: Observation, kafka: Kafka) -> Iterator[Finding]:
    """Unfinished changes and rolls, by the journal."""
    try:
        journal = read_journal(kafka, observation.group_id, ANSWER_SECONDS)
    except EosError as error:
        found = f"eos cannot tell whether a change or a roll is unfinished: {error.found}"
        yield inconclusive(observation.group_id, found, error.remedy or "")
        return
    down = left_down(journal, observation)
    for worker_id, rollout_id in down.items():
        resume = f"'eos rollout resume {rollout_id}'" if journal.rollouts[rollout_id].state.is_open else "'eos plan'"
        yield failed(
            worker_id,
            f"{worker_id} is stopped by rollout {rollout_id}, and not by its owner",
            f"'eos rollout show {rollout_id}' says why; remove the cause, then {resume}",
        )
    lease = journal.lease
    by = f"; {lease} holds the group" if lease is not None and lease.is_held(observation.at) else ""
    rolls = [each for each in journal.rollouts.values() if each.state.is_open and each.rollout_id not in down.values()]
    if rolls:
        roll = max(rolls, key=lambda each: each.started_at)
        remedy = "'eos rollout show' says why; 'eos rollout resume' continues it, 'eos rollout abort' ends it"
        yield failed(
            roll.rollout_id,
            f"rollout {roll.rollout_id} to {roll.plan.get('target')} is not finished{by}",
            "wait until it has ended" if by else remedy,
        )
    change = journal.open_change
    if change is not None:
        state = observation.config.connectors.get(change.about) if observation.config else None
        stopped = f", and connector {change.about} is STOPPED" if state and state.target_state == "STOPPED" else ""
        remedy = "run its command again to resume it, or close it unfinished: 'eos changes close'"
        yield failed(
            change.about,
            f"the change {change} was begun {duration(observation.at - change.started_at)} ago and is not finished"
            f"{stopped}{by}",
            "wait until it has ended" if by else remedy,
        )


def collisions(observation: Observation) -> list[Finding]:
    """What the group shares with the other Connect groups that were seen; 'eos transactions audit' sees more."""
    connectors = None
    if observation.config is not None:
        connectors = frozenset({*observation.config.connectors, *observation.config.task_count_records})
    groups = (KnownGroup(observation.group_id, connectors), *map(known_group, observation.neighbours))
    found = find_collisions(KafkaGroups(groups))
    return [collision_finding(each) for each in found if each.is_harmful]


def to_document(observation: Observation, found: tuple[Finding, ...]) -> dict[str, Any]:
    """The same as JSON. Connector configurations are left out: they may hold secrets."""
    group = observation.group
    return {
        "group_id": observation.group_id,
        "at": observation.at,
        "took_seconds": round(observation.took_seconds, 3),
        "state": group.state if group else None,
        "protocol": group.protocol if group else None,
        "leader": observation.leader_id,
        "config_topic": observation.config_topic,
        "config_offset": observation.config.end_offset if observation.config else None,
        "workers": [_worker_document(worker, observation) for worker in observation.workers],
        "unknown_members": list(observation.unknown_members),
        "connectors": connector_documents(observation),
        "transactions": [t._asdict() for t in observation.transactions]
        if observation.transactions is not None
        else None,
        "findings": [finding.to_dict() for finding in found],
    }


def _worker_document(worker: WorkerObservation, observation: Observation) -> dict[str, Any]:
    mode = worker.mode
    member = observation.members.get(worker.worker_id)
    observed = mode.observed.runs_exactly_once
    return {
        "worker": worker.worker_id,
        "mode": str(mode.verdict),
        "reason": mode.reason,
        "declared": {"mode": mode.declared.mode and str(mode.declared.mode), "detail": mode.declared.detail},
        "running": {"mode": mode.running.mode and str(mode.running.mode), "detail": mode.running.detail},
        "observed": {"runs_exactly_once": observed, "detail": mode.observed.detail},
        "disagreements": list(mode.disagreements),
        "runs_as": worker.facts.runs_as or None,
        **worker.facts.details,
        "started_at": worker.started_at,
        "version": worker.root.version if worker.root else None,
        "health": worker.health.status if worker.health else None,
        "rest_problem": worker.rest_problem,
        "dead": worker in observation.lost,
        "member": member is not None,
        "leads": worker.worker_id == observation.leader_id,
        "config_offset": member.assignment.config_offset if member and member.assignment else None,
        "tasks": sorted(f"{c}-{n}" for c, n in observation.tasks_on(worker.worker_id)),
    }


def connector_documents(observation: Observation) -> list[dict[str, Any]]:
    """Every connector with its tasks, by name."""
    documents = []
    for name, seen in sorted((observation.statuses or {}).items()):
        state = observation.config.connectors.get(name) if observation.config else None
        documents.append(
            {
                "connector": name,
                "type": seen.type,
                "state": seen.state,
                "worker": seen.worker_id,
                "placed_on": observation.placed_on(name),
                "last_word": seen.worker_id in observation.silent,
                "tasks": [
                    {
                        "task": task.number,
                        "state": task.state,
                        "reported_by": task.worker_id,
                        "placed_on": observation.placed_on(name, task.number),
                        "last_word": task.worker_id in observation.silent,
                    }
                    for task in seen.tasks
                ],
                "task_count": state.task_count if state else None,
                "task_count_record": state.task_count_record if state else None,
                "pending_fencing": state.pending_fencing if state else None,
            }
        )
    return documents
