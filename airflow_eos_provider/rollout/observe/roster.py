"""Members that are not described, described workers that do not work in the group, and reports from outside of it."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_eos_provider.data_text import first_few
from airflow_eos_provider.rollout.answer import Check, failed
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observe.reported_states import (
    Doubt,
    Report,
    doubtful,
    neighbour_of,
    restart_command,
    twins,
)
from airflow_eos_provider.rollout.roll_settings import session_timeout_seconds


def stranger(observation: Observation, member: str) -> Check:
    """A member of the group that the description does not have, or has under another name of the same port."""
    if (described := observation.aliases.get(member)) is not None:
        return failed(
            member,
            f"{member}, a member of the group, and {described} of the cluster file are the same port under two names",
            f"write the advertised url in the cluster file: {observation.members[member].url.rstrip('/')} "
            "(its rest.advertised.host.name)",
        )
    known = " or ".join(worker.worker_id for worker in observation.nameless)
    return failed(
        member,
        f"{member} is a member of the group, but not in the cluster file",
        (f"if it is {known} by another address, correct its url; otherwise " if known else "")
        + "'eos discover' proposes its entry; or stop it",
    )


def out_of_the_group(observation: Observation, worker: WorkerObservation) -> tuple[str, str] | None:
    """Why a worker does not work in the group, and what to do."""
    worker_id, its_group = worker.worker_id, f"group {observation.group_id}"
    if worker in observation.stopped:
        if worker in observation.url_only:  # its process cannot be looked at
            no_member = f"{worker_id} is not a member of {its_group}, and does not answer: {worker.rest_problem}"
            return no_member, worker.silence_remedy
        joins_as = (
            f"{worker_id} is stopped; by its configuration it would join as {worker.facts.declared.mode or 'unknown'}"
        )
        return joins_as + last_words(observation, worker), ""
    if worker in observation.lost:
        timeout = session_timeout_seconds(worker.facts.properties)
        return (
            f"{worker_id} is dead: no process of it runs, though the group still counts it as a member"
            + last_words(observation, worker),
            f"start it; or wait: after its session timeout ({timeout:.0f} s) the group drops it, and its tasks are "
            f"unassigned for the rebalance delay (up to {observation.rebalance_delay_ms / 1000:.0f} s)",
        )
    if worker in observation.nameless:
        others = ", ".join(observation.members[member].url.rstrip("/") for member in observation.unknown_members)
        no_process = f"no process of it is found ({worker.facts.running.detail}), and "
        return (
            f"{worker_id} answers at {worker.worker.url}, but {'' if worker.worker.is_url_only else no_process}"
            f"no member of {its_group} has that address",
            f"if it is behind a proxy or has another host name, write the advertised url in the cluster file: {others}"
            if others
            else "it may still be joining; if not, check its url, and group_id in the cluster file",
        )
    is_known = worker_id in observation.members or worker_id in observation.aliases.values()
    if worker.is_running and not is_known and observation.group and observation.group.is_stable:
        return (
            f"{worker_id} runs, but is not a member of {its_group}",
            f"it may still be joining; if not, check group.id and bootstrap.servers in the {worker.facts.edit}",
        )
    return None


def foreign_reports(observation: Observation) -> Iterator[Check]:
    """Two groups on the same internal topics: each runs every connector, and each writes over the other's states."""
    strange = doubtful(observation, Doubt.UNKNOWN_WORKER)
    for worker_id in sorted({report.worker_id for report in strange}):
        theirs = [report for report in strange if report.worker_id == worker_id]
        neighbour = neighbour_of(observation, worker_id)
        again = "; ".join(restart_command(observation, name) for name in sorted({r.connector for r in theirs}))
        if neighbour is None:
            what = f"{worker_id} reports, but is no member of the group: {_listed(theirs)}"
            remedy = f"if that worker is gone for good, restart what it reports: {again}"
        else:
            what = (
                f"two Connect groups use the same internal topics: {worker_id}, a member of group {neighbour}, "
                f"reports {_listed(theirs)}; both groups run these connectors"
            )
            remedy = (
                f"stop the workers of {neighbour}, or give them config, offset and status topics of their own "
                f"(config.storage.topic and so on); then restart these connectors: {again}"
            )
        yield failed(worker_id, what, remedy)
    named = {neighbour_of(observation, report.worker_id) for report in strange}
    for group, names in sorted(twins(observation).items()):
        if group not in named:
            yield failed(
                group,
                f"group {group} runs connectors of the same names at the same config offset: {', '.join(names)}",
                "compare the workers' config.storage.topic. If both groups use one topic, each runs every connector: "
                "stop one of them or give it topics of its own; if not, pause and resume a connector of either group: "
                "their config offsets differ then",
            )


def last_words(observation: Observation, worker: WorkerObservation) -> str:
    """What a worker that does not answer has reported last."""
    said = [r for r in doubtful(observation, Doubt.LAST_WORD) if r.worker_id == worker.worker_id]
    return f"; last reported before it stopped answering: {_listed(said)}" if said else ""


def _listed(found: list[Report], limit: int = 6) -> str:
    return first_few((f"{report} {report.state}" for report in found), limit)
