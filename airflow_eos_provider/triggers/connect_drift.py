"""The trigger that notices a changed group; like every trigger it only reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from airflow_eos_provider.triggers.polling import PollingTrigger


class ConnectDriftTrigger(PollingTrigger):
    """Calls for a look when the members of the group are others than before, and else when it is time for one.

    It never decides: workers' files and processes are seen where the tasks run, usually not where the triggerer does.
    A worker that joins, leaves or restarts is a new member, and is looked at at once; for an edited file it is the time
    that counts. Its event: ``{"status": "look", "reason": …, "deadline": …}``.

    :param conn_id: a connection of type ``kafka_connect``.
    :param members: member ids at the last look, sorted.
    :param look_at: when the next look is due in any case, seconds since the epoch.
    """

    conn_id: str
    members: Sequence[str]
    look_at: float

    def ask(self) -> tuple[dict[str, Any] | None, str]:
        reason = ""
        if time.time() >= self.look_at:
            reason = "it is time for a check"
        elif _members(self.conn_id) != self.members:
            reason = "the group has other members than before"
        return ({"status": "look", "reason": reason, "deadline": self.deadline} if reason else None), ""

    def next_at(self) -> float:
        return min(super().next_at(), self.look_at)


def _members(conn_id: str) -> list[str]:
    from airflow_eos_provider.connect.group import describe_group
    from airflow_eos_provider.hooks.kafka_connect import KafkaConnectHook

    cluster = KafkaConnectHook(conn_id).get_cluster(logs_in=False)
    return sorted(member.member_id for member in describe_group(cluster.kafka, cluster.group_id).members)
