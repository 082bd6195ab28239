"""The coordinator of one run: one interval of a pipeline reaches Kafka exactly once.

*The promise.* Under ``read_committed``, each record of the interval is in Kafka exactly once, even if a process dies,
is paused, retried or run twice at once; and ``complete`` is visible only when all of the records are.

*The proof.* A slice's ledger record is committed if and only if the slice's records are, because they are one
transaction (test_interleavings: the ledger record in a transaction of its own duplicates). So it is enough that no
slice is committed twice, and none is missed.

1. *Within one task id* attempts are ordered by their inits. An attempt reads its slices' ledger records only after its
   init, and init returns when all that the id committed before is in every partition; it skips slices that an earlier
   attempt has committed, and an earlier attempt that has not committed yet never will (test_failure_matrix: a task
   killed and a task paused at every step; test_interleavings: read before init duplicates).
2. *Across generations* a slice may belong to another id. The new generation is on record before the old ids are
   fenced, so a late task of the old one either inits before the fencing, and is fenced; or after it, and reads the new
   generation, and raises (test_interleavings: fencing before the generation duplicates). The driver fences the ids
   of the last task count record, and every id with an open transaction under the run's prefix (test_interleavings:
   fencing today's task count duplicates).
3. *After the end* a late duplicate finds ``complete``: it reads its slices first, the generation, and ``complete``
   last, while a finishing run removes the first and leaves the last (test_interleavings: ``complete`` read first
   duplicates). An abandoned run leaves no ``complete`` behind, but no generation either, and a task that does not find
   its own generation raises (test_interleavings: a task that only looks for a newer one writes into an abandoned run).
4. *Nothing is missed by a reader*: the reads behind 1 to 3 go to the *uncommitted* end, so a committed record behind an
   open transaction is waited for (test_interleavings: the committed end duplicates); and compaction leaves an hour's
   records alone, a read that takes longer asks for new ends (tests/integration/test_reading.py).
5. *Nothing is missed by the run*: ``complete`` is written when the ledger has every slice of the plan, which was frozen
   before the first commit and is adopted by every later driver (test_interleavings: a plan of one's own loses and
   duplicates). Before it, the run's own ids are fenced once more; a fencing returns when all markers of the last commit
   are in every partition, so ``complete`` never runs ahead of the data (test_slow_marker: without it, and without the
   wait below, it does). Brokers may leave a marker out where a partition has no leader
   (:mod:`~airflow_eos_provider.interval.protocol.visibility`); so the partitions are asked themselves, and the run
   fails (test_barrier: without the question and the wait, it is complete).
6. *The slices belong to one input*: a committed slice is never written again. If a row has moved between it and a slice
   that is still to be written, the row would be lost or duplicated. No source promises that a retry gets the same input
   (a query may read a clock, a table may be written), so the retry checks: it evaluates its input once, counts and
   digests the rows of every slice in the ledger, which it reads after the fencing; and continues only if count and
   digests are the ledger's (test_interleavings: without the comparison one row is duplicated, another lost, and the run
   complete). It then writes the rows that it has compared (tests/integration/test_spark_write.py: a source that changes
   between the comparison and the write). So at every commit the records in Kafka are a part of one evaluation, and at
   ``complete`` all of it. The model has the input's change as an action, and finds lost and duplicated rows if the
   comparison is left out, is made before the fencing, or in another evaluation (tests/model).
7. *Between intervals*: plans that overlap are refused, one at a time
   (:mod:`~airflow_eos_provider.interval.protocol.admission`; test_concurrency: two overlapping intervals started
   together). If a wider interval is complete, every interval inside it is complete and writes nothing. A plan of the
   wider interval is not enough, because it may be abandoned (test_concurrency; if the plan is enough, the model finds
   an interval that counts as complete with nothing written).
8. *These are sentences about topics, not about their names*: the ledger, the target and the control topic are the ones
   that the run was begun with, by topic id (:mod:`~airflow_eos_provider.interval.topics.run_topics`, test_topics).
   They are compared before the first init, so that a driver with other topics fences no other; with each read of the
   control topic; with the plan or ``complete`` that is adopted; after the stage, and again right before ``complete``.
   Tasks compare, too: a generation is an offset, which another topic of that name has as well (test_topics: a queued
   task writes again what the new topic's generation has written).
9. *A ledger has one control topic and one group*, named in its first claim
   (:mod:`~airflow_eos_provider.interval.topics.ledger`): drivers with others would not know of each other, nor fence
   each other. A driver that writes a claim reads the ledger to its end before it plans, and stops if another claim
   came first (test_topics: two groups at once, each with a claim of its own). A deleted control topic takes its plans
   and task counts with it. So a new one is claimed only if no run is committed in part, and after all task ids of the
   pipeline are fenced (test_topics: otherwise a task between two transactions duplicates records of the new plan); and
   admission asks the ledger for slices without a plan. The model has each of these taken away (tests/model,
   ``topics/…``).
10. *Nothing was deleted*: compaction keeps the newest record of each key and leaves a partition's first offset alone;
   retention and DeleteRecords move it, so a read of a ledger or control topic fails if the topic begins after the
   offset that the read starts from (test_topics: with records deleted under the same topic id, slices are written
   again).

``complete`` says that the records can be *read*. So it waits, with every slice committed and the run's ids fenced,
until the stable end of each target partition has passed them
(:mod:`~airflow_eos_provider.interval.protocol.visibility`): the open transaction of a foreign producer may hold them
back.

Neither those comparisons nor that wait weaken 1 to 7. A comparison writes nothing and lets nothing pass that would stop
without it: it turns a step into an error, which is a driver that dies there. The wait comes when all that is left is
``complete``: no task of this generation can write any more, and a newer driver fences this coordinator, whose
``complete`` is then refused: it is a driver that is slow there. The model has both at every step.

*The limits.* Sentence 6 is about attempts that find something committed. Within one attempt Spark evaluates again what
the shuffle has lost with an executor, and an input that differs from one moment to the next would then lose or
duplicate rows. ``write_interval`` asks Spark whether it has done so, or may have
(:mod:`~airflow_eos_provider.interval.spark.reruns`), and then compares every committed slice with one more evaluation
before ``complete`` (tests/integration/test_spark_cluster.py: without it the run is complete with rows lost
and duplicated). A retry writes from rows that it keeps
(:mod:`~airflow_eos_provider.interval.spark.slicing`) and fails where they are lost; where Spark may have evaluated
a part of them twice before, it compares in the same way. Slices that are files, where no row can leave its slice unless
its file changes, are read again for the write, and held to their size and time of change. Two rows are the same if
topic, key, value, headers and, where the row names them, partition and time are; the digest is a sum of 128-bit hashes,
which nobody meets by accident.

Two sentences are about liveness. The first read of the ledger takes only stable records: a dead task's open transaction
may be in the rest, and only this coordinator's fencing ends it (test_interleavings: a first read to the end waits for
the timeout). And a fenced coordinator raises and is not retried by itself: two that retry fence each other for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from airflow_eos_provider.connect.transactional_ids import task_number
from airflow_eos_provider.errors import EosError, FencedError, RefusedError
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.messages import Completed, IncompleteError, SliceFigures, SliceResult, Stage, encoded
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import OnStep, Report, silent
from airflow_eos_provider.interval.protocol.admission import Planner, control_producer
from airflow_eos_provider.interval.protocol.input_check import require_one_evaluation, require_same_rows
from airflow_eos_provider.interval.protocol.next_producer import NextProducer
from airflow_eos_provider.interval.protocol.summary import StepClock, by_task, summarise
from airflow_eos_provider.interval.protocol.visibility import Visibility, missing_marker_error, missing_markers
from airflow_eos_provider.interval.slices import RunPlan, folders_read
from airflow_eos_provider.interval.topics.control_topic import (
    ControlReader,
    Outgoing,
    RunState,
    generation_records,
    task_count_record,
)
from airflow_eos_provider.interval.topics.ledger import (
    CLAIMS_PARTITION,
    CompleteRecord,
    LedgerState,
    add_digests,
    claim_record,
    complete_record,
    require_comparable,
    slice_key,
)
from airflow_eos_provider.interval.topics.preparation import retention_of
from airflow_eos_provider.interval.topics.run_reader import ReportBackoff, TopicReader, open_reader
from airflow_eos_provider.interval.topics.run_topics import RunTopics
from airflow_eos_provider.kafka.admin.transactions import TransactionsClient
from airflow_eos_provider.kafka.kafka_session import Session
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.kafka.write.producer import TransactionalProducer

__all__ = ["Completed", "Coordinator", "IncompleteError", "SliceResult", "Stage"]

#: The steps in their order, without the planner's (:data:`airflow_eos_provider.interval.protocol.admission.STEPS`).
STEPS = (
    "init",
    "read control",
    "read stable ledger",
    "write claim",
    "commit claim",
    "admit plan",
    "write generation",
    "commit generation",
    "fence",
    "read control again",
    "read ledger",
    "write task count",
    "commit task count",
    "run stage",
    "fence own ids",
    "read ledger at the end",
    "write complete",
    "commit complete",
    "done",
)

#: Between "run stage" and the first task, where slices are committed already; and before "write complete", where Spark
#: may have evaluated the input twice.
COMPARE_STEP = "compare input"

#: How long fencing may take, seconds; it waits for the markers of open transactions, so for the partitions' leaders.
_FENCE_SECONDS = 120.0

#: After so many seconds of it a line says whom the fencing waits for; then after twice as many, and so on.
_FENCE_REPORT_SECONDS = 1.0

#: A line each is reported of so many tasks; the result has all.
_SHOWN_TASKS = 20


def deal(slices: int, unfinished: Sequence[int], tasks: int) -> tuple[tuple[int, ...], ...]:
    """Which task writes which slices.

    :param tasks: how many tasks there may be. If that is the number of slices, slice ``n`` is task ``n``'s; otherwise
        what is left is dealt out evenly, and no task is without a slice.
    """
    if tasks == slices:
        left = set(unfinished)
        return tuple((n,) if n in left else () for n in range(slices))
    dealt = min(tasks, len(unfinished))
    return tuple(tuple(unfinished[task::dealt]) for task in range(dealt))


class Coordinator:
    """The coordinator of one run; a context manager.

    ``begin``, ``compare_input``, then the stage's tasks, then ``finish``. Every method may raise :class:`FencedError`:
    another coordinator of this run has taken over. That is final: do not try again by yourself.

    :param began_at: the input is looked up at or after this moment, seconds since the epoch, and it has all rows of
        the interval until then. None if that is not certain: then no interval within this one is complete with it.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        run: Run,
        *,
        began_at: float | None = None,
        report: Report = silent,
        on_step: OnStep = silent,
    ) -> None:
        if run.pipeline != pipeline.name:
            raise EosError(f"{run} is not a run of pipeline {pipeline.name}.")
        self._pipeline = pipeline
        self._run = run
        self._report = report
        self._step = self._clock = StepClock(on_step)
        self._fenced = 0
        self._began, self._began_at = time.monotonic(), began_at
        self._next_producer = NextProducer(partial(control_producer, pipeline, pipeline.coordinator_id(run)))
        self._producer: TransactionalProducer | None = None
        self._transactions: TransactionsClient | None = None
        self._session = Session(pipeline.kafka)  # one client of each kind for the whole run
        self._ledger = LedgerState(pipeline.name)
        self._ledger_topic = TopicReader(self._session, pipeline.ledger_topic, report=report)
        self._control_keys: set[bytes] = set()
        self._ledgers: Mapping[str, str] = {}
        self._control_topic = ControlReader(self._session, pipeline.control_topic, report=report)
        self._topics = self._topics_of(pipeline)
        self.plan_source: Mapping[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            self._producer.abort()
            self._producer = None
        if self._transactions is not None:
            self._transactions.close()
            self._transactions = None
        self._session.close()

    # What callers do

    def begin(
        self, make_plan: Callable[[], RunPlan], tasks: int, *, rows_have_times: bool = False
    ) -> Stage | Completed:
        """Begin a generation of the run, or find that it is complete.

        :param make_plan: called if no plan is on record; it pins the source. Another driver's plan may win.
        :param rows_have_times: whether rows name their time, which is then about that of the interval. A task checks
            each of them all the same.
        """
        if tasks < 1:
            raise EosError(f"{tasks} tasks were requested.", expected="1 or more")
        self._report(f"{self._run}: reading the records of earlier attempts")
        open_reader(self._session)  # clients connect while others are asked; no id is taken before its init
        self._next_producer.open()
        topics = (self._ledger, self._ledger_topic, self._topics, self._control_topic)
        planner = Planner(self._pipeline, *topics, report=self._report, on_step=self._step)
        self._topics.prepare(self._ledger, self._ledger_topic)
        self._init()
        state = self._read_control("read control")
        self._read_stable_ledger()
        self._claim_ledger()
        found = self._ledger.completed(self._run) or state.plan
        found = found or self._admit(planner, make_plan, rows_have_times)
        if isinstance(found, CompleteRecord):
            return self._already(found)
        return self._begin_generation(found, state, tasks)

    def compare_input(self, stage: Stage, figures: Callable[[Collection[int]], Mapping[int, SliceFigures]]) -> Stage:
        """Prove that this attempt's input has the rows that earlier ones have committed, before any task begins.

        The tasks have to write from the same evaluation of the input that is compared here, or from slices that no row
        can leave.

        :param figures: given numbers of slices, counts and sums up their rows in this attempt's input. It is not
            called where nothing is committed.
        """
        if not stage.committed:
            return stage
        self._step(COMPARE_STEP)
        self._report(f"{self._run}: comparing the input with {len(stage.committed)} committed slices")
        compared = require_same_rows(stage, figures(sorted(stage.committed)))
        self._clock.turn("stage")
        return compared

    def finish(
        self,
        stage: Stage,
        figures: Callable[[Collection[int]], Mapping[int, SliceFigures]] | None = None,
        *,
        written: Sequence[SliceResult] = (),
        seconds: Mapping[str, float] | None = None,
    ) -> Completed:
        """Complete the run after its stage.

        :param figures: given where the stage's tasks may have read two evaluations of the input: it evaluates the input
            once more, and counts and sums up the rows of the slices that it is given the numbers of.
        :param written: what the stage's tasks reported, for the summary alone: the ledger decides what is committed.
        """
        stage.require_compared()
        self._topics.compare_again()  # or else slices would be looked for in a ledger that never had them
        if (complete := self._require_current_or_complete(stage)) is not None:
            return self._already(complete)
        self._fence_own_ids(stage)
        self._read_ledger("read ledger at the end")
        complete = self._ledger.completed(self._run)
        if complete is not None:  # by this coordinator, in a call whose answer was lost
            return self._already(complete)
        done = self._ledger.done(self._run, range(len(stage.slices)))
        missing = tuple(sorted(set(range(len(stage.slices))) - set(done)))
        if missing:
            raise IncompleteError(
                f"{self._run}: {len(missing)} of {len(stage.slices)} slices are not committed: "
                f"{', '.join(map(str, missing[:20]))}{', …' if len(missing) > 20 else ''}.",
                remedy="Run it again: the slices that are committed are not written again.",
            )
        foreign = sorted(number for number, record in done.items() if record.plan != stage.plan_hash)
        if foreign:
            raise EosError(
                f"{self._run}: slices {foreign[:20]} are committed under another plan.",
                expected=f"plan {stage.plan_hash}",
                remedy="One interval must not have two plans. Find out which program wrote the other one first.",
            )
        require_comparable(self._run, done)
        if figures is not None:  # no task can commit any more
            self._step(COMPARE_STEP)
            self._report(f"{self._run}: comparing the input with {len(done)} committed slices")
            committed = {number: SliceFigures.of(record) for number, record in done.items()}
            require_one_evaluation(self._run, committed, figures(sorted(committed)))
        self._clock.turn("read_back")
        self._await_readers(stage, {topic for r in done.values() for topic in r.topics})
        self._clock.turn("complete")
        parts = {part: spent for part, spent in self._clock.seconds.items() if part != "complete"}
        summary = summarise(done, fenced=self._fenced, written=written, seconds={**(seconds or {}), **parts})
        record = CompleteRecord(
            run=self._run,
            records=sum(r.records for r in done.values()),
            digest=add_digests(r.digest for r in done.values()),
            slices=len(stage.slices),
            pins=self._topics.found,
            summary=encoded(summary),
            ended=stage.began_at is not None and stage.began_at >= self._run.interval.end.timestamp(),
        )
        self._write_complete(record, stage)
        self._step("done")
        took = time.monotonic() - self._began
        self._report(f"{self._run}: complete, {record.records} records in {record.slices} slices, {took:.1f} s")
        tasks = by_task(stage, done, written)
        for line in (*summary.lines(), *map(str, tasks[:_SHOWN_TASKS])):
            self._report(f"{self._run}: {line}")
        inputs = folders_read(self.plan_source, stage.slices)
        return replace(Completed.of(record, already=False, seconds=took), tasks=tasks, inputs=inputs)

    def _require_current_or_complete(self, stage: Stage) -> CompleteRecord | None:
        """Check that no other driver has taken over, whose tasks would be fenced; one may have completed the run."""
        state = self._read_control("read control")
        if state.generation == stage.generation:
            return None
        if state.generation is None:
            self._read_ledger("read ledger at the end")
        if (complete := self._ledger.completed(self._run)) is None:
            raise self._superseded(stage.generation, state)
        return complete

    def require_current(self, stage: Stage) -> None:
        """Check that no other driver has begun this run since; it takes nothing over."""
        self._topics.compare_ids(stage.ledger_id, stage.control_id)
        state = self._read_control("read control")
        if state.generation != stage.generation:
            raise self._superseded(stage.generation, state)

    def abandon(self) -> None:
        """Give the run up: remove its records, so that its interval is as if never planned."""
        # What of it is in the target is for the ledger to say, so a target that is not there any more is no hindrance.
        self._topics = self._topics_of(replace(self._pipeline, topic=None))
        self._topics.prepare(self._ledger, self._ledger_topic)
        self._init()
        state = self._read_control("read control")
        self._read_stable_ledger()
        self._topics.compare_claim(self._ledger)
        self._require_nothing_done(state.plan)
        if not state.keys:
            raise RefusedError(f"There is no record of {self._run}, so there is nothing to abandon.")
        self._write_generation(())
        self._fence(state)
        plan = self._read_control("read control again").plan
        self._read_ledger("read ledger")
        self._require_nothing_done(plan)
        self._step("remove records")
        self._write([Outgoing(key, None) for key in sorted(self._control_keys)], [], "commit removal")
        self._control_keys.clear()
        self._report(f"{self._run}: abandoned, Kafka has none of its records")

    def _require_nothing_done(self, plan: RunPlan | None) -> None:
        if self._ledger.completed(self._run) is not None:
            raise RefusedError(f"{self._run} is complete; it cannot be abandoned.")
        slices = len(plan.slices) if plan else 0
        done = self._ledger.done(self._run, range(slices))
        if done:
            raise RefusedError(
                f"{len(done)} of {slices} slices of {self._run} are committed; they would be left behind.",
                remedy="Run it again to complete it.",
            )

    # How a generation begins

    def _begin_generation(self, plan: RunPlan, state: RunState, tasks: int) -> Stage | Completed:
        self.plan_source = plan.source
        numbers = range(len(plan.slices))
        known_done = self._ledger.done(self._run, numbers)
        require_comparable(self._run, known_done)
        assignment = deal(len(numbers), [n for n in numbers if n not in known_done], tasks)
        generation = self._write_generation(assignment)
        self._fence(state)
        state = self._read_control("read control again")
        self._read_ledger("read ledger")
        complete = self._ledger.completed(self._run)
        if complete is not None:
            return self._already(complete)
        if state.generation != generation:
            raise self._superseded(generation, state)
        self._write_task_count(len(assignment))
        done = self._ledger.done(self._run, numbers)
        require_comparable(self._run, done)
        stage = Stage(
            run=self._run,
            generation=generation,
            plan_hash=plan.hash,
            slices=plan.slices,
            assignment=tuple(tuple(n for n in task if n not in done) for task in assignment),
            ledger_positions=dict(self._ledger_topic.positions),
            ledgers=self._ledgers,
            committed={number: SliceFigures.of(record) for number, record in done.items()},
            began_at=self._began_at,
            control_id=self._topics.claim.control.id,
            ledger_id=self._topics.found.ledger.id,
        )
        self._report(f"{self._run}: {len(stage.unfinished)} of {len(numbers)} slices to write by {stage.tasks} tasks")
        self._step("run stage")
        return stage

    def _already(self, record: CompleteRecord) -> Completed:
        self._topics.compare_complete(record)
        seconds = time.monotonic() - self._began
        part = "" if record.run == self._run else f" as a part of {record.run}"
        self._report(f"{self._run}: already complete{part}, {record.records} records")
        return Completed.of(record, seconds=seconds)

    def _superseded(self, generation: int, state: RunState) -> FencedError:
        newest = "the run is complete or abandoned" if state.generation is None else f"the newest is {state.generation}"
        return FencedError(
            f"{self._run}: this coordinator is of generation {generation}, {newest}.",
            remedy="Another driver has taken over this run; follow that one.",
        )

    # The steps

    def _topics_of(self, pipeline: Pipeline) -> RunTopics:
        return RunTopics(pipeline, self._run, report=self._report, kafka=self._session, control=self._control_topic)

    def _init(self) -> None:
        self._step("init")
        self._producer = self._next_producer.take()
        self._producer.init()

    def _read_control(self, step: str) -> RunState:
        self._step(step)
        control = self._control_topic.read()
        self._topics.compare(control)
        self._ledgers = control.ledgers
        state = control.run(self._run)
        self._control_keys |= state.keys
        return state

    def _read_stable_ledger(self) -> None:
        self._step("read stable ledger")
        self._ledger_topic.read_stable(self._ledger.apply)

    def _read_ledger(self, step: str) -> None:
        self._step(step)
        self._ledger_topic.read(self._ledger.apply)
        self._topics.compare_claim(self._ledger)

    def _claim_ledger(self) -> None:
        """Write whose the ledger is, if it does not say so. Each read to its end from here on compares.

        Where the control topic that it belonged to is gone, the task counts of its runs are gone, too. So all task ids
        of the pipeline are fenced first; a task that takes its id later finds that the control topic has a new id.
        """
        gone, ours = self._topics.replaced_claim(self._ledger), self._topics.claim
        if gone is not None:
            listed = self._client().list(f"{self._pipeline.group_id}-{self._run.pipeline}@")
            ids = [one.transactional_id for one in listed]
            self._fence_ids([each for each in ids if each.rpartition("-")[2].isdigit()])
            ours = replace(ours, replaces=gone.control.id)
        elif self._ledger.claim is not None:
            return
        self._step("write claim")
        self._write([], [claim_record(self._run.pipeline, ours)], "commit claim", CLAIMS_PARTITION)

    def _admit(
        self, planner: Planner, make_plan: Callable[[], RunPlan], rows_have_times: bool
    ) -> RunPlan | CompleteRecord:
        self._step("admit plan")
        if rows_have_times and self._pipeline.topic and not self._pipeline.allow_expired_records:
            retention_of(self._pipeline.topic, self._session).require_interval(self._run.interval)
        plan = make_plan()
        if plan.run != self._run:
            raise EosError(f"The plan is of {plan.run}.", expected=f"a plan of {self._run}")
        found = planner.admit(plan)
        if isinstance(found, RunPlan):
            self._control_keys.add(f"connector-{self._run.name}".encode())
        return found

    def _write_generation(self, assignment: Sequence[Sequence[int]]) -> int:
        self._step("write generation")
        records = generation_records(self._run, assignment)
        self._control_keys |= {record.key for record in records}
        return self._write(records, [], "commit generation")

    def _fence(self, state: RunState) -> None:
        """Fence the ids of the last task count record, and whatever is open under the run's prefix."""
        self._step("fence")
        prefix = self._pipeline.task_id_prefix(self._run)
        counted = [self._pipeline.transactional_id(self._run, n) for n in range(state.task_count or 0)]
        # Digits only: the coordinator's own id has that prefix, too.
        opened = [i for i in self._client().open_transactions(prefix) if task_number(i, prefix) is not None]
        self._fenced += len(opened)
        self._fence_ids([*counted, *opened])

    def _write_task_count(self, tasks: int) -> None:
        self._step("write task count")
        record = task_count_record(self._run, tasks)
        self._control_keys.add(record.key)
        self._write([record], [], "commit task count")

    def _fence_own_ids(self, stage: Stage) -> None:
        self._step("fence own ids")
        self._fence_ids([self._pipeline.transactional_id(self._run, n) for n in range(stage.tasks)])
        if self._pipeline.topic:
            self._require_markers(stage, self._pipeline.topic)

    def _require_markers(self, stage: Stage, topic: str) -> None:
        if lost := missing_markers(self._client(), self._pipeline, self._run, topic, self._session):
            self.require_current(stage)  # or else they are a newer driver's
            raise missing_marker_error(self._run, topic, lost)

    def _await_readers(self, stage: Stage, named_by_rows: set[str]) -> None:
        for topic in sorted(named_by_rows):
            self._require_markers(stage, topic)
        timeout_ms = self._pipeline.visibility_timeout_ms
        waiting = Visibility(self._session, self._run, timeout_ms=timeout_ms, client=self._client, report=self._report)
        waiting.wait(sorted(named_by_rows | ({self._pipeline.topic} if self._pipeline.topic else set())))

    def _write_complete(self, record: CompleteRecord, stage: Stage) -> None:
        self._step("write complete")
        self._topics.compare_again()
        removed = [Outgoing(slice_key(self._run, number), None) for number in range(len(stage.slices))]
        control = [Outgoing(key, None) for key in sorted(self._control_keys)]
        self._write(control, [complete_record(record), *removed], "commit complete")

    # How they are taken

    def _write(
        self,
        control: Sequence[Outgoing],
        ledger: Sequence[Outgoing],
        commit_step: str,
        ledger_partition: int | None = None,
    ) -> int:
        """One transaction."""
        producer = self._producer
        if producer is None:
            raise FencedError(f"This coordinator of {self._run} is not in charge.")
        producer.begin()
        for key, value in control:
            producer.produce(self._pipeline.control_topic, key, value, partition=0)
        for key, value in ledger:
            by_key = partition_of(key, len(self._ledger_topic.positions))
            partition = by_key if ledger_partition is None else ledger_partition
            producer.produce(self._pipeline.ledger_topic, key, value, partition=partition)
        producer.flush()
        self._step(commit_step)
        producer.commit()
        return producer.last_offset

    def _fence_ids(self, transactional_ids: Sequence[str]) -> None:
        if not transactional_ids:
            return
        began, backoff = time.monotonic(), ReportBackoff(_FENCE_REPORT_SECONDS)

        def refused(left: Collection[str]) -> None:
            waited = time.monotonic() - began
            if backoff.is_due(waited):
                self._report(
                    f"{self._run}: Has waited {waited:.0f} s for the end of the last transaction of {min(left)} in "
                    f"every partition{f', and of {len(left) - 1} more ids' if len(left) > 1 else ''}"
                )

        self._report(f"{self._run}: fencing {len(set(transactional_ids))} transactional ids")
        self._client().fence(transactional_ids, timeout_seconds=_FENCE_SECONDS, on_refused=refused)

    def _client(self) -> TransactionsClient:
        if self._transactions is None:
            self._transactions = TransactionsClient(self._pipeline.kafka)
        return self._transactions
