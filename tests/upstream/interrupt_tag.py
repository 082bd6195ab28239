"""``SparkSession.interruptTag`` of a classic session leaves a running ``collect`` alone.

It answers that it has found nothing of this tag, though the same thread has added it before. So whoever gives up
waiting leaves Spark busy with what nobody wants any more. A job tag of the SparkContext ends the same job at once.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.upstream.own_spark import own_folder, own_spark
from tests.upstream.shown import SECONDS, StartLab
from tests.waiting import until

PATIENCE_SECONDS = 10
TAG = "nobody-waits-any-more"


def show(start: StartLab) -> str:
    with own_folder() as folder, own_spark(folder) as spark, ThreadPoolExecutor(1) as threads:
        running = spark.sparkContext.statusTracker().getActiveJobsIds
        by_session = threads.submit(_sleep, spark, spark.addTag)
        until(running, "the collect to run", seconds=SECONDS)
        interrupted = spark.interruptTag(TAG)
        time.sleep(PATIENCE_SECONDS)
        left = list(running())
        spark.sparkContext.cancelAllJobs()
        until(lambda: by_session.done() and not running(), "its end", seconds=SECONDS)

        by_context = threads.submit(_sleep, spark, spark.sparkContext.addJobTag)
        until(running, "the second collect to run", seconds=SECONDS)
        spark.sparkContext.cancelJobsWithTag(TAG)
        until(by_context.done, "its end by its job tag", seconds=SECONDS)
    assert left, f"the job has ended: interruptTag answered {interrupted}"
    return f"interruptTag answered {interrupted}, and {PATIENCE_SECONDS} s later the collect still ran"


def _sleep(spark: Any, add_tag: Any) -> str:
    """A collect that is not over before it is ended; the tag is the thread's."""
    add_tag(TAG)
    try:
        return str(spark.range(0, 1, 1, 1).mapInArrow(_asleep, "id long").collect())
    except Exception as error:
        return str(error)


def _asleep(batches: Any) -> Any:
    time.sleep(600)
    yield from batches
