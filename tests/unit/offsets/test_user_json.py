"""JSON that a user gives: whatever is wrong with it is an error that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.offsets import user_json

ODD = {
    "nothing": "",
    "no JSON": "{",
    "two values": "1 2",
    "deep lists": "[" * 200_000 + "]" * 200_000,
    "deep objects": '{"a":' * 200_000 + "1" + "}" * 200_000,
    "101 levels": "[" * 101 + "]" * 101,
    "no number of JSON": '{"a": NaN}',
    "or too large for one of 64 bits": '{"a": 1e400}',
    "infinite": "[-Infinity]",
    "a member twice": '{"a": 1, "b": {"c": 1, "c": 1}}',
    "bytes of latin-1": '"\xe9"'.encode("latin-1"),
    "UTF-16 without its mark": "{}".encode("utf-16-le")[:3],
    "digits without end": "1" * 100_000,
    "a raw escape sequence": '"\x1b[2J"',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_what_is_no_json_is_an_error_of_ours_that_names_it(text: str | bytes, tmp_path: Path) -> None:
    file = tmp_path / "wanted.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for parse in (lambda: user_json.parse(text, "wanted.json", "an object"), lambda: user_json.parse_file(file, "it")):
        with pytest.raises(ConfigurationError, match=r"wanted\.json is no JSON: ") as refused:
            parse()
        assert len(str(refused.value)) < 1_000
        assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_one_too(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        user_json.parse_file(tmp_path / name, "an object")


def test_half_a_surrogate_pair_and_a_hundred_levels_are_json() -> None:
    assert user_json.parse('"\\ud800"', "it", "a text") == "\ud800"
    assert user_json.parse("[" * 99 + "]" * 99, "it", "a list")


@pytest.mark.parametrize(
    ("whole", "members", "contained"),
    [
        ({"n": 1, "m": 2}, {"n": 1}, True),
        ({"n": 1}, {"n": True}, False),
        ({"n": True}, {"n": 1}, False),
        ({"n": 1}, {"n": 1.0}, False),
        ({"n": 0}, {"n": False}, False),
        ({"n": None}, {"n": None}, True),
        ({}, {"n": None}, False),
        ({"n": {"b": [1], "a": 2}}, {"n": {"a": 2, "b": [1]}}, True),
        ({"n": {"a": [1]}}, {"n": {"a": [True]}}, False),
        (None, {}, True),
        (None, {"n": None}, False),
    ],
)
def test_members_are_compared_with_their_types(
    whole: dict[str, Any] | None, members: dict[str, Any], contained: bool
) -> None:
    assert user_json.contains(whole, members) is contained
