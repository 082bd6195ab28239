"""Spark's own Kafka sink, at least once, as a peer.

Its jar needs ``spark-token-provider-kafka-0-10``, which not every mirror of Maven Central has. The four classes of that
which the sink calls are compiled from ``tests/java/token_provider``: they look for no token and hold up nothing.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pyspark

from airflow_eos_provider.lab.jars.ivy import Artifact, retrieve
from airflow_eos_provider.lab.jars.java import java_program
from airflow_eos_provider.lab.lab import Lab

_SOURCES = Path(__file__).parents[1] / "java" / "token_provider"
_MODULES = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def sink_class_path(folder: Path) -> str:
    """What Spark's driver needs on its class path; it is fetched and compiled into a folder."""
    retrieve(map(Artifact.parse, _MODULES), folder)
    classes = folder / "classes"
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    compiler = java_program().with_name("javac")
    sources = sorted(map(str, _SOURCES.glob("*.java")))
    subprocess.run([str(compiler), "-d", str(classes), "-cp", str(jars), *sources], check=True, timeout=120)
    return ":".join(map(str, [classes, *sorted(folder.glob("*.jar"))]))


def write_by_sink(lab: Lab, frame: Any, topic: str, **properties: str) -> None:
    """Write a frame of keys and values."""
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", lab.bootstrap_servers).option("topic", topic)
    for name, value in properties.items():
        writer = writer.option(f"kafka.{name.replace('_', '.')}", value)
    writer.save()
