"""Spark's daemon that forks Python workers, with what they need imported: a test's worker costs no second of CPU then.

``spark.python.daemon.module`` names it. Nothing here has a thread when a worker is forked.
"""

from __future__ import annotations

import confluent_kafka  # noqa: F401
import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark import daemon

import airflow_eos_provider.interval.protocol.task
import airflow_eos_provider.interval.sources.files
import airflow_eos_provider.interval.spark.executor  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
