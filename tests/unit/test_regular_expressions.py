"""No regular expression of the package is slow on hostile text.

They see files, logs, properties and answers that others have written. Each is tried, in the way in which its module
uses it, with long repetitions of what it looks for: where the work grows with the square of the text, five thousand
characters take an eighth of a second.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections import deque
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import airflow_eos_provider

PACKAGE = Path(airflow_eos_provider.__file__).parent

#: Characters of the texts, and seconds of the processor's time that they may take, some twenty times what the slowest
#: that is not at fault takes. The small ones first, so that what is worse than a square ends soon.
LIMITS = {500: 0.05, 5_000: 0.1}

ONCE, FROM_THE_START = ("search", "finditer", "findall", "sub", "subn", "split"), ("match", "fullmatch")

Use = tuple[str, re.Pattern[Any], str]


def uses() -> Iterator[Use]:
    """Every regular expression, with where it is and how it is used."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        yield from _written_in_place(name, calls)
        if any(_called(call) == ("re", "compile") for call in calls):
            yield from _compiled(name, calls)


def _called(call: ast.Call) -> tuple[str, str]:
    assert isinstance(call.func, ast.Attribute)
    owner = call.func.value
    return (owner.id if isinstance(owner, ast.Name) else ""), call.func.attr


def _written_in_place(module: str, calls: list[ast.Call]) -> Iterator[Use]:
    for call in calls:
        owner, method = _called(call)
        if owner != "re" or method not in (*ONCE, *FROM_THE_START) or not isinstance(call.args[0], ast.Constant):
            continue
        flags = re.NOFLAG
        for word in ("MULTILINE", "IGNORECASE", "DOTALL"):
            if any(getattr(node, "attr", "") in (word, word[0]) for node in ast.walk(call)):
                flags |= re.RegexFlag[word]
        yield f"{module}:{call.lineno}", re.compile(call.args[0].value, flags), _method(method)


def _compiled(module: str, calls: list[ast.Call]) -> Iterator[Use]:
    by_name: dict[str, set[str]] = {}
    for call in calls:
        owner, method = _called(call)
        if method in (*ONCE, *FROM_THE_START):
            by_name.setdefault(owner, set()).add(_method(method))
    for name, value in vars(importlib.import_module(module)).items():
        if isinstance(value, re.Pattern):
            for method in sorted(by_name.get(name, {"search"})):
                yield f"{module}.{name}", value, method


def _method(name: str) -> str:
    return name if name in FROM_THE_START else "search"


def pieces(pattern: re.Pattern[Any]) -> list[str]:
    """What a text for this expression is made of: the words in it, and signs."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    plain = re.sub(r"\\([^\w\s])", r"\1", re.sub(r"\\[bABZ]|\\s|\(\?[^)\s]{0,3}", " ", source))
    words = re.findall(r"[\w \-=/:.\[\]{}(;$\"'#@]{2,}", plain)
    return [*dict.fromkeys((*(word.strip("[]") for word in words), *" \n\t", "a", "0", *"\"'\\:=${}()[]-./#@"))]


def texts(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Repetitions of a piece, and of two, that do not come to their end."""
    found = [piece for piece in pieces(pattern) if piece]
    for piece in found:
        yield piece * (length // len(piece))
    words = [piece for piece in found if len(piece) > 1]
    for piece, sign in product(words, "a:('"):
        yield (piece + sign) * (length // (len(piece) + 1))
    for piece, sign in product(words, "a \n:"):
        yield piece + sign * length


def processor_seconds(pattern: re.Pattern[Any], method: str, text: str) -> float:
    subject = text if isinstance(pattern.pattern, str) else text.encode("utf-8", "replace")
    began = time.process_time()
    if method == "search":
        deque(pattern.finditer(subject), maxlen=0)
    else:
        getattr(pattern, method)(subject)
    return time.process_time() - began


def too_slow(pattern: re.Pattern[Any], method: str) -> str:
    """The first text that takes too long, also when it is tried once more; empty if there is none."""
    for length, limit in LIMITS.items():
        for text in texts(pattern, length):
            took = processor_seconds(pattern, method, text)
            if took > limit and (again := min(took, processor_seconds(pattern, method, text))) > limit:
                return f"{again:.2f} s for {length:,} characters like {text[:40]!r}"
    return ""


def test_each_takes_a_time_that_grows_with_the_text_alone() -> None:
    found = list(uses())
    assert len(found) > 80, "the test has lost sight of them"
    slow = [f"{where} ({method}): {why}" for where, pattern, method in found if (why := too_slow(pattern, method))]
    assert slow == []
