"""Shell completion of what a cluster has: found, bounded in time, and silent where nothing can be found."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.cli import completion
from airflow_eos_provider.cli.app import COMMANDS, load
from airflow_eos_provider.cli.completion import Candidate, candidates, complete_connector
from airflow_eos_provider.cli.rollout import rollouts
from airflow_eos_provider.errors import UnreachableError
from airflow_eos_provider.interval import verify
from airflow_eos_provider.interval.interval import Run
from airflow_eos_provider.interval.verify import RunStatus

#: Types, names that a shell would take apart or obey among them.
CONNECTORS = {"orders": "source", "old orders": "source", "o$(reboot)": "source", "mirror": "unknown", "out": "sink"}


class Worker(ThreadingHTTPServer):
    """Answers for the connectors alone."""

    daemon_threads = True

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/connectors?expand=info"
            info = {
                name: {"info": {"name": name, "type": kind, "config": {}, "tasks": []}}
                for name, kind in CONNECTORS.items()
            }
            body = json.dumps(info).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep silent."""


@pytest.fixture
def worker() -> Iterator[str]:
    with Worker(("127.0.0.1", 0), Worker.Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def silent() -> Iterator[str]:
    """Takes connections and never answers, as a suspended process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def cluster_file(folder: Path, *urls: str, brokers: str = "127.0.0.1:1") -> Path:
    file = folder / "eos.yaml"
    file.write_text(
        json.dumps(
            {
                "bootstrap_servers": brokers,
                "client": {"sasl.password": "canary-7f3a"},  # a command warns that everybody may read it
                "group_id": "g",
                "workers": [{"url": url} for url in urls],
            }
        )
    )
    file.chmod(0o644)
    return file


@pytest.fixture
def nowhere(tmp_path: Path) -> Any:
    """The context of a command line whose cluster is described, and not there."""
    return SimpleNamespace(params={"cluster": cluster_file(tmp_path, "http://127.0.0.1:1")})


def test_connectors_come_from_the_first_worker_that_answers_without_sinks_and_without_traps(
    worker: str, silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "LOOK_SECONDS", 12.0)  # half of it goes to the silent worker
    context: Any = SimpleNamespace(params={"cluster": cluster_file(tmp_path, f"http://{silent}", worker)})
    assert complete_connector(context, "") == [("mirror", ""), ("orders", "")]

    context.params["cluster"] = cluster_file(tmp_path, worker)
    assert complete_connector(context, "o") == [("orders", "")]


def test_runs_come_with_their_states_and_only_pipelines_that_can_be_meant_are_read(
    nowhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = "2026-01-01T05:00:00Z/2026-01-02T05:00:00Z"
    read: list[str] = []

    def statuses(pipeline: Any) -> list[RunStatus]:
        read.append(pipeline.name)
        again = Run.parse(f"{pipeline.name}@{day}#2")
        return [RunStatus(Run.parse(f"{pipeline.name}@{day}"), True, 1), RunStatus(again, False, 1)]

    monkeypatch.setattr(verify, "pipelines", lambda _, group: ["orders", "ordinary", "stock"] if group == "etl" else [])
    monkeypatch.setattr(verify, "all_statuses", lambda named: map(statuses, named))
    assert completion.complete_run(nowhere, "") == []  # in the usual group

    nowhere.params["group"] = "etl"
    assert [name for name, _ in completion.complete_pipeline(nowhere, "ord")] == ["orders", "ordinary"]
    assert completion.complete_run(nowhere, "orde") == [
        (f"orders@{day}", "complete"),
        (f"orders@{day}#2", "running"),
    ]
    assert [name for name, _ in completion.complete_run(nowhere, "stock@2026")] == [f"stock@{day}", f"stock@{day}#2"]
    assert read == ["orders", "stock"]

    nowhere.params["pipeline"] = "stock"
    assert [name for name, _ in completion.complete_run(nowhere, "2026")] == [day, f"{day}#2"]


def test_ids_of_rollouts_come_with_their_states(nowhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [SimpleNamespace(rollout_id=rollout_id) for rollout_id in ("2026a", "2026b", "2025")]
    monkeypatch.setattr(rollouts, "read_journal", lambda *_: None)
    monkeypatch.setattr(rollouts, "whole_history", lambda _: found)

    assert rollouts._complete_rollout(nowhere, "2026") == [("2026a", "not understood"), ("2026b", "not understood")]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")  # its traceback would be printed
@pytest.mark.parametrize("error", [UnreachableError("No broker answers."), KeyError("a fault of ours")])
def test_an_error_ends_a_completion_and_what_was_found_before_it_is_taken(nowhere: Any, error: Exception) -> None:
    def look(_: object) -> Iterator[Candidate]:
        yield "orders", ""
        raise error

    assert candidates(nowhere, "", look) == [("orders", "")]


def test_a_completion_is_not_waited_for(nowhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "LOOK_SECONDS", 3.0)
    never = threading.Event()

    def look(_: object) -> Iterator[Candidate]:
        yield "orders", ""
        never.wait(600)
        yield "stock", ""

    began = time.monotonic()
    assert candidates(nowhere, "", look) == [("orders", "")]
    assert time.monotonic() - began < 300
    never.set()


def test_a_cluster_that_is_not_described_completes_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("workers: [")
    for file in (broken, tmp_path / "absent.yaml"):
        context: Any = SimpleNamespace(params={"cluster": file})
        assert complete_connector(context, "") == []


def completed(line: str, file: Path) -> subprocess.CompletedProcess[str]:
    """What bash is given for a command line, in a process as a shell starts it."""
    words = f"eos {line} --cluster {file} "
    code = "import sys; sys.argv = ['eos']; from airflow_eos_provider.cli import main; main()"
    shell = {"_EOS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **shell}
    )


def test_a_shell_gets_the_names_and_no_warning(worker: str, tmp_path: Path) -> None:
    ended = completed("offsets restore", cluster_file(tmp_path, worker))

    assert (ended.stdout.split(), ended.stderr) == (["mirror", "orders"], "")


def test_a_shell_gets_nothing_where_the_cluster_does_not_answer(silent: str, tmp_path: Path) -> None:
    ended = completed("rollout show", cluster_file(tmp_path, f"http://{silent}", brokers=silent))
    assert (ended.stdout.strip(), ended.stderr) == ("", "")


def params() -> Iterator[tuple[str, Any]]:
    for name in COMMANDS:
        command = load(name)
        for sub, leaf in getattr(command, "commands", {"": command}).items():
            yield from ((f"{name} {sub}".strip(), param) for param in leaf.params)


#: ``prune`` is for connectors that are deleted, of which the workers know nothing.
NOT_COMPLETED = {("offsets prune", "connector")}


@pytest.mark.parametrize("wanted", ["connector", "connectors", "run", "pipeline", "rollout", "cluster"])
def test_every_parameter_of_a_name_is_completed(wanted: str) -> None:
    found = [(path, param) for path, param in params() if param.name == wanted]

    assert found
    for path, param in found:
        assert (param._custom_shell_complete is None) is ((path, param.name) in NOT_COMPLETED), path
