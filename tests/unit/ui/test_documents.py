"""Documents are cut into pages, searched, and hold no secret."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_eos_provider import redaction
from airflow_eos_provider.ui.documents import Paging, Table, keep_where, redacted


@pytest.mark.parametrize(
    "document",
    [
        {"partition": {"connection.url": "mongodb://ada:lovelace1815@db/orders"}},
        {"partition": {"password": "lovelace1815"}},
        {"partition": {"nested": [{"api.key": "lovelace1815"}]}},
        {"partition": {"credentials": {"user": "ada", "word": "lovelace1815"}}},
        {"partition": {"mongodb://ada:lovelace1815@db": 1}},
        {"offset": {"pin": {"secret": 1815 * 10**6}}},
        {"key": '["orders",{"url":"mongodb://ada:lovelace1815@db"}]'},
        {"trace": "Invalid value lovelace1815 for configuration password"},
    ],
)
def test_a_secret_in_any_leaf_is_neither_sent_nor_found(document: dict[str, Any]) -> None:
    for secret in ("lovelace1815", "1815000000"):
        assert secret not in str(redacted(document))
        assert not Table.of([document]).page(Paging(secret))["items"]
    assert "***" in str(redacted(document))


def test_a_value_that_a_description_holds_is_hidden_wherever_it_stands() -> None:
    redaction.remember({"sasl.password": "lovelace-1815"})
    assert redacted({"note": "as lovelace-1815 said"}) == {"note": "as *** said"}


def test_what_is_no_secret_stays_as_it_is() -> None:
    document = {"a": 1, "b": None, "c": [True, 2.5, "x"], "keystore.location": "/etc/x", "token": None}
    assert redacted(document) == document


ITEMS = [{"connector": f"orders-{number % 10}", "task": number, "state": "RUNNING"} for number in range(1000)]


def test_pages_have_every_item_once() -> None:
    table = Table.of(ITEMS)
    pages = [table.page(Paging(page=page, page_size=300)) for page in (1, 2, 3, 4, 5)]
    assert [len(page["items"]) for page in pages] == [300, 300, 300, 100, 0]
    assert [item["task"] for page in pages for item in page["items"]] == list(range(1000))
    assert {(page["total"], page["found"]) for page in pages} == {(1000, 1000)}


def test_every_word_of_a_search_has_to_be_there() -> None:
    table = Table.of(ITEMS)
    assert table.page(Paging("ORDERS-3 running"))["found"] == 100
    assert table.page(Paging("orders-3 failed"))["found"] == 0
    assert table.page(Paging("orders-3"), keep_where(state="FAILED"))["found"] == 0
    assert table.page(Paging("orders-3"), keep_where(task="13", state=""))["items"] == [ITEMS[13]]


def test_moments_and_durations_are_not_searched_for_they_are_not_shown_as_numbers() -> None:
    item = {"connector": "orders", "timestamp_ms": 1_764_159_000_000, "at": 1_764_159_000.5, "took_seconds": 59.0}
    table = Table.of([item, {**item, "position": 59}, {**item, "offset": {"ts_ms": 159}}])
    assert table.page(Paging("orders 59"))["found"] == 2  # what a connector wrote is shown as it is


def test_of_a_list_without_end_a_part_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_eos_provider.ui.documents.MOST_ITEMS", 10)
    page = Table.of(iter(ITEMS)).page(Paging())
    assert (page["total"], page["found"]) == (1000, 10)
