"""A requested change of one connector's source offsets, as data, and how a user writes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from airflow_eos_provider.data_text import one_line
from airflow_eos_provider.errors import ConfigurationError
from airflow_eos_provider.offsets import user_json


class Verb(StrEnum):
    """A change of source offsets."""

    ALTER = "alter"
    RESET = "reset"
    RESTORE = "restore"
    MIGRATE = "migrate"
    COPY = "copy"
    PRUNE = "prune"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An offset that is asked for, of a source partition."""

    partition: Mapping[str, Any] | None
    offset: Mapping[str, Any] | None  #: None to remove it


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """A change that is asked for."""

    verb: Verb
    connector: str
    where: Mapping[str, Any] = field(default_factory=dict)  #: only source partitions with these members
    wanted: tuple[Wanted, ...] = ()  #: of an alteration: the new offsets
    file: str = ""  #: of a restore: the backup; of a copy: the backup with the other's offsets, if not this group
    from_elsewhere: bool = False  #: of a restore: even from another group, Kafka cluster or topic id
    source: str = ""  #: of a copy: the connector whose offsets are taken
    own_topic: str | None = None  #: of a migration: the own offsets topic afterwards, empty for the global one
    each: bool = False  #: the one offset of ``wanted`` is for each source partition that has an offset
    unlike: bool = False  #: also offsets that are not like the present ones
    absent: bool = False  #: the connector need not exist: it is created later

    @property
    def carries(self) -> bool:
        """Whether it writes offsets as they are elsewhere at that moment."""
        return self.verb is Verb.MIGRATE or (self.verb is Verb.COPY and not self.file)


#: The forms that are expected.
_OFFSETS = '[{"partition": {…}, "offset": {…}}, …], with null for an offset that is to be removed'
_OF_ONE = {
    "--offset": 'a JSON object such as {"position": 0}, or null to remove it',
    "--partition": 'a JSON object such as {"filename": "/data/in.txt"}',
}


def parse_offsets(text: str | bytes, name: str) -> tuple[Wanted, ...]:
    """The offsets that a text or a file asks for, in the form of ``PATCH /connectors/<name>/offsets``.

    :param name: of the text, for the error.
    """
    document = user_json.parse(text, name, _OFFSETS)
    entries = document.get("offsets") if isinstance(document, dict) else document
    are_offsets = isinstance(entries, list) and all(
        isinstance(entry, dict) and set(entry) == {"partition", "offset"} for entry in entries
    )
    if not (entries and are_offsets):
        raise ConfigurationError(f"{name} does not say which offsets are wanted.", expected=_OFFSETS)
    return tuple(
        Wanted(**{part: _object(entry[part], f"{part} in {name}", _OFFSETS) for part in entry}) for entry in entries
    )


def parse_one(text: str, option: str) -> Mapping[str, Any] | None:
    """The source offset of ``--offset``, or the source partition of ``--partition``."""
    name, expected = f"{option} {one_line(text)}", _OF_ONE[option]
    return _object(user_json.parse(text, name, expected), name, expected)


def _object(value: Any, name: str, expected: str) -> Mapping[str, Any] | None:
    """An object as Connect takes it (``OffsetUtils.validateFormat``): its members have no members of their own."""
    if value is not None and not isinstance(value, dict):
        raise ConfigurationError(f"{name} is no JSON object.", expected=expected)
    nested = next((member for member, inner in (value or {}).items() if isinstance(inner, dict | list)), None)
    if nested is not None:
        raise ConfigurationError(
            f"{name} has an object or a list in its member {nested!r}, which Connect does not take.",
            expected="texts, numbers, true, false or null as members",
        )
    return value
