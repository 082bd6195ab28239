"""Frozen dataclasses as JSON and back, by their type hints. Topics and XCom store this JSON.

A class with a ``SCHEMA`` writes it as ``schema`` and is read from this one only. Unknown members are ignored, or kept
in the field ``extra`` and written back if the class has one. A member that is missing has its field's default.
A class with ``STORED_BY_NAME`` is stored as its ``name``, which its ``parse`` reads.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def unstored(default: Any = MISSING) -> Any:
    """A field that is not stored."""
    return field(default=default, metadata={"stored": False})


def members(value: Any) -> dict[str, Any]:
    """A dataclass's fields as they are, by name."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def to_json(value: Any) -> Any:
    """A value as JSON."""
    if hasattr(value, "STORED_BY_NAME"):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        document = {name: to_json(getattr(value, name)) for name in _stored(type(value))}
        schema = {"schema": value.SCHEMA} if hasattr(value, "SCHEMA") else {}
        return {**schema, **document.pop("extra", {}), **document}
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_json(each) for each in value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value


def from_json(kind: type[T], document: Any) -> T:
    """Read :func:`to_json` back."""
    found: T = _read(kind, document)
    return found


def _read(kind: Any, document: Any) -> Any:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if hasattr(kind, "STORED_BY_NAME"):
        return kind.parse(document)
    if is_dataclass(kind):
        return _read_fields(kind, document)
    if type(None) in inner:
        return None if document is None else _read(inner[0], document)
    if inner and origin in (tuple, list, frozenset, set):
        kinds = inner if origin is tuple and inner[-1] is not ... else [inner[0]] * len(document)
        return origin(_read(each, value) for each, value in zip(kinds, document, strict=True))
    if inner and issubclass(origin, Mapping):
        return {_read(inner[0], name): _read(inner[1], value) for name, value in document.items()}
    if kind is bytes:
        return base64.b64decode(document)
    return origin(document) if origin in (int, float) or issubclass(origin, (Enum, Path)) else document


def _read_fields(kind: Any, document: Any) -> Any:
    if document.get("schema") != getattr(kind, "SCHEMA", document.get("schema")):
        raise ValueError(f"its schema is {document.get('schema')}, expected is {kind.SCHEMA}")
    stored = _stored(kind)
    values = {name: _read(hint, document[name]) for name, hint in stored.items() if name in document}
    if "extra" in stored:
        values["extra"] = {name: value for name, value in document.items() if name not in (*stored, "schema")}
    return kind(**values)


@cache
def _stored(kind: Any) -> dict[str, Any]:
    """The fields that are stored, with their type hints."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if each.metadata.get("stored", True)}
