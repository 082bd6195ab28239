"""Spark asks its commit coordinator after a Python data source has written, so two attempts of a task both write.

``DataSourceWriter.write`` is the whole of a task; Spark authorises one attempt behind it. Where it speculates, a copy
of a slow task writes beside the first attempt: Kafka would have had both commits by then.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

from tests.spark_cluster import loopback_properties, standalone_cluster
from tests.upstream.own_spark import own_folder, own_spark
from tests.upstream.shown import StartLab

#: Of the first attempt, behind its write; it is overtaken long before.
SLOW_SECONDS = 120

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    # The copy is to begin while the first attempt is slow.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


class Writer(DataSourceWriter):
    """Leaves a file for each attempt that has written, and one for what Spark says is written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Any) -> WriterCommitMessage:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        for _ in iterator:
            pass
        Path(self.folder, f"written-{context.partitionId()}-{context.attemptNumber()}").touch()
        if (context.partitionId(), context.attemptNumber()) == (0, 0):
            time.sleep(SLOW_SECONDS)
        return WriterCommitMessage()

    def commit(self, messages: Any) -> None:
        Path(self.folder, f"committed-{len([message for message in messages if message])}").touch()


class Acts(DataSource):
    """The data source of :class:`Writer`."""

    @classmethod
    def name(cls) -> str:
        return "acts"

    def writer(self, schema: Any, overwrite: bool) -> Writer:
        return Writer(self.options["folder"])


def show(start: StartLab) -> str:
    with own_folder() as folder, standalone_cluster(folder) as master:
        marks = folder / "marks"
        marks.mkdir()
        with own_spark(folder, {**loopback_properties(master), **SPECULATION}) as spark:
            spark.dataSource.register(Acts)
            spark.range(0, 4, 1, 2).write.format("acts").option("folder", str(marks)).mode("append").save()
        found = sorted(mark.name for mark in marks.iterdir())
    assert found == ["committed-2", "written-0-0", "written-0-1", "written-1-0"], found
    return "of 2 partitions 3 attempts have written, and Spark has taken 2: both of the slow task's had written"
