"""``by_slice(df, …).write.format("kafka_eos")``: an interval through Spark's own writer API (Spark 4.0 or newer).

Spark calls ``writer()`` in one process, ``write()`` in the executors' and ``commit()`` in yet another, and none of them
lives as long as the job. So nothing is held open between them: ``writer()`` begins the run and lets go of its
coordinator, what is needed later travels as the stage, and ``commit()`` becomes the coordinator again, provided that no
other driver has begun a newer generation meanwhile.

A retry compares its rows with the slices that are committed before it writes (:mod:`~airflow_eos_provider.interval.\
input_check`). That takes a Spark job, which ``writer()`` cannot run; so ``save()`` does, and hands the figures on.

Spark may copy slow tasks where ``spark.speculation`` is on, and this API has no way to say no, so it is refused then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark import __version__ as pyspark_version
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.types import StructType

from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.protocol.stage import Completed, SliceFigures, Stage
from airflow_eos_provider.interval.slices import RunPlan
from airflow_eos_provider.interval.sources.files import require_planned_files
from airflow_eos_provider.interval.spark.executor import (
    SLICE_COLUMN,
    partition_number,
    require_slice,
    runs_of_slices,
    write_rows,
)
from airflow_eos_provider.interval.spark.files import pinned_files
from airflow_eos_provider.interval.spark.proof import figures_of_rows, frozen
from airflow_eos_provider.interval.spark.reruns import StageWatch
from airflow_eos_provider.interval.spark.sessions import require_classic
from airflow_eos_provider.interval.spark.write import sliced, speculates, to_tasks, with_null_keys
from airflow_eos_provider.interval.verify import ledger

try:
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
except ImportError:
    raise ConfigurationError(
        f"pyspark {pyspark_version} has no writers in Python, which format('kafka_eos') is one of.",
        expected="pyspark 4.0 or newer",
        remedy="Use airflow_eos_provider.interval.spark.write.write_interval(), which needs none of it.",
    ) from None

if TYPE_CHECKING:
    import pyarrow as pa

#: The name behind ``format``.
FORMAT = "kafka_eos"

logger = logging.getLogger(__name__)

_OPTIONS = ("pipeline", "interval", "revision", "allow_before_end")

#: By which ``save()`` gives ``writer()`` the figures of each slice of the frame, as JSON.
_FIGURES_OPTION = "figures"

#: What :func:`register` was given, by session; the driver's own copy.
_REGISTERED: WeakKeyDictionary[SparkSession, dict[str, dict[str, Any]]] = WeakKeyDictionary()


def register(spark: SparkSession, *pipelines: Pipeline) -> None:
    """Make ``format("kafka_eos")`` known to a session.

    :param spark: the session; of pyspark 4.0 or newer.
    :param pipelines: those that may be written; the option ``pipeline`` names one. They are given here and not as
        options, since options are shown in plans and pages, and client credentials must not be.
    :raises ConfigurationError: the session speculates or is one of Spark Connect, or no pipeline is given.
    """
    require_classic(spark, f"format({FORMAT!r})")
    if speculates(spark):
        raise ConfigurationError(
            f"spark.speculation is on, and format({FORMAT!r}) cannot keep Spark from copying its tasks.",
            remedy="Set spark.speculation=false, or use write_interval(), which runs the stage as a barrier stage.",
        )
    if not pipelines:
        raise ConfigurationError("No pipeline is given.", remedy="Call register(spark, pipeline, …).")
    known = {pipeline.name: pipeline.to_dict() for pipeline in pipelines}
    _REGISTERED[spark] = known
    spark.dataSource.register(type("RegisteredKafkaEosSource", (KafkaEosSource,), {"pipelines": known}))


class SlicedFrame:
    """A frame with a partition a slice, which can be written and nothing else.

    A step that moved rows in between could leave a slice without some of them, and no task would see that.
    """

    def __init__(self, rows: DataFrame, slices: int) -> None:
        self._rows = rows
        self._slices = slices
        self._frame = to_tasks(rows, SLICE_COLUMN, slices)

    @property
    def write(self) -> DataFrameWriter:
        """As :attr:`DataFrame.write`; the mode is ``append``."""
        return _ComparingWriter(self._frame, self._rows, self._slices).format(FORMAT).mode("append")


class _ComparingWriter(DataFrameWriter):
    """A writer whose ``save()`` evaluates the rows once and counts them first where slices are committed already.

    :param frame: what is written where none is: the rows, a partition a slice.
    :param rows: the rows with their slices.
    """

    def __init__(self, frame: DataFrame, rows: DataFrame, slices: int) -> None:
        super().__init__(frame)
        self._rows = rows
        self._slices = slices
        self._told: dict[str, Any] = {}

    def option(self, key: str, value: Any) -> DataFrameWriter:
        self._told[key] = value
        return super().option(key, value)

    def options(self, **options: Any) -> DataFrameWriter:
        self._told.update(options)
        return super().options(**options)

    def save(
        self,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,
        **options: Any,
    ) -> None:
        """As :meth:`DataFrameWriter.save`."""
        self.options(**options)
        target = self._target()
        if target is None or not self._is_begun(*target):
            super().save(path, format, mode, partitionBy)
            return
        with StageWatch(self._rows.sparkSession) as watch:
            kept = frozen(self._rows)
        if doubt := watch.doubt():  # and Spark calls commit() without the frame, so it cannot be evaluated once more
            raise EosError(
                f"{doubt} while it kept the rows of {target[1]}, so they may be of two evaluations.",
                remedy="Nothing was written. Write the interval again, or by write_interval(), which compares them.",
            )
        rows = kept.withMetadata(SLICE_COLUMN, dict(self._rows.schema[SLICE_COLUMN].metadata))
        figures = figures_of_rows(rows, *target, range(self._slices))
        options = {**self._told, _FIGURES_OPTION: json.dumps({n: found.to_list() for n, found in figures.items()})}
        writer = to_tasks(rows, SLICE_COLUMN, self._slices).write.format(FORMAT).mode("append").options(**options)
        writer.save(path, format, mode, partitionBy)

    def _target(self) -> tuple[Pipeline, Run] | None:
        """Pipeline and run that are named; None if they are unknown, for which ``writer()`` has the words."""
        try:
            pipeline, run = target_of(self._told, _REGISTERED.get(self._rows.sparkSession, {}))
        except ConfigurationError:
            return None
        return Pipeline.from_dict(pipeline), run

    def _is_begun(self, pipeline: Pipeline, run: Run) -> bool:
        found = ledger(pipeline)
        return found.completed(run) is None and bool(found.done(run, range(self._slices)))


def by_slice(
    frame: DataFrame, *, slices: int, key: str | Sequence[str] = "key", pin_inputs: bool = True
) -> SlicedFrame:
    """Prepare a frame for ``.write.format("kafka_eos")``: a partition a slice.

    :param frame: the records, columns as in ``write_interval``.
    :param slices: how many slices.
    :param key: as in :func:`airflow_eos_provider.interval.spark.write.write_interval`.
    :param pin_inputs: likewise. The files are looked at now; a change while they are read is not seen by this way.
    :raises ConfigurationError: columns or key are not usable.
    """
    require_classic(frame, f"format({FORMAT!r})")
    names = [key] if isinstance(key, str) else list(key)
    rows = sliced(frame, names, slices)
    made_of = {
        **rows.schema[SLICE_COLUMN].metadata,
        **({"inputs": pinned_files(frame).to_plan()} if pin_inputs else {}),
    }
    rows = rows.withMetadata(SLICE_COLUMN, made_of)
    return SlicedFrame(rows, slices)


class KafkaEosSource(DataSource):
    """The data source; only :func:`register` makes it usable.

    Options: ``pipeline`` (its name), ``interval`` (``start/end`` as :class:`Interval` spells it), ``revision``,
    ``allow_before_end`` (``true``: see ``write_interval``).
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
        run.interval.require_ended(str(self.options.get("allow_before_end")).lower() == "true")
        with Coordinator(Pipeline.from_dict(pipeline), run, report=logger.info) as coordinator:
            begun = coordinator.begin(
                lambda: RunPlan.of(run, [made_of] * count, {"kind": "rows", **inputs}),
                count,
                rows_have_times="timestamp" in schema.fieldNames(),
            )
            if not isinstance(begun, Stage):
                return KafkaEosWriter(pipeline, None)
            if [dict(piece.source) for piece in begun.slices] != [made_of] * count:
                first = dict(begun.slices[0].source)
                raise ConfigurationError(
                    f"The run {run.name} was begun with other slices: {len(begun.slices)} of {first}.",
                    expected=f"{count} of {made_of}",
                    remedy="Use the slices and the key that it was begun with, or abandon it if nothing is committed.",
                )
            if inputs:
                require_planned_files(inputs, coordinator.plan_source)
            return KafkaEosWriter(pipeline, coordinator.compare_input(begun, self._figures).to_dict())

    def _figures(self, slices: Collection[int]) -> dict[int, SliceFigures]:
        """What ``save()`` has counted."""
        given = self.options.get(_FIGURES_OPTION)
        if given is None:
            raise RefusedError(
                f"{len(slices)} slices are committed, and the rows of this frame were not compared with them.",
                expected="a frame written by by_slice(df, …).write…save(), which compares them first",
                remedy="Write it that way. If it was: an earlier attempt has committed them just now; write it again.",
            )
        return {int(number): SliceFigures.from_list(found) for number, found in json.loads(given).items()}

    def _target(self) -> tuple[dict[str, Any], Run]:
        return target_of(self.options, self.pipelines)


def target_of(options: Mapping[str, Any], pipelines: Mapping[str, dict[str, Any]]) -> tuple[dict[str, Any], Run]:
    """The pipeline and the run that the options name.

    :raises ConfigurationError: an option is missing or wrong.
    """
    for option in _OPTIONS[:2]:
        if not options.get(option):
            raise ConfigurationError(
                f"The option {option!r} is missing.", remedy=f".option({option!r}, …), options are {_OPTIONS}."
            )
    name = options["pipeline"]
    if name not in pipelines:
        raise ConfigurationError(
            f"The pipeline {name!r} is not known to this session.",
            expected=f"one of {', '.join(pipelines) or 'none'}",
            remedy="Give it to register(spark, pipeline, …).",
        )
    revision = str(options.get("revision", "1"))
    if not revision.isdecimal():
        raise ConfigurationError(f"The option 'revision' is {revision!r}.", expected="a whole number from 1")
    return pipelines[name], Run(name, Interval.parse(options["interval"]), int(revision))


@dataclass(frozen=True)
class SliceWritten(WriterCommitMessage):
    """What a partition reports: its slice, and how many of its records have a null key."""

    slice: int
    null_keys: int = 0


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
            written = write_rows(self.pipeline, self.stage, task, iterator)
            return SliceWritten(number, sum(result.null_keys for _, result in written if result))
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
        written = {message.slice for message in messages if isinstance(message, SliceWritten)}
        for number in stage.unfinished:
            # Spark leaves out partitions that it knows to be empty; each row that there was has been checked.
            task = self._task_of(number)
            if number not in written and task is not None:
                for _ in write_rows(self.pipeline, self.stage, task, ()):
                    pass
        pipeline = Pipeline.from_dict(self.pipeline)
        with Coordinator(pipeline, stage.run, report=logger.info) as coordinator:
            coordinator.resume(stage)
            done: Completed = coordinator.finish(stage)
        logger.info("Interval %s is complete: %d records", done.run.name, done.records)
        if null_keys := sum(message.null_keys for message in messages if isinstance(message, SliceWritten)):
            logger.info("%s: %s", done.run.name, with_null_keys(null_keys, done.records))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is undone: what is committed stays, and the next attempt writes the rest."""
        if self.stage is not None:
            written = [message.slice for message in messages if isinstance(message, SliceWritten)]
            logger.warning(
                "The write of %s failed after %d of %d slices. Write the interval again, and the rest is written.",
                self.stage["run"],
                len(written),
                len(self.stage["slices"]),
            )

    def _task_of(self, slice_number: int) -> int | None:
        """The task that the stage gives this slice to, None if the slice is done. There are as many tasks as slices."""
        assignment = [] if self.stage is None else self.stage["assignment"]
        return next((task for task, numbers in enumerate(assignment) if slice_number in numbers), None)
