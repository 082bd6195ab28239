"""The page of faults that were found upstream names every script, and no other."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

from tests.reference import DOCS
from tests.upstream.shown import names


def test_the_page_names_every_script_and_no_other() -> None:
    page = (DOCS / "contributing" / "upstream.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\| `(\w+)` \|", page)) == set(names())


def test_every_script_says_what_it_shows() -> None:
    assert len(names()) >= 8
    for name in names():
        script = importlib.import_module(f"tests.upstream.{name}")
        assert callable(script.show), name
        assert len((script.__doc__ or "").split("\n\n")) >= 2, f"{name}: what happens, and why"
        assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(inspect.getsource(script)))), (
            f"{name} cannot fail"
        )
