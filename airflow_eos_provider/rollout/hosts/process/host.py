"""The ``process`` host kind: a worker that runs as a process of this machine.

Its edit is its properties file; its restart is its owner's start command, carried out by a helper of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.rollout.hosts.edited_file import digest, with_properties
from airflow_eos_provider.rollout.hosts.host import Permit
from airflow_eos_provider.rollout.hosts.process import files
from airflow_eos_provider.rollout.hosts.process.facts import FactGatherer, ProcessFacts, config_of
from airflow_eos_provider.rollout.hosts.process.restart import ProcessRestart
from airflow_eos_provider.rollout.hosts.restart_event import OnEvent
from airflow_eos_provider.rollout.settings import STOP_GRACE_SECONDS


class ProcessHost:
    """One worker of this machine; a :class:`~airflow_eos_provider.rollout.hosts.host.Host`.

    :param worker: its description.
    """

    def __init__(self, worker: WorkerDescription) -> None:
        self._worker = worker
        self._facts = FactGatherer(worker)

    def observe(self) -> ProcessFacts:
        """File and process as they are now."""
        return self._facts.gather()

    def unseen(self, why: str) -> ProcessFacts:
        """What the description alone shows."""
        return self._facts.unseen(why)

    def digest_with(self, properties: Mapping[str, str | None]) -> str:
        """SHA-256 that the worker's file would have with these properties set."""
        return digest(with_properties(files.read(config_of(self._worker)).data, properties))

    def edit(self, properties: Mapping[str, str | None], *, expect: str) -> str:
        """Set properties of the worker's file; the bytes before stand in ``<file>.eos-backup`` (mode 0600).

        :raises PlanMovedError: the file is not the one that was planned.
        :raises RefusedError: owner, group or permissions cannot be kept.
        :raises ConfigurationError: the file or its folder cannot be written, or a config provider supplies the value.
        """
        path = config_of(self._worker)
        content = files.read(path)
        files.require(content, expect)
        data = with_properties(content.data, properties)
        if data != content.data:
            files.replace(path, data, expect_sha256=expect, backup=True)
        return digest(data)

    def restore(self, *, expect: str, original: str) -> None:
        """Put the file back as it was before :meth:`edit`.

        :raises PlanMovedError: the file was edited since.
        :raises RefusedError: the backup is gone or holds other bytes.
        """
        path = config_of(self._worker)
        if files.read(path).sha256 == original:
            return
        data = files.backup_of(path, original)
        files.replace(path, data, expect_sha256=expect, backup=False)

    def restart(
        self,
        *,
        stop_grace_seconds: float = STOP_GRACE_SECONDS,
        on_event: OnEvent = lambda _event: None,
        permit: Permit = lambda _act: None,
        rollout: str = "",
        replaces: str = "",
    ) -> None:
        """Stop the worker's process, if it has one, and start a new one by its owner's start command."""
        ProcessRestart(self._worker).run(
            stop_grace_seconds=stop_grace_seconds,
            on_event=on_event,
            permit=permit,
            rollout=rollout,
            replaces=replaces,
        )
