"""The trigger that waits for the gate of a roll while no process does; like every trigger it only reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_eos_provider.data_text import LINE_CHARACTERS, one_line
from airflow_eos_provider.errors import EosError
from airflow_eos_provider.redaction import redact

if TYPE_CHECKING:
    from airflow_eos_provider.rollout.act.handover import GateLook

#: A look that takes longer is given up, and the task looks itself. Each part of a look has a limit of its own.
LOOK_TIMEOUT_SECONDS = 120.0

#: What is awaited is logged again after this many seconds.
REPEAT_SECONDS = 60.0


class ConnectGateTrigger(BaseTrigger):
    """Calls for the task when the gate of a restarted worker has answered, as far as that can be seen remotely.

    It never decides and changes nothing: it asks group, REST, topics and the journal, and resumes the task when there
    is something to do: the gate holds or its time is over, failed tasks may be restarted, a pause was requested, or
    it is time to look at the hosts. It can be run again from its beginning, and twice at once. Every time in it is
    absolute, so neither a killed triggerer nor another deferral moves a deadline.

    Its events: ``{"status": "look", "reason": ..., "wait": ...}`` with the gate as it was seen last, or
    ``{"status": "error", "reason": ..., "wait": ...}`` if it cannot be looked at from here.

    :param conn_id: a connection of type ``kafka_connect``.
    :param task: the deferred task, ``<dag>/<run>/<task>``, to which the journal's lease is left.
    :param wait: the gate, see :class:`~airflow_eos_provider.rollout.gate.state.GateState`.
    :param poll_interval: seconds between two looks.
    """

    def __init__(self, *, conn_id: str, task: str, wait: Mapping[str, Any], poll_interval: float) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.task_name = task
        self.wait = dict(wait)
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "conn_id": self.conn_id,
            "task": self.task_name,
            "wait": self.wait,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            # By way of asgiref, since the connection is asked for through the triggerer's own loop.
            look = await sync_to_async(_gate_look, thread_sensitive=False)(self.conn_id, self.wait, self.task_name)
            reason = await self._wait_for(look)
        except TimeoutError:
            yield self._error(f"One check of the cluster took longer than {LOOK_TIMEOUT_SECONDS:.0f} s.")
        except EosError as error:
            yield self._error(str(error))
        except Exception as error:  # whatever it is, the task can wait itself; a trigger that fails costs it a try
            self.log.exception("The gate cannot be checked")
            yield self._error(redact(f"{type(error).__name__}: {error}"))
        else:
            yield TriggerEvent({"status": "look", "reason": reason, "wait": look.gate.to_dict()})

    async def _wait_for(self, look: GateLook) -> str:
        """Look until a process is needed; logs what is awaited."""
        logged, logged_at = "", 0.0
        while True:
            reason = await asyncio.wait_for(asyncio.to_thread(look.look), LOOK_TIMEOUT_SECONDS)
            line = look.status_line
            if line and (line != logged or time.time() - logged_at > REPEAT_SECONDS):
                self.log.info("%s", one_line(f"{look.gate.subject}: {line}", LINE_CHARACTERS))
                logged, logged_at = line, time.time()
            if reason is not None:
                return reason
            await asyncio.sleep(self.poll_interval)

    def _error(self, reason: str) -> TriggerEvent:
        return TriggerEvent({"status": "error", "reason": reason, "wait": self.wait})


def _gate_look(conn_id: str, wait: Mapping[str, Any], task: str) -> GateLook:
    from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook
    from airflow_eos_provider.rollout.act.handover import GateLook
    from airflow_eos_provider.rollout.gate.state import GateState

    return GateLook(KafkaConnectHook(conn_id).get_cluster(logs_in=False), GateState.from_dict(wait), task)
