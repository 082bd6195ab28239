"""Reads back the state and the records of interval runs, and checks that the records match the ledger.

Everything here only reads.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from airflow_eos_provider.errors import ConfigurationError, NotKnownError
from airflow_eos_provider.interval.interval import Run, Wholes
from airflow_eos_provider.interval.messages import Completed, RunSummary, decoded
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.sources.source_files import file_lines
from airflow_eos_provider.interval.topics.control_topic import ControlState
from airflow_eos_provider.interval.topics.ledger import (
    DIGEST_KIND,
    CompleteRecord,
    LedgerState,
    SliceRecord,
    add_digests,
)
from airflow_eos_provider.interval.topics.run_reader import TopicReader
from airflow_eos_provider.interval.topics.run_topics import RunTopics
from airflow_eos_provider.kafka.kafka_session import Kafka, Session
from airflow_eos_provider.kafka.questions import CONNECT_SECONDS
from airflow_eos_provider.kafka.read.reader import LogRecord, scan_to_end
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from airflow_eos_provider.stored import members, to_json

#: Called with topic, offsets passed and offsets in all.
Progress = Callable[[str, int, int], None]

#: A topic that has had nothing to read for so long before its end is given up, seconds: an open transaction holds its
#: readers back.
STALL_SECONDS = 60.0

#: Most of a short read is waiting for the broker.
_LEDGERS_AT_ONCE = 8


def _silent(topic: str, passed: int, end: int) -> None:
    """Drops progress lines."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run of a pipeline, as ledger and control topic have it.

    :param done: numbers of the slices that are committed; empty for a complete run, whose slices' records are gone.
    :param ended: of a complete run: whether the intervals within it are complete, too. It had ended when its input was
        looked up, and the input has all rows of it.
    """

    run: Run
    complete: bool
    slices: int | None
    done: tuple[int, ...] = ()
    records: int = 0
    digest: str | None = None
    generation: int | None = None
    tasks: int | None = None
    plan_hash: str | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    summary: RunSummary | None = None
    written: Mapping[int, SliceRecord] = field(default_factory=dict)
    ended: bool = False

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers of the slices that are still to be written."""
        if self.complete or self.slices is None:
            return ()
        done = set(self.done)
        return tuple(number for number in range(self.slices) if number not in done)

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run.name,
            "interval": self.run.interval.name,
            "revision": self.run.revision,
            "state": "complete" if self.complete else "running",
            "ended": self.ended,
            "slices": self.slices,
            "done": self.slices if self.complete else len(self.done),
            "missing": list(self.missing),
            "records": self.records,
            "digest": self.digest,
            "generation": self.generation,
            "tasks": self.tasks,
            "plan_hash": self.plan_hash,
            "source": dict(self.source),
            "summary": to_json(self.summary),
            "committed": [_of_slice(number, record) for number, record in sorted(self.written.items())],
        }


def _of_slice(number: int, record: SliceRecord) -> dict[str, Any]:
    return {"slice": number, "records": record.records, **members(record.measures)}


@dataclass(frozen=True, slots=True)
class Verification:
    """Records drained beside what ``complete`` says and, where it is at hand, beside the source.

    :param source_agrees: whether these lines are the records' values, each as often.
    """

    what: str
    topics: tuple[str, ...]
    expected_records: int
    expected_digest: str
    records: int
    digest: str
    source_records: int | None = None
    source_agrees: bool | None = None

    @property
    def holds(self) -> bool:
        """Whether count and digest agree: no record is missing, double, altered or strange."""
        agrees = self.records == self.expected_records and self.digest == self.expected_digest
        return agrees and self.source_agrees is not False

    def to_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "topics": list(self.topics),
            "holds": self.holds,
            "expected": {"records": self.expected_records, "digest": self.expected_digest},
            "found": {"records": self.records, "digest": self.digest},
            "source": None
            if self.source_records is None
            else {"records": self.source_records, "agrees": self.source_agrees},
        }


def completion(pipeline: Pipeline, run: Run, *, wait: bool = False) -> Completed | None:
    """What the ledger says of a complete run, or of the wider one that it is a part of; None if it is not complete.

    :param wait: read to the ledger's end of this moment, and so wait for the open transactions before it. Otherwise
        only what is stable is read: then a ``complete`` behind another producer's open transaction is not seen yet,
        so None means "not that one could tell".
    """
    state = ledger(pipeline, wait=wait)
    found = state.completed(run) or state.whole_of(run)
    if found is None:
        return None
    RunTopics(pipeline, run).compare_complete(found)
    return Completed.of(found)


def part_of(run: Run, whole: Run) -> ConfigurationError:
    """What is said to those who ask for the records of a part, which has no count and no digest of its own."""
    return ConfigurationError(
        f"{run.name} was written as a part of {whole.name}, and has no record of its own.",
        expected="a run that was written by itself",
        remedy=f"Ask for {whole.name}: it is complete, and so is each interval within it.",
    )


def ledger(
    pipeline: Pipeline, *, wait: bool = False, kafka: Kafka | None = None, there: Collection[str] | None = None
) -> LedgerState:
    """The pipeline's ledger, to its end or as far as is stable; empty if there is none yet."""
    state = LedgerState(pipeline.name)
    if is_there(pipeline.kafka, pipeline.ledger_topic, there):
        reader = TopicReader(kafka or pipeline.kafka, pipeline.ledger_topic)
        (reader.read if wait else reader.read_stable)(state.apply)
    return state


def control(pipeline: Pipeline, *, kafka: Kafka | None = None, there: Collection[str] | None = None) -> ControlState:
    """The group's control topic, as far as is stable; empty if there is none yet."""
    state = ControlState(pipeline.control_topic)
    if is_there(pipeline.kafka, pipeline.control_topic, there):
        TopicReader(kafka or pipeline.kafka, pipeline.control_topic).read_stable(state.apply)
    return state


def statuses(pipeline: Pipeline) -> list[RunStatus]:
    """Every run of a pipeline, in the order of their intervals."""
    return all_statuses([pipeline])[0]


def all_statuses(pipelines: Sequence[Pipeline], progress: Progress = _silent) -> list[list[RunStatus]]:
    """Every run of several pipelines of one group, by pipeline: the control topic is read once, ledgers in parallel."""
    if not pipelines:
        return []
    first = pipelines[0]
    with Session(first.kafka) as session, ThreadPoolExecutor(_LEDGERS_AT_ONCE) as pool:
        there = topics(first.kafka)
        running = control(first, kafka=session, there=there)  # before the ledgers, see :func:`statuses_of`
        reads = [pool.submit(ledger, each, kafka=session, there=there) for each in pipelines]
        try:
            for count, _ in enumerate(as_completed(reads), start=1):
                progress(f"ledgers of {first.group_id}", count, len(reads))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return [statuses_of(each.name, running, read.result()) for each, read in zip(pipelines, reads, strict=True)]


def statuses_of(pipeline: str, running: ControlState, written: LedgerState) -> list[RunStatus]:
    """Every run of a pipeline by these topics, of which the control topic was read first."""
    found = {record.run: _of_complete(record) for record in written.complete_runs()}
    for run in running.planned(pipeline):
        if run not in found:  # else it is just being completed, and the control topic was read first
            found[run] = _of_running(run, running, written)
    return [found[run] for run in sorted(found, key=lambda run: (run.interval, run.revision))]


def status(pipeline: Pipeline, run: Run) -> RunStatus | None:
    """One run, None if nothing of it is on record."""
    return status_among(statuses(pipeline), run)


def status_among(statuses: Sequence[RunStatus], run: Run) -> RunStatus | None:
    """As :func:`status`, of runs that are known."""
    found = next((each for each in statuses if each.run == run), None)
    if found is None and (whole := Wholes(each.run for each in statuses if each.ended).of(run)):
        raise part_of(run, whole)
    return found


def verify_run(
    pipeline: Pipeline,
    run: Run,
    topics: Sequence[str],
    header: str,
    *,
    source: Sequence[Path] = (),
    progress: Progress = _silent,
) -> Verification:
    """Drain one run's records, which carry its name in a header, and compare them with its ``complete``.

    :param pipeline: which one, and how to reach the brokers.
    :param run: whose records are read.
    :param topics: where they are.
    :param header: the pipeline's ``run_header``.
    :param source: files whose lines, all of them, are the values of the run's records.
    :param progress: called while records are read, with the topic, how many are read, and how many there are.
    :returns: the records found, compared with ``complete``; ``holds`` is true if they match.
    :raises ConfigurationError: the run is not complete, or there is no such topic.
    """
    state = ledger(pipeline, wait=True)
    complete = state.completed(run)
    if complete is None and (whole := state.whole_of(run)):
        raise part_of(run, whole.run)
    if complete is None:
        raise ConfigurationError(
            f"{run.name} is not complete, so there is nothing to compare its records with.",
            remedy="See 'eos intervals list'.",
        )
    return _compared(pipeline, run.name, topics, [complete], source, progress, (header, run.name.encode()))


def verify_all(
    pipeline: Pipeline, topics: Sequence[str], *, source: Sequence[Path] = (), progress: Progress = _silent
) -> Verification:
    """Drain whole topics, and compare them with all complete runs of the pipeline, their only writer.

    :param pipeline: which one, and how to reach the brokers.
    :param topics: where its records are.
    :param source: files whose lines, all of them, are the values of the records.
    :param progress: called while records are read, with the topic, how many are read, and how many there are.
    :returns: the records found, compared with ``complete``; ``holds`` is true if they match.
    :raises ConfigurationError: a run is not complete; some of its records may be in the topics already.
    """
    running = [status.run.name for status in statuses(pipeline) if not status.complete]
    if running:
        raise ConfigurationError(
            f"{len(running)} runs of {pipeline.name} are not complete: {', '.join(running[:5])}.",
            remedy="Let them finish, or abandon the runs without a committed slice.",
        )
    complete = list(ledger(pipeline, wait=True).complete_runs())
    return _compared(pipeline, f"all {len(complete)} runs of {pipeline.name}", topics, complete, source, progress)


def _compared(
    pipeline: Pipeline,
    what: str,
    topics: Sequence[str],
    complete: Sequence[CompleteRecord],
    source: Sequence[Path],
    progress: Progress,
    header: tuple[str, bytes] | None = None,
) -> Verification:
    """The records of topics, with a header or all, beside what ``complete`` says and beside the source."""
    from airflow_eos_provider.interval.write.digest import Digest  # it brings numpy, which takes a while

    if other := [record for record in complete if record.digest_kind != DIGEST_KIND]:
        raise ConfigurationError(
            f"{len(other)} runs were written by another version of this package, with a digest of kind "
            f"{other[0].digest_kind}: {', '.join(record.run.name for record in other[:5])}.",
            expected=f"kind {DIGEST_KIND}, as this version computes digests",
            remedy="Verify them with the version that wrote them.",
        )
    count, whole, values, expected = 0, Digest(), Digest(), Digest()

    def take(records: Sequence[LogRecord]) -> None:
        nonlocal count
        for record in records:
            if header is None or (record.headers and header in record.headers):
                whole.add(record.topic, record.key, record.value, record.headers)
                values.add("", None, record.value)
                count += 1

    for topic in topics:
        scan_to_end(
            pipeline.kafka,
            topic,
            take,
            timeout_seconds=STALL_SECONDS,
            stall_only=True,
            headers=True,
            progress=partial(progress, topic),
        )
    lines = 0
    for line in chain.from_iterable(map(file_lines, source)):
        expected.add("", None, line)
        lines += 1
    return Verification(
        what,
        tuple(topics),
        sum(record.records for record in complete),
        add_digests(record.digest for record in complete),
        count,
        whole.text,
        lines if source else None,
        (lines, expected.text) == (count, values.text) if source else None,
    )


def pipelines(kafka: KafkaSettings, group_id: str) -> list[str]:
    """The pipelines of a group that have a ledger of the usual name."""
    found = pipelines_among(topics(kafka), group_id)
    if not found:
        require_seen(kafka, f"{group_id}-configs", f"{group_id}-{secrets.token_hex(8)}-offsets")
    return found


def is_there(kafka: KafkaSettings, topic: str, there: Collection[str] | None = None) -> bool:
    """Whether there is such a topic, by the names of all topics; an error if the principal may not see it."""
    found = topic in (topics(kafka) if there is None else there)
    if not found:
        require_seen(kafka, topic)
    return found


def require_seen(kafka: KafkaSettings, *missing: str) -> None:
    """Go on only if topics that are not in the brokers' list do not exist, and are not merely hidden."""
    with Session(kafka) as session, session.admin() as admin:
        hidden = [name for name, allowed in admin.allowed(missing, CONNECT_SECONDS).items() if allowed == frozenset()]
    if hidden:
        raise NotKnownError(
            f"{kafka.who} may not see topic {hidden[0]}, so eos cannot tell whether it exists.",
            expected="the right to describe the topics of the pipelines",
            remedy=kafka.rights_remedy,
        )


def pipelines_among(names: Iterable[str], group_id: str) -> list[str]:
    """As :func:`pipelines`, by the names of all topics."""
    matches = map(re.compile(rf"{re.escape(group_id)}-(.+)-offsets").fullmatch, names)
    return sorted(match[1] for match in matches if match)


def topics(kafka: KafkaSettings) -> frozenset[str]:
    """The topics of a cluster, as far as one may see them."""
    with Session(kafka) as session, session.admin() as admin:
        return frozenset(admin.topics(None, CONNECT_SECONDS))


def _of_complete(record: CompleteRecord) -> RunStatus:
    return RunStatus(
        record.run,
        True,
        record.slices,
        records=record.records,
        digest=record.digest,
        summary=decoded(record.summary),
        ended=record.ended,
    )


def _of_running(run: Run, running: ControlState, written: LedgerState) -> RunStatus:
    state = running.run(run)
    plan = state.plan
    assert plan is not None  # planned() tells of planned runs only
    done = written.done(run, range(len(plan.slices)))
    return RunStatus(
        run,
        False,
        len(plan.slices),
        done=tuple(sorted(done)),
        records=sum(record.records for record in done.values()),
        generation=state.generation,
        tasks=state.task_count,
        plan_hash=plan.hash,
        source=plan.source,
        written=done,
    )
