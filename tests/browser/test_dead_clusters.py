"""The page in a browser where a cluster is dead: it says so, keeps its policy, and shows names from elsewhere as text.

The application is the real one, with Airflow's own database and auth manager, on a port of this process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, expect, sync_playwright

from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.ui.plugin import URL_PREFIX, ExactlyOnceApp
from tests.chromium import need_chromium
from tests.page import auth_manager, token_of
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: Of waits that end much sooner, milliseconds.
LONG_MS = 240_000

expect.set_options(timeout=LONG_MS)

#: In the connection, and never to be seen again.
CANARY = "c4n4ry-1f6d"

#: A group whose name is markup wherever somebody takes it for that.
HOSTILE = "<img src=x onerror=document.title='owned'>"

SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 400, "height": 800}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The page's address."""
    need_chromium()
    closed, port = free_ports(2)
    extra = {
        "bootstrap_servers": f"127.0.0.1:{closed}",
        "group_id": HOSTILE,
        "workers": [{"url": f"http://127.0.0.1:{closed}"}],
        "client": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "connect"},
        "client_secrets": {"sasl.password": CANARY},
        "rest": {"token": CANARY},
    }
    described = json.dumps({"conn_type": "kafka_connect", "description": HOSTILE, "extra": extra})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_DEAD", described)
        auth_manager()
        site = FastAPI()
        site.mount(URL_PREFIX, ExactlyOnceApp())
        server = uvicorn.Server(uvicorn.Config(site, host="127.0.0.1", port=port, log_level="error"))
        thread = threading.Thread(target=server.run, name="page", daemon=True)
        thread.start()
        until(lambda: server.started or not thread.is_alive(), "the server to listen", seconds=60)
        assert server.started
        yield f"http://127.0.0.1:{port}{URL_PREFIX}/"
        server.should_exit = True
        thread.join(60)


@pytest.fixture(scope="module")
def browser(url: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=need_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A user's tab, and everything in it that must not be."""

    def __init__(self, browser: Browser, url: str, size: str = "wide", theme: str = "light", role: str = "admin"):
        self.url = url
        self.context = browser.new_context(viewport=SIZES[size], color_scheme=theme, timezone_id="UTC")  # type: ignore[arg-type]
        self.context.set_default_timeout(LONG_MS)
        self.context.add_cookies([{"name": "_token", "value": token_of(role), "url": url}])
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.page.on("console", lambda line: "Security Policy" in line.text and self.problems.append(line.text))
        self.page.on(
            "request",
            lambda request: request.url.startswith(url) or self.problems.append(f"foreign request: {request.url}"),
        )

    def open(self, view: str) -> Page:
        self.page.goto("about:blank")
        self.page.goto(self.url + view)
        return self.page


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Visit]:
    """An administrator's visit, of which nothing is wrong in the end."""
    visit = Visit(browser, url)
    yield visit
    visit.context.close()
    assert not visit.problems


def test_a_dead_cluster_has_a_card_that_says_what_to_do_and_names_from_elsewhere_are_text(visit: Visit) -> None:
    page = visit.open("#/clusters")
    card = page.get_by_role("article", name="dead", exact=True)
    expect(card.locator(".failures strong").first).to_be_visible()
    expect(card.locator(".remedy").first).not_to_be_empty()
    expect(card.locator(".facts code").first).to_have_text(HOSTILE)
    assert page.locator("main img").count() == 0
    assert CANARY not in page.content()
    assert page.title() == "Clusters · Exactly once"
