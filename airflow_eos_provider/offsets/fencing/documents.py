"""The fencing of a group as JSON, for the command line and the page."""

from __future__ import annotations

from typing import Any

from airflow_eos_provider.offsets.fencing.look import FenceId, FenceLook
from airflow_eos_provider.offsets.fencing.plan import Decision, FencePlan


def fence_document(seen: FenceLook, decision: Decision, unfinished: FencePlan | None = None) -> dict[str, Any]:
    """A look and its plan as JSON. Scripts rely on the names."""
    rounds = {round_.connector: round_ for round_ in decision.rounds}
    return {
        "group_id": seen.group_id,
        "kafka_cluster_id": seen.kafka_cluster_id,
        "at": seen.at,
        "workers_enabled": dict(seen.enabled),
        "unused": decision.unused or None,
        "connectors": [
            {
                "connector": each.name,
                "target_state": each.state.target_state,
                "pending_fencing": each.state.pending_fencing,
                "task_count_record": each.state.task_count_record,
                "task_count_record_offset": each.state.task_count_record_offset,
                "tasks": each.state.task_count,
                "task_configs_offset": each.state.commit_offset,
                "why": rounds[each.name].why,
                "fence": list(rounds[each.name].fence),
                "restart": list(rounds[each.name].restart),
                "running": list(rounds[each.name].running),
                "awaits_record": rounds[each.name].awaits_record,
                "ids": [_id_document(one) for one in each.ids],
            }
            for each in seen.connectors
            if each.name in rounds
        ],
        "nothing_to_do": decision.plan.nothing_to_do,
        "hash": None if decision.plan.nothing_to_do else decision.plan.hash,
        "unfinished": unfinished and unfinished.hash,
    }


def _id_document(one: FenceId) -> dict[str, Any]:
    known = one.known
    return {
        "id": one.transactional_id,
        "task": one.number,
        "state": str(known.state) if known else None,
        "producer_id": known.producer_id if known else None,
        "producer_epoch": known.producer_epoch if known else None,
        "timeout_ms": known.timeout_ms if known else None,
        "open_since_ms": known.started_at_ms if known else None,
        "partitions": [f"{topic}-{partition}" for topic, partition in known.partitions] if known else [],
        "held": one.held,
    }
