"""A worker's REST client is kept from one look to the next, and given up before the worker is stopped."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_eos_provider.connect.cluster.description import ConnectCluster
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.errors import ConnectRestError, EosError, UnreachableError

#: Longer than any wait here takes.
GIVE_UP_SECONDS = 20.0


class Worker(ThreadingHTTPServer):
    """A worker that knows its connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.peers: list[Any] = []
        self.posts = 0  # the first meets a rebalance
        self.is_starting = False
        self.dies_at_posts = False
        self.hung_up = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, Worker)
        self.server.posts += 1
        if self.server.dies_at_posts:
            self.close_connection = True
            return
        body = b'{"error_code": 409, "message": "Cannot complete request because of a conflicting operation"}'
        self.send_response(409 if self.server.posts == 1 else 204)
        self.send_header("Content-Length", str(len(body)) if self.server.posts == 1 else "0")
        self.end_headers()
        if self.server.posts == 1:
            self.wfile.write(body)

    def do_GET(self) -> None:
        assert isinstance(self.server, Worker)
        self.server.peers.append(self.client_address)
        body = b'{"version": "4.3.1", "commit": "c", "kafka_cluster_id": "k"}'
        self.send_response(404 if self.server.is_starting else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def finish(self) -> None:
        super().finish()
        assert isinstance(self.server, Worker)
        self.server.hung_up.set()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _url(worker: Worker) -> str:
    return f"http://127.0.0.1:{worker.server_address[1]}"


@contextmanager
def _serving() -> Iterator[Worker]:
    server = Worker()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(GIVE_UP_SECONDS)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with _serving() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Worker]:
    with _serving() as server:
        yield server


def _cluster(*urls: str) -> ConnectCluster:
    described = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "workers": [{"url": url} for url in urls]}
    return ConnectCluster.from_mapping(described)


@pytest.fixture
def session(worker: Worker) -> Iterator[ConnectSession]:
    with ConnectSession(_cluster(_url(worker))) as session:
        yield session


def ask(session: ConnectSession, *, seconds: float = GIVE_UP_SECONDS) -> None:
    with session.rest(session.cluster.workers[0].url, give_up_at=time.monotonic() + seconds) as rest:
        assert rest.root().version == "4.3.1"


def test_two_looks_are_one_connection(session: ConnectSession, worker: Worker) -> None:
    ask(session)
    ask(session)
    assert len(worker.peers) == 2
    assert len(set(worker.peers)) == 1


def test_what_makes_its_clients_does_not_keep_it(worker: Worker) -> None:
    session = ConnectSession(_cluster(_url(worker)))
    ask(session)
    kept = weakref.ref(session.kafka)
    del session
    gc.collect()
    assert kept() is None
    assert worker.hung_up.wait(GIVE_UP_SECONDS)


def test_before_a_worker_is_stopped_its_connection_is_closed(session: ConnectSession, worker: Worker) -> None:
    ask(session)
    assert not worker.hung_up.is_set()
    session.hang_up()
    assert worker.hung_up.wait(GIVE_UP_SECONDS)
    ask(session)
    assert len(set(worker.peers)) == 2


def test_each_look_has_a_limit_of_its_own(session: ConnectSession) -> None:
    ask(session)
    with pytest.raises(UnreachableError, match="in time"):
        ask(session, seconds=0.0)
    ask(session)


def test_a_request_that_meets_a_rebalance_is_repeated_only_where_that_is_asked_for(
    session: ConnectSession, worker: Worker
) -> None:
    url, give_up_at = session.cluster.workers[0].url, time.monotonic() + GIVE_UP_SECONDS
    with session.rest(url, give_up_at=give_up_at, retry_seconds=GIVE_UP_SECONDS) as rest:
        rest.restart("mirror")
    assert worker.posts == 2
    worker.posts = 0
    with session.rest(url, give_up_at=give_up_at) as rest, pytest.raises(ConnectRestError):
        rest.restart("mirror")
    assert worker.posts == 1


def test_a_request_in_whose_midst_the_worker_dies_goes_to_the_next_one(worker: Worker, other: Worker) -> None:
    worker.dies_at_posts = True
    with ConnectSession(_cluster(_url(worker), _url(other))) as session:
        session.ask(lambda rest: rest.restart("mirror"))
    assert (worker.posts, other.posts) == (1, 2)  # the second met a rebalance
    with ConnectSession(_cluster(_url(worker))) as session, pytest.raises(UnreachableError, match="did not answer"):
        session.ask(lambda rest: rest.restart("mirror"))


def test_a_question_that_any_worker_can_answer_goes_to_the_first_that_is_up(worker: Worker, other: Worker) -> None:
    """Of three, nothing listens at one's address, one is starting, and so answers 404 to everything."""
    other.is_starting = True
    urls = ["http://127.0.0.1:1", _url(other), _url(worker)]
    with ConnectSession(_cluster(*urls)) as session:
        assert session.ask(lambda rest: rest.url) == _url(worker)
    with ConnectSession(_cluster(*urls[:2])) as session, pytest.raises(EosError, match="404"):
        session.ask(lambda rest: rest.url)
