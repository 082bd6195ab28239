"""The trigger that waits until no transaction blocks readers; like every trigger it only reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_eos_provider.errors import ConfigurationError, EosError


class ConnectTransactionsTrigger(BaseTrigger):
    """Asks the brokers again and again, and resumes the task when nothing holds readers up; the task looks once more.

    It can be run again from its beginning, and twice at once.

    Its events: ``{"status": "look", "deadline": …}``, ``{"status": "timeout", "reason": …}`` or ``{"status": "error",
    "reason": …}``.

    :param conn_id: a connection of type ``kafka_connect``.
    :param topics: where nothing may hang; empty for all.
    :param connectors: whose transactions may not be open too long; empty for all of the group's.
    :param longer_than: seconds for which a transaction may be open; None for its own timeout.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch; it does not move when the task is deferred again.
    """

    def __init__(
        self,
        *,
        conn_id: str,
        topics: Sequence[str],
        connectors: Sequence[str],
        longer_than: float | None,
        poke_interval: float,
        deadline: float,
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.topics = list(topics)
        self.connectors = list(connectors)
        self.longer_than = longer_than
        self.poke_interval = poke_interval
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "conn_id": self.conn_id,
            "topics": self.topics,
            "connectors": self.connectors,
            "longer_than": self.longer_than,
            "poke_interval": self.poke_interval,
            "deadline": self.deadline,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # Not the shared thread of sync_to_async: one slow broker would hold up every other trigger.
        look = sync_to_async(self._look, thread_sensitive=False)
        seen = "No check was possible"
        while True:
            await asyncio.sleep(max(min(self.poke_interval, self.deadline - time.time()), 0.0))  # the task has looked
            if time.time() >= self.deadline:
                yield TriggerEvent({"status": "timeout", "reason": seen})
                return
            try:
                is_clear, seen = await look()
            except ConfigurationError as error:
                yield TriggerEvent({"status": "error", "reason": str(error)})
                return
            except EosError as error:  # a broker that is away comes back
                seen = error.found
                self.log.warning("The transactions cannot be checked now: %s", seen)
                continue
            if is_clear:
                yield TriggerEvent({"status": "look", "deadline": self.deadline})
                return

    def _look(self) -> tuple[bool, str]:
        from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
        from airflow_eos_provider.transactions.auditor import look_at_open

        found = look_at_open(
            KafkaConnectHook(self.conn_id).get_cluster(logs_in=False),
            topics=self.topics,
            connectors=self.connectors,
            open_seconds=self.longer_than,
        )
        return found.verdict == "pass", found.describe()
