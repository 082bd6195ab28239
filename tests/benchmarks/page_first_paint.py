"""How soon a list of the page stands in a browser: 1,000 connectors with 10,000 tasks beside one connector.

The members of the group are real, their REST APIs are simulated; the application, the broker and Chromium are real. A
trial opens a new tab's first page, with nothing in the browser's cache, and ends when the first row can be seen. The
look at the cluster is a few seconds old, as it is for every viewer but the first: how long that one took is printed.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from airflow_eos_provider.lab.lab import Lab, LabOptions
from tests.benchmarks.result import Result
from tests.benchmarks.simulated_group import simulated_group
from tests.chromium import need_chromium
from tests.page import token_of
from tests.page_server import page_server

MEMBERS = 20
CONNECTORS = 1_000
TASKS = 10
TRIALS = 5
#: Of a look and of a page, milliseconds.
LIMIT_MS = 120_000


def run(console: Console) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.up(LabOptions(name="first-paint", workers=0, root=Path(folder)), lambda line: None)
        try:
            lab.create_topic("written", 1)
            group, one = "large", "small"
            with (
                simulated_group(lab.kafka, group, MEMBERS, CONNECTORS, "written", tasks=TASKS) as large,
                simulated_group(lab.kafka, one, 1, 1, "written") as small,
            ):
                _connect("LARGE", lab, group, large)
                _connect("SMALL", lab, one, small)
                with page_server() as url, sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=need_chromium(), args=["--no-sandbox"])
                    try:
                        return [_measure(view, browser, url, console) for view in ("connectors", "tasks")]
                    finally:
                        browser.close()
        finally:
            lab.down()


def _connect(name: str, lab: Lab, group_id: str, urls: list[str]) -> None:
    extra = {
        "bootstrap_servers": lab.bootstrap_servers,
        "group_id": group_id,
        "workers": [{"url": url} for url in urls],
    }
    os.environ[f"AIRFLOW_CONN_{name}"] = json.dumps({"conn_type": "kafka_connect", "extra": extra})


def _measure(view: str, browser: Browser, url: str, console: Console) -> Result:
    first = {name: _seconds(browser, url, name, view) for name in ("large", "small")}
    taken: dict[str, list[float]] = {"large": [], "small": []}
    for _ in range(TRIALS):
        for name, seconds in taken.items():
            seconds.append(_seconds(browser, url, name, view))
    large, small = (statistics.median(taken[name]) for name in ("large", "small"))
    console.print(
        f"{view}: {large:.2f} s ({min(taken['large']):.2f} to {max(taken['large']):.2f}), of one connector "
        f"{small:.2f} s; the first time {first['large']:.2f} and {first['small']:.2f} s; load {os.getloadavg()[0]:.1f}"
    )
    what = f"{view} of {CONNECTORS:,} connectors with {CONNECTORS * TASKS:,} tasks, first row; beside one connector's"
    return Result(f"page_first_paint_{view}", large, small, "lower", "s", what)


def _seconds(browser: Browser, url: str, connection: str, view: str) -> float:
    """From a new tab to the first row of a list."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        context.add_cookies([{"name": "_token", "value": token_of("admin"), "url": url}])
        page = context.new_page()
        begun = time.monotonic()
        page.goto(f"{url}#/clusters/{connection}/{view}")
        page.locator("main tbody tr >> text=c0").first.wait_for(timeout=LIMIT_MS)
        return time.monotonic() - begun
    finally:
        context.close()
