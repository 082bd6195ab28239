"""A real Airflow on a real PostgreSQL that does not come up: what fails is named, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_eos_provider.lab.airflow import (
    AirflowLab,
    AirflowNotHealthyError,
    AirflowOptions,
    AirflowRecord,
)
from airflow_eos_provider.lab.postgres import Postgres
from airflow_eos_provider.processes import ProcessIdentity, identify

pytestmark = pytest.mark.slow


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    """A folder without DAGs: these tests need none."""
    folder = tmp_path / "dags"
    folder.mkdir()
    return folder


def test_a_foreign_process_that_got_a_recorded_pid_is_left_alone(tmp_path: Path) -> None:
    me = identify(os.getpid())
    assert me is not None
    earlier = ProcessIdentity(me.pid, me.started_at - 100)
    AirflowRecord("no such marker", "http://127.0.0.1:1", roots=(earlier,), processes=(earlier,)).write(tmp_path)
    assert AirflowLab.clear(tmp_path) == 0
    assert me.is_alive()


def test_a_migration_that_fails_is_named_with_the_end_of_its_log(
    tmp_path: Path, dags: Path, postgres: Postgres
) -> None:
    broken = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "nonsense://"}
    with pytest.raises(AirflowNotHealthyError, match=r"migration of Airflow's database ended") as failure:
        AirflowLab.start(AirflowOptions(tmp_path, dags, postgres, environment=broken))
    assert "nonsense" in str(failure.value)
    assert AirflowLab.load(tmp_path) is None


def test_a_component_that_dies_while_it_starts_is_named_at_once_with_the_end_of_its_own_log(
    tmp_path: Path, dags: Path, postgres: Postgres
) -> None:
    # A port that is no number: the triggerer alone reads it.
    broken = {"AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": "none of the ports"}
    with pytest.raises(AirflowNotHealthyError, match=r"^triggerer ended while it started") as failure:
        AirflowLab.start(AirflowOptions(tmp_path, dags, postgres, environment=broken))
    assert f"The end of {tmp_path / 'triggerer.log'}:" in str(failure.value)
    assert "none of the ports" in str(failure.value)
    assert AirflowLab.load(tmp_path) is None
