"""Looks at clusters, shared between viewers, bounded in number and in the time that a viewer waits.

A look takes seconds, of a dead cluster up to a minute. Each runs in a thread of its own, which the API server does not
wait for, neither while it answers others nor when it ends. What one has found is kept for a while; how many viewers ask
meanwhile makes no difference.
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

#: So many looks run at once, in all and of one cluster; others wait for their turn.
MOST_AT_ONCE = 12
MOST_OF_A_CLUSTER = 2

#: So many looks are kept; of more, those are forgotten that were not asked for the longest.
MOST_KEPT = 512

#: What nobody has asked for is forgotten after so many seconds: a look may hold ten thousand tasks.
FORGOTTEN_SECONDS = 600.0

#: So long a viewer waits for a first look, and for a newer one than there is, seconds.
FIRST_SECONDS = 8.0
NEWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a look, or a part of it, has failed.

    :param kind: the class of the error.
    """

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
    """What a look has found; the last good one, if the newest has failed.

    :param value: None if there was no good look yet.
    :param at: when it ended, seconds since the epoch.
    :param problem: why the newest look has failed.
    :param is_looking: whether a look runs, or waits for its turn.
    """

    value: T | None
    at: float | None
    took_seconds: float
    kept_seconds: float
    problem: Problem | None
    is_looking: bool

    @property
    def is_waiting(self) -> bool:
        """Whether the first look has not ended yet."""
        return self.is_looking and self.value is None and self.problem is None

    def looked_at(self) -> dict[str, Any] | None:
        """When the look was, as JSON."""
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
    """Starts looks and keeps what they find; safe for several threads and event loops.

    :param at_once: how many looks run at once.
    :param of_a_cluster: how many of one cluster.
    """

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
        """What a look finds; what it has found, if that is young enough, or if a newer one does not end in time.

        :param key: names it; it begins with the cluster.
        :param look: blocking; started if there is no young one, and none runs.
        :param kept_seconds: what is younger is not looked at again.
        :param first_seconds: how long to wait for the first look.
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
                logger.warning("A look at %s has failed:\n%s", entry.cluster, redact("".join(format_exception(error))))
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
