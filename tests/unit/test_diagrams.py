"""Pictures from text: what is said is in them, as text; a line that is not understood is an error."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.diagrams import bars, sequence
from tests.reference import DOCS

_SVG = "{http://www.w3.org/2000/svg}"


def _texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{_SVG}text")]


def test_a_sequence_has_its_participants_and_messages_in_their_order() -> None:
    svg = sequence("a | b <c>\na -> b <c>: one & two\nb <c> --> a: no\nnote a: so it ends\n")
    assert _texts(svg) == ["a", "b <c>", "one & two", "no", "so it ends"]
    assert svg.count("stroke-dasharray") == 1, "the refusal"
    title = ElementTree.fromstring(svg).find(f"{_SVG}title")
    assert title is not None
    assert title.text == "a and b <c>: one & two; no; so it ends"


def test_an_arrow_points_to_who_is_told() -> None:
    there, back = (
        float(re.findall(r'x2="(\d+)" y2="\d+" stroke="currentColor" stroke-w', sequence(text))[0])
        for text in ("a | b\na -> b: x", "a | b\nb -> a: x")
    )
    assert there > back


def test_bars_are_as_long_as_their_values() -> None:
    svg = bars("one: 10 s\nhalf: 5 s\n")
    assert _texts(svg) == ["one", "10 s", "half", "5 s"]
    whole, half = (int(rect.get("width", "0")) for rect in ElementTree.fromstring(svg).iter(f"{_SVG}rect"))
    assert whole == 2 * half


@pytest.mark.parametrize("text", ["a | b\na says b", "a | b\na -> c: x", "a | b\nnote c: x"])
def test_a_line_that_is_no_message_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither|not in"):
        sequence(text)


def test_a_line_that_is_no_bar_is_an_error() -> None:
    with pytest.raises(ValueError, match="no bar: much"):
        bars("much")


def test_every_picture_of_the_documents_can_be_drawn() -> None:
    drawn = 0
    for page in DOCS.glob("*.md"):
        for kind, text in re.findall(r"^```\{(\w+)\}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            ElementTree.fromstring({"sequence": sequence, "bars": bars}[kind](text))
            drawn += 1
    assert drawn >= 5
