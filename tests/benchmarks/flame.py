"""A flame picture of one of Spark's Python workers while it writes files as slices.

``uv run python -m tests.benchmarks.flame OUT.svg``: py-spy, fetched by uvx, samples Python's frames. Time within a
call of a library, such as Arrow, is that of the Python function that calls it. The workers have written once before,
so what is seen is neither import nor compilation.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import psutil

from airflow_eos_provider.lab.lab import Lab
from tests.benchmarks.local_spark import local_spark
from tests.benchmarks.result import own_lab
from tests.benchmarks.spark_write import _files_exactly_once, _rows

SAMPLER = "py-spy==0.4.3"
TITLE = "One Python worker while it writes files as slices"

#: Samples a second, and for how many seconds; about as long as the write takes.
RATE = 100
SECONDS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path, metavar="OUT.svg")
    picture: Path = parser.parse_args().picture
    with own_lab("flame") as lab, local_spark(lab.options.root, "2g") as spark:
        _take(lab, _rows(spark, lab.options.root), picture)


def _take(lab: Lab, frame: Any, picture: Path) -> None:
    for topic in ("first", "second"):
        lab.create_topic(topic, 4)
    _files_exactly_once(lab, frame, "first")
    options = ["--rate", str(RATE), "--duration", str(SECONDS), "--function", "--format", "flamegraph"]
    command = ["uvx", "--from", SAMPLER, "py-spy", "record", *options, "--output", str(picture)]
    writing = threading.Thread(target=_files_exactly_once, args=(lab, frame, "second"))
    writing.start()
    try:
        subprocess.run([*command, "--pid", str(_worker().pid)], check=True, timeout=120)
    finally:
        writing.join()
    svg = picture.read_text(encoding="utf-8")  # its title is the command, with this machine's paths
    picture.write_text(re.sub(r'(id="title"[^>]*>)[^<]*', rf"\g<1>{TITLE}", svg, count=1), encoding="utf-8")


def _worker() -> psutil.Process:
    """The Python worker that has worked most: it is kept for the next tasks."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # some end just now
            parent = process.parent()
            if parent is not None and all("pyspark.daemon" in " ".join(p.cmdline()) for p in (process, parent)):
                found.append(process)
    return max(found, key=lambda process: sum(process.cpu_times()[:2]))


if __name__ == "__main__":
    main()
