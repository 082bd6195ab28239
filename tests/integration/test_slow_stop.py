"""A worker that stops waits for its REST requests first, up to a minute; only then it stops its tasks in good order."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.lab.lab import Lab, LabOptions

pytestmark = pytest.mark.slow

HELD = "held"


@pytest.fixture
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    return lab_factory(LabOptions(name="slow-stop", workers=1, mode=Mode.DISABLED))


@contextlib.contextmanager
def a_request_in_flight(url: str) -> Iterator[None]:
    """A worker is asked for the offsets of a connector, which are on brokers that take connections and say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        brokers = f"127.0.0.1:{silent.getsockname()[1]}"
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "topic": HELD,
            "file": "/dev/null",
            "offsets.storage.topic": "own-offsets",
            "admin.override.default.api.timeout.ms": "600000",
        }
        config |= {f"{client}.override.bootstrap.servers": brokers for client in ("admin", "consumer", "producer")}
        with ConnectRest(url, retry_seconds=20) as rest:
            rest.create(HELD, config, "STOPPED")
        asked = threading.Thread(target=_ask, args=(f"{url}/connectors/{HELD}/offsets",))
        silent.settimeout(60)
        asked.start()
        connection, _ = silent.accept()
        try:
            yield
        finally:
            connection.close()
            asked.join(timeout=120)
            assert not asked.is_alive()


def _ask(url: str) -> None:
    with contextlib.suppress(httpx.HTTPError):
        httpx.get(url, timeout=100, trust_env=False)


def test_a_roll_leaves_a_worker_the_time_that_its_requests_and_then_its_tasks_take(
    lab: Lab, eos_of: Callable[[Lab, Path], Any], load_on: Callable[[Lab, str], Any], tmp_path: Path
) -> None:
    eos, (url,) = eos_of(lab, tmp_path), lab.connect_urls
    with load_on(lab, "load") as load:
        plan = json.loads(eos.run("plan", "--to", Mode.PREPARING, "--allow-downtime", "--json").stdout)["hash"]
        with a_request_in_flight(url):
            done = eos.run("apply", plan, "--allow-downtime", "--json")
        seen = load.compared()
    assert "was killed" not in done.stderr
    assert seen.exactly_once, seen
