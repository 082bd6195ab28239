"""The files of an interval as Spark reads them: listed, pinned, and as slices of a DataFrame.

*What is pinned is what Spark reads.* A DataFrame of files has an index: the paths, sizes and times of change that Spark
saw when the frame was created, or when the session first read the table. Spark reads that much of each file, and no
other file. So the index itself is asked, and compared with a new listing by Spark's own rules: a frame whose files have
changed since is refused (:func:`pinned_files`).

*Spark Connect* has no index to ask. There each action lists the files, provided that the session caches no plan; so the
cache is switched off, what cannot be listed is refused, and the listings before and after the stage are compared.

*Groups of whole files as slices* (:class:`FileGroups`). Where a frame's plan takes each row by itself
(:func:`require_narrow`), all rows of a file are made of that file alone. Spark gives each row the path of its file
(``_metadata.file_path``). A branch of the frame for each slice keeps the rows of the slice's files; Spark opens only
those files for it. One more branch keeps the rows of all other paths, and a row there is an error: each row is in one
branch exactly, however the paths are spelled. A branch is coalesced into one partition, and the branches are put behind
one another, so partition ``i`` is the ``i``-th task with something to do. The number of partitions is checked before
they run, and each task checks the slices of its rows: a plan that Spark lays out in another way is an error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.protocol.stage import Stage
from airflow_eos_provider.interval.slices import Slice
from airflow_eos_provider.interval.sources.files import (
    MOST_FILES_IN_PLAN,
    Convert,
    FileReadOptions,
    FileSet,
    PinnedFile,
    local_identity,
    look_at,
)
from airflow_eos_provider.interval.spark.determinism import SUBQUERIES, each, kind_of, parts_of, refuse_unstable
from airflow_eos_provider.interval.spark.executor import SLICE_COLUMN
from airflow_eos_provider.interval.spark.sessions import functions_of, is_remote, is_server_lost

__all__ = [
    "FILES",
    "FileGroups",
    "FilesSource",
    "files_source",
    "pinned_files",
    "require_narrow",
    "require_still_pinned",
]

#: A slice's files, within its source in the plan. Stored: renaming it strands runs that are under way.
FILES = "files"

#: The path of a row's file, which Spark's file sources give.
_PATH = "_metadata.file_path"

#: Nodes that make of each row none, one or more, by itself.
_NARROW = frozenset({"Project", "Filter", "Generate", "SubqueryAlias"})

#: Spark's own indexes of files. Those of table formats (Delta Lake) read one version of a table, and leave out rows.
_SPARKS_OWN = "org.apache.spark.sql.execution.datasources."

#: Through Spark Connect: a plan that was analyzed once is used again, with the files that it listed then.
_PLAN_CACHE = "spark.connect.session.planCache.enabled"

#: In a plan's text: a table of files, whose listing the session keeps; and rows that it keeps.
_SCAN = "FileScan "
_TABLE_OF_FILES = re.compile(rf"{_SCAN}\w+ ([^\s\[]+)\[")
_KEPT_ROWS = re.compile(r"^[\s:+\-]*InMemoryRelation\b", re.MULTILINE)

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")

#: Signs that have a meaning in a pattern of Hadoop's for paths.
_PATTERN_SIGNS = re.compile(r"([\\*?\[\]{}])")

#: So many intervals may share a path and be told apart by their rows' times; with more, no such row is refused.
_MOST_OTHERS = 100_000

_BY_KEY = "Leave slices_by='files' out: the slices are then those of a key, and any stable plan will do."


# What a DataFrame reads


def pinned_files(frame: DataFrame) -> FileSet:
    """The files that Spark reads for a frame, as it will read them.

    :param frame: its filters on partition columns leave out files. One that reads no files has none.
    :raises EosError: Spark would read them as they were when the frame was created, and they have changed since.
    :raises ConfigurationError: the files cannot be listed, or Spark does not tell which it reads.
    """
    read, there = _read_and_there(frame)
    if differ := read.differences(there):
        more = f", and {len(differ) - 1} more differ" if len(differ) > 1 else ""
        raise EosError(
            f"The files of the DataFrame have changed since it was created: {differ[0]}{more}. Spark would read them "
            "as they were then, and leave out rows.",
            expected=f"the {len(read)} files that Spark has listed, as it has listed them",
            remedy="Create the DataFrame after the files are final, and run the interval again. Of a table, first call "
            "spark.catalog.refreshTable(…); of a path, spark.catalog.refreshByPath(…); give up a cached frame by "
            "unpersist().",
        )
    return FileSet(tuple(replace(file, identity=local_identity(file.path)) for file in read))


def require_still_pinned(frame: DataFrame, pinned: FileSet) -> None:
    """Check, after the stage, that Spark has read the pinned files, and that they are as they were.

    :param pinned: as :func:`pinned_files` gave them before.
    :raises ConfigurationError: a file has changed.
    """
    read, there = _read_and_there(frame)
    read.require(pinned)
    now = there.by_path
    for file in pinned:
        found = now.get(file.path)
        file.require_unchanged(found and replace(found, identity=local_identity(file.path)))


def _read_and_there(frame: DataFrame) -> tuple[FileSet, FileSet]:
    """The files that Spark will read for a frame, and those that it would find if it listed them now."""
    if is_remote(frame):
        found = _remote_files(frame)
        return found, found
    from py4j.protocol import Py4JJavaError

    spark = frame.sparkSession
    read, there = list[PinnedFile](), list[PinnedFile]()
    try:
        for relation, filters in _scans(frame):
            location = relation.location()
            listed = list(_listed(spark, location, filters))
            read += listed
            fresh = _listed_now(spark, relation)
            there += listed if fresh is None else _listed(spark, fresh, filters)
    except (Py4JJavaError, PySparkException) as error:
        raise ConfigurationError(
            f"The files of the DataFrame cannot be listed: {_words(error)}.",
            remedy="If a file or folder was replaced while the job began, run the interval again.",
        ) from None
    return FileSet.of(read), FileSet.of(there)


def _scans(frame: DataFrame) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    """The relations of files that a frame reads, and by which filters it selects files of each.

    They are of a plan made now: an earlier one keeps the files that it has selected.
    """
    execution = frame.where("true")._jdf.queryExecution()
    for relation in _relations(execution.analyzed()):
        _require_whole_files(frame.sparkSession, relation)
        if kind_of(relation.location()) == "CatalogFileIndex":
            relation.location().refresh()  # what it remembers of a partition's files; the plan below lists them now
    for leaf in _leaves(execution.sparkPlan()):
        kind = kind_of(leaf)
        if kind == "FileSourceScanExec":
            yield leaf.relation(), (_static(frame.sparkSession, leaf.partitionFilters()), leaf.dataFilters())
        elif kind == "BatchScanExec" and _is_a(frame.sparkSession, leaf.scan(), f"{_SPARKS_OWN}v2.FileScan"):
            raise ConfigurationError(
                "The DataFrame reads files through Spark's sources of version 2, which are not asked here.",
                expected="the sources that Spark uses by itself",
                remedy="Leave spark.sql.sources.useV1SourceList as it is.",
            )
    nothing = _seq(frame.sparkSession, ())
    for plan in each(execution.optimizedPlan().subqueriesAll()):
        for relation in _relations(plan):
            yield relation, (nothing, nothing)


def _require_whole_files(spark: SparkSession, relation: Any) -> None:
    """
    :raises ConfigurationError: Spark would leave out files that it cannot read.
    """
    for name in ("ignoreCorruptFiles", "ignoreMissingFiles"):
        option = relation.options().get(name.lower())
        value = option.get() if option.isDefined() else spark.conf.get(f"spark.sql.files.{name}")
        if str(value).lower() == "true":
            raise ConfigurationError(
                f"{name} is true, so Spark would leave out the rows of files that it cannot read.",
                expected="false: an interval is complete with all rows of its files",
                remedy=f"Set spark.sql.files.{name}=false, and leave out the reader's option {name}.",
            )


def _leaves(plan: Any) -> Iterator[Any]:
    """The leaves of a plan; of a cached frame those of the plan that has filled the cache."""
    leaves = plan.collectLeaves()
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if kind_of(leaf) == "InMemoryTableScanExec":
            yield from _leaves(leaf.relation().cachedPlan())
        elif kind_of(leaf) == "AdaptiveSparkPlanExec":
            yield from _leaves(leaf.initialPlan())
        else:
            yield leaf


def _relations(plan: Any) -> Iterator[Any]:
    for leaf in _leaves(plan):
        if kind_of(leaf) == "LogicalRelation" and kind_of(leaf.relation()) == "HadoopFsRelation":
            yield leaf.relation()


def _static(spark: SparkSession, filters: Any) -> Any:
    """Filters that are known before the plan runs; the others leave out files that another part selects."""
    known = [f for f in each(filters) if not any(kind_of(p).endswith(_OF_PLANS) for p in parts_of(f))]
    return _seq(spark, known)


#: Expressions that hold a plan.
_OF_PLANS = ("Subquery", "SubqueryExpression", "DynamicPruningExpression")


def _listed(spark: SparkSession, index: Any, filters: tuple[Any, Any]) -> Iterator[PinnedFile]:
    for partition in each(index.listFiles(*filters)):
        for status in each(partition.files()):
            yield _pinned(spark, status.fileStatus())


def _listed_now(spark: SparkSession, relation: Any) -> Any:
    """An index of the same files, made now; None if the relation's own is of another kind, as of a table's version."""
    location = relation.location()
    if str(location.getClass().getName()) != f"{_SPARKS_OWN}InMemoryFileIndex":
        return None
    jvm: Any = spark._jvm
    roots = location.rootPaths()
    path = relation.options().get("path")
    if path.isDefined() and _PATTERN_SIGNS.search(str(path.get())):
        place = jvm.org.apache.hadoop.fs.Path(path.get())
        system = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        if str(system.makeQualified(place).toString()) not in {str(root.toString()) for root in each(roots)}:
            roots = _seq(spark, [status.getPath() for status in system.globStatus(place) or ()])
    made = jvm.org.apache.spark.sql.execution.datasources
    nothing = jvm.scala.Option.empty()
    of_catalog = location.metadataOpsTimeNs().isDefined()  # its partitions are those that Hive's catalog names
    return made.InMemoryFileIndex(
        spark._jsparkSession,
        roots,
        relation.options(),
        jvm.scala.Option.apply(relation.schema()),
        getattr(getattr(made, "NoopCache$"), "MODULE$"),
        jvm.scala.Option.apply(location.partitionSpec()) if of_catalog else nothing,
        nothing,
    )


def _pinned(spark: SparkSession, status: Any) -> PinnedFile:
    path = str(status.getPath().toString())
    tagged = not path.startswith(("file:", "hdfs:")) and _is_a(spark, status, "org.apache.hadoop.fs.EtagSource")
    return PinnedFile(
        path, int(status.getLen()), int(status.getModificationTime()), status.getEtag() if tagged else None
    )


def _is_a(spark: SparkSession, found: Any, name: str) -> bool:
    from py4j.java_gateway import is_instance_of

    gateway: Any = spark.sparkContext._gateway
    return bool(is_instance_of(gateway, found, name))


def _seq(spark: SparkSession, items: Iterable[Any]) -> Any:
    jvm: Any = spark._jvm
    return jvm.PythonUtils.toSeq(list(items))


def _remote_files(frame: Any) -> FileSet:
    """The files that a frame of Spark Connect reads, listed now, as its next action will list them.

    :raises ConfigurationError: the session keeps a listing, or rows, of an earlier moment.
    """
    spark = frame.sparkSession
    spark.conf.set(_PLAN_CACHE, "false")
    text = str(frame._explain_string(extended=True))
    table = _TABLE_OF_FILES.search(text)
    if table or (_KEPT_ROWS.search(text) and _SCAN in text):
        raise ConfigurationError(
            f"The DataFrame reads {f'the table {table.group(1)}' if table else 'a cached frame'}, of which the session "
            "may have listed the files, or read the rows, at an earlier moment; Spark Connect does not report when.",
            expected="files by their paths, as spark.read.parquet(…), that are not cached",
            remedy="Read the table's files by their path, and give up a cached frame by unpersist(); or write the "
            "interval by a classic session.",
        )
    paths = sorted(set(frame.inputFiles()))
    if not paths:
        return FileSet()
    return FileSet.of(_find_remotely(spark, [_PATTERN_SIGNS.sub(r"\\\1", unquote(path)) for path in paths]))


def _find_remotely(spark: SparkSession, paths: Sequence[str]) -> Iterator[PinnedFile]:
    """Files, all that lies in folders, and what patterns match, through Spark Connect.

    Spark's reader of files reports their size and time of change and leaves their content alone. It reports no etag.
    """
    modified: Any = functions_of(spark).unix_millis("modificationTime").alias("modified_ms")
    try:
        for row in _reader(spark).load(list(paths)).select("path", "length", modified).collect():
            yield PinnedFile(row.path, int(row.length), int(row.modified_ms))
    except PySparkException as error:
        if len(paths) > 1 or error.getCondition() != "PATH_NOT_FOUND":
            raise _not_listed(paths[0], error) from error


def _reader(spark: SparkSession) -> Any:
    return spark.read.format("binaryFile").option("recursiveFileLookup", "true")


def _not_listed(path: str, error: Exception) -> EosError:
    if is_server_lost(error):
        return UnreachableError(
            f"The files at {path} were not listed: Spark's server was lost meanwhile ({_words(error)}).",
            remedy="Run the interval again once the server is back; the listing has written nothing.",
        )
    return ConfigurationError(
        f"The files at {path} cannot be listed: {_words(error)}.",
        remedy="Check the path, and that Spark has the file system's jars and credentials. If a file was replaced "
        "while the job began, run the interval again.",
    )


def _words(error: Exception) -> str:
    """Java's own message, without the trace that Py4J puts behind it."""
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.getMessage())


# Files that tasks read themselves


@dataclass(frozen=True)
class FilesSource:
    """The pinned files of one interval, a slice a file.

    :param files: what was listed.
    :param options: how a file becomes records.
    :param convert: makes record columns (``value``, ``key`` …) of a batch of the file's columns; None takes rows with a
        column ``value`` as they are, and makes JSON objects of others. It has to give the same rows in every attempt.
    :param listed_at: the files were listed at or after this moment; None if that is not known.
    :param by_bounds: whether files or rows were selected by both bounds of the interval, and not by a path that names
        one of them.
    """

    files: FileSet
    options: FileReadOptions
    convert: Convert | None = None
    listed_at: datetime | None = None
    by_bounds: bool = False

    def slices(self) -> tuple[Slice, ...]:
        """A slice a file; with its source, so that an attempt needs no more than the plan to read it."""
        return tuple(
            Slice(number, {"file": file.to_dict(), **self.options.to_dict()}) for number, file in enumerate(self.files)
        )

    def require_planned(self, planned: Sequence[Slice]) -> None:
        """Check that a plan, which an earlier attempt may have made, is of these files, read in this way.

        :raises ConfigurationError: a file has changed, is gone or was added; or they were to be read in another way.
        """
        for piece in planned:
            ways = {name: value for name, value in piece.source.items() if name != "file"}
            if "file" not in piece.source or ways != self.options.to_dict():
                raise ConfigurationError(
                    f"The interval was begun with other slices: {ways}.",
                    expected=f"files read as {self.options.to_dict()}",
                    remedy="Run it as it was begun, or abandon it if none of its slices is committed.",
                )
        self.files.require(FileSet.from_dicts(piece.source["file"] for piece in planned))

    def require_in_place(self) -> None:
        """Check, after the stage, that no file has become another one; of local files, which have an identity.

        :raises ConfigurationError: one has.
        """
        for file in self.files:
            if file.identity:
                file.require_unchanged(look_at(file.path))


def files_source(
    spark: SparkSession,
    interval: Interval,
    path: str,
    *,
    format: str,
    time_column: str | None = None,
    time_unit: str | None = None,
    modified: bool = False,
    null_times: str = "refuse",
    key: str | None = None,
    allow_empty: bool = False,
    convert: Convert | None = None,
) -> FilesSource:
    """Find and pin the files of an interval, which the tasks read themselves, a slice a file.

    :param spark: the session that lists them, by its own rules: what begins with ``_`` or ``.`` is left out, and so are
        files of no byte.
    :param interval: whose files they are.
    :param path: where they are: a file, a folder or a glob, with ``{start}`` and ``{end}`` where the interval's bounds
        belong, formatted as Python does (``s3a://logs/{start:%Y/%m/%d}/*.parquet``); UTC.
    :param format: ``parquet``; or ``lines``, whose bytes are the values, of ``.gz``, ``.bz2`` and ``.zst`` files, too.
        Read any other format with Spark and a schema of your own, and write it with ``slices_by="files"``.
    :param time_column: keep the rows whose time lies in ``[start, end)``: a column of type timestamp or date, or of
        whole numbers with ``time_unit`` given; of lines, that member of the JSON object, as text of ISO 8601 or a whole
        number. A time without a zone is UTC. If the path names the interval, a row outside of it that no other interval
        would read is refused.
    :param time_unit: of whole numbers that are times since 1970: ``s``, ``ms``, ``us`` or ``ns``.
    :param modified: take the files whose last change lies in ``[start, end)``.
    :param null_times: what becomes of rows whose ``time_column`` is null: ``refuse``, an error; or ``drop``, they are
        left out of every interval, and each run reports how many.
    :param key: of lines: the member of the JSON object, text or a whole number, that is the record's key.
    :param allow_empty: whether an interval may have no file; it is then complete with 0 records, for good.
    :param convert: makes record columns (``value``, ``key`` …) of a batch of the file's columns; None takes rows with
        a column ``value`` as they are, and makes JSON objects of others.
    :raises ConfigurationError: the path cannot be formatted, or its file system cannot be reached; nothing in it says
        which interval is meant; there is no file; an option does not go with the format.
    """
    try:
        place = path.format(start=interval.start, end=interval.end)
        edges = [path.format(start=edge, end=edge) for edge in (interval.start, interval.end)]
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigurationError(
            f"The path {path!r} cannot be formatted: {error}.",
            expected="{start} and {end}, as in data/{start:%Y-%m-%d}/*.parquet",
        ) from error
    if edges[0] == edges[1] and time_column is None and not modified:
        raise ConfigurationError(
            f"Nothing says which of the files at {place} belong to the interval: its bounds give one path.",
            expected="{start} or {end} in the path, in UTC, so that each interval has another path (an hour's "
            "names the hour), or time_column, or modified=True",
            remedy="Otherwise each interval would write all of them again.",
        )
    bounds = {"start": interval.start.isoformat(), "end": interval.end.isoformat()} if time_column else {}
    if time_column and place != path:
        bounds |= _others(path, place, interval)
    options = FileReadOptions(format, time_column, null_times=null_times, time_unit=time_unit, key=key, **bounds)
    listed_at = datetime.now(UTC)
    found = find_files(spark, place)
    if modified:
        first, last = (int(edge.timestamp() * 1000) for edge in (interval.start, interval.end))
        found = FileSet(tuple(file for file in found if first <= file.modified_ms < last))
    if not found and not allow_empty:
        raise ConfigurationError(
            f"There is no file at {place}{' that was changed within the interval' if modified else ''}.",
            expected="one file or more, with content",
            remedy="Correct the path, or wait until the files are there. If intervals may be empty: allow_empty=True; "
            "the interval is then complete with 0 records, and files that come later are not written.",
        )
    return FilesSource(found, options, convert, listed_at, by_bounds=place == path)


def _others(path: str, place: str, interval: Interval) -> dict[str, str]:
    """From when to when other intervals of this width have the same path, so that they read its other rows."""
    width, edges = interval.end - interval.start, {}
    for name, step in (("others_from", -width), ("others_to", width)):
        start = interval.start
        for _ in range(_MOST_OTHERS):
            if path.format(start=start + step, end=start + step + width) != place:
                edges[name] = (start if step < timedelta() else start + width).isoformat()
                break
            start += step
    return edges


def find_files(spark: SparkSession, path: str) -> FileSet:
    """The files at a place as Spark lists them now.

    :param path: a file, a folder (all that lies in it) or a glob, of any of Hadoop's file systems. Below a glob, too,
        what begins with ``_`` or ``.`` is left out: Spark itself would look into a ``_temporary`` that a glob matches.
    :raises ConfigurationError: the file system cannot be reached.
    """
    from py4j.protocol import Py4JJavaError

    try:
        if is_remote(spark):
            found = list(_find_remotely(spark, [path]))
        else:
            files = (_listed(spark, r.location(), filters) for r, filters in _scans(_reader(spark).load(path)))
            found = [replace(file, identity=local_identity(file.path)) for listed in files for file in listed]
    except (Py4JJavaError, PySparkException) as error:
        if getattr(error, "getCondition", lambda: None)() != "PATH_NOT_FOUND":
            raise _not_listed(path, error) from None
        found = []
    signs = _PATTERN_SIGNS.search(path)
    fixed = _SCHEME.sub("", path[: signs.start()].rpartition("/")[0] if signs else path)
    folder = re.sub("/+", "/", posixpath.normpath(fixed)) if fixed else ""  # as Hadoop spells it
    return FileSet.of(file for file in found if not _is_hidden_below(folder, _SCHEME.sub("", file.path)))


def _is_hidden_below(folder: str, path: str) -> bool:
    below = path.removeprefix(folder) if path.startswith(folder) else path.partition(f"/{folder}/")[2]
    return any(name.startswith(".") or (name.startswith("_") and "=" not in name) for name in below.split("/"))


# Groups of whole files as slices


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
        frame.select(F.col(_PATH))
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
        self._pinned = pinned_files(frame)
        if not self._pinned:
            raise ConfigurationError(
                "The DataFrame reads no file, so there is none to be a slice.",
                expected="one file or more",
                remedy="Wait until the files are there. If intervals may be empty, leave slices_by='files' out.",
            )
        if len(self._pinned) > MOST_FILES_IN_PLAN:
            raise ConfigurationError(
                f"The DataFrame reads {len(self._pinned)} files.",
                expected=f"at most {MOST_FILES_IN_PLAN}, for the interval's plan names each of them",
                remedy=_BY_KEY,
            )
        self.groups = self._pinned.grouped(count)

    def sources(self) -> list[dict[str, Any]]:
        """What the plan keeps of each slice."""
        return [{FILES: [file.to_dict() for file in group]} for group in self.groups]

    def follow(self, planned: Sequence[Slice]) -> None:
        """Take over the groups of a plan, which an earlier attempt may have made.

        :raises ConfigurationError: a file has changed, is gone or was added; or the run was begun with other slices.
        """
        if any(FILES not in piece.source for piece in planned):
            raise ConfigurationError(
                "The run was begun with slices of a key, not of files.",
                expected="slices_by='key', as it was begun",
                remedy="Run it as it was begun, or abandon it if none of its slices is committed.",
            )
        self.groups = [FileSet.from_dicts(piece.source[FILES]) for piece in planned]
        self._pinned.require(FileSet.of(file for group in self.groups for file in group))

    def require_still_pinned(self) -> None:
        """As :func:`require_still_pinned`."""
        require_still_pinned(self._frame, self._pinned)

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
        kept = self._frame.where(F.col(_PATH).isin(self._paths([number])))
        return kept.select(*self._columns, F.lit(number).cast("int").alias(SLICE_COLUMN))

    def _others(self) -> DataFrame:
        known = F.col(_PATH).isin(self._paths(range(len(self.groups))))
        other = self._frame.where(~F.coalesce(known, F.lit(False)))
        return other.select(*self._columns, F.lit(None).cast("int").alias(SLICE_COLUMN))

    def _paths(self, numbers: Collection[int]) -> list[str]:
        """As ``_metadata.file_path`` spells them, with the signs of a URI."""
        jvm: Any = self._frame.sparkSession._jvm
        files = [file.path for number in numbers for file in self.groups[number]]
        return [str(jvm.org.apache.hadoop.fs.Path(path).toUri().toString()) for path in files]


def _partitions(frame: DataFrame) -> int:
    """How many partitions the frame has when it runs; it is planned for that, and nothing is read."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


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
