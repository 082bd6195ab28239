"""The bytes that Connect's workers exchange through the group protocol.

From ``ConnectProtocol`` and ``IncrementalCooperativeConnectProtocol``; integers are big-endian, STRING has a 16-bit
length, BYTES and ARRAY a 32-bit one, -1 for null::

    metadata    version:16 url:STRING config-offset:64 [allocation:NULLABLE BYTES, an assignment, from version 1]
    assignment  version:16 error:16 leader:STRING leader-url:STRING config-offset:64 assignment:ARRAY
                [revoked:NULLABLE ARRAY delay:32, from version 1]
    element of both arrays: connector:STRING tasks:ARRAY of 32, where -1 is the connector itself

Version 0 is ``eager`` (named "default" on the wire), 1 ``compatible``, 2 ``sessioned``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from airflow_eos_provider.errors import EosError

EAGER = "default"

#: By their version.
PROTOCOLS = (EAGER, "compatible", "sessioned")


class UndecodableError(EosError):
    """Bytes of a group member are not what Connect writes."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader assigned to a member, or (as allocation) what the member said it already had.

    :param error: 0, or 1 when the leader lagged behind in the config topic (``CONFIG_MISMATCH``).
    :param leader: member id of the leader.
    :param connectors: names; under ``compatible`` and ``sessioned`` only those added by the last rebalance.
    :param tasks: connector and number, likewise.
    :param delay_ms: how long, at the moment of the last rebalance, lost tasks were still to be held back. It is a
        photograph, not a clock.
    """

    error: int
    leader: str
    leader_url: str
    config_offset: int
    connectors: frozenset[str] = frozenset()
    tasks: frozenset[tuple[str, int]] = frozenset()
    revoked_connectors: frozenset[str] = frozenset()
    revoked_tasks: frozenset[tuple[str, int]] = frozenset()
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a worker says of itself when it joins.

    :param url: REST address.
    :param config_offset: the offset after the last config record that it had read.
    :param allocation: what it ran at that moment; None if nothing, and always None in protocol "default".
    """

    url: str
    config_offset: int
    allocation: Assignment | None = None


def decode_metadata(protocol: str, data: bytes) -> Metadata | None:
    """What a member said when it joined.

    :param protocol: the group's protocol, one of :data:`PROTOCOLS`.
    :returns: None for empty bytes: the broker reports none while the group rebalances.
    :raises UndecodableError: naming what was wrong.
    """
    if not data:
        return None
    reader = _Reader(data, "metadata")
    version = reader.version(protocol)
    url, config_offset = reader.text("url"), reader.number("config-offset", ">q")
    allocation = reader.nullable_bytes("allocation") if version >= 1 and reader.has_more else None
    return Metadata(url, config_offset, decode_assignment(protocol, allocation) if allocation else None)


def decode_assignment(protocol: str, data: bytes) -> Assignment | None:
    """What the leader assigned to a member.

    :param protocol: the group's protocol, one of :data:`PROTOCOLS`.
    :returns: None for empty bytes: the broker reports none while the group rebalances.
    :raises UndecodableError: naming what was wrong.
    """
    if not data:
        return None
    reader = _Reader(data, "assignment")
    version = reader.version(protocol)
    error = reader.number("error", ">h")
    leader, leader_url = reader.text("leader"), reader.text("leader-url")
    config_offset = reader.number("config-offset", ">q")
    # Java lets the fields at the end of version 1 be absent (TOLERATE_MISSING_FIELDS_WITH_DEFAULTS).
    assigned = reader.connector_tasks("assignment") if reader.has_more or version == 0 else ()
    revoked = reader.connector_tasks("revoked") if version >= 1 and reader.has_more else ()
    delay_ms = reader.number("delay", ">i") if version >= 1 and reader.has_more else 0
    connectors, tasks = _split(assigned)
    revoked_connectors, revoked_tasks = _split(revoked)
    return Assignment(
        error, leader, leader_url, config_offset, connectors, tasks, revoked_connectors, revoked_tasks, delay_ms
    )


#: The task number of the connector itself.
_CONNECTOR = -1

_Pairs = tuple[tuple[str, int], ...]


def _split(pairs: _Pairs) -> tuple[frozenset[str], frozenset[tuple[str, int]]]:
    return (
        frozenset(connector for connector, number in pairs if number == _CONNECTOR),
        frozenset(pair for pair in pairs if pair[1] != _CONNECTOR),
    )


class _Reader:
    """Reads one payload field by field; an error names the field and the byte where it begins."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def version(self, protocol: str) -> int:
        if protocol not in PROTOCOLS:
            raise UndecodableError(f"The protocol {protocol!r} is none of Connect's.", expected=", ".join(PROTOCOLS))
        version = self.number("version", ">h")
        if not 0 <= version < len(PROTOCOLS):
            raise UndecodableError(f"The {self._what} has version {version}.", expected="0, 1 or 2")
        return version

    def number(self, name: str, form: str) -> int:
        (value,) = struct.unpack(form, self._take(name, struct.calcsize(form)))
        return int(value)

    def text(self, name: str) -> str:
        begin = self._at
        try:
            return self._take(name, self.number(name, ">h")).decode("utf-8")
        except UnicodeDecodeError:
            raise UndecodableError(f"The {self._what}'s {name} at byte {begin} is not UTF-8.") from None

    def nullable_bytes(self, name: str) -> bytes:
        length = self.number(name, ">i")
        return b"" if length == -1 else self._take(name, length)

    def connector_tasks(self, name: str) -> _Pairs:
        pairs: list[tuple[str, int]] = []
        for _ in range(self.number(name, ">i")):  # -1, null, is none
            connector = self.text(f"{name}.connector")
            count = self.number(f"{name}.tasks", ">i")
            pairs.extend((connector, self.number(f"{name}.tasks", ">i")) for _ in range(count))
        return tuple(pairs)

    def _take(self, name: str, length: int) -> bytes:
        if length < 0 or self._at + length > len(self._data):
            raise UndecodableError(
                f"The {self._what} ends within {name}: {length} bytes at byte {self._at} of {len(self._data)}."
            )
        taken = self._data[self._at : self._at + length]
        self._at += length
        return taken
