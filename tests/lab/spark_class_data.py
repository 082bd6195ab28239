"""A class-data archive for Spark's JVMs on this machine: a third less CPU for each driver (JEP 350).

A driver that writes one interval loads some fifteen thousand classes, and most of its start goes into that. The archive
is written by one driver at its end. It lies in pyspark's own folder, for it holds good for those jars only, at that
place; it goes with them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from airflow_eos_provider.lab.files import files_of
from airflow_eos_provider.lab.jars.java import SHORT_LIVED, java_program, version_text
from airflow_eos_provider.lab.lab_processes import exclusive

#: A driver, and the writing of its archive, take 50 s of a core; a machine that does much else took over 300 s.
_TRAINING_SECONDS = 600.0

#: What an interval run has Spark do: files are read, rows are shuffled, Python gets them by Arrow and returns results.
_TRAINING = """
import sys
from pyspark.sql import SparkSession

folder, options = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", options)
for name, value in {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.local.dir": folder,
    "spark.sql.warehouse.dir": folder,
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
gateway = spark.sparkContext._gateway
spark.range(100).selectExpr("to_json(struct(id)) as value").write.text(f"{folder}/rows")
rows = spark.read.text(f"{folder}/rows").selectExpr("cast(get_json_object(value, '$.id') as int) as id", "value")
sums = rows.repartition(2, "id").sortWithinPartitions("id").mapInArrow(lambda batches: batches, rows.schema)
assert len(sums.where("id >= 0").groupBy("value").count().collect()) == 100
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()  # the JVM ends with its standard input, and writes the archive
gateway.proc.wait()
"""


def spark_jvm_options() -> str:
    """``extraJavaOptions`` for Spark's drivers and executors on this machine; with the archive, if there is one."""
    archive = _archive()
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive is not None and archive.exists() else []
    return " ".join((*SHORT_LIVED, *shared))


def ensure_spark_archive(progress: Callable[[str], None]) -> None:
    """Have the archive; one that cannot be made is done without."""
    archive = _archive()
    if archive is None or archive.exists() or not os.access(archive.parent.parent, os.W_OK):
        return
    with exclusive(archive.parent, progress):
        if archive.exists():
            return
        progress("Archiving Spark's classes for faster starts (once; about a minute)")
        archive.parent.mkdir(exist_ok=True)
        for stale in archive.parent.iterdir():  # of other jars or another JVM, or of one that was killed
            stale.unlink()
        made = archive.with_suffix(".new")
        with tempfile.TemporaryDirectory() as folder:
            log = _train(folder, made)
        if made.exists():
            made.replace(archive)
        else:
            progress(f"No class-data archive, so Spark's starts stay slower: {log.strip()[-500:]}")


def _train(folder: str, archive: Path) -> str:
    """Run one driver, which leaves its archive at its end; what it printed."""
    options = " ".join((*SHORT_LIVED, f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable"))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    try:
        return subprocess.run(
            [sys.executable, "-c", _TRAINING, folder, options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TRAINING_SECONDS,
            check=False,
            env=environment,
        ).stdout
    except subprocess.TimeoutExpired:
        return f"it was not written in {_TRAINING_SECONDS:.0f} s"


def _archive() -> Path | None:
    """Where the archive lies for these jars and this JVM; None without pyspark, which is found and not imported."""
    for jar in files_of("pyspark", "jars/spark-core_*.jar"):
        jars_and_jvm = f"{jar.name} {jar.stat().st_mtime_ns} {version_text(str(java_program()))}"
        return jar.parents[1] / "class-data" / f"{hashlib.sha256(jars_and_jvm.encode()).hexdigest()[:16]}.jsa"
    return None
