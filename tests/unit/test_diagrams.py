"""Pictures from text: what is said is in them, as text; a line that is not understood is an error."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.diagrams import mermaid
from tests.reference import DOCS

_SVG = "{http://www.w3.org/2000/svg}"
_TWO = "sequenceDiagram\nparticipant A as a\nparticipant B as b <c>\n"


def _texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{_SVG}text")]


def test_a_sequence_has_its_participants_and_messages_in_their_order() -> None:
    svg = mermaid(f"{_TWO}loop each\nA->>B: one & two\nend\nB-->>A: no\nNote over A: so it ends\n")
    assert _texts(svg) == ["a", "b <c>", "one & two", "no", "so it ends"]
    assert svg.count("stroke-dasharray") == 1, "the refusal"
    title = ElementTree.fromstring(svg).find(f"{_SVG}title")
    assert title is not None
    assert title.text == "a and b <c>: one & two; no; so it ends"


def test_an_arrow_points_to_the_receiver() -> None:
    there, back = (
        float(re.findall(r'x2="(\d+)" y2="\d+" stroke="currentColor" stroke-w', mermaid(_TWO + text))[0])
        for text in ("A->>B: x", "B->>A: x")
    )
    assert there > back


@pytest.mark.parametrize("text", ["A says B", "A->>C: x", "Note over C: x"])
def test_a_line_that_is_no_message_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither|not in"):
        mermaid(_TWO + text)


def test_another_diagram_is_shown_as_its_text() -> None:
    assert mermaid("flowchart LR\nA --> B") == "<pre>flowchart LR\nA --&gt; B</pre>"


def test_every_picture_of_the_documents_can_be_drawn() -> None:
    texts = [
        text
        for page in DOCS.rglob("*.md")
        for text in re.findall(r"^```mermaid\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    ]
    assert len(texts) >= 5
    assert all(ElementTree.fromstring(mermaid(text)) is not None for text in texts)
