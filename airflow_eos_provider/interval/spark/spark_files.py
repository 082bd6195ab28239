"""The files of an interval as Spark reads them: listed, and pinned.

A DataFrame of files has an index: the paths, sizes and times of change that Spark saw when the frame was created, or
when the session first read the table. Spark reads these files only, up to these sizes. :func:`pinned_files` compares
the index with a new listing by Spark's own rules, and refuses a frame whose files have changed since.

Spark Connect gives no access to the index: each action lists the files, unless the session caches the plan. So the
cache is switched off, files that cannot be listed are refused, and listings before and after the stage are compared.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, EosError, UnreachableError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.sources.source_files import (
    Convert,
    FileReadOptions,
    FileSet,
    PinnedFile,
    local_identity,
)
from airflow_eos_provider.interval.spark.plans.classic_plan import each, kind_of, parts_of
from airflow_eos_provider.interval.spark.sessions import functions_of, is_remote, is_server_lost

__all__ = ["FilesSource", "files_source", "pinned_files", "require_still_pinned"]

#: Spark's own file indexes; those of table formats (Delta Lake) read one version of a table and skip rows.
_SPARKS_OWN = "org.apache.spark.sql.execution.datasources."

#: Spark Connect reuses an analyzed plan, with the files that it listed then.
_PLAN_CACHE = "spark.connect.session.planCache.enabled"

#: In a plan's text: a table of files, whose listing the session caches; and cached rows.
_SCAN = "FileScan "
_TABLE_OF_FILES = re.compile(rf"{_SCAN}\w+ ([^\s\[]+)\[")
_KEPT_ROWS = re.compile(r"^[ \t:+\-]*InMemoryRelation\b", re.MULTILINE)

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")

#: Special characters of Hadoop's path patterns.
_PATTERN_SIGNS = re.compile(r"([\\*?\[\]{}])")

#: So many intervals may share a path and be told apart by their rows' times; with more, no such row is refused.
_MOST_OTHERS = 100_000


# What a DataFrame reads


def pinned_files(frame: DataFrame) -> FileSet:
    """The files that Spark will read for a frame; those that its partition filters exclude are left out."""
    read, there = _read_and_there(frame)
    if differ := read.differences(there):
        more = f", and {len(differ) - 1} more differ" if len(differ) > 1 else ""
        raise EosError(
            f"The files of the DataFrame have changed since it was created: {differ[0]}{more}. Spark would read the "
            "old list of files, and leave out rows.",
            expected=f"the {len(read)} files that Spark listed, unchanged",
            remedy="Create the DataFrame after the files are final, and run the interval again. For a table call "
            "spark.catalog.refreshTable(…) first, for a path spark.catalog.refreshByPath(…), for a cached frame "
            "unpersist().",
        )
    return FileSet(tuple(replace(file, identity=local_identity(file.path)) for file in read))


def require_still_pinned(frame: DataFrame, pinned: FileSet) -> None:
    """Check after the stage that Spark has read the pinned files, and that they are unchanged."""
    read, there = _read_and_there(frame)
    read.require(pinned)
    now = there.by_path
    for file in pinned:
        found = now.get(file.path)
        file.require_unchanged(found and replace(found, identity=local_identity(file.path)))


def _read_and_there(frame: DataFrame) -> tuple[FileSet, FileSet]:
    """The files that Spark will read for a frame, and those that a new listing finds."""
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
    """The relations of files that a frame reads, with the filters that select files of each.

    The plan is a new one, because an earlier plan keeps the files that it has selected.
    """
    execution = frame.where("true")._jdf.queryExecution()
    for relation in _relations(execution.analyzed()):
        _require_whole_files(frame.sparkSession, relation)
        if kind_of(relation.location()) == "CatalogFileIndex":
            relation.location().refresh()  # forgets its partitions' files; the plan below lists them now
    for leaf in _leaves(execution.sparkPlan()):
        kind = kind_of(leaf)
        if kind == "FileSourceScanExec":
            yield leaf.relation(), (_static(frame.sparkSession, leaf.partitionFilters()), leaf.dataFilters())
        elif kind == "BatchScanExec" and _is_a(frame.sparkSession, leaf.scan(), f"{_SPARKS_OWN}v2.FileScan"):
            raise ConfigurationError(
                "The DataFrame reads files through Spark's sources of version 2, which do not report their files.",
                expected="the sources that Spark uses by default",
                remedy="Leave spark.sql.sources.useV1SourceList at its default.",
            )
    nothing = _seq(frame.sparkSession, ())
    for plan in each(execution.optimizedPlan().subqueriesAll()):
        for relation in _relations(plan):
            yield relation, (nothing, nothing)


def _require_whole_files(spark: SparkSession, relation: Any) -> None:
    """Refuse settings with which Spark skips files that it cannot read."""
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
    """The leaves of a plan; for a cached frame, of the plan that filled the cache."""
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
    """The filters whose values are known before the plan runs."""
    known = [f for f in each(filters) if not any(kind_of(p).endswith(_OF_PLANS) for p in parts_of(f))]
    return _seq(spark, known)


#: Expressions that hold a plan.
_OF_PLANS = ("Subquery", "SubqueryExpression", "DynamicPruningExpression")


def _listed(spark: SparkSession, index: Any, filters: tuple[Any, Any]) -> Iterator[PinnedFile]:
    for partition in each(index.listFiles(*filters)):
        for status in each(partition.files()):
            yield _pinned(spark, status.fileStatus())


def _listed_now(spark: SparkSession, relation: Any) -> Any:
    """A new index of the same files; None if the relation's own is of another kind, such as a table's version."""
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
    """The files of a Spark Connect frame, listed as its next action will list them."""
    spark = frame.sparkSession
    spark.conf.set(_PLAN_CACHE, "false")
    text = str(frame._explain_string(extended=True))
    table = _TABLE_OF_FILES.search(text)
    if table or (_KEPT_ROWS.search(text) and _SCAN in text):
        raise ConfigurationError(
            f"The DataFrame reads {f'the table {table.group(1)}' if table else 'a cached frame'}, of which the session "
            "may have listed the files or read the rows earlier; Spark Connect does not report when.",
            expected="uncached files by their paths, such as spark.read.parquet(…)",
            remedy="Read a table's files by their path, call unpersist() on a cached frame, or write the interval "
            "with a classic session.",
        )
    paths = sorted(set(frame.inputFiles()))
    if not paths:
        return FileSet()
    return FileSet.of(_find_remotely(spark, [_PATTERN_SIGNS.sub(r"\\\1", unquote(path)) for path in paths]))


def _find_remotely(spark: SparkSession, paths: Sequence[str]) -> Iterator[PinnedFile]:
    """The files at paths, in folders and of patterns through Spark Connect, without reading them; it has no etags."""
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
            f"The files at {path} were not listed: Spark's server was lost ({_words(error)}).",
            remedy="Run the interval again when the server is back; nothing was written.",
        )
    return ConfigurationError(
        f"The files at {path} cannot be listed: {_words(error)}.",
        remedy="Check the path, and that Spark has the file system's jars and credentials. If a file was replaced "
        "while the job began, run the interval again.",
    )


def _words(error: Exception) -> str:
    """Java's message without Py4J's trace."""
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.getMessage())


# Files that tasks read themselves


@dataclass(frozen=True)
class FilesSource:
    """The pinned files of one interval, one slice per file.

    :param by_bounds: whether files or rows were selected by both bounds of the interval, not by a path that names one.
    """

    files: FileSet
    options: FileReadOptions
    convert: Convert | None = None
    listed_at: datetime | None = None
    by_bounds: bool = False


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
    """Find and pin the files of an interval. The tasks read them without Spark, one slice per file.

    :param spark: the session that lists the files, by its own rules: empty files and names that begin with ``_`` or
        ``.`` are skipped.
    :param interval: the interval.
    :param path: a file, a folder or a glob. ``{start}`` and ``{end}`` become the interval's bounds in UTC, formatted as
        Python does (``s3a://logs/{start:%Y/%m/%d}/*.parquet``).
    :param format: ``parquet``; or ``lines``, whose bytes become the values (``.gz``, ``.bz2`` and ``.zst`` are
        decompressed). Read other formats with Spark and your own schema.
    :param time_column: keeps the rows whose time lies in ``[start, end)``: a column of timestamps, dates, or whole
        numbers (give ``time_unit``); with lines, a member of the JSON object: ISO 8601 text or a whole number. A time
        without a zone is UTC. If the path names the interval, rows that no other interval would read are refused.
    :param time_unit: of whole numbers since 1970: ``s``, ``ms``, ``us`` or ``ns``.
    :param modified: takes the files whose last change lies in ``[start, end)``.
    :param null_times: rows whose ``time_column`` is null: ``refuse`` raises an error; ``drop`` leaves them out of every
        interval, and each run reports how many.
    :param key: with lines: the member of the JSON object (text or a whole number) that becomes the record's key.
    :param allow_empty: accepts an interval without files. It is then complete with 0 records for good.
    :param convert: makes record columns (``value``, ``key`` …) of a batch of the file's columns, the same ones in every
        attempt. By default a column ``value`` is taken unchanged; rows without one become JSON objects.
    :raises ConfigurationError: the path cannot be formatted or reached, or does not select an interval; there is no
        file; an option cannot be used with the format.
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
            remedy="Correct the path, or wait until the files are there. If intervals may be empty: allow_empty=True. "
            "The interval is then complete with 0 records, and later files are never written.",
        )
    return FilesSource(found, options, convert, listed_at, by_bounds=place == path)


def _others(path: str, place: str, interval: Interval) -> dict[str, str]:
    """The span in which intervals of this width share the path, so each reads the rows that another drops."""
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
    """The files at a path, in a folder or of a glob, of any of Hadoop's file systems.

    Names that begin with ``_`` or ``.`` are skipped below a glob, too: Spark would read a ``_temporary`` that matches.
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
