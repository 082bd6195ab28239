"""A real Airflow with connections to clusters, and a browser whose visits are watched for what must not be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    FrameLocator,
    Page,
    Response,
    expect,
    sync_playwright,
)

from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.servers.airflow import AirflowLab, AirflowOptions
from airflow_eos_provider.lab.servers.postgres import Postgres
from airflow_eos_provider.ui.plugin import URL_PREFIX
from tests.chromium import need_chromium

#: Of waits that end much sooner, seconds and milliseconds.
LONG = 240.0
LONG_MS = 1000 * LONG

#: In connections, and never to be seen again.
CANARY = "c4n4ry-1f6d"

#: A name that is markup wherever it is taken for that.
HOSTILE = "<img src=x onerror=document.title='owned'>"

DESCRIPTION = "Flights of the airport, to be tried"

#: Users by their roles; whether a role may see the page.
ROLES = {"admin": True, "op": True, "user": False, "viewer": False}

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 400, "height": 800}}


@dataclass(frozen=True)
class Site:
    """Airflow, with connections to the clusters ``staging`` and ``unnamed``, of which nothing is left."""

    airflow: AirflowLab

    @property
    def root(self) -> str:
        """Airflow's address."""
        return self.airflow.url

    @property
    def url(self) -> str:
        """The page's address, without Airflow around it."""
        return f"{self.root}{URL_PREFIX}/"

    def password(self, user: str) -> str:
        return str(json.loads(self.airflow.password_file.read_text(encoding="utf-8"))[user])

    def token(self, user: str) -> str:
        """What a user is signed in with."""
        login = {"username": user, "password": self.password(user)}
        answer = httpx.post(f"{self.root}/auth/token", json=login, timeout=LONG)
        answer.raise_for_status()
        return str(answer.json()["access_token"])

    def client(self, user: str | None) -> httpx.Client:
        """Asks the page's own routes with a user's token, or without any."""
        headers = {} if user is None else {"Authorization": f"Bearer {self.token(user)}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=LONG)

    def connect(self) -> None:
        """Add the connection that is not in a variable, as an administrator does."""
        content = {
            "connection_id": "staging",
            "conn_type": "kafka_connect",
            "description": f"{DESCRIPTION} {HOSTILE}",
            "extra": json.dumps(_extra("connect-staging")),
        }
        with self.airflow.rest() as rest:
            rest._write("POST", "/api/v2/connections", content=content)


#: Of Airflow's address, as behind a proxy that serves more.
PATH = "/tools/air"


@pytest.fixture(scope="module")
def site(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The API server alone: the page asks nothing of the other components."""
    need_chromium()
    folder = tmp_path_factory.mktemp("page")
    (dags := folder / "dags").mkdir()
    airflow = AirflowLab.start(
        AirflowOptions(
            folder=folder / "airflow",
            dags_folder=dags,
            postgres=postgres,
            connections={"unnamed": json.dumps({"conn_type": "kafka_connect", "extra": _extra(HOSTILE)})},
            environment={
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
            },
            components=("api-server",),
            path=PATH,
        )
    )
    try:
        site = Site(airflow)
        site.connect()
        yield site
    finally:
        airflow.stop()


def _extra(group_id: str) -> dict[str, Any]:
    """A cluster of which nothing is left, with a secret in each place that has room for one."""
    (closed,) = free_ports(1)
    return {
        "bootstrap_servers": f"127.0.0.1:{closed}",
        "group_id": group_id,
        "workers": [{"url": f"http://127.0.0.1:{closed}"}],
        "client": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "connect"},
        "client_secrets": {"sasl.password": CANARY},
        "rest": {"token": CANARY},
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=need_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A user's tab.

    :ivar problems: what must not be: errors of scripts and in the console, requests to other hosts, refused or failed
        ones of the page, and answers of the page without its content security policy or with a secret.
    """

    site: Site
    context: BrowserContext
    page: Page
    problems: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Take note of problems from now on."""
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.page.on("request", lambda request: self._on_request(request.url))
        self.page.on("response", self._on_response)

    def _on_console(self, message: ConsoleMessage) -> None:
        place = str(message.location.get("url", ""))
        is_ours = f"{URL_PREFIX}/" in place and message.type == "error"
        if is_ours or "Security Policy" in message.text:
            self.problems.append(f"console: {message.text} ({place})")

    def _on_request(self, url: str) -> None:
        if not url.startswith((self.site.root, "data:", "blob:", "about:")):
            self.problems.append(f"foreign request: {url}")

    def _on_response(self, response: Response) -> None:
        if not response.url.startswith(self.site.url):
            return
        if response.status >= 400:
            self.problems.append(f"answer {response.status}: {response.url}")
        if "default-src 'none'" not in response.headers.get("content-security-policy", ""):
            self.problems.append(f"no content security policy: {response.url}")

    def alone(self, view: str) -> Page:
        """A view without Airflow around it, as a page that is new and follows its address."""
        self.page.goto("about:blank")
        self.page.goto(self.site.url + view)
        expect(self.page).not_to_have_title("Exactly once", timeout=LONG_MS)
        return self.page

    def walk_to(self, view: str) -> Page:
        """A view behind another one, on the page that is loaded."""
        before = self.page.title()
        self.page.evaluate("view => { location.hash = view; }", view)
        expect(self.page).not_to_have_title(before, timeout=LONG_MS)
        return self.page

    def inside(self, view: str = "") -> FrameLocator:
        """A view inside Airflow, by the address that its address bar shows."""
        self.page.goto(f"{self.site.root}/plugin{URL_PREFIX}{view}", wait_until="commit")
        return self.frame

    @property
    def frame(self) -> FrameLocator:
        """The page inside Airflow."""
        return self.page.frame_locator("iframe")


@dataclass(frozen=True)
class Visitors:
    """Users who come with nothing of an earlier visit; in the end nothing was wrong in any of theirs."""

    site: Site
    browser: Browser
    visits: list[Visit] = field(default_factory=list)

    def visit(self, size: str = "wide", theme: str = "light", user: str | None = "admin") -> Visit:
        """A tab of a user who is signed in; for None, without a session."""
        context = self.browser.new_context(
            viewport=SIZES[size],  # type: ignore[arg-type]
            color_scheme=theme,  # type: ignore[arg-type]
            timezone_id="UTC",
        )
        context.set_default_timeout(LONG_MS)
        if user is not None:
            context.add_cookies([{"name": "_token", "value": self.site.token(user), "url": self.site.root}])
        visit = Visit(self.site, context, context.new_page())
        self.visits.append(visit)
        visit.watch()
        return visit


@pytest.fixture
def visitors(site: Site, browser: Browser) -> Iterator[Visitors]:
    visitors = Visitors(site, browser)
    yield visitors
    for visit in visitors.visits:
        visit.context.close()
    assert not [problem for visit in visitors.visits for problem in visit.problems]


@pytest.fixture
def visit(visitors: Visitors) -> Visit:
    """A visit of an administrator."""
    return visitors.visit()


def axe(page: Page) -> list[dict[str, Any]]:
    """What axe-core finds against WCAG A and AA."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})", AXE_RULES)
    assert found["passes"], "nothing was looked at"
    return [
        {"rule": each["id"], "help": each["help"], "where": [node["html"][:200] for node in each["nodes"][:3]]}
        for each in found["violations"]
    ]
