"""What a request says, and what it writes where that is not one decision of ``changes``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_eos_provider.connect.topics.source_offsets import offset_key
from airflow_eos_provider.errors import ConfigurationError, RefusedError
from airflow_eos_provider.offsets.verbs.offset_changes import Write
from airflow_eos_provider.offsets.verbs.offsets_request import OffsetsRequest, Verb, Wanted, parse_offsets
from airflow_eos_provider.offsets.verbs.snapshot import OffsetsReader
from airflow_eos_provider.stored import from_json, to_json
from tests.unit.offsets.test_changes import home, topic

KEY = offset_key("gone", {"file": "a"})


def reader(*connectors: str) -> OffsetsReader:
    """It has the global topic alone; where else a deleted connector may have offsets is not asked."""
    store = SimpleNamespace(name="global")
    stores: Any = SimpleNamespace(global_store=store, read=lambda _: topic("global", (KEY, b"1")))
    state: Any = SimpleNamespace(connectors=dict.fromkeys(connectors))
    return OffsetsReader(stores, state, 5)


def test_only_the_global_topic_is_pruned_and_of_deleted_connectors_only() -> None:
    prune = OffsetsRequest(Verb.PRUNE, "gone")
    assert reader().writes(prune, "kafka-1", "g") == [Write("global", home(KEY), KEY, b"1", None)]
    with pytest.raises(RefusedError, match="its offsets are not leftovers"):
        reader("gone").writes(prune, "kafka-1", "g")


def test_a_copy_from_a_backup_comes_back_from_the_journal_and_its_values_count() -> None:
    copy = OffsetsRequest(Verb.COPY, "c", source="c", file="b.jsonl")
    assert from_json(OffsetsRequest, to_json(copy)) == copy
    assert not copy.carries


def test_wanted_offsets_are_read_in_the_form_of_connects_rest_api() -> None:
    entries = '[{"partition": {"a": 1}, "offset": null}, {"partition": null, "offset": {"n": 1}}]'
    for document in (entries, f'{{"offsets": {entries}}}'):
        assert parse_offsets(document, "it") == (Wanted({"a": 1}, None), Wanted(None, {"n": 1}))


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[]", "[1]", "null", '{"offsets": {}}', b"\xff"),
        '[{"partition": {}}]',
        '[{"partition": 1, "offset": {}}]',
        '[{"partition": {}, "offset": {"position": {"nested": 1}}}]',
        '[{"partition": {"a": [1]}, "offset": {}}]',
    ],
)
def test_another_form_is_refused_with_the_form_that_is_expected(content: str | bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"wanted\.json") as refused:
        parse_offsets(content, "wanted.json")
    assert refused.value.expected
