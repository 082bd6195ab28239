"""When the lab's Airflow counts as up: by its own answer, and once its api-server answers tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_eos_provider.errors import EosError
from airflow_eos_provider.lab.servers.airflow import COMPONENTS, _unhealthy
from airflow_eos_provider.lab.servers.airflow_rest import AirflowRest
from tests.http_server import served

HEALTHY = {"status": "healthy"}
ALL_HEALTHY = dict.fromkeys(("metadatabase", "scheduler", "triggerer", "dag_processor"), HEALTHY)
HEALTH, EXECUTION = "/api/v2/monitor/health", "/execution/health"


@contextmanager
def api_server(answers: dict[str, object]) -> Iterator[AirflowRest]:
    """A server with these documents by path, and 503 for all else; a real one passes through these states too fast."""
    with (
        served(lambda _, path: (200 if path in answers else 503, answers.get(path, {}))) as port,
        AirflowRest(f"http://127.0.0.1:{port}", "admin", "") as rest,
    ):
        yield rest


@pytest.mark.parametrize(
    ("answers", "components", "unhealthy"),
    [
        ({HEALTH: ALL_HEALTHY, EXECUTION: HEALTHY}, COMPONENTS, []),
        ({HEALTH: ALL_HEALTHY}, COMPONENTS, ["api-server"]),
        ({HEALTH: ALL_HEALTHY}, ("api-server",), []),
        ({HEALTH: ALL_HEALTHY | {"triggerer": {}}, EXECUTION: HEALTHY}, COMPONENTS, ["triggerer"]),
        ({}, COMPONENTS, ["api-server"]),
    ],
    ids=["all", "tasks-are-not-answered-yet", "no-tasks", "no-triggerer-yet", "nothing-answers-yet"],
)
def test_airflow_is_up_when_each_part_is_and_tasks_are_answered(
    answers: dict[str, object], components: tuple[str, ...], unhealthy: list[str]
) -> None:
    with api_server(answers) as rest:
        assert _unhealthy(rest, components) == unhealthy


def test_a_run_that_failed_is_an_error_with_the_end_of_its_log() -> None:
    run = "/api/v2/dags/d/dagRuns/r"
    tasks = [{"task_id": name, "state": state, "try_number": 2} for name, state in (("a", "success"), ("b", "failed"))]
    answers: dict[str, object] = {
        run: {"state": "failed"},
        f"{run}/taskInstances?limit=100": {"task_instances": tasks},
        f"{run}/taskInstances/b/logs/2?map_index=-1": {"content": [{"timestamp": "2026-01-01", "event": "No broker."}]},
    }
    with api_server(answers) as rest:
        rest._login._token = "given"
        with pytest.raises(EosError, match=r"r of d ended as failed\.\nThe end of the log of b:\nNo broker\."):
            rest.has_succeeded("d", "r")
        for state in ("running", "success"):
            answers[run] = {"state": state}
            assert rest.has_succeeded("d", "r") is (state == "success")
