"""JSON that a user gives: on a command line, in a form, in a file. Any problem with it is one error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from airflow_eos_provider.data_text import one_line
from airflow_eos_provider.errors import ConfigurationError

#: Nothing that a user gives has more levels; every function that walks a value may rely on it.
_LEVELS = 100


def parse(text: str | bytes, name: str, expected: str) -> Any:
    """A JSON value."""
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_not_json, parse_float=_finite)
        _require_few_levels(found)
    except RecursionError:
        problem = f"it has more than {_LEVELS} levels"
    except ValueError as error:
        problem = one_line(error)
    else:
        return found
    raise ConfigurationError(f"{name} is no JSON: {problem}.", expected=expected)


def parse_file(file: Path, expected: str) -> Any:
    """The JSON value in a file."""
    return parse(read_file(file), str(file), expected)


def read_file(file: Path) -> bytes:
    """The content of a file that a user names."""
    try:
        return file.read_bytes()
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        raise ConfigurationError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def parse_where(text: str | None) -> dict[str, Any]:
    """A filter on source partitions, such as ``{"filename": "/data/in.txt"}``; None for no filter."""
    if text is None:
        return {}
    expected = 'a JSON object, for example --where \'{"filename": "/data/in.txt"}\''
    where = parse(text, f"--where {one_line(text)}", expected)
    if not isinstance(where, dict):
        raise ConfigurationError(f"--where {one_line(text)} is no JSON object.", expected=expected)
    return where


def canonical(value: Any) -> str:
    """A text that two JSON values share only if they are the same value of the same type.

    Python calls ``1``, ``1.0`` and ``true`` equal; to a connector they are three values. The order of members is free.
    """
    return json.dumps(value, sort_keys=True)


def contains(whole: Mapping[str, Any] | None, members: Mapping[str, Any]) -> bool:
    """Whether an object has all of these members, each with the same value and type; without members always."""
    found = whole or {}
    return all(name in found and canonical(found[name]) == canonical(value) for name, value in members.items())


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def _finite(number: str) -> float:
    found = float(number)
    return found if math.isfinite(found) else _not_json(number)


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON, or too large for one of 64 bits")


def _require_few_levels(value: Any) -> None:
    level = [value]
    for _ in range(_LEVELS):
        nested = [one for one in level if isinstance(one, dict | list)]
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return
    raise RecursionError
