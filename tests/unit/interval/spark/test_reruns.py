"""Spark is asked whether it has run a stage of a write again; where it cannot say so, it may have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from airflow_eos_provider.interval.spark.reruns import JobSeen, StageWatch, doubt

DONE = "SUCCEEDED"


@pytest.mark.parametrize(
    ("jobs", "dropped", "said"),
    [
        ([JobSeen(DONE, {0: 0}), JobSeen(DONE, {1: 0, 2: 0})], 0, None),
        ([JobSeen(DONE, {0: 0}), JobSeen(DONE, {1: 0, 2: 1})], 0, "run stage 2 again"),
        ([JobSeen(DONE, {0: None, 2: 3})], 1, "run stage 2 again"),
        ([], 0, "does not know"),
        ([JobSeen(None, {})], 0, "does not know"),
        ([JobSeen("RUNNING", {0: 0})], 0, "does not know"),
        ([JobSeen(DONE, {0: 0, 1: None})], 0, "does not know"),
        ([JobSeen(DONE, {0: 0})], 1, "does not know"),
    ],
)
def test_whether_a_write_has_seen_one_evaluation(jobs: Sequence[JobSeen], dropped: int, said: str | None) -> None:
    found = doubt(jobs, dropped)
    assert found is None if said is None else said in str(found)


def test_a_watch_knows_all_jobs_of_an_adaptive_plan_and_leaves_the_callers_tags(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.addJobTag("the-callers")
    try:
        with StageWatch(spark) as watch:
            assert len(spark.range(10).repartition(2, "id").collect()) == 10
        assert watch.doubt() is None
        assert set(map(str, context.getJobTags())) == {"the-callers"}
    finally:
        context.removeJobTag("the-callers")


def test_a_watch_without_a_job_cannot_tell(spark: SparkSession) -> None:
    with StageWatch(spark) as watch:
        pass
    assert "does not know" in str(watch.doubt())
