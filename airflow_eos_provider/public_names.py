"""Imports a package's public names when they are first used.

Importing one name of a public package does not load the clients behind the others. If an optional extra is missing,
the error names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, modules: Mapping[str, str], *, extra: str = "") -> Callable[[str], Any]:
    """A package's ``__getattr__`` (PEP 562).

    :param package: the package's name.
    :param modules: for each public name the module that has it.
    :param extra: the optional extra of this distribution that those modules need; empty if none.
    :returns: a function that raises AttributeError for an unknown name, and ImportError with what to install if a
        package of the extra is missing.
    """

    def named(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(modules[name]), name)
        except ModuleNotFoundError as error:
            if not extra or (error.name or "").startswith("airflow_eos_provider"):
                raise
            raise without_extra(f"{package}.{name}", extra, error) from error

    return named


def without_extra(name: str, extra: str, error: ImportError) -> ImportError:
    """The error where a module of an optional extra is missing, in one sentence.

    :param name: what needs it.
    :param extra: the extra of this distribution that brings it.
    :param error: which module it is.
    """
    return ImportError(
        f"{name} needs the module {error.name!r}, which is not installed here. "
        f"What to do: pip install 'airflow-eos-provider[{extra}]'",
        name=error.name,
    )
