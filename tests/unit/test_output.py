"""What a command prints for scripts."""

from __future__ import annotations

import json
from enum import StrEnum

import pytest
import yaml

from airflow_eos_provider.output import Output, print_document, print_documents


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
