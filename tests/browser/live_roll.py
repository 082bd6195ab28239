"""A roll that goes on while the page is looked at: it waits until the test has seen what it wants to see."""

from __future__ import annotations

import re
import threading
from types import TracebackType
from typing import Any

from playwright.sync_api import Locator, Page, expect

from airflow_eos_provider.errors import GateFailedError
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.rollout.controller import Controller
from airflow_eos_provider.rollout.plan.roll_plan import Plan
from airflow_eos_provider.rollout.roll_settings import RolloutSettings
from tests.browser.cluster_site import ClusterSite, cell, fact, rows
from tests.browser.conftest import LONG
from tests.waiting import until

#: The roll waits for the page, so its lease, its restarts and its gates outlast whatever the page takes.
SETTINGS = RolloutSettings(
    poll_interval_seconds=0.5,
    hold_seconds=1.0,
    gate_timeout_seconds=1500.0,
    stop_grace_seconds=600.0,
    lease_seconds=1700.0,
)

#: Lines of a roll's progress: a restart is under way, the old process has ended, the gate is looked at.
RESTARTS, STOPPED, LOOKED = r": stopping pid \d+$", r": pid \d+ has ended$", r"checks pass"
#: All holds at the gate, it is passed.
ALL_HOLD, PASSED = r": all \d+ checks pass", r": gate passed"


class Roll:
    """A roll in a thread, which waits after a line of its progress until the test has seen what it wants to see."""

    def __init__(self, lab: Lab, plan: Plan, reason: str) -> None:
        self.error: BaseException | None = None
        self._lab, self._plan, self._reason = lab, plan, reason
        self._turn = threading.Condition()
        self._pattern: str | None = RESTARTS
        self._held = ""
        self._thread = threading.Thread(target=self._run, name="roll", daemon=True)

    def __enter__(self) -> Roll:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._go_on_to(None)
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the roll has not ended"

    def _run(self) -> None:
        try:
            with Controller(
                self._lab.cluster(), settings=SETTINGS, actor="ada", reason=self._reason, report=self._report
            ) as controller:
                controller.apply(self._plan)
        except BaseException as error:
            self.error = error

    def _report(self, line: str) -> None:
        with self._turn:
            if self._pattern is None or not re.search(self._pattern, line):
                return
            self._pattern, self._held = None, line
            self._turn.notify_all()
            self._turn.wait_for(lambda: not self._held, 4 * LONG)

    def _go_on_to(self, pattern: str | None) -> None:
        with self._turn:
            self._pattern, self._held = pattern, ""
            self._turn.notify_all()

    def held(self) -> str:
        """The line at which the roll waits.

        :returns: the worker that the line is about.
        """
        until(lambda: self._held or not self._thread.is_alive(), "the roll's next line", seconds=LONG)
        assert self._held, f"the roll has ended: {self.error!r}"
        return self._held.split(": ")[0]

    def goes_on_to(self, pattern: str) -> str:
        """Let it go on until a line with this pattern, unless it waits at such a line; returns whom that is about."""
        if not re.search(pattern, self._held):
            self._go_on_to(pattern)
        return self.held()

    def ends(self) -> None:
        self._go_on_to(None)
        self._thread.join(4 * LONG)
        assert not self._thread.is_alive(), "the roll has not ended"


def row_of(page: Page, worker: str) -> Locator:
    names_it = page.locator("td[data-label='Worker']", has_text=worker)  # conditions name others
    return rows(page, "Workers of the roll").filter(has=names_it)


def written(page: Page, worker: str, what: str) -> Locator:
    """Lines of the journal's table."""
    names_it = page.locator("td[data-label='Worker']", has_text=worker)
    says_it = page.locator("td[data-label='What']", has_text=re.compile(rf"\b{what}$"))
    return rows(page, "Journal of the roll").filter(has=names_it).filter(has=says_it)


def picture(page: Page) -> str:
    """The timeline as it is drawn now."""
    return page.locator(".chart svg").inner_html()


def duration(seconds: float) -> str:
    """As the page writes it."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    return " ".join([f"{minutes} min"] * (minutes > 0) + [f"{rest} s"] * (rest > 0))


def draws_anew(page: Page, before: str) -> None:
    page.wait_for_function("before => document.querySelector('.chart svg')?.innerHTML !== before", arg=before)


def the_first_is_restarted(page: Page, roll: Roll, worker: str) -> None:
    """Its lane from the announcement to the passed gate; the roll waits at each of these."""
    row = row_of(page, worker)
    expect(cell(row, "Status")).to_contain_text("intent")
    expect(written(page, worker, "intent")).to_be_visible()
    expect(cell(row, "Restarted in")).to_have_text("–")
    expect(page.locator(".chart rect").first).to_be_visible()
    before = picture(page)
    draws_anew(page, before)  # it grows while the restart goes on
    moments = cell(row, "Moments")
    expect(moments).to_contain_text(re.compile(r"\d:\d\d:\d\d announced"))
    expect(moments).not_to_contain_text("stopped")

    assert roll.goes_on_to(STOPPED) == worker
    expect(moments).to_contain_text(re.compile(r"\d:\d\d:\d\d stopped"))
    expect(moments).not_to_contain_text("started")
    expect(cell(row, "Status")).to_contain_text("intent")

    assert roll.goes_on_to(LOOKED) == worker
    expect(cell(row, "Status")).to_contain_text("restarted")
    expect(cell(row, "Restarted in")).to_contain_text(re.compile(r"\d s"))
    expect(moments).to_contain_text(re.compile(r"\d:\d\d:\d\d started"))
    expect(moments).to_contain_text("restarted")
    expect(cell(row, "Gate")).to_have_text("–")

    assert roll.goes_on_to(ALL_HOLD) == worker
    conditions = cell(row, "Gate's conditions")
    expect(conditions.locator(".state.good")).not_to_have_count(0)
    expect(conditions).to_contain_text("states: pass")
    expect(cell(row, "Status")).to_contain_text("restarted")
    conditions.locator("summary").click()
    expect(conditions.locator("li time").first).to_be_visible()

    before = picture(page)
    assert roll.goes_on_to(PASSED) == worker
    expect(cell(row, "Status")).to_contain_text("passed")
    expect(cell(row, "Gate")).to_contain_text(re.compile(r"\d s"))
    expect(cell(row, "Downtime measured")).to_contain_text(re.compile(r"\d s"))
    expect(fact(page, "Workers")).to_have_text("1 of 2 passed")
    expect(written(page, worker, "passed")).to_be_visible()
    draws_anew(page, before)


def the_second_is_restored(page: Page, worker: str, error: GateFailedError) -> None:
    row = row_of(page, worker)
    expect(fact(page, "State")).to_contain_text("failed")
    expect(fact(page, "Note")).to_contain_text(error.found.splitlines()[0])
    expect(cell(row, "Status")).to_contain_text("restored")
    conditions = cell(row, "Gate's conditions")
    expect(conditions.locator(".state.bad")).not_to_have_count(0)
    expect(conditions.locator(".state.good")).to_have_count(0)
    for what in ("failed", "restored"):
        expect(written(page, worker, what)).to_be_visible()


def it_has_ended_as_the_command_prints(page: Page, site: ClusterSite) -> None:
    expect(fact(page, "State")).to_contain_text("done")
    expect(fact(page, "Workers")).to_have_text("2 of 2 passed")
    expect(fact(page, "Ended")).to_contain_text(re.compile(r"\d:\d\d:\d\d"))
    roll: dict[str, Any] = site.eos("rollout", "show")
    assert (roll["state"], len(roll["workers"])) == ("done", 2)
    expect(fact(page, "Plan")).to_have_text(roll["plan"])
    expect(fact(page, "Roll")).to_have_text(roll["rollout_id"])
    expect(fact(page, "Why")).to_have_text(roll["reason"])
    for worker in roll["workers"]:
        row = row_of(page, worker["worker"])
        expect(cell(row, "Status")).to_contain_text(worker["status"])
        expect(cell(row, "Downtime measured")).to_have_text(duration(worker["task_downtime_seconds"]))
        expect(cell(row, "Gate's conditions").locator("li")).to_have_count(len(worker["evidence"]))
        assert worker["announced_at"] <= worker["stopped_at"] <= worker["started_at"]
        for what in ("announced", "stopped", "started", "restarted", "passed"):
            expect(cell(row, "Moments").locator("li", has_text=re.compile(rf"\d {what}$")).last).to_be_visible()
        for line in worker["evidence"]:
            expect(cell(row, "Gate's conditions")).to_contain_text(line)
        for task in worker["tasks"]:
            expect(cell(row, "Tasks")).to_contain_text(task)
    for event in roll["events"]:
        expect(rows(page, "Journal of the roll").filter(has_text=event["what"]).first).to_be_visible()
