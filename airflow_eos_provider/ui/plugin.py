"""The Airflow plugin: mounts the page and adds it to the navigation.

Airflow imports plugins in all of its processes, but only the API server answers requests. So the application is
imported with its first request.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: Where the application is mounted, below the API server's address.
URL_PREFIX = "/exactly-once"


class ExactlyOnceApp:
    """The application, imported with its first request."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            await asyncio.to_thread(self._make)
        assert self._app is not None
        await self._app(scope, receive, send)

    def _make(self) -> None:
        from airflow_eos_provider.ui.app import create_app

        with self._lock:
            if self._app is None:
                self._app = create_app()


class ExactlyOncePlugin(AirflowPlugin):
    """The page "Exactly once"."""

    name = "exactly_once"
    fastapi_apps: list[dict[str, Any]] = [  # noqa: RUF012  Airflow's own declaration
        {"app": ExactlyOnceApp(), "url_prefix": URL_PREFIX, "name": "Exactly once"}
    ]
    #: Its addresses are relative: Airflow's pages name their base, which has the path of ``[api] base_url``.
    external_views: list[dict[str, Any]] = [  # noqa: RUF012
        {
            "name": "Exactly once",
            "href": f"{URL_PREFIX[1:]}/",
            "destination": "nav",
            "url_route": "exactly-once",
            "category": "browse",
            "icon": f"{URL_PREFIX[1:]}/icon.svg",
            "icon_dark_mode": f"{URL_PREFIX[1:]}/icon-dark.svg",
        }
    ]
