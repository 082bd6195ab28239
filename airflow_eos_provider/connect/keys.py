"""Reads single keys of a description: text, words, paths, numbers; each error names its key."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from airflow_eos_provider.errors import ConfigurationError

#: No word, name or path has one of these: they end a line or a string wherever it is handed on.
_LINE_ENDS = re.compile(r"[\n\r\0]")

_NO_WORD = re.compile(r"[\s\0-\x1f\x7f]")


def only_known(mapping: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuse keys that have no meaning.

    :raises ConfigurationError: with their names.
    """
    unknown = sorted(str(key) for key in mapping if key not in known)
    if unknown:
        raise ConfigurationError(
            f"Unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)} in {where}.",
            expected=f"keys among {', '.join(sorted(known))}",
        )


def mapping_of(mapping: Mapping[str, Any], key: str, *, where: str = "") -> Mapping[str, Any]:
    """A mapping; an empty one where there is none.

    :raises ConfigurationError: it is none.
    """
    value = mapping.get(key) or {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where}{key} is not a mapping.", expected=f"{key}: {{name: value, …}}")
    return value


def text_of(mapping: Mapping[str, Any], key: str, *, required: bool = False, where: str = "") -> str:
    """A text; empty where there is none.

    :raises ConfigurationError: it is a structure; or it is missing and required.
    """
    value = mapping.get(key)
    if value is None or str(value).strip() == "":
        if required:
            raise ConfigurationError(f"{where}{key} is missing.")
        return ""
    if isinstance(value, (list, dict)):
        raise ConfigurationError(f"{where}{key} is a {type(value).__name__}.", expected="text")
    return str(value).strip()


def name_of(mapping: Mapping[str, Any], key: str, where: str, expected: str) -> str:
    """One word that no program takes for an option; empty where there is none.

    :param expected: in words, what it should be.
    :raises ConfigurationError: it is none.
    """
    value = mapping.get(key)
    if value is None:
        return ""
    text = str(value)
    if not isinstance(value, (str, int)) or isinstance(value, bool) or not text:
        raise ConfigurationError(f"{where}{key} is {shown(value)}.", expected=expected)
    if text.startswith("-") or _NO_WORD.search(text):
        raise ConfigurationError(
            f"{where}{key} is {shown(value)}.", expected=f"{expected}: one word that does not begin with '-'"
        )
    return text


def words_of(mapping: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """A command as its words; empty where there is none.

    :raises ConfigurationError: it is no list of words; its program looks like an option; a word has a line end in it.
    """
    value = mapping.get(key)
    if value is None or value == []:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, (str, int, float)) for word in value):
        raise ConfigurationError(
            f"{where}{key} is not a list of words.", expected='["java", "-cp", …]: each argument by itself, no shell'
        )
    words = tuple(scalar(word) for word in value)
    if any(_LINE_ENDS.search(word) for word in words):
        raise ConfigurationError(f"{where}{key} has a word with a line end in it.", expected="words of one line each")
    if not words[0].strip() or words[0].startswith("-"):
        raise ConfigurationError(f"{where}{key} begins with {shown(words[0])}.", expected="a program first")
    return words


def scalar(value: object) -> str:
    """A number, a truth value or nothing as YAML writes it, so that ``true`` does not become ``True``."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def local_path(mapping: Mapping[str, Any], key: str, base: Path | None, where: str = "") -> Path | None:
    """A path on this machine; relative ones start from ``base``.

    :raises ConfigurationError: it is none.
    """
    text = _path_text(mapping, key, where)
    if not text:
        return None
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # "~nobody-of-this-name"
        raise ConfigurationError(f"{where}{key} is {text}, and there is no such user on this machine.") from error
    return path if path.is_absolute() or base is None else base / path


def far_path(mapping: Mapping[str, Any], key: str, machine: str, where: str) -> Path | None:
    """A path on another machine.

    :raises ConfigurationError: it is not absolute: the folder of this file, or ``~``, has no meaning there.
    """
    text = _path_text(mapping, key, where)
    if not text:
        return None
    if not text.startswith("/"):
        raise ConfigurationError(
            f"{where}{key} is {text}, which has no meaning on another machine ({machine}).",
            expected="an absolute path, such as /etc/kafka/connect.properties",
        )
    return Path(text)


def _path_text(mapping: Mapping[str, Any], key: str, where: str) -> str:
    value = mapping.get(key)
    if (value is not None and not isinstance(value, (str, int, float, Path))) or isinstance(value, bool):
        raise ConfigurationError(f"{where}{key} is {shown(value)}.", expected="a path")
    text = text_of(mapping, key, where=where)
    if _LINE_ENDS.search(text):
        raise ConfigurationError(f"{where}{key} has a line end in it.", expected="a path of one line")
    return text


def shown(value: object) -> str:
    """What stands in a description, short enough for one line of an error."""
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'mapping'}"
    text = repr(value) if isinstance(value, str) else scalar(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
