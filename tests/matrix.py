"""``python -m tests.matrix``: one interval written with each combination of versions, in throw-away environments.

Each environment is resolved from ``pyproject.toml`` anew, with the lowest or the highest versions that it allows, and
gets the wheel that is built first. Against one broker, ``tests/matrix_write.py`` then writes an interval and compares
what is read back with the ledger; the DAG factories are imported, too. The result is a table in Markdown; the one in
``docs/reference/versions.md`` was made by this. Needs the Python versions (uv finds or fetches them), a JDK 17 and
about 2 GB for each environment, one at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.lab.teardown import take_down

ROOT = Path(__file__).parent.parent

#: Seconds for one step of one environment; fetching Spark is the longest.
STEP_SECONDS = 1200


@dataclass(frozen=True)
class Combination:
    """One environment."""

    python: str
    spark: str
    resolution: str

    def __str__(self) -> str:
        return f"{self.python}/{self.spark}/{self.resolution}"

    @property
    def requirements(self) -> str:
        """What is installed beside the package.

        pyspark and pyspark-client own one folder, so both are of one version. Before 4.0 there is no pyspark-client,
        and so neither Airflow's Spark provider nor the extra that brings it; and mapInArrow needs pandas there.
        """
        if self.spark.startswith("==3."):
            return f"pyspark{self.spark}\npyarrow>=15\npandas<3\n"
        return f"pyspark{self.spark}\npyspark-client{self.spark}\n"

    @property
    def extras(self) -> list[str]:
        return [] if self.spark.startswith("==3.") else ["--extra", "spark"]


COMBINATIONS = (
    Combination("3.11", "==4.0.*", "lowest-direct"),
    Combination("3.12", "==4.0.*", "lowest-direct"),
    Combination("3.11", "==4.2.*", "highest"),
    Combination("3.12", "==4.2.*", "highest"),
    Combination("3.12", "==4.1.*", "highest"),
    Combination("3.11", "==4.0.*", "highest"),
    Combination("3.11", "==3.5.*", "highest"),
)


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """One real broker; its address."""
    options = LabOptions(name="matrix", workers=0, root=folder)
    try:
        yield Lab.up(options).bootstrap_servers
    finally:
        take_down(options.folder)


def run(command: Sequence[str | Path], **options: Any) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=STEP_SECONDS, **{"cwd": ROOT, **options}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command[:4]))} …: {(done.stderr or done.stdout).strip()[-1500:]}")
    return done.stdout


def measure(combination: Combination, wheel: Path, bootstrap_servers: str) -> dict[str, str]:
    """Make the environment, write in it, and remove it."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        folder = Path(name)
        python = folder / "env" / "bin" / "python"
        more, pinned = folder / "more.in", folder / "pinned.txt"
        more.write_text(combination.requirements)
        how = ["--quiet", "--resolution", combination.resolution, "--python-version", combination.python]
        inputs = [*combination.extras, "pyproject.toml", more]
        run(["uv", "pip", "compile", *how, *inputs, "--output-file", pinned])
        run(["uv", "venv", "--quiet", "--python", combination.python, folder / "env"])
        run(["uv", "pip", "install", "--quiet", "--python", python, "--requirement", pinned])
        run(["uv", "pip", "install", "--quiet", "--python", python, "--no-deps", wheel])
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME") if name in os.environ},
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AIRFLOW_HOME": str(folder / "airflow"),
        }
        factories = ", ".join(["upgrade_dag", *(["interval_run_dag"] if combination.extras else [])])
        # Elsewhere than in the checkout, whose package would come before the wheel's.
        elsewhere: dict[str, Any] = {"env": environment, "cwd": folder}
        run([python, "-c", f"from airflow_eos_provider.dag_factories import {factories}"], **elsewhere)
        script = ROOT / "tests" / "matrix_write.py"
        found = run([python, script, bootstrap_servers], **elsewhere)
        return dict(json.loads(found.splitlines()[-1]))


PACKAGES = ("pyspark", "pyarrow", "apache-airflow", "confluent-kafka", "kafka-python")
COLUMNS = ("python", "resolution", *PACKAGES, "write_interval")


def table(rows: Sequence[dict[str, str]]) -> str:
    """The results in Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    cells = [[" ".join(row.get(column, "").split()).replace("|", "\\|") for column in COLUMNS] for row in rows]
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join(lines)


def main(wanted: Sequence[str]) -> int:
    chosen = [each for each in COMBINATIONS if not wanted or any(part in str(each) for part in wanted)]
    if not chosen:
        sys.exit(f"No combination matches; there are: {', '.join(map(str, COMBINATIONS))}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        folder = Path(name)
        run(["uv", "build", "--quiet", "--wheel", "--out-dir", folder / "dist"])
        (wheel,) = (folder / "dist").glob("*.whl")
        with broker(folder / "lab") as bootstrap_servers:
            for combination in chosen:
                began = time.monotonic()
                try:
                    row = measure(combination, wheel, bootstrap_servers)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    row = {
                        "python": combination.python,
                        "pyspark": combination.spark,
                        "write_interval": f"failed: {error}",
                    }
                rows.append({**row, "resolution": combination.resolution})
                print(f"{combination}: {rows[-1]}, {time.monotonic() - began:.0f} s", file=sys.stderr)  # noqa: T201
    print(table(rows))  # noqa: T201
    return 1 if any(row["write_interval"] != "exactly once" for row in rows) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One interval written with each combination of versions.")
    parser.add_argument("part", nargs="*", help="only combinations that contain one of these, such as 3.12 or ==4.0")
    sys.exit(main(parser.parse_args().part))
