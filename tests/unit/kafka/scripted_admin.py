"""An admin client whose brokers answer as a test says; time passes with each pause, and nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import kafka.errors
import pytest

from airflow_eos_provider.kafka.admin import client, groups
from airflow_eos_provider.kafka.admin.client import Admin
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


class ScriptedAdmin(Admin):
    """Each request gets what ``answer`` gives for it; an error is raised.

    :param answer: takes the request's name without ``Request`` and the request.
    :ivar asked: the names of the requests, ``Leaders`` for a look for a topic's leaders.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, Any], Any]) -> None:
        self.settings = KafkaSettings.of("127.0.0.1:1")
        self.wire: Any = self
        self._answer = answer
        self._now = 0.0
        self.asked: list[str] = []
        for module in (client, groups):
            monkeypatch.setattr(f"{module.__name__}.time.monotonic", lambda: self._now)

    def run(self, what: str, act: Any, *arguments: Any) -> Any:
        try:
            return asyncio.run(act(*arguments))
        except kafka.errors.KafkaError as error:
            raise self.explain(error, what) from error

    async def connected(self, deadline: float) -> None:
        """They are known."""

    async def brokers(self, deadline: float) -> list[int]:
        return [1]

    def start(self, act: Any, *arguments: Any) -> Any:
        return act(*arguments)

    def any_broker(self) -> int:
        return 1

    def leader_of(self, topic: str, partition: int) -> int:
        return 1

    async def coordinators(self, keys: Collection[str], kind: object, deadline: float) -> dict[str, int]:
        return dict.fromkeys(keys, 1)

    async def refresh(self, topics: Collection[str], deadline: float) -> None:
        self.asked.append("Leaders")

    async def pause(self, seconds: float) -> None:
        self._now += seconds

    def ask(self, request: Any, node_id: int) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.asked.append(name)
        return self._answer(name, request)

    async def within(self, answer: Any, deadline: float) -> Any:
        if isinstance(answer, Exception):
            self._now += 0.05
            raise answer
        return answer

    async def answer(self, request: Any, node_id: int, deadline: float) -> Any:
        return await self.within(self.ask(request, node_id), deadline)
