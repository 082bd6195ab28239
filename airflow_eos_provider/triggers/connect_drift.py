"""The trigger between two checks for drift; like every trigger it only reads, and only the group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_eos_provider.errors import ConfigurationError, EosError


class ConnectDriftTrigger(BaseTrigger):
    """Calls for a look when the members of the group are others than before, and else when it is time for one.

    It never decides: workers' files and processes are seen where the tasks run, usually not where the triggerer does.
    A worker that joins, leaves or restarts is a new member, and is looked at at once; for an edited file it is the time
    that counts. It can be run again from its beginning, and twice at once.

    Its events: ``{"status": "look", "reason": …, "deadline": …}``, ``{"status": "timeout"}`` or ``{"status": "error",
    "reason": …}``.

    :param conn_id: a connection of type ``kafka_connect``.
    :param members: member ids at the last look.
    :param poke_interval: seconds between two questions to the group.
    :param look_at: when the next look is due in any case, seconds since the epoch.
    :param deadline: seconds since the epoch; it does not move when the task is deferred again.
    """

    def __init__(
        self, *, conn_id: str, members: Sequence[str], poke_interval: float, look_at: float, deadline: float
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.members = sorted(members)
        self.poke_interval = poke_interval
        self.look_at = look_at
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "conn_id": self.conn_id,
            "members": self.members,
            "poke_interval": self.poke_interval,
            "look_at": self.look_at,
            "deadline": self.deadline,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # Not the shared thread of sync_to_async: one slow broker would hold up every other trigger.
        ask = sync_to_async(_members, thread_sensitive=False)
        while True:
            now = time.time()
            if now >= self.deadline:
                yield TriggerEvent({"status": "timeout"})
                return
            if now >= self.look_at:
                yield self._look("it is time for a check")
                return
            try:
                members = await ask(self.conn_id)
            except ConfigurationError as error:
                yield TriggerEvent({"status": "error", "reason": str(error)})
                return
            except EosError as error:  # a broker that is away comes back, or the next look shows it
                self.log.warning("The group cannot be asked now: %s", error.found)
            else:
                if members != self.members:
                    yield self._look("the group has other members than before")
                    return
            await asyncio.sleep(max(min(self.poke_interval, min(self.look_at, self.deadline) - time.time()), 0.0))

    def _look(self, reason: str) -> TriggerEvent:
        return TriggerEvent({"status": "look", "reason": reason, "deadline": self.deadline})


def _members(conn_id: str) -> list[str]:
    from airflow_eos_provider.connect.group import describe_group
    from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook

    cluster = KafkaConnectHook(conn_id).get_cluster(logs_in=False)
    return sorted(member.member_id for member in describe_group(cluster.kafka, cluster.group_id).members)
