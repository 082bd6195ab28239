"""What ``eos plan`` tells the operator to do next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.cli.plan_apply import apply_command


class Made:
    """Of a plan only its hash is shown here."""

    short_hash = "3f1c09ab77d2"


@pytest.mark.parametrize(
    ("cluster", "allow_downtime", "expected"),
    [
        (None, False, []),
        (Path("/etc/eos.yaml"), False, ["--cluster", "/etc/eos.yaml"]),
        (Path("my clusters/$north.yaml"), True, ["--cluster", "my clusters/$north.yaml", "--allow-downtime"]),
    ],
)
def test_the_command_that_applies_a_plan_names_the_cluster_that_was_planned_for(
    cluster: Path | None, allow_downtime: bool, expected: list[str]
) -> None:
    made: Any = Made()
    command = apply_command(made, cluster, allow_downtime=allow_downtime)
    assert shlex.split(command) == ["eos", "apply", "3f1c09ab77d2", *expected]
