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
from tests.http_server import Reply, http_server

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
    """Answers in stock: by method and path, the last one for ever."""

    server: ThreadingHTTPServer

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[tuple[int, Any, dict[str, str]]]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def says(self, method: str, path: str, *answers: tuple[int, Any] | tuple[int, Any, dict[str, str]]) -> None:
        self.answers[method, path] = [(a[0], a[1], a[2] if len(a) == 3 else {}) for a in answers]

    def reply(self, asked: BaseHTTPRequestHandler, body: bytes) -> Reply:
        self.requests.append((asked.command, asked.path, dict(asked.headers), json.loads(body) if body else None))
        stock = self.answers.get((asked.command, asked.path))
        status, document, headers = (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, {})
        if stock:
            status, document, headers = stock.pop(0) if len(stock) > 1 else stock[0]
        if status == 204:
            return status, b"", headers
        return status, document if isinstance(document, bytes) else json.dumps(document).encode(), headers


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    with http_server(worker.reply) as worker.server:
        yield worker


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


DONE = (204, None)
LATER = (409, REBALANCE)
TAKEN = (409, {"error_code": 409, "message": "Connector a already exists"})
TIMED_OUT = (500, {"error_code": 500, "message": "Request timed out"})

#: What is asked, the answers, and how the last one ends it: None where it is good, else words of the error.
ATTEMPTS: dict[str, tuple[Callable[[ConnectRest], object], str, list[tuple[int, Any]], str | None]] = {
    "a rebalance": (lambda r: r.stop("a"), "PUT /connectors/a/stop", [LATER, LATER, DONE], None),
    "a read before a rebalance": (
        lambda r: r.connector_config("a"),
        "GET /connectors/a/config",
        [(500, REBALANCE_FIRST), LATER, (200, {"name": "a"})],
        None,
    ),
    "a leader that was fenced": (
        lambda r: r.delete("a"),
        "DELETE /connectors/a",
        [(500, LEADER_WAS_FENCED), (500, LEADER_HAS_NO_RIGHT_YET), DONE],
        None,
    ),
    "a leader that was killed": (
        lambda r: r.stop("a"),
        "PUT /connectors/a/stop",
        [(500, LEADER_IS_GONE), LATER, DONE],
        None,
    ),
    "what the dead leader may have done": (
        lambda r: r.create("a", {}),
        "POST /connectors",
        [(500, LEADER_IS_GONE)],
        "forward",
    ),
    "a name that is taken": (lambda r: r.create("a", {}), "POST /connectors", [TAKEN], "already exists"),
    "another error": (ConnectRest.connectors, "GET /connectors", [TIMED_OUT], "500: Request timed out"),
}


class TestRetries:
    @pytest.mark.parametrize(("ask", "address", "answers", "error"), ATTEMPTS.values(), ids=ATTEMPTS)
    def test_only_what_another_time_answers_otherwise_and_bears_it_is_repeated(
        self,
        worker: Worker,
        rest: ConnectRest,
        ask: Callable[[ConnectRest], object],
        address: str,
        answers: list[tuple[int, Any]],
        error: str | None,
    ) -> None:
        worker.says(*address.split(" "), *answers)
        with pytest.raises(ConnectRestError, match=error) if error else contextlib.nullcontext():
            ask(rest)
        assert len(worker.requests) == len(answers)

    @pytest.mark.parametrize(
        ("retry_seconds", "answer", "words"),
        [
            (1.0, LATER, "rebalance"),
            (0.0, LATER, "group is stable"),
            (0.0, (500, LEADER_WAS_FENCED), "connect-cluster-<group>"),
        ],
    )
    def test_an_answer_that_does_not_change_becomes_an_error_in_time(
        self, worker: Worker, retry_seconds: float, answer: tuple[int, Any], words: str
    ) -> None:
        worker.says("PUT", "/connectors/a/stop", answer)
        started = time.monotonic()
        with ConnectRest(worker.url, retry_seconds=retry_seconds) as rest, pytest.raises(ConnectRestError) as caught:
            rest.stop("a")
        assert words in f"{caught.value} {caught.value.remedy}"
        assert caught.value.status == answer[0]
        assert time.monotonic() - started < RETRY_SECONDS
        assert (len(worker.requests) == 1) is (retry_seconds == 0)

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
        ("answer", "words"),
        [
            ((200, b"<html>hello</html>"), "not JSON"),
            ((200, {}), "another form"),
            ((200, []), "another form"),
            ((200, {"version": "1"}), "another form"),
            ((404, b"<html>"), "answered GET / with 404, which a Connect worker does only while it is starting"),
            ((404, {"message": "Not Found"}), "only while it is starting"),
            ((405, b""), "answered GET / with 405, which no Connect worker does"),
            ((302, b"", {"Location": "http://127.0.0.1:1/elsewhere"}), "a redirect, which is not followed"),
        ],
        ids=str,
    )
    def test_root_says_so(self, worker: Worker, rest: ConnectRest, answer: Any, words: str) -> None:
        worker.says("GET", "/", answer)
        with pytest.raises(
            NotKafkaConnectError, match=f"{words}(.|\n)*Expected: the REST API of a Kafka Connect worker"
        ):
            rest.root()
        assert [request[1] for request in worker.requests] == ["/"]

    @pytest.mark.parametrize("document", [b"<html>", {"a": 1}, ["a"], None, 7, {"a": {"status": {"tasks": [{}]}}}])
    def test_statuses_say_so(self, worker: Worker, rest: ConnectRest, document: Any) -> None:
        worker.says("GET", "/connectors?expand=status&expand=info", (200, document))
        with pytest.raises(NotKafkaConnectError):
            rest.statuses()


@contextlib.contextmanager
def speaking(*sent: bytes) -> Iterator[str]:
    """A port that takes one connection, sends so much after the request, the last for ever, and hangs up."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1000)
                for piece in sent:
                    connection.sendall(piece)
                while sent and not ended.wait(0.1):
                    connection.sendall(sent[-1])

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join(5)


class TestUnreachable:
    def test_a_host_without_a_name_is_named(self) -> None:
        with (
            ConnectRest("http://nohost.invalid:8083") as rest,
            pytest.raises(UnreachableError, match=r"nohost\.invalid:8083 did not answer GET /"),
        ):
            rest.root()

    @pytest.mark.parametrize(
        ("sent", "seconds", "words"),
        [
            ([], 30.0, "REST port"),
            ([b""], 0.5, r"within 0\.5 s"),
            ([b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", b" "], 3.0, "not answered completely"),
        ],
        ids=["it speaks no HTTP", "it is stuck", "it trickles"],
    )
    def test_a_port_that_gives_no_answer_is_given_up(self, sent: list[bytes], seconds: float, words: str) -> None:
        started = time.monotonic()
        with speaking(*sent) as url, ConnectRest(url, RestSettings(timeout_seconds=seconds)) as rest:
            with pytest.raises(UnreachableError, match=words):
                rest.root()
            assert time.monotonic() - started < RestSettings().timeout_seconds

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

    def test_only_an_authority_that_was_named_is_trusted_unless_that_is_turned_off(
        self, secure: str, certificate: Path
    ) -> None:
        with ConnectRest(secure) as rest, pytest.raises(UnreachableError, match=r"not trusted(.|\n)*rest\.ca"):
            rest.root()
        for settings in (RestSettings(ca=certificate), RestSettings(verify=False)):
            with ConnectRest(secure, settings) as rest:
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

    def test_the_passphrase_of_a_key_opens_it_and_nobody_asks_for_it_on_the_terminal(
        self, secure: str, worker: Worker, certificate: Path
    ) -> None:
        context = worker.server.socket.context
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        key, locked = certificate.with_name("key.pem"), certificate.with_name("locked.pem")
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
        unopened = replace(shown, client_key_password=None)
        with pytest.raises(ConfigurationError, match="passphrase"), ConnectRest(secure, unopened):
            pass
