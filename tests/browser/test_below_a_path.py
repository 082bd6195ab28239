"""The page in an Airflow below a path, ``/tools/air``, whose pages two processes serve."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from airflow_eos_provider.lab.postgres import Postgres
from tests.browser.conftest import LONG_MS, Site, Visit, Visitors, airflow_site

pytestmark = pytest.mark.timeout(1800)

expect.set_options(timeout=LONG_MS)

PATH, PROCESSES = "/tools/air", 2


@pytest.fixture(scope="module")
def site(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with airflow_site(postgres, tmp_path_factory.mktemp("page"), path=PATH, processes=PROCESSES) as site:
        yield site


def is_at(page: Page, view: str) -> None:
    """Wait until the address bar, without the frame's own address in it, shows a view below the path."""
    page.wait_for_function(
        "([path, view]) => location.pathname.startsWith(`${path}/plugin/exactly-once`) && location.hash === view",
        arg=[PATH, view],
    )


def test_who_signs_in_finds_the_page_in_the_navigation_and_walks_on(visitors: Visitors, site: Site) -> None:
    page = visitors.visit(user=None).page
    page.goto(f"{site.root}/")
    page.get_by_label("Username").fill("op")
    page.get_by_label("Password").fill(site.password("op"))
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Browse").click()
    entry = page.get_by_role("menuitem", name="Exactly once")
    icon = entry.locator("img").element_handle()
    page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=icon)
    entry.click()
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", level=1)).to_have_text("Clusters")
    staging = frame.get_by_role("article", name="staging", exact=True)
    expect(staging.locator(".failures strong").first).to_be_visible()  # the cluster is dead: its look has ended
    staging.get_by_role("link", name="staging", exact=True).click()
    frame.get_by_role("link", name="Tasks", exact=True).click()
    is_at(page, "#/clusters/staging/tasks")
    page.reload(wait_until="commit")
    expect(frame.get_by_role("heading", level=1)).to_have_text("Tasks")
    is_at(page, "#/clusters/staging/tasks")


def test_links_lead_in_and_out_below_the_path(visit: Visit, site: Site) -> None:
    frame = visit.inside("#/clusters")  # as the links of operators are
    staging = frame.get_by_role("article", name="staging", exact=True)
    staging.get_by_role("link", name="Connection in Airflow").click()
    visit.page.wait_for_url(f"{site.root}/connections")
    page = visit.alone("#/clusters/staging")
    expect(page.get_by_role("heading", level=1)).to_have_text("staging")
    page.get_by_role("link", name="Airflow", exact=True).click()
    visit.page.wait_for_url(f"{site.root}/")
