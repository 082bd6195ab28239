"""The page's document of fencing rounds: what ``eos fence --json`` prints, its connectors cut into pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_eos_provider.offsets.fencing.documents import fence_document
from airflow_eos_provider.offsets.fencing.look import FenceLook
from airflow_eos_provider.offsets.fencing.plan import decide
from airflow_eos_provider.ui.documents import Table
from airflow_eos_provider.ui.fencing import FencingLook, routes
from airflow_eos_provider.ui.looks import Seen
from tests.unit.offsets.test_fence_plan import connector

PENDING, TOTAL = 60, 180


def document() -> dict[str, Any]:
    """Of many connectors, of which one in three has a round that is due."""
    found = []
    for number in range(TOTAL):
        one = connector(2, 3, pending=number % 3 == 0, states="FF" if number % 3 == 0 else "RR")
        found.append(replace(one, state=replace(one.state, name=f"orders-{number}")))
    seen = FenceLook(82.0, "g", "k", {"w:1": True}, tuple(found))
    return fence_document(seen, decide(seen))


def client(printed: dict[str, Any]) -> TestClient:
    head = {name: value for name, value in printed.items() if name != "connectors"}
    look = FencingLook(Table.of(printed["connectors"]), head)

    class Looks:
        async def see(self, *_: Any, **__: Any) -> Seen[Any]:
            return Seen(look, 82.0, 1.0, 30.0, None, is_looking=False)

    app = FastAPI()
    app.include_router(routes(Looks()))  # type: ignore[arg-type]
    return TestClient(app)


def test_all_of_it_is_there_page_by_page() -> None:
    printed = document()
    pages = [
        client(printed).get("/api/clusters/c/fencing", params={"page": page, "page_size": 100}).json()
        for page in (1, 2)
    ]
    assert [one for page in pages for one in page["items"]] == printed["connectors"]
    for page in pages:
        assert {name: page[name] for name in printed if name != "connectors"} == {
            name: value for name, value in printed.items() if name != "connectors"
        }


def test_only_those_that_are_due_of_one_connector_and_those_that_are_searched_for() -> None:
    ask = client(document())
    found = [
        ask.get("/api/clusters/c/fencing", params=params).json()
        for params in ({"pending": "true"}, {"connector": "orders-1"}, {"search": "orders-179"}, {"search": "nobody"})
    ]
    assert [page["found"] for page in found] == [PENDING, 1, 1, 0]
    assert all(item["pending_fencing"] for item in found[0]["items"])
    assert {page["total"] for page in found} == {TOTAL}
