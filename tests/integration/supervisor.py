"""A small supervisor: it owns workers, has one template of settings for all of them, and answers HTTP.

Started as a program with its specification (JSON) as the only argument::

    {"template": PATH, "workers": {NAME: {"start": [...], "env": {...}, "log": PATH}}}

It writes its port as one line, and ends with its workers when its standard input is closed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

#: A worker that does not end by itself within this many seconds is killed.
STOP_SECONDS = 30.0


class Supervisor:
    """Starts and stops the workers."""

    def __init__(self, specification: dict[str, Any]) -> None:
        self.template = Path(specification["template"])
        self.edited_at = time.time()
        self._workers = specification["workers"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, tuple[int, float]] = {}

    def state(self, name: str) -> dict[str, Any]:
        process = self._processes.get(name)
        run, started_at = self._started.get(name, (0, 0.0))
        is_running = process is not None and process.poll() is None
        log = self._workers[name]["log"]
        return {"run": run, "started_at": started_at, "is_running": is_running, "log": log, "edited_at": self.edited_at}

    def write(self, data: bytes) -> None:
        self.template.write_bytes(data)
        self.edited_at = time.time()

    def restart(self, name: str) -> None:
        self.stop(name)
        worker = self._workers[name]
        run = self._started.get(name, (0, 0.0))[0] + 1
        self._started[name] = (run, time.time())
        with Path(worker["log"]).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                worker["start"], env=worker["env"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self, name: str) -> None:
        process = self._processes.get(name)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)

    def stop_all(self) -> None:
        for process in self._processes.values():
            process.terminate()  # all at once: each needs a second
        for name in self._processes:
            self.stop(name)


def handler_of(supervisor: Supervisor) -> type[BaseHTTPRequestHandler]:
    """``GET`` and ``PUT /template``, ``GET /workers/NAME``, ``POST /workers/NAME``: restart it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/template":
                self._answer(supervisor.template.read_bytes())
            else:
                self._answer(json.dumps(supervisor.state(self.path.rpartition("/")[2])).encode())

        def do_PUT(self) -> None:
            supervisor.write(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(b"")

        def do_POST(self) -> None:
            supervisor.restart(self.path.rpartition("/")[2])
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def main() -> None:
    supervisor = Supervisor(json.loads(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(supervisor))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    try:
        sys.stdin.read()
    finally:
        server.shutdown()
        supervisor.stop_all()


if __name__ == "__main__":
    main()
