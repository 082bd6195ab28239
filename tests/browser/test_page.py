"""The page in a real browser, in a real Airflow, on real clusters: what it shows, to whom, and how it is used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Frame, Locator, Page, expect

from tests.browser.conftest import (
    CANARY,
    HOSTILE,
    LONG_MS,
    MANY_CONNECTORS,
    MANY_TASKS,
    QUIET,
    ROLES,
    Site,
    Visit,
    Visitors,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

expect.set_options(timeout=LONG_MS)

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def card(place: Frame | Page, connection: str) -> Locator:
    return place.get_by_role("article", name=connection, exact=True)


def fact(place: Locator | Frame | Page, name: str) -> Locator:
    """What is said beside a name."""
    return place.locator(".facts > div").filter(has=place.locator(f"dt:text-is('{name}')")).locator("dd")


def rows(place: Frame | Page, table: str) -> Locator:
    return place.get_by_role("table", name=table).locator("tbody tr")


def test_a_card_shows_what_status_prints_and_a_dead_cluster_holds_up_no_other(visit: Visit, site: Site) -> None:
    status = site.eos("status")
    frame = visit.open()

    production = card(frame, "production")
    expect(fact(production, "Mode")).to_contain_text("preparing")
    expect(fact(production, "Group")).to_contain_text(status["group_id"])
    expect(fact(production, "Workers")).to_have_text(f"{len(status['workers'])} workers")
    running = sum(task["state"] == "RUNNING" for each in status["connectors"] for task in each["tasks"])
    expect(fact(production, "Tasks")).to_contain_text(f"{running} RUNNING")
    expect(production.locator(".age")).to_contain_text("ago")

    dead = card(frame, "dead")
    expect(dead.locator(".failures strong").first).to_be_visible()
    expect(dead.locator(".remedy").first).not_to_be_empty()


def test_an_overview_names_each_worker_with_its_evidence(visit: Visit, site: Site) -> None:
    status = site.eos("status")
    page = visit.alone("#/clusters/production")
    expect(rows(page, "Workers of the group")).to_have_count(len(status["workers"]))
    for worker in status["workers"]:
        evidence = page.locator(".evidence").filter(has_text=worker["worker"])
        expect(evidence).to_contain_text(worker["reason"])
        expect(evidence).to_contain_text(worker["declared"]["detail"])


def test_connectors_are_what_status_prints_and_a_hostile_name_is_text(visit: Visit, site: Site) -> None:
    names = [each["connector"] for each in site.eos("status")["connectors"]]
    assert HOSTILE in names
    page = visit.alone("#/clusters/production/connectors")
    expect(rows(page, "Connectors")).to_have_count(len(names))
    link = page.get_by_role("link", name=HOSTILE, exact=True)
    expect(link).to_be_visible()
    link.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(rows(page, f"Tasks of {HOSTILE}")).to_have_count(1)
    assert page.locator("main img").count() == 0
    assert "owned" not in page.title()


def test_offsets_are_what_the_command_prints(visit: Visit, site: Site) -> None:
    page = visit.alone(f"#/clusters/production/offsets?connector={QUIET}")
    row = rows(page, "Source offsets").first
    expect(row).to_contain_text('{"position":8}')
    expect(row).to_contain_text("lines-0.txt")


def test_a_deep_link_stays_the_same_over_a_walk_and_a_reload(visit: Visit) -> None:
    frame = visit.open()
    card(frame, "production").get_by_role("link", name="production").click()
    frame.get_by_role("link", name="Connectors", exact=True).click()
    frame.get_by_role("searchbox").fill(QUIET)
    expect(rows(frame, "Connectors")).to_have_count(1)
    visit.page.wait_for_function("location.hash === '#/clusters/production/connectors?search=flights'")
    visit.page.reload(wait_until="commit")
    frame = visit.frame()
    expect(rows(frame, "Connectors")).to_have_count(1)
    expect(frame.get_by_role("searchbox")).to_have_value(QUIET)

    visit.page.go_back()
    expect(frame.get_by_role("heading", level=1)).not_to_have_text("")


def test_thousands_of_tasks_are_paged_and_searched(visit: Visit) -> None:
    page = visit.alone("#/clusters/many/tasks")
    total = f"{MANY_CONNECTORS * MANY_TASKS:,}"
    expect(page.locator(".range")).to_have_text(f"1–50 of {total}")
    page.get_by_role("button", name="Next page").click()
    expect(page.locator(".range")).to_have_text(f"51–100 of {total}")
    assert "page=2" in page.url
    page.get_by_role("button", name="Last page").click()
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()

    page.locator("body").press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("c199 9")
    expect(page.locator(".range")).to_contain_text(f"found of {total}")
    expect(rows(page, "Tasks").first).to_contain_text("c199")
    page.keyboard.type(" no-such-task")
    expect(page.locator(".empty")).to_contain_text("No task matches")


def test_a_hidden_page_asks_nothing_until_it_is_seen_again(visit: Visit) -> None:
    page = visit.alone("#/clusters/production")
    expect(page.locator(".age")).to_contain_text("ago")
    page.evaluate(
        """() => {
            window.asked = 0;
            const real = window.fetch;
            window.fetch = (...given) => { window.asked += 1; return real(...given); };
            Object.defineProperty(document, "hidden", { get: () => window.isHidden, configurable: true });
            window.isHidden = true;
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    page.wait_for_timeout(11_000)  # two of its pauses between looks
    assert page.evaluate("window.asked") == 0
    page.evaluate("() => { window.isHidden = false; document.dispatchEvent(new Event('visibilitychange')); }")
    page.wait_for_function("window.asked > 0")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_dark_and_light_as_airflow_is(visitors: Visitors, theme: str) -> None:
    visit = visitors.visit(theme="light" if theme == "dark" else "dark")  # the system says the other
    visit.page.add_init_script(f"localStorage.setItem('theme', '{theme}')")
    frame = visit.open()
    expect(frame.locator("html")).to_have_attribute("data-theme", theme)
    ground = frame.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (theme == "dark")
    visit.page.evaluate(
        "other => document.documentElement.classList.replace(other === 'dark' ? 'light' : 'dark', other)",
        "light" if theme == "dark" else "dark",
    )
    expect(frame.locator("html")).to_have_attribute("data-theme", "light" if theme == "dark" else "dark")


VIEWS = {
    "clusters": ("#/clusters", "production"),
    "overview": ("#/clusters/production", "Why each worker has its mode"),
    "connectors": ("#/clusters/production/connectors", "RUNNING"),
    "connector": (f"#/clusters/production/connectors/{QUIET}", "Source offsets"),
    "tasks": ("#/clusters/many/tasks", "c0"),
    "offsets": ("#/clusters/production/offsets", "position"),
    "transactions": ("#/clusters/production/transactions", "Hanging"),
    "history": ("#/clusters/production/history", "journal"),
    "dead": ("#/clusters/dead/connectors", "Connectors"),
    "nowhere": ("#/clusters/production/nowhere", "There is no such view"),
}


@pytest.mark.parametrize("size", ["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_can_be_used_by_everybody(visitors: Visitors, size: str, theme: str) -> None:
    visit = visitors.visit(size, theme)
    for name, (view, shown) in VIEWS.items():
        page = visit.alone(view)
        expect(page.locator("main")).to_contain_text(shown)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the screen"
        violations = axe(page)
        assert not violations, f"{name}, {theme}, {size}: {json.dumps(violations, indent=1)}"
    assert not visit.problems


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


def test_each_role_gets_the_page_or_a_refusal_and_nobody_else_anything(site: Site) -> None:
    static = Path(__file__).parents[2] / "airflow_eos_provider" / "ui" / "static"
    files = sorted(f"/static/{path.relative_to(static)}" for path in static.rglob("*") if path.is_file())
    paths = ["/", "/api/clusters", "/api/clusters/production", "/api/clusters/many/tasks", "/no-such-path", *files]
    tokens = {role: site.token(role) for role in ROLES}
    for path in paths:
        wanted = 404 if path == "/no-such-path" else 200
        assert site.get(path, None).status_code == 401, path
        for role, may_see in ROLES.items():
            answer = site.get(path, tokens[role])
            assert answer.status_code == (wanted if may_see else 403), f"{path} for {role}"


def test_no_secret_is_in_any_answer(site: Site) -> None:
    token = site.token("admin")
    for connection in ("production", "dead"):
        for document in ("", "/connectors", "/tasks", "/offsets", "/transactions"):
            text = site.get(f"/api/clusters/{connection}{document}", token).text
            assert "looked_at" in text
            assert CANARY not in text
    assert CANARY not in site.get("/api/clusters", token).text
