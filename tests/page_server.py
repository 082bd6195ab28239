"""The page on a port of this process: the real application, with Airflow's own database and auth manager."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.ui.plugin import URL_PREFIX, ExactlyOnceApp
from tests.page import auth_manager
from tests.waiting import until


class InTurn:
    """Applications that answer in turn, as processes of one API server may: each has looks of its own."""

    def __init__(self, number: int) -> None:
        self._next = cycle([ExactlyOnceApp() for _ in range(number)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await next(self._next)(scope, receive, send)


@contextmanager
def page_server(processes: int = 1) -> Iterator[str]:
    """The page, answered by so many applications in turn."""
    auth_manager()
    (port,) = free_ports(1)
    site = FastAPI()
    site.mount(URL_PREFIX, InTurn(processes))
    server = uvicorn.Server(uvicorn.Config(site, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, name="page", daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), "the server to listen", seconds=60)
        assert server.started
        yield f"http://127.0.0.1:{port}{URL_PREFIX}/"
    finally:
        server.should_exit = True
        thread.join(60)
