"""What a command prints for scripts."""

from __future__ import annotations

import io
import json
import sys
from enum import StrEnum

import pytest
import yaml

from airflow_eos_provider.output import Output, print_document, print_documents
from airflow_eos_provider.terminal import console_on, take_any_text


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("output", [Output.JSON, Output.YAML, Output.NAME])
def test_a_list_printed_one_by_one_reads_as_one_printed_whole(
    count: int, output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [{"name": f"n{number}", "text": "\x9b\u2028é", "none": None} for number in range(count)]
    names = [str(one["name"]) for one in found]
    assert print_document(found, names, output, as_json=False)
    whole = capsys.readouterr().out
    assert print_documents(iter(found), dict, lambda one: str(one["name"]), output, as_json=False)
    one_by_one = capsys.readouterr().out
    if output is Output.JSON:
        assert json.loads(one_by_one) == json.loads(whole) == found
        assert not {"\x9b", "\u2028"} & set(one_by_one), "a terminal may obey them"
    else:
        assert one_by_one == whole


def test_a_list_for_a_table_is_left_as_it_is() -> None:
    found = iter([1, 2])
    assert not print_documents(found, str, str, Output.WIDE, as_json=False)
    assert list(found) == [1, 2]


def test_yaml_has_whatever_json_has_a_form_for(capsys: pytest.CaptureFixture[str]) -> None:
    class State(StrEnum):
        DONE = "done"

    shared = [1]
    document = {"state": State.DONE, "pair": (1, 2), "twice": [shared, shared]}

    assert print_document(document, (), Output.YAML, as_json=False)

    text = capsys.readouterr().out
    assert yaml.safe_load(text) == json.loads(json.dumps(document))
    assert "&" not in text  # an anchor, which not every reader of YAML understands


#: Half a surrogate pair, what latin-1 lacks, what no 16 bits hold, and what a terminal obeys.
ODD_TEXTS = ["\ud800", "\udcff.jsonl", "→ 日本", "😀", "é\x9b\u2028", "\x00\x1b[2J"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii", "utf-16", "cp1252"])
@pytest.mark.parametrize("output", [*Output, None])
@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
def test_every_text_goes_into_every_stream(
    text: str, output: Output | None, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    take_any_text()

    if output in (Output.JSON, Output.YAML):
        assert print_document([{text: text}], [text], output, as_json=False)
        assert print_documents([text], lambda one: {one: one}, str, output, as_json=False)
    elif not print_document(None, [text], output, as_json=False):
        console_on().print(text)
    stream.flush()
    printed = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]

    assert printed
    assert not {"\x1b", "\x9b", "\u2028"} & set(printed)
    if output is Output.JSON:
        whole, end = json.JSONDecoder().raw_decode(printed)
        assert whole == json.loads(printed[end:]) == [{text: text}]
    if output is Output.YAML and not any("\ud800" <= mark <= "\udfff" for mark in text):
        assert yaml.safe_load(printed) == [{text: text}] * 2


def test_nothing_is_printed_where_standard_output_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    take_any_text()
    for output in (Output.JSON, Output.YAML, Output.NAME):
        assert print_documents(["a"], str, str, output, as_json=False)
    console_on().print("a")
