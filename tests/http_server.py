"""An HTTP server in a worker's place, for what a real worker does not do when it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def served(answer: Callable[[str, str], tuple[int, Any]], address: str = "127.0.0.1") -> Iterator[int]:
    """Its port. Each request has a thread of its own, and is answered by its method and path.

    :param answer: returns the status, and a document that is sent as JSON.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = answer(self.command, self.path)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = _reply

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    class Server(ThreadingHTTPServer):
        daemon_threads, block_on_close, request_queue_size = True, False, 128

        def handle_error(self, *_: object) -> None:
            """A client that has gone is no error."""

    server = Server((address, 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
