"""The demo's part about source offsets: the mirror's are moved into a topic of its own, removed, and put back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_eos_provider.connect.group import describe_group
from airflow_eos_provider.connect.rest import ConnectRest
from airflow_eos_provider.connect.session import ConnectSession
from airflow_eos_provider.demo.load import MIRROR_CONNECTOR
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.journal.change import change_journal
from airflow_eos_provider.lab.lab import Lab
from airflow_eos_provider.offsets.seen import backup
from airflow_eos_provider.offsets.seen.group import read_group_offsets
from airflow_eos_provider.offsets.stores import OffsetStores
from airflow_eos_provider.offsets.verbs.apply import OffsetsChanger, OffsetsReport
from airflow_eos_provider.offsets.verbs.request import OffsetsRequest, Verb

OWN_TOPIC = "flights-mirror-offsets"

_REST_SECONDS = 60.0


class MirrorOffsets:
    """Changes the mirror's offsets as ``eos offsets`` does.

    :param say: receives one line of progress at a time.
    """

    def __init__(self, lab: Lab, session: ConnectSession, say: Callable[[str], None]) -> None:
        self._session = session
        self._group_id = lab.group_id
        self._global_topic = f"{lab.group_id}-offsets"
        self._cluster = lab.cluster()
        self._changer = OffsetsChanger(session, f"{lab.group_id}-configs", self._global_topic, report=say)

    def move(self) -> OffsetsReport:
        """Into an own topic, while it runs."""
        return self._apply(OffsetsRequest(Verb.MIGRATE, MIRROR_CONNECTOR, own_topic=OWN_TOPIC))

    def remove_and_put_back(self, file: Path) -> tuple[OffsetsReport, OffsetsReport]:
        """Stop it, remove its offsets, put them back from a backup, and start it again.

        :param file: of the backup.
        """
        url = self._cluster.workers[0].url
        with ConnectRest(url, self._cluster.rest, retry_seconds=_REST_SECONDS) as rest:
            rest.stop(MIRROR_CONNECTOR)
            deadline = time.monotonic() + _REST_SECONDS
            while (
                (status := rest.statuses()[MIRROR_CONNECTOR]).tasks
                or status.state != "STOPPED"
                or describe_group(self._session.kafka, self._group_id).may_run(MIRROR_CONNECTOR)
            ):
                if time.monotonic() > deadline:
                    raise EosError(f"{MIRROR_CONNECTOR} was asked to stop; {_REST_SECONDS:.0f} s later it has not.")
                time.sleep(0.2)
            stores = OffsetStores(self._session, self._global_topic)
            found = read_group_offsets(stores, rest.statuses(), only=[MIRROR_CONNECTOR], headers=True)
            cluster_id = self._session.kafka.cluster_id()
            backup.write(backup.take(found, cluster_id, self._group_id, time.time(), MIRROR_CONNECTOR), file)
            removed = self._apply(OffsetsRequest(Verb.RESET, MIRROR_CONNECTOR))
            back = self._apply(OffsetsRequest(Verb.RESTORE, MIRROR_CONNECTOR, file=str(file)))
            rest.resume(MIRROR_CONNECTOR)
        return removed, back

    def _apply(self, request: OffsetsRequest) -> OffsetsReport:
        journal = change_journal(self._session.kafka, self._group_id, actor="eos demo")
        return self._changer.apply(self._changer.plan(request), journal)


def change_mirror_offsets(lab: Lab, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Move, remove and put back.

    :param folder: for the backup.
    :returns: what was done, for the report.
    """
    with ConnectSession(lab.cluster()) as session:
        offsets = MirrorOffsets(lab, session, say)
        moved = offsets.move()
        removed, back = offsets.remove_and_put_back(folder / "flights-mirror.jsonl")
    return {"own_topic": OWN_TOPIC, "moved": moved.written, "removed": removed.written, "put_back": back.written}
