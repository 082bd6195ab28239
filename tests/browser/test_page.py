"""The page in a real browser, in a real Airflow below a path: how it is found, who gets it, and how it is used."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from airflow_eos_provider.lab.ports import free_ports
from airflow_eos_provider.ui.app import STATIC, create_app
from tests.browser.cluster_site import card, fact, title
from tests.browser.conftest import CANARY, DESCRIPTION, HOSTILE, LONG_MS, ROLES, Site, Visit, Visitors, axe

pytestmark = pytest.mark.timeout(1800)

expect.set_options(timeout=LONG_MS)

RUN = "flights@2013-01-01T00:00:00Z/2013-01-02T00:00:00Z"

#: Each kind of view.
VIEWS = (
    "#/clusters",
    "#/clusters/staging",
    "#/clusters/staging/connectors",
    f"#/clusters/staging/connectors/{quote(HOSTILE)}",
    "#/clusters/staging/tasks",
    "#/clusters/staging/offsets",
    "#/clusters/staging/transactions",
    "#/clusters/staging/topics",
    "#/clusters/staging/fencing",
    "#/clusters/staging/rights",
    "#/clusters/staging/history",
    "#/clusters/staging/rolls/newest",
    "#/clusters/staging/nowhere",
    "#/intervals",
    "#/intervals/staging/etl/flights",
    f"#/intervals/staging/etl/flights/{quote(RUN, safe='')}",
)

#: An address for each route of the application: a new route wants one here. A connection that is not there is a 404 for
#: whoever may ask.
ROUTES = {
    "/": "",
    "/static/{path:path}": "static/app.js",
    "/{icon}.svg": "icon.svg",
    "/{path:path}": "no/such/path",
    "/api/clusters": "api/clusters",
    "/api/clusters/{connection_id}": "api/clusters/nowhere",
    "/api/clusters/{connection_id}/drift": "api/clusters/nowhere/drift",
    "/api/clusters/{connection_id}/connectors": "api/clusters/nowhere/connectors",
    "/api/clusters/{connection_id}/tasks": "api/clusters/nowhere/tasks",
    "/api/clusters/{connection_id}/offsets": "api/clusters/nowhere/offsets?leftovers=true&page_size=500",
    "/api/clusters/{connection_id}/transactions": "api/clusters/nowhere/transactions?all=true",
    "/api/clusters/{connection_id}/hanging": "api/clusters/nowhere/hanging",
    "/api/clusters/{connection_id}/fencing": "api/clusters/nowhere/fencing",
    "/api/clusters/{connection_id}/topics": "api/clusters/nowhere/topics",
    "/api/clusters/{connection_id}/rights": "api/clusters/nowhere/rights?page_size=500",
    "/api/clusters/{connection_id}/rolls": "api/clusters/nowhere/rolls",
    "/api/clusters/{connection_id}/rolls/{rollout_id}": "api/clusters/nowhere/rolls/newest",
    "/api/clusters/{connection_id}/history": "api/clusters/nowhere/history",
    "/api/pipelines": "api/pipelines",
    "/api/clusters/{connection_id}/calendar": "api/clusters/nowhere/calendar?pipeline=flights",
    "/api/clusters/{connection_id}/interval": f"api/clusters/nowhere/interval?run={quote(RUN)}",
}


# how it is found


@pytest.mark.first
def test_who_signs_in_finds_the_page_in_airflows_navigation(visitors: Visitors, site: Site) -> None:
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
    expect(title(frame)).to_have_text("Clusters")
    expect(card(frame, "staging")).to_contain_text(DESCRIPTION)


def test_a_deep_link_stays_the_same_over_a_walk_a_reload_and_a_step_back(visit: Visit) -> None:
    frame = visit.inside()
    card(frame, "staging").get_by_role("link", name="staging", exact=True).click()
    frame.get_by_role("link", name="Connectors", exact=True).click()
    frame.get_by_role("searchbox").fill("flights")
    visit.page.wait_for_function("location.hash === '#/clusters/staging/connectors?search=flights'")
    assert visit.page.url.startswith(f"{visit.site.root}/plugin/exactly-once")
    visit.page.reload(wait_until="commit")
    expect(frame.get_by_role("searchbox")).to_have_value("flights")
    frame.get_by_role("link", name="Tasks", exact=True).click()
    expect(title(frame)).to_have_text("Tasks")
    visit.page.go_back()
    expect(title(frame)).to_have_text("Connectors")
    expect(frame.get_by_role("searchbox")).to_have_value("flights")


def test_links_lead_in_from_elsewhere_in_airflow_and_out_again(visit: Visit, site: Site) -> None:
    frame = visit.inside("#/clusters/staging/tasks")  # as the links of operators are
    expect(title(frame)).to_have_text("Tasks")
    frame.get_by_role("navigation", name="Where you are").get_by_role("link", name="Clusters").click()
    card(frame, "staging").get_by_role("link", name="Connection in Airflow").click()
    visit.page.wait_for_url(f"{site.root}/connections")
    page = visit.alone("#/clusters/staging")
    page.get_by_role("link", name="Airflow", exact=True).click()
    visit.page.wait_for_url(f"{site.root}/")


def test_a_connection_is_made_in_airflows_form(visit: Visit, site: Site) -> None:
    page = visit.page
    page.goto(f"{site.root}/connections")
    page.get_by_role("button", name="Add Connection").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Connection ID").fill("typed")
    kind = form.get_by_role("combobox", name="Connection Type")
    kind.fill("Kafka Connect")
    kind.press("Enter")
    (closed,) = free_ports(1)
    form.get_by_label("REST URL").fill(f"http://127.0.0.1:{closed}")
    form.get_by_role("button", name="Extra Fields", exact=True).click()
    for label, value in {"Bootstrap servers": f"127.0.0.1:{closed}", "Group": "connect-typed"}.items():
        form.get_by_role("group").filter(has_text=re.compile(f"^{label}")).get_by_role("textbox").fill(value)
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)
    try:
        failures = visit.alone("#/clusters/typed/connectors").locator(".failures")
        expect(failures).to_contain_text(f"The Kafka cluster at 127.0.0.1:{closed} did not answer")
        expect(failures).to_contain_text("describing group connect-typed")
        expect(failures).to_contain_text("No worker answers")  # and not "lists no workers"
    finally:
        with site.airflow.rest() as rest:
            rest._once("DELETE", "/api/v2/connections/typed")


# how it is used


def test_a_dead_cluster_has_a_card_that_says_what_to_do_and_names_from_elsewhere_are_text(visit: Visit) -> None:
    page = visit.alone("#/clusters")
    for name in ("staging", "unnamed"):
        dead = card(page, name)
        expect(dead.locator(".failures strong").first).to_be_visible()
        expect(dead.locator(".remedy").first).not_to_be_empty()
    expect(card(page, "unnamed").locator(".facts code").first).to_have_text(HOSTILE)
    expect(card(page, "staging")).to_contain_text(f"{DESCRIPTION} {HOSTILE}")
    assert page.locator("main img").count() == 0
    assert CANARY not in page.content()
    assert page.title() == "Clusters · Exactly once"


def test_what_was_not_seen_of_a_dead_cluster_is_not_known_and_not_nothing(visit: Visit) -> None:
    page = visit.alone("#/clusters/staging/connectors")
    expect(page.locator(".failures")).to_contain_text("No worker answers, so connectors and tasks are unknown.")
    expect(page.locator(".empty")).to_have_count(0)
    page = visit.alone("#/clusters/staging/fencing")
    expect(page.locator(".age")).to_have_text("no answer")  # and looks no more
    page = visit.alone("#/clusters")
    for name in ("Connectors", "Tasks", "Pending fencings", "Open transactions", "Hanging", "Drift", "Newest roll"):
        expect(fact(card(page, "staging"), name)).to_have_text("unknown")


def test_the_keyboard_leads_to_the_search_and_from_view_to_view(visit: Visit, site: Site) -> None:
    page = visit.alone("#/clusters")
    expect(card(page, "unnamed")).to_be_visible()
    page.locator("body").press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("staging")
    expect(card(page, "unnamed")).to_have_count(0)
    expect(page).to_have_url(f"{site.url}#/clusters?search=staging")
    page.get_by_role("link", name="staging", exact=True).press("Enter")
    expect(title(page)).to_have_text("staging")
    expect(title(page)).to_be_focused()
    assert page.title() == "staging · Exactly once"


def test_the_page_is_dark_and_light_as_airflow_is(visitors: Visitors) -> None:
    visit = visitors.visit(theme="light")
    visit.page.add_init_script("localStorage.setItem('theme', 'dark')")  # Airflow's own choice, not the system's
    frame = visit.inside("#/clusters")
    expect(frame.locator("html")).to_have_attribute("data-theme", "dark")
    expect(frame.locator("html")).to_have_css("background-color", "rgb(17, 17, 19)")
    expect(title(frame)).to_have_text("Clusters")
    visit.page.evaluate("document.documentElement.classList.replace('dark', 'light')")
    expect(frame.locator("html")).to_have_attribute("data-theme", "light")
    expect(frame.locator("html")).to_have_css("background-color", "rgb(255, 255, 255)")


def test_a_hidden_page_asks_nothing_until_it_is_seen_again(visit: Visit) -> None:
    visit.page.clock.install()
    page = visit.alone("#/clusters")
    expect(card(page, "staging")).to_be_visible()
    page.evaluate(
        """() => {
            window.asked = 0;
            const real = window.fetch;
            window.fetch = (...given) => { window.asked += 1; return real(...given); };
            window.isHidden = true;
            Object.defineProperty(document, "hidden", { get: () => window.isHidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    page.clock.run_for(120_000)
    assert page.evaluate("window.asked") == 0
    page.evaluate("() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }")
    page.wait_for_function("window.asked > 0")


def test_every_view_fits_a_wide_screen_can_be_used_by_everybody_and_keeps_secrets(visitors: Visitors) -> None:
    """In the light theme; ``test_figures.py`` has the dark one on a narrow screen."""
    visit = visitors.visit("wide", "light")
    visit.alone("#/intervals")
    for view in VIEWS:
        page = visit.walk_to(view)
        expect(title(page)).not_to_be_empty()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} is wider than the screen"
        assert CANARY not in page.content(), f"{view} has a secret"
        assert page.locator("main img").count() == 0
        violations = axe(page)
        assert not violations, f"{view}: {json.dumps(violations, indent=1)}"


# who gets it


def test_every_route_is_for_roles_that_may_see_connections(site: Site) -> None:
    assert ROUTES.keys() == {route.path for route in create_app().routes}  # type: ignore[attr-defined]
    for role in (None, *ROLES):
        with site.client(role) as client:
            for route, address in ROUTES.items():
                allowed = 404 if "{connection_id}" in route or route == "/{path:path}" else 200
                wanted = 401 if role is None else allowed if ROLES[role] else 403
                answer = client.get(address)
                assert answer.status_code == wanted, f"{address} for {role}: {answer.status_code}"
                assert "default-src 'none'" in answer.headers["content-security-policy"], address
                assert CANARY not in answer.text, address


def test_scripts_styles_and_pictures_are_for_nobody_else_either(site: Site) -> None:
    files = sorted(f"static/{path.relative_to(STATIC)}" for path in STATIC.rglob("*") if path.is_file())
    assert len(files) > 20
    with site.client(None) as nobody, site.client("viewer") as viewer:
        for file in files:
            assert (nobody.get(file).status_code, viewer.get(file).status_code) == (401, 403), file


@pytest.mark.parametrize("user", ["viewer", "user"])
def test_a_user_who_may_not_see_connections_sees_nothing_of_the_page(visitors: Visitors, site: Site, user: str) -> None:
    visit = visitors.visit(user=user)
    page = visit.alone("")
    expect(page.locator("body")).to_contain_text("Forbidden")
    assert "staging" not in page.content()
    assert any(problem.startswith("answer 403") for problem in visit.problems)
    visit.problems.clear()
