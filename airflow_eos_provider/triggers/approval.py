"""The trigger that reads an answer which the scheduler lost (see ``operators/approval.py``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.providers.standard.triggers.hitl import HITLTrigger
from airflow.triggers.base import TriggerEvent


class ApprovalAnswerTrigger(HITLTrigger):
    """Waits a while, then for a person's answer, which may have been there all the time.

    The wait is what makes it safe: the task's process has ended and the scheduler has heard of it before the answer
    sends the task on. Like every trigger it only reads, and it can be run again from its beginning.

    :param delay_seconds: how long it waits before it looks for the first time.
    """

    def __init__(self, *, delay_seconds: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.delay_seconds = delay_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        _, kwargs = super().serialize()
        return f"{type(self).__module__}.{type(self).__qualname__}", {**kwargs, "delay_seconds": self.delay_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(self.delay_seconds)
        async for event in super().run():
            yield event
