"""The files of an interval, found and pinned by Spark's driver through Hadoop's file systems.

Through Spark Connect the driver is asked by its own reader of files (``binaryFile``), which reports their size and time
of change and leaves their content alone. It reports no etag, and leaves out files of no byte, which have no record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from airflow_eos_provider.errors import ConfigurationError, UnreachableError
from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.slices import Slice
from airflow_eos_provider.interval.sources.files import Convert, FileReadOptions, PinnedFile, require_same_files
from airflow_eos_provider.interval.spark.sessions import functions_of, is_remote, is_server_lost


@dataclass(frozen=True)
class FilesSource:
    """The pinned files of one interval, a slice a file.

    :param files: in the order of their paths.
    :param options: how a file becomes records.
    :param convert: makes record columns (``value``, ``key`` …) of a batch of the file's columns; None takes rows with a
        column ``value`` as they are, and makes JSON objects of others. It has to give the same rows in every attempt.
    :param listed_at: the files were listed at or after this moment; None if that is not known.
    :param by_bounds: whether files or rows were selected by both bounds of the interval, and not by a path that names
        one of them.
    """

    files: tuple[PinnedFile, ...]
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
        pinned = (PinnedFile.from_dict(piece.source["file"]) for piece in planned)
        require_same_files({file.path: file for file in self.files}, {file.path: file for file in pinned})

    def frame(self, spark: SparkSession) -> DataFrame:
        """The files as a DataFrame, for work that needs a shuffle; its slices are then those of a key, not of files."""
        reader = spark.read.option("header", "true").option("inferSchema", "true")
        kind = "text" if self.options.format == "lines" else self.options.format
        if not self.files:
            raise ConfigurationError("There is no file to take the columns from.", remedy="Leave the interval out.")
        frame = reader.format(kind).load([file.path for file in self.files])
        if self.options.time_column is None:
            return frame
        F = functions_of(spark)
        when = F.to_timestamp(F.col(self.options.time_column))
        if self.options.null_times == "refuse":
            missing = (
                f"A source row has no {self.options.time_column}, so it is of no interval (null_times='drop' drops it)"
            )
            when = F.coalesce(when, F.raise_error(missing).cast("timestamp"))
        start, end = (F.lit(datetime.fromisoformat(str(edge))) for edge in (self.options.start, self.options.end))
        return frame.where((when >= start) & (when < end))


def files_source(
    spark: SparkSession,
    interval: Interval,
    path: str,
    *,
    format: str,
    time_column: str | None = None,
    modified: bool = False,
    null_times: str = "refuse",
    allow_empty: bool = False,
    convert: Convert | None = None,
) -> FilesSource:
    """Find and pin the files of an interval.

    :param spark: the session that lists them.
    :param interval: whose files they are.
    :param path: where they are: a file, a folder or a glob, with ``{start}`` and ``{end}`` where the interval's bounds
        belong, formatted as Python does (``s3a://logs/{start:%Y/%m/%d}/*.parquet``); UTC.
    :param format: ``parquet``, ``json`` (an object a line), ``csv`` (with a header) or ``lines`` (the line itself).
    :param time_column: keep the rows whose time lies in ``[start, end)``; a time without a zone is UTC.
    :param modified: take the files whose last change lies in ``[start, end)``.
    :param null_times: what becomes of rows whose ``time_column`` is null: ``refuse``, an error; or ``drop``, they are
        left out of every interval, and each run reports how many.
    :param allow_empty: whether an interval may have no file; it is then complete with 0 records, for good.
    :param convert: makes record columns (``value``, ``key`` …) of a batch of the file's columns; None takes rows with
        a column ``value`` as they are, and makes JSON objects of others.
    :raises ConfigurationError: the path cannot be formatted, or its file system cannot be reached; nothing in it says
        which interval is meant; there is no file.
    """
    try:
        place = path.format(start=interval.start, end=interval.end)
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigurationError(
            f"The path {path!r} cannot be formatted: {error}.",
            expected="{start} and {end}, as in data/{start:%Y-%m-%d}/*.json",
        ) from error
    if place == path and time_column is None and not modified:
        raise ConfigurationError(
            f"Nothing says which of the files at {path} belong to the interval.",
            expected="{start} or {end} in the path, or time_column, or modified=True",
            remedy="Otherwise each interval would write all of them again.",
        )
    bounds = {"start": interval.start.isoformat(), "end": interval.end.isoformat()} if time_column else {}
    options = FileReadOptions(format, time_column, null_times=null_times, **bounds)
    listed_at = datetime.now(UTC)
    found = pin(spark, [place])
    if modified:
        first, last = (int(edge.timestamp() * 1000) for edge in (interval.start, interval.end))
        found = tuple(file for file in found if first <= file.modified_ms < last)
    if not found and not allow_empty:
        raise ConfigurationError(
            f"There is no file at {place}{' that was changed within the interval' if modified else ''}.",
            expected="one file or more",
            remedy="Correct the path, or wait until the files are there. If intervals may be empty: allow_empty=True; "
            "the interval is then complete with 0 records, and files that come later are not written.",
        )
    return FilesSource(found, options, convert, listed_at, by_bounds=place == path)


def pin(spark: SparkSession, paths: Sequence[str]) -> tuple[PinnedFile, ...]:
    """The files at these places as they are now, each once, in the order of their paths.

    :param paths: files, folders (all that lies in them) or globs, of any of Hadoop's file systems. What begins with
        ``_`` or ``.`` is left out, as Spark does.
    :raises ConfigurationError: a file system cannot be reached.
    """
    found: dict[str, PinnedFile] = {}
    for path in paths:
        for file in _find_remotely(spark, [path]) if is_remote(spark) else _find(spark, path):
            found[file.path] = file
    return tuple(found[path] for path in sorted(found))


def pin_listed(spark: SparkSession, paths: Sequence[str]) -> tuple[PinnedFile, ...]:
    """Single files as they are now, in the order of their paths.

    :param paths: as ``DataFrame.inputFiles`` writes them, so with the signs of a URI.
    :raises ConfigurationError: a file is gone, or its file system cannot be reached.
    """
    if is_remote(spark):
        return _listed_remotely(spark, paths)
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf() if paths else None
    found = {}
    for path in paths:
        try:
            place = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path))
            file = _pinned(spark, place.getFileSystem(configuration).getFileStatus(place))
        except (Py4JJavaError, PySparkException) as error:
            raise ConfigurationError(
                f"The source file {path} cannot be looked at: {_words(error)}.",
                remedy="If it was replaced while the job began, run the interval again.",
            ) from None
        found[file.path] = file
    return tuple(found[path] for path in sorted(found))


def uris(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Paths as ``_metadata.file_path`` spells them, with the signs of a URI.

    :param paths: as Hadoop writes them.
    """
    jvm: Any = spark._jvm
    return [str(jvm.org.apache.hadoop.fs.Path(path).toUri().toString()) for path in paths]


def _find(spark: SparkSession, path: str) -> list[PinnedFile]:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    found: list[PinnedFile] = []
    try:
        place = jvm.org.apache.hadoop.fs.Path(path)
        system = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        for status in system.globStatus(place) or ():
            if status.isFile():
                found.append(_pinned(spark, status))
                continue
            within = system.listFiles(status.getPath(), True)
            root = status.getPath().toString()
            while within.hasNext():
                file = within.next()
                inner = file.getPath().toString().removeprefix(root).lstrip("/")
                if not any(part.startswith(("_", ".")) for part in inner.split("/")):
                    found.append(_pinned(spark, file))
    except (Py4JJavaError, PySparkException) as error:
        raise ConfigurationError(
            f"The files at {path} cannot be listed: {_words(error)}.",
            remedy="Check the path, and that Spark has the file system's jars and credentials.",
        ) from None
    return found


#: Signs that have a meaning in a pattern of Hadoop's for paths.
_PATTERN_SIGNS = re.compile(r"([\\*?\[\]{}])")


def _listed_remotely(spark: SparkSession, paths: Sequence[str]) -> tuple[PinnedFile, ...]:
    """As :func:`pin_listed`, through Spark Connect."""
    if not paths:
        return ()
    wanted = [unquote(path) for path in paths]
    return tuple(sorted(_find_remotely(spark, [_PATTERN_SIGNS.sub(r"\\\1", path) for path in wanted]), key=_path_of))


def _path_of(file: PinnedFile) -> str:
    return file.path


def _find_remotely(spark: SparkSession, paths: Sequence[str]) -> list[PinnedFile]:
    """Files, all that lies in folders, and what patterns match, through Spark Connect.

    :raises ConfigurationError: they cannot be listed. A single path that matches nothing is no error.
    :raises UnreachableError: the server was lost meanwhile.
    """
    F = functions_of(spark)
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        frame = reader.load(list(paths)).select(
            "path", "length", F.unix_millis("modificationTime").alias("modified_ms")
        )
        return [PinnedFile(row.path, int(row.length), int(row.modified_ms)) for row in frame.collect()]
    except PySparkException as error:
        if len(paths) == 1 and error.getCondition() == "PATH_NOT_FOUND":
            return []
        which = f"The files at {paths[0]}{' and others' if paths[1:] else ''}"
        if is_server_lost(error):
            raise UnreachableError(
                f"{which} were not listed: Spark's server was lost meanwhile ({_words(error)}).",
                remedy="Run the interval again once the server is back; nothing was written by this look.",
            ) from error
        raise ConfigurationError(
            f"{which} cannot be listed: {_words(error)}.",
            remedy="Check the paths, that Spark's server has the file system's jars and credentials, and that no file "
            "was replaced while the job began; if one was, run the interval again.",
        ) from None


def _words(error: Exception) -> str:
    """Java's own message, without the trace that Py4J puts behind it."""
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.getMessage())


def _pinned(spark: SparkSession, status: Any) -> PinnedFile:
    from py4j.java_gateway import is_instance_of

    gateway: Any = spark.sparkContext._gateway
    tagged = is_instance_of(gateway, status, "org.apache.hadoop.fs.EtagSource")
    return PinnedFile(
        path=str(status.getPath().toString()),
        size=int(status.getLen()),
        modified_ms=int(status.getModificationTime()),
        etag=status.getEtag() if tagged else None,
    )
