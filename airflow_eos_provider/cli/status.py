"""``eos status``: one screen that tells how a Connect cluster stands."""

from __future__ import annotations

import time
from typing import Any

from rich.table import Table

from airflow_eos_provider.cli.common import ClusterOption, JsonOption, console, load_cluster, print_json
from airflow_eos_provider.rollout.findings import Finding, findings
from airflow_eos_provider.rollout.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observer import Observer

_REST_SHOWS = {True: "enabled", False: "no", None: "?"}
_MODE_STYLES = {"enabled": "green", "preparing": "cyan", "disabled": "white", "unknown": "bold yellow"}


def status(cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """Show the group, its workers with mode and evidence, connectors, fencing and transactions. Changes nothing."""
    observation = Observer(load_cluster(cluster)).observe()
    found = findings(observation)
    if as_json:
        print_json(to_document(observation, found))
        return
    _show_group(observation)
    _show_workers(observation)
    _show_connectors(observation)
    _show_transactions(observation)
    _show_findings(found)


def to_document(observation: Observation, found: tuple[Finding, ...]) -> dict[str, Any]:
    """The same as JSON. Connector configurations are left out: they may hold secrets."""
    group = observation.group
    return {
        "group_id": observation.group_id,
        "state": group.state if group else None,
        "protocol": group.protocol if group else None,
        "leader": observation.leader_id,
        "config_topic": observation.config_topic,
        "config_offset": observation.config.end_offset if observation.config else None,
        "workers": [_worker_document(worker, observation) for worker in observation.workers],
        "unknown_members": list(observation.unknown_members),
        "connectors": _connector_documents(observation),
        "transactions": [t._asdict() for t in observation.transactions]
        if observation.transactions is not None
        else None,
        "findings": [{"what": finding.what, "remedy": finding.remedy} for finding in found],
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
        "pid": worker.facts.process.pid if worker.facts.process else None,
        "started_at": worker.facts.process.started_at if worker.facts.process else None,
        "version": worker.root.version if worker.root else None,
        "health": worker.health.status if worker.health else None,
        "rest_problem": worker.rest_problem,
        "member": member is not None,
        "leads": worker.worker_id == observation.leader_id,
        "config_offset": member.assignment.config_offset if member and member.assignment else None,
        "tasks": sorted(f"{c}-{n}" for c, n in observation.tasks_on(worker.worker_id)),
    }


def _connector_documents(observation: Observation) -> list[dict[str, Any]]:
    documents = []
    for name, seen in sorted((observation.statuses or {}).items()):
        state = observation.config.connectors.get(name) if observation.config else None
        documents.append(
            {
                "connector": name,
                "type": seen.type,
                "state": seen.state,
                "worker": seen.worker_id,
                "placed_on": _placed_on(observation, name, None),
                "tasks": [
                    {
                        "task": task.number,
                        "state": task.state,
                        "reported_by": task.worker_id,
                        "placed_on": _placed_on(observation, name, task.number),
                    }
                    for task in seen.tasks
                ],
                "task_count": state.task_count if state else None,
                "task_count_record": state.task_count_record if state else None,
                "pending_fencing": state.pending_fencing if state else None,
            }
        )
    return documents


def _placed_on(observation: Observation, connector: str, task: int | None) -> list[str] | None:
    where = observation.group.placement if observation.group else None
    if where is None:
        return None
    if task is None:
        return sorted(w for w, placed in where.items() if connector in placed.connectors)
    return sorted(w for w, placed in where.items() if (connector, task) in placed.tasks)


def _show_group(observation: Observation) -> None:
    group = observation.group
    console.print(f"[bold]Connect group {observation.group_id}[/bold]")
    if group is None:
        console.print(f"  the group cannot be read: {observation.group_problem}", style="bold red")
        return
    leader = observation.leader_id or "no leader that all agree on"
    console.print(f"  {group.state}, {len(group.members)} members, protocol {group.protocol}, led by {leader}")
    offsets = sorted({m.assignment.config_offset for m in group.members if m.assignment})
    due = observation.config.last_rebalance_offset if observation.config else None
    console.print(
        f"  config topic {observation.config_topic or 'unknown'}: members at "
        f"{', '.join(map(str, offsets)) or 'no offset'}, last record that moves the group at "
        f"{'unknown' if due is None else due}"
    )
    delay_ms = max((m.assignment.delay_ms for m in group.members if m.assignment), default=0)
    held = f"runs ({delay_ms / 1000:.0f} s at the last rebalance)" if delay_ms else "none runs"
    console.print(
        f"  rebalance delay: {held}; up to {observation.rebalance_delay_ms / 1000:.0f} s when a worker leaves"
    )


def _show_workers(observation: Observation) -> None:
    table = _table("Workers")
    for column in ("worker", "mode", "file", "process", "REST", "since", "tasks", "health"):
        table.add_column(column, overflow="fold", no_wrap=column != "health")
    for worker in observation.workers:
        mode = worker.mode
        stopped = worker in observation.stopped
        verdict = "stopped" if stopped else str(mode.verdict)
        table.add_row(
            worker.worker_id + ("*" if worker.worker_id == observation.leader_id else ""),
            f"[{_MODE_STYLES.get(verdict, 'dim')}]{verdict}[/]",
            str(mode.declared.mode or "unknown"),
            "-" if stopped else str(mode.running.mode or "unknown"),
            "-" if stopped else _REST_SHOWS[mode.observed.runs_exactly_once],
            _since(worker.started_at),
            str(len(observation.tasks_on(worker.worker_id))),
            _health(worker),
        )
    for member in observation.unknown_members:
        table.add_row(member, "[bold yellow]unknown[/]", "not in the cluster file", *["-"] * 5)
    console.print(table)
    for worker in observation.workers:
        leads = " (leads)" if worker.worker_id == observation.leader_id else ""
        console.print(f"  {worker.worker_id}{leads}: {worker.mode.reason}", style="dim", markup=False, soft_wrap=True)


def _table(title: str) -> Table:
    """A table that fits eight columns about a worker into a terminal of 80."""
    return Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)


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
    table = _table("Connectors")
    for column in ("connector", "type", "state", "tasks: state, where placed", "task count record", "fencing"):
        table.add_column(column, overflow="fold")
    for document in _connector_documents(observation):
        tasks = "\n".join(
            f"{task['task']}: {task['state']} on {_where(task['placed_on'])}"
            + (f", reported by {task['reported_by']}" if task["placed_on"] not in (None, [task["reported_by"]]) else "")
            for task in document["tasks"]
        )
        pending = {True: "pending", False: "up to date", None: "unknown"}[document["pending_fencing"]]
        record = document["task_count_record"]
        table.add_row(
            document["connector"],
            document["type"],
            document["state"],
            tasks or "none",
            "none" if record is None else str(record),
            pending if document["type"] == "source" else "not for sinks",
        )
    console.print(table)


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
    table = _table("Transactional ids of the group")
    for column in ("id", "state", "producer id", "epoch", "timeout", "open for"):
        table.add_column(column)
    for transaction in observation.transactions:
        ongoing = transaction.state == "Ongoing" and transaction.started_at_ms is not None
        open_for = f"{observation.at - (transaction.started_at_ms or 0) / 1000:.1f} s" if ongoing else "-"
        table.add_row(
            transaction.transactional_id,
            transaction.state,
            str(transaction.producer_id),
            str(transaction.producer_epoch),
            f"{transaction.timeout_ms / 1000:.0f} s",
            open_for,
        )
    console.print(table)


def _show_findings(found: tuple[Finding, ...]) -> None:
    if not found:
        console.print("Nothing to worry about was found.", style="green")
        return
    console.print("[bold]Findings[/bold]")
    for finding in found:
        console.print(f"  ! {finding.what}" + (f"\n    {finding.remedy}" if finding.remedy else ""), markup=False)
