"""A real Airflow with real clusters behind it, and a browser that is signed in there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Frame, Page, Request, Response, sync_playwright

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.interval.protocol.stage import Stage
from airflow_eos_provider.lab.airflow import AirflowLab, AirflowOptions
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.lab.postgres import Postgres
from tests.benchmarks.simulated_group import simulated_group
from tests.chromium import need_chromium
from tests.faults.local_runner import plan_files, write_slices
from tests.forked import COLUMNS, FORKS

#: Of waits that end much sooner, seconds and milliseconds.
LONG = 240.0
LONG_MS = 1000 * LONG

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"

#: A name that is markup wherever somebody takes it for that.
HOSTILE = "<img src=x onerror=document.title='owned'>"
QUIET = "flights"

#: In connections and connectors, and never to be seen again.
CANARY = "c4n4ry-1f6d"

#: Users by their roles; whether a role may see the page.
ROLES = {"admin": True, "op": True, "user": False, "viewer": False}

#: Of the connection to a simulated group.
MANY_CONNECTORS, MANY_TASKS = 200, 10

PIPELINE, PIPELINE_GROUP = "arrivals", "intervals"

SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 400, "height": 800}}


@dataclass(frozen=True)
class Site:
    """Airflow, and the clusters of its connections: ``production`` is real, ``many`` simulated, ``dead`` no more."""

    lab: Lab
    airflow: AirflowLab
    folder: Path

    def token(self, user: str) -> str:
        """What a user is signed in with."""
        passwords = json.loads(self.airflow.password_file.read_text(encoding="utf-8"))
        login = {"username": user, "password": passwords[user]}
        answer = httpx.post(f"{self.airflow.url}/auth/token", json=login, timeout=LONG)
        answer.raise_for_status()
        return str(answer.json()["access_token"])

    def get(self, path: str, token: str | None) -> httpx.Response:
        """An answer of the page, to whom a token belongs, or to anybody."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.airflow.url}/exactly-once{path}", headers=headers, timeout=LONG)

    def eos(self, *arguments: str) -> Any:
        """What ``eos … --json`` prints of the real cluster."""
        environment = {**os.environ, "COLUMNS": COLUMNS, "EOS_CLUSTER": str(self.lab.cluster_file)}
        done = FORKS.run(
            "airflow_eos_provider.cli",
            (*arguments, "--json"),
            folder=self.folder,
            environment=environment,
            seconds=LONG,
        )
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def site(
    lab_factory: Callable[..., Lab], postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    need_chromium()
    folder = tmp_path_factory.mktemp("page")
    lab = lab_factory(
        LabOptions(name="page", workers=2, mode=Mode.PREPARING, rebalance_delay_ms=500, session_timeout_ms=6000)
    )
    _create_connectors(lab)
    _write_intervals(lab, folder)
    with ExitStack() as stack:
        lab.create_topic("simulated-lines", 1)
        urls = stack.enter_context(
            simulated_group(lab.kafka, "simulated", 2, MANY_CONNECTORS, "simulated-lines", tasks=MANY_TASKS)
        )
        (dags := folder / "dags").mkdir()
        airflow = AirflowLab.start(
            AirflowOptions(
                folder=folder / "airflow",
                dags_folder=dags,
                postgres=postgres,
                connections=_connections(lab, urls),
                environment={
                    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
                },
            )
        )
        stack.callback(airflow.stop)
        yield Site(lab, airflow, folder)


def _create_connectors(lab: Lab) -> None:
    lab.create_topic("lines", 1)
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
        for number, name in enumerate((QUIET, HOSTILE)):
            file = lab.data_dir / f"lines-{number}.txt"
            file.write_text("one\ntwo\n", encoding="utf-8")
            config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines", "file": str(file)}
            rest.create(name, {**config, "database.password": CANARY})


def _write_intervals(lab: Lab, folder: Path) -> None:
    """Four complete days of a pipeline, of which the third is missing, and one that is under way."""
    lab.create_topic("arrivals", 3)
    pipeline = Pipeline(PIPELINE, PIPELINE_GROUP, lab.kafka, topic="arrivals", ledger_partitions=2)
    file = folder / "lines.txt"
    for day in (1, 2, 4, 5, 6):
        file.write_text("".join(f"{day}-{line}\n" for line in range(10 * day)), encoding="utf-8")
        start = datetime(2013, 1, day, tzinfo=UTC)
        run = Run(PIPELINE, Interval(start, start + timedelta(days=1)))
        plan = plan_files(run, [file], file.stat().st_size // 4 + 1)
        with Coordinator(pipeline, run) as coordinator:
            stage = coordinator.begin(lambda plan=plan: plan, 2)  # type: ignore[misc]
            assert isinstance(stage, Stage)
            is_last = day == 6
            for number in range(1 if is_last else stage.tasks):
                write_slices(pipeline, stage, number)
            if not is_last:
                coordinator.finish(stage)


def _connections(lab: Lab, simulated: list[str]) -> dict[str, str]:
    (closed,) = free_ports(1)
    many = {
        "bootstrap_servers": lab.bootstrap_servers,
        "group_id": "simulated",
        "workers": [{"url": url} for url in simulated],
    }
    dead = {
        **many,
        "bootstrap_servers": f"127.0.0.1:{closed}",
        "client_secrets": {"sasl.password": CANARY},
        "client": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "connect"},
        "rest": {"token": CANARY},
    }
    connections = {
        "production": {"conn_type": "kafka_connect", "extra": {"cluster_file": str(lab.cluster_file)}},
        "many": {"conn_type": "kafka_connect", "extra": many},
        "dead": {"conn_type": "kafka_connect", "password": CANARY, "extra": dead},
        "brokers": {"conn_type": "kafka", "extra": {"bootstrap.servers": lab.bootstrap_servers}},
    }
    return {name: json.dumps(connection) for name, connection in connections.items()}


@pytest.fixture(scope="module")
def browser(site: Site) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=need_chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A user's tab, and everything in it that must not be.

    :ivar problems: errors of scripts, violations of the content security policy, requests to other hosts.
    :ivar bodies: what the page's own routes have answered, by address.
    """

    site: Site
    page: Page
    problems: list[str] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)

    def watch(self) -> None:
        """Take note of problems from now on."""
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("response", self._on_response)

    def _on_console(self, message: ConsoleMessage) -> None:
        place = str(message.location.get("url", ""))
        if ("/exactly-once/" in place and message.type == "error") or "Content Security Policy" in message.text:
            self.problems.append(f"console: {message.text} ({place})")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.site.airflow.url, "data:", "blob:", "about:")):
            self.problems.append(f"foreign request: {request.url}")

    def _on_response(self, response: Response) -> None:
        if "/exactly-once/" not in response.url:
            return
        if response.status >= 400:
            self.problems.append(f"answer {response.status}: {response.url}")

    def open(self, view: str = "") -> Frame:
        """The view inside Airflow, in its frame, by the address that a deep link has."""
        self.page.goto(f"{self.site.airflow.url}/plugin/exactly-once/exactly-once/{view}", wait_until="commit")
        return self.frame()

    def alone(self, view: str = "") -> Page:
        """The view as a page of its own, without Airflow around it."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.site.airflow.url}/exactly-once/{view}")
        return self.page

    def frame(self) -> Frame:
        """The page in Airflow's frame, once it is there."""
        element = self.page.wait_for_selector("iframe", timeout=LONG_MS)
        assert element is not None
        frame = element.content_frame()
        assert frame is not None
        frame.wait_for_selector("h1", timeout=LONG_MS)
        return frame


@dataclass(frozen=True)
class Visitors:
    """Signs users in; each visit is without anything of another one."""

    site: Site
    browser: Browser

    def visit(self, size: str = "wide", theme: str = "light", user: str = "admin") -> Visit:
        context = self.browser.new_context(
            viewport=SIZES[size],  # type: ignore[arg-type]
            color_scheme=theme,  # type: ignore[arg-type]
            timezone_id="UTC",
        )
        context.set_default_timeout(LONG_MS)
        context.add_cookies([{"name": "_token", "value": self.site.token(user), "url": self.site.airflow.url}])
        visit = Visit(self.site, context.new_page())
        visit.watch()
        return visit


@pytest.fixture
def visitors(site: Site, browser: Browser) -> Iterator[Visitors]:
    yield Visitors(site, browser)
    for context in browser.contexts:
        context.close()


@pytest.fixture
def visit(visitors: Visitors) -> Iterator[Visit]:
    """A visit of an administrator, of which nothing is wrong in the end."""
    visit = visitors.visit()
    yield visit
    assert not visit.problems
