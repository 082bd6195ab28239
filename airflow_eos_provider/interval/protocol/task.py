"""One attempt of one task: it takes the task's transactional id, proves that it is the newest, and writes slices.

The order of the steps is the protocol's, and each of them is a method of its own:

1. *read control*: outdated, or its generation's ``commit-<run>`` is missing -> raise without init, which would fence
   the successor;
2. *init*: fences earlier attempts, and waits until what they decided is in every partition;
3. *read slices*: the ledger records of its slices;
4. *read control again*: by the same rule;
5. *read complete*: each read goes to an end that was asked for only after the one before was done. A finishing run
   removes the slices' records and leaves ``complete``; in any other order a late duplicate would see the tombstones
   without ``complete`` and write again;
6. for each slice: *begin*, *produce*, *flush*, *ledger record*, *commit*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from airflow_eos_provider.errors import EosError, FencedError
from airflow_eos_provider.interval.messages import SliceResult, Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.progress import OnStep, Report, silent
from airflow_eos_provider.interval.protocol.next_producer import NextProducer
from airflow_eos_provider.interval.topics.control_topic import ControlReader
from airflow_eos_provider.interval.topics.ledger import LedgerState, SliceRecord, complete_key, slice_key
from airflow_eos_provider.interval.topics.run_reader import TopicReader, open_reader
from airflow_eos_provider.interval.write.slice_writer import SliceWriter, open_producer
from airflow_eos_provider.kafka.kafka_session import WireSession
from airflow_eos_provider.kafka.write.partitioner import partition_of
from airflow_eos_provider.kafka.write.producer import TransactionalProducer

if TYPE_CHECKING:
    import pyarrow as pa

#: The steps in their order; the last five are taken for each slice.
STEPS = (
    "read control",
    "init",
    "read slices",
    "read control again",
    "read complete",
    "begin",
    "produce",
    "flush",
    "ledger record",
    "commit",
)


class Task:
    """One attempt of one task of a stage; a context manager. Leaving it by an error aborts what is open.

    :param attempt: how often the task was started before, as whoever starts it counts; nothing rests on it.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        stage: Stage,
        number: int,
        *,
        report: Report = silent,
        on_step: OnStep = silent,
        attempt: int = 0,
    ) -> None:
        if not 0 <= number < stage.tasks:
            raise EosError(f"The stage of {stage.run} has no task {number}.", expected=f"0 to {stage.tasks - 1}")
        stage.require_compared()
        self._pipeline = pipeline
        self._stage = stage
        self._number = number
        self._report = report
        self._step = on_step
        self._session = WireSession(pipeline.kafka)  # one client for the whole attempt, without librdkafka
        self._control = ControlReader(
            self._session, pipeline.control_topic, stage.generation, topic_id=stage.control_id or None, report=report
        )
        self._attempt = attempt
        self._next_producer = NextProducer(
            partial(open_producer, pipeline, pipeline.transactional_id(stage.run, number))
        )
        self._producer: TransactionalProducer | None = None
        self._writer: SliceWriter | None = None
        self._to_do: set[int] = set()
        self._ledgers: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            self._producer.abort()
            self._producer = self._writer = None
        self._session.close()

    @property
    def slices(self) -> tuple[int, ...]:
        """The numbers of the slices that are this task's."""
        return self._stage.assignment[self._number]

    def start(self) -> set[int]:
        """Take the id and find out what is left to do."""
        open_reader(self._session)  # clients connect while others are asked; the id is not taken before init
        self._next_producer.open()
        self._require_own_generation("read control")
        self._init()
        done = self._read_slices()
        self._require_own_generation("read control again")
        self._require_incomplete()
        self._to_do = set(self.slices) - set(done)
        return set(self._to_do)

    def write_slice(self, number: int, batches: Iterable[pa.RecordBatch]) -> SliceResult:
        """Write one slice in one transaction."""
        if number not in self.slices:
            raise EosError(
                f"Slice {number} of {self._stage.run} is not task {self._number}'s in generation "
                f"{self._stage.generation}.",
                expected=f"one of {sorted(self.slices)}",
                remedy="A row must reach the task that its slice is assigned to; check how rows are distributed.",
            )
        if self._writer is None or number not in self._to_do:
            raise EosError(f"Slice {number} of {self._stage.run} is done, or the task was not started.")
        result = self._writer.write(number, batches)
        self._to_do.discard(number)
        return result

    # The steps

    def _init(self) -> None:
        self._step("init")
        self._producer = self._next_producer.take()
        self._producer.init()
        self._writer = self._writer_with(self._producer)

    def _writer_with(self, producer: TransactionalProducer) -> SliceWriter:
        return SliceWriter(
            self._pipeline,
            self._stage,
            producer,
            self._step,
            kafka=self._session,
            task=self._number,
            attempt=self._attempt,
            ledgers=self._ledgers,
        )

    def _require_own_generation(self, step: str) -> None:
        """Read the control topic on from the record that is the generation: what outdates it stands behind."""
        self._step(step)
        state = self._control.read()
        self._ledgers = {**self._stage.ledgers, **state.ledgers}
        generation = state.run(self._stage.run).generation
        if generation is None:
            raise self._outdated("is complete or abandoned")
        if generation != self._stage.generation:
            raise self._outdated(f"has a newer generation, {generation}")

    def _read_slices(self) -> dict[int, SliceRecord]:
        self._step("read slices")
        keys = {slice_key(self._stage.run, number) for number in self.slices}
        return self._ledger(keys).done(self._stage.run, self.slices)

    def _require_incomplete(self) -> None:
        self._step("read complete")
        run = self._stage.run
        if self._ledger({complete_key(run)}).completed(run) is not None:
            raise self._outdated("is complete")

    def _ledger(self, keys: set[bytes]) -> LedgerState:
        """The ledger partitions of these keys, from where the coordinator has read to."""
        positions = self._stage.ledger_positions
        partitions = {partition_of(key, len(positions)) for key in keys}
        ledger = LedgerState(self._stage.run.pipeline)
        starts = {p: positions[p] for p in partitions}
        if starts:
            topic, topic_id = self._pipeline.ledger_topic, self._stage.ledger_id or None
            TopicReader(self._session, topic, starts, topic_id=topic_id, report=self._report).read(ledger.apply)
        return ledger

    def _outdated(self, why: str) -> FencedError:
        return FencedError(
            f"Task {self._number} of {self._stage.run}, generation {self._stage.generation}, came too late: "
            f"the run {why}. It wrote nothing.",
            remedy="Nothing is lost: the newer attempt has written, or will write, its slices.",
        )
