"""The generated part of ``docs/reference/errors.md``: each error class with its exit code, and each of its messages.

Messages are read from the source, where an error is made: ``RefusedError(f"… {name} …", remedy="…")``. What a run puts
into them is shown as ``…``. A text that the source does not spell, such as one that a broker has sent, is not on the
page.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import airflow_eos_provider
from airflow_eos_provider.errors import EosError
from tests.reference_text import Docstring, table

_PACKAGE = Path(airflow_eos_provider.__file__).parent

#: Rooms whose messages nobody on call meets: the lab's and the demo's.
_NOT_ON_CALL = ("lab", "demo")


class Message(NamedTuple):
    """One message as the source spells it.

    :param found: what was found, with ``…`` for what a run fills in.
    :param remedy: what to do next, or what was expected; empty where the source says none, or takes it from elsewhere.
    """

    found: str
    remedy: str


def error_classes() -> list[type[EosError]]:
    """Every error of the package, private ones included, by exit code and name."""
    for module in pkgutil.walk_packages([str(_PACKAGE)], f"{airflow_eos_provider.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return sorted(_below(EosError), key=lambda error: (error.exit_code, error.__name__))


def _below(error: type[EosError]) -> set[type[EosError]]:
    own = {error} if error.__module__.startswith(airflow_eos_provider.__name__) else set()
    return own.union(*(_below(below) for below in error.__subclasses__()))


def messages() -> dict[str, list[Message]]:
    """Name of the class -> its messages, each once, in the order of the alphabet."""
    names = {error.__name__ for error in error_classes()}
    found: dict[str, set[Message]] = {name: set() for name in names}
    for path in sorted(_PACKAGE.rglob("*.py")):
        if path.relative_to(_PACKAGE).parts[0] in _NOT_ON_CALL:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = _constants(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                found[node.func.id] |= set(_messages(node, constants))
    return {name: sorted(made, key=lambda one: (one.found.lower(), one.remedy)) for name, made in found.items()}


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _messages(call: ast.Call, constants: Mapping[str, ast.expr]) -> Iterator[Message]:
    if not call.args:
        return
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    remedy = _said(keywords, "remedy", constants) or _said(keywords, "expected", constants, "Expected: ")
    for found in filter(_is_said, _texts(call.args[0], constants)):
        yield Message(found, remedy)


def _said(keywords: Mapping[str | None, ast.expr], name: str, constants: Mapping[str, ast.expr], word: str = "") -> str:
    texts = filter(_is_said, _texts(keywords[name], constants)) if name in keywords else ()
    return " Or: ".join(f"{word}{text}" for text in texts)


def _is_said(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _texts(node: ast.expr, constants: Mapping[str, ast.expr]) -> Iterator[str]:
    """The texts that an expression may be: one for each branch of a condition."""
    if isinstance(node, ast.Constant):
        yield str(node.value) if isinstance(node.value, str) else ""
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, constants)
        yield from _texts(node.orelse, constants)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (left + right for left in _texts(node.left, constants) for right in _texts(node.right, constants))
    elif isinstance(node, ast.Name) and node.id in constants:
        yield from _texts(constants[node.id], {})
    else:
        yield "…"


def page() -> Iterator[str]:
    """The written part of the page."""
    found = messages()
    for error in error_classes():
        summary = " ".join(Docstring.of(error).summary.split())
        yield f"\n## `{error.__name__}`\n\nExit code {error.exit_code}. {summary}\n"
        yield from table("message | what to do", (map(_quoted, message) for message in found[error.__name__]))


def _quoted(text: str) -> str:
    """A text as it is: nothing of it is markup."""
    return re.sub(r"([`*_<\[$])", r"\\\1", text)
