"""Brokers that answer as a test says: connections for a producer without a network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine
from types import SimpleNamespace
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from airflow_eos_provider.kafka.wire import Wire

Answer = int | Exception

PRODUCER = (7, 3)

#: When each batch was appended, by the broker's clock.
APPENDED_AT_MS = 5_000


class ScriptedWire(Wire):
    """Each request is answered by the next of its kind's answers, and by success when there are no more.

    :param answers: by the request's name without ``Request``: error codes, and errors of connections.
    :ivar sent: what was sent: the request's name, and of batches their partition and their bytes.
    :ivar held: whether Produce requests wait for :meth:`answer_all`.
    """

    def __init__(self, **answers: list[Answer]) -> None:
        self._net: Any = NetworkSelector()
        self._manager: Any = KafkaConnectionManager(self._net, bootstrap_servers="127.0.0.1:1")
        self.answers = answers
        self.sent: list[tuple[Any, ...]] = []
        self.held = False
        self.leaders: defaultdict[tuple[str, int], int | None] = defaultdict(lambda: 1)
        self.partitions: int | None = 3
        self.hidden = False
        self._waiting: list[Callable[[], None]] = []
        self._epoch = PRODUCER[1] - 1

    def run(self, act: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        return self._net.run(act, *arguments)

    def settle(self) -> None:
        """Do everything that can be done now."""

        async def nothing() -> None:
            await self._net.sleep(0.05)

        self._net.run(nothing)

    def close(self) -> None:
        self._net.close()

    @property
    def story(self) -> list[str]:
        """The names of the requests."""
        return [name for name, *_ in self.sent]

    @property
    def batches(self) -> list[tuple[int, bytes]]:
        """Partition and bytes of each batch that was sent."""
        return [batch for name, *batches in self.sent if name == "Produce" for batch in batches]

    def answer_all(self) -> None:
        """Answer the Produce requests that wait."""
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()
        self.settle()

    async def connected(self, deadline: float) -> None:
        if self.answers.get("Connect"):
            raise self._raised(self.answers["Connect"].pop(0))

    async def coordinator(self, transactional_id: str, deadline: float) -> int:
        self.sent.append(("FindCoordinator",))
        if answer := self._next("FindCoordinator"):
            raise self._raised(answer)
        return 1

    async def refresh(self, topics: Collection[str], deadline: float) -> None:
        self.sent.append(("Metadata",))
        if answer := self._next("Metadata"):
            raise self._raised(answer)

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self.leaders[topic, partition]

    def partitions_of(self, topic: str) -> int | None:
        return self.partitions

    def is_hidden(self, topic: str) -> bool:
        return self.hidden

    def send(self, request: Any, node_id: int) -> Future:
        name = type(request).__name__.removesuffix("Request")
        future = Future()
        parts = [(topic.name, part) for topic in getattr(request, "topic_data", ()) for part in topic.partition_data]
        self.sent.append((name, *((part.index, bytes(part.records)) for _, part in parts)))
        answer = self._next(name)

        def act() -> None:
            if isinstance(answer, Exception):
                future.failure(answer)
            else:
                future.success(self._response(request, name, answer or 0, parts))

        if name == "Produce" and self.held:
            self._waiting.append(act)
        else:
            self._net.call_soon(act)
        return future

    def _next(self, name: str) -> Answer | None:
        return self.answers[name].pop(0) if self.answers.get(name) else None

    @staticmethod
    def _raised(answer: Answer) -> Exception:
        return answer if isinstance(answer, Exception) else kafka.errors.for_code(answer)()

    def _response(self, request: Any, name: str, code: int, parts: list[tuple[str, Any]]) -> Any:
        if name == "AddPartitionsToTxn":
            topics = [
                SimpleNamespace(
                    name=topic.name,
                    results_by_partition=[SimpleNamespace(partition_error_code=code) for _ in topic.partitions],
                )
                for topic in request.v3_and_below_topics
            ]
            return SimpleNamespace(results_by_topic_v3_and_below=topics)
        if name == "Produce":
            told = {"error_code": code, "base_offset": 10, "log_append_time_ms": APPENDED_AT_MS}
            return SimpleNamespace(
                responses=[
                    SimpleNamespace(
                        name=topic,
                        partition_responses=[
                            SimpleNamespace(index=part.index, error_message=None, record_errors=[], **told)
                        ],
                    )
                    for topic, part in parts
                ]
            )
        if name == "InitProducerId" and not code:
            self._epoch += 1
        return SimpleNamespace(error_code=code, producer_id=PRODUCER[0], producer_epoch=self._epoch)
