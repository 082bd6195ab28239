"""Groups of whole files as slices of a DataFrame: no row changes hands, so no shuffle is needed.

Where a frame's plan takes each row by itself (:func:`require_narrow`), all rows of a file are made of that file alone,
so whole files can be slices. The plan of the run pins which files, by path, size and time of change, are in slice
``n``; a retry with any parallelism finds that there.

*A row is of the slice of its own file, by value.* Spark's file sources give each row the path of its file
(``_metadata.file_path``), which goes through the same steps as the row. A branch of the frame for each slice keeps the
rows whose path is one of the slice's files; it is the very same frame, and Spark opens only those files for it. One
more branch keeps the rows of all other paths, and a row there is an error: so each row is in one branch exactly,
however the paths are spelled.

*A slice is in one task.* A branch is coalesced into one partition and the branches are put behind one another, so
partition ``i`` is the ``i``-th task with something to do. Neither moves a row between executors. The number of
partitions is checked before they run, and each task checks the slices of its rows against its own number, as after a
shuffle: a plan that Spark lays out in another way is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.protocol.stage import Stage
from airflow_eos_provider.interval.slices import Slice
from airflow_eos_provider.interval.sources.files import PinnedFile
from airflow_eos_provider.interval.spark.determinism import SUBQUERIES, each, kind_of, parts_of, refuse_unstable
from airflow_eos_provider.interval.spark.executor import SLICE_COLUMN
from airflow_eos_provider.interval.spark.file_listing import uris
from airflow_eos_provider.interval.spark.pinned_inputs import MOST_FILES_IN_PLAN, pinned_inputs, require_same_inputs

__all__ = ["FileGroups", "require_narrow"]

#: A slice's files, within its source in the plan. Stored: renaming it strands runs that are under way.
FILES = "files"

#: The path of a row's file, which Spark's file sources give.
_PATH = "_metadata.file_path"

#: Nodes that make of each row none, one or more, by itself.
_NARROW = frozenset({"Project", "Filter", "Generate", "SubqueryAlias"})

#: Spark's own lists of files. Those of table formats (Delta Lake) hide rows of a file by what stands elsewhere.
_SPARKS_OWN = "org.apache.spark.sql.execution.datasources."

_BY_KEY = "Leave slices_by='files' out: the slices are then those of a key, and any stable plan will do."


def require_narrow(frame: DataFrame) -> None:
    """Check that each row of a frame is made of one file alone, and of nothing but its own place there.

    Taken are one read of files (``spark.read.parquet``, ``json``, ``csv``, ``text``, ``orc``) and, on it, ``select``,
    ``where``, ``withColumn``, ``explode``, Python functions of columns: whatever gives the same for a row in each
    attempt, and needs no other row.

    :raises ConfigurationError: there is another step, or a value by chance; it is named.
    """
    node = frame._jdf.queryExecution().analyzed()
    while not node.children().isEmpty():
        kind = kind_of(node)
        if kind not in _NARROW:
            raise _refusal(f"has a step {kind}", "steps that take each row by itself (select, where, explode …)")
        for expression in each(node.expressions()):
            _require_plain(expression)
        _require_no_own_metadata(node)
        node = node.children().apply(0)
    _require_no_own_metadata(node)
    relation = node.relation() if kind_of(node) == "LogicalRelation" else None
    if relation is None or kind_of(relation) != "HadoopFsRelation":
        raise _refusal(f"begins with {kind_of(node)}", "one read of files, as spark.read.parquet(…)")
    location = str(relation.location().getClass().getName())
    if not location.startswith(_SPARKS_OWN):
        raise _refusal(f"reads files through {location}", "one read of files by Spark's own sources")
    refuse_unstable(frame, ())
    try:
        frame.select(_path())
    except PySparkException as error:
        raise _refusal(
            f"does not give the file of a row ({str(error).splitlines()[0]})",
            "one read of files by Spark's own sources",
        ) from error


class FileGroups:
    """A frame's files, put into groups, and the frame's rows by group.

    :param frame: one that :func:`require_narrow` takes.
    :param columns: what a row is made of, without its slice.
    :ivar groups: the files of each slice, by its number.
    :raises ConfigurationError: the frame reads no file, or more than a plan can hold.
    """

    def __init__(self, frame: DataFrame, columns: Sequence[Column], count: int) -> None:
        self._frame = frame
        self._columns = list(columns)
        self.groups = grouped(_files(frame), count)

    def sources(self) -> list[dict[str, Any]]:
        """What the plan keeps of each slice."""
        return [{FILES: [file.to_dict() for file in group]} for group in self.groups]

    def follow(self, planned: Sequence[Slice]) -> None:
        """Take over the groups of a plan, which an earlier attempt may have made.

        :raises ConfigurationError: a file has changed, is gone or has come; or the run was begun with other slices.
        """
        if any(FILES not in piece.source for piece in planned):
            raise ConfigurationError(
                "The run was begun with slices of a key, not of files.",
                expected="slices_by='key', as it was begun",
                remedy="Run it as it was begun, or abandon it if none of its slices is committed.",
            )
        self.require_same_files(planned)
        self.groups = _groups_of(planned)

    def require_same_files(self, planned: Sequence[Slice]) -> None:
        """Look at the frame's files now, and compare them with those of a plan.

        :raises ConfigurationError: a file has changed, is gone or has come.
        """
        pinned = [file.to_dict() for group in _groups_of(planned) for file in group]
        require_same_inputs({"files": [file.to_dict() for file in _files(self._frame)]}, {"files": pinned})

    def rows_of(self, numbers: Collection[int]) -> DataFrame:
        """The rows of some slices with their slice, in any order and number of partitions."""
        return _union([self._branch(number) for number in numbers])

    def rows_by_task(self, stage: Stage) -> DataFrame:
        """The rows of a stage: partition ``i`` has those of the ``i``-th task that has slices, slice by slice; what
        comes behind has the rows of other files, of which there must be none."""
        tasks = [
            _union([self._branch(number).coalesce(1) for number in numbers]).coalesce(1)
            for numbers in stage.assignment
            if numbers
        ]
        return _union([*tasks, self._others()])

    def require_layout(self, frame: DataFrame, stage: Stage) -> None:
        """Check, before it runs, that a frame over :meth:`rows_by_task` has a partition for each task.

        Where the optimizer has left out one branch, the partitions behind it would be taken for other tasks than
        theirs: the one without rows would say that its slices are empty. Where it has left out all, there is no row.

        :raises EosError: it has not.
        """
        found = _partitions(frame)
        if not found:
            return
        expected = sum(1 for numbers in stage.assignment if numbers) + _partitions(self._others())
        if found != expected:
            raise EosError(
                f"Spark lays {stage.run} out in {found} partitions.",
                expected=f"{expected}, one for each task",
                remedy=_BY_KEY,
            )

    def _branch(self, number: int) -> DataFrame:
        kept = self._frame.where(_path().isin(self._paths([number])))
        return kept.select(*self._columns, F.lit(number).cast("int").alias(SLICE_COLUMN))

    def _others(self) -> DataFrame:
        known = _path().isin(self._paths(range(len(self.groups))))
        other = self._frame.where(~F.coalesce(known, F.lit(False)))
        return other.select(*self._columns, F.lit(None).cast("int").alias(SLICE_COLUMN))

    def _paths(self, numbers: Collection[int]) -> list[str]:
        files = [file.path for number in numbers for file in self.groups[number]]
        return uris(self._frame.sparkSession, files)


def grouped(files: Sequence[PinnedFile], count: int) -> list[tuple[PinnedFile, ...]]:
    """Files in groups of about the same size: the largest first, each to the group that has least so far.

    :param count: how many groups there may be; there is none without a file.
    """
    groups: list[list[PinnedFile]] = [[] for _ in range(min(count, len(files)))]
    sizes = [0] * len(groups)
    for file in sorted(files, key=lambda f: (-f.size, f.path)):
        least = sizes.index(min(sizes))
        groups[least].append(file)
        sizes[least] += file.size + 1  # empty files are spread, too
    return [tuple(sorted(group, key=lambda f: f.path)) for group in groups]


def _groups_of(planned: Sequence[Slice]) -> list[tuple[PinnedFile, ...]]:
    return [tuple(PinnedFile.from_dict(file) for file in piece.source[FILES]) for piece in planned]


def _files(frame: DataFrame) -> list[PinnedFile]:
    pinned: Mapping[str, Any] = pinned_inputs(frame)
    if "files" in pinned:
        return [PinnedFile.from_dict(file) for file in pinned["files"]]
    if not pinned:
        raise ConfigurationError(
            "The DataFrame reads no file, so there is none to be a slice.",
            expected="one file or more",
            remedy="Wait until the files are there. If intervals may be empty, leave slices_by='files' out.",
        )
    raise ConfigurationError(
        f"The DataFrame reads {pinned['file_count']} files.",
        expected=f"at most {MOST_FILES_IN_PLAN}, for the interval's plan names each of them",
        remedy=_BY_KEY,
    )


def _partitions(frame: DataFrame) -> int:
    """How many partitions the frame has when it runs; it is planned for that, and nothing is read."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def _path() -> Column:
    return F.col(_PATH)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows, frame behind frame. Halves are put together, for each union looks at all that is below it."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).unionAll(_union(frames[half:]))


def _require_plain(expression: Any) -> None:
    for part in parts_of(expression):
        if kind_of(part) in SUBQUERIES:
            raise _refusal("has a subquery", "steps that take each row by itself (select, where, explode …)")
    if not expression.deterministic():
        raise _refusal(f"has {expression.sql()}", "values that a row has in every attempt, wherever it is read")


def _require_no_own_metadata(node: Any) -> None:
    """A column of that name would hide the path that Spark gives each row."""
    if any(str(column.name()).lower() == "_metadata" for column in each(node.output())):
        raise _refusal("has a column _metadata of its own", "that name free, since Spark gives a row's file there")


def _refusal(found: str, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"Files cannot be the slices of this DataFrame: its plan {found}.", expected=expected, remedy=_BY_KEY
    )
