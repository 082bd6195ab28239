"""The page on real brokers and workers: what it sends of them, and of those that are dead."""

from __future__ import annotations

# Airflow reads its home, which is set there, when it is first imported.
from tests.page import client_of

# isort: split
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from airflow_eos_provider.changes.offsets.change import ALTER, AlterRequest
from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.lab.ports import free_ports
from tests.changed import changed

#: Of waits that end much sooner, seconds.
LONG = 360.0


def connection_to(lab: Lab, **changes: Any) -> str:
    """The connection of a lab, as the variable that Airflow reads."""
    extra = {
        "bootstrap_servers": lab.bootstrap_servers,
        "group_id": lab.group_id,
        "workers": [{"url": url} for url in lab.connect_urls],
        **changes,
    }
    return json.dumps({"conn_type": "kafka_connect", "extra": extra})


@pytest.fixture
def page(disabled_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The page with a connection to a lab by its description, and one to a cluster that is dead."""
    (port,) = free_ports(1)
    described = json.dumps({"conn_type": "kafka_connect", "extra": {"cluster_file": str(disabled_lab.cluster_file)}})
    monkeypatch.setenv("AIRFLOW_CONN_PROD", described)
    monkeypatch.setenv("AIRFLOW_CONN_DEAD", connection_to(disabled_lab, bootstrap_servers=f"127.0.0.1:{port}"))
    return client_of("admin")


def until(page: TestClient, address: str, is_there: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """A document, as soon as what is awaited is in it."""
    deadline = time.monotonic() + LONG
    while True:
        answer = page.get(address)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        if is_there(document):
            return document
        assert time.monotonic() < deadline, document
        time.sleep(0.1)


def is_looked_at(document: dict[str, Any]) -> bool:
    return not document["still_looking"]


def test_a_cluster_is_shown_as_status_prints_it(page: TestClient, disabled_lab: Lab) -> None:
    found = until(page, "/api/clusters/prod", is_looked_at)
    assert found["errors"] == []
    assert (found["group_id"], found["state"], found["mode"]) == (disabled_lab.group_id, "Stable", "disabled")
    assert found["modes"] == {"disabled": 2}
    assert [worker["health"] for worker in found["workers"]] == ["healthy", "healthy"]
    assert all(worker["reason"] for worker in found["workers"])
    assert found["looked_at"]["kept_seconds"] > 0


def test_cards_come_at_once_and_a_dead_cluster_holds_nobody_up(page: TestClient) -> None:
    begun = page.get("/api/clusters").json()
    assert [card["connection_id"] for card in begun["items"]] == ["dead", "prod"]
    found = until(page, "/api/clusters", lambda document: not any(card["still_looking"] for card in document["items"]))
    dead, prod = found["items"]
    assert dead["errors"]
    assert prod["mode"] == "disabled"
    found = until(page, "/api/clusters?search=prod", lambda document: document["items"][0]["drift"])
    assert found["items"][0]["roll"] is None
    assert until(page, "/api/clusters/prod/hanging", is_looked_at)["hanging"] == []


def test_connectors_tasks_and_transactions_are_lists(page: TestClient) -> None:
    for what in ("connectors", "tasks", "transactions", "rolls", "fencing"):
        found = until(page, f"/api/clusters/prod/{what}", is_looked_at)
        assert (found["errors"], found["page"], found["page_size"]) == ([], 1, 50)
        assert len(found["items"]) == found["found"] == found["total"]


def test_topics_and_rights_are_looked_at(page: TestClient) -> None:
    topics = until(page, "/api/clusters/prod/topics", is_looked_at)
    assert {topic["role"] for topic in topics["topics"]} == {"config topic", "offsets topic", "status topic"}
    rights = until(page, "/api/clusters/prod/rights?page_size=500", is_looked_at)
    assert rights["authorizer"] is False
    assert rights["found"] == len(rights["items"])
    assert all(rule["why"] for rule in rights["items"])


def test_an_offset_is_shown_and_found_without_the_secret_in_it_and_its_change_is_history(
    page: TestClient, disabled_lab: Lab
) -> None:
    place = {"url": "mongodb://ada:lovelace1815@db/orders"}
    offset = {"n": 1, "token": "lovelace1815"}
    request = AlterRequest(connector="gone", partition=json.dumps(place), offset=json.dumps(offset), absent=True)
    changed(KafkaConnectHook("prod").get_cluster(), ALTER, request, actor="ada", reason="CHG-1")
    found = until(page, "/api/clusters/prod/offsets?leftovers=true&search=orders", is_looked_at)
    (item,) = found["items"]
    assert (item["connector"], item["offset"]) == ("gone", {"n": 1, "token": "***"})
    assert item["partition"] == {"url": "mongodb://***@db/orders"}
    assert "lovelace" not in str(found)
    assert until(page, "/api/clusters/prod/offsets?leftovers=true&search=lovelace1815", is_looked_at)["items"] == []
    history = until(page, "/api/clusters/prod/history?search=chg-1", is_looked_at)
    (change,) = history["items"]
    assert (change["kind"], change["about"], change["actor"], change["state"]) == (
        "offsets alter",
        "gone",
        "ada",
        "done",
    )


def test_what_is_not_there_is_not_found(page: TestClient) -> None:
    answer = page.get("/api/clusters/nowhere")
    assert answer.status_code == 404
    assert "nowhere" in answer.json()["errors"][0]["found"]
    for roll in ("newest", "20260101"):
        answer = page.get(f"/api/clusters/prod/rolls/{roll}")
        assert answer.status_code == 404, answer.text
