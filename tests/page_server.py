"""The page on a port of this process: the real application, with Airflow's own database and auth manager."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.ui.plugin import URL_PREFIX, ExactlyOnceApp
from tests.page import auth_manager
from tests.waiting import until


@contextmanager
def page_server() -> Iterator[str]:
    """:returns: the page's address."""
    auth_manager()
    (port,) = free_ports(1)
    site = FastAPI()
    site.mount(URL_PREFIX, ExactlyOnceApp())
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
