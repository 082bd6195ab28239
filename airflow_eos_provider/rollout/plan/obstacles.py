"""May this cluster be rolled to this mode at all? Every reason against it, found before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from airflow_eos_provider.acls.check import AclReport
from airflow_eos_provider.acls.forms import kafka_acls_lines
from airflow_eos_provider.acls.judge import Source
from airflow_eos_provider.connect.cluster.managed import managed_workers
from airflow_eos_provider.connect.cluster.other_kafka import OVERRIDES
from airflow_eos_provider.connect.cluster.worker import WorkerDescription
from airflow_eos_provider.connect.group import EAGER, PROTOCOLS
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import references
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.errors import RefusedError, RolloutPausedError
from airflow_eos_provider.finding import Verdict, overall
from airflow_eos_provider.preflight.preflight_report import Report
from airflow_eos_provider.rollout.answer import Check, failed, fails, holds, inconclusive, named, passed, unknown
from airflow_eos_provider.rollout.observe.client_clusters import ClientClusters
from airflow_eos_provider.rollout.observe.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.observe.reported_states import (
    Doubt,
    doubtful,
    neighbour_of,
    restart_command,
)
from airflow_eos_provider.rollout.observe.roster import foreign_reports, out_of_the_group, stranger
from airflow_eos_provider.rollout.plan.worker_edits import (
    ISOLATION_PROPERTY,
    READ_COMMITTED,
    not_ready_for_enabled,
    properties_to_set,
    uncommitted_readers,
)
from airflow_eos_provider.rollout.roll_settings import RolloutSettings

#: KIP-618 came with Apache Kafka 3.3.0 (KAFKA-10000).
FIRST_VERSION = (3, 3)

#: So many rights are named that are missing or not known; 'eos acl check' has all.
SHOWN_RIGHTS = 4


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
        """Go on only if everything passed."""
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


def check(
    observation: Observation,
    target: Mode,
    settings: RolloutSettings,
    left_down: Mapping[str, str] | None = None,
    clients: Mapping[str, ClientClusters] | None = None,
    acls: AclReport | None = None,
) -> Preflight:
    """Answer every preflight check of a roll to ``target``."""
    return Preflight(
        target,
        (
            own_workers(each.worker for each in observation.workers),
            *(ask(observation, target) for ask in PREFLIGHT_CHECKS),
            other_clusters(clients),
            rights(acls),
            takeover(observation, target, settings, left_down or {}),
        ),
    )


@named("own workers")
def own_workers(workers: Iterable[WorkerDescription]) -> Check:
    """No worker belongs to a managed service, where neither its settings nor its process can be reached."""
    for worker_id, service in managed_workers(workers).items():
        return fails(
            f"{worker_id} belongs to {service.name}, which cannot be rolled from here: {service.why}",
            f"{service.instead}; read-only commands (eos status, preflight, offsets list) work if its REST API and "
            "its brokers answer",
        )
    return holds("no worker has an address of a managed service")


@named("roster")
def roster(observation: Observation, target: Mode) -> Check:
    """The description and the group name the same workers; those that do not run are known as stopped."""
    if observation.group is None:
        return unknown(observation.group_problem or "the group is not readable")
    if not observation.group.is_stable:
        return unknown(f"the members are unknown while the group is in state {observation.group.state}")
    for member in observation.unknown_members:
        return stranger(observation, member)
    for worker in sorted(observation.not_stopped, key=lambda each: each in observation.lost):
        if (out := out_of_the_group(observation, worker)) is not None:
            answer = unknown if worker in observation.lost else fails
            return answer(*out)
    members = observation.members
    unseen = [w for w in observation.workers if w.worker_id in members and not w.is_running]
    if unseen:
        return fails(
            f"{unseen[0].worker_id} is a member of the group, but no process of it is found on its host: "
            f"{unseen[0].facts.running.detail}",
            unseen[0].facts.problem_remedy or "correct its description, or run this where the worker runs",
        )
    stopped = [w.worker_id for w in observation.stopped]
    also = f"; {', '.join(stopped)} stopped" if stopped else ""
    return holds(f"{len(members)} members, all described{also}")


@named("group")
def group_is_stable(observation: Observation, target: Mode) -> Check:
    """The group is stable; a roll does not start in the middle of a rebalance."""
    if observation.group is None:
        return unknown(observation.group_problem or "not readable")
    if not observation.group.is_stable:
        return unknown(f"state {observation.group.state}", "wait until the rebalance is over")
    if observation.leader_id is None:
        return unknown("the members do not agree on a leader", "check again in a moment; read their logs")
    return holds(f"stable, protocol {observation.group.protocol}, led by {observation.leader_id}")


@named("protocol")
def protocol(observation: Observation, target: Mode) -> Check:
    """Which protocol the group speaks. Exactly-once asks for none in particular: a roll was seen to work in each.

    Below ``sessioned`` a worker takes every request to fence a connector's tasks for one of another worker's (the
    herder verifies signatures from protocol version 2 on). Whoever reaches that port can delete connectors
    already, and a fenced task loses no record, so this is reported and not refused.
    """
    spoken = observation.group.protocol if observation.group else ""
    if spoken in ("", PROTOCOLS[-1]):  # unknown in mid-rebalance; that is the group's check
        return holds(spoken or "unknown")
    property_value = "eager" if spoken == EAGER else spoken
    return holds(
        f"connect.protocol={property_value}: requests between workers are not signed, so any client that reaches a "
        f"worker's REST port can have running tasks fenced; set {PROTOCOLS[-1]} on all workers to prevent that"
    )


@named("REST")
def workers_answer(observation: Observation, target: Mode) -> Check:
    """REST of every running worker answers; all of them sit on one Kafka cluster."""
    for worker in observation.not_stopped:
        if not worker.is_healthy:
            return fails(f"{worker.worker_id}: {worker.ailment}", worker.silence_remedy)
    clusters = {worker.root.kafka_cluster_id for worker in observation.workers if worker.root}
    if len(clusters) > 1:
        return fails(f"the workers use different Kafka clusters: {', '.join(sorted(map(str, clusters)))}")
    return holds(f"{len(observation.not_stopped)} workers answer")


@named("version")
def versions(observation: Observation, target: Mode) -> Check:
    """Every worker is new enough for KIP-618."""
    seen = {w.worker_id: w.root.version for w in observation.workers if w.root}
    for worker_id, version in seen.items():
        number = kafka_version(version)
        if number is None:
            return unknown(f"{worker_id} runs version {version!r}, which is not understood")
        if number < FIRST_VERSION:
            return fails(
                f"{worker_id} runs Kafka Connect {version}, exactly-once source support came with 3.3.0",
                "upgrade that worker first",
            )
    return holds(", ".join(sorted(set(seen.values()))) or "no worker runs")


@named("worker files")
def files(observation: Observation, target: Mode) -> Check:
    """Each worker's description is complete, and its settings belong to this group.

    Several workers may share one edit, as long as it needs the same change for each of them.
    """
    owners: dict[str, WorkerObservation] = {}
    processes: dict[str, str] = {}
    for worker in observation.workers:
        if worker.facts.problem:
            remedy = worker.facts.problem_remedy or "correct the cluster description"
            return fails(f"{worker.worker_id}: {worker.facts.problem}", remedy)
        edit = worker.facts.edit
        first = owners.setdefault(edit.name, worker)
        if properties_to_set(first.facts, target) != properties_to_set(worker.facts, target):
            return fails(
                f"{worker.worker_id} and {first.worker_id} share the {edit} and need different changes of it",
                f"give each its own, or let {MODE_PROPERTY} come from the same place for both",
            )
        same = processes.setdefault(worker.facts.start_token or worker.worker_id, worker.worker_id)
        if same != worker.worker_id:
            return fails(
                f"{worker.worker_id} and {same} are found as one process ({worker.facts.runs_as})",
                "correct the description: each worker is a process of its own",
            )
        file_group = worker.facts.properties.get("group.id", "")
        if file_group != observation.group_id and not references(file_group):
            return fails(
                f"the {edit} says group.id={file_group}, the cluster description says {observation.group_id}",
                "correct group_id, or what the description of that worker names",
            )
    return holds(f"{len(owners)} edits for {len(observation.workers)} workers, one group")


@named("shared settings")
def shared_settings(observation: Observation, target: Mode) -> Check:
    """All workers have the same group and internal topics. What a config provider supplies needs another proof."""
    for topic in observation.topics:
        if topic.differing:
            return fails(topic.problem, topic.remedy)
    for worker in observation.workers:
        supplied = worker.facts.properties.get("group.id", "")
        if references(supplied) and worker.worker_id not in observation.members:
            return unknown(
                f"a config provider supplies group.id of {worker.worker_id} ({supplied}), which is not a member of "
                f"group {observation.group_id}",
                "start it: a member proves its group.id; or write group.id into its file",
            )
    for topic in observation.topics:
        if topic.unknown:
            return unknown(topic.problem, topic.remedy)
    if observation.config_topic is None:
        return fails("no worker's configuration says config.storage.topic", "set it for all workers")
    return holds(f"group {observation.group_id}, config topic {observation.config_topic}")


@named("modes")
def proven_modes(observation: Observation, target: Mode) -> Check:
    """Every running worker's mode is proven, and the target may live beside it while the roll goes on.

    A disabled leader writes the config topic without transactions, so enabled workers could not be protected from it:
    upwards the way from disabled to enabled leads through preparing (KIP-618). Downwards nothing is left to protect:
    with the first worker that is not enabled, exactly-once is given up. A disabled leader was seen to serve fencing
    rounds for tasks on enabled workers (docs/connect/downgrade.md), so nothing fails meanwhile either.
    """
    modes = {}
    for worker in observation.not_stopped:
        mode = worker.mode.verdict.mode
        if mode is None:
            return unknown(
                f"the mode of {worker.worker_id} is unknown: {worker.mode.reason}",
                f"{worker.mode_remedy}; 'eos status' shows the layers of evidence",
            )
        modes[worker.worker_id] = mode
    going_up = any(target.is_above(mode) for mode in modes.values())
    apart = {w: mode for w, mode in sorted(modes.items()) if going_up and not mode.may_live_beside(target)}
    if apart:
        return fails(
            f"{', '.join(apart)} still run{'s' if len(apart) == 1 else ''} {next(iter(apart.values()))}",
            "roll to preparing first: 'eos plan --to preparing'",
        )
    return holds(", ".join(f"{w} {m}" for w, m in sorted(modes.items())) or "no worker runs")


@named("source offsets")
def offset_readers(observation: Observation, target: Mode) -> Check:
    """While the group rolls to enabled, no worker that waits for its turn may take an aborted offset for progress.

    A roll to preparing sets ``isolation.level=read_committed``; a group that was brought there manually lacks it. There
    an enabled worker that dies in mid-transaction would hand its task to one that skips records: they are lost, not
    doubled, and no error is shown (``worker_edits.py``). So this is refused, unless nothing would be gained: a lone
    worker takes over from no other, and where some workers are enabled already, this roll is the shortest way out.
    """
    if not target.runs_exactly_once_tasks:
        return holds("each worker of the roll will read them committed")
    readers = not_ready_for_enabled(observation)
    if readers:
        return fails(
            f"{', '.join(readers)} would read them uncommitted: as soon as one worker is enabled, they treat the "
            "offsets of an aborted transaction as progress, and records are lost",
            f"'eos plan --to preparing' once more: it sets {ISOLATION_PROPERTY}={READ_COMMITTED}",
        )
    readers = uncommitted_readers(observation)
    if readers:
        return holds(f"{', '.join(readers)} would read them uncommitted until this roll is done")
    return holds("every worker reads them committed")


@named("processes")
def ownership(observation: Observation, target: Mode) -> Check:
    """Each worker may be restarted and its configuration be changed from here, seen before the first is touched.

    A worker that a supervisor starts again would run twice, and one of another user would come back as this one. Which
    workers a roll restarts is not known for certain before (the leader may be restarted once more to end a rebalance
    delay), so every running one is asked, unless none needs anything.
    """
    running = observation.not_stopped
    if not observation.stopped and not any(_needs_restart(worker, target) for worker in running):
        return holds("no worker needs a restart")
    for worker in observation.workers:
        if worker.facts.restart is not None:
            return unknown(f"{worker.worker_id}: {worker.facts.restart}", "wait until it is over")
        changes = bool(properties_to_set(worker.facts, target))
        in_the_way = [
            *(worker.facts.obstacles_to("change") if changes else ()),
            *(worker.facts.obstacles_to("restart") if worker in running else ()),
        ]
        if in_the_way:
            found = "; ".join(obstacle.what for obstacle in in_the_way)
            remedies = dict.fromkeys(obstacle.remedy for obstacle in in_the_way)
            return fails(f"{worker.worker_id}: {found}", "; ".join(remedies))
    return holds("eos can restart each worker and change its configuration from here")


@named("downtime")
def takeover(observation: Observation, target: Mode, settings: RolloutSettings, left_down: Mapping[str, str]) -> Check:
    """Another worker can take the tasks over while one restarts."""
    running = observation.not_stopped
    if left_down:
        workers = ", ".join(f"{worker_id} (by rollout {rollout})" for worker_id, rollout in sorted(left_down.items()))
        return holds(f"stopped by an earlier roll, and started first: {workers}; then one restarts at a time")
    if not any(_needs_restart(worker, target) for worker in running):
        return holds(f"{len(running)} workers run, none needs a restart")
    if len(running) == 1 and not settings.allow_downtime:
        return fails(
            f"{running[0].worker_id} is the only worker that runs: its restart stops every connector",
            "accept that with --allow-downtime",
        )
    return holds(f"{len(running)} workers run, one restarts at a time")


@named("connectors")
def connectors(observation: Observation, target: Mode) -> Check:
    """Statuses and config topic are readable, and it is this group that reports; else the gate could not judge."""
    problem = observation.statuses_problem or observation.config_problem
    if observation.statuses is None or observation.config is None:
        return unknown(problem or "not readable", "make REST and the config topic readable")
    incomplete = sorted(name for name, state in observation.config.connectors.items() if state.inconsistent)
    if incomplete:
        return unknown(
            f"the task configs of {', '.join(incomplete)} are not complete in the config topic",
            "send its configuration again, unchanged (PUT), or delete it; Connect starts none of its tasks",
        )
    for each in foreign_reports(observation):
        answer = fails if neighbour_of(observation, each.subject) else unknown
        return answer(each.found, each.remedy)
    for report in doubtful(observation, Doubt.UNASSIGNED):
        return unknown(
            f"{report} is UNASSIGNED, though the group has placed it on {' and '.join(report.placed_on or ())}",
            f"check again; if it stays so: {restart_command(observation, report.connector)}",
        )
    tasks = sum(len(status.tasks) for status in observation.statuses.values())
    broken = sorted(n for n, s in observation.statuses.items() if any(t.state == "FAILED" for t in s.tasks))
    also = f"; FAILED tasks already now in {', '.join(broken)}" if broken else ""
    return holds(f"{len(observation.statuses)} connectors, {tasks} tasks{also}")


def begins_exactly_once(observation: Observation, target: Mode) -> bool:
    """Whether this roll is the one that begins exactly-once: its target does, and no worker runs in it yet."""
    begun = any(worker.mode.verdict.mode is Mode.ENABLED for worker in observation.workers)
    return target.runs_exactly_once_tasks and not begun


@named("other clusters")
def other_clusters(clients: Mapping[str, ClientClusters] | None) -> Check:
    """No source connector loses its offsets, or its fencing, to another Kafka cluster."""
    if clients is None:
        return holds("asked when exactly-once begins")
    for name, found in clients.items():
        if not found.problem and (problem := _problem(name, found)) is not None:
            evidence, remedy = problem
            return fails(f"{name}: {evidence}", f"{remedy}; or stop {name} until that is done")
    for name, found in clients.items():
        if found.problem:
            return unknown(
                f"{name}: {found.problem}", f"{found.remedy}; or stop {name}, and see docs/connect/offsets.md"
            )
    return holds("no running source connector has its offsets or its fencing elsewhere")


def _problem(name: str, found: ClientClusters) -> tuple[str, str] | None:
    """What is wrong, and what to do."""
    if found.admin != found.producer:
        return (
            f"its producers write to the Kafka cluster {found.producer} and would be fenced in {found.admin}: a zombie "
            "task could continue to write",
            f"set {OVERRIDES['admin']} to the addresses of {OVERRIDES['producer']}",
        )
    if found.consumer != found.producer:
        return (
            f"its offsets would be written to the Kafka cluster {found.producer} and read from {found.consumer}, so "
            "the offsets that it resumes from are not part of its transactions",
            f"set {OVERRIDES['consumer']} to the addresses of {OVERRIDES['producer']}",
        )
    if found.producer != found.workers and not found.has_own_topic:
        return (
            f"its offsets are in the workers' Kafka cluster {found.workers}; in the mode enabled its tasks read them "
            f"in {found.producer}, find none, and start from the beginning",
            f"move its offsets there first: 'eos offsets migrate {name} --to own'",
        )
    return None


@named("rights")
def rights(report: AclReport | None) -> Check:
    """Nothing that the roll begins with is refused by the brokers.

    What is not known is said, and stops no roll: ACLs are readable by few, and workers may be super users.
    """
    if report is None:
        return holds("this roll needs no further ones")
    if not report.has_authorizer:
        return holds("the brokers have no authorizer")
    if report.lacking:
        said = "; ".join(f"{each.rule} ({each.rule.part}; {each.found})" for each in report.lacking[:SHOWN_RIGHTS])
        more = f"; and {len(report.lacking) - SHOWN_RIGHTS} more" if len(report.lacking) > SHOWN_RIGHTS else ""
        lines = kafka_acls_lines([each.rule.acl for each in report.lacking if not each.denials])
        denied = ["remove the ACLs that deny it"] if any(each.denials for each in report.lacking) else []
        return fails(f"missing: {said}{more}", "; ".join([*denied, *lines, "or 'eos acl grant'"]))
    if report.unknown or not report.findings:
        reasons = [each.found for each in report.unknown] or list(report.notes) or ["nothing could be asked"]
        said = "; ".join(dict.fromkeys(reasons[:SHOWN_RIGHTS]))
        return holds(f"eos cannot tell whether they exist: {said}. 'eos acl check' tries them")
    needed = [each for each in report.findings if each.rule.is_required]
    tested = sum(each.source is Source.ATTEMPT for each in needed)
    return holds(
        f"this roll needs {counted(len(needed), 'further right')}; none is missing "
        f"({tested} tested as the principal, the others checked in the ACLs)"
    )


@named("connectors")
def stops_no_task(report: Report) -> Check:
    """No task that runs now fails in the mode."""
    stopping = report.stopping
    if not stopping:
        return holds(report.summary())
    found = "; ".join(f"{one.subject}: {one.found}" for one in stopping)
    remedies = "; ".join(dict.fromkeys(f"{one.subject}: {one.remedy}" for one in stopping))
    return fails(f"tasks that run now would fail: {found}", f"{remedies}; or stop them, see 'eos preflight'")


PreflightCheck = Callable[[Observation, Mode], Check]

PREFLIGHT_CHECKS: tuple[PreflightCheck, ...] = (
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
    """Whether every running member is proven to be in ``target`` and every stopped one will join in it."""
    checks = [roster(observation, target), group_is_stable(observation, target)]
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
