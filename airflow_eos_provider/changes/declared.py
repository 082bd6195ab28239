"""Every change that is declared: the modules and packages of ``changes`` are searched for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from airflow_eos_provider import changes
from airflow_eos_provider.acls.tool_rules import READING, Needs, roll_rights
from airflow_eos_provider.changes.change import Change

#: Modules of this package that declare no change.
_OTHERS = {f"{changes.__name__}.{name}" for name in ("change", "declared", "engine")}


def _declared() -> Iterator[Change[Any]]:
    """The changes in ``<kind>.py`` and ``<kind>/change.py``."""
    for found in iter_modules(changes.__path__, f"{changes.__name__}."):
        if found.name not in _OTHERS:
            module = import_module(f"{found.name}.change" if found.ispkg else found.name)
            yield from (each for each in vars(module).values() if isinstance(each, Change))


#: By their names, in the order of these.
CHANGES: Mapping[str, Change[Any]] = {change.name: change for change in sorted(_declared(), key=lambda each: each.name)}

#: By command of ``eos``, the rights that it needs.
VERBS: Mapping[str, Needs] = {
    **READING,
    "apply": roll_rights,
    **{name: change.needs for name, change in CHANGES.items() if change.rights},
}
