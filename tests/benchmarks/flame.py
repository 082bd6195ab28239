"""A flame picture of Spark's Python workers while they write files as slices.

``uv run --with py-spy python -m tests.benchmarks.flame OUT.svg``: py-spy takes it, C frames of librdkafka and Arrow
included. The workers have written once before, so what is seen is neither import nor compilation.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psutil

from airflow_eos_provider.lab.lab import Lab, LabOptions
from tests.benchmarks.local_spark import local_spark
from tests.benchmarks.spark_write import _files_exactly_once, _rows

#: Samples a second.
RATE = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path, metavar="OUT.svg")
    picture: Path = parser.parse_args().picture
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lab = Lab.up(LabOptions(name="flame", workers=1, root=folder))
        try:
            lab.stop_worker(0)
            with local_spark(folder, "2g") as spark:
                _take(lab, _rows(spark, folder), picture)
        finally:
            lab.down()


def _take(lab: Lab, frame: Any, picture: Path) -> None:
    for topic in ("first", "second"):
        lab.create_topic(topic, 4)
    _files_exactly_once(lab, frame, "first")
    options = ["--native", "--subprocesses", "--rate", str(RATE), "--function", "--format", "flamegraph"]
    command = ["py-spy", "record", *options, "--output", str(picture), "--pid", str(_daemon().pid)]
    said: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as sampler:
        try:
            assert sampler.stderr is not None
            for line in sampler.stderr:  # it says so before its first sample
                said.append(line)
                if "Sampling process" in line or "Press Control-C" in line:
                    break
            _files_exactly_once(lab, frame, "second")
        finally:
            sampler.send_signal(signal.SIGINT)
            said.append(sampler.communicate(timeout=120)[1])
    if not picture.is_file():
        raise SystemExit(f"py-spy has made no picture: {''.join(said)}")


def _daemon() -> psutil.Process:
    """The process whose children are Spark's Python workers."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # some end just now
            if "pyspark.daemon" in " ".join(process.cmdline()):
                found.append(process)
    return min(found, key=psutil.Process.create_time)


if __name__ == "__main__":
    main()
