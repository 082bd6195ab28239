"""Reads a description: its YAML, and single keys of it (text, words, paths, numbers); each error names its key."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from airflow_eos_provider.errors import ConfigurationError

#: No word, name or path has one of these: they end a line or a string wherever it is handed on.
_LINE_ENDS = re.compile(r"[\n\r\0]")

_NO_WORD = re.compile(r"[\s\0-\x1f\x7f]")

#: A whole number without quotes that is a number: written in any other way (``007``, ``1_000``, ``0x1F``) it is text.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?")

_NOTHING = ("", "~", "null")

#: What a key of ours looks like. Errors show no other text of a file, since it may be any file of the machine.
_KEY = re.compile(r"[a-z]{1,20}(_[a-z]{1,20}){0,3}")
_SHOWN_KEYS = 5


class _KeyGivenTwiceError(yaml.MarkedYAMLError):
    """A mapping has a key twice, so one of the two values would be ignored."""


class _Loader(yaml.SafeLoader):
    """YAML in which a value without quotes is ``true``, ``false``, nothing, a number as Python writes it, or text.

    So ``str`` of a value is the text that was written. YAML 1.1 would read ``0123``, ``on`` and ``12:30`` as other
    values. Tags other than ``!!str`` are refused.
    """

    yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile("<<"))]}  # noqa: RUF012
    yaml_constructors = {  # noqa: RUF012
        tag: yaml.SafeLoader.yaml_constructors[tag] for tag in ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map", None)
    }

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            text = key.value if isinstance(key, yaml.ScalarNode) else id(key)
            if text in seen:
                raise _KeyGivenTwiceError(problem_mark=key.start_mark)
            seen.add(text)
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        return {self.construct_scalar(key): self.construct_object(value, deep=deep) for key, value in node.value}

    def construct_text(self, node: yaml.ScalarNode) -> Any:
        text = node.value
        if node.style is not None:
            return text
        if text in _NOTHING:
            return None
        if text in ("true", "false"):
            return text == "true"
        number = (float(text) if "." in text else int(text)) if _NUMBER.fullmatch(text) else None
        return number if str(number) == text else text


_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.construct_text)


def read_yaml(data: bytes, what: str) -> Any:
    """The content of a YAML file. The only reader of YAML that users write.

    :raises ConfigurationError: it is not YAML, has a tag, or gives a key twice; nothing of the file is in the error.
    """
    try:
        return yaml.load(data, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        if isinstance(error, _KeyGivenTwiceError):
            raise ConfigurationError(
                f"{what} gives a key twice{where}.", expected="each key once", remedy="Remove one of the two."
            ) from None
        raise ConfigurationError(f"{what} is not YAML{where}.") from None
    except RecursionError:
        raise ConfigurationError(f"{what} is nested too deep.", expected="a description of a cluster") from None


def only_known(mapping: Mapping[str, Any], known: Collection[str], where: str) -> None:
    unknown = sorted(str(key) for key in mapping if key not in known)
    if unknown:
        named = [key for key in unknown if _KEY.fullmatch(key)][:_SHOWN_KEYS]
        others = len(unknown) - len(named)
        found = ", ".join([*named, *([f"({others} of other forms)"] if others else [])])
        raise ConfigurationError(
            f"Unknown key{'s' if len(unknown) > 1 else ''} {found} in {where}.",
            expected=f"keys among {', '.join(sorted(known))}",
        )


def mapping_of(mapping: Mapping[str, Any], key: str, *, where: str = "") -> Mapping[str, Any]:
    value = mapping.get(key) or {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where}{key} is not a mapping.", expected=f"{key}: {{name: value, …}}")
    return value


def text_of(mapping: Mapping[str, Any], key: str, *, required: bool = False, where: str = "") -> str:
    """A text; empty where there is none."""
    text = secret_of(mapping, key, where=where, may_be_empty=True) or ""
    if required and not text.strip():
        raise ConfigurationError(f"{where}{key} is missing.")
    return text.strip()


def secret_of(mapping: Mapping[str, Any], key: str, *, where: str = "", may_be_empty: bool = False) -> str | None:
    """A text with the blanks around it, as a password may have them; None where the key is not there.

    :param may_be_empty: whether a key without a value is the same as no key.
    """
    value = mapping.get(key)
    if isinstance(value, (list, dict)):
        raise ConfigurationError(f"{where}{key} is a {type(value).__name__}.", expected="text")
    if value is None and key in mapping and not may_be_empty:
        raise ConfigurationError(f"{where}{key} has no value.", expected=f"{key}: '' for an empty text; or no such key")
    return None if value is None else scalar(value)


def seconds_of(mapping: Mapping[str, Any], key: str, where: str, longest: float) -> float | None:
    """A time in seconds; None if the key is not there."""
    value = mapping.get(key)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not 0 < value <= longest:
        raise ConfigurationError(
            f"{where}{key} is {shown(value)}.", expected=f"seconds, more than 0 and at most {longest:.0f}"
        )
    return float(value)


def name_of(mapping: Mapping[str, Any], key: str, where: str, expected: str) -> str:
    """One word that no program takes for an option; empty where there is none."""
    value = mapping.get(key)
    if value is None:
        return ""
    text = scalar(value)
    if not isinstance(value, (str, int)) or isinstance(value, bool) or not text:
        raise ConfigurationError(f"{where}{key} is {shown(value)}.", expected=expected)
    if text.startswith("-") or _NO_WORD.search(text):
        raise ConfigurationError(
            f"{where}{key} is {shown(value)}.", expected=f"{expected}: one word that does not begin with '-'"
        )
    return text


def words_of(mapping: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """A command as its words; empty where there is none."""
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
    """A path on this machine; relative ones start from ``base``."""
    text = _path_text(mapping, key, where)
    if not text:
        return None
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # "~nobody-of-this-name"
        raise ConfigurationError(f"{where}{key} is {text}, and there is no such user on this machine.") from error
    return path if path.is_absolute() or base is None else base / path


def far_path(mapping: Mapping[str, Any], key: str, machine: str, where: str) -> Path | None:
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
