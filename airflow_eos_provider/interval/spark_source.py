"""``by_slice(df, …).write.format("kafka_eos")``: an interval through Spark's own writer API (Spark 4.0 or newer).

Spark calls ``writer()`` in one process, ``write()`` in the executors' and ``commit()`` in yet another, and none of them
lives as long as the job. So nothing is held open between them: ``writer()`` begins the run and lets go of its
coordinator, what is needed later travels as the stage, and ``commit()`` becomes the coordinator again, provided that no
other driver has begun a newer generation meanwhile.

Spark may copy slow tasks where ``spark.speculation`` is on, and this API has no way to say no, so it is refused then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.coordinator import Coordinator
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.spark import sliced, speculates, to_tasks
from airflow_eos_provider.interval.spark_inputs import pinned_inputs, require_same_inputs
from airflow_eos_provider.interval.spark_task import (
    SLICE_COLUMN,
    partition_number,
    require_slice,
    runs_of_slices,
    write_rows,
)
from airflow_eos_provider.interval.stage import Completed, Stage

if TYPE_CHECKING:
    import pyarrow as pa

#: The name behind ``format``.
FORMAT = "kafka_eos"

logger = logging.getLogger(__name__)

_OPTIONS = ("pipeline", "interval", "revision")


def register(spark: SparkSession, *pipelines: Pipeline) -> None:
    """Make ``format("kafka_eos")`` known to a session.

    :param pipelines: those that may be written; the option ``pipeline`` names one. They are given here and not as
        options, since options are shown in plans and pages, and client credentials must not be.
    :raises ConfigurationError: the session speculates, or no pipeline is given.
    """
    if speculates(spark):
        raise ConfigurationError(
            f"spark.speculation is on, and format({FORMAT!r}) cannot keep Spark from copying its tasks.",
            remedy="Set spark.speculation=false, or use write_interval(), which runs the stage as a barrier stage.",
        )
    if not pipelines:
        raise ConfigurationError("No pipeline is given.", remedy="Call register(spark, pipeline, …).")
    known = {pipeline.name: pipeline.to_dict() for pipeline in pipelines}
    spark.dataSource.register(type("RegisteredKafkaEosSource", (KafkaEosSource,), {"pipelines": known}))


class SlicedFrame:
    """A frame with a partition a slice, which can be written and nothing else.

    A step that moved rows in between could leave a slice without some of them, and no task would see that.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    @property
    def write(self) -> DataFrameWriter:
        """As :attr:`DataFrame.write`; the mode is ``append``."""
        return self._frame.write.format(FORMAT).mode("append")


def by_slice(
    frame: DataFrame, *, slices: int, key: str | Sequence[str] = "key", pin_inputs: bool = True
) -> SlicedFrame:
    """Prepare a frame for ``.write.format("kafka_eos")``: a partition a slice.

    :param slices: how many slices.
    :param key: as in :func:`airflow_eos_provider.interval.spark.write_interval`.
    :param pin_inputs: likewise. The files are looked at now; a change while they are read is not seen by this way.
    :raises ConfigurationError: columns or key are not usable.
    """
    names = [key] if isinstance(key, str) else list(key)
    rows = sliced(frame, names, slices)
    made_of = {**rows.schema[SLICE_COLUMN].metadata, **({"inputs": pinned_inputs(frame)} if pin_inputs else {})}
    rows = rows.withMetadata(SLICE_COLUMN, made_of)
    return SlicedFrame(to_tasks(rows, SLICE_COLUMN, slices))


class KafkaEosSource(DataSource):
    """The data source; only :func:`register` makes it usable.

    Options: ``pipeline`` (its name), ``interval`` (``start/end`` as :class:`Interval` spells it), ``revision``.
    """

    #: By name, as :meth:`Pipeline.to_dict` gives them.
    pipelines: dict[str, dict[str, Any]] = {}  # noqa: RUF012

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> KafkaEosWriter:
        """Begin the run; its slices are those that :func:`by_slice` has made.

        :raises ConfigurationError: an option is wrong, or the frame was not made by :func:`by_slice`.
        :raises EosError: as :meth:`Coordinator.begin` does.
        """
        if overwrite:
            raise ConfigurationError(
                "The mode is overwrite.", expected="append", remedy="Write an interval anew by the option 'revision'."
            )
        pipeline, run = self._target()
        if SLICE_COLUMN not in schema.fieldNames():
            raise ConfigurationError(
                "The DataFrame does not tell its rows' slices.", remedy="Prepare it by by_slice(df, slices=…, key=…)."
            )
        made_of = dict(schema[SLICE_COLUMN].metadata or {})
        inputs = made_of.pop("inputs", {})
        count = made_of.get("of")
        if not count:
            raise ConfigurationError(
                f"The column {SLICE_COLUMN} was not made by by_slice().", remedy="Prepare the frame by by_slice()."
            )
        with Coordinator(Pipeline.from_dict(pipeline), run, report=logger.info) as coordinator:
            begun = coordinator.begin(lambda: RunPlan.of(run, [made_of] * count, {"kind": "rows", **inputs}), count)
            pinned = coordinator.plan_source
        if isinstance(begun, Stage) and [dict(piece.source) for piece in begun.slices] != [made_of] * count:
            first = dict(begun.slices[0].source)
            raise ConfigurationError(
                f"The run {run.name} was begun with other slices: {len(begun.slices)} of {first}.",
                expected=f"{count} of {made_of}",
                remedy="Use the slices and the key that it was begun with, or abandon it if nothing is committed.",
            )
        if inputs and isinstance(begun, Stage):
            require_same_inputs(inputs, pinned)
        return KafkaEosWriter(pipeline, begun.to_dict() if isinstance(begun, Stage) else None)

    def _target(self) -> tuple[dict[str, Any], Run]:
        for option in _OPTIONS[:2]:
            if not self.options.get(option):
                raise ConfigurationError(
                    f"The option {option!r} is missing.", remedy=f".option({option!r}, …), options are {_OPTIONS}."
                )
        name = self.options["pipeline"]
        if name not in self.pipelines:
            raise ConfigurationError(
                f"The pipeline {name!r} is not known to this session.",
                expected=f"one of {', '.join(self.pipelines) or 'none'}",
                remedy="Give it to register(spark, pipeline, …).",
            )
        revision = int(self.options.get("revision", "1"))
        return self.pipelines[name], Run(name, Interval.parse(self.options["interval"]), revision)


@dataclass(frozen=True)
class SliceWritten(WriterCommitMessage):
    """What a partition tells: its slice."""

    slice: int


class KafkaEosWriter(DataSourceArrowWriter):
    """The writer of one stage; copies of it work in other processes.

    :param stage: None if the interval is complete, and there is nothing to do.
    """

    def __init__(self, pipeline: dict[str, Any], stage: dict[str, Any] | None) -> None:
        self.pipeline = pipeline
        self.stage = stage

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the slice of this partition's number."""
        number = partition_number()
        task = self._task_of(number)
        if self.stage is not None and task is not None:
            for _ in write_rows(self.pipeline, self.stage, task, iterator):
                pass
        elif self.stage is not None:
            # The slice is committed. A row of another one here would be missing where its partition is.
            for found, _ in runs_of_slices(iterator):
                require_slice(found, frozenset({number}), number)
        return SliceWritten(number)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Finish the run.

        :raises FencedError: another driver has begun a newer generation of this run.
        """
        if self.stage is None:
            return
        stage = Stage.from_dict(self.stage)
        told = {message.slice for message in messages if isinstance(message, SliceWritten)}
        for number in stage.unfinished:
            # Spark leaves out partitions that it knows to be empty; each row that there was has been checked.
            task = self._task_of(number)
            if number not in told and task is not None:
                for _ in write_rows(self.pipeline, self.stage, task, ()):
                    pass
        pipeline = Pipeline.from_dict(self.pipeline)
        with Coordinator(pipeline, stage.run, report=logger.info) as coordinator:
            coordinator.resume(stage)
            done: Completed = coordinator.finish(stage)
        logger.info("Interval %s is complete: %d records", done.run.name, done.records)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is undone: what is committed stands, and the next attempt writes the rest."""
        if self.stage is not None:
            told = [message.slice for message in messages if isinstance(message, SliceWritten)]
            logger.warning(
                "The write of %s failed after %d of %d slices. Write the interval again, and the rest is written.",
                self.stage["run"],
                len(told),
                len(self.stage["slices"]),
            )

    def _task_of(self, slice_number: int) -> int | None:
        """The task that the stage gives this slice to, None if the slice is done. There are as many tasks as slices."""
        assignment = [] if self.stage is None else self.stage["assignment"]
        return next((task for task, numbers in enumerate(assignment) if slice_number in numbers), None)
