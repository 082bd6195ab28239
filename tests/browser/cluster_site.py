"""The page on a port of the tests with a connection to a real cluster, what ``eos`` prints of it, and where things are.

The application is the real one, with Airflow's auth manager; ``test_page.py`` has it in a real Airflow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, Locator, Page

from airflow_eos_provider.lab.lab import Lab
from tests.browser.conftest import CANARY, LONG
from tests.forked import COLUMNS, FORKS
from tests.page import token_of
from tests.page_server import page_server

#: The connection's id.
PRODUCTION = "production"


@dataclass(frozen=True)
class ClusterSite:
    """The page with connections to a lab.

    :ivar root: the address of what is around the page, which is nothing here.
    :ivar folder: where commands are run.
    """

    url: str
    lab: Lab
    folder: Path

    @property
    def root(self) -> str:
        return self.url

    def token(self, user: str) -> str:
        """What a user is signed in with."""
        return token_of(user)

    def eos(self, *arguments: str) -> Any:
        """What ``eos … --json`` prints of the real cluster."""
        done = FORKS.run(
            "airflow_eos_provider.cli",
            (*arguments, "--json"),
            folder=self.folder,
            environment={**os.environ, "COLUMNS": COLUMNS, "EOS_CLUSTER": str(self.lab.cluster_file)},
            seconds=LONG,
        )
        return json.loads(done.stdout)


@contextmanager
def cluster_site(
    lab: Lab, folder: Path, *, others: Mapping[str, Mapping[str, Any]] | None = None, processes: int = 1
) -> Iterator[ClusterSite]:
    """The page with the connection :data:`PRODUCTION` to the lab.

    :param others: what further connections have in their ``extra`` beside or instead, by id.
    :param processes: see :func:`page_server`.
    """
    with pytest.MonkeyPatch.context() as patch:
        for connection_id, changes in {PRODUCTION: {}, **(others or {})}.items():
            described = {
                "conn_type": "kafka_connect",
                "login": "connect",
                "password": CANARY,
                "extra": {"cluster_file": str(lab.cluster_file), **changes},
            }
            patch.setenv(f"AIRFLOW_CONN_{connection_id.upper()}", json.dumps(described))
        with page_server(processes) as url:
            yield ClusterSite(url, lab, folder)


def card(place: Page | FrameLocator, connection: str) -> Locator:
    return place.get_by_role("article", name=connection, exact=True)


def fact(place: Locator | Page, name: str) -> Locator:
    """What is said beside a name."""
    return place.locator(f".facts > div:has(> dt:text-is('{name}')) > dd")


def rows(place: Page, table: str) -> Locator:
    return place.get_by_role("table", name=table).locator("tbody tr")


def cell(row: Locator, column: str) -> Locator:
    return row.locator(f'td[data-label="{column}"]')


def title(place: Page | FrameLocator) -> Locator:
    return place.get_by_role("heading", level=1)
