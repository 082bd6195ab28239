"""The restart of a worker by an act of its machine: begun, waited for, reported once."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeVar

from airflow_eos_provider.connect.cluster.description import WorkerDescription
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.redaction import redact, secrets_of
from airflow_eos_provider.rollout.hosts.host import NOT_RUNNING, RestartRequest, WorkerStartError
from airflow_eos_provider.rollout.hosts.machine.machine import Machine
from airflow_eos_provider.rollout.hosts.machine.worker_log import WorkerLog
from airflow_eos_provider.rollout.hosts.restart_event import OnEvent, RestartEvent, moments_of, without_moments
from airflow_eos_provider.rollout.hosts.service.restart_act import (
    HELPER_SECONDS,
    RESTART_SECONDS,
    ActKey,
    Beginning,
    Failure,
    Phase,
    RecordLook,
    RestartActs,
    RestartRecord,
    RestartTask,
)
from airflow_eos_provider.rollout.hosts.service.service import Service, ServiceFacts

F = TypeVar("F", bound=ServiceFacts)

_WITHHELD = "***"

#: Where another act begins at the same moment, its end is waited for, so often.
_ATTEMPTS = 3


class ActingService(Service):
    """A service whose worker is restarted by an act of its machine."""

    def __init__(self, machine: Machine, worker: WorkerDescription) -> None:
        super().__init__(machine, worker)
        self._acts = RestartActs(machine, worker)

    @abstractmethod
    def _task(self, facts: ServiceFacts, key: ActKey, grace_seconds: float) -> RestartTask:
        """What is to be done, given how the process is now; refuses what may not be touched."""

    def restart(self, request: RestartRequest) -> None:
        def shown(event: RestartEvent) -> None:
            request.on_event(replace(event, words=self._shown(event.words)))

        key = ActKey(request.rollout, request.replaces, request.config_sha256)
        for _ in range(_ATTEMPTS):
            look = self._earlier_act(key, request.stop_grace_seconds, shown)
            if look is not None:
                break
            facts = self.look()
            if facts.has_done(request):
                request.on_event(facts.restarted_already)
                return
            task = self._task(facts, key, request.stop_grace_seconds)
            request.permit("stop" if task.stop_pid else "start")
            beginning = self._acts.begin(task, shown)
            if beginning is Beginning.BEGUN:
                look = self._acts.follow(task.seconds, shown)
                break
            if beginning is Beginning.MOVED:
                look = RecordLook(self._require_seen(key), "")
                break
        else:
            raise RefusedError(
                f"Another controller keeps restarting {self.worker.worker_id} on {self.where}.",
                remedy="Find out who else restarts it.",
            )
        assert look is not None
        record = look.record or self._seen(key)
        self._report_outcome(record, look.path)

    def _with_act(self, facts: F) -> F:
        """The same facts, with the last restart that no controller has reported yet."""
        record = self._acts.look().record
        if record is None:
            return facts
        is_of_this_start = facts.top is not None and record.start == facts.top.start
        of_rollout = f" of rollout {record.key.rollout}" if record.key.rollout else ""
        return replace(
            facts,
            restart=f"a restart{of_rollout} is {record.phase}" if record.is_in_flight else None,
            restarted=moments_of(record.events) if is_of_this_start else (),
        )

    def _require_seen(self, key: ActKey) -> RestartRecord:
        """The act of this rollout that another controller has carried out and reported."""
        record = self._seen(key) if key.rollout and key.replaces else None
        if record is None:
            raise RefusedError(
                f"{self.worker.worker_id} was not restarted: its process is not the expected one. Nothing was stopped.",
                remedy="Find out what restarted it, then plan again.",
            )
        return record

    def _earlier_act(self, key: ActKey, grace_seconds: float, on_event: OnEvent) -> RecordLook | None:
        """An act that was begun before and not reported: the same one, over by now; None if there is none.

        One of another rollout, or before another change of the file, is waited for and then forgotten: it started the
        worker with what is no longer meant. So is one that was cut off together with its helper.
        """
        look = self._acts.look()
        if look.record is None:
            return None
        is_same = bool(key.rollout) and look.record.key == key
        heard = on_event if is_same else without_moments(on_event)
        if look.record.is_in_flight:
            heard(RestartEvent("an earlier restart is still running; waiting for its end"))
        if look.record.is_in_flight or is_same:
            look = self._acts.follow(grace_seconds + RESTART_SECONDS + HELPER_SECONDS, heard)
        record = look.record
        if record is None:
            return None
        is_same = bool(key.rollout) and record.key == key
        if record.is_in_flight or (is_same and record.phase.is_end):
            return look
        self._acts.forget(record)
        return None

    def _seen(self, key: ActKey) -> RestartRecord | None:
        """What is seen of an act whose record is gone: reported by another controller, or swept away."""
        facts = self.look()
        if facts.process is None or facts.token in (NOT_RUNNING, key.replaces):
            return None
        return RestartRecord(key, "", Phase.DONE, facts.process.pid, facts.process.start)

    def _report_outcome(self, record: RestartRecord | None, path: str) -> None:
        """Report once what an act has come to."""
        worker_id = self.worker.worker_id
        if record is not None and record.is_in_flight:
            raise RefusedError(
                f"The restart of {worker_id} is {record.phase} and late; it continues without this process.",
                remedy=f"Check what it waits for (usually a hanging disk); its record is {path} on {self.where}.",
            )
        failure = self._failure(record) if record is not None and record.phase is Phase.FAILED else None
        if record is not None and record.act:
            self._acts.forget(record)
        if failure is not None:
            raise failure
        if record is None or not record.phase.is_end:
            found = f"it was {record.phase}" if record else f"its record {path} is gone"
            raise RefusedError(
                f"The restart of {worker_id} was cut off: {found}, and its helper on {self.where} has ended.",
                remedy="Apply the same plan again: it starts the worker.",
            )

    def _failure(self, record: RestartRecord) -> EosError:
        worker_id, detail = self.worker.worker_id, self._shown(record.detail)
        read_log = f"Correct what the log reports ({self.worker.log or 'see its supervisor'})."
        kind: type[EosError] = RefusedError
        match record.failure:
            case Failure.ENDED_AT_ONCE:
                kind, remedy = WorkerStartError, read_log
                found = f"{worker_id} (pid {record.pid}) ended right after its start. {self._log_tail(record)}"
            case Failure.NOT_STARTED:
                kind, remedy = WorkerStartError, read_log
                found = f"{worker_id} was stopped, and its supervisor did not start it; {detail}. "
                found += self._log_tail(record)
            case Failure.COMMAND_FAILED:
                found = f"The restart command of {worker_id} failed: {detail}."
                remedy = f"Run it on {self.where} and see what it reports; correct 'service', or allow it."
            case Failure.NO_PROGRAM:
                kind, found = ConfigurationError, f"The start command of {worker_id} cannot be run: {detail}."
                remedy = "Correct 'start', 'cwd', 'log' or 'pid_file' in the cluster description."
            case Failure.PORT_IS_HELD:
                found = f"{worker_id} was stopped and not started: its port is held by another process."
                remedy = f"Find out what that process is on {self.where}, and end its starter."
            case Failure.DOES_NOT_END:
                found = f"{worker_id} could not be stopped: {detail}."
                remedy = "Check what it waits for (usually a hanging disk)."
            case Failure.NOT_PERMITTED:
                found = f"{worker_id} could not be stopped: {detail}."
                remedy = "Log in as a user who may stop all of the worker's processes."
            case _:
                found = f"The restart of {worker_id} failed in its helper: {record.failure}: {detail}."
                remedy = "Check whether the worker runs, then apply the same plan again to resume."
        return kind(found, remedy=remedy)

    def _log_tail(self, record: RestartRecord) -> str:
        if self.worker.log is None:
            return "The description names no log."
        try:
            log = WorkerLog(self.machine, PurePosixPath(self.worker.log), sudo=self.worker.uses_sudo_for("log"))
            return f"Its log:\n{log.tail(record.log_from, secrets=self._secrets())}"
        except EosError as error:
            return f"Its log cannot be read: {error.found}"

    def _secrets(self) -> tuple[str, ...]:
        return secrets_of(dict(self.worker.env))

    def _shown(self, text: str) -> str:
        """What a command has printed may hold a secret."""
        for secret in self._secrets():
            text = text.replace(secret, _WITHHELD)
        return redact(text)
