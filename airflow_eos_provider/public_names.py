"""Imports a package's public names when they are first used.

Importing one name of a public package does not load the clients behind the others. If an optional extra is missing,
the error names it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazily(package: str, *, extra: str = "") -> tuple[list[str], Callable[[str], Any]]:
    """A package's ``__all__`` and ``__getattr__`` (PEP 562).

    Public is what the package's own file imports, for type checkers only, in its block ``if TYPE_CHECKING:``. A star
    stands for the classes of a module.

    :param package: the package's name.
    :param extra: the optional extra of this distribution that those modules need; empty if none.
    :returns: the names; and a function that raises AttributeError for another name, and ImportError with what to
        install if a package of the extra is missing.
    """
    blocks = [each for each in _parsed(sys.modules[package].__loader__, package).body if isinstance(each, ast.If)]
    imports = [each for block in blocks for each in block.body if isinstance(each, ast.ImportFrom)]
    modules = {name: each.module or "" for each in imports for name in _names(each)}

    def named(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(modules[name]), name)
        except ModuleNotFoundError as error:
            if not extra or (error.name or "").startswith("airflow_eos_provider"):
                raise
            raise without_extra(f"{package}.{name}", extra, error) from error

    return sorted(modules), named


def _parsed(loader: Any, module: str) -> ast.Module:
    return ast.parse(loader.get_source(module) or "")  # None on executors, which import compiled modules by name


def _names(each: ast.ImportFrom) -> list[str]:
    if each.names[0].name == "*":
        loader = getattr(find_spec(each.module or ""), "loader", None)
        return [one.name for one in _parsed(loader, each.module or "").body if isinstance(one, ast.ClassDef)]
    return [alias.name for alias in each.names]


def without_extra(name: str, extra: str, error: ImportError) -> ImportError:
    """The error where a module of an optional extra is missing, in one sentence."""
    return ImportError(
        f"{name} needs the module {error.name!r}, which is not installed here. "
        f"What to do: pip install 'airflow-eos-provider[{extra}]'",
        name=error.name,
    )
