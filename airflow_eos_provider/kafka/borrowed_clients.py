"""Clients that are kept between requests and used by one borrower at a time.

A new client costs connections, threads and often a login, which is more than most requests cost. A client whose
borrower failed is closed and never used again: librdkafka, for example, sends some requests to the broker that was once
the controller, even for minutes after that broker has died.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Lent(Generic[T]):
    """The clients of one kind: as many as were ever borrowed at the same time. Safe for several threads.

    :param close: closes one; what it raises is ignored, for nobody needs that client any more.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], object]) -> None:
        self._make = make
        self._close = close
        self._lock = threading.Lock()
        self._idle: list[T] = []
        self._closed = False
        #: How many clients were made so far.
        self.made = 0

    @contextmanager
    def lend(self) -> Iterator[T]:
        """A client for the time of the ``with`` block."""
        client = self._take()
        try:
            yield client
        except BaseException:
            self._discard(client)
            raise
        with self._lock:
            if not self._closed:
                self._idle.append(client)
                return
        self._discard(client)  # closed meanwhile: a look that was given up comes back late

    def close(self) -> None:
        """Close what is not borrowed now; what comes back later is closed then."""
        with self._lock:
            self._closed = True
        self.drop()

    def drop(self) -> None:
        """Close what is not borrowed now; the next borrower gets a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for client in idle:
            self._discard(client)

    def _take(self) -> T:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            self.made += 1
        return self._make()

    def _discard(self, client: T) -> None:
        with contextlib.suppress(Exception):
            self._close(client)
