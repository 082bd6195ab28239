"""JSON bytes exactly as Kafka Connect writes them to its internal topics.

Connect compares keys of its offsets topic byte by byte, and so does compaction: a key that means the same but is spelt
otherwise is another key. The spelling is that of Connect's ``JsonConverter`` without schemas, which is Jackson's, and
the order of the members is that of the ``java.util.HashMap`` that Connect reads every key into before it writes it
again (:func:`hash_map_order`).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeVar

from airflow_eos_provider.errors import ConfigurationError

T = TypeVar("T")

#: What a value may be made of; Java's ``long`` bounds the integers.
Json = None | bool | int | float | str | bytes | Sequence["Json"] | Mapping[str, "Json"]

_LONG = range(-(1 << 63), 1 << 63)

#: Jackson's short escapes.
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

#: Surrogates, in pairs or alone, are escaped; everything else beyond ASCII stays as it is, U+2028 included.
_TO_ESCAPE = re.compile('[\x00-\x1f"\\\\\ud800-\udfff\U00010000-\U0010ffff]')

# java.util.HashMap
_FIRST_TABLE = 16
_LONGEST_CHAIN = 8
_SMALLEST_TABLE_WITH_TREES = 64


def encode(value: Json) -> bytes:
    """A value as Connect's ``JsonConverter`` writes it with ``schemas.enable=false``.

    Members of a mapping keep their order here; :func:`hash_map_order` gives them Java's. Bytes become base64, NaN and
    the infinities strings. Doubles are written as by ``Double.toString`` since Java 19, the shortest digits that name
    the number; an older Java writes some doubles with one more (2.0E-3 the same, 2.0E23 not), so that a double does
    not belong into a key.
    """
    return _text(value).encode()


def hash_map_order(members: Mapping[str, T]) -> dict[str, T]:
    """The members in the order in which a ``java.util.HashMap`` that they were put into one by one iterates.

    The order of insertion matters only among members whose hashes share a bucket. Mappings inside are left as they are.

    :raises ConfigurationError: more than eight keys share a bucket of a large map, which Java would turn into a tree
        with an order of its own.
    """
    table: list[list[tuple[int, str]]] = [[] for _ in range(_FIRST_TABLE)]
    for count, key in enumerate(members, start=1):
        hashed = _spread_hash(key)
        chain = table[hashed & (len(table) - 1)]
        chain.append((hashed, key))
        if len(chain) > _LONGEST_CHAIN:
            if len(table) >= _SMALLEST_TABLE_WITH_TREES:
                raise ConfigurationError(
                    f"{len(chain)} of {len(members)} names share one bucket of Java's HashMap: "
                    f"{', '.join(name for _, name in chain[:3])}, …",
                    expected=f"at most {_LONGEST_CHAIN}, so that their order is known",
                    remedy="Rename some of them.",
                )
            table = _grown(table)
        if count > len(table) * 3 // 4:
            table = _grown(table)
    return {key: members[key] for chain in table for _, key in chain}


def _grown(table: list[list[tuple[int, str]]]) -> list[list[tuple[int, str]]]:
    """Twice the buckets; keys that stay together keep their order."""
    larger: list[list[tuple[int, str]]] = [[] for _ in range(2 * len(table))]
    for chain in table:
        for hashed, key in chain:
            larger[hashed & (len(larger) - 1)].append((hashed, key))
    return larger


def _spread_hash(text: str) -> int:
    """``String.hashCode`` over UTF-16 units, its upper half folded into the lower as HashMap does."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for index in range(0, len(units), 2):
        hashed = (31 * hashed + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return hashed ^ (hashed >> 16)


def _text(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_string(_name(name))}:{_text(member)}" for name, member in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(map(_text, value)) + "]"
    raise ConfigurationError(
        f"A value of type {type(value).__name__} has no form in Connect's JSON.",
        expected="None, bool, int, float, str, bytes, a sequence or a mapping with names",
    )


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise ConfigurationError(f"A member's name is of type {type(name).__name__}.", expected="str")
    return name


def _integer(value: int) -> str:
    if value not in _LONG:
        raise ConfigurationError(f"{value} is too large for Connect's JSON.", expected="a number of 64 bits")
    return str(int(value))


def _string(text: str) -> str:
    return f'"{_TO_ESCAPE.sub(_escaped, text)}"'


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    short = _ESCAPES.get(character)
    if short is not None:
        return short
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))


def _double(value: float) -> str:
    """``Double.toString``: at least one digit on each side of the point, an exponent beyond 10^-3 and 10^7."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign = "-" if value < 0 else ""
    digits, exponent = _shortest(abs(value))
    if -3 <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if 0 <= exponent < 7:
        whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float) -> tuple[str, int]:
    """The digits and the exponent of the first one. Java looks for the nearest among those of two digits or more."""
    number = Decimal(float.__repr__(value))
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    if len(digits) == 1:
        number = Decimal(f"{value:.1e}")
        digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return digits, number.adjusted()
