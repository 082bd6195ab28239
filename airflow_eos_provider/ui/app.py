"""The web application: its routes, access rule and headers."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse

from airflow_eos_provider.ui.access import REQUIRED
from airflow_eos_provider.ui.headers import SafeHeaders
from airflow_eos_provider.ui.looks import Looks
from airflow_eos_provider.ui.routes import (
    changes,
    clusters,
    history,
    intervals,
    offsets,
    rights,
    rolls,
    topics,
    transactions,
)

STATIC = Path(__file__).with_name("static")

#: Independent of the machine's own table.
for _type, _suffix in (("text/javascript", ".js"), ("text/javascript", ".mjs"), ("image/svg+xml", ".svg")):
    mimetypes.add_type(_type, _suffix)


def create_app() -> FastAPI:
    """The application that Airflow mounts. It only reads.

    Without FastAPI's own pages and description, which no dependency guards.
    """
    app = FastAPI(title="Exactly once", dependencies=[REQUIRED], docs_url=None, redoc_url=None, openapi_url=None)
    looks = Looks()
    for room in (clusters, changes, offsets, transactions, topics, rights, rolls, history, intervals):
        app.include_router(room.routes(looks))
    app.add_api_route("/", _page, methods=["GET"])
    app.add_api_route("/static/{path:path}", _static, methods=["GET"])
    app.add_api_route("/{icon}.svg", _icon, methods=["GET"])
    app.add_api_route("/{path:path}", _nothing, methods=["GET"])  # last, so that it is an answer with a rule, too
    app.add_middleware(SafeHeaders)
    return app


async def _page() -> FileResponse:
    return _file("index.html")


async def _static(path: str) -> FileResponse:
    return _file(path)


async def _icon(icon: str) -> FileResponse:
    return _file(f"{icon}.svg")


async def _nothing(path: str) -> FileResponse:
    raise HTTPException(404, "Not Found")


def _file(name: str) -> FileResponse:
    """A file of the page's own folder, and of no other."""
    found = (STATIC / name).resolve()
    if not found.is_relative_to(STATIC.resolve()) or not found.is_file():
        raise HTTPException(404, "Not Found")
    return FileResponse(found)
