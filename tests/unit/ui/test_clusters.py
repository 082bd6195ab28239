"""A card of a cluster: what slow looks have found is not shown as newer than it is. Connectors of any name."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_eos_provider.connect.mode import Mode
from airflow_eos_provider.journal.content import JournalContent
from airflow_eos_provider.ui.documents import Table
from airflow_eos_provider.ui.looks import Problem, Seen
from airflow_eos_provider.ui.routes.clusters import _made_card, cluster_look, routes
from tests.unit.rollout.conftest import Cluster

HEAD = {"connection_id": "cluster"}
DRIFT = {"verdict": "pass", "findings": []}
HANGING = {"hanging": [{"topic": "orders"}]}
GONE = Problem("no broker answers")


def seen(value: Any, problem: Problem | None = None) -> Seen[Any]:
    return Seen(value, None if value is None else 100.0, 3.0, 60.0, problem, is_looking=False)


def client_of(found: Any) -> TestClient:
    """Asks the routes when each look finds this."""

    class Looks:
        async def see(self, *_: Any, **__: Any) -> Seen[Any]:
            return seen(found)

    app = FastAPI()
    app.include_router(routes(Looks()))  # type: ignore[arg-type]
    return TestClient(app)


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


def test_what_a_look_does_not_tell_is_not_counted_as_nothing() -> None:
    observation = Cluster(Mode.ENABLED).observe()
    known = cluster_look(observation).counts
    assert (known["connectors"]["total"], known["pending_fencings"]) == (3, [])
    without = cluster_look(replace(observation, transactions=None)).counts
    assert (without["open_transactions"], without["connectors"]) == (None, known["connectors"])
    without = cluster_look(replace(observation, config=None)).counts
    assert (without["pending_fencings"], without["connectors"]) == (None, known["connectors"])
    without = cluster_look(replace(observation, statuses=None)).counts
    assert {without[each] for each in ("connectors", "tasks", "pending_fencings")} == {None}


def test_lists_say_what_they_lack_where_no_worker_answered() -> None:
    observation = replace(Cluster().observe(), statuses=None, statuses_problem="No worker answers.")
    for one, is_known in ((observation, False), (Cluster().observe(), True)):
        client = client_of(cluster_look(one))
        for what in ("connectors", "tasks"):
            answer = client.get(f"/api/clusters/cluster/{what}").json()
            assert (answer["is_known"], answer["problems"]) == (is_known, [] if is_known else ["No worker answers."])
            assert bool(answer["items"]) is is_known


def test_a_group_whose_journal_was_not_read_is_not_said_to_be_never_rolled() -> None:
    for journal, is_known in ((seen(JournalContent()), True), (seen(None, GONE), False), (seen(None), False)):
        card = _made_card(HEAD, seen(None), journal, seen(DRIFT), seen(HANGING))
        assert (card["roll"], card["roll_looked_at"] is not None) == (None, is_known)


@pytest.mark.parametrize("name", ["orders", "a/b c?d=e&f#g", "100%", "%2F", "größe\N{SNOWMAN}", ".", "x" * 1_000])
def test_a_connector_of_any_name_is_found_among_many_like_it(name: str) -> None:
    names = [*(f"{name}{number}" for number in range(600)), name, f"{name}-eu"]
    table = Table.of({"connector": each, "state": "RUNNING"} for each in names)
    client = client_of(SimpleNamespace(connectors=table, tasks=table))
    for what in ("connectors", "tasks"):
        answer = client.get(f"/api/clusters/cluster/{what}", params={"connector": name})
        assert [item["connector"] for item in answer.json()["items"]] == [name]
