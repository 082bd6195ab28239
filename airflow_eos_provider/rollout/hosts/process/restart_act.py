"""The restart of one worker as one act: what is to be done, and the record of how far it has come.

The act is carried out by a process of its own (``restart_helper.py``), so that it ends in a running worker or in a
recorded failure, whatever becomes of the controller that has begun it. The record stands beside the worker's pid file;
it holds no secret. Whoever controls the roll waits for the record's end, reports it, and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Any

from airflow_eos_provider.process_start import ProcessStart
from airflow_eos_provider.rollout.hosts.restart_event import Moment, OnEvent, RestartEvent

#: The record of an act stands beside the pid file under this suffix. Renaming it breaks restarts in flight.
RECORD_SUFFIX = ".eos-restart"

#: Schema of the record; one of another schema is not this version's act.
SCHEMA = 1

_LOOK_SECONDS = 0.1


class Phase(StrEnum):
    """How far an act has come."""

    STOPPING = "stopping"
    STARTING = "starting"  #: the old process has ended
    STARTED = "started"  #: the new process runs, and its first seconds are watched
    DONE = "done"
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        return self in (Phase.DONE, Phase.FAILED)


class Failure(StrEnum):
    """Why an act has failed."""

    NOT_PERMITTED = "not permitted"  #: a process belongs to another user
    DOES_NOT_END = "does not end"  #: not even by SIGKILL
    PORT_IS_HELD = "port is held"
    NO_PROGRAM = "no program"  #: the start command cannot be run
    ENDED_AT_ONCE = "ended at once"
    BROKEN = "broken"  #: the helper itself failed


@dataclass(frozen=True, slots=True)
class ActKey:
    """What makes two restarts the same act.

    :param rollout: the rollout that asks for it; empty if none does, and then no act is ever taken for this one.
    :param replaces: start token of the process that is to be replaced; empty if none runs.
    :param config_sha256: SHA-256 of the file that the worker is started with.
    """

    rollout: str = ""
    replaces: str = ""
    config_sha256: str = ""


@dataclass(frozen=True, slots=True)
class RestartSpec:
    """What the helper is to do. It holds the secrets of ``env``, so it goes through a pipe only, never into a file.

    :param key: what this act is known by.
    :param stop_pid: the first process of the worker's family; 0 if none runs.
    :param stop_token: its start token.
    :param host: where the worker listens, with ``port``; the port must become free before the start.
    :param grace_seconds: how long the whole family has to end by itself.
    :param kill_seconds: how long what is left is waited for after SIGKILL.
    :param port_seconds: how long the port may take to become free.
    :param watch_seconds: how long the new process is watched until it listens.
    :param not_before: the start waits for this moment, seconds since the epoch, so that it is younger than the file.
    :param umask: file mode mask of the new process.
    :param limits: its resource limits: number of ``RLIMIT_…``, soft, hard.
    """

    key: ActKey
    stop_pid: int
    stop_token: str
    host: str
    port: int
    grace_seconds: float
    kill_seconds: float
    port_seconds: float
    watch_seconds: float
    not_before: float
    start: tuple[str, ...]
    cwd: str | None
    env: Mapping[str, str] = field(repr=False)
    log: str = ""
    pid_file: str = ""
    umask: int = 0o022
    limits: tuple[tuple[int, int, int], ...] = ()

    @property
    def record_path(self) -> Path:
        return record_path(Path(self.pid_file))

    @property
    def act_seconds(self) -> float:
        """Within this time the act is over, apart from a machine that is suspended."""
        return self.grace_seconds + self.kill_seconds + self.port_seconds + self.watch_seconds

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> RestartSpec:
        """Read :meth:`to_bytes` back.

        :raises ValueError: it is not whole: the controller has died while it wrote it.
        """
        document = json.loads(data)
        return cls(
            **{
                **document,
                "key": ActKey(**document["key"]),
                "start": tuple(document["start"]),
                "limits": tuple(tuple(limit) for limit in document["limits"]),
            }
        )


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """How far one act has come.

    :param helper: start token of the process that carries it out.
    :param pid: the new process; 0 before it runs.
    :param process: its start token.
    :param failure: why it has failed, as :class:`Failure`; empty if it has not.
    :param detail: the same in words.
    :param events: what has happened, in order.
    :param log_from: size of the worker's log, in bytes, before the new process wrote to it.
    """

    key: ActKey
    helper: str
    phase: Phase
    pid: int = 0
    process: str = ""
    failure: str = ""
    detail: str = ""
    events: tuple[RestartEvent, ...] = ()
    log_from: int = 0

    @property
    def is_in_flight(self) -> bool:
        """Whether its helper is still at it."""
        token = ProcessStart.parse(self.helper)
        return not self.phase.is_end and token is not None and token.is_alive

    def with_event(self, words: str, moment: Moment | None = None) -> RestartRecord:
        """The record with one more event, which has happened just now."""
        return replace(self, events=(*self.events, RestartEvent(words, moment, time.time() if moment else 0.0)))

    def write(self, path: Path) -> None:
        """Replace the record on the disk in one step.

        :raises OSError: it cannot be written.
        """
        events = {"events": [event.words for event in self.events], "moments": [_moment_of(e) for e in self.events]}
        document = {"schema": SCHEMA, **asdict(self), **events}
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(document, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)


def record_path(pid_file: Path) -> Path:
    """Where the record of a worker's restart stands."""
    return pid_file.with_name(pid_file.name + RECORD_SUFFIX)


def read_record(path: Path) -> RestartRecord | None:
    """The record of the last act, if no controller has reported it yet and this version understands it; else None."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = {name: document[name] for name in (f.name for f in fields(RestartRecord)) if name in document}
        if document.get("schema") != SCHEMA:
            return None
        return RestartRecord(
            **{
                **known,
                "key": ActKey(**document["key"]),
                "phase": Phase(document["phase"]),
                "events": tuple(_events(document)),
            }
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _moment_of(event: RestartEvent) -> list[str | float] | None:
    return [event.moment, event.at] if event.moment else None


def _events(document: Mapping[str, Any]) -> Iterator[RestartEvent]:
    """The events of a record; an earlier version has their words alone."""
    for words, moment in zip_longest(document["events"], document.get("moments", ())):
        yield RestartEvent(words, Moment(moment[0]), moment[1]) if moment else RestartEvent(words)


def forget(path: Path) -> None:
    """Remove a record that was reported."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the folder of a record, so that of two helpers that begin at once one sees the other's record."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def wait_for_end(path: Path, seconds: float, on_event: OnEvent) -> RestartRecord | None:
    """Follow an act until it is over.

    :param seconds: how long at most.
    :param on_event: receives each event once.
    :returns: the record as it was seen last: ended, or cut off (its helper is gone), or not over within the time.
        None if there is no record.
    """
    deadline = time.monotonic() + seconds
    reported = 0
    while True:
        is_last_look = time.monotonic() >= deadline
        record = read_record(path)
        is_over = record is None or not record.is_in_flight
        if is_over:
            record = read_record(path)  # the helper writes its last word and ends: look once more after its end
        for event in record.events[reported:] if record else ():
            on_event(event)
            reported += 1
        if is_over or is_last_look:
            return record
        time.sleep(_LOOK_SECONDS)
