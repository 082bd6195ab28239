"""Spark's own Kafka sink writes the rows of a task again that is tried again.

``KafkaDataWriter`` sends each row as it comes; its ``abort`` does nothing, and its ``commit`` only waits. So what an
attempt has sent before it failed stays, for readers of committed records, too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.benchmarks.spark_sink import sink_class_path, write_by_sink
from tests.upstream.own_spark import own_folder, own_spark
from tests.upstream.shown import StartLab, delivered

ROWS, TOPIC = 100, "rows"


def show(start: StartLab) -> str:
    lab = start(workers=0)
    lab.create_topic(TOPIC)
    with own_folder() as folder:
        properties = {"spark.master": "local[1,2]", "spark.driver.extraClassPath": sink_class_path(folder)}
        with own_spark(folder, properties) as spark:
            numbers = spark.range(0, ROWS, 1, 1).mapInArrow(_fails_once, "id long")
            write_by_sink(lab, numbers.selectExpr("string(id) key", "string(id) value"), TOPIC)
    times = Counter(delivered(lab, TOPIC))
    assert len(times) == ROWS, len(times)
    twice = sum(number > 1 for number in times.values())
    assert twice > 0, "each row is there once"
    return f"of {ROWS} rows {twice} are there more than once, and the write has succeeded"


def _fails_once(batches: Any) -> Any:
    """All rows, and then an error in the first attempt."""
    from pyspark import TaskContext

    yield from batches
    context: Any = TaskContext.get()
    if context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails behind its last row")
