"""May this cluster be rolled to this mode at all? Every reason against it, found before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from airflow_eos_provider.connect.group_bytes import EAGER, PROTOCOLS
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.errors import RefusedError, RolloutPausedError
from airflow_eos_provider.rollout.checks import Check, Verdict, failed, inconclusive, overall, passed
from airflow_eos_provider.rollout.observation import Observation, WorkerObservation
from airflow_eos_provider.rollout.properties import (
    ISOLATION_PROPERTY,
    READ_COMMITTED,
    not_ready_for_enabled,
    properties_to_set,
    uncommitted_readers,
)
from airflow_eos_provider.rollout.settings import RolloutSettings

#: KIP-618 came with Apache Kafka 3.3.0 (KAFKA-10000).
FIRST_VERSION = (3, 3)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found before a roll.

    :param target: the mode that was asked about.
    :param checks: one answer per condition.
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
        found = "\n".join(f"  - {check.name}: {check.evidence}" for check in self.findings)
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
        rows = "\n".join(f"| {check.name} | {check.verdict} | {check.evidence} |" for check in self.checks)
        return f"| check | answer | evidence |\n|---|---|---|\n{rows}"


def check(observation: Observation, target: Mode, settings: RolloutSettings) -> Preflight:
    """Answer every condition for a roll to ``target``."""
    return Preflight(target, tuple(condition(observation, target, settings) for condition in CONDITIONS))


def roster(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """The description and the group name the same workers; those that do not run are known as stopped."""
    name = "roster"
    if observation.group is None:
        return inconclusive(name, observation.group_problem or "the group is not readable")
    if not observation.group.is_stable:
        return inconclusive(name, f"the members are not told while the group is in state {observation.group.state}")
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
            f"{absent[0].worker_id} runs (pid {absent[0].facts.process.pid if absent[0].facts.process else '?'}), "
            f"but is not a member of group {observation.group_id}",
            f"check group.id and bootstrap.servers in {absent[0].worker.config}, or wait until it has joined",
        )
    unseen = [w for w in observation.workers if w.worker_id in members and not w.is_running]
    if unseen:
        return failed(
            name,
            f"{unseen[0].worker_id} is a member of the group, but no process of it is found on this machine",
            "correct its pid_file, or run this where the worker runs",
        )
    stopped = [w.worker_id for w in observation.stopped]
    also = f"; {', '.join(stopped)} stopped" if stopped else ""
    return passed(name, f"{len(members)} members, all described{also}")


def group_is_calm(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """The group is stable; a roll does not start in the middle of a rebalance."""
    if observation.group is None:
        return inconclusive("group", observation.group_problem or "not readable")
    if not observation.group.is_stable:
        return inconclusive("group", f"state {observation.group.state}", "wait until the rebalance is over")
    if observation.leader_id is None:
        return inconclusive("group", "the members do not agree on a leader", "look again in a moment; read their logs")
    return passed("group", f"stable, protocol {observation.group.protocol}, led by {observation.leader_id}")


def protocol(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Which protocol the group speaks. Exactly-once asks for none in particular: a roll was seen to work in each.

    Below ``sessioned`` a worker takes every request to fence a connector's tasks for one of another worker's (the
    herder verifies signatures from protocol version 2 on). Through the same port he can delete connectors already, and
    a task that is fenced loses no record, so it is told and not refused.
    """
    name = "protocol"
    spoken = observation.group.protocol if observation.group else ""
    if spoken in ("", PROTOCOLS[-1]):  # none is told in mid-rebalance; that is the group's check
        return passed(name, spoken or "not told")
    property_value = "eager" if spoken == EAGER else spoken
    return passed(
        name,
        f"connect.protocol={property_value}: requests between workers are not signed, so whoever reaches a worker's "
        f"REST port may have running tasks fenced; {PROTOCOLS[-1]} on all workers ends that",
    )


def workers_answer(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """REST of every running worker answers; all of them sit on one Kafka cluster."""
    name = "REST"
    for worker in _running(observation):
        if not worker.is_healthy:
            found = worker.rest_problem or f"health is {worker.health.status if worker.health else 'unknown'}"
            return failed(name, f"{worker.worker_id}: {found}", f"read its log {worker.worker.log}")
    clusters = {worker.root.kafka_cluster_id for worker in observation.workers if worker.root}
    if len(clusters) > 1:
        return failed(name, f"the workers sit on different Kafka clusters: {', '.join(sorted(map(str, clusters)))}")
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
    """Each worker has a file and a start command of its own, and the file belongs to this group."""
    name = "worker files"
    owners: dict[object, str] = {}
    for worker in observation.workers:
        if worker.facts.problem:
            return failed(name, f"{worker.worker_id}: {worker.facts.problem}", "correct the cluster description")
        if worker.is_running and not worker.worker.start:
            return failed(name, f"{worker.worker_id} has no start command", "add 'start' to the cluster description")
        path = worker.facts.config_path
        if path in owners:
            return failed(
                name,
                f"{worker.worker_id} and {owners[path]} share the file {path}: changing one changes the other",
                "give each worker a properties file of its own",
            )
        owners[path] = worker.worker_id
        file_group = worker.facts.properties.get("group.id")
        if file_group != observation.group_id:
            return failed(
                name,
                f"{path} says group.id={file_group}, the cluster description says {observation.group_id}",
                "correct group_id, or the path of the file",
            )
    if observation.config_topic is None:
        return failed(name, "the files name different config topics (config.storage.topic)")
    return passed(name, f"{len(owners)} files, one group")


def proven_modes(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Every running worker's mode is proven, and the target may live beside it while the roll goes on.

    A disabled leader writes the config topic without transactions, so enabled workers could not be protected from it:
    upwards the way from disabled to enabled leads through preparing (KIP-618). Downwards nothing is left to protect:
    with the first worker that is not enabled, exactly-once is given up. A disabled leader was seen to serve fencing
    rounds for tasks on enabled workers (docs/downgrade.md), so nothing fails meanwhile either.
    """
    name = "modes"
    modes = {}
    for worker in _running(observation):
        mode = worker.mode.verdict.mode
        if mode is None:
            return inconclusive(
                name,
                f"the mode of {worker.worker_id} is unknown: {worker.mode.reason}",
                "'eos status' shows the layers of evidence; a restart of that worker often settles it",
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

    A roll to preparing sets ``isolation.level=read_committed``; a group that was brought there by hand lacks it. There
    an enabled worker that dies in mid-transaction would hand its task to one that skips records: they are lost, not
    doubled, and no error is shown (``properties.py``). So this is refused, unless nothing would be gained: a lone
    worker has nobody to take over from, and where some workers are enabled already, this roll is the shortest way out.
    """
    name = "source offsets"
    if not target.runs_exactly_once_tasks:
        return passed(name, "each worker of the roll will read them committed")
    readers = not_ready_for_enabled(observation)
    if readers:
        return failed(
            name,
            f"{', '.join(readers)} would read them uncommitted: beside the first enabled worker, what an aborted "
            "transaction left there is taken for progress, and records are lost",
            f"'eos plan --to preparing' once more: it sets {ISOLATION_PROPERTY}={READ_COMMITTED}",
        )
    readers = uncommitted_readers(observation)
    if readers:
        return passed(name, f"{', '.join(readers)} would read them uncommitted; the end of this roll ends that")
    return passed(name, "every worker reads them committed")


def takeover(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Another worker can take the tasks over while one restarts."""
    running = _running(observation)
    if all(w.mode.verdict.mode is target and not properties_to_set(w.facts, target) for w in running):
        return passed("downtime", f"{len(running)} workers run, none needs a restart")
    if len(running) == 1 and not settings.allow_downtime:
        return failed(
            "downtime",
            f"{running[0].worker_id} is the only worker that runs: its restart stops every connector",
            "accept that with --allow-downtime",
        )
    return passed("downtime", f"{len(running)} workers run, one restarts at a time")


def connectors(observation: Observation, target: Mode, settings: RolloutSettings) -> Check:
    """Statuses and config topic are readable; without them the gate could not judge."""
    problem = observation.statuses_problem or observation.config_problem
    if observation.statuses is None or observation.config is None:
        return inconclusive("connectors", problem or "not readable", "make REST and the config topic readable")
    incomplete = sorted(name for name, state in observation.config.connectors.items() if state.inconsistent)
    if incomplete:
        return inconclusive(
            "connectors",
            f"the task configs of {', '.join(incomplete)} are not complete in the config topic",
            "write its configuration once more (PUT it as it is), or delete it; Connect starts none of its tasks",
        )
    tasks = sum(len(status.tasks) for status in observation.statuses.values())
    broken = sorted(n for n, s in observation.statuses.items() if any(t.state == "FAILED" for t in s.tasks))
    also = f"; FAILED tasks already now in {', '.join(broken)}" if broken else ""
    return passed("connectors", f"{len(observation.statuses)} connectors, {tasks} tasks{also}")


Condition = Callable[[Observation, Mode, RolloutSettings], Check]

CONDITIONS: tuple[Condition, ...] = (
    roster,
    group_is_calm,
    protocol,
    workers_answer,
    versions,
    files,
    proven_modes,
    offset_readers,
    takeover,
    connectors,
)


def verify(observation: Observation, target: Mode) -> Preflight:
    """Whether every running member is proven to be in ``target`` and every stopped one will join in it."""
    checks = [roster(observation, target, RolloutSettings()), group_is_calm(observation, target, RolloutSettings())]
    for worker in observation.workers:
        mode = worker.mode.verdict.mode
        if worker in observation.stopped:
            joins_as = worker.facts.declared.mode
            answer = passed if joins_as is target else failed
            checks.append(answer(worker.worker_id, f"stopped, will join as {joins_as or 'unknown'} by its file"))
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


def _running(observation: Observation) -> list[WorkerObservation]:
    return [worker for worker in observation.workers if worker not in observation.stopped]
