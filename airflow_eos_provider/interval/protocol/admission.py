"""Admission: the plans of one pipeline are accepted one at a time, so that two that overlap see each other.

Plans are written under one id, the planner's: init, read the control topic to its end, then the ledger to an end asked
for after that, write the plan in one transaction. A planner that is fenced, or does not know the result of its commit,
starts again with init: by then the other planner has written its plan, or is gone.

The transaction of the pipeline's first plan also records its ledger, by name and topic id. The ledger in turn says
which control topic has the plans (:mod:`~airflow_eos_provider.interval.topics.ledger`), and which runs have committed
slices: they count as overlapping even if their plan is lost with its control topic.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from airflow_eos_provider.errors import EosError, FencedError, RefusedError, UnreachableError
from airflow_eos_provider.interval.interval import Run, Wholes
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import OnStep, Report, silent
from airflow_eos_provider.interval.protocol.next_producer import NextProducer
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.topics.control_topic import ControlReader, ControlState, pipeline_record, plan_record
from airflow_eos_provider.interval.topics.ledger import CompleteRecord, LedgerState
from airflow_eos_provider.interval.topics.run_reader import TopicReader
from airflow_eos_provider.interval.topics.run_topics import RunTopics
from airflow_eos_provider.kafka.write.producer import TransactionalProducer, TransactionExpiredError, UndecidedError

#: The steps in their order.
STEPS = ("planner init", "planner read control", "planner read ledger", "planner write plan", "planner commit plan")

#: An open plan transaction holds up every reader of the control topic.
TRANSACTION_TIMEOUT_MS = 10_000

#: Properties of producers of control records: a plan may list thousands of files, which compress well.
_CONTROL = {"compression.type": "gzip", "message.max.bytes": "8000000", "linger.ms": "0"}

#: How long a plan may wait for its turn among the pipeline's other plans, and the longest pause between two tries.
_TURN_SECONDS = 120.0
_LONGEST_PAUSE_SECONDS = 1.0


def control_producer(pipeline: Pipeline, transactional_id: str) -> TransactionalProducer:
    """A producer of control records; not initialised."""
    return TransactionalProducer(
        pipeline.kafka, transactional_id, timeout_ms=TRANSACTION_TIMEOUT_MS, properties=_CONTROL
    )


class OverlapError(RefusedError):
    """The interval overlaps another one of the pipeline, so writing it would deliver some records twice."""


class WholeUnderWayError(EosError):
    """A wider interval is being written. When it is complete, this one is complete too. Try again then."""


def admit(run: Run, control: ControlState, ledger: LedgerState) -> RunPlan | CompleteRecord | None:
    """Decide on a plan. The ledger must have been read after the control topic.

    :returns: the run's own ``complete``, or that of a wider interval as a part of which it is complete; its own plan,
        if it has one, which is to be adopted; None if a plan may be written.
    """
    complete = ledger.completed(run)
    if complete is not None:
        return complete
    plan = control.run(run).plan
    if plan is not None:
        return plan
    finished = ledger.overlapping(run.interval)
    whole = ledger.whole_among(run, finished)
    if whole is not None:
        return whole
    planned = control.planned(run.pipeline)
    if wider := Wholes(planned).of(run):
        raise _under_way(run, wider)
    _refuse_overlaps(run, planned, ledger.begun(), finished)
    revisions = [other.revision for other in finished]
    if max(revisions, default=0) != run.revision - 1:
        raise RefusedError(
            f"Revision {run.revision} of {run.interval} of {run.pipeline} was requested, but "
            f"{f'revision {max(revisions)} is the last one' if revisions else 'no revision of it is complete'}.",
            expected=f"revision {max(revisions, default=0) + 1}",
            remedy="Complete the revisions in their order. A complete revision is never written again.",
        )
    return None


def _refuse_overlaps(run: Run, planned: Collection[Run], begun: set[Run], finished: Iterable[Run]) -> None:
    for other in planned:
        if other.interval.overlaps(run.interval):
            raise overlap(run, other, "is being written")
    for other in sorted(begun - set(planned), key=str):
        if other.interval.overlaps(run.interval):
            raise _plan_lost(run, other)
    for other in finished:
        if other.interval != run.interval:
            raise overlap(run, other)


def _under_way(run: Run, whole: Run) -> WholeUnderWayError:
    return WholeUnderWayError(
        f"{run} lies within {whole}, which is being written.",
        expected="a complete wider interval, which completes this one",
        remedy="Try again when it is complete. If you abandon it (eos intervals abandon), run this interval by itself.",
    )


def _plan_lost(run: Run, begun: Run) -> OverlapError:
    return OverlapError(
        f"{run} cannot be planned: the ledger has committed slices of {'it' if begun == run else begun}, but the "
        "control topic has no plan of that run.",
        expected="the plan that its slices were committed with; without it, records would be delivered twice",
        remedy="The control topic was deleted or recreated. Find out which records of that interval are in the target, "
        "and write the missing ones under another pipeline name.",
    )


def overlap(run: Run, other: Run, state: str = "is complete") -> OverlapError:
    """The refusal of a run because of another one that overlaps it, and does not complete it as its part."""
    remedy = f"If the schedule has changed, choose intervals that begin where {other.interval} ends."
    if state != "is complete":
        remedy = f"Let it finish, or abandon it if none of its slices is committed (eos intervals abandon). {remedy}"
    elif other.interval.contains(run.interval):
        remedy = (
            f"{other.interval} does not complete the intervals within it: its input was listed before its end or "
            f"without selects_by_bounds. If rows of it are missing, write its next revision. {remedy}"
        )
    return OverlapError(
        f"{run} overlaps {other}, which {state}: their common part would be delivered twice.",
        expected="intervals of one pipeline that do not overlap",
        remedy=remedy,
    )


@dataclass
class Planner:
    """Writes one plan, in its turn."""

    pipeline: Pipeline
    ledger: LedgerState
    ledger_topic: TopicReader
    topics: RunTopics
    control_topic: ControlReader
    report: Report = silent
    on_step: OnStep = silent

    def __post_init__(self) -> None:
        self._next_producer = NextProducer(partial(control_producer, self.pipeline, self.pipeline.planner_id))
        self._next_producer.open()

    def admit(self, plan: RunPlan) -> RunPlan | CompleteRecord:
        """Have this plan admitted.

        :returns: the plan that is on record now, this one or the one that another driver of the run wrote before; or
            the run's ``complete``, or that of a wider interval as a part of which it is complete.
        """
        deadline = time.monotonic() + _TURN_SECONDS
        pause = 0.05
        while True:
            try:
                return self._admit_once(plan)
            except (FencedError, TransactionExpiredError, UndecidedError) as error:
                if time.monotonic() > deadline:
                    raise UnreachableError(
                        f"The plan of {plan.run} did not get its turn within {_TURN_SECONDS:.0f} s.",
                        remedy="Start fewer runs of this pipeline at the same moment.",
                    ) from None
                first = "Another plan of this pipeline came first"
                self.report(f"{error.found if isinstance(error, UndecidedError) else first}; waiting for the next turn")
                time.sleep(random.uniform(pause / 2, pause))  # two that do not wait fence each other for ever
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _admit_once(self, plan: RunPlan) -> RunPlan | CompleteRecord:
        self.on_step("planner init")
        producer = self._next_producer.take()
        producer.init()
        self.on_step("planner read control")
        control = self.control_topic.read()
        self.topics.compare(control)
        self._read_ledger()
        found = admit(plan.run, control, self.ledger)
        if found is not None:
            return found
        self._write(producer, plan, control)
        return plan

    def _read_ledger(self) -> None:
        self.on_step("planner read ledger")
        self.ledger_topic.read(self.ledger.apply)
        self.topics.compare_claim(self.ledger)

    def _write(self, producer: TransactionalProducer, plan: RunPlan, control: ControlState) -> None:
        self.on_step("planner write plan")
        producer.begin()
        pins = self.topics.found
        records = [plan_record(plan, pins)]
        if control.pipelines.get(self.pipeline.name) is None:
            records.append(pipeline_record(self.pipeline.name, pins.ledger))
        for key, value in records:
            producer.produce(self.pipeline.control_topic, key, value)
        producer.flush()
        self.on_step("planner commit plan")
        producer.commit()
