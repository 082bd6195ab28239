"""What the triggers share that ask again and again."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_eos_provider.errors import ConfigurationError, EosError


class PollingTrigger(BaseTrigger):
    """Asks until there is an answer. It only reads; it can be run again from its beginning, and twice at once.

    Its events: what :meth:`ask` returns, or one with a reason and the status ``timeout`` or ``error``.

    :cvar is_fresh: whether the task has just asked, so that the first question may wait.
    :param poke_interval: seconds between two questions.
    :param deadline: seconds since the epoch; it does not move when the task is deferred again.
    :param parameters: what the trigger asks about. Airflow stores it: names, no secrets.
    """

    is_fresh: ClassVar[bool] = False
    poke_interval: float
    deadline: float

    def __init__(self, **parameters: Any) -> None:
        super().__init__()
        self._parameters = parameters
        vars(self).update(parameters)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", self._parameters

    @abstractmethod
    def ask(self) -> tuple[dict[str, Any] | None, str]:
        """Ask once, in a thread: the event, if there is an answer; and what was seen, for the message of a timeout."""

    def next_at(self) -> float:
        """When to ask again, seconds since the epoch."""
        return time.time() + self.poke_interval

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # Not the shared thread of sync_to_async: one slow broker would hold up every other trigger. Not a bare thread:
        # a connection could not be asked for from there.
        ask = sync_to_async(self.ask, thread_sensitive=False)
        event, seen, waits = None, "No check was possible", self.is_fresh
        while event is None:
            if waits:
                await asyncio.sleep(max(min(self.next_at(), self.deadline) - time.time(), 0.0))
                if time.time() >= self.deadline:
                    event = {"status": "timeout", "reason": seen}
                    break
            waits = True
            try:
                event, seen = await ask()
            except ConfigurationError as error:
                event = {"status": "error", "reason": str(error)}
            except EosError as error:  # a broker that is away comes back, or the deadline comes
                seen = error.found
                self.log.warning("Nothing can be checked now: %s", seen)
        yield TriggerEvent(event)
