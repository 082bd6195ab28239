"""The files behind a DataFrame, held to what they were when its plan was frozen.

Which slice a row belongs to is fixed by its key, but which rows there are is a matter of the source. A file that
changes or comes between two attempts of one interval would give some slices its old rows and others its new ones, and
no reader could see that; so it is an error that names the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.interval.sources.files import PinnedFile
from airflow_eos_provider.interval.spark.file_listing import pin_listed
from airflow_eos_provider.interval.spark.sessions import is_remote

#: Of more files than this the plan keeps one digest of their paths, so that it stays a small record and is made in a
#: moment. Writers of tables of that size give new files new names.
MOST_FILES_IN_PLAN = 1000

_REMEDY = (
    "Put the files back as they were and run the interval again. If no slice of it is committed, give the run up "
    "('eos intervals abandon') and run it anew. Select an interval's files by path (a folder a day, a partition "
    "column), so that those of other intervals do not matter; pin_inputs=False leaves all this unchecked."
)


def pinned_inputs(frame: DataFrame) -> dict[str, Any]:
    """The files that a frame reads as they are now, in the JSON that a plan keeps.

    :param frame: its filters on partition columns leave out files. One that reads no files pins nothing.
    :raises ConfigurationError: one of the files is gone.
    """
    paths = sorted(set(frame.inputFiles()) - _left_out(frame))
    if len(paths) <= MOST_FILES_IN_PLAN:
        return {"files": [file.to_dict() for file in pin_listed(frame.sparkSession, paths)]} if paths else {}
    digest = hashlib.blake2b("\n".join(paths).encode(), digest_size=16).hexdigest()
    return {"file_count": len(paths), "files_digest": digest}


def _left_out(frame: DataFrame) -> set[str]:
    """Files that no scan of the frame reads, since a filter on partition columns leaves them out.

    ``inputFiles`` counts them in, and a table that grows by a partition a day would never look the same twice. Where
    Spark's plan is not as expected, none is left out, which is the safe side; through Spark Connect it is not seen.
    """
    if is_remote(frame):
        return set()
    from py4j.protocol import Py4JError

    listed, read = set[str](), set[str]()
    try:
        leaves = frame._jdf.queryExecution().sparkPlan().collectLeaves()
        for scan in (leaves.apply(number) for number in range(leaves.size())):
            if scan.getClass().getSimpleName() == "FileSourceScanExec":
                selected = scan.selectedPartitions().toPartitionArray()
                listed.update(map(str, scan.relation().location().inputFiles()))
                read.update(str(selected[number].filePath().urlEncoded()) for number in range(len(selected)))
    except Py4JError:
        return set()
    return listed - read


def require_same_inputs(now: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Compare the files of now with those of the plan.

    :param now: as :func:`pinned_inputs` gives it.
    :param plan: the plan's source. One that has pinned no files is content with all.
    :raises ConfigurationError: a file has changed, is gone or has come.
    """
    if "files" in plan and "files" in now:
        _require_each(_by_path(now), _by_path(plan))
        return
    pinned = {name: plan[name] for name in ("files", "file_count", "files_digest") if name in plan}
    if pinned and dict(now) != pinned:
        raise ConfigurationError(
            f"The DataFrame reads {_count(now)} files now, and not those that the interval's plan pinned.",
            expected=f"{_count(plan)} files as they were then",
            remedy=_REMEDY,
        )


def _require_each(now: Mapping[str, PinnedFile], pinned: Mapping[str, PinnedFile]) -> None:
    for path, file in pinned.items():
        file.require_unchanged(now.get(path))
    if added := sorted(now.keys() - pinned.keys()):
        more = f" and {len(added) - 1} more" if len(added) > 1 else ""
        raise ConfigurationError(
            f"The DataFrame now reads {added[0]}{more}, which was not there when the interval's plan was frozen.",
            expected=f"the {len(pinned)} files that the plan pinned",
            remedy=_REMEDY,
        )


def _by_path(source: Mapping[str, Any]) -> dict[str, PinnedFile]:
    return {file["path"]: PinnedFile.from_dict(file) for file in source["files"]}


def _count(source: Mapping[str, Any]) -> int:
    return int(source.get("file_count", len(source.get("files", ()))))
