"""What the page shows of a real cluster, in a real browser, beside what ``eos`` prints of it; first of all its roll.

With ``EOS_PICTURES=docs/pictures``, ``-k pictures`` makes the pictures of the documents anew.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Route, expect

from airflow_eos_provider.changes.offsets.change import ALTER, AlterRequest
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.errors import GateFailedError
from airflow_eos_provider.interval.interval import Interval, Run
from airflow_eos_provider.interval.messages import Stage
from airflow_eos_provider.interval.pipeline import Pipeline
from airflow_eos_provider.interval.protocol.coordinator import Coordinator
from airflow_eos_provider.lab.lab import Lab, LabOptions
from airflow_eos_provider.rollout.controller import Controller
from tests import seen
from tests.browser.cluster_site import ClusterSite, card, cell, cluster_site, fact, rows, title
from tests.browser.conftest import CANARY, HOSTILE, LONG, LONG_MS, Visit, Visitors, axe
from tests.browser.live_roll import (
    LOOKED,
    RESTARTS,
    SETTINGS,
    Roll,
    it_has_ended_as_the_command_prints,
    row_of,
    the_first_is_restarted,
    the_second_is_restored,
)
from tests.changed import changed
from tests.chromium import need_chromium
from tests.faults.line_slices import plan_files, write_slices
from tests.page_server import page_server
from tests.system.modes import bring_to
from tests.waiting import status_of, wait_for

pytestmark = pytest.mark.timeout(1800)

expect.set_options(timeout=LONG_MS)

#: After so long the page asks again (``look.js``).
REFRESH_MS = 5_000

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONNECTORS = ("airports", "flights", "weather")

#: A connector that has run exactly-once, and was stopped since: its next tasks wait for a fencing round.
STOPPED = "pilots"

#: Offsets of a connector that is gone, more than a page has.
GONE, LEFTOVERS = "planes", 60

ACTOR, REASON = "ada", "CHG-0042: flights exactly once"
PIPELINE, PIPELINE_GROUP = "arrivals", "intervals"

CALENDAR = f"#/intervals/production/{PIPELINE_GROUP}/{PIPELINE}"
FIRST_RUN = f"{PIPELINE}@2013-01-01T00:00:00Z/2013-01-02T00:00:00Z"

#: Each view of a cluster that is there, and what is there once it shows what was looked for.
VIEWS = {
    "clusters": ("#/clusters", "enabled"),
    "overview": ("#/clusters/production", "Expected by:"),
    "connectors": ("#/clusters/production/connectors", "RUNNING"),
    "connector": (f"#/clusters/production/connectors/{CONNECTORS[0]}", "lines-0.txt"),
    "tasks": ("#/clusters/production/tasks", "RUNNING"),
    "offsets": ("#/clusters/production/offsets", "lines-0.txt"),
    "transactions": ("#/clusters/production/transactions", "No transaction hangs."),
    "fencing": ("#/clusters/production/fencing", "Connect does its own when tasks start"),
    "topics": ("#/clusters/production/topics", "offsets topic"),
    "rights": ("#/clusters/production/rights", "The brokers have no authorizer"),
    "history": ("#/clusters/production/history", REASON),
    "roll": ("#/clusters/production/rolls/newest", "Downtime measured"),
    "pipelines": ("#/intervals", PIPELINE),
    "calendar": (CALENDAR, "5 complete"),
    "interval": (f"{CALENDAR}/{quote(FIRST_RUN, safe='')}", "Committed"),
}


@pytest.fixture(scope="module")
def prepared(lab_factory: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSite]:
    """Of a cluster whose roll to enabled is still to come."""
    need_chromium()
    folder = tmp_path_factory.mktemp("page")
    lab = lab_factory(LabOptions(name="page", workers=2, mode=Mode.PREPARING, rebalance_delay_ms=500))
    _create_connectors(lab)
    _write_intervals(lab, folder)
    _leave_offsets(lab)
    with cluster_site(lab, folder) as site:
        yield site


@pytest.fixture(scope="module")
def site(prepared: ClusterSite) -> ClusterSite:
    """Of a cluster that is enabled; where the roll that is followed has not done that, another one does."""
    if seen.modes(prepared.lab) != {Mode.ENABLED}:
        with Controller(prepared.lab.cluster(), settings=SETTINGS, actor=ACTOR, reason=REASON) as controller:
            controller.apply(controller.plan(Mode.ENABLED))
    _stop_one(prepared)
    return prepared


def _create_connectors(lab: Lab) -> None:
    """File sources, each with a secret in its configuration; the one with the hostile name never starts."""
    with ConnectRest(lab.connect_urls[0], retry_seconds=60) as rest:
        for number, name in enumerate((*CONNECTORS, HOSTILE, STOPPED)):
            lab.create_topic(f"lines-{number}", 1)
            file = lab.data_dir / f"lines-{number}.txt"
            file.write_text("" if name == STOPPED else "one\ntwo\n", encoding="utf-8")
            config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": f"lines-{number}", "file": str(file)}
            state = "STOPPED" if name == HOSTILE else None
            rest.create(name, {**config, "database.password": CANARY}, initial_state=state)


def _stop_one(site: ClusterSite) -> None:
    with ConnectRest(site.lab.connect_urls[0], retry_seconds=60) as rest:
        rest.stop(STOPPED)
        wait_for("its task to end", lambda: not status_of(rest, STOPPED).tasks)
    wait_for("the round to be due", lambda: site.eos("fencing", "list", "--pending")["connectors"])
    wait_for("the other tasks to have their places", lambda: _is_placed(site.eos("status")))


def _is_placed(status: dict[str, Any]) -> bool:
    """What moves between two looks could not be compared."""
    return status["state"] == "Stable" and sum(len(each["tasks"]) for each in status["workers"]) == len(CONNECTORS)


def _write_intervals(lab: Lab, folder: Path) -> None:
    """Days of a pipeline: most are complete, one of them twice, one is missing, and the last one is under way."""
    lab.create_topic("arrivals", 3)
    pipeline = Pipeline(PIPELINE, PIPELINE_GROUP, lab.kafka, topic="arrivals", ledger_partitions=2)
    file = folder / "lines.txt"
    for day, revision in ((1, 1), (2, 1), (3, 1), (3, 2), (4, 1), (6, 1), (7, 1), (8, 1)):
        file.write_text("".join(f"{day}-{line}\n" for line in range(20 + 9 * day % 13)), encoding="utf-8")
        start = datetime(2013, 1, day, tzinfo=UTC)
        run = Run(PIPELINE, Interval(start, start + timedelta(days=1)), revision)
        plan = plan_files(run, [file], file.stat().st_size // 4 + 1)
        with Coordinator(pipeline, run) as coordinator:
            stage = coordinator.begin(lambda plan=plan: plan, 2)  # type: ignore[misc]
            assert isinstance(stage, Stage)
            is_under_way = day == 8
            for number in range(1 if is_under_way else stage.tasks):
                write_slices(pipeline, stage, number)
            if not is_under_way:
                coordinator.finish(stage)


def _leave_offsets(lab: Lab) -> None:
    """Offsets of a connector that does not exist, with a password in the address that each was read from."""
    wanted = [
        {
            "partition": {"url": f"mongodb://ada:{CANARY}@db/planes", "shard": f"s{number}"},
            "offset": {"position": number},
        }
        for number in range(LEFTOVERS)
    ]
    request = AlterRequest(connector=GONE, offsets=json.dumps(wanted), absent=True)
    changed(lab.cluster(), ALTER, request, actor=ACTOR, reason=REASON)


def test_a_roll_is_followed_worker_by_worker_over_a_failure_to_its_end(prepared: ClusterSite, browser: Browser) -> None:
    """Nobody loads the page again."""
    lab = prepared.lab
    bring_to(lab, Mode.PREPARING)  # another test may have had it rolled
    visit = Visitors(prepared, browser).visit()
    with Controller(lab.cluster(), settings=SETTINGS) as controller:
        plan = controller.plan(Mode.ENABLED)

    with Roll(lab, plan, REASON) as roll:
        first = roll.held()
        page = visit.alone("#/clusters/production/rolls/newest")
        page.evaluate("window.isTheSame = true")
        expect(title(page)).to_have_text("Roll preparing → enabled")
        expect(fact(page, "State")).to_contain_text("running")
        expect(fact(page, "Workers")).to_have_text("0 of 2 passed")
        expect(fact(page, "Ended")).to_have_text("–")
        the_first_is_restarted(page, roll, first)
        second = roll.goes_on_to(RESTARTS)
        assert second != first
        expect(fact(page, "Workers")).to_have_text("1 of 2 passed")
        expect(cell(row_of(page, second), "Status")).to_contain_text("intent")

        assert roll.goes_on_to(LOOKED) == second
        expect(cell(row_of(page, second), "Status")).to_contain_text("restarted")
        os.kill(seen.pids(lab)[second], signal.SIGKILL)
        roll.ends()
    error = roll.error
    assert isinstance(error, GateFailedError), error
    the_second_is_restored(page, second, error)

    with Roll(lab, plan, REASON) as again:
        assert again.held() == second
        expect(fact(page, "State")).to_contain_text("running")
        expect(cell(row_of(page, second), "Status")).to_contain_text("intent")
        again.ends()
        assert again.error is None, again.error
    it_has_ended_as_the_command_prints(page, prepared)
    assert page.evaluate("window.isTheSame"), "the page was loaded again"
    visit.context.close()
    assert visit.problems == []


def test_a_card_shows_what_status_prints(visit: Visit, site: ClusterSite) -> None:
    status = site.eos("status")
    page = visit.alone("#/clusters")
    production = card(page, "production")
    expect(fact(production, "Mode")).to_contain_text("enabled")
    expect(fact(production, "Group")).to_contain_text(status["group_id"])
    expect(fact(production, "Workers")).to_have_text(f"{len(status['workers'])} workers")
    for what, states in (
        ("Connectors", [each["state"] for each in status["connectors"]]),
        ("Tasks", [task["state"] for each in status["connectors"] for task in each["tasks"]]),
    ):
        for state in set(states):
            expect(fact(production, what)).to_contain_text(f"{states.count(state)} {state}")
    expect(fact(production, "Pending fencings")).to_have_text("1 pending")
    expect(fact(production, "Hanging")).to_have_text("none")
    expect(fact(production, "Drift")).to_contain_text("none")
    expect(fact(production, "Newest roll")).to_contain_text("preparing → enabled, 2 of 2 workers")
    expect(production.locator(".age")).to_contain_text("ago")


def test_an_overview_names_each_worker_with_its_evidence(visit: Visit, site: ClusterSite) -> None:
    status = site.eos("status")
    page = visit.alone("#/clusters/production")
    expect(rows(page, "Workers of the group")).to_have_count(len(status["workers"]))
    for worker in status["workers"]:
        row = rows(page, "Workers of the group").filter(has_text=worker["worker"])
        expect(cell(row, "Mode")).to_contain_text("enabled")
        expect(cell(row, "Health")).to_contain_text("healthy")
        expect(cell(row, "Tasks")).to_have_text(str(len(worker["tasks"])))
        evidence = page.locator(".evidence").filter(has_text=worker["worker"])
        expect(evidence).to_contain_text(worker["reason"])
        for source, name in (("declared", "Its file says"), ("running", "Its process runs")):
            expect(fact(evidence, name)).to_contain_text(worker[source]["detail"])


def test_connectors_and_tasks_are_what_status_prints_and_a_hostile_name_is_text(
    visit: Visit, site: ClusterSite
) -> None:
    connectors = {each["connector"]: each for each in site.eos("status")["connectors"]}
    assert connectors.keys() == {*CONNECTORS, HOSTILE, STOPPED}
    page = visit.alone("#/clusters/production/connectors")
    expect(rows(page, "Connectors")).to_have_count(len(connectors))
    for name, connector in connectors.items():
        row = rows(page, "Connectors").filter(has=page.get_by_role("link", name=name, exact=True))
        expect(cell(row, "State")).to_contain_text(connector["state"])
        expect(cell(row, "Type")).to_have_text("source")

    page.get_by_role("link", name=HOSTILE, exact=True).press("Enter")
    expect(title(page)).to_have_text(HOSTILE)
    expect(title(page)).to_be_focused()
    expect(fact(page, "State")).to_contain_text("STOPPED")
    assert page.locator("main img").count() == 0
    assert page.title() == f"{HOSTILE} · Exactly once"

    page = visit.alone("#/clusters/production/tasks")
    expect(rows(page, "Tasks")).to_have_count(len(CONNECTORS))
    tasks = {f"{site.lab.group_id}-{name}-0" for name in CONNECTORS}
    transactions = [each for each in site.eos("status")["transactions"] if each["transactional_id"] in tasks]
    assert len(transactions) == len(CONNECTORS)
    for transaction in transactions:
        row = rows(page, "Tasks").filter(has_text=transaction["transactional_id"])
        expect(cell(row, "Epoch")).to_have_text(str(transaction["producer_epoch"]))
        expect(cell(row, "State")).to_contain_text("RUNNING")


def test_offsets_are_what_the_command_prints_paged_searched_and_without_secrets(
    visit: Visit, site: ClusterSite
) -> None:
    page = visit.alone("#/clusters/production/offsets")
    expect(rows(page, "Source offsets")).to_have_count(len(CONNECTORS))
    for name in CONNECTORS:
        (offset,) = site.eos("offsets", "list", name)
        row = rows(page, "Source offsets").filter(has_text=name)
        expect(cell(row, "Offset")).to_have_text(json.dumps(offset["offset"], separators=(",", ":")))
        expect(cell(row, "Topic")).to_contain_text(offset["topic"])

    page.get_by_label("leftovers").check()
    expect(page.locator(".range")).to_have_text(f"1–50 of {LEFTOVERS} found of {LEFTOVERS + len(CONNECTORS)}")
    expect(cell(rows(page, "Source offsets").first, "Partition")).to_contain_text("mongodb://***@db/planes")
    page.get_by_role("button", name="Next page").click()
    expect(page.locator(".range")).to_contain_text(f"51–{LEFTOVERS} of")
    expect(page.get_by_role("button", name="Last page")).to_be_disabled()
    assert "page=2" in page.url

    page.locator("body").press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(f"{GONE} s59")
    expect(page.locator(".range")).to_contain_text("1–1 of 1 found")
    page.keyboard.type(" nothing-of-this")
    expect(page.locator(".empty")).to_contain_text("No offset matches")
    page.get_by_role("searchbox").fill(CANARY)
    expect(page.locator(".empty")).to_contain_text("No offset matches")


def test_an_answer_to_an_earlier_search_that_comes_late_replaces_nothing(visit: Visit, site: ClusterSite) -> None:
    visit.page.clock.install()
    page = visit.alone("#/clusters/production/offsets?leftovers=true")
    search, found = page.get_by_role("searchbox"), page.locator(".range")
    expect(found).to_contain_text(f"of {LEFTOVERS} found")
    held: list[Route] = []
    page.route(re.compile(rf"/offsets\?.*search={GONE}(&|$)"), lambda route: held.append(route))
    with page.expect_request(re.compile(rf"search={GONE}(&|$)")):
        search.fill(GONE)
    search.fill(f"{GONE} s59")
    expect(found).to_contain_text("1–1 of 1 found")
    page.evaluate(
        """() => {
            window.found = [];
            const look = () => window.found.push(document.querySelector(".range")?.textContent);
            new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
        }"""
    )
    assert held
    for route in held:
        route.continue_()
    for _ in range(2):  # of two looks at what was asked for last, the second begins after the late answer
        with page.expect_response(lambda response: "s59" in response.url):
            page.clock.run_for(REFRESH_MS)
    assert {text for text in page.evaluate("window.found") if "1–1 of 1 found" not in str(text)} == set()


def test_transactions_topics_and_rights_are_what_the_commands_print(visit: Visit, site: ClusterSite) -> None:
    page = visit.alone("#/clusters/production/transactions")
    ids = site.eos("transactions", "list")
    expect(rows(page, "Transactional ids")).to_have_count(len(ids))
    for each in ids:
        row = rows(page, "Transactional ids").filter(has_text=each["id"])
        expect(cell(row, "Producer")).to_have_text(str(each["producer_id"]))
        expect(cell(row, "Epoch")).to_have_text(str(each["producer_epoch"]))
    expect(page.locator("main")).to_contain_text("No transaction hangs.")

    page = visit.alone("#/clusters/production/topics")
    topics = site.eos("topics", "check")["topics"]
    expect(rows(page, "Topics of the group")).to_have_count(len(topics))
    for topic in topics:
        row = rows(page, "Topics of the group").filter(has_text=topic["role"])
        expect(cell(row, "Topic").first).to_contain_text(topic["topic"])
        expect(cell(row, "Partitions").first).to_have_text(str(topic["partitions"]))

    page = visit.alone("#/clusters/production/rights?search=transactional")
    expect(page.locator("main")).to_contain_text("The brokers have no authorizer")
    expect(rows(page, "Rights that exactly-once needs").first).to_contain_text("TransactionalId")


@contextmanager
def held_transaction(lab: Lab, transactional_id: str, topic: str) -> Iterator[None]:
    """A producer that has taken the id and leaves its transaction open, as one that was suspended does."""
    settings = {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 900_000})
    producer.init_transactions(LONG)
    producer.begin_transaction()
    producer.produce(topic, b"never to be seen")
    assert producer.flush(LONG) == 0
    try:
        yield
    finally:
        producer.abort_transaction(LONG)


def test_fencing_rounds_are_what_the_command_prints(visit: Visit, site: ClusterSite) -> None:
    with held_transaction(site.lab, f"{site.lab.group_id}-{STOPPED}-0", "lines-0"):
        printed = site.eos("fencing", "list")
        page = visit.alone("#/clusters")
        fact(card(page, "production"), "Pending fencings").get_by_role("link", name="1 pending").click()
        expect(title(page)).to_have_text("Fencing rounds")
        table = rows(page, "Fencing of source connectors")
        ids = cell(table, "Transactional ids")
        expect(ids).to_contain_text("1 id, 1 held open")  # the page may have looked before
        (due,) = [each for each in printed["connectors"] if each["pending_fencing"]]
        (held,) = due["ids"]
        assert (due["connector"], due["fence"], held["held"]) == (STOPPED, [0], True)
        expect(ids).to_contain_text(f"{held['id']} ◔ Ongoing producer {held['producer_id']}, epoch")
        expect(ids).to_contain_text("of 15 min, in lines-0-0")
        expect(cell(table, "A round would")).to_have_text("fence id 0")
        expect(page.locator("main")).to_contain_text(f"eos fencing apply --plan {printed['hash'][:12]}")

        page.get_by_label("pending only").uncheck()
        expect(table).to_have_count(len(printed["connectors"]))
        for each in printed["connectors"]:
            row = table.filter(has=page.get_by_role("link", name=each["connector"], exact=True))
            expect(cell(row, "Round")).to_contain_text("pending" if each["pending_fencing"] else "none")
            expect(cell(row, "Target state")).to_contain_text(each["target_state"])
            expect(cell(row, "Why")).to_have_text(each["why"])
        page.get_by_role("searchbox").fill("nothing-of-this")
        expect(page.locator(".empty")).to_contain_text("No fencing round matches")


def test_history_and_roll_are_what_the_journal_has(visit: Visit, site: ClusterSite) -> None:
    roll = site.eos("rollout", "show")
    (change,) = site.eos("changes", "list")
    page = visit.alone("#/clusters/production/history")
    expect(rows(page, "Rolls and changes")).to_have_count(2)
    expect(rows(page, "Rolls and changes").filter(has_text="offsets alter")).to_contain_text(change["about"])
    row = rows(page, "Rolls and changes").filter(has_text="preparing → enabled")
    expect(cell(row, "Who")).to_have_text(ACTOR)
    expect(cell(row, "Why")).to_have_text(REASON)
    expect(cell(row, "State")).to_contain_text("done")

    page.get_by_role("link", name="preparing → enabled").click()
    expect(title(page)).to_have_text("Roll preparing → enabled")
    expect(fact(page, "Workers")).to_have_text("2 of 2 passed")
    expect(fact(page, "Plan")).to_have_text(roll["plan"])
    expect(page.locator(".chart g")).to_have_count(2)  # a lane for each worker
    for worker in roll["workers"]:
        names_it = page.locator("td[data-label='Worker']", has_text=worker["worker"])  # conditions name others
        row = rows(page, "Workers of the roll").filter(has=names_it)
        expect(cell(row, "Status")).to_contain_text("passed")
        for took in ("Restarted in", "Gate", "Downtime measured"):
            expect(cell(row, took)).to_contain_text(re.compile(r"\d s"))
        row.locator("summary").click()
        expect(row.locator(".conditions li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "opened, it is wider than the screen"
    passed = rows(page, "Journal of the roll").filter(has=page.locator("td[data-label='What']", has_text="passed"))
    for worker in roll["workers"]:
        of_worker = passed.filter(has=page.locator("td[data-label='Worker']", has_text=worker["worker"]))
        expect(of_worker.first).to_be_visible()
    # bounds of a prediction that read alike are said once
    assert page.evaluate(
        """async () => {
            const { between } = await import(new URL("static/format.js", location.href).href);
            return [between(15, 15), between(15, 15.3), between(15, 30)];
        }"""
    ) == ["15 s", "15 s", "15 s to 30 s"]
    page.get_by_text("The plan as it was approved").click()
    expect(page.locator("pre.plan")).to_contain_text("exactly.once.source.support=enabled")


def test_intervals_are_what_the_command_prints_and_the_arrow_keys_walk_through_them(
    visit: Visit, site: ClusterSite
) -> None:
    runs = site.eos("intervals", "list", "--group", PIPELINE_GROUP, "--pipeline", PIPELINE)["runs"]
    page = visit.alone("#/intervals")
    row = rows(page, "Pipelines").filter(has_text="production")
    expect(cell(row, "Complete")).to_have_text(str(sum(run["state"] == "complete" for run in runs)))
    row.get_by_role("link", name=PIPELINE).click()
    for counted in ("1 revised", "1 running", "1 missing"):
        expect(fact(page, "Intervals")).to_contain_text(counted)
    cells = page.locator(".calendar .cell")
    expect(cells).to_have_count(8)
    expect(page.locator(".chart .good").first).to_be_visible()

    page.locator(".calendar a").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    second = next(run for run in runs if "2013-01-02T" in run["run"].split("/")[0])
    expect(fact(page, "Records")).to_have_text(str(second["records"]))
    expect(fact(page, "State")).to_contain_text("complete")
    expect(rows(page, "Slices")).to_have_count(second["slices"])
    expect(rows(page, "Attempts")).to_have_count(1)

    page.go_back()
    page.locator(".chart .link").first.click()
    expect(page).to_have_url(f"{site.url}{CALENDAR}/{quote(FIRST_RUN, safe='')}")
    assert page.evaluate(
        """async () => {
            const { cut, levels, times } = await import(new URL("static/chart.js", location.href).href);
            return [levels(0), levels(3), levels(31), times(61, 179, 3), cut("a-worker:8083", 35)];
        }"""
    ) == [[0, 1], [0, 1, 2, 3], [0, 10, 20, 30, 40], [120], "a-wo…"]


def test_every_view_fits_a_narrow_screen_can_be_used_by_everybody_and_keeps_secrets(visitors: Visitors) -> None:
    """In the dark theme; ``test_page.py`` has the light one on a wide screen."""
    visit = visitors.visit("narrow", "dark")
    visit.alone("#/intervals")
    for name, (view, shown) in VIEWS.items():
        page = visit.walk_to(view)
        expect(page.locator("main")).to_contain_text(shown)
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the screen"
        assert CANARY not in page.content(), f"{name} has a secret"
        violations = axe(page)
        assert not violations, f"{name}: {json.dumps(violations, indent=1)}"


def test_what_one_process_has_shown_is_not_taken_away_by_another_that_has_not_looked(
    site: ClusterSite, browser: Browser
) -> None:
    """Of an API server with two processes each looks by itself, and here they answer in turn."""
    with page_server(processes=2) as url:
        visit = Visitors(replace(site, url=url), browser).visit()
        visit.page.clock.install()
        page = visit.alone("#/clusters")
        expect(fact(card(page, "production"), "Drift")).to_contain_text("none")
        page.evaluate(
            """() => {
                window.less = [];
                const look = () => {
                    const shown = document.querySelector("article")?.textContent ?? "no card";
                    if (!shown.includes("workers") || shown.includes("looking …")) window.less.push(shown);
                };
                const all = { subtree: true, childList: true, characterData: true };
                new MutationObserver(look).observe(document.body, all);
            }"""
        )
        for _ in range(6):
            with page.expect_response(lambda response: response.url.endswith("/api/clusters")):
                page.clock.run_for(REFRESH_MS)
        assert page.evaluate("window.less") == []
        visit.context.close()
    assert visit.problems == []


PICTURES = {
    "clusters": ("#/clusters", "preparing → enabled"),
    "roll": VIEWS["roll"],
    "calendar": VIEWS["calendar"],
}


def test_pictures_of_the_documents_are_of_the_page_as_it_is(visitors: Visitors, tmp_path: Path) -> None:
    folder = Path(os.environ.get("EOS_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    visit = visitors.visit("wide")
    for name, (view, shown) in PICTURES.items():
        page = visit.alone(view)
        expect(page.locator("main")).to_contain_text(shown)
        expect(page.locator(".age:visible").first).to_contain_text("ago")
        expect(page.locator(".age.old")).to_have_count(0)
        for chart in page.locator(".chart").all():
            expect(chart.locator("rect").first).to_be_visible()
        picture = page.screenshot(path=folder / f"{name}.png", animations="disabled")
        assert len(picture) > 10_000, name
