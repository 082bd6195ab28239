"""The restart of a worker that is a process of this machine: handed over to a helper, waited for, reported once."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.connect.properties import read
from airflow_eos_provider.data_text import sentence
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.process_start import ProcessStart
from airflow_eos_provider.processes import ProcessIdentity
from airflow_eos_provider.rollout.hosts.host import CLOCK_TICK_SECONDS, Permit, WorkerStartError
from airflow_eos_provider.rollout.hosts.log_tail import tail
from airflow_eos_provider.rollout.hosts.ownership import own_address
from airflow_eos_provider.rollout.hosts.process import files, restart_act, worker_process
from airflow_eos_provider.rollout.hosts.process.detached_restart import hand_over
from airflow_eos_provider.rollout.hosts.process.facts import config_of, gaps, live_process, start_token
from airflow_eos_provider.rollout.hosts.process.restart_act import ActKey, Failure, Phase, RestartRecord, RestartSpec
from airflow_eos_provider.rollout.hosts.restart_event import OnEvent, RestartEvent, without_moments

#: A started worker is watched until it listens, at most this many seconds; one that ends meanwhile has refused its
#: configuration. A JVM on a busy machine needs some seconds to get there.
EARLY_END_SECONDS = 10.0

#: After a worker has ended, its port must be free within this many seconds.
PORT_FREE_SECONDS = 15.0

#: After SIGKILL a process is gone within this many seconds, or hangs in the kernel.
KILL_SECONDS = 5.0

#: What a restart may take at most beside the grace of its stop.
RESTART_SECONDS = KILL_SECONDS + PORT_FREE_SECONDS + EARLY_END_SECONDS

#: The helper's own share: an interpreter on a busy machine, and records on a slow disk.
HELPER_SECONDS = 10.0


class ProcessRestart:
    """Restarts one worker.

    :param worker: its description.
    """

    def __init__(self, worker: WorkerDescription) -> None:
        self._worker = worker

    def run(
        self,
        *,
        stop_grace_seconds: float,
        on_event: OnEvent,
        permit: Permit,
        rollout: str,
        replaces: str,
    ) -> None:
        """See :meth:`~airflow_eos_provider.rollout.hosts.host.Host.restart`."""
        log, pid_file = self._require_startable()
        path = restart_act.record_path(pid_file)
        content = files.read(config_of(self._worker))
        key = ActKey(rollout, replaces, content.sha256)
        record = self._earlier_act(path, key, stop_grace_seconds, on_event)
        if record is None:
            process = live_process(self._worker)
            self._require_own(process)
            spec = self._spec(key, process, content, log, pid_file, stop_grace_seconds)
            permit("stop" if process else "start")
            warning = hand_over(spec)
            if warning:
                on_event(RestartEvent(warning))
            record = restart_act.wait_for_end(path, spec.act_seconds + HELPER_SECONDS, on_event)
        if record is None:
            record = self._seen(key)
        self._report_outcome(record, path, log)

    @property
    def _address(self) -> str:
        """Where the worker itself listens."""
        return own_address(self._worker.url, self._properties())

    def _seen(self, key: ActKey) -> RestartRecord | None:
        """What is seen of an act whose record is gone: reported by another controller, or swept away."""
        process = live_process(self._worker)
        if process is None:
            return None
        token = start_token(worker_process.java_of(process.family(), self._worker))
        if token == key.replaces:
            return None
        return RestartRecord(key, "", Phase.DONE, process.pid, token)

    def _earlier_act(self, path: Path, key: ActKey, grace_seconds: float, on_event: OnEvent) -> RestartRecord | None:
        """An act that was begun before and not reported: the same one, over by now; None if there is none.

        One of another rollout, or before another change of the file, is waited for and then forgotten: it started the
        worker with what is no longer meant. So is one that was cut off together with its helper.
        """
        record = restart_act.read_record(path)
        if record is None:
            return None
        is_same = bool(key.rollout) and record.key == key
        heard = on_event if is_same else without_moments(on_event)
        if record.is_in_flight:
            heard(RestartEvent("a restart that was begun before is under way; waiting for its end"))
        if record.is_in_flight or is_same:
            record = restart_act.wait_for_end(path, grace_seconds + RESTART_SECONDS + HELPER_SECONDS, heard)
        else:  # its helper may have written the end of the act, and ended, since the record was read
            record = restart_act.read_record(path)
        is_same = record is not None and bool(key.rollout) and record.key == key
        if record is not None and record.is_in_flight:
            return record
        if is_same and record is not None and record.phase.is_end:
            return record
        restart_act.forget(path)
        return None

    def _require_own(self, process: ProcessIdentity | None) -> None:
        """Refuse to stop what is not this worker's alone, and to start beside what holds its port.

        :raises RefusedError: naming what it belongs to.
        """
        worker = self._worker
        if process is None:
            if worker_process.is_listening(self._address):
                raise RefusedError(
                    f"{worker.worker_id} is held by {worker_process.port_holder(self._address)}, "
                    f"which the pid file {worker.pid_file} does not name.",
                    remedy="Look what that process is. If it is this worker, write its pid into the pid file.",
                )
            return
        if not worker_process.belongs_to(process, worker):
            raise RefusedError(
                f"The pid file {worker.pid_file} names process {process.pid}, whose command line names "
                f"neither {worker.config} nor the start command of {worker.worker_id}.",
                remedy="Look what that process is, then correct pid_file, config or start.",
            )
        found = worker_process.obstacles(process.family(), worker, self._address)
        if found:
            raise RefusedError(
                f"{worker.worker_id} may not be restarted from here: {found[0].what}. Nothing was stopped.",
                remedy=sentence(found[0].remedy),
            )

    def _spec(
        self,
        key: ActKey,
        process: ProcessIdentity | None,
        content: files.FileContent,
        log: Path,
        pid_file: Path,
        grace_seconds: float,
    ) -> RestartSpec:
        worker = self._worker
        top = worker_process.top_of(process, worker) if process else None
        token = ProcessStart.of(top.pid) if top else None
        umask, limits = worker_process.umask_and_limits(process)
        return RestartSpec(
            key=key,
            stop_pid=top.pid if top else 0,
            stop_token=str(token) if token else "",
            host=urlsplit(self._address).hostname or "",
            port=worker_process.port_of(self._address),
            grace_seconds=grace_seconds,
            kill_seconds=KILL_SECONDS,
            port_seconds=PORT_FREE_SECONDS,
            watch_seconds=EARLY_END_SECONDS,
            # A process that starts in the same tick as its file was written could not be distinguished from an older.
            not_before=content.changed_at + CLOCK_TICK_SECONDS,
            start=worker.start,
            cwd=str(worker.cwd) if worker.cwd else None,
            env=dict(worker.env),
            log=str(log.absolute()),
            pid_file=str(pid_file.absolute()),
            umask=umask,
            limits=limits,
        )

    def _report_outcome(self, record: RestartRecord | None, path: Path, log: Path) -> None:
        """Report once what an act has come to.

        :raises EosError: it has failed, was cut off, or is not over.
        """
        worker_id = self._worker.worker_id
        if record is not None and record.is_in_flight:
            raise RefusedError(
                f"The restart of {worker_id} is {record.phase} and not over in time; it goes on without this process.",
                remedy=f"Look what it waits for (a disk that hangs, mostly); its record is {path}.",
            )
        restart_act.forget(path)
        if record is not None and record.phase is Phase.DONE:
            return
        if record is None or not record.phase.is_end:
            found = f"it was {record.phase}" if record else f"its record {path} is gone"
            raise RefusedError(
                f"The restart of {worker_id} was cut off: {found}, and its helper has ended.",
                remedy="Apply the same plan again: it starts the worker.",
            )
        raise self._failure(record, log)

    def _failure(self, record: RestartRecord, log: Path) -> EosError:
        worker_id = self._worker.worker_id
        match record.failure:
            case Failure.ENDED_AT_ONCE:
                output = tail(log, record.log_from, secrets=self._secret_values())
                return WorkerStartError(
                    f"{worker_id} (pid {record.pid}) ended right after its start. Its log:\n{output}",
                    remedy=f"Correct what the log reports ({log}).",
                )
            case Failure.NO_PROGRAM:
                return ConfigurationError(
                    f"The start command of {worker_id} cannot be run: {record.detail}.",
                    remedy="Correct 'start', 'cwd', 'log' or 'pid_file' in the cluster description.",
                )
            case Failure.PORT_IS_HELD:
                return RefusedError(
                    f"{worker_id} was stopped and not started: its port is held by "
                    f"{worker_process.port_holder(self._address)}.",
                    remedy="Look what that process is, and end what starts it.",
                )
            case Failure.DOES_NOT_END:
                return RefusedError(
                    f"{worker_id} could not be stopped: {record.detail}.",
                    remedy="Look what it waits for (a disk that hangs, mostly).",
                )
            case Failure.NOT_PERMITTED:
                return RefusedError(
                    f"{worker_id} could not be stopped: {record.detail}.",
                    remedy="Run this as a user who may stop all of the worker's processes.",
                )
            case _:
                return RefusedError(
                    f"The restart of {worker_id} failed in its helper: {record.detail}.",
                    remedy="Look whether the worker runs; apply the same plan again to go on.",
                )

    def _require_startable(self) -> tuple[Path, Path]:
        missing = gaps(self._worker)
        if missing or self._worker.log is None or self._worker.pid_file is None:
            raise ConfigurationError(
                f"{self._worker.worker_id} cannot be started: {'; '.join(missing)}.",
                remedy="Complete the worker in the cluster description.",
            )
        return self._worker.log, self._worker.pid_file

    def _secret_values(self) -> tuple[str, ...]:
        return worker_process.secret_values({**self._properties(), **self._worker.env})

    def _properties(self) -> dict[str, str]:
        """What its file says; nothing where it cannot be read."""
        try:
            return read(files.read(config_of(self._worker)).data)
        except EosError:
            return {}
