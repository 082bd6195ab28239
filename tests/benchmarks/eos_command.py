"""The command line as a user runs it, with its seconds and its memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from airflow_eos_provider.lab.lab import Lab

#: Limit of one command, seconds.
_LIMIT_SECONDS = 600.0


class Ran(NamedTuple):
    """What one command took.

    :param mebibytes: the most memory that it held (resident set).
    """

    seconds: float
    mebibytes: float


def run_eos(lab: Lab, *arguments: str, output: Path) -> Ran:
    """Run ``eos`` for a lab in a process of its own."""
    began = time.perf_counter()
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow_eos_provider.cli", *arguments],
            stdout=out,
            env={**os.environ, "EOS_CLUSTER": str(lab.cluster_file)},
        )
        limit = threading.Timer(_LIMIT_SECONDS, process.kill)
        limit.start()
        try:
            # Of this one process; getrusage knows only the largest of all children, which is a JVM.
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            limit.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"eos {' '.join(arguments)} ended with {process.returncode}"
    return Ran(time.perf_counter() - began, usage.ru_maxrss / 1024)
