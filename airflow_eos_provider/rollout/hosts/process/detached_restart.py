"""Hands a restart over to its helper, and chooses where that helper runs.

Airflow kills what it has started, and systemd ends everything within a unit's cgroup. So the helper is started as a
session of its own, and where this process runs within a unit, in a systemd scope beside it, if that is allowed.
"""

from __future__ import annotations

import os
import subprocess
import sys

from airflow_eos_provider.errors import EosError, RefusedError
from airflow_eos_provider.processes import INHERITED_VARIABLES
from airflow_eos_provider.rollout.hosts.beside_unit import SYSTEMD_VARIABLES, Way, ways_here
from airflow_eos_provider.rollout.hosts.process import restart_helper
from airflow_eos_provider.rollout.hosts.process.restart_act import RestartSpec, read_record

#: The helper, as a command. It reads its specification from standard input.
HELPER = (sys.executable, "-m", "airflow_eos_provider.rollout.hosts.process.restart_helper")

#: A helper that has not begun within this many seconds is given up: an interpreter on a busy machine.
HAND_OVER_SECONDS = 30.0

#: What the helper itself needs beside :data:`INHERITED_VARIABLES`: to find this package, and systemd of this user.
_HELPERS_VARIABLES = ("PYTHONPATH", *SYSTEMD_VARIABLES)


def hand_over(spec: RestartSpec) -> str:
    """Let the helper begin the act.

    :returns: a warning in words, empty if there is none. The act has begun, and ends without this process.
    :raises RefusedError: the helper has not begun; nothing was stopped.
    """
    problem = ""
    for way in _ways_here():
        try:
            result = subprocess.run(
                way.command,
                input=spec.to_bytes(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env={n: os.environ[n] for n in (*INHERITED_VARIABLES, *_HELPERS_VARIABLES) if n in os.environ},
                start_new_session=True,
                timeout=HAND_OVER_SECONDS,
                check=False,
            )
        except OSError as error:
            problem = error.strerror or str(error)
            continue
        except subprocess.TimeoutExpired:
            record = read_record(spec.record_path)
            if record is not None and record.key == spec.key and record.is_in_flight:
                return way.warning
            raise _refusal(spec, f"it did not begin within {HAND_OVER_SECONDS:.0f} s") from None
        if result.returncode == restart_helper.BEGUN:
            return way.warning
        if result.returncode == restart_helper.IN_FLIGHT:
            raise _refusal(spec, "another restart of this worker is under way")
        if result.returncode == restart_helper.NO_RECORD:
            raise _refusal(spec, f"its record {spec.record_path} cannot be written")
        problem = f"exit {result.returncode}: {result.stderr.decode(errors='replace').strip()[-300:]}"
    raise _refusal(spec, problem)


def _ways_here() -> tuple[Way, ...]:
    return ways_here(HELPER)


def _refusal(spec: RestartSpec, problem: str) -> EosError:
    return RefusedError(
        f"The helper that restarts a worker could not be started: {problem}. Nothing was stopped.",
        remedy=f"Resolve that; the helper is '{' '.join(HELPER)}' and writes {spec.record_path}.",
    )
