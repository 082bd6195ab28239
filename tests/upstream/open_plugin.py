"""A plugin's web application is open to everybody who reaches Airflow's port.

Airflow mounts it beside its own routes, and none of its checks applies: neither to the plugin's routes nor to the
description of them that FastAPI adds by itself.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx

from tests.upstream.own_airflow import own_airflow
from tests.upstream.shown import StartLab

PLUGIN = """
from airflow.plugins_manager import AirflowPlugin
from fastapi import FastAPI

app = FastAPI()

@app.get("/state")
def state() -> str:
    return "what only some may see"

class Open(AirflowPlugin):
    name = "open"
    fastapi_apps = [{"app": app, "url_prefix": "/open", "name": "open"}]
"""


def show(start: StartLab) -> str:
    with tempfile.TemporaryDirectory(prefix="eos-upstream-plugin-") as folder:
        (Path(folder) / "open.py").write_text(PLUGIN, encoding="utf-8")
        environment = {"AIRFLOW__CORE__PLUGINS_FOLDER": folder}
        with own_airflow(start, {}, environment=environment, components=("api-server",)) as airflow:
            paths = ("/api/v2/dags", "/open/state", "/open/openapi.json")
            own, *of_plugin = (httpx.get(f"{airflow.url}{path}", timeout=60, trust_env=False) for path in paths)
    assert own.status_code == 401, own.text
    codes = [answer.status_code for answer in of_plugin]
    assert codes == [200, 200], codes
    assert "what only some may see" in of_plugin[0].text
    return f"nobody is logged in: {paths[0]} answers {own.status_code}, {paths[1]} {codes[0]}, {paths[2]} {codes[1]}"
