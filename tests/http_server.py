"""An HTTP server in a worker's place, or Airflow's, for what a real one does not do when it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Status, body and further headers.
Reply = tuple[int, bytes, dict[str, str]]


@contextmanager
def served(answer: Callable[[str, str], tuple[int, Any]], address: str = "127.0.0.1") -> Iterator[int]:
    """Its port. Each request has a thread of its own, and is answered by its method and path.

    :param answer: returns the status, and a document that is sent as JSON.
    """

    def reply(asked: BaseHTTPRequestHandler, _: bytes) -> Reply:
        status, document = answer(asked.command, asked.path)
        return status, json.dumps(document).encode(), {"Content-Type": "application/json"}

    with http_server(reply, address) as server:
        yield server.server_port


@contextmanager
def http_server(
    reply: Callable[[BaseHTTPRequestHandler, bytes], Reply], address: str = "127.0.0.1", port: int = 0
) -> Iterator[ThreadingHTTPServer]:
    """A server that answers each request, given with its body, as it is told."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            status, body, headers = reply(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _reply

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    class Server(ThreadingHTTPServer):
        daemon_threads, block_on_close, request_queue_size = True, False, 128

        def handle_error(self, *_: object) -> None:
            """A client that has gone is no error."""

    server = Server((address, port), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
