"""``mapInArrow`` wants pandas on the driver, and uses it for nothing.

pyspark makes every such function by ``pandas_udf``, which looks for pandas and its version first. With an empty module
that has a version and nothing else, the same query runs.
"""

from __future__ import annotations

import sys

from tests.upstream.own_airflow import said_by
from tests.upstream.own_spark import own_folder, properties_in
from tests.upstream.shown import StartLab

CODE = """
import sys, types
sys.modules["pandas"] = None
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in {properties!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")

def as_it_is(batches):
    yield from batches

def count():
    return spark.range(10).mapInArrow(as_it_is, "id long").count()

try:
    print("counted", count())
except ImportError as error:
    print("refused", str(error).splitlines()[0])
sys.modules["pandas"] = types.ModuleType("pandas")
sys.modules["pandas"].__version__ = "2.2.0"
print("counted", count())
spark.stop()
"""


def show(start: StartLab) -> str:
    with own_folder() as folder:
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        said = said_by(CODE.format(properties=properties_in(folder)), folder, **environment)
    refused, counted = (line for line in said.splitlines() if line.startswith(("refused ", "counted ")))
    assert refused.startswith("refused "), said
    assert counted == "counted 10", said
    return f"{refused.partition(' ')[2]}; with an empty module of that name the query runs"
