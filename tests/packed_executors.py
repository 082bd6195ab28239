"""``python -m tests.packed_executors``: an interval run on executors that have what each way of shipping gives them.

A standalone cluster of two workers, a YARN of one node, one broker, and Python environments made for this: one with
numpy and pyarrow, as a folder and packed; and a bare one. For each way ``eos intervals doctor`` is asked, then an
interval is written, and what a reader of committed records gets is compared with the ledger.
The result is a table in Markdown. Needs uv, a JDK 17, and some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyspark

from airflow_eos_provider.interval.interval import Interval
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.spark.job import JobSpec
from airflow_eos_provider.interval.verify import verify_all
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings
from tests.matrix import broker, run
from tests.spark_cluster import WORKER_HOSTS, loopback_properties, standalone_cluster
from tests.yarn_cluster import yarn_cluster

#: Rows that are written, into this many slices.
ROWS, SLICES = 1000, 4

INTERVAL = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))

#: Seconds for one application.
_APPLICATION_SECONDS = 400


_FUNCTION = """
def rows(spark, interval, count):
    return spark.range(count).selectExpr("cast(id as string) as key", "concat('row ', id) as value")
"""


@dataclass(frozen=True)
class Way:
    """One way of giving executors their Python.

    :param doctor: exit code that is expected of the doctor.
    :param written: whether the interval is expected to be written; None if it is not tried.
    :param failing: places of which the doctor has to say that something fails, by host; empty for all or none.
    """

    name: str
    properties: Mapping[str, str]
    doctor: int
    written: bool | None
    failing: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True)
class Environments:
    """Pythons for executors."""

    enough: Path
    packed: Path
    bare: Path

    @classmethod
    def make(cls, folder: Path) -> Environments:
        """Make all of them."""
        made = cls(folder / "enough", folder / "env.tar.gz", folder / "bare")
        for environment in (made.enough, made.bare):
            run(["uv", "venv", "--quiet", "--relocatable", "--python", sys.executable, environment])
        wanted = [f"{name}=={version(name)}" for name in ("numpy", "pyarrow")]
        run(["uv", "pip", "install", "--quiet", "--python", made.enough / "bin" / "python", *wanted])
        with tarfile.open(made.packed, "w:gz", compresslevel=1) as archive:
            archive.add(made.enough, arcname=".")
        return made


def ways(made: Environments) -> list[Way]:
    """What is tried."""
    return [
        _packed(made, "packed environment", "spark.archives"),
        Way(
            "numpy and pyarrow on the workers",
            {"spark.pyspark.python": f"{made.enough}/bin/python"},
            doctor=0,
            written=True,
        ),
        _bare(made, "bare Python"),
        Way(
            "complete on one worker, bare on the other",
            {"spark.pyspark.python": "../../python"},
            doctor=1,
            written=None,
            failing=frozenset({WORKER_HOSTS[1]}),
        ),
        Way("an interpreter that is not there", {"spark.pyspark.python": "/no/such/python"}, doctor=1, written=False),
    ]


def ways_in_yarn(made: Environments) -> list[Way]:
    """What is tried with ``--master yarn``."""
    return [
        _packed(made, "YARN: packed environment", "spark.yarn.dist.archives"),
        _bare(made, "YARN: bare Python"),
    ]


def _packed(made: Environments, name: str, archives: str) -> Way:
    """The packed environment, by Spark's property for archives."""
    properties = {archives: f"{made.packed}#env", "spark.pyspark.python": "./env/bin/python"}
    return Way(f"{name} (`{archives}`)", properties, doctor=0, written=True)


def _bare(made: Environments, name: str) -> Way:
    return Way(name, {"spark.pyspark.python": f"{made.bare}/bin/python"}, doctor=1, written=False)


def try_way(
    way: Way, cluster: Mapping[str, str], executors: int, bootstrap_servers: str, folder: Path
) -> dict[str, str]:
    """Ask the doctor, and write; a row of the table."""
    properties = {**cluster, **way.properties}
    code, found = ask_doctor(properties, executors, bootstrap_servers)
    failed = [check for check in found["checks"] if check["verdict"] != "pass"]
    assert code == way.doctor, (way.name, code, failed)
    if way.failing:
        hosts = {look["place"]: look["host"] for look in found["executors"]}
        assert {hosts[check["subject"]] for check in failed} == way.failing, failed
        assert set(hosts.values()) == set(WORKER_HOSTS), hosts
    said = "; ".join(dict.fromkeys(f"{each['kind']}: {each['found']}" for each in failed)) or "passes"
    row = {"way": way.name, "doctor": f"{code}: {said[:150]}", "interval": "not tried"}
    if way.written is not None:
        row["interval"] = write(properties, bootstrap_servers, folder)
        assert row["interval"].startswith("exactly once" if way.written else "refused: "), row
    return row


def ask_doctor(properties: Mapping[str, str], executors: int, bootstrap_servers: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of ``eos intervals doctor``."""
    command = [sys.executable, "-m", "airflow_eos_provider.cli", "intervals", "doctor", "--json"]
    command += [
        "--executors",
        str(executors),
        "--master",
        properties["spark.master"],
        "--bootstrap-servers",
        bootstrap_servers,
        "--timeout",
        "150",
    ]
    for name, value in properties.items():
        command += ["--conf", f"{name}={value}"] if name != "spark.master" else []
    done = _application(command)
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def write(properties: Mapping[str, str], bootstrap_servers: str, folder: Path) -> str:
    """``exactly once``, or how it was refused."""
    name = f"p{uuid.uuid4().hex[:8]}"
    pipeline = Pipeline(name, "packed", KafkaSettings.of(bootstrap_servers), topic=name, target_partitions=2)
    function, path = folder / "packed_rows.py", folder / "spec.json"
    function.write_text(_FUNCTION)
    spec = JobSpec(
        pipeline, INTERVAL, f"{function}:rows", arguments={"count": ROWS}, slices=SLICES, spark=dict(properties)
    )
    path.touch(mode=0o600)
    path.write_text(json.dumps(spec.to_dict()))
    done = _application([sys.executable, "-m", "airflow_eos_provider.interval.spark.job", "--spec", str(path)])
    line = next(line for line in done.stdout.splitlines() if line.startswith("EOS-INTERVAL-"))
    document = json.loads(line.split(" ", 1)[1])
    if "records" not in document:
        assert "Traceback" not in document["message"]
        return f"refused: {document['message'].splitlines()[0]}"
    found = verify_all(pipeline, [name])
    return "exactly once" if found.holds and found.records == ROWS else f"failed: {found.records} records read back"


def cluster_deploy_mode(master: str, folder: Path) -> dict[str, str]:
    """What spark-submit says where the driver is to run in a standalone cluster."""
    script = folder / "nothing.py"
    script.write_text("")
    submit = Path(sys.executable).parent / "spark-submit"
    done = _application([str(submit), "--master", master, "--deploy-mode", "cluster", str(script)])
    lines = [line for line in done.stderr.splitlines() if "Cluster deploy mode" in line]
    assert done.returncode
    assert lines, done.stderr[-2000:]
    return {"way": "`--deploy-mode cluster`, standalone", "doctor": "not tried", "interval": f"refused: {lines[0]}"}


def _application(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_APPLICATION_SECONDS,
        check=False,
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def wrap(python: Path, path: Path) -> None:
    """A program that is this Python, at another path."""
    path.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    path.chmod(0o755)


def main(wanted: Sequence[str]) -> int:
    rows = []
    with tempfile.TemporaryDirectory(prefix="packed-") as name:
        folder = Path(name)
        made = Environments.make(folder)
        (folder / "cluster").mkdir()

        def try_those(those: Sequence[Way], cluster: Mapping[str, str], executors: int) -> None:
            for way in those:
                if wanted and not any(part in way.name for part in wanted):
                    continue
                began = time.monotonic()
                rows.append(try_way(way, cluster, executors, bootstrap_servers, folder))
                print(f"{rows[-1]}, {time.monotonic() - began:.0f} s", file=sys.stderr)  # noqa: T201

        with broker(folder / "lab") as bootstrap_servers:
            with standalone_cluster(folder / "cluster") as master:
                wrap(made.enough / "bin" / "python", folder / "cluster" / WORKER_HOSTS[0] / "python")
                wrap(made.bare / "bin" / "python", folder / "cluster" / WORKER_HOSTS[1] / "python")
                try_those(ways(made), loopback_properties(master), len(WORKER_HOSTS))
                if not wanted or "cluster" in wanted:
                    rows.append(cluster_deploy_mode(master, folder))
            with yarn_cluster(folder / "yarn") as yarn:
                os.environ.update(yarn.environment)
                driver = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
                try_those(ways_in_yarn(made), {**yarn.properties, **driver, "spark.master": "yarn"}, 1)
    print("| how | the doctor | the interval |\n|---|---|---|")  # noqa: T201
    for row in rows:
        print(f"| {row['way']} | {row['doctor']} | {row['interval']} |")  # noqa: T201
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An interval run on executors with each way of shipping a Python.")
    parser.add_argument("part", nargs="*", help="only ways whose names contain one of these, such as packed or bare")
    sys.exit(main(parser.parse_args().part))
