"""Tests that need machines of their own: reported as not run where there cannot be any, and never as passed."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from airflow_eos_provider.lab.machine_needs import missing

#: Set to 1, a run that must be complete may leave out the tests that need machines.
LEAVE_OUT = "EOS_NO_MACHINES"


def need_machines(environment: Mapping[str, str] = os.environ) -> None:
    """Skip the test where a lab cannot have machines; fail it if the run must be complete (``CI`` is set)."""
    left_out = environment.get(LEAVE_OUT) == "1"
    found = missing()
    if not found and not left_out:
        return
    reason = f"not run: {LEAVE_OUT} is set" if left_out else f"not run: {' '.join(found)}"
    if not left_out and environment.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(f"{reason} Install what is missing, or set {LEAVE_OUT}=1.")
    pytest.skip(reason)
