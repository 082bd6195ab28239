"""States that connectors and tasks report, compared with the members and assignments of the group.

A state in Connect's status topic outlives the worker that wrote it, and Connect does not check who wrote it. So a state
is current only if its worker answers, is a member of the group, and has that connector or task.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from airflow_eos_provider.rollout.observe.observation import Observation


class Doubt(StrEnum):
    """Why a reported state does not count."""

    LAST_WORD = "last word of a worker that does not answer"
    UNKNOWN_WORKER = "from a worker that is no member of the group"
    ELSEWHERE = "from a worker that it is not placed on"
    UNASSIGNED = "unassigned, though the group has placed it"


@dataclass(frozen=True, slots=True)
class Report:
    """One reported state.

    :param task: number of the task; None for the connector itself.
    :param worker_id: who has reported it.
    :param placed_on: the workers that have it by the group's assignment; None if that cannot be known.
    """

    connector: str
    task: int | None
    state: str
    worker_id: str
    placed_on: tuple[str, ...] | None

    def __str__(self) -> str:
        return f"connector {self.connector}" if self.task is None else f"task {self.connector}-{self.task}"


def reports(observation: Observation) -> Iterator[Report]:
    """All reported states, by connector: its own, then those of its tasks."""
    for name, status in sorted((observation.statuses or {}).items()):
        tasks = ((task.number, task.state, task.worker_id) for task in status.tasks)
        for number, state, worker_id in ((None, status.state, status.worker_id), *tasks):
            placed_on = observation.placed_on(name, number)
            yield Report(name, number, state, worker_id, None if placed_on is None else tuple(placed_on))


def doubtful(observation: Observation, *doubts: Doubt) -> tuple[Report, ...]:
    """The reports with one of these doubts."""
    return tuple(report for report in reports(observation) if _doubt(observation, report) in doubts)


def neighbour_of(observation: Observation, worker_id: str) -> str | None:
    """The other Connect group that this worker is a member of, as far as the brokers know one."""
    for group in observation.neighbours:
        if any(member.url and member.worker_id == worker_id for member in group.members):
            return group.group_id
    return None


def twins(observation: Observation) -> dict[str, list[str]]:
    """Other groups that look as if they read the same config topic, with the connectors that they run too.

    They have come to the same offset of it and run connectors of the same names.
    """
    if observation.group is None or observation.config is None:
        return {}
    here = max(observation.group.config_offsets.values(), default=-1)
    found = {}
    for group in observation.neighbours:
        placed = {name for placement in (group.placement or {}).values() for name in placement.connectors}
        same = sorted(placed & set(observation.config.connectors))
        if same and here >= 0 and max(group.config_offsets.values(), default=-1) == here:
            found[group.group_id] = same
    return found


def unsettled(observation: Observation) -> bool:
    """Whether a moment may settle what does not fit together in this look, so that it is worth another one.

    What a worker that does not answer reports will not settle in a moment, and what another group's worker reports is
    certain already.
    """
    doubts = doubtful(observation, Doubt.UNKNOWN_WORKER, Doubt.ELSEWHERE, Doubt.UNASSIGNED)
    if any(neighbour_of(observation, report.worker_id) is None for report in doubts):
        return True
    return observation.took_seconds > SLOW_LOOK_SECONDS and not observation.silent


#: The parts of a look that took longer are not of one moment.
SLOW_LOOK_SECONDS = 5.0


def restart_command(observation: Observation, connector: str) -> str:
    """The request that makes a connector and its tasks report anew, as a command."""
    urls = (worker.worker.url for worker in observation.workers if worker.root is not None)
    return restart_request(next(urls, "http://WORKER"), connector)


def restart_request(url: str, connector: str) -> str:
    """The command that restarts a connector and all of its tasks (KIP-745, Connect 3.0)."""
    path = f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}/restart?includeTasks=true&onlyFailed=false"
    return f"curl -X POST {shlex.quote(path)}"


def _doubt(observation: Observation, report: Report) -> Doubt | None:
    """Why a reported state does not count; None if it does."""
    worker_id, placed = report.worker_id, report.placed_on
    if not worker_id:  # a connector without a status, for its first moments
        return None
    if worker_id in observation.silent:
        return Doubt.LAST_WORD
    if placed is None or not observation.should_run(report.connector, report.task):
        return None
    described = {worker.worker_id for worker in observation.workers}
    if worker_id not in observation.members and (worker_id not in described or placed):
        # While a rebalance delay runs, what a described worker has left behind is placed on no member.
        return Doubt.UNKNOWN_WORKER if worker_id not in described else Doubt.ELSEWHERE
    if report.state == "UNASSIGNED" and placed:
        return Doubt.UNASSIGNED
    if report.state == "RUNNING" and placed and worker_id not in placed:
        return Doubt.ELSEWHERE
    return None
