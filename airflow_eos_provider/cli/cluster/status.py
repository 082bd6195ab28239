"""``eos status``: the state of a Connect cluster on one screen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.text import Text

from airflow_eos_provider.cli.common import (
    ExitCodeOption,
    console,
    load_cluster,
    show_finding,
    table,
)
from airflow_eos_provider.cli.look import Found, look_command
from airflow_eos_provider.cluster_status import all_findings, connector_documents, to_document
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.finding import Finding, overall
from airflow_eos_provider.kafka.admin.transaction_state import TransactionState
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observe.observer import Observer
from airflow_eos_provider.terminal import lines

#: Rows of a table, and tasks of a connector, that are shown. Measuring and folding 50,000 rows takes a minute.
MOST_ROWS = 100
MOST_TASKS = 20

_REST_SHOWS = {True: "enabled", False: "no", None: "?"}
_MODE_STYLES = {
    "enabled": "green",
    "preparing": "cyan",
    "disabled": "white",
    "unknown": "bold yellow",
    "dead": "bold red",
}


def find(cluster: Path | None, exit_code: ExitCodeOption = False) -> Found:
    """Show the group, its workers, connectors, fencing and transactions. Changes nothing."""
    with Observer(load_cluster(cluster)) as observer:
        observation = observer.observe_settled()
        found = all_findings(observation, observer.session.kafka)
    names = [worker.worker_id for worker in observation.workers]
    code = overall(found).exit_code if exit_code else 0
    return Found(to_document(observation, found), names, lambda wide: _show(observation, found), code)


status = look_command(find)


def _show(observation: Observation, found: tuple[Finding, ...]) -> None:
    _show_group(observation)
    _show_workers(observation)
    _show_connectors(observation)
    _show_transactions(observation)
    _show_findings(found)


def _show_group(observation: Observation) -> None:
    group = observation.group
    console.print(f"Connect group {observation.group_id}", style="bold")
    if group is None:
        console.print(f"  the group cannot be read: {observation.group_problem}", style="bold red")
        return
    leader = observation.leader_id or "no leader that all agree on"
    console.print(
        f"  {group.state}, {len(group.members)} members, protocol {group.protocol}, led by {leader}", soft_wrap=True
    )
    offsets = sorted({m.assignment.config_offset for m in group.members if m.assignment})
    due = observation.config.last_rebalance_offset if observation.config else None
    console.print(
        f"  config topic {observation.config_topic or 'unknown'}: members at "
        f"{', '.join(map(str, offsets)) or 'no offset'}, last record that moves the group at "
        f"{'unknown' if due is None else due}",
        soft_wrap=True,
    )
    delay_ms = max((m.assignment.delay_ms for m in group.members if m.assignment), default=0)
    held = f"runs ({delay_ms / 1000:.0f} s at the last rebalance)" if delay_ms else "none runs"
    is_known = any(worker.facts.properties for worker in observation.workers)
    longest = f"up to {observation.rebalance_delay_ms / 1000:.0f} s" if is_known else "for an unknown time"
    console.print(f"  rebalance delay: {held}; {longest} when a worker leaves")


def _show_workers(observation: Observation) -> None:
    shown = table("Workers")
    for column in ("worker", "mode", "file", "process", "REST", "since", "tasks", "health"):
        shown.add_column(column, overflow="fold", no_wrap=column != "health")
    for worker in observation.workers[:MOST_ROWS]:
        mode = worker.mode
        stopped = worker in observation.stopped
        gone = stopped or worker in observation.lost
        verdict = "stopped" if stopped else "dead" if gone else str(mode.verdict)
        shown.add_row(
            worker.worker_id + ("*" if worker.worker_id == observation.leader_id else ""),
            Text(verdict, _MODE_STYLES.get(verdict, "dim")),
            str(mode.declared.mode or "unknown"),
            "-" if gone else str(mode.running.mode or "unknown"),
            "-" if gone else _REST_SHOWS[mode.observed.runs_exactly_once],
            _since(worker.started_at),
            str(len(observation.tasks_on(worker.worker_id))),
            _health(worker),
        )
    for member in observation.unknown_members[:MOST_ROWS]:
        shown.add_row(member, Text("unknown", "bold yellow"), "not in the cluster file", *["-"] * 5)
    console.print(shown)
    _show_omitted(max(len(observation.workers), len(observation.unknown_members)), "worker")
    for worker in observation.workers[:MOST_ROWS]:
        leads = " (leads)" if worker.worker_id == observation.leader_id else ""
        reason = worker.mode.reason
        if worker in observation.lost:
            reason = f"dead, though the group still counts it as a member; {reason.removeprefix('stopped; ')}"
        console.print(f"  {worker.worker_id}{leads}: {reason}", style="dim", soft_wrap=True)


def _health(worker: WorkerObservation) -> str:
    if worker.is_healthy:
        return "ok"
    return worker.health.status if worker.health else "-"


def _since(started_at: float | None) -> str:
    """Clock time of a start today, else its date."""
    if started_at is None:
        return "-"
    started, today = time.localtime(started_at), time.localtime()
    return time.strftime("%H:%M" if started[:3] == today[:3] else "%Y-%m-%d", started)


def _show_connectors(observation: Observation) -> None:
    if not observation.statuses:
        console.print("Connectors: none" if observation.statuses is not None else "Connectors: not readable")
        return
    shown = table("Connectors", "connector", "type", "state", "tasks, where placed", "task count", "fencing")
    documents = connector_documents(observation)
    for document in documents[:MOST_ROWS]:
        tasks = [
            f"{task['task']}: {task['state']} on {_where(task['placed_on'])}"
            + (f", reported by {task['reported_by']}" if task["placed_on"] not in (None, [task["reported_by"]]) else "")
            + (" (its last word)" if task["last_word"] else "")
            for task in document["tasks"][:MOST_TASKS]
        ]
        if more := len(document["tasks"]) - len(tasks):
            tasks.append(f"and {counted(more, 'more task')}")
        record = document["task_count_record"]
        shown.add_row(
            document["connector"],
            document["type"],
            document["state"] + (" (last word)" if document["last_word"] else ""),
            lines(tasks) if tasks else "none",
            "none" if record is None else str(record),
            _fencing(document, observation),
        )
    console.print(shown)
    _show_omitted(len(documents), "connector")


def _show_omitted(count: int, what: str) -> None:
    """Say how many rows a table leaves out."""
    if count > MOST_ROWS:
        more = counted(count - MOST_ROWS, f"more {what}")
        console.print(f"  and {more}: 'eos status --json' has all", soft_wrap=True)


def _fencing(document: dict[str, Any], observation: Observation) -> str:
    """The fencing round of a connector; only enabled workers have any."""
    if document["type"] != "source":
        return "not for sinks"
    modes = {worker.mode.verdict.mode for worker in observation.workers if worker not in observation.stopped}
    if modes <= {Mode.DISABLED, Mode.PREPARING}:
        return "not used"
    return {True: "pending", False: "up to date", None: "unknown"}[document["pending_fencing"]]


def _where(placed_on: list[str] | None) -> str:
    if placed_on is None:
        return "unknown"
    return ", ".join(placed_on) or "no worker"


def _show_transactions(observation: Observation) -> None:
    if observation.transactions is None:
        console.print("Transactional ids: not readable")
        return
    if not observation.transactions:
        console.print("Transactional ids of the group: none")
        return
    shown = table("Transactional ids of the group", "id", "state", "producer", "open for", whole="id")
    for transaction in sorted(observation.transactions, key=lambda each: not each.state.is_open)[:MOST_ROWS]:
        began = transaction.started_at_ms if transaction.state is TransactionState.ONGOING else None
        shown.add_row(
            transaction.transactional_id,
            transaction.state,
            f"{transaction.producer_id}/{transaction.producer_epoch}",
            "-" if began is None else f"{observation.at - began / 1000:.0f} of {transaction.timeout_ms / 1000:.0f} s",
        )
    console.print(shown)
    _show_omitted(len(observation.transactions), "id")


def _show_findings(found: tuple[Finding, ...]) -> None:
    if not found:
        console.print("No problem found.", style="green")
        return
    console.print("Findings", style="bold")
    for finding in found:
        show_finding(finding, "  ! ", "")
