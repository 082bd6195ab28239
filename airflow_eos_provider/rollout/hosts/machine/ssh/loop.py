"""One event loop in one thread for all SSH connections of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a thread of its own until this process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="eos-ssh", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], *, seconds: float | None = None) -> T:
        """Do the work there, and wait for it here. Whoever stops waiting (Ctrl-C) ends the work."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(seconds)
        except BaseException:
            future.cancel()
            raise


async def in_thread(act: Callable[[], T]) -> T:
    """Do what blocks in a thread that does not hold up the end of this process."""
    outcome: Future[T] = Future()

    def do() -> None:
        outcome.set_running_or_notify_cancel()  # from here on, whoever waits no longer does not cancel it
        try:
            outcome.set_result(act())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=do, name="eos-ssh-options", daemon=True).start()
    return await asyncio.wrap_future(outcome)
