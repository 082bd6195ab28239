"""The REST client against a real HTTP server on the loopback that answers as Connect does, or as it should not."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_eos_provider.connect.cluster.description import RestSettings
from airflow_eos_provider.connect.rest import (
    Answer,
    ConnectorOffset,
    ConnectRest,
    TaskStatus,
    WorkerRoot,
)
from airflow_eos_provider.errors import (
    ConfigurationError,
    ConnectRestError,
    EosError,
    NotKafkaConnectError,
    UnreachableError,
)

ROOT = {"version": "4.3.1", "commit": "abc", "kafka_cluster_id": "xyz"}
REBALANCE = {
    "error_code": 409,
    "message": "Cannot complete request because of a conflicting operation (e.g. rebalance)",
}
REBALANCE_FIRST = {
    "error_code": 500,
    "message": "Request cannot be completed because a rebalance is expected",
}
LEADER_IS_GONE = {
    "error_code": 500,
    "message": "IO Error trying to forward REST request: java.net.ConnectException: Connection refused",
}
LEADER_WAS_FENCED = {
    "error_code": 500,
    "message": "Failed to write to config topic; this may be due to a transient error and the request can be safely "
    "retried",
}
LEADER_HAS_NO_RIGHT_YET = {
    "error_code": 500,
    "message": "Cannot produce to config topic without claiming write privileges first",
}
CANARY = "canary-7f3a"


class Worker:
    """An HTTP server with answers in stock: by method and path, the last one for ever."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[tuple[int, Any, dict[str, str]]]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        worker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                sent = json.loads(body) if body else None
                worker.requests.append((self.command, self.path, dict(self.headers), sent))
                stock = worker.answers.get((self.command, self.path))
                status, document, headers = (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, {})
                if stock:
                    status, document, headers = stock.pop(0) if len(stock) > 1 else stock[0]
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(0 if status == 204 else len(data)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def says(self, method: str, path: str, *answers: tuple[int, Any] | tuple[int, Any, dict[str, str]]) -> None:
        self.answers[method, path] = [(a[0], a[1], a[2] if len(a) == 3 else {}) for a in answers]


@pytest.fixture
def worker() -> Iterator[Worker]:
    server = Worker()
    server.thread.start()
    yield server
    server.server.shutdown()
    server.server.server_close()
    server.thread.join(5)


#: For so long a request is repeated, seconds, where nothing else is said; a call that ends sooner did not wait for it.
RETRY_SECONDS = 20.0


@pytest.fixture
def rest(worker: Worker) -> Iterator[ConnectRest]:
    with ConnectRest(worker.url, retry_seconds=RETRY_SECONDS) as client:
        yield client


def test_our_requests_are_no_lines_of_a_log_and_others_keep_theirs(
    worker: Worker, rest: ConnectRest, caplog: pytest.LogCaptureFixture
) -> None:
    """A roll asks several times a second; its task's log is for what it does."""
    caplog.set_level(logging.INFO, logger="httpx")  # Airflow, once imported, has set its level
    worker.says("GET", "/", (200, ROOT))
    rest.root()
    asked = [record for record in caplog.records if record.name == "httpx" and worker.url in record.getMessage()]
    assert asked == []
    httpx.get(worker.url, trust_env=False)
    asked = [record for record in caplog.records if record.name == "httpx" and worker.url in record.getMessage()]
    assert len(asked) == 1


class TestAnswers:
    def test_root_tells_version_commit_and_cluster(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("GET", "/", (200, ROOT))
        assert rest.root() == WorkerRoot("4.3.1", "abc", "xyz")

    @pytest.mark.parametrize(
        ("status", "document", "expected"),
        [
            (200, {"status": "healthy", "message": "fine"}, "healthy"),
            (503, {"status": "starting", "message": "wait"}, "starting"),
            (500, {"status": "unhealthy", "message": "stuck"}, "unhealthy"),
            (500, {"error_code": 500, "message": "Request timed out"}, "unhealthy"),
            (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, "absent"),
            (404, b"<html>", "absent"),
        ],
    )
    def test_health_has_four_answers(
        self, worker: Worker, rest: ConnectRest, status: int, document: Any, expected: str
    ) -> None:
        worker.says("GET", "/health", (status, document))
        assert rest.health().status == expected

    def test_all_statuses_come_in_one_request(self, worker: Worker, rest: ConnectRest) -> None:
        path = "/connectors?expand=status&expand=info"
        entry = {
            "status": {
                "name": "a",
                "connector": {"state": "RUNNING", "worker_id": "w:1"},
                "tasks": [
                    {"id": 1, "state": "FAILED", "worker_id": "w:2", "trace": "boom"},
                    {"id": 0, "state": "RUNNING", "worker_id": "w:1"},
                ],
                "type": "source",
            },
            "info": {"name": "a", "config": {"password": CANARY}, "tasks": [], "type": "source"},
        }
        worker.says("GET", path, (200, {"b": {"info": {"config": {}, "type": "sink"}}, "a": entry}))
        found = rest.statuses()
        assert list(found) == ["a", "b"]
        assert found["a"].tasks == (TaskStatus(0, "RUNNING", "w:1"), TaskStatus(1, "FAILED", "w:2", "boom"))
        assert (found["a"].type, found["a"].state, found["a"].worker_id) == ("source", "RUNNING", "w:1")
        assert (found["b"].type, found["b"].state, found["b"].tasks) == ("sink", "UNKNOWN", ())
        assert found["a"].config["password"] == CANARY
        assert CANARY not in repr(found)
        assert len(worker.requests) == 1

    def test_connectors_without_a_status_have_an_info(self, worker: Worker, rest: ConnectRest) -> None:
        entry = {"info": {"name": "a", "config": {"password": CANARY}, "tasks": [], "type": "source"}}
        worker.says("GET", "/connectors?expand=info", (200, {"a": entry}))
        found = rest.infos()["a"]
        assert (found.type, found.state, found.config) == ("source", "UNKNOWN", {"password": CANARY})

    def test_a_configuration_is_as_connect_reads_it_and_for_a_change_as_it_is_written(
        self, worker: Worker, rest: ConnectRest
    ) -> None:
        written = {"offsets.storage.topic": " own ", "x": None}
        entry = {"info": {"name": "a", "config": written, "tasks": [], "type": "source"}}
        worker.says("GET", "/connectors?expand=info", (200, {"a": entry}))
        worker.says("GET", "/connectors/a/config", (200, written))
        assert rest.infos()["a"].config == {"offsets.storage.topic": "own", "x": None}
        assert rest.connector_config("a") == written

    def test_names_are_quoted(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("GET", "/connectors/a%2Fb%20%3Fc/config", (200, {"k": "v"}))
        assert rest.connector_config("a/b ?c") == {"k": "v"}

    def test_validation_keeps_the_properties_with_errors(self, worker: Worker, rest: ConnectRest) -> None:
        configs = [{"value": {"name": "x", "errors": []}}, {"value": {"name": "y", "errors": ["bad", "worse"]}}]
        worker.says(
            "PUT", "/connector-plugins/P/config/validate", (200, {"name": "P", "error_count": 2, "configs": configs})
        )
        found = rest.validate("P", {"name": "a"})
        assert found.errors == {"y": ("bad", "worse")}
        assert worker.requests[0][3] == {"connector.class": "P", "name": "a"}

    def test_plugins_offsets_and_names_are_typed(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("GET", "/connector-plugins", (200, [{"class": "P", "type": "source", "version": "1"}]))
        worker.says("GET", "/connectors", (200, ["b", "a"]))
        worker.says("GET", "/connectors/a/offsets", (200, {"offsets": [{"partition": {"f": 1}, "offset": None}]}))
        assert rest.plugins() == ("P",)
        assert rest.connectors() == ("a", "b")
        assert rest.offsets("a") == (ConnectorOffset({"f": 1}, None),)

    @pytest.mark.parametrize(
        ("act", "sent"),
        [
            (lambda r: r.create("a", {"k": "v"}), ("POST", "/connectors", {"name": "a", "config": {"k": "v"}})),
            (
                lambda r: r.create("a", {}, "STOPPED"),
                ("POST", "/connectors", {"name": "a", "config": {}, "initial_state": "STOPPED"}),
            ),
            (lambda r: r.put_config("a", {"k": "v"}), ("PUT", "/connectors/a/config", {"k": "v"})),
            (
                lambda r: r.patch_config("a", {"k": "v", "gone": None}),
                ("PATCH", "/connectors/a/config", {"k": "v", "gone": None}),
            ),
            (lambda r: r.delete("a"), ("DELETE", "/connectors/a", None)),
            (lambda r: r.stop("a"), ("PUT", "/connectors/a/stop", None)),
            (lambda r: r.pause("a"), ("PUT", "/connectors/a/pause", None)),
            (lambda r: r.resume("a"), ("PUT", "/connectors/a/resume", None)),
            (
                lambda r: r.restart("a", include_tasks=True, only_failed=True),
                ("POST", "/connectors/a/restart?includeTasks=true&onlyFailed=true", None),
            ),
            (lambda r: r.restart_task("a", 2), ("POST", "/connectors/a/tasks/2/restart", None)),
        ],
    )
    def test_each_change_sends_what_connect_expects(
        self, worker: Worker, rest: ConnectRest, act: Callable[[ConnectRest], None], sent: tuple[str, str, Any]
    ) -> None:
        worker.says(sent[0], sent[1], (204, None))
        act(rest)
        method, path, _, body = worker.requests[0]
        assert (method, path, body) == sent


class TestRetries:
    def test_a_rebalance_is_waited_out(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("PUT", "/connectors/a/stop", (409, REBALANCE), (409, REBALANCE), (204, None))
        rest.stop("a")
        assert len(worker.requests) == 3

    def test_a_read_that_connect_answers_with_500_before_a_rebalance_is_waited_out(
        self, worker: Worker, rest: ConnectRest
    ) -> None:
        worker.says("GET", "/connectors/a/config", (500, REBALANCE_FIRST), (409, REBALANCE), (200, {"name": "a"}))
        assert rest.connector_config("a") == {"name": "a"}
        assert len(worker.requests) == 3

    def test_a_leader_that_was_fenced_claims_its_right_anew_and_hears_the_request_again(
        self, worker: Worker, rest: ConnectRest
    ) -> None:
        worker.says("DELETE", "/connectors/a", (500, LEADER_WAS_FENCED), (500, LEADER_HAS_NO_RIGHT_YET), (204, None))
        rest.delete("a")
        assert len(worker.requests) == 3

    def test_a_leader_that_never_may_write_is_named_with_what_it_may_lack(self, worker: Worker) -> None:
        worker.says("DELETE", "/connectors/a", (500, LEADER_WAS_FENCED))
        with ConnectRest(worker.url, retry_seconds=0) as rest, pytest.raises(ConnectRestError) as caught:
            rest.delete("a")
        assert "connect-cluster-<group>" in caught.value.remedy

    def test_a_rebalance_without_end_becomes_an_error_in_time(self, worker: Worker) -> None:
        worker.says("PUT", "/connectors/a/stop", (409, REBALANCE))
        started = time.monotonic()
        with (
            ConnectRest(worker.url, retry_seconds=1.0) as rest,
            pytest.raises(ConnectRestError, match="rebalance") as caught,
        ):
            rest.stop("a")
        assert caught.value.status == 409
        assert time.monotonic() - started < RETRY_SECONDS

    def test_a_name_that_is_taken_is_not_a_rebalance(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("POST", "/connectors", (409, {"error_code": 409, "message": "Connector a already exists"}))
        with pytest.raises(ConnectRestError, match="already exists"):
            rest.create("a", {})
        assert len(worker.requests) == 1

    def test_what_cannot_be_forwarded_to_a_leader_that_was_killed_waits_for_the_next_leader(
        self, worker: Worker, rest: ConnectRest
    ) -> None:
        worker.says("PUT", "/connectors/a/stop", (500, LEADER_IS_GONE), (409, REBALANCE), (204, None))
        rest.stop("a")
        assert len(worker.requests) == 3

    def test_what_the_dead_leader_may_have_done_is_not_done_twice(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("POST", "/connectors", (500, LEADER_IS_GONE))
        with pytest.raises(ConnectRestError, match="forward"):
            rest.create("a", {})
        assert len(worker.requests) == 1

    def test_no_time_for_retries_means_one_attempt(self, worker: Worker) -> None:
        worker.says("GET", "/connectors", (409, REBALANCE))
        with ConnectRest(worker.url, retry_seconds=0) as rest, pytest.raises(ConnectRestError):
            rest.connectors()
        assert len(worker.requests) == 1

    def test_another_error_is_not_repeated(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("GET", "/connectors", (500, {"error_code": 500, "message": "Request timed out"}))
        with pytest.raises(ConnectRestError, match="500: Request timed out"):
            rest.connectors()
        assert len(worker.requests) == 1

    def test_a_refused_connection_is_repeated_only_where_asked(self, worker: Worker) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            started = time.monotonic()
            with ConnectRest(url) as rest, pytest.raises(UnreachableError):
                rest.root()
            assert time.monotonic() - started < RETRY_SECONDS
            with ConnectRest(url, retry_refused=True, retry_seconds=1.5) as rest, pytest.raises(UnreachableError):
                rest.root()
            assert time.monotonic() - started > 1

    def test_a_session_that_is_over_asks_nothing_more(self, worker: Worker) -> None:
        with (
            ConnectRest(worker.url, give_up_at=time.monotonic()) as rest,
            pytest.raises(UnreachableError, match="did not answer everything in time"),
        ):
            rest.root()
        assert worker.requests == []


class TestWhatIsNotConnect:
    @pytest.mark.parametrize(
        "answer",
        [
            (200, b"<html>hello</html>"),
            (200, {}),
            (200, []),
            (200, {"version": "1"}),
            (404, b"<html>"),
            (404, {"message": "Not Found"}),
            (405, b""),
            (302, b"", {"Location": "http://127.0.0.1:1/elsewhere"}),
        ],
        ids=lambda answer: str(answer[:2]),
    )
    def test_root_says_so(self, worker: Worker, rest: ConnectRest, answer: Any) -> None:
        worker.says("GET", "/", answer)
        with pytest.raises(NotKafkaConnectError, match="Expected: the REST API of a Kafka Connect worker"):
            rest.root()

    @pytest.mark.parametrize(
        ("status", "words"),
        [(404, "which a Connect worker does only while it is starting"), (405, "which no Connect worker does")],
    )
    def test_an_answer_is_said_to_be_no_workers_only_where_that_is_true(
        self, worker: Worker, rest: ConnectRest, status: int, words: str
    ) -> None:
        worker.says("GET", "/", (status, b""))
        with pytest.raises(NotKafkaConnectError, match=f"answered GET / with {status}, {words}"):
            rest.root()

    @pytest.mark.parametrize("document", [b"<html>", {"a": 1}, ["a"], None, 7, {"a": {"status": {"tasks": [{}]}}}])
    def test_statuses_say_so(self, worker: Worker, rest: ConnectRest, document: Any) -> None:
        worker.says("GET", "/connectors?expand=status&expand=info", (200, document))
        with pytest.raises(NotKafkaConnectError):
            rest.statuses()

    def test_redirects_are_not_followed(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("GET", "/connectors", (307, b"", {"Location": "/elsewhere"}))
        with pytest.raises(NotKafkaConnectError, match="redirect"):
            rest.connectors()
        assert [request[1] for request in worker.requests] == ["/connectors"]

    def test_a_port_that_does_not_speak_http_is_named(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer() -> None:
                connection, _ = server.accept()
                connection.recv(100)
                connection.close()

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            with ConnectRest(url) as rest, pytest.raises(UnreachableError, match="REST port"):
                rest.root()
            thread.join(5)


class TestUnreachable:
    def test_a_host_without_a_name_is_named(self) -> None:
        with (
            ConnectRest("http://nohost.invalid:8083") as rest,
            pytest.raises(UnreachableError, match=r"nohost\.invalid:8083 did not answer GET /"),
        ):
            rest.root()

    def test_a_worker_that_is_stuck_is_given_up(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            settings = RestSettings(timeout_seconds=0.5)
            started = time.monotonic()
            with (
                ConnectRest(f"http://127.0.0.1:{server.getsockname()[1]}", settings) as rest,
                pytest.raises(UnreachableError, match=r"within 0\.5 s"),
            ):
                rest.root()
            assert time.monotonic() - started < RestSettings().timeout_seconds

    def test_an_answer_that_trickles_is_given_up(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ended = threading.Event()

            def trickle() -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n")
                    while not ended.wait(0.1):
                        try:
                            connection.sendall(b" ")
                        except OSError:
                            return

            thread = threading.Thread(target=trickle, daemon=True)
            thread.start()
            started = time.monotonic()
            with (
                ConnectRest(f"http://127.0.0.1:{server.getsockname()[1]}", RestSettings(timeout_seconds=3.0)) as rest,
                pytest.raises(UnreachableError, match="not answered completely"),
            ):
                rest.root()
            assert time.monotonic() - started < RestSettings().timeout_seconds
            ended.set()
            thread.join(5)

    @pytest.mark.parametrize("url", ["", "8083", "ftp://h:1", "http://", "http://h:99999", f"http://u:{CANARY}@h:1"])
    def test_an_address_that_is_none_is_refused_without_showing_credentials(self, url: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            ConnectRest(url)
        assert CANARY not in str(caught.value)


#: Answers of a proxy, of another program, of a broken worker.
ODD_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "a page": b"<html>Welcome</html>",
    "bytes of latin-1": b'{"message": "\xe9"}',
    "deep": b"[" * 200_000,
    "null": b"null",
    "a number": b"1e400",
    "a list of lists": b"[[1]]",
    "an object of null": b'{"a": null, "offsets": null, "configs": null, "version": null}',
    "names of another type": b'{"a": {"status": {"tasks": [{"id": 1e400, "state": 1, "worker_id": null}]}}}',
    "half a surrogate pair": b'{"a": {"info": {"config": {"k": "\\ud800"}}}, "message": "\\ud800"}',
    "an escape sequence": b'{"error_code": 500, "message": "\\u001b[2J"}',
}
CALLS: dict[str, Callable[[ConnectRest], object]] = {
    "root": ConnectRest.root,
    "health": ConnectRest.health,
    "connectors": ConnectRest.connectors,
    "statuses": ConnectRest.statuses,
    "config": lambda rest: rest.connector_config("a"),
    "offsets": lambda rest: rest.offsets("a"),
    "topics": lambda rest: rest.topics("a"),
    "plugins": ConnectRest.plugins,
    "validate": lambda rest: rest.validate("c", {}),
    "stop": lambda rest: rest.stop("a"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES)
@pytest.mark.parametrize("status", [200, 302, 400, 404, 500])
def test_an_odd_answer_is_a_value_or_an_error_of_ours(
    call: Callable[[ConnectRest], object], body: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = ConnectRest("http://127.0.0.1:1", retry_seconds=0.0)
    monkeypatch.setattr(rest, "_send", lambda _: Answer(rest.url, status, body))
    with contextlib.suppress(EosError):
        call(rest)


class TestNames:
    @pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
    def test_a_name_that_no_path_can_hold_is_refused_before_anything_is_sent(
        self, worker: Worker, rest: ConnectRest, name: str
    ) -> None:
        """``PUT /connectors/../stop`` would arrive as ``PUT /stop``."""
        with pytest.raises(ConfigurationError, match="has no address for a connector"):
            rest.stop(name)
        assert worker.requests == []

    @pytest.mark.parametrize(
        ("status", "body", "final"),
        [
            (404, {"error_code": 404, "message": "Connector a not found"}, True),
            (404, b"", False),  # a worker that starts
            (400, b"<html>Ambiguous URI path separator</html>", True),
            (401, b"", True),
            (405, b"", True),
            (409, {"error_code": 409, "message": "Connector a already exists"}, False),
            (429, b"", False),
            (500, {"error_code": 500, "message": "no"}, False),
        ],
    )
    def test_a_final_answer_is_not_called_unreachable(
        self, worker: Worker, rest: ConnectRest, status: int, body: Any, final: bool
    ) -> None:
        worker.says("PUT", "/connectors/a%2Fb/stop", (status, body))
        with pytest.raises(ConnectRestError) as caught:
            rest.stop("a/b")
        assert caught.value.status == status
        assert isinstance(caught.value, ConfigurationError) is final
        assert caught.value.exit_code == (2 if final else 6)


class TestSecrets:
    def test_an_error_shows_connects_words_cut_and_never_the_request(self, worker: Worker, rest: ConnectRest) -> None:
        worker.says("POST", "/connectors", (400, {"error_code": 400, "message": "bad value " * 200}))
        with pytest.raises(ConnectRestError) as caught:
            rest.create("a", {"password": CANARY})
        assert worker.requests[0][3]["config"]["password"] == CANARY  # so there was something to show
        assert CANARY not in str(caught.value)
        assert "bad value" in str(caught.value)
        assert len(str(caught.value)) < 700

    def test_an_answer_does_not_show_its_body(self) -> None:
        assert CANARY not in repr(Answer("u", 200, CANARY.encode()))

    @pytest.mark.parametrize("status", [401, 403])
    def test_who_is_refused_reads_which_settings_to_check(self, worker: Worker, status: int) -> None:
        worker.says("GET", "/connectors", (status, b""))
        with ConnectRest(worker.url) as rest, pytest.raises(ConnectRestError, match=f": {status}") as caught:
            rest.connectors()
        assert "rest.username, rest.password or rest.token" in caught.value.remedy

    def test_credentials_are_sent_and_never_shown(self, worker: Worker) -> None:
        worker.says("GET", "/connectors", (401, b""))
        with ConnectRest(worker.url, RestSettings(username="me", password=CANARY)) as rest:
            with pytest.raises(ConnectRestError, match=r"refused GET /connectors: 401") as caught:
                rest.connectors()
            assert CANARY not in f"{caught.value} {rest!r}"
        with ConnectRest(worker.url, RestSettings(token=CANARY)) as rest, pytest.raises(ConnectRestError):
            rest.connectors()
        basic = base64.b64encode(f"me:{CANARY}".encode()).decode()
        sent = [headers["Authorization"] for _, _, headers, _ in worker.requests]
        assert sent == [f"Basic {basic}", f"Bearer {CANARY}"]

    def test_proxies_of_the_environment_are_not_used(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        worker.says("GET", "/", (200, ROOT))
        with ConnectRest(worker.url) as rest:
            assert rest.root().version == "4.3.1"


class TestTls:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", "cert.pem", "-keyout", "key.pem"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
        return tmp_path / "cert.pem"

    @pytest.fixture
    def secure(self, worker: Worker, certificate: Path) -> str:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, certificate.with_name("key.pem"))
        worker.server.socket = context.wrap_socket(worker.server.socket, server_side=True)
        worker.says("GET", "/", (200, ROOT))
        return worker.url.replace("http:", "https:")

    def test_a_certificate_of_nobody_is_refused(self, secure: str) -> None:
        with ConnectRest(secure) as rest, pytest.raises(UnreachableError, match=r"not trusted(.|\n)*rest\.ca"):
            rest.root()

    def test_the_authority_that_was_named_is_trusted(self, secure: str, certificate: Path) -> None:
        with ConnectRest(secure, RestSettings(ca=certificate)) as rest:
            assert rest.root().version == "4.3.1"

    def test_verification_can_be_turned_off_by_hand(self, secure: str) -> None:
        with ConnectRest(secure, RestSettings(verify=False)) as rest:
            assert rest.root().version == "4.3.1"

    @pytest.mark.parametrize("kind", [httpx.ReadError, httpx.WriteError])
    def test_a_tls_connection_that_is_cut_off_may_have_wanted_a_certificate(
        self, kind: type[httpx.TransportError]
    ) -> None:
        def cut(_: httpx.Request) -> httpx.Response:
            raise kind("Connection reset by peer")

        with ConnectRest("https://127.0.0.1:1", RestSettings(verify=False)) as rest:
            rest._client.close()
            rest._client = httpx.Client(transport=httpx.MockTransport(cut))
            with pytest.raises(UnreachableError, match=r"reset by peer(?s:.)*rest\.client_certificate"):
                rest.root()

    def test_plain_http_to_a_tls_port_is_told(self, secure: str) -> None:
        with ConnectRest(secure.replace("https:", "http:")) as rest, pytest.raises(EosError):
            rest.root()

    def test_a_file_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with (
            pytest.raises(ConfigurationError, match="certificate files"),
            ConnectRest("https://127.0.0.1:1", RestSettings(ca=tmp_path / "none.pem")),
        ):
            pass

    def test_an_encrypted_key_is_refused_without_asking_on_the_terminal(self, certificate: Path) -> None:
        key = certificate.with_name("key.pem")
        locked = certificate.with_name("locked.pem")
        command = ["openssl", "pkey", "-in", str(key), "-aes256", "-passout", "pass:x1234", "-out", str(locked)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        settings = RestSettings(client_certificate=certificate, client_key=locked)
        with pytest.raises(ConfigurationError, match="passphrase"), ConnectRest("https://127.0.0.1:1", settings):
            pass

    def test_the_passphrase_of_a_key_opens_it(self, secure: str, worker: Worker, certificate: Path) -> None:
        context = worker.server.socket.context
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        key = certificate.with_name("key.pem")
        locked = certificate.with_name("locked.pem")
        command = ["openssl", "pkey", "-in", str(key), "-aes256", "-passout", "pass:x1234", "-out", str(locked)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        shown = RestSettings(
            ca=certificate,
            client_certificate=certificate,
            client_key=locked,
            client_key_password="x1234",
            username="ada",
            password="pa55word",
        )
        with ConnectRest(secure, shown) as rest:
            assert rest.root().version == "4.3.1"
        assert "x1234" not in repr(shown)
        with ConnectRest(secure, replace(shown, client_certificate=None)) as rest, pytest.raises(EosError):
            rest.root()
