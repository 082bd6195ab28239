"""Decides which mode a worker is in, from three layers of evidence; *unknown* where they do not suffice.

*Declared* is what the worker's file says, *running* what its process started with, *observed* what the worker answers
over REST. No single layer is enough: a file may be newer than the process, a log may be gone, and REST tells enabled
from not enabled, but ``preparing`` from ``disabled`` only at the group's leader (KIP-618: the leader of a preparing or
enabled group writes the config topic by the transactional id ``connect-cluster-<group>``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.connect.properties import references, resolved
from airflow_eos_provider.connect.transactional_ids import leader_id
from airflow_eos_provider.errors import ConfigurationError, ConnectRestError, UnreachableError

if TYPE_CHECKING:  # judging needs neither client
    from airflow_eos_provider.connect.rest import ConnectRest
    from airflow_eos_provider.kafka.admin.transactions import TransactionsClient

#: The broker forgets a transactional id that wrote nothing for this many seconds (``transactional.id.expiration.ms``).
TRANSACTIONAL_ID_EXPIRATION_SECONDS = 7 * 24 * 3600.0

#: What a worker that is not enabled says to a connector that requires exactly-once (``DistributedHerder``, since 3.3).
NOT_ENABLED = "This worker does not have exactly-once source support enabled."

#: Times of another machine are moved to this one's clock with an error of at most so many seconds.
CLOCK_ERROR_SECONDS = 5.0

SUPPORT_PROPERTY = "exactly.once.support"

#: Source connectors whose validation asks no other system, with what they want to see in a configuration.
PASSIVE_PLUGINS: Mapping[str, Mapping[str, str]] = {
    "org.apache.kafka.connect.file.FileStreamSourceConnector": {"file": "/dev/null", "topic": "eos-mode-probe"},
    "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector": {
        "source.cluster.alias": "source",
        "target.cluster.alias": "target",
    },
    "io.confluent.kafka.connect.datagen.DatagenConnector": {"kafka.topic": "eos-mode-probe", "quickstart": "users"},
}


@dataclass(frozen=True, slots=True)
class Declared:
    """What a worker's configuration says.

    :param mode: the mode; a file without the property means disabled. None if the file cannot be read, says something
        else, or leaves it to a config provider that cannot be followed.
    :param modified_at: the file's date, seconds since the epoch: of its last change, unless a tool has set another.
    :param changed_at: when anything about the file was last changed (renamed into place, for one); not before
        ``modified_at``. A process that started later has read what is there now.

    Each is None if unknown. A time in the future proves nothing, so it counts as unknown.
    """

    mode: Mode | None
    detail: str
    modified_at: float | None
    changed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """What a worker's process shows of itself.

    :param mode: the mode it printed when it started, None if its log does not prove one.
    :param alive: whether the process runs; None if that is unknown.
    :param reads_file: whether its command line names the declared file; None if that is unknown.
    """

    mode: Mode | None
    detail: str
    started_at: float | None
    alive: bool | None
    reads_file: bool | None = None


@dataclass(frozen=True, slots=True)
class LeaderEvidence:
    """What the broker knows about how the group's leader writes the config topic.

    :param transactional: True if the present leader has written it in a transaction, False if no leader has within the
        broker's memory, None if that is unknown.
    """

    transactional: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What a worker answers.

    :param runs_exactly_once: whether it would run a connector that requires exactly-once; None if it did not say.
    :param leader_evidence: only of the worker that leads the group.
    :param has_answered: whether anything answered at its address as a Connect worker does.
    """

    runs_exactly_once: bool | None
    detail: str
    leader_evidence: LeaderEvidence | None = None
    has_answered: bool = False


class ModeVerdict(StrEnum):
    """A proven mode, or unknown. Unknown pauses a roll; nothing takes it for disabled."""

    DISABLED = "disabled"
    PREPARING = "preparing"
    ENABLED = "enabled"
    UNKNOWN = "unknown"

    @property
    def mode(self) -> Mode | None:
        return None if self is ModeVerdict.UNKNOWN else Mode(self.value)


@dataclass(frozen=True, slots=True)
class WorkerMode:
    """One worker's mode with its evidence.

    :param disagreements: in words, each pair of layers that do not say the same. A file newer than its process is such
        a disagreement, though the verdict may still be what the process proves itself to run.
    """

    worker_id: str
    verdict: ModeVerdict
    declared: Declared
    running: Running
    observed: Observed
    disagreements: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _Claim:
    says: str
    possible: frozenset[Mode]


def judge(worker_id: str, declared: Declared, running: Running, observed: Observed) -> WorkerMode:
    """Weigh the layers: the one mode that is possible under every piece of evidence, or unknown.

    The file counts as evidence for the process only if the process was started with it and it has not been touched
    since; otherwise it only tells how the worker will join next time.
    """
    claims = _claims(declared, running, observed)
    contradictions = _contradictions(claims)
    possible = frozenset(Mode).intersection(*(claim.possible for claim in claims))
    verdict = ModeVerdict.UNKNOWN
    answers = observed.has_answered or observed.runs_exactly_once is not None
    if running.alive is False and answers:
        contradictions.append(f"no process of this worker runs ({running.detail}), but its address answers")
    if running.alive is False and not answers:
        reason = f"stopped; will join as {declared.mode or 'unknown'} ({declared.detail})"
    elif contradictions:
        reason = "the evidence contradicts itself: " + "; ".join(contradictions)
    elif len(possible) == 1:
        verdict = ModeVerdict(next(iter(possible)).value)
        reason = "; ".join(claim.says for claim in claims)
    else:
        reason = _not_enough(claims, running, observed)
    return WorkerMode(
        worker_id=worker_id,
        verdict=verdict,
        declared=declared,
        running=running,
        observed=observed,
        disagreements=(*contradictions, *_about_the_file(declared, running, verdict.mode)),
        reason=reason,
    )


def _claims(declared: Declared, running: Running, observed: Observed) -> list[_Claim]:
    claims = []
    if running.mode is not None:
        claims.append(_Claim(running.detail, frozenset({running.mode})))
    if declared.mode is not None and _has_read_the_file(declared, running):
        says = f"its file says {declared.mode} and is unchanged since the process started"
        claims.append(_Claim(says, frozenset({declared.mode})))
    if observed.runs_exactly_once is not None:
        exactly_once = frozenset(mode for mode in Mode if mode.runs_exactly_once_tasks)
        claims.append(_Claim(observed.detail, exactly_once if observed.runs_exactly_once else _others(exactly_once)))
    leader = observed.leader_evidence
    if leader is not None and leader.transactional is not None:
        transactional = frozenset(mode for mode in Mode if mode.uses_transactional_leader)
        claims.append(_Claim(leader.detail, transactional if leader.transactional else _others(transactional)))
    return claims


def _others(modes: frozenset[Mode]) -> frozenset[Mode]:
    return frozenset(Mode) - modes


def _has_read_the_file(declared: Declared, running: Running) -> bool:
    return (
        running.alive is True
        and running.reads_file is True
        and running.started_at is not None
        and declared.changed_at is not None
        and declared.changed_at < running.started_at
    )


def _contradictions(claims: list[_Claim]) -> list[str]:
    return [
        f"{first.says}, but {second.says}"
        for number, first in enumerate(claims)
        for second in claims[number + 1 :]
        if not first.possible & second.possible
    ]


def _not_enough(claims: list[_Claim], running: Running, observed: Observed) -> str:
    if not claims:
        return f"nothing proves its mode: {running.detail}; {observed.detail}"
    reason = f"{'; '.join(claim.says for claim in claims)}; {running.detail}"
    leader = observed.leader_evidence
    if leader is not None:
        return f"{reason}; {leader.detail}"
    return f"{reason}; preparing and disabled look alike from outside on a worker that does not lead the group"


def _about_the_file(declared: Declared, running: Running, proven: Mode | None) -> list[str]:
    """Where the file and the process differ, which need not put the verdict in doubt."""
    if running.alive is False:
        return []
    if declared.mode is None:
        return [] if declared.modified_at is None else [f"the next start is uncertain: {declared.detail}"]
    if proven is None or declared.mode is proven:
        return []
    if running.reads_file is False:
        return [
            f"the file says {declared.mode}, but the process was not started with that file and runs {proven}: "
            "is it the right file?"
        ]
    if running.started_at is None or declared.modified_at is None:
        return [f"the file says {declared.mode}, the worker runs {proven}: a restart will change the mode"]
    changed_at = declared.changed_at or declared.modified_at
    since = f"since {_clock(changed_at)}"
    if changed_at > declared.modified_at + 1:
        since = f"(dated {_clock(declared.modified_at)}, last changed {_clock(changed_at)})"
    return [
        f"the file says {declared.mode} {since}, the process started "
        f"{'before that ' if running.started_at < changed_at else ''}"
        f"({_clock(running.started_at)}) and runs {proven}: a restart will change the mode"
    ]


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def declare(
    properties: Mapping[str, str],
    *,
    modified_at: float | None = None,
    changed_at: float | None = None,
    variable: Callable[[str], str | None] = lambda _name: None,
) -> Declared:
    """What a worker's properties say.

    :param variable: looks up one variable in the worker's environment, for ``${env:NAME}``; None if it cannot be read.
    """
    latest = time.time() + CLOCK_ERROR_SECONDS
    modified_at = modified_at if modified_at is not None and modified_at <= latest else None
    changed_at = max(changed_at, modified_at or changed_at) if changed_at is not None and changed_at <= latest else None
    text = properties.get(MODE_PROPERTY)
    if text is None:
        return Declared(Mode.DISABLED, f"{MODE_PROPERTY} is not set, so disabled", modified_at, changed_at)
    says = text
    if references(text):
        now = resolved(text, properties, variable)
        if now is None:
            detail = f"{MODE_PROPERTY}={says} is supplied by a config provider that cannot be followed from here"
            return Declared(None, detail, modified_at, changed_at)
        says = f"{says} (now {now})"
        text = now
    try:
        mode = Mode.parse(text)
    except ConfigurationError:
        detail = f"{MODE_PROPERTY}={says} names no mode: a worker would not start with it"
        return Declared(None, detail, modified_at, changed_at)
    return Declared(mode, f"{MODE_PROPERTY}={says}", modified_at, changed_at)


def probe(rest: ConnectRest) -> Observed:
    """Ask one worker whether it would run a connector that requires exactly-once.

    The answer is the worker's own (validation is not forwarded to the leader) and changes nothing.

    :param rest: the REST API at that worker's own URL.
    """
    try:
        classes = rest.plugins()
        plugin = next((name for name in PASSIVE_PLUGINS if name in classes), None)
        if plugin is None:
            wanted = " or ".join(name.rpartition(".")[2] for name in PASSIVE_PLUGINS)
            return Observed(None, f"it has no plugin that may be validated without touching another system ({wanted})")
        if any(NOT_ENABLED in error for error in _client_errors(rest, plugin, "required")):
            return Observed(False, "it answers that exactly-once source support is not enabled")
        # No error proves nothing if the worker never looked at the property: a nonsense value must give one.
        if not _client_errors(rest, plugin, "eos-mode-probe"):
            return Observed(None, f"it does not validate {SUPPORT_PROPERTY} (Kafka before 3.3?)")
    except (ConnectRestError, UnreachableError) as error:
        return Observed(None, f"it did not answer the probe: {error.found}")
    return Observed(True, "it answers that it runs exactly-once source connectors")


def _client_errors(rest: ConnectRest, plugin: str, level: str) -> tuple[str, ...]:
    config = {"name": "eos-mode-probe", "connector.class": plugin, "tasks.max": "1", **PASSIVE_PLUGINS[plugin]}
    return rest.validate(plugin, {**config, SUPPORT_PROPERTY: level}).errors.get(SUPPORT_PROPERTY, ())


def leader_evidence(
    transactions: TransactionsClient, group_id: str, config_topic: str, leader_started_at: float | None
) -> LeaderEvidence:
    """Whether the group's present leader writes the config topic in transactions.

    The leader's transactional id outlives a downgrade by days, so it proves only the past; a write of its producer
    after every member's start proves the present, since whoever led before them is gone.

    :param leader_started_at: start of the member that started last, the leader or another, seconds since the epoch (an
        earlier leader may have written after the present one started). None if not known.
    """
    transactional_id = leader_id(group_id)
    described = transactions.describe([transactional_id]).get(transactional_id)
    if described is None:
        if leader_started_at is None or datetime.now().timestamp() - leader_started_at > (
            TRANSACTIONAL_ID_EXPIRATION_SECONDS
        ):
            return LeaderEvidence(None, f"{transactional_id} does not exist, but the broker may have forgotten it")
        return LeaderEvidence(False, f"{transactional_id} does not exist: the leader writes without transactions")
    writes = [p for p in transactions.active_producers(config_topic) if p.producer_id == described.producer_id]
    last = max((p.last_timestamp_ms / 1000 for p in writes), default=None)
    if last is None:
        return LeaderEvidence(None, f"{transactional_id} exists, but no write of it is in memory yet")
    if leader_started_at is None:
        return LeaderEvidence(None, f"{transactional_id} last wrote at {_clock(last)}; the leader's start is unknown")
    if last < leader_started_at:
        return LeaderEvidence(
            None, f"{transactional_id} last wrote at {_clock(last)}, before the present members: it proves the past"
        )
    return LeaderEvidence(True, f"the leader writes by {transactional_id} (last at {_clock(last)})")
