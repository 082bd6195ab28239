"""The producer that takes a transactional id next."""

from __future__ import annotations

from collections.abc import Callable

from airflow_eos_provider.kafka.write.producer import TransactionalProducer


class NextProducer:
    """Opens a producer early, so that it connects during other work. Its ``init`` takes the id, not its opening."""

    def __init__(self, open_producer: Callable[[], TransactionalProducer]) -> None:
        self._open_producer = open_producer
        self._opened: TransactionalProducer | None = None

    def open(self) -> None:
        """Open a producer for :meth:`take`."""
        self._opened = self._open_producer()

    def take(self) -> TransactionalProducer:
        """The open producer, or a new one. Each is taken once."""
        producer, self._opened = self._opened or self._open_producer(), None
        return producer
