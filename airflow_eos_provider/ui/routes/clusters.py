"""Clusters, their connectors and tasks: what ``eos status --json`` prints, with newest roll and drift on each card."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Response

from airflow_eos_provider.cluster_status import all_findings, to_document
from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.finding import Finding
from airflow_eos_provider.rollout.drift.watch import DriftWatch
from airflow_eos_provider.rollout.observe.observation import Observation
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.ui.access import visible_to
from airflow_eos_provider.ui.airflow_state import airflow_address
from airflow_eos_provider.ui.answers import (
    KEPT_SLOW_SECONDS,
    add_document,
    add_rows,
    answer,
    errors_of,
    in_thread,
    see_cluster,
)
from airflow_eos_provider.ui.connections import CLUSTER_TYPES, Known, known_connections
from airflow_eos_provider.ui.documents import Item, Paging, PagingDep, Table, filter_by, redacted, to_json
from airflow_eos_provider.ui.looks import Looks, Seen
from airflow_eos_provider.ui.routes.rolls import newest_roll, see_journal
from airflow_eos_provider.ui.routes.transactions import look_for_hanging

#: Characters shown of a stack trace: the error comes first.
TRACE_LENGTH = 600

#: Tasks named per worker; the list of tasks has all.
NAMED_TASKS = 20

#: Do not wait for uncertain drift to settle: the next snapshot shows it.
_DRIFT_STABLE_SECONDS = 0.0


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """A snapshot of a cluster, as the page shows it."""

    status: Mapping[str, Any]
    counts: Mapping[str, Any]
    connectors: Table
    tasks: Table


def look_at(cluster: ConnectCluster) -> ClusterLook:
    """The snapshot of ``eos status``."""
    with Observer(cluster) as observer:
        observation = observer.observe_settled()
        return cluster_look(observation, all_findings(observation, observer.session.kafka))


def cluster_look(observation: Observation, found: tuple[Finding, ...] = ()) -> ClusterLook:
    """An observation and its findings, as the page shows them."""
    document = to_document(observation, found)
    connectors, transactions = document.pop("connectors"), document.pop("transactions")
    by_id = {each["transactional_id"]: each for each in transactions or ()}
    traces = {
        (name, task.number): task.trace for name, seen in (observation.statuses or {}).items() for task in seen.tasks
    }
    tasks = [_task(each, task, observation.group_id, by_id, traces) for each in connectors for task in each["tasks"]]
    for worker in document["workers"]:
        worker["tasks_count"], worker["tasks"] = len(worker["tasks"]), worker["tasks"][:NAMED_TASKS]
    problems = (
        observation.group_problem,
        observation.config_problem,
        observation.statuses_problem,
        observation.transactions_problem,
    )
    document["problems"] = [problem for problem in problems if problem]
    counts = _counts(observation, connectors, tasks, transactions)
    head = {"is_known": counts["connectors"] is not None, "problems": document["problems"]}
    return ClusterLook(
        redacted(document),
        redacted({**_modes(document["workers"]), **counts}),
        Table.of((_connector(each, observation) for each in connectors), head),
        Table.of(tasks, head),
    )


def look_for_drift(cluster: ConnectCluster) -> dict[str, Any]:
    """One check of ``eos drift``."""
    with DriftWatch(cluster) as watch:
        found: dict[str, Any] = redacted(watch.look(stable_seconds=_DRIFT_STABLE_SECONDS).to_dict())
    return found


def routes(looks: Looks) -> APIRouter:
    """The routes of clusters, connectors and tasks."""
    router = APIRouter()

    @router.get("/api/clusters")
    async def clusters(user: GetUserDep, paging: PagingDep) -> Response:
        return Response(await in_thread_cards(looks, user, paging), media_type="application/json")

    @router.get("/api/clusters/{connection_id}")
    async def cluster(connection_id: str) -> Response:
        seen = await see_cluster(looks, connection_id, "status", look_at)
        return await answer(seen, lambda found: {**found.status, **found.counts}, {})

    add_document(router, looks, "drift", look_for_drift)
    of_connectors = filter_by("connector", "state", "type", pending="pending_fencing")
    of_tasks = filter_by("connector", "state", worker="reported_by")
    add_rows(router, looks, "connectors", "status", look_at, attrgetter("connectors"), of_connectors)
    add_rows(router, looks, "tasks", "status", look_at, attrgetter("tasks"), of_tasks)
    return router


async def in_thread_cards(looks: Looks, user: Any, paging: Paging) -> bytes:
    """The cards of the connections that a user may see; starts their snapshots and waits for none."""
    known = await in_thread(_visible, user)
    page = await in_thread(lambda: Table.of(_head(each) for each in known).page(paging))
    cards = await asyncio.gather(*(_card(looks, item) for item in page["items"]))
    return await in_thread(to_json, {"looked_at": None, "errors": [], **page, "items": cards})


def _visible(user: Any) -> list[Known]:
    known = known_connections(CLUSTER_TYPES)
    visible = visible_to(user, [(each.connection_id, each.team) for each in known])
    return [each for each in known if each.connection_id in visible]


def _head(known: Known) -> dict[str, Any]:
    return {
        "connection_id": known.connection_id,
        "description": known.description,
        "link": airflow_address("connections"),
    }


async def _card(looks: Looks, head: Item) -> dict[str, Any]:
    connection_id = head["connection_id"]
    at_once = {"first_seconds": 0.0, "newer_seconds": 0.0}
    seen = await see_cluster(looks, connection_id, "status", look_at, **at_once)
    journal = await see_journal(looks, connection_id, **at_once)
    slow = {"kept_seconds": KEPT_SLOW_SECONDS, **at_once}
    drift = await see_cluster(looks, connection_id, "drift", look_for_drift, **slow)
    hanging = await see_cluster(looks, connection_id, "hanging", look_for_hanging, **slow)
    return await in_thread(_made_card, head, seen, journal, drift, hanging)


def _made_card(head: Item, seen: Seen[ClusterLook], journal: Seen[Any], drift: Seen[Any], hanging: Seen[Any]) -> Any:
    card = {
        **head,
        "looked_at": seen.looked_at(),
        "still_looking": seen.is_waiting,
        "errors": errors_of(*{seen.problem, journal.problem}),
        "drift": drift.value if drift.problem is None else None,
        "drift_looked_at": drift.looked_at(),
        "drift_errors": errors_of(drift.problem),
        "hanging_transactions": _number_of_hanging(hanging),
        "hanging_looked_at": hanging.looked_at(),
        "hanging_errors": errors_of(hanging.problem),
        "roll": None if journal.value is None else newest_roll(journal.value),
        "roll_looked_at": journal.looked_at(),
    }
    if seen.value is not None:
        card |= {**seen.value.status, **seen.value.counts}
    return card


def _number_of_hanging(hanging: Seen[Any]) -> int | None:
    """How many transactions hang; None if the newest snapshot failed: an old number would look new."""
    return len(hanging.value["hanging"]) if hanging.value is not None and hanging.problem is None else None


def _counts(
    observation: Observation,
    connectors: Sequence[Item],
    tasks: Sequence[Item],
    transactions: Sequence[Item] | None,
) -> dict[str, Any]:
    """Counts for the card; None where unknown."""
    are_known = observation.statuses is not None
    pending = [each["connector"] for each in connectors if each["pending_fencing"]]
    started = [each for each in transactions or () if each["started_at_ms"] is not None]
    return {
        "connectors": _states(connectors) if are_known else None,
        "tasks": _states(tasks) if are_known else None,
        "pending_fencings": pending if are_known and observation.config is not None else None,
        "open_transactions": len(started) if transactions is not None else None,
    }


def _modes(workers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The mode of a cluster: the common mode of its running workers."""
    modes = Counter("dead" if each["dead"] else each["mode"] for each in workers)
    running = [mode for mode in modes if mode not in ("dead", "stopped")]
    return {
        "mode": running[0] if len(running) == 1 else "mixed" if running else "unknown",
        "modes": dict(modes),
        "disagreements": [f"{each['worker']}: {what}" for each in workers for what in each["disagreements"]],
    }


def _states(items: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    states = Counter(each["state"] for each in items)
    return {"total": states.total(), **states}


def _connector(document: Mapping[str, Any], observation: Observation) -> dict[str, Any]:
    tasks = document["tasks"]
    shown = {name: value for name, value in document.items() if name != "tasks"}
    seen = (observation.statuses or {})[document["connector"]]
    return {
        **shown,
        "tasks_total": len(tasks),
        "tasks_by_state": dict(Counter(task["state"] for task in tasks)),
        "trace": _beginning(getattr(seen, "trace", None)),
    }


def _task(
    connector: Mapping[str, Any],
    task: Mapping[str, Any],
    group_id: str,
    transactions: Mapping[str, Mapping[str, Any]],
    traces: Mapping[tuple[str, int], str | None],
) -> dict[str, Any]:
    name, number = connector["connector"], task["task"]
    known = transactions.get(f"{group_id}-{name}-{number}")
    return {
        "connector": name,
        **task,
        "trace": _beginning(traces.get((name, number))),
        "transactional_id": known and known["transactional_id"],
        "transaction": known
        and {
            "state": str(known["state"]),
            **{key: known[key] for key in ("producer_id", "producer_epoch", "timeout_ms", "started_at_ms")},
        },
    }


def _beginning(trace: str | None) -> str | None:
    return trace[:TRACE_LENGTH] if trace else None
