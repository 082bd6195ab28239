"""A worker that stops waits for its REST requests first, up to a minute; only then it stops its tasks in good order."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.lab.lab import Lab, LabOptions
from tests.integration.offsets_cluster import PATIENT_STOP

HELD = "held"

#: For so long the request lasts after the worker was told to stop; less than the minute that the worker waits. After
#: that Connect interrupts the request, and now and then gives up with "Unable to stop REST server": then it does not
#: stop its tasks in good order, and they deliver again what they had not committed.
REQUEST_SECONDS = 35.0


@pytest.fixture
def lab(lab_factory: Callable[[LabOptions], Lab]) -> Lab:
    options = LabOptions(name="slow-stop", workers=1, mode=Mode.DISABLED, worker_properties=PATIENT_STOP)
    return lab_factory(options)


@contextlib.contextmanager
def a_request_in_flight(lab: Lab) -> Iterator[None]:
    """A worker is asked for the offsets of a connector, whose brokers do not answer until the worker stops for long."""
    (url,) = lab.connect_urls
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent, contextlib.ExitStack() as ends:
        ends.callback(over.set)
        brokers = f"127.0.0.1:{silent.getsockname()[1]}"
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "topic": HELD,
            "file": "/dev/null",
            "offsets.storage.topic": "own-offsets",
            "admin.override.default.api.timeout.ms": "600000",
        }
        config |= {f"{client}.override.bootstrap.servers": brokers for client in ("admin", "consumer", "producer")}
        with ConnectRest(url, retry_seconds=180) as rest:
            rest.create(HELD, config, "STOPPED")
        asked = threading.Thread(target=_ask, args=(f"{url}/connectors/{HELD}/offsets",))
        silent.settimeout(300)
        asked.start()
        first, _ = silent.accept()
        answers = threading.Thread(target=_answer_later, args=(lab, silent, first, over))
        answers.start()
        yield
        asked.join(timeout=300)
        over.set()
        answers.join(timeout=300)
        assert not asked.is_alive()
        assert not answers.is_alive()


def _answer_later(lab: Lab, silent: socket.socket, first: socket.socket, over: threading.Event) -> None:
    """Once the worker has stopped for long, pass on to the real broker who asks."""
    url = urlsplit(lab.connect_urls[0])
    while not over.wait(0.1):
        with contextlib.suppress(OSError), socket.create_connection((url.hostname, url.port), timeout=5):
            continue
        break  # it takes no connections any more
    over.wait(REQUEST_SECONDS)
    host, _, port = lab.bootstrap_servers.partition(":")
    silent.settimeout(0.2)
    connections = [first]
    while not over.is_set():
        for asking in connections:
            answering = socket.create_connection((host, int(port)))
            for ends in ((asking, answering), (answering, asking)):
                threading.Thread(target=_pass_on, args=ends, daemon=True).start()
        connections = []
        with contextlib.suppress(TimeoutError):
            connections = [silent.accept()[0]]


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError), source, target:
        while data := source.recv(65536):
            target.sendall(data)


def _ask(url: str) -> None:
    with contextlib.suppress(httpx.HTTPError):
        httpx.get(url, timeout=100, trust_env=False)


def test_a_roll_leaves_a_worker_the_time_that_its_requests_and_then_its_tasks_take(
    lab: Lab, eos_of: Callable[[Lab, Path], Any], load_on: Callable[[Lab, str], Any], tmp_path: Path
) -> None:
    eos = eos_of(lab, tmp_path)
    with load_on(lab, "load") as load:
        plan = json.loads(eos.run("plan", "--to", Mode.PREPARING, "--allow-downtime", "--json").stdout)["hash"]
        with a_request_in_flight(lab):
            done = eos.run("apply", "--plan", plan, "--allow-downtime", "--json")
        seen = load.compared()
    assert "was killed" not in done.stderr
    assert seen.exactly_once, seen
