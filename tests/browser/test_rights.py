"""The page's rights of a cluster whose brokers have an authorizer, beside what ``eos acl check`` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from airflow_eos_provider.acls.rules import ConnectorFacts, Rule, connector_rules
from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.kafka.acl_values import Operation, Resource
from airflow_eos_provider.lab.lab import Lab
from tests.browser.cluster_site import ClusterSite, cluster_site, rows
from tests.browser.conftest import LONG, LONG_MS, Visit, axe
from tests.chromium import need_chromium
from tests.lab.security import Principal
from tests.waiting import until

pytestmark = pytest.mark.timeout(1800)

expect.set_options(timeout=LONG_MS)

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONNECTOR = "orders"
TABLE = "Rights that exactly-once needs"

#: A connection whose login may not read the ACLs.
BLIND = "blind"

#: How an answer is shown; a missing right that is optional is less than an error.
WORDS = {"pass": "allowed", "fail": "missing", "inconclusive": "unknown"}
SIGNS = {("allowed", True): "✓", ("allowed", False): "✓", ("missing", True): "✕", ("missing", False): "!"}


@pytest.fixture(scope="module")
def site(lab_factory: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSite]:
    """A worker with all that it needs, and a connector that may not write with its transactional id."""
    need_chromium()
    lab = lab_factory(name="rights", secure=True, workers=1, mode=Mode.ENABLED)
    assert lab.security is not None
    lab.create_topic(CONNECTOR, 1)
    lab.allow(rule.acl for rule in _rights(lab) if not _is_withheld(rule))
    file = lab.data_dir / "lines.txt"
    file.write_text("first\n", encoding="utf-8")
    with ConnectRest(lab.connect_urls[0], lab.cluster().rest, retry_seconds=60) as rest:
        config = {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": CONNECTOR, "file": str(file)}
        rest.create(CONNECTOR, config)
    blind = {BLIND: {"client": lab.security.client(Principal.NOBODY)}}
    with cluster_site(lab, tmp_path_factory.mktemp("page"), others=blind) as site:
        # Of the plan and the page each looks once, so nothing may move between: the id comes with the task's config.
        until(lambda: _missing(site), "the connector's task, and so its transactional id", seconds=LONG)
        yield site


def _rights(lab: Lab) -> list[Rule]:
    """What the file source needs."""
    topics = [CONNECTOR, f"{lab.group_id}-offsets"]
    facts = ConnectorFacts(
        lab.group_id,
        CONNECTOR,
        1,
        topics[1],
        [CONNECTOR],
        producer=Principal.PRODUCER.acl_name,
        consumer=Principal.CONSUMER.acl_name,
        admin=Principal.ADMIN.acl_name,
        existing=topics,
    )
    return connector_rules(facts)


def _is_withheld(rule: Rule) -> bool:
    return rule.resource is Resource.TRANSACTIONAL_ID and rule.operation is Operation.WRITE


def _missing(site: ClusterSite) -> list[Mapping[str, Any]]:
    return [right for right in site.eos("acl", "check")["rules"] if right["verdict"] == "fail"]


def shown(page: Page) -> list[dict[str, str]]:
    """The table as it is now, each row by its columns: in one look, for the page asks again by itself."""
    found: list[dict[str, str]] = rows(page, TABLE).evaluate_all(
        """rows => rows.map(row => Object.fromEntries([...row.cells].map(
            cell => [cell.dataset.label, cell.textContent.split(/\\s+/).filter(Boolean).join(" ")])))"""
    )
    return found


def row_of(right: Mapping[str, Any]) -> dict[str, str]:
    """How a right that the command prints is shown, but for how it is known."""
    answer = WORDS[right["verdict"]]
    said = f"{SIGNS[answer, right['required']]} {answer}"
    why = [right["why"], f"Without: {right['without']}" if answer != "allowed" and right["without"] else ""]
    pattern = "" if right["pattern"] == "literal" else f" {right['pattern']}"
    return {
        "Right": f"{right['operation']} on {right['resource']} {right['name']}{pattern}",
        "Principal": right["principal"],
        "For": f"{right['role']} {right['connector'] or ''}".strip(),
        "Answer": said if right["required"] else f"{said} optional",
        "Why": " ".join(filter(None, why)),
    }


def test_each_right_and_what_stops_without_it_is_what_the_command_prints(visit: Visit, site: ClusterSite) -> None:
    printed = site.eos("acl", "check")["rules"]
    missing = [right for right in printed if right["verdict"] == "fail"]
    assert {right["verdict"] for right in printed} == {"pass", "fail"}
    assert all(right["without"] for right in missing)

    page = visit.alone("#/clusters/production/rights")
    expect(rows(page, TABLE)).to_have_count(len(printed))
    found = shown(page)
    known_by = [row.pop("Known by") for row in found]
    assert found == [row_of(right) for right in printed]
    assert all(text.startswith("the ACLs: ") for text in known_by), "the command attempts, the page does not"
    main = page.locator("main")
    expect(main).not_to_contain_text("have no authorizer")
    expect(main).to_contain_text(f"{sum(right['required'] for right in missing)} missing")

    page.get_by_label("Answer").select_option("missing")
    expect(rows(page, TABLE)).to_have_count(len(missing))
    found = shown(page)
    assert {row.pop("Known by") for row in found} == {"the ACLs: no ACL allows it"}
    assert found == [row_of(right) for right in missing]
    assert not axe(page)
    page.get_by_label("Answer").select_option("unknown")
    expect(page.locator(".empty")).to_contain_text("No right matches")


def test_what_a_login_may_not_see_is_not_known_and_not_missing(visit: Visit, site: ClusterSite) -> None:
    page = visit.alone(f"#/clusters/{BLIND}/rights")
    expect(rows(page, TABLE).first).to_be_visible()
    for row in shown(page):
        assert row["Answer"] in ("! unknown", "! unknown optional")
        assert row["Known by"].startswith(f"nobody: {Principal.NOBODY.acl_name} may not read the ACLs")
        assert "Request(" not in row["Known by"], "what the broker says has Java's text of our request in it"
    assert not axe(page)
    page.get_by_label("Answer").select_option("missing")
    expect(page.locator(".empty")).to_contain_text("No right matches")
