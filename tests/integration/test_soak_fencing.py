"""A connector of so many tasks that Connect cannot fence them in its own time, and what helps.

Some minutes, so only on request: ``EOS_SOAK_FENCE_TASKS=300 pytest -n0 -s tests/integration/test_soak_fencing.py``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.topics.config_topic import read_cluster_state
from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.servers import connect_worker
from tests.benchmarks.java_peer import run_java

TASKS = int(os.environ.get("EOS_SOAK_FENCE_TASKS", "300"))

pytestmark = [pytest.mark.by_name, pytest.mark.timeout(1500)]

#: What docs/connect/fencing-and-transactions.md tells to set.
SHORT_BACK_OFF = {"retry.backoff.ms": "10", "retry.backoff.max.ms": "10"}
TESTABLE_SOURCE = "org.apache.kafka.connect.integration.TestableSourceConnector"
NAME = "many"
#: A round of 90 s, and the start of so many tasks before and after it.
DEADLINE_SECONDS = 400.0


@pytest.fixture(scope="module")
def lab(lab_factory: Callable[..., Lab]) -> Lab:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect_worker, "HEAP_MEGABYTES", 3000)  # each task has its producer
        return lab_factory(name="many", mode=Mode.ENABLED, workers=1, test_connectors=True)


def test_javas_client_fences_three_hundred_ids_in_a_third_of_connects_time_with_a_short_back_off(lab: Lab) -> None:
    """Without it, some 34 in this time."""
    arguments = [lab.bootstrap_servers, "java-", 300, 31_000, *(f"{name}={ms}" for name, ms in SHORT_BACK_OFF.items())]
    ((seconds, fenced),) = run_java("FencePeer.java", arguments, timeout_seconds=120)
    sys.stderr.write(f"300 ids by Java's client: {seconds:.1f} s\n")
    assert fenced == 300


def test_many_tasks_are_fenced_by_connect_once_it_backs_off_for_milliseconds_only(
    lab: Lab, eos_of: Callable[[Lab, Path], Any], tmp_path: Path
) -> None:
    eos = eos_of(lab, tmp_path)
    lab.create_topic(NAME, 1)
    config = {"connector.class": TESTABLE_SOURCE, "topic": NAME, "throughput": "1", "messages.per.poll": "1"}

    def state_after(wanted: str, tasks: int, record: int) -> float:
        """Seconds until all tasks are so and the task count record is this."""
        began = time.monotonic()
        while True:
            found = read_cluster_state(lab.cluster().kafka, f"{lab.group_id}-configs").connectors.get(NAME)
            status = None
            # A worker that stops or fences hundreds of tasks answers no question about connectors for up to 90 s.
            with ConnectRest(lab.connect_urls[0]) as rest, contextlib.suppress(UnreachableError):
                status = rest.statuses().get(NAME)
            states = {task.state for task in status.tasks} if status and len(status.tasks) == tasks else set()
            if states == {wanted} and found is not None and found.task_count_record == record:
                return time.monotonic() - began
            assert time.monotonic() - began < DEADLINE_SECONDS, (states, found)
            time.sleep(1)

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    with ConnectRest(lab.connect_urls[0], retry_seconds=180) as rest:
        rest.create(NAME, {**config, "tasks.max": str(TASKS)})
        say(f"first start, nothing to fence: {state_after('RUNNING', TASKS, TASKS):.0f} s")
        rest.put_config(NAME, {**config, "tasks.max": str(TASKS - 1)})
        say(f"one task less: all have failed after {state_after('FAILED', TASKS - 1, TASKS):.0f} s")
        assert "retry.backoff.max.ms" in eos.run("fencing", "apply", NAME, expect=3).stdout
        failed = eos.run("fencing", "apply", NAME, "--yes", expect=1)
        assert f"{TASKS} ids fenced, {TASKS - 1} tasks restarted, task count record {TASKS}" in failed.stdout
        assert "What to do: set admin.override.retry.backoff.ms" in failed.stderr
        helped = {f"admin.override.{name}": ms for name, ms in SHORT_BACK_OFF.items()}
        rest.put_config(NAME, {**config, **helped, "tasks.max": str(TASKS - 1)})
        say(f"with a short back-off: all run after {state_after('RUNNING', TASKS - 1, TASKS - 1):.0f} s")
