"""Intervals whose files are in a bucket, as ``docs/spark/sources.md`` describes it; moto is the server.

``uv run --with "moto[server,s3]" pytest -n0 tests/integration/test_s3.py``. Spark fetches hadoop-aws with its SDK.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs
import pyspark
import pytest

from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.interval.sources import files_source
from airflow_eos_provider.interval.spark import write_interval
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from tests.integration.interval_target import DAY, Target
from tests.spark_session import spark_session
from tests.waiting import until

pytestmark = pytest.mark.by_name

LOGIN = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
FILES = {f"logs/2013-01-01/part-{n}.json": [f'{{"line":{100 * n + line}}}' for line in range(50)] for n in range(3)}
LINES = "s3a://logs/{start:%Y-%m-%d}/*.json"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pyarrow.fs.S3FileSystem]:
    """A bucket with the files. The environment names its server and login, as it does for the tasks."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with (tmp_path_factory.mktemp("moto") / "log").open("wb") as log, pytest.MonkeyPatch.context() as patch:
        for name, value in {**LOGIN, "AWS_ENDPOINT_URL": url}.items():
            patch.setenv(name, value)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            client = pyarrow.fs.S3FileSystem(endpoint_override=url, allow_bucket_creation=True)
            until(lambda: created(client), "the bucket", seconds=60)
            for name, lines in FILES.items():
                put(client, name, lines)
            yield client
        finally:
            server.kill()
            server.wait(timeout=60)


def created(client: pyarrow.fs.S3FileSystem) -> bool:
    try:
        client.create_dir("logs")
    except OSError:  # nobody listens yet
        return False
    return True


def put(client: pyarrow.fs.S3FileSystem, name: str, lines: list[str]) -> None:
    with client.open_output_stream(name) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())


@pytest.fixture(scope="module")
def session(bucket: pyarrow.fs.S3FileSystem) -> Iterator[Any]:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    properties = {
        "spark.master": "local[2,2]",
        "spark.ui.enabled": "false",
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{jar.stem.removeprefix('hadoop-client-api-')}",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    with spark_session(properties) as spark:
        yield spark


@pytest.fixture
def target(lab_factory: Callable[..., Lab], broker_lab: Lab) -> Target:
    return Target.make(broker_lab, "s3")


@pytest.mark.parametrize("slices_by", ["key", "partitions"])
def test_a_frame_of_a_buckets_files_is_written_once(session: Any, target: Target, slices_by: str) -> None:
    frame = session.read.text("s3a://logs/2013-01-01").selectExpr("value as key", "value")
    write_interval(frame, target.pipeline, DAY, slices_by=slices_by)
    target.require_exactly_once(line.encode() for lines in FILES.values() for line in lines)


def fail_on_the_last(batch: Any) -> Any:
    if b'"line":200' in batch.column("value")[0].as_py():
        raise ValueError("this is the last file")
    return batch


def test_tasks_read_a_buckets_files_and_a_retry_names_one_that_was_replaced(
    session: Any, target: Target, bucket: pyarrow.fs.S3FileSystem
) -> None:
    failing = files_source(session, DAY, LINES, format="lines", convert=fail_on_the_last)
    with pytest.raises(EosError, match="this is the last file"):
        write_interval(failing, target.pipeline, DAY, spark=session, tasks=1)
    name, lines = next(iter(FILES.items()))
    put(bucket, name, [line.replace("line", "LINE") for line in lines])  # of the same size
    with pytest.raises(ConfigurationError, match=r"part-0\.json has changed"):
        write_interval(files_source(session, DAY, LINES, format="lines"), target.pipeline, DAY, spark=session)
