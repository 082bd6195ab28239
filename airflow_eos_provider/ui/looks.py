"""Snapshots of clusters, shared between viewers, bounded in number and in the time that a viewer waits.

A snapshot takes seconds, of a dead cluster up to a minute. Each is taken in its own thread. The API server
waits for none of these threads when it answers other requests or stops. All viewers share a fresh snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from traceback import format_exception
from typing import Any, Generic, TypeVar

from airflow_eos_provider.data_text import visible
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.redaction import redact

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: How many snapshots are taken at once, in all and of one cluster; others wait for their turn.
MOST_AT_ONCE = 12
MOST_OF_A_CLUSTER = 2

#: How many snapshots are kept; beyond that, the least recently used are dropped.
MOST_KEPT = 512

#: Seconds after which an unused snapshot is dropped: it may contain ten thousand tasks.
FORGOTTEN_SECONDS = 600.0

#: Seconds that a viewer waits for a first snapshot, and for a newer one.
FIRST_SECONDS = 8.0
NEWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a snapshot, or a part of it, failed."""

    found: str
    expected: str = ""
    remedy: str = ""
    kind: str = "EosError"

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        kind = type(error).__name__
        if isinstance(error, EosError):
            return cls(error.found, error.expected or "", error.remedy or "", kind)
        return cls(visible(redact(f"{kind}: {error}"), keep="\n"), remedy="See the API server's log.", kind=kind)

    def to_dict(self) -> dict[str, str]:
        return {"found": self.found, "expected": self.expected, "remedy": self.remedy, "kind": self.kind}


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A snapshot; if the newest failed, the last good one."""

    value: T | None
    at: float | None
    took_seconds: float
    kept_seconds: float
    problem: Problem | None
    is_looking: bool

    @property
    def is_waiting(self) -> bool:
        """Whether the first snapshot is not there yet."""
        return self.is_looking and self.value is None and self.problem is None

    def looked_at(self) -> dict[str, Any] | None:
        """When the snapshot was taken, as JSON."""
        if self.at is None:
            return None
        return {
            "at": self.at,
            "age_seconds": round(max(0.0, time.time() - self.at), 1),
            "took_seconds": round(self.took_seconds, 3),
            "kept_seconds": self.kept_seconds,
            "refreshing": self.is_looking,
        }


@dataclass(slots=True)
class _Entry(Generic[T]):
    cluster: str
    look: Callable[[], T]
    kept_seconds: float
    value: T | None = None
    at: float | None = None
    took_seconds: float = 0.0
    problem: Problem | None = None
    ended: float | None = None  # by the monotonic clock, as all that follow
    used: float = 0.0
    running: Future[None] | None = field(default=None)

    def is_fresh(self, now: float) -> bool:
        return self.ended is not None and now - self.ended < self.kept_seconds

    def seen(self) -> Seen[T]:
        looking = self.running is not None
        return Seen(self.value, self.at, self.took_seconds, self.kept_seconds, self.problem, looking)


class Looks:
    """Takes snapshots and keeps them; safe for several threads and event loops."""

    def __init__(self, at_once: int = MOST_AT_ONCE, of_a_cluster: int = MOST_OF_A_CLUSTER) -> None:
        self._at_once = at_once
        self._of_a_cluster = of_a_cluster
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, ...], _Entry[Any]] = OrderedDict()
        self._waiting: list[_Entry[Any]] = []
        self._running: Counter[str] = Counter()

    async def see(
        self,
        key: tuple[str, ...],
        look: Callable[[], T],
        *,
        kept_seconds: float,
        first_seconds: float = FIRST_SECONDS,
        newer_seconds: float = NEWER_SECONDS,
    ) -> Seen[T]:
        """A fresh snapshot, or the last one if a new one takes too long.

        :param key: names it; it begins with the cluster.
        :param look: blocking; started if there is no young one, and none runs.
        :param kept_seconds: what is younger is not looked at again.
        :param first_seconds: how long to wait for the first snapshot.
        :param newer_seconds: how long to wait for a newer one.
        """
        with self._lock:
            entry = self._entry(key, look, kept_seconds)
            running, seconds = entry.running, first_seconds if entry.ended is None else newer_seconds
        if running is not None and seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(running)), seconds)
        with self._lock:
            return entry.seen()

    def _entry(self, key: tuple[str, ...], look: Callable[[], T], kept_seconds: float) -> _Entry[T]:
        now = time.monotonic()
        entry = self._entries.setdefault(key, _Entry(key[0], look, kept_seconds))
        entry.used, entry.look, entry.kept_seconds = now, look, kept_seconds
        self._entries.move_to_end(key)
        self._forget(now)
        if entry.running is None and not entry.is_fresh(now):
            entry.running = Future()
            self._waiting.append(entry)
            self._start()
        return entry

    def _forget(self, now: float) -> None:
        old = [key for key, entry in self._entries.items() if now - entry.used > FORGOTTEN_SECONDS]
        surplus = list(self._entries)[: max(0, len(self._entries) - MOST_KEPT)]
        for key in {*old, *surplus}:
            if self._entries[key].running is None:
                del self._entries[key]

    def _start(self) -> None:
        """Start those whose turn it is, in the order in which they were asked for."""
        for entry in list(self._waiting):
            if self._running.total() >= self._at_once:
                return
            if self._running[entry.cluster] < self._of_a_cluster:
                self._waiting.remove(entry)
                self._running[entry.cluster] += 1
                # Not of a pool, whose threads would be waited for when the server ends.
                threading.Thread(target=self._run, args=(entry,), name=f"eos-look-{entry.cluster}", daemon=True).start()

    def _run(self, entry: _Entry[Any]) -> None:
        began = time.monotonic()
        value, problem = None, None
        try:
            value = entry.look()
        except Exception as error:
            problem = Problem.of(error)
            if not isinstance(error, EosError):
                logger.warning("A snapshot of %s failed:\n%s", entry.cluster, redact("".join(format_exception(error))))
        with self._lock:
            entry.ended, entry.problem = time.monotonic(), problem
            if problem is None:
                entry.value, entry.at, entry.took_seconds = value, time.time(), entry.ended - began
            running, entry.running = entry.running, None
            self._running[entry.cluster] -= 1
            if not self._running[entry.cluster]:
                del self._running[entry.cluster]
            self._start()
        if running is not None:
            running.set_result(None)
