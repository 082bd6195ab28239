"""May this cluster be rolled to this mode at all? Every reason against it, found before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from airflow_eos_provider.acls.check import AclReport
from airflow_eos_provider.connect.cluster.managed import managed_workers
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.connect.group import EAGER, PROTOCOLS
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.errors import RefusedError, RolloutPausedError
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.rollout.check import Check, failed, inconclusive, passed
from airflow_eos_provider.rollout.observe.client_clusters import ClientClusters
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observe.reported_states import Doubt, doubtful, neighbour_of, restart_command, twins
from airflow_eos_provider.rollout.plan.other_clusters import other_clusters
from airflow_eos_provider.rollout.plan.rights import rights
from airflow_eos_provider.rollout.plan.worker_edits import (
    ISOLATION_PROPERTY,
    READ_COMMITTED,
    not_ready_for_enabled,
    properties_to_set,
    uncommitted_readers,
)
from airflow_eos_provider.rollout.settings import RolloutSettings, session_timeout_seconds

#: KIP-618 came with Apache Kafka 3.3.0 (KAFKA-10000).
FIRST_VERSION = (3, 3)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found before a roll.

    :param target: the mode that was asked about.
    :param checks: one answer per preflight check.
    """

    target: Mode
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        return overall(self.checks)

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    @property
    def findings(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    def require(self) -> None:
        """Go on only if everything passed.

        :raises RefusedError: a check failed.
        :raises RolloutPausedError: none failed, but one could not be answered.
        """
        if self.passed:
            return
        error = RefusedError if self.verdict is Verdict.FAIL else RolloutPausedError
        found = "\n".join(f"  - {check.subject}: {check.found}" for check in self.findings)
        remedies = [check.remedy for check in self.findings if check.remedy]
        raise error(
            f"The cluster may not be rolled to {self.target}:\n{found}", remedy="; ".join(dict.fromkeys(remedies))
        )

    def to_dict(self) -> dict[str, object]:
        return {
            "target": str(self.target),
            "verdict": str(self.verdict),
            "checks": [check.to_dict() for check in self.checks],
        }

    def markdown(self) -> str:
        rows = "\n".join(f"| {check.subject} | {check.verdict} | {check.found} |" for check in self.checks)
        return f"| check | answer | evidence |\n|---|---|---|\n{rows}"


def check(
    observation: Observation,
    target: Mode,
    settings: RolloutSettings,
    left_down: Mapping[str, str] | None = None,
    clients: Mapping[str, ClientClusters] | None = None,
    acls: AclReport | None = None,
) -> Preflight:
    """Answer every preflight check of a roll to ``target``.

    :param left_down: per worker that a roll left down, that rollout; it is started first.
    :param clients: as :func:`other_clusters` takes them.
    :param acls: as :func:`rights` takes it.
    """
    answers = tuple(ask(observation, target, settings) for ask in PREFLIGHT_CHECKS)
    downtime = takeover(observation, target, settings, left_down or {})
    return Preflight(target, (*answers, other_clusters(clients), rights(acls), downtime))


def own_workers(workers: Iterable[WorkerDescription]) -> Check:
    """No worker belongs to a managed service, where neither its settings nor its process can be reached."""
    name = "own workers"
    for worker_id, service in managed_workers(workers).items():
        return failed(
            name,
            f"{worker_id} belongs to {service.name}, which cannot be rolled from here: {service.why}",
            f"{service.instead}; read-only commands (eos status, preflight, offsets list) work if its REST API and "
            "its brokers answer",
        )
    return passed(name, "no worker has an address of a managed service")


def owned(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """See :func:`own_workers`."""
    return own_workers(each.worker for each in observation.workers)


def roster(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """The description and the group name the same workers; those that do not run are known as stopped."""
    name = "roster"
    if observation.group is None:
        return inconclusive(name, observation.group_problem or "the group is not readable")
    if not observation.group.is_stable:
        return inconclusive(name, f"the members are unknown while the group is in state {observation.group.state}")
    for member, described in observation.aliases.items():
        return failed(
            name,
            f"{member}, a member of the group, and {described} of the cluster description are the same port under two "
            "names",
            f"write the advertised url in the cluster file: {observation.members[member].url.rstrip('/')}",
        )
    if observation.unknown_members:
        return failed(
            name,
            f"member {', '.join(observation.unknown_members)} of the group is not in the cluster description",
            "add it ('eos discover' proposes an entry), or stop it",
        )
    members = observation.members
    absent = [w for w in observation.workers if w.worker_id not in members and w.is_running]
    if absent:
        return failed(
            name,
            f"{absent[0].worker_id} runs ({absent[0].facts.runs_as}), but is not a member of group "
            f"{observation.group_id}",
            f"check group.id and bootstrap.servers in the {absent[0].facts.edit}, or wait until it has joined",
        )
    if observation.nameless:
        worker = observation.nameless[0]
        return failed(
            name,
            f"{worker.worker_id} answers, but no process of it is found ({worker.facts.running.detail}), and no member "
            "of the group has its address",
            "write the url that it advertises, not a proxy's; or correct group_id and where it runs",
        )
    if observation.lost:
        dead = observation.lost[0]
        return inconclusive(
            name,
            f"{dead.worker_id} is dead: no process of it runs, though the group still counts it as a member",
            f"start it, or wait for its session timeout ({session_timeout_seconds(dead.facts.properties):.0f} s): "
            "then the group drops it",
        )
    unseen = [w for w in observation.workers if w.worker_id in members and not w.is_running]
    if unseen:
        return failed(
            name,
            f"{unseen[0].worker_id} is a member of the group, but no process of it is found on its host: "
            f"{unseen[0].facts.running.detail}",
            unseen[0].facts.problem_remedy or "correct its description, or run this where the worker runs",
        )
    stopped = [w.worker_id for w in observation.stopped]
    also = f"; {', '.join(stopped)} stopped" if stopped else ""
    return passed(name, f"{len(members)} members, all described{also}")


def group_is_stable(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """The group is stable; a roll does not start in the middle of a rebalance."""
    if observation.group is None:
        return inconclusive("group", observation.group_problem or "not readable")
    if not observation.group.is_stable:
        return inconclusive("group", f"state {observation.group.state}", "wait until the rebalance is over")
    if observation.leader_id is None:
        return inconclusive("group", "the members do not agree on a leader", "check again in a moment; read their logs")
    return passed("group", f"stable, protocol {observation.group.protocol}, led by {observation.leader_id}")


def protocol(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Which protocol the group speaks. Exactly-once asks for none in particular: a roll was seen to work in each.

    Below ``sessioned`` a worker takes every request to fence a connector's tasks for one of another worker's (the
    herder verifies signatures from protocol version 2 on). Whoever reaches that port can delete connectors
    already, and a fenced task loses no record, so this is reported and not refused.
    """
    name = "protocol"
    spoken = observation.group.protocol if observation.group else ""
    if spoken in ("", PROTOCOLS[-1]):  # unknown in mid-rebalance; that is the group's check
        return passed(name, spoken or "unknown")
    property_value = "eager" if spoken == EAGER else spoken
    return passed(
        name,
        f"connect.protocol={property_value}: requests between workers are not signed, so any client that reaches a "
        f"worker's REST port can have running tasks fenced; set {PROTOCOLS[-1]} on all workers to prevent that",
    )


def workers_answer(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """REST of every running worker answers; all of them sit on one Kafka cluster."""
    name = "REST"
    for worker in _running(observation):
        if not worker.is_healthy:
            found = worker.rest_problem or f"health is {worker.health.status if worker.health else 'unknown'}"
            return failed(name, f"{worker.worker_id}: {found}", worker.silence_remedy)
    clusters = {worker.root.kafka_cluster_id for worker in observation.workers if worker.root}
    if len(clusters) > 1:
        return failed(name, f"the workers use different Kafka clusters: {', '.join(sorted(map(str, clusters)))}")
    return passed(name, f"{len(_running(observation))} workers answer")


def versions(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Every worker is new enough for KIP-618."""
    name = "version"
    seen = {w.worker_id: w.root.version for w in observation.workers if w.root}
    for worker_id, version in seen.items():
        number = kafka_version(version)
        if number is None:
            return inconclusive(name, f"{worker_id} runs version {version!r}, which is not understood")
        if number < FIRST_VERSION:
            return failed(
                name,
                f"{worker_id} runs Kafka Connect {version}, exactly-once source support came with 3.3.0",
                "upgrade that worker first",
            )
    return passed(name, ", ".join(sorted(set(seen.values()))) or "no worker runs")


def files(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Each worker's description is complete, and its settings belong to this group.

    Several workers may share one edit, as long as it needs the same change for each of them.
    """
    name = "worker files"
    owners: dict[str, WorkerObservation] = {}
    processes: dict[str, str] = {}
    for worker in observation.workers:
        if worker.facts.problem:
            remedy = worker.facts.problem_remedy or "correct the cluster description"
            return failed(name, f"{worker.worker_id}: {worker.facts.problem}", remedy)
        edit = worker.facts.edit
        first = owners.setdefault(edit.name, worker)
        if properties_to_set(first.facts, target) != properties_to_set(worker.facts, target):
            return failed(
                name,
                f"{worker.worker_id} and {first.worker_id} share the {edit} and need different changes of it",
                f"give each its own, or let {MODE_PROPERTY} come from the same place for both",
            )
        same = processes.setdefault(worker.facts.start_token or worker.worker_id, worker.worker_id)
        if same != worker.worker_id:
            return failed(
                name,
                f"{worker.worker_id} and {same} are found as one process ({worker.facts.runs_as})",
                "correct the description: each worker is a process of its own",
            )
        file_group = worker.facts.properties.get("group.id", "")
        if file_group != observation.group_id and not references(file_group):
            return failed(
                name,
                f"the {edit} says group.id={file_group}, the cluster description says {observation.group_id}",
                "correct group_id, or what the description of that worker names",
            )
    return passed(name, f"{len(owners)} edits for {len(observation.workers)} workers, one group")


def shared_settings(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """All workers have the same group and internal topics. What a config provider supplies needs another proof."""
    name = "shared settings"
    for topic in observation.topics:
        if topic.differing:
            return failed(name, topic.problem, topic.remedy)
    for worker in observation.workers:
        supplied = worker.facts.properties.get("group.id", "")
        if references(supplied) and worker.worker_id not in observation.members:
            return inconclusive(
                name,
                f"a config provider supplies group.id of {worker.worker_id} ({supplied}), which is not a member of "
                f"group {observation.group_id}",
                "start it: a member proves its group.id; or write group.id into its file",
            )
    for topic in observation.topics:
        if topic.unknown:
            return inconclusive(name, topic.problem, topic.remedy)
    if observation.config_topic is None:
        return failed(name, "no worker's configuration says config.storage.topic", "set it for all workers")
    return passed(name, f"group {observation.group_id}, config topic {observation.config_topic}")


def proven_modes(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Every running worker's mode is proven, and the target may live beside it while the roll goes on.

    A disabled leader writes the config topic without transactions, so enabled workers could not be protected from it:
    upwards the way from disabled to enabled leads through preparing (KIP-618). Downwards nothing is left to protect:
    with the first worker that is not enabled, exactly-once is given up. A disabled leader was seen to serve fencing
    rounds for tasks on enabled workers (docs/connect/downgrade.md), so nothing fails meanwhile either.
    """
    name = "modes"
    modes = {}
    for worker in _running(observation):
        mode = worker.mode.verdict.mode
        if mode is None:
            return inconclusive(
                name,
                f"the mode of {worker.worker_id} is unknown: {worker.mode.reason}",
                f"{worker.mode_remedy}; 'eos status' shows the layers of evidence",
            )
        modes[worker.worker_id] = mode
    going_up = any(target.is_above(mode) for mode in modes.values())
    apart = {w: mode for w, mode in sorted(modes.items()) if going_up and not mode.may_live_beside(target)}
    if apart:
        return failed(
            name,
            f"{', '.join(apart)} still run{'s' if len(apart) == 1 else ''} {next(iter(apart.values()))}",
            "roll to preparing first: 'eos plan --to preparing'",
        )
    return passed(name, ", ".join(f"{w} {m}" for w, m in sorted(modes.items())) or "no worker runs")


def offset_readers(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """While the group rolls to enabled, no worker that waits for its turn may take an aborted offset for progress.

    A roll to preparing sets ``isolation.level=read_committed``; a group that was brought there manually lacks it. There
    an enabled worker that dies in mid-transaction would hand its task to one that skips records: they are lost, not
    doubled, and no error is shown (``properties.py``). So this is refused, unless nothing would be gained: a lone
    worker takes over from no other, and where some workers are enabled already, this roll is the shortest way out.
    """
    name = "source offsets"
    if not target.runs_exactly_once_tasks:
        return passed(name, "each worker of the roll will read them committed")
    readers = not_ready_for_enabled(observation)
    if readers:
        return failed(
            name,
            f"{', '.join(readers)} would read them uncommitted: as soon as one worker is enabled, they treat the "
            "offsets of an aborted transaction as progress, and records are lost",
            f"'eos plan --to preparing' once more: it sets {ISOLATION_PROPERTY}={READ_COMMITTED}",
        )
    readers = uncommitted_readers(observation)
    if readers:
        return passed(name, f"{', '.join(readers)} would read them uncommitted until this roll is done")
    return passed(name, "every worker reads them committed")


def ownership(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Each worker may be restarted and its configuration be changed from here, seen before the first is touched.

    A worker that a supervisor starts again would run twice, and one of another user would come back as this one. Which
    workers a roll restarts is not known for certain before (the leader may be restarted once more to end a rebalance
    delay), so every running one is asked, unless none needs anything.
    """
    name = "processes"
    running = _running(observation)
    if not observation.stopped and not any(_needs_restart(worker, target) for worker in running):
        return passed(name, "no worker needs a restart")
    for worker in observation.workers:
        if worker.facts.restart is not None:
            return inconclusive(name, f"{worker.worker_id}: {worker.facts.restart}", "wait until it is over")
        changes = bool(properties_to_set(worker.facts, target))
        in_the_way = [
            *(worker.facts.obstacles_to("change") if changes else ()),
            *(worker.facts.obstacles_to("restart") if worker in running else ()),
        ]
        if in_the_way:
            found = "; ".join(obstacle.what for obstacle in in_the_way)
            remedies = dict.fromkeys(obstacle.remedy for obstacle in in_the_way)
            return failed(name, f"{worker.worker_id}: {found}", "; ".join(remedies))
    return passed(name, "eos can restart each worker and change its configuration from here")


def takeover(observation: Observation, target: Mode, settings: RolloutSettings, left_down: Mapping[str, str]) -> Check:
    """Another worker can take the tasks over while one restarts."""
    running = _running(observation)
    if left_down:
        workers = ", ".join(f"{worker_id} (by rollout {rollout})" for worker_id, rollout in sorted(left_down.items()))
        return passed(
            "downtime", f"stopped by an earlier roll, and started first: {workers}; then one restarts at a time"
        )
    if not any(_needs_restart(worker, target) for worker in running):
        return passed("downtime", f"{len(running)} workers run, none needs a restart")
    if len(running) == 1 and not settings.allow_downtime:
        return failed(
            "downtime",
            f"{running[0].worker_id} is the only worker that runs: its restart stops every connector",
            "accept that with --allow-downtime",
        )
    return passed("downtime", f"{len(running)} workers run, one restarts at a time")


def connectors(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Statuses and config topic are readable, and it is this group that reports; else the gate could not judge."""
    problem = observation.statuses_problem or observation.config_problem
    if observation.statuses is None or observation.config is None:
        return inconclusive("connectors", problem or "not readable", "make REST and the config topic readable")
    incomplete = sorted(name for name, state in observation.config.connectors.items() if state.inconsistent)
    if incomplete:
        return inconclusive(
            "connectors",
            f"the task configs of {', '.join(incomplete)} are not complete in the config topic",
            "send its configuration again, unchanged (PUT), or delete it; Connect starts none of its tasks",
        )
    strange = _strange_reports(observation)
    if strange is not None:
        return strange
    tasks = sum(len(status.tasks) for status in observation.statuses.values())
    broken = sorted(n for n, s in observation.statuses.items() if any(t.state == "FAILED" for t in s.tasks))
    also = f"; FAILED tasks already now in {', '.join(broken)}" if broken else ""
    return passed("connectors", f"{len(observation.statuses)} connectors, {tasks} tasks{also}")


def _strange_reports(observation: Observation) -> Check | None:
    """States that another group's worker has written, or that no worker has written since one went away."""
    name = "connectors"
    for report in doubtful(observation, Doubt.UNKNOWN_WORKER):
        group = neighbour_of(observation, report.worker_id)
        again = restart_command(observation, report.connector)
        if group is not None:
            return failed(
                name,
                f"two Connect groups use the same internal topics: {report} reports from {report.worker_id}, a member "
                f"of group {group}",
                f"stop the workers of {group}, or give them topics of their own; then {again}",
            )
        return inconclusive(
            name,
            f"{report} reports from {report.worker_id}, which is no member of the group",
            f"find out what that worker is; if it is gone for good: {again}",
        )
    for group, names in sorted(twins(observation).items()):
        return inconclusive(
            name,
            f"group {group} runs connectors of the same names at the same config offset: {', '.join(names)}",
            "compare the workers' config.storage.topic. If both groups use one topic, stop one of them or "
            "give it topics of its own; if not, pause and resume a connector of either group: their config "
            "offsets differ then",
        )
    for report in doubtful(observation, Doubt.UNASSIGNED):
        return inconclusive(
            name,
            f"{report} is UNASSIGNED, though the group has placed it on {' and '.join(report.placed_on or ())}",
            f"check again; if it stays so: {restart_command(observation, report.connector)}",
        )
    return None


PreflightCheck = Callable[[Observation, Mode, RolloutSettings], Check]

PREFLIGHT_CHECKS: tuple[PreflightCheck, ...] = (
    owned,
    roster,
    group_is_stable,
    protocol,
    workers_answer,
    versions,
    files,
    shared_settings,
    proven_modes,
    ownership,
    offset_readers,
    connectors,
)


def verify(observation: Observation, target: Mode, left_down: Mapping[str, str] | None = None) -> Preflight:
    """Whether every running member is proven to be in ``target`` and every stopped one will join in it.

    :param left_down: as :func:`check` takes it.
    """
    checks = [roster(observation, target, RolloutSettings()), group_is_stable(observation, target, RolloutSettings())]
    for worker in observation.workers:
        mode = worker.mode.verdict.mode
        if rollout := (left_down or {}).get(worker.worker_id):
            remedy = f"apply a new plan ('eos plan'), or {worker.facts.how_to_start}"
            checks.append(failed(worker.worker_id, f"stopped by rollout {rollout}", remedy))
        elif worker in observation.stopped:
            joins_as = worker.facts.declared.mode
            answer = passed if joins_as is target else failed
            evidence = f"stopped, will join as {joins_as or 'unknown'} by its configuration"
            checks.append(answer(worker.worker_id, evidence))
        elif mode is None:
            checks.append(inconclusive(worker.worker_id, worker.mode.reason, "see 'eos status'"))
        elif mode is target:
            checks.append(passed(worker.worker_id, f"{mode}: {worker.mode.reason}"))
        else:
            checks.append(failed(worker.worker_id, f"runs {mode}: {worker.mode.reason}", f"roll it to {target}"))
    return Preflight(target, tuple(checks))


def kafka_version(version: str) -> tuple[int, int] | None:
    """Major and minor version of Apache Kafka; Confluent's own numbers (``7.5.0-ccs``) are Apache's plus four."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        return None
    major, minor = int(match.group(1)), int(match.group(2))
    return (major - 4, minor) if re.search(r"-(ccs|ce)\b", version) else (major, minor)


def _needs_restart(worker: WorkerObservation, target: Mode) -> bool:
    return worker.mode.verdict.mode is not target or bool(properties_to_set(worker.facts, target))


def _running(observation: Observation) -> list[WorkerObservation]:
    return [worker for worker in observation.workers if worker not in observation.stopped]
