"""Effects of an older Kafka Connect on a group that newer workers have run: decisions alone.

Rules: observed with 3.2.3 and 4.3.1 (docs/connect/downgrade.md).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_eos_provider.connect.rest import ConnectorStatus
from airflow_eos_provider.connect.task_failures import FailureKind, name_failure
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.finding import Finding, Verdict
from airflow_eos_provider.offsets.seen.copies import Copies
from airflow_eos_provider.rollout.observe.reported_states import restart_request
from airflow_eos_provider.rollout.plan.obstacles import FIRST_VERSION, kafka_version
from airflow_eos_provider.rollout.plan.worker_edits import ISOLATION_PROPERTY, READ_COMMITTED

#: Connectors can be stopped since KIP-875; before, a stopped one is paused.
FIRST_WITH_STOP = (3, 5)

#: Properties of a connector that a version before KIP-618 does not know.
_SUPPORT = "exactly.once.support"
_UNKNOWN = (_SUPPORT, "transaction.boundary", "transaction.boundary.interval.ms")


class Effect(StrEnum):
    """What happens, the worst first."""

    LOSES = "loses records"
    REPEATS = "delivers again"
    FAILS = "tasks fail"
    UNKNOWN = "not known"
    CHANGES = "changes"

    @property
    def verdict(self) -> Verdict:
        return {Effect.CHANGES: Verdict.PASS, Effect.UNKNOWN: Verdict.INCONCLUSIVE}.get(self, Verdict.FAIL)


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """One worker.

    :param version: of Connect; None if it does not answer.
    :param exactly_once: whether it runs exactly-once source connectors; None if that is not known.
    :param properties: of its file; None if it cannot be read here.
    """

    worker_id: str
    version: str | None
    exactly_once: bool | None
    properties: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def is_older(self) -> bool:
        number = kafka_version(self.version or "")
        return number is not None and number < FIRST_VERSION


@dataclass(frozen=True, slots=True)
class DowngradeLook:
    """A group as it is before, or in the midst of, a downgrade.

    :param url: of a worker that answers.
    :param not_read: by connector why its own topic is not known.
    """

    group_id: str
    to_version: str
    url: str
    workers: tuple[SeenWorker, ...]
    connectors: Mapping[str, ConnectorStatus]
    copies: tuple[Copies, ...]
    not_read: Mapping[str, str]
    task_count_records: Mapping[str, int]

    @property
    def can_be_refused(self) -> bool:
        """Whether a newer worker is there, which knows what a connector requires."""
        return any(worker.version is not None and not worker.is_older for worker in self.workers)

    @property
    def is_before_kip_618(self) -> bool:
        """Whether the older version knows nothing of exactly-once source support."""
        number = kafka_version(self.to_version)
        return number is not None and number < FIRST_VERSION


def finding(effect: Effect, about: str, found: str, remedy: str = "") -> Finding:
    """What the older version does not know, or does otherwise, about a worker, a connector, or a topic."""
    return Finding(about, effect.verdict, found, remedy=remedy, kind=effect)


def findings(look: DowngradeLook) -> list[Finding]:
    """What the downgrade brings about, the worst first."""
    number = kafka_version(look.to_version)
    found: list[Finding] = []
    if look.is_before_kip_618:
        found += [*_readers(look), *_modes(look), *_own_topics(look), *_ignored(look), *_records(look)]
    if number is not None and number < FIRST_WITH_STOP:
        found += _stopped(look)
    found += _task_configs(look)
    order = list(Effect)
    return sorted(found, key=lambda one: (order.index(Effect(one.kind)), one.subject))


def _readers(look: DowngradeLook) -> Iterator[Finding]:
    """Workers that would take uncommitted offsets for progress; 3.2 takes the same property for its own topics."""
    for worker in look.workers:
        if worker.properties is None:
            yield finding(
                Effect.UNKNOWN,
                worker.worker_id,
                f"its file cannot be read here: does it have {ISOLATION_PROPERTY}={READ_COMMITTED}?",
                "Check the file, and add the line if it is missing: without it the worker treats aborted offsets as "
                "progress.",
            )
        elif worker.properties.get(ISOLATION_PROPERTY) != READ_COMMITTED:
            yield finding(
                Effect.LOSES,
                worker.worker_id,
                f"its file does not have {ISOLATION_PROPERTY}={READ_COMMITTED}: an older worker treats the offsets of "
                "aborted transactions as progress, and never reads the records before them",
                "'eos plan --to disabled' sets it; otherwise add the line to the file with which the older worker "
                "starts.",
            )


def _modes(look: DowngradeLook) -> Iterator[Finding]:
    """In one step, tasks on workers that are still enabled ask an older leader for its fencing endpoint."""
    unknown = [worker.worker_id for worker in look.workers if worker.exactly_once is None]
    if unknown:
        yield finding(
            Effect.UNKNOWN,
            ", ".join(unknown),
            "does not say whether it runs exactly-once source connectors; if it does, its source tasks fail once an "
            "older worker leads the group",
            "Run this again when it answers; see 'eos status'.",
        )
    enabled = [worker.worker_id for worker in look.workers if worker.exactly_once]
    if not enabled:
        return
    tasks = [
        f"{name}-{task.number}"
        for name, status in sorted(look.connectors.items())
        if status.type != "sink"
        for task in status.tasks
    ]
    yield finding(
        Effect.FAILS,
        ", ".join(enabled),
        "runs exactly-once source connectors: once an older worker leads the group, each source task that starts here "
        f"fails (HTTP 404, no fencing endpoint). Tasks that may: {', '.join(tasks) or 'none now'}",
        "Two steps avoid that: 'eos plan --to disabled' and 'eos apply' first, then the older version. After one step, "
        "run this again when every worker is older: it names the tasks to restart.",
    )


def _own_topics(look: DowngradeLook) -> Iterator[Finding]:
    for one in look.copies:
        migrate = (
            f"'{shlex.join(['eos', 'offsets', 'migrate', one.connector, '--to', 'global'])}' before the downgrade."
        )
        if one.ahead:
            yield finding(
                Effect.LOSES,
                one.connector,
                f"resumes from the copies in the global topic, and in {counted(one.ahead, 'source partition')} the "
                "copy belongs to a transaction that is not committed: Connect writes the copy before the commit. "
                "Unless it is committed, the records of that transaction are skipped",
                f"Run this again in a moment: a running task may just be committing. If it stays, {migrate}",
            )
        elif one.further:
            yield finding(
                Effect.LOSES,
                one.connector,
                f"resumes from the global topic, which is ahead of its own topic {one.own_topic} in "
                f"{counted(one.further, 'source partition')}: the records between are skipped",
                migrate,
            )
        elif one.behind:
            yield finding(Effect.REPEATS, one.connector, behind_in_words(one), migrate)
        elif one.left:
            yield finding(
                Effect.REPEATS,
                one.connector,
                f"resumes from the global topic, which is newer than its own topic {one.own_topic} in "
                f"{counted(one.left, 'source partition')}; the own topic keeps its old offsets, and Connect reads it "
                "again after a re-upgrade",
                f"'{shlex.join(['eos', 'offsets', 'drop-own', one.connector])}' before newer workers run it.",
            )
        elif not one.read_own:
            yield finding(
                Effect.REPEATS,
                one.connector,
                f"has no offset in its own topic {one.own_topic} so far; the older version writes only to the global "
                "topic, and Connect reads the own topic again after a re-upgrade",
                migrate,
            )
        else:
            yield finding(
                Effect.REPEATS,
                one.connector,
                f"resumes from the copy in the global topic, which is up to date with its own topic {one.own_topic} "
                f"({counted(one.same, 'offset')}); the own topic keeps these offsets, and Connect reads it again after "
                "a re-upgrade",
                migrate,
            )
    for connector, why in sorted(look.not_read.items()):
        yield finding(Effect.UNKNOWN, connector, f"its own offsets topic cannot be determined: {why}")


def behind_in_words(one: Copies) -> str:
    """How far the copies of a connector's offsets are behind."""
    lag = "" if one.seconds_behind is None else f", by up to {one.seconds_behind:,.1f} s"
    missing = f", {one.missing:,} of them missing, so it starts from the beginning there" if one.missing else ""
    return (
        f"resumes from the copies in the global topic; of {counted(one.read_own, 'offset')} in its own topic "
        f"{one.own_topic} {one.behind:,} {'is' if one.behind == 1 else 'are'} ahead of the copy{lag}{missing}"
    )


def _ignored(look: DowngradeLook) -> Iterator[Finding]:
    for name, status in sorted(look.connectors.items()):
        names = [one for one in _UNKNOWN if status.config.get(one)]
        if names:
            required = status.config.get(_SUPPORT, "").lower() == "required"
            yield finding(
                Effect.CHANGES,
                name,
                f"{', '.join(names)} in its configuration: that version ignores it without an error",
                f"{_SUPPORT}=required: workers below enabled refuse every change of its configuration. Migrate its "
                "offsets, if that is due, while they are enabled, or set requested before."
                if required and look.can_be_refused
                else "",
            )


def _records(look: DowngradeLook) -> Iterator[Finding]:
    if look.task_count_records:
        yield finding(
            Effect.CHANGES,
            "config topic",
            f"{counted(len(look.task_count_records), 'task count record')}: each gives one ERROR in the log of an "
            "older worker that starts ('Discarding config update record with invalid key'), and is otherwise ignored",
        )


def _stopped(look: DowngradeLook) -> Iterator[Finding]:
    for name, status in sorted(look.connectors.items()):
        if status.state == "STOPPED":
            yield finding(
                Effect.CHANGES, name, "is STOPPED, and PAUSED for it (KIP-875): a resume by mistake starts its tasks"
            )


def _task_configs(look: DowngradeLook) -> Iterator[Finding]:
    """Tasks that have failed, once an older worker is there; and what restarts them."""
    if not any(worker.is_older for worker in look.workers):
        return
    all_older = all(worker.is_older for worker in look.workers)  # one that does not answer may be a newer one
    for name, status in sorted(look.connectors.items()):
        failed = [task for task in status.tasks if task.state == "FAILED"]
        if not failed:
            continue
        kinds = {name_failure(task.trace).kind for task in failed}
        fencing = FailureKind.FENCING_FAILED in kinds
        why = (
            " because the fencing endpoint does not exist"
            if fencing
            else ": an older task may need settings that a newer connector leaves out of its task configurations; a "
            "restart of the connector writes them again"
        )
        when = "" if all_older else "When every worker is older: "
        yield finding(
            Effect.FAILS,
            name,
            f"task {', '.join(str(task.number) for task in failed)} has FAILED{why}",
            f"{when}{restart_request(look.url, name)}",
        )
