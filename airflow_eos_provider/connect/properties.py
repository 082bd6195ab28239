"""Java properties files: read as ``java.util.Properties`` reads them, and one property set with every other byte kept.

A Connect worker reads its file by ``Properties.load(InputStream)`` (Kafka's ``Utils.loadProps``), so bytes are
ISO-8859-1 characters and ``\\uXXXX`` encodes the rest. Reading follows the JDK's own line reader step by step,
because the odd corners (comments after an empty continuation, a backslash before the end of the file) are where an
editor that guesses would change a setting it was not asked to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from airflow_eos_provider.errors import ConfigurationError

_BLANK = b" \t\f"

#: What Java's ``String.trim`` takes away at both ends.
_TRIMMED = "".join(map(chr, range(0x21)))

_WHOLE_NUMBER = re.compile(r"([+-]?)0*([0-9]{1,19})")

V = TypeVar("V", str, str | None)

_LINE_END = re.compile(rb"\r\n|\n|\r")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {character: f"\\{letter}" for letter, character in _ESCAPES.items()} | {"\\": "\\\\"}


@dataclass(frozen=True, slots=True)
class Reference:
    """A value that a config provider supplies when the worker starts, as in ``${env:MODE}``.

    :param path: its path, empty where the provider has none.
    """

    provider: str
    path: str
    key: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """One logical line, and the position of its value in bytes.

    :param value_start: first byte of the value (with its continuation lines); where it would begin if it is empty.
    :param separated: whether something between key and value says where the value begins.
    """

    key: str
    value: str
    line_start: int
    value_start: int
    value_end: int
    separated: bool


def read(data: bytes) -> dict[str, str]:
    """The properties of a file as Kafka and Connect take them, see :func:`trimmed`."""
    return trimmed(parse(data))


def trimmed(config: Mapping[str, V]) -> dict[str, V]:
    """A worker's or a connector's configuration with each value as Kafka's ``ConfigDef.parseType`` reads it.

    Every value that is read from a file, a worker or the config topic goes through this function, so no other code
    trims it.
    """
    return {name: value.strip(_TRIMMED) if isinstance(value, str) else value for name, value in config.items()}


def whole_number(text: str) -> int | None:
    """A value as Java's ``Long.parseLong`` reads it; None if it is not such a number."""
    found = _WHOLE_NUMBER.fullmatch(text)
    number = int("".join(found.groups())) if found else 2**63
    return number if -(2**63) <= number < 2**63 else None


def parse(data: bytes) -> dict[str, str]:
    """The properties of a file as they are written, for an edit; the last occurrence of a name wins."""
    return {entry.key: entry.value for entry in _entries(data)}


def set_property(data: bytes, name: str, value: str) -> bytes:
    """The same file with one property set.

    Only the bytes of that property's value change. A property that is absent is added at the end of the file. One that
    occurs several times is set in all its places: the last alone takes effect, but whoever later looks for the
    first or tidies up the duplicates should not find, or bring back, the old value. Commented-out lines stay.

    :raises ConfigurationError: a config provider (``${…}``) supplies the property, so the file is not the place where
        it can be set; or the file cannot be edited without changing another property.
    """
    if not name:
        raise ConfigurationError("A property without a name cannot be set.")
    found = [entry for entry in _entries(data) if entry.key == name]
    for entry in found:
        if references(entry.value):
            raise ConfigurationError(
                f"The worker's file gives {name} by a config provider ({entry.value.strip()}).",
                expected=f"{name} written out in the file, since only then can it be changed there",
                remedy=f"Write {name} with its present value into the file itself, or change it where the provider "
                "takes it from and restart the worker manually.",
            )
    wanted = {**parse(data), name: value}
    for edited in [_replaced(data, found, value)] if found else _appended(data, name, value):
        if parse(edited) == wanted:
            return edited
    raise ConfigurationError(
        f"Setting {name} would change what Java reads from another line of the file.",
        remedy="Find the line near the end of the file that ends with a backslash, and correct it manually.",
    )


def remove_property(data: bytes, name: str) -> bytes:
    """The same file without one property: its lines, with their continuations and line ends, and no other byte."""
    edited = data
    for entry in reversed([entry for entry in _entries(data) if entry.key == name]):
        line_end = _LINE_END.match(edited, entry.value_end)
        end = line_end.end() if line_end else entry.value_end
        edited = edited[: entry.line_start] + edited[end:]
    if parse(edited) != {key: value for key, value in parse(data).items() if key != name}:
        raise ConfigurationError(
            f"Removing {name} would change what Java reads from another line of the file.",
            remedy=f"Find the line near {name} that ends with a backslash, and correct it manually.",
        )
    return edited


def references(value: str) -> tuple[Reference, ...]:
    """The config providers' variables in a value, ``${provider:[path:]key}`` (``ConfigTransformer``)."""
    found, begin = [], value.find("${")
    while begin >= 0 and (end := value.find("}", begin)) >= 0:
        parts = value[begin + 2 : end].split(":", 2)
        if len(parts) > 1:
            found.append(Reference(parts[0], parts[1] if len(parts) > 2 else "", parts[-1]))
        begin = value.find("${", end)
    return tuple(found)


def written(config: Mapping[str, str | None], name: str) -> str:
    """A value as it is written; empty if it is missing, or if a config provider supplies it."""
    text = config.get(name) or ""
    return "" if references(text) else text


def plain_topics(config: Mapping[str, str | None]) -> frozenset[str]:
    """The topics that a source connector's configuration names plainly, for plugins that have such a setting."""
    return frozenset({written(config, "topic"), written(config, "kafka.topic")} - {""})


def sink_group(connector: str, config: Mapping[str, str | None] | None = None) -> str:
    """The consumer group of a sink connector (``SinkUtils.consumerGroupId``)."""
    return (config or {}).get("consumer.override.group.id") or f"connect-{connector}"


def provider_class(properties: Mapping[str, str], provider: str) -> str | None:
    """The class behind a config provider of these worker properties; None where no such provider is configured."""
    configured = [name.strip() for name in properties.get("config.providers", "").split(",")]
    return properties.get(f"config.providers.{provider}.class") or None if provider in configured else None


def followed(
    properties: Mapping[str, str], names: Collection[str], variable: Callable[[str], str | None]
) -> dict[str, str]:
    """The properties with those of some names that the worker's environment supplies (``${env:NAME}``) resolved.

    :param variable: looks up a variable of the worker's process; None if it is not set, or cannot be read.
    """
    found = {name: resolved(properties[name], properties, variable) for name in names if name in properties}
    return {**properties, **{name: value for name, value in found.items() if value is not None}}


def resolved(text: str, properties: Mapping[str, str], variable: Callable[[str], str | None]) -> str | None:
    """The value of ``${env:NAME}``, alone; None for everything else."""
    found = references(text)
    if len(found) != 1 or not re.fullmatch(r"\$\{[^}]*\}", text):
        return None
    provider = provider_class(properties, found[0].provider)
    if provider is None or not provider.endswith(".EnvVarConfigProvider"):
        return None
    if properties.get(f"config.providers.{found[0].provider}.param.allowlist.pattern", ".*") != ".*":
        return None
    return variable(found[0].key)


def _replaced(data: bytes, entries: list[_Entry], value: str) -> bytes:
    for entry in reversed(entries):  # from the end, so that earlier positions stay true
        if entry.value == value:
            continue
        written = _escaped_value(value)
        if not entry.separated:
            written = b"=" + written
        data = data[: entry.value_start] + written + data[entry.value_end :]
    return data


def _appended(data: bytes, name: str, value: str) -> Iterator[bytes]:
    """Ways to add a line, the shortest first.

    A last line without line end needs one before ours; a last line that ends with a backslash needs an empty line after
    it, or ours would become a part of its value.
    """
    first = _LINE_END.search(data)
    line_end = first[0] if first else b"\n"
    line = _escaped_name(name) + b"=" + _escaped_value(value) + line_end
    for count in range(4):
        if count or data[-1:] in (b"", b"\n", b"\r"):
            yield data + line_end * count + line


def _escaped_value(value: str) -> bytes:
    text = "".join(_escaped_character(character) for character in value)
    # A leading blank or separator would be taken for a part of the separator.
    return (f"\\{text}" if text[:1] in (" ", "=", ":") else text).encode("ascii")


def _escaped_name(name: str) -> bytes:
    text = "".join(f"\\{c}" if c in " =:#!" else _escaped_character(c) for c in name)
    return text.encode("ascii")


def _escaped_character(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def _entries(data: bytes) -> Iterator[_Entry]:
    """The logical lines, split into key and value as ``Properties.load0`` does it."""
    for line in _logical_lines(data):
        characters = bytes(data[position] for position in line)
        key_end, value_start, separated = _split(characters)
        start = line[value_start] if value_start < len(line) else (line[-1] + 1 if line else len(data))
        end = line[-1] + 1 if value_start < len(line) else start
        at = line[0] if line else len(data)
        yield _Entry(
            key=_unescape(characters[:key_end], data, at),
            value=_unescape(characters[value_start:], data, at),
            line_start=max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1,
            value_start=start,
            value_end=end,
            separated=separated,
        )


def _split(line: bytes) -> tuple[int, int, bool]:
    """Where the key ends, where the value starts, and whether anything is between."""
    escaped = False
    key_end = len(line)
    for index, byte in enumerate(line):
        if not escaped and byte in b"=: \t\f":
            key_end = index
            break
        escaped = byte == 0x5C and not escaped
    value_start, separator_seen = key_end, False
    while value_start < len(line):
        byte = line[value_start]
        if byte not in _BLANK:
            if separator_seen or byte not in b"=:":
                break
            separator_seen = True
        value_start += 1
    return key_end, value_start, value_start > key_end


def _logical_lines(data: bytes) -> Iterator[list[int]]:
    """Positions of each logical line's characters: ``java.util.Properties.LineReader.readLine``, kept in its shape."""
    line: list[int] = []
    skip_blanks, continued, backslash = True, False, False
    position, size = 0, len(data)
    while position < size:
        byte = data[position]
        position += 1
        if skip_blanks:
            if byte in _BLANK or (not continued and byte in b"\r\n"):
                continue
            skip_blanks = continued = False
        if not line and byte in b"#!":
            end = _LINE_END.search(data, position)
            position = end.start() + 1 if end else size
            skip_blanks = True
        elif byte not in b"\r\n":
            line.append(position - 1)
            backslash = byte == 0x5C and not backslash
        elif not line:
            skip_blanks = True
        elif backslash and position < size:
            line.pop()
            skip_blanks, continued, backslash = True, True, False
            if byte == 0x0D and data[position] == 0x0A:
                position += 1
        else:
            yield line[:-1] if backslash else line
            line, skip_blanks, continued, backslash = [], True, False, False
    if line:
        yield line[:-1] if backslash else line


def _unescape(characters: bytes, data: bytes, position: int) -> str:
    text = characters.decode("iso-8859-1")
    if "\\" not in text:
        return text
    result: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        index += 1
        if character != "\\" or index == len(text):
            # A lone backslash at the very end can only be in a key or value cut by the line reader: Java drops it.
            result.append("" if character == "\\" else character)
            continue
        character = text[index]
        index += 1
        if character != "u":
            result.append(_ESCAPES.get(character, character))
            continue
        digits = text[index : index + 4]
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            raise ConfigurationError(
                f"Line {_line_number(data, position)} of the properties file has a malformed \\u escape.",
                expected="\\u and four hexadecimal digits; no worker starts with this file",
            )
        result.append(chr(int(digits, 16)))
        index += 4
    # Java strings are UTF-16: two escapes may be the halves of one character.
    return "".join(result).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _line_number(data: bytes, position: int) -> int:
    return len(_LINE_END.findall(data, 0, position)) + 1
