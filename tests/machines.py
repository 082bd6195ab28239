"""Tests that need machines of their own: reported as not run where there cannot be any, and never as passed."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from airflow_eos_provider.lab.machine_needs import missing
from tests.missing import not_run

#: Set to 1, a run that must be complete may leave out the tests that need machines.
LEAVE_OUT = "EOS_NO_MACHINES"


def need_machines(environment: Mapping[str, str] = os.environ) -> None:
    """Skip the test where a lab cannot have machines; fail it if the run must be complete (``CI`` is set)."""
    left_out = environment.get(LEAVE_OUT) == "1"
    found = missing()
    if not found and not left_out:
        return
    if left_out:
        pytest.skip(f"not run: {LEAVE_OUT} is set")
    not_run(f"{' '.join(found)} Install what is missing, or set {LEAVE_OUT}=1.", environment)
