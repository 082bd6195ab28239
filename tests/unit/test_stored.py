"""What is stored is read back as it was, and what is of another kind or schema is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_eos_provider.stored import from_json, to_json, unstored


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    place: tuple[str, int]
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Outer:
    SCHEMA: ClassVar[int] = 2

    inner: tuple[Inner, ...]
    by_number: Mapping[int, Inner | None] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    file: Path | None = None
    seconds: float = 0.0
    seen_at: int = unstored(0)
    extra: Mapping[str, Any] = field(default_factory=dict)


OUTER = Outer((Inner(("t", 1)),), {3: Inner(("u", 2)), 4: None}, frozenset({"b", "a"}), Path("x/y"), 1.5, seen_at=9)


def test_every_kind_of_field_survives_json() -> None:
    document = json.loads(json.dumps(to_json(OUTER)))
    assert document["schema"] == 2
    assert "seen_at" not in document
    assert document["names"] == ["a", "b"]
    read = from_json(Outer, document)
    assert read == Outer(OUTER.inner, OUTER.by_number, OUTER.names, OUTER.file, OUTER.seconds)
    assert isinstance(read.inner[0].colour, Colour)


def test_what_is_missing_has_its_default_and_what_is_unknown_is_kept_where_there_is_a_place_for_it() -> None:
    read = from_json(Outer, {"schema": 2, "inner": [{"place": ["t", 1], "new": 1}], "ticket": "OPS-7"})
    assert read == Outer((Inner(("t", 1)),), extra={"ticket": "OPS-7"})
    assert to_json(read)["ticket"] == "OPS-7"


@pytest.mark.parametrize(
    "document",
    [
        {"inner": []},
        {"schema": 3, "inner": []},
        {"schema": 2},
        {"schema": 2, "inner": [{"place": ["t"]}]},
        {"schema": 2, "inner": [{"place": ["t", 1], "colour": "blue"}]},
        {"schema": 2, "inner": [], "seconds": "soon"},
    ],
)
def test_another_schema_a_missing_or_a_wrong_member_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_json(Outer, document)
