"""The current source offsets of a described group: shown, or taken as a backup."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.topics.internal_topics import OFFSETS, read_worker_files
from airflow_eos_provider.errors import ConfigurationError, EosError
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.seen.group_offsets import GroupOffsets, read_group_offsets
from airflow_eos_provider.offsets.stores import OffsetStores, source_of

#: Limit of the one request for all connectors, seconds.
_REST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup has."""

    document: Mapping[str, Any]  #: its header, ``file``, ``records`` and ``sha256``; scripts rely on the names
    unknown: Mapping[str, EosError]  #: by connector why it does not have what its tasks read


class OffsetsLook:
    """Reads the source offsets of one group. Changes nothing."""

    def __init__(self, session: ConnectSession, offsets_topic: str = "") -> None:
        self._session = session
        self._offsets_topic = offsets_topic

    def now(
        self,
        connector: str = "",
        *,
        headers: bool = False,
        may_be_gone: bool = False,
        unknown: Callable[[str, EosError], None] | None = None,
    ) -> GroupOffsets:
        """The offsets as they are."""
        session = self._session
        topic = read_worker_files(session.cluster).common(OFFSETS, self._offsets_topic)
        connectors = session.first_answer(lambda rest: rest.infos(), seconds=_REST_SECONDS)
        if connector and (connector in connectors or not may_be_gone):
            remedy = f"What a deleted connector has left: 'eos offsets list {connector} --all'."
            source_of(connector, connectors, session.cluster.group_id, remedy)
        return read_group_offsets(
            OffsetStores(session, topic),
            connectors,
            only=[connector] if connector else None,
            headers=headers,
            unknown=unknown,
        )

    def take(self, connector: str = "", unknown: Callable[[str, EosError], None] | None = None) -> backup.Backup:
        """A backup."""
        at = time.time()
        offsets = self.now(connector, headers=True, unknown=unknown)
        session = self._session
        return backup.take(offsets, session.kafka.cluster_id(), session.cluster.group_id, at, connector or None)

    def taken_before(self, file: Path, connector: str = "") -> BackupReport | None:
        """What a backup has that is there already; None if there is no such file."""
        if not file.exists():
            return None
        found, session = backup.read(file), self._session
        wanted = (session.kafka.cluster_id(), session.cluster.group_id, (connector,) if connector else None)
        if (found.cluster_id, found.group_id, found.connectors) != wanted:
            raise ConfigurationError(
                f"{file} exists, and is the backup of something else.",
                expected=f"one of {connector or 'all connectors'} of the group {session.cluster.group_id}",
                remedy="Name another file.",
            )
        return _report(found, file, len(tuple(found.records)), found.digest, {})

    def backup(self, to: Path, connector: str = "", *, whole: bool = False) -> BackupReport:
        """Write a backup into a file of JSON lines.

        Of one connector alone, a backup without what its tasks read would be none: that is an error. One of all is
        written, and says of which connectors it does not have what their tasks read.
        """
        backup.require_new(to)
        unknown = dict[str, EosError]()
        taken = self.take(connector, None if connector else unknown.__setitem__)
        if whole and unknown:
            return _report(taken, to, 0, "", unknown)
        return _report(taken, to, *backup.write(taken, to), unknown)


def _report(found: backup.Backup, file: Path, records: int, digest: str, unknown: dict[str, EosError]) -> BackupReport:
    return BackupReport({**found.header(), "file": str(file), "records": records, "sha256": digest}, unknown)
