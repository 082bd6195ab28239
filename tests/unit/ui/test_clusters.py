"""A card of a cluster: what slow looks have found is not shown as newer than it is. Connectors of any name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_eos_provider.ui.clusters import _made_card, routes
from airflow_eos_provider.ui.documents import Table
from airflow_eos_provider.ui.looks import Problem, Seen

HEAD = {"connection_id": "cluster"}
DRIFT = {"verdict": "pass", "findings": []}
HANGING = {"hanging": [{"topic": "orders"}]}
GONE = Problem("no broker answers")


def seen(value: Any, problem: Problem | None = None) -> Seen[Any]:
    return Seen(value, None if value is None else 100.0, 3.0, 60.0, problem, is_looking=False)


@pytest.mark.parametrize(
    ("drift", "hanging", "shown"),
    [
        (seen(DRIFT), seen(HANGING), (DRIFT, 1, 0, 0)),
        (seen(None), seen(None), (None, None, 0, 0)),
        (seen(None, GONE), seen(None, GONE), (None, None, 1, 1)),
        (seen(DRIFT, GONE), seen(HANGING, GONE), (None, None, 1, 1)),
    ],
)
def test_what_the_newest_look_does_not_tell_is_not_known(
    drift: Seen[Any], hanging: Seen[Any], shown: tuple[Any, ...]
) -> None:
    card = _made_card(HEAD, seen(None), seen(None), drift, hanging)
    found = (card["drift"], card["hanging_transactions"], len(card["drift_errors"]), len(card["hanging_errors"]))
    assert found == shown


def test_each_slow_look_has_its_age() -> None:
    card = _made_card(HEAD, seen(None), seen(None), seen(DRIFT), seen(HANGING))
    for each in ("drift_looked_at", "hanging_looked_at"):
        assert (card[each]["at"], card[each]["kept_seconds"]) == (100.0, 60.0)
        assert card[each]["age_seconds"] > 60.0


@pytest.mark.parametrize("name", ["orders", "a/b c?d=e&f#g", "100%", "%2F", "größe\N{SNOWMAN}", ".", "x" * 1_000])
def test_a_connector_of_any_name_is_found_among_many_like_it(name: str) -> None:
    names = [*(f"{name}{number}" for number in range(600)), name, f"{name}-eu"]
    table = Table.of({"connector": each, "state": "RUNNING"} for each in names)

    class Looks:
        async def see(self, *_: Any, **__: Any) -> Seen[Any]:
            return seen(SimpleNamespace(connectors=table, tasks=table))

    app, looks = FastAPI(), Looks()
    app.include_router(routes(looks))  # type: ignore[arg-type]
    for what in ("connectors", "tasks"):
        answer = TestClient(app).get(f"/api/clusters/cluster/{what}", params={"connector": name})
        assert [item["connector"] for item in answer.json()["items"]] == [name]
