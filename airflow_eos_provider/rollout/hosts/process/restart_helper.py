"""The process that restarts one worker: ``python -m airflow_eos_provider.rollout.hosts.process.restart_helper``.

It reads its :class:`RestartSpec` from standard input, writes the act's record, and leaves its caller: a session of its
own, no streams, no parent. From then on the stop and the start are carried out whatever becomes of the caller; requests
to end (SIGTERM, SIGINT, SIGHUP) wait until the act is over. If the machine dies, the record says how far the act came.

Exit codes of the process that the caller sees, which ends as soon as the act has begun: 0, it has begun. With any other
code nothing is done: 91, the record could not be written; 92, the specification was not whole; 93, another act of this
worker is in flight.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil

from airflow_eos_provider import processes
from airflow_eos_provider.process_start import ProcessStart
from airflow_eos_provider.rollout.hosts.process.restart_act import (
    Failure,
    Phase,
    RestartRecord,
    RestartSpec,
    only_one,
    read_record,
)
from airflow_eos_provider.rollout.hosts.restart_event import Moment

#: No other program ends with these, so that a failed ``systemd-run`` is not taken for the helper.
BEGUN, NO_RECORD, NOT_WHOLE, IN_FLIGHT = 0, 91, 92, 93

_CONNECT_SECONDS = 1.0


class _ActError(Exception):
    """The act has failed.

    :param failure: why.
    :param detail: the same in words.
    """

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


class RestartAct:
    """One act, carried out in this process.

    :param spec: what is to be done.
    """

    def __init__(self, spec: RestartSpec) -> None:
        self._spec = spec
        self._record = RestartRecord(spec.key, str(ProcessStart.of_this_process()), Phase.STOPPING)

    def begin(self) -> bool:
        """Write the record, unless another act of this worker is in flight.

        :returns: whether this act may go on.
        :raises OSError: the record cannot be written.
        """
        path = self._spec.record_path
        with only_one(path):
            other = read_record(path)
            if other is not None and other.is_in_flight:
                return False
            self._record.write(path)
        return True

    def carry_out(self) -> None:
        """Stop the worker, start it, and watch its first seconds. What goes wrong is in the record."""
        try:
            self._stop()
            self._start()
        except _ActError as error:
            self._note(replace(self._record, phase=Phase.FAILED, failure=str(error.failure), detail=error.detail))
        except Exception as error:  # whatever it is, nobody else is there to see it
            detail = f"{type(error).__name__}: {error}"
            self._note(replace(self._record, phase=Phase.FAILED, failure=str(Failure.BROKEN), detail=detail))

    def _note(self, record: RestartRecord) -> None:
        """The act goes on without its record: a full disk must not leave a worker stopped."""
        self._record = record
        with contextlib.suppress(OSError):
            record.write(self._spec.record_path)

    def _stop(self) -> None:
        spec = self._spec
        top = processes.identify(spec.stop_pid) if spec.stop_pid else None
        if top is not None and str(ProcessStart.of(top.pid)) == spec.stop_token:
            self._note(self._record.with_event(f"stopping pid {top.pid}"))
            try:
                result = processes.stop_family(top, grace_seconds=spec.grace_seconds, kill_seconds=spec.kill_seconds)
            except psutil.AccessDenied as error:
                raise _ActError(Failure.NOT_PERMITTED, f"process {error.pid} belongs to another user") from error
            for pid in result.killed:
                event = f"pid {pid} did not stop within {spec.grace_seconds:g} s and was killed"
                self._note(self._record.with_event(event))
            if result.left:
                pids = ", ".join(map(str, result.left))
                raise _ActError(Failure.DOES_NOT_END, f"process {pids} does not end, not even by SIGKILL")
            self._note(self._record.with_event(f"pid {top.pid} has ended", Moment.STOPPED))
        self._wait_for_port()
        self._note(replace(self._record, phase=Phase.STARTING))

    def _wait_for_port(self) -> None:
        deadline = time.monotonic() + (self._spec.port_seconds if self._spec.stop_pid else 0.0)
        while self._is_listening():
            if time.monotonic() >= deadline:
                raise _ActError(Failure.PORT_IS_HELD, f"port {self._spec.port} is still held")
            time.sleep(0.1)

    def _start(self) -> None:
        spec, log = self._spec, Path(self._spec.log)
        time.sleep(max(0.0, min(0.1, spec.not_before - time.time())))
        log_from = log.stat().st_size if log.exists() else 0
        os.umask(spec.umask)
        for number, soft, hard in spec.limits:
            with contextlib.suppress(OSError, ValueError):  # may not be raised to that: the caller's stays
                resource.setrlimit(number, (soft, hard))
        try:
            new = processes.spawn(
                spec.start,
                log=log,
                pid_file=Path(spec.pid_file),
                cwd=Path(spec.cwd) if spec.cwd else None,
                env=spec.env,
            )
        except OSError as error:
            raise _ActError(Failure.NO_PROGRAM, error.strerror or str(error)) from error
        token = ProcessStart.of(new.pid)
        self._note(
            replace(
                self._record.with_event(f"started as pid {new.pid}", Moment.STARTED),
                phase=Phase.STARTED,
                pid=new.pid,
                process=str(token) if token else "",
                log_from=log_from,
            )
        )
        self._watch(new)
        self._note(replace(self._record, phase=Phase.DONE))

    def _watch(self, new: processes.ProcessIdentity) -> None:
        """Wait until the worker listens, or has lived through its first seconds; what comes later is the gate's."""
        deadline = time.monotonic() + self._spec.watch_seconds
        while time.monotonic() < deadline:
            if not new.is_alive():
                raise _ActError(Failure.ENDED_AT_ONCE, f"pid {new.pid} ended right after its start")
            if self._is_listening():
                return
            time.sleep(0.1)

    def _is_listening(self) -> bool:
        try:
            with socket.create_connection((self._spec.host, self._spec.port), timeout=_CONNECT_SECONDS):
                return True
        except OSError:
            return False


def main() -> int:
    """Read the specification, begin the act in a process of its own session, and say whether it has begun."""
    try:
        spec = RestartSpec.from_bytes(sys.stdin.buffer.read())
    except (ValueError, KeyError, TypeError):
        return NOT_WHOLE
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        answer = os.read(reader, 1)
        return answer[0] if answer else NO_RECORD
    _leave_the_caller()
    act = RestartAct(spec)
    try:
        has_begun = act.begin()
    except OSError:
        os._exit(NO_RECORD)  # the pipe closes without an answer
    os.write(writer, bytes([BEGUN if has_begun else IN_FLIGHT]))
    os.close(writer)
    if has_begun:
        act.carry_out()
    os._exit(0)


def _leave_the_caller() -> None:
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A handler, not SIG_IGN: what is ignored would be ignored by the worker as well.
        signal.signal(number, lambda *_: None)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


if __name__ == "__main__":
    sys.exit(main())
